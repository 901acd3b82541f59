"""One measurement: a fresh pair of one make, a load on it, and what came of it.

Messages are counted at the broker, by the ends of its queues or by what it gave to consumers, so it does not matter
what a program believes; processor time is the broker's own, over the same seconds.
"""

from __future__ import annotations

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
from pathlib import Path
from typing import Final

from benchmarks.versus.loads import GROUP, LOADS, QUEUES, TOPIC, Load
from benchmarks.versus.results import Record
from benchmarks.versus.sides import OVERLAY, ROOT, Side, side
from tests.compat.harness import remoting
from tests.compat.harness.java import release
from tests.compat.harness.processes import wait_until

CLIENT_JVM: Final = ("-server", "-Xms512m", "-Xmx512m", "-Dtls.server.mode=disabled")
PACKAGE: Final = "org.apache.rocketmq.example.benchmark."
OURS: Final = ("paced", "own")
FAILED: Final = re.compile(r"(?:Failed|Fail|failed\"): *(\d+)")
FIRST_MESSAGE_S: Final = 60.0
LOOK_S: Final = 0.25
# Of a filled topic; the last messages of its queues come when the consumer is no longer busy.
ENOUGH: Final = 0.95


def measure(make: str, name: str, seconds: float, run: str, number: int) -> Record:
    load = LOADS[name]
    with tempfile.TemporaryDirectory(prefix="versus-") as place:
        directory = Path(place)
        with side(make, directory, dict(load.settings), load.slave) as on, ExitStack() as stack:
            for address in on.addresses:
                remoting.create_topic(address, TOPIC, queues=QUEUES)
                remoting.create_group(address, GROUP)
            if load.fill:
                fill(on.namesrv, load.fill)
            said = [stack.enter_context(program(*each, on=on, home=directory)) for each in load.programs]
            per_s, cpu_us, window_s = watch(on, load, seconds)
            median_us, high_us = latencies(said[0], window_s) if load.programs[0][0] == "paced" else (0.0, 0.0)
            return Record(
                run=run,
                number=number,
                load=name,
                make=make,
                per_s=per_s,
                cpu_us=cpu_us,
                resident_mib=on.resident_mib(),
                private_mib=on.private_mib(),
                ready_s=on.ready_s,
                failed=sum(failures(each) for each in said),
                p50_us=median_us,
                p99_us=high_us,
            )


def watch(on: Side, load: Load, seconds: float) -> tuple[float, float, int]:
    """Messages a second, processor time per message in us, and for how many whole seconds that was watched."""

    def done() -> int:
        return on.read() if load.reads else on.sent(TOPIC, QUEUES)

    before = 0 if load.reads else done()
    wait_until(lambda: done() > before, f"a first message by {load.programs[0][0]}", FIRST_MESSAGE_S)
    time.sleep(load.warm_s)
    first, began_s, began_cpu_s = done(), time.monotonic(), on.cpu_s()
    last, ended_s, ended_cpu_s = first, began_s, began_cpu_s
    while ended_s - began_s < seconds and not (load.fill and last >= load.fill * ENOUGH):
        time.sleep(min(LOOK_S, seconds) if load.fill else seconds)
        last, ended_s, ended_cpu_s = done(), time.monotonic(), on.cpu_s()
    if last <= first:
        raise SystemExit(f"{on.make} did nothing in {seconds:g} s: {on.broker.log_tail()}")
    took_s = ended_s - began_s
    return (last - first) / took_s, (ended_cpu_s - began_cpu_s) / (last - first) * 1e6, int(took_s)


@contextmanager
def program(name: str, *arguments: str, on: Side, home: Path) -> Iterator[Path]:
    """Runs a program; gives the file with what it says."""
    said = home / f"{name}.out"
    if name in OURS:
        target = on.addresses[0] if name == "paced" else on.namesrv
        command = [sys.executable, "-m", f"benchmarks.versus.{name}", target, TOPIC, *arguments]
    else:
        common = ("-n", on.namesrv, "-t", TOPIC, "-ri", "1000")
        command = release().command(PACKAGE + name, *common, *arguments, home=home, options=CLIENT_JVM)
    with said.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, env=our_environment())
    try:
        yield said
    finally:
        process.kill()
        process.wait()


def our_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{OVERLAY}{os.pathsep}{ROOT / 'src'}"}


def fill(namesrv: str, count: int) -> None:
    """Puts messages in the topic, with our client, which is fast at it."""
    command = [sys.executable, "-m", "benchmarks.filling", namesrv, TOPIC, str(count), "1024"]
    subprocess.run(command, check=True, env=our_environment(), cwd=ROOT)


def latencies(said: Path, seconds: int) -> tuple[float, float]:
    """Of the last seconds, each with its own percentiles: the median second."""
    lines = [json.loads(line) for line in said.read_text().splitlines() if line.endswith("}")][-max(1, seconds) :]
    return statistics.median(line["p50_us"] for line in lines), statistics.median(line["p99_us"] for line in lines)


def failures(said: Path) -> int:
    """The most that the program has reported at once."""
    return max((int(count) for count in FAILED.findall(said.read_text())), default=0)
