"""One measurement: a load on a broker that stays up for the whole run, and what came of it when it had settled.

Messages are counted at the broker, by the ends of its queues or by what it gave to consumers, so it does not matter
what a program believes; processor time is the broker's own and, apart, that of the load programs, over the same
windows. `benchmarks/windows.py` says when a load has settled.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.versus.loads import LOADS, QUEUES, WARMER, Load
from benchmarks.versus.results import Record
from benchmarks.versus.sides import OVERLAY, ROOT, Side
from benchmarks.windows import WARM_COUNT, Reading, Settled, cpu_s, groups_of, settle
from tests.compat.harness import remoting
from tests.compat.harness.grpc_clients import go_program
from tests.compat.harness.java import release
from tests.compat.harness.processes import wait_until

CLIENT_JVM: Final = ("-server", "-Xms512m", "-Xmx512m", "-Dtls.server.mode=disabled")
PACKAGE: Final = "org.apache.rocketmq.example.benchmark."
OURS: Final = ("paced", "own")
FAILED: Final = re.compile(r"(?:Failed|Fail|failed\"): *(\d+)")
FIRST_MESSAGE_S: Final = 60.0


def measure(on: Side, name: str, seconds: float, run: str, number: int, home: Path) -> Record:
    load = LOADS[name]
    topic, group = prepare(on, name, load, number)
    if load.paced and on.handled < WARM_COUNT:
        drive(on, replace(load, programs=WARMER, paced=False), topic, group, seconds, home)
    settled, said = drive(on, load, topic, group, seconds, home)
    median_us, high_us = latencies(said[0], round(settled.whole.seconds)) if load.paced else (0.0, 0.0)
    return Record(
        run=run,
        number=number,
        load=name,
        make=on.make,
        per_s=settled.whole.per_s,
        cpu_us=settled.whole.server_us,
        load_us=settled.whole.load_us,
        windows=settled.windows,
        settled=settled.settled,
        resident_mib=on.resident_mib(),
        private_mib=on.private_mib(),
        ready_s=on.ready_s,
        failed=sum(failures(each) for each in said),
        p50_us=median_us,
        p99_us=high_us,
    )


def prepare(on: Side, name: str, load: Load, number: int) -> tuple[str, str]:
    """Topic and group of this round. A filled topic serves all rounds, each with a group that has read nothing."""
    topic = f"Bench_{name}" if load.fill else f"Bench_{name}_{number}"
    group = f"bench_{name}_{number}"
    for address in on.addresses:
        remoting.create_topic(address, topic, queues=QUEUES, keys=on.keys)
        remoting.create_group(address, group, on.keys)
    missing = load.fill - on.sent(topic, QUEUES)
    if missing > 0:
        fill(on.namesrv, topic, missing)
    os.sync()  # so that no load waits for what another one wrote
    return topic, group


def drive(on: Side, load: Load, topic: str, group: str, seconds: float, home: Path) -> tuple[Settled, list[Path]]:
    """Runs the programs of a load until it has settled."""
    with ExitStack() as stack:
        before = on.read() if load.reads else 0
        running = [stack.enter_context(program(each, topic, group, on, home)) for each in load.programs]
        pids = [process.pid for process, _ in running]

        def count() -> int:
            return on.read() - before if load.reads else on.sent(topic, QUEUES)

        def read() -> Reading:
            return Reading(count(), on.cpu_s(), cpu_s(pids), time.monotonic())

        began = count()
        wait_until(lambda: count() > began, f"a first message by {load.programs[0][0]}", FIRST_MESSAGE_S)
        groups = groups_of([os.getpid(), *on.pids, *pids])
        if len(groups) != 1:
            raise SystemExit(f"brokers and load are in several scheduling groups ({', '.join(sorted(groups))})")
        said = [path for _, path in running]
        settled = settle(
            read,
            load.window_s or seconds,
            0 if load.paced or on.handled >= WARM_COUNT else WARM_COUNT,
            value=(lambda _: latencies(said[0], int(seconds))[0]) if load.paced else (lambda window: window.per_s),
            count_max=load.fill or None,
        )
        on.handled += count() - began
        if settled.whole.count <= 0:
            raise SystemExit(f"{on.make} did nothing in {settled.whole.seconds:g} s: {on.broker.log_tail()}")
        return settled, said


@contextmanager
def program(
    words: Sequence[str], topic: str, group: str, on: Side, home: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Runs a program; gives its process and the file with what it says."""
    name, *arguments = (word.format(group=group) for word in words)
    said = home / f"{on.make}-{topic}-{name}.out"
    if name == "grpc":
        command = [*go_program("load"), on.grpc, topic, *arguments]
    elif name in OURS:
        target = on.addresses[0] if name == "paced" else on.namesrv
        command = [sys.executable, "-m", f"benchmarks.versus.{name}", target, topic, *arguments]
    else:
        common = ("-n", on.namesrv, "-t", topic, "-ri", "1000")
        command = release().command(PACKAGE + name, *common, *arguments, home=home, options=CLIENT_JVM)
    with said.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, env=our_environment())
    try:
        yield process, said
    finally:
        process.kill()
        process.wait()


def our_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{OVERLAY}{os.pathsep}{ROOT / 'src'}"}


def fill(namesrv: str, topic: str, count: int) -> None:
    """Puts messages in the topic, with our client, which is fast at it."""
    command = [sys.executable, "-m", "benchmarks.filling", namesrv, topic, str(count), "1024"]
    subprocess.run(command, check=True, env=our_environment(), cwd=ROOT)


def latencies(said: Path, seconds: int) -> tuple[float, float]:
    """Of the last seconds, each with its own percentiles: the median second."""
    lines = [json.loads(line) for line in said.read_text().splitlines() if line.endswith("}")][-max(1, seconds) :]
    return statistics.median(line["p50_us"] for line in lines), statistics.median(line["p99_us"] for line in lines)


def failures(said: Path) -> int:
    """The most that the program has reported at once."""
    return max((int(count) for count in FAILED.findall(said.read_text())), default=0)
