"""Our broker beside RocketMQ's, on RocketMQ's own benchmark programs, on the same machine, in turns.

    make bench                                      all paths; or: python -m benchmarks.versus_java [PATH ...]
    python -m benchmarks.versus_java --rounds 3 --seconds 20 -o json send64 sync64

Each round starts a fresh name server and broker of one make, on a fresh directory, and drives it with the stock Java
program (`org.apache.rocketmq.example.benchmark`). The makes alternate, so that both see the same machine. What the
program reports every second is used after `--warm` seconds: throughput is the median of those seconds; processor time
is the broker's own, from /proc, over the same seconds and divided by the messages of them.

    throughput    ours / Java's, medians over rounds; more than 1 is faster
    cpu           processor time per message, ours / Java's; less than 1 is cheaper

Private memory is the broker's at the end of the load. The interpreted build is measured as `comet-interpreted`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.compat.harness import remoting
from tests.compat.harness.java import release
from tests.compat.harness.servers import Broker, CometBroker, CometNameServer, JavaBroker, JavaNameServer

ROOT = Path(__file__).resolve().parents[1]
OVERLAY = ROOT / "build" / "compiled"
# What a broker has without a settings file; the harness makes files small for tests.
FULL_FILES: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "mappedFileSizeTimerLog": 104_857_600,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    # A machine whose two cores are all in use is not a broker in trouble.
    "brokerFastFailureEnable": False,
    "osPageCacheBusyTimeOutMills": 10_000,
    "useReentrantLockWhenPutMessage": True,
}
BROKER_OPTIONS: Final = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Dtls.server.mode=disabled")
CLIENT_OPTIONS: Final = ("-server", "-Xms512m", "-Xmx512m", "-Dtls.server.mode=disabled")
PACKAGE: Final = "org.apache.rocketmq.example.benchmark."
TICKS: Final = os.sysconf("SC_CLK_TCK")
TPS: Final = re.compile(r"TPS: *(\d+)")
FAILED: Final = re.compile(r"(?:Send Failed|Response Failed|FAIL): *(\d+)")


@dataclass(frozen=True)
class Load:
    """One way to drive a broker: the programs that run at once, the first of which is measured."""

    programs: tuple[tuple[str, ...], ...]
    settings: tuple[tuple[str, object], ...] = ()
    # Messages per unit that the program counts.
    per_count: int = 1
    fill: int = 0


def producer(threads: int, size: int, *more: str) -> tuple[str, ...]:
    return ("Producer", "-w", str(threads), "-s", str(size), *more)


CONSUMER: Final = ("Consumer", "-g", "bench_consumer", "-p", "false", "-w", "20")
LOADS: Final = {
    "send1": Load((producer(1, 1024),)),
    "send16": Load((producer(16, 1024),)),
    "send64": Load((producer(64, 1024),)),
    "send64-128b": Load((producer(64, 128),)),
    "send64-16k": Load((producer(64, 16_384),)),
    "sync64": Load((producer(64, 1024),), (("flushDiskType", "SYNC_FLUSH"),)),
    "batch": Load((("BatchProducer", "-w", "16", "-b", "32", "-s", "1024"),)),
    "live": Load((CONSUMER, producer(64, 1024))),
    "consume": Load((CONSUMER,), fill=1_000_000),
    "transactions": Load((("TransactionProducer", "-w", "32", "-s", "1024", "-rr", "0", "-ur", "0", "-ci", "3000"),)),
}
TABLE: Final = ("send64", "sync64", "batch", "consume", "live", "transactions")


@dataclass
class Figures:
    per_s: float
    cpu_us: float
    private_mib: float
    ready_s: float
    failed: int


@contextmanager
def pair(make: str, directory: Path, settings: dict[str, object]) -> Iterator[tuple[str, Broker, float]]:
    """Name server and broker of one make: the name server's address, the broker, seconds until it served."""
    overlay = os.environ.pop("PYTHONPATH", None)
    if make == "comet":
        os.environ["PYTHONPATH"] = str(OVERLAY)
    try:
        with ExitStack() as stack:
            began_s = time.monotonic()
            if make == "java":
                names: Any = stack.enter_context(JavaNameServer(directory, options=BROKER_OPTIONS)).start()
                broker: Broker = JavaBroker(directory, names.address, settings, options=BROKER_OPTIONS)
            else:
                names = stack.enter_context(CometNameServer(directory)).start()
                broker = CometBroker(directory, names.address, settings)
            stack.enter_context(broker).start()
            yield names.address, broker, time.monotonic() - began_s
    finally:
        os.environ.pop("PYTHONPATH", None)
        if overlay is not None:
            os.environ["PYTHONPATH"] = overlay


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def private_mib(pid: int) -> float:
    """Memory of its own; pages of the log in memory are the page cache's, and are given back when others need them."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss_Anon: +(\d+) kB", rollup, re.MULTILINE)[0]) / 1024


@contextmanager
def program(name: str, arguments: tuple[str, ...], namesrv: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A benchmark program, its output a pipe."""
    interval = () if name == "TransactionProducer" else ("-ri", "1000")
    command = release().command(
        PACKAGE + name, "-n", namesrv, "-t", "Bench", *interval, *arguments, home=home, options=CLIENT_OPTIONS
    )
    with open(home / f"{name}.err", "w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure(make: str, load: Load, seconds: int, warm: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="versus-") as name:
        directory = Path(name)
        settings = {**FULL_FILES, **dict(load.settings)}
        with pair(make, directory, settings) as (namesrv, broker, ready_s), ExitStack() as stack:
            remoting.create_topic(broker.address, "Bench", queues=16)
            remoting.create_group(broker.address, "bench_consumer")
            if load.fill:
                fill(namesrv, load.fill)
            for others in load.programs[1:]:
                stack.enter_context(program(others[0], others[1:], namesrv, directory))
            first = load.programs[0]
            process = stack.enter_context(program(first[0], first[1:], namesrv, directory))
            return watch(process, broker, load, seconds, warm, ready_s)


def watch(
    process: subprocess.Popen[str], broker: Broker, load: Load, seconds: int, warm: int, ready_s: float
) -> Figures:
    """Reads what the program reports until it has reported long enough."""
    assert process.stdout is not None
    rates: list[int] = []
    failed = began_cpu_s = began_s = 0.0
    for line in process.stdout:
        found = TPS.search(line)
        if found is None:
            continue
        rate = int(found.group(1)) * load.per_count
        if not began_s:
            if rate and (warm := warm - 1) < 0:
                began_s, began_cpu_s = time.monotonic(), cpu_s(broker.pid)
            continue
        if load.fill and not rate:
            break  # all is consumed
        rates.append(rate)
        failed += sum(int(count) for count in FAILED.findall(line))
        if time.monotonic() - began_s >= seconds:
            break
    if not rates:
        raise SystemExit(f"the program reported nothing: {broker.log_tail()}")
    took_s = time.monotonic() - began_s
    cpu = cpu_s(broker.pid) - began_cpu_s
    messages = statistics.fmean(rates) * took_s
    return Figures(statistics.median(rates), cpu / messages * 1e6, private_mib(broker.pid), ready_s, int(failed))


def fill(namesrv: str, count: int) -> None:
    """Puts messages in the topic, with our client, which is fast at it."""
    environment = {**os.environ, "PYTHONPATH": f"{OVERLAY}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "benchmarks.filling", namesrv, "Bench", str(count), "1024"]
    subprocess.run(command, check=True, env=environment, cwd=ROOT)


def compare(name: str, makes: list[str], rounds: int, seconds: int, warm: int) -> dict[str, Any]:
    found: dict[str, list[Figures]] = {make: [] for make in makes}
    for _ in range(rounds):
        for make in makes:
            figures = measure(make, LOADS[name], seconds, warm)
            found[make].append(figures)
            print(f"  {name:14} {make:18} {figures.per_s:9.0f}/s {figures.cpu_us:7.1f} us "
                  f"{figures.private_mib:6.0f} MiB {figures.failed} failed", file=sys.stderr, flush=True)  # fmt: skip
    return {"load": name, **{make: [asdict(one) for one in rows] for make, rows in found.items()}}


def ratios(row: dict[str, Any], make: str) -> tuple[float, float, float, str]:
    """Throughput, processor time per message and memory against Java's, and the spread of throughput over rounds."""

    def median(of: str, key: str) -> float:
        return float(statistics.median(one[key] for one in row[of]))

    each = [ours["per_s"] / theirs["per_s"] for ours, theirs in zip(row[make], row["java"], strict=True)]
    return (
        median(make, "per_s") / median("java", "per_s"),
        median(make, "cpu_us") / median("java", "cpu_us"),
        median(make, "private_mib") / median("java", "private_mib"),
        f"{min(each):.2f}-{max(each):.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loads", nargs="*", default=list(TABLE), metavar="PATH", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--interpreted", action="store_true", help="measure the interpreted build too")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    unknown = [name for name in options.loads if name not in LOADS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(LOADS)}")
    if not OVERLAY.exists():
        parser.error("there is no compiled build: run make bench, or make build/compiled/.ready")
    makes = ["java", "comet", *(["comet-interpreted"] if options.interpreted else [])]
    rows = [compare(name, makes, options.rounds, options.seconds, options.warm) for name in options.loads]
    if options.output == "json":
        print(json.dumps(rows, indent=1))
        return
    print(f"{'path':14} {'build':18} {'throughput':>10} {'spread':>11} {'cpu':>6} {'memory':>7}   (ours / Java)")
    for row in rows:
        for make in makes[1:]:
            rate, cpu, memory, spread = ratios(row, make)
            print(f"{row['load']:14} {make:18} {rate:10.2f} {spread:>11} {cpu:6.2f} {memory:7.2f}")


if __name__ == "__main__":
    main()
