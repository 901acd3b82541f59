"""What an idle queue costs: time until it serves, and memory, beside RocketMQ's name server and broker.

    python -m benchmarks.footprint [--rounds N] [-o json]

`cometmq up` is one process with name server and broker; RocketMQ's pair is two. Time is from the start of the process
(of the name server, and then of the broker) to the line that says that it serves. Memory is read from /proc after a
few idle seconds: resident, and private (what no other process shares). The compiled build is measured if it exists.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.compat.harness.processes import Child
from tests.compat.harness.servers import CometUp, JavaBroker, JavaNameServer

OVERLAY = Path(__file__).resolve().parents[1] / "build" / "compiled"
JAVA_OPTIONS = ("-server", "-Xms1g", "-Xmx1g", "-Dtls.server.mode=disabled")
IDLE_S = 5.0
# What a broker has without a settings file; the harness makes files small for tests.
FULL_FILES = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "mappedFileSizeTimerLog": 104_857_600,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


@dataclass
class Figures:
    ready_s: float
    resident_mib: float
    private_mib: float


def start_comet(directory: Path, stack: ExitStack) -> list[Child]:
    return [stack.enter_context(CometUp(directory, FULL_FILES)).start()]


def start_java(directory: Path, stack: ExitStack) -> list[Child]:
    name_server = stack.enter_context(JavaNameServer(directory / "namesrv", options=JAVA_OPTIONS)).start()
    broker = JavaBroker(directory / "broker", name_server.address, FULL_FILES, options=JAVA_OPTIONS)
    return [name_server, stack.enter_context(broker).start()]


def measure(start: Callable[[Path, ExitStack], Sequence[Child]]) -> Figures:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        began_s = time.monotonic()
        children = start(Path(directory), stack)
        ready_s = time.monotonic() - began_s
        time.sleep(IDLE_S)
        rollups = [_rollup(child.pid) for child in children]
    return Figures(ready_s, sum(kib["Rss"] for kib in rollups) / 1024, sum(_private(kib) for kib in rollups) / 1024)


def _rollup(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def _private(kib: dict[str, int]) -> int:
    return kib["Private_Clean"] + kib["Private_Dirty"]


def median(rounds: list[Figures]) -> Figures:
    columns = [asdict(figures) for figures in rounds]
    return Figures(**{name: statistics.median(row[name] for row in columns) for name in columns[0]})


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up time and idle memory beside RocketMQ's pair.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    kinds: dict[str, Callable[[Path, ExitStack], Sequence[Child]]] = {"RocketMQ 5.5.0, two processes": start_java}
    kinds["cometmq up, interpreted"] = start_comet
    if (OVERLAY / ".ready").exists():
        kinds["cometmq up, compiled"] = start_comet
    seen: dict[str, list[Figures]] = {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        for kind, start in kinds.items():
            os.environ["PYTHONPATH"] = str(OVERLAY) if kind.endswith(" compiled") else ""
            seen[kind].append(measure(start))
    results = {kind: median(rounds) for kind, rounds in seen.items()}
    if options.output == "json":
        print(json.dumps({kind: asdict(figures) for kind, figures in results.items()}, indent=1))
        return 0
    java = next(iter(results.values()))
    print(f"{'':32}{'ready':>9}{'resident':>12}{'private':>12}   ratio to RocketMQ: ready, private")
    for kind, figures in results.items():
        print(
            f"{kind:32}{figures.ready_s:7.2f} s{figures.resident_mib:8.0f} MiB{figures.private_mib:8.0f} MiB"
            f"   {figures.ready_s / java.ready_s:.3f}, {figures.private_mib / java.private_mib:.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
