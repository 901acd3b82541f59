"""Windows of a load: it runs until three in a row agree, and those three are the measurement.

A JVM compiles itself while it runs: RocketMQ's broker doubles its rate and halves its cost within its first 600,000
messages. So nothing counts until `count_min` messages have passed, and until the rates of `AGREEING` windows in a row
lie within `APART_MAX` of their mean. A load that never agrees ends after `windows_max` and is reported as not settled.

One scheduling group: Linux gives each session its share of the cores (`kernel.sched_autogroup_enabled`), so a broker in
a session of its own competes with the load program session against session, and one with many threads loses by it.
`groups_of()` names the groups of processes; a comparison is fair when there is one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# RocketMQ's compiler needs some 600,000 messages until it is done.
WARM_COUNT: Final = 1_000_000
AGREEING: Final = 3
APART_MAX: Final = 0.05
WINDOWS_MAX: Final = 24
# A backlog smaller than this many windows is its tail: queues end one by one and the rate falls.
DRY: Final = 1.2
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment: messages, processor time of the servers and of the load programs."""

    count: int
    server_s: float
    load_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Window:
    """What passed between two readings."""

    count: int
    seconds: float
    server_s: float
    load_s: float

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def server_us(self) -> float:
        return self.server_s / self.count * 1e6 if self.count else 0.0

    @property
    def load_us(self) -> float:
        return self.load_s / self.count * 1e6 if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Settled:
    """The last windows as one; `windows` is how many there were in all, the warm-up included."""

    whole: Window
    windows: int
    settled: bool


def between(first: Reading, last: Reading) -> Window:
    return Window(
        last.count - first.count, last.at_s - first.at_s, last.server_s - first.server_s, last.load_s - first.load_s
    )


def agree(values: Sequence[float]) -> bool:
    mean = sum(values) / len(values)
    return mean > 0 and (max(values) - min(values)) / mean <= APART_MAX


def settle(
    read: Callable[[], Reading],
    seconds: float,
    count_min: int,
    windows_max: int = WINDOWS_MAX,
    value: Callable[[Window], float] = lambda window: window.per_s,
    count_max: int | None = None,
) -> Settled:
    """Read every `seconds` until windows agree by `value`; a backlog of `count_max` ends before one would run dry."""
    readings = [read()]
    values: list[float] = []
    while len(values) < windows_max:
        time.sleep(max(0.0, readings[-1].at_s + seconds - time.monotonic()))
        readings.append(read())
        last = between(readings[-2], readings[-1])
        values.append(value(last))
        if len(values) >= AGREEING:
            counted = readings[-1 - AGREEING].count
            if counted >= count_min and agree(values[-AGREEING:]):
                return Settled(between(readings[-1 - AGREEING], readings[-1]), len(values), True)
        if count_max is not None and readings[-1].count + last.count * DRY > count_max:
            break
    first = readings[-1 - min(AGREEING, len(values))]
    return Settled(between(first, readings[-1]), len(values), False)


def until_agree(measure: Callable[[], tuple[float, int]], count_min: int = WARM_COUNT) -> bool:
    """Repeat a measurement, which gives its value and how many messages it moved, until windows agree. False: never."""
    values: list[float] = []
    count = 0
    while len(values) < WINDOWS_MAX:
        value, moved = measure()
        values.append(value)
        count += moved
        if count >= count_min and len(values) >= AGREEING and agree(values[-AGREEING:]):
            return True
    return False


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of processes; one that has ended counts nothing."""
    return sum(_ticks(pid) for pid in pids) / TICKS_PER_S


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


def groups_of(pids: Iterable[int]) -> set[str]:
    """The scheduling groups of processes; {"none"} where the kernel makes none by session."""
    switch = Path("/proc/sys/kernel/sched_autogroup_enabled")
    if not switch.exists() or switch.read_text().strip() == "0":
        return {"none"}
    # The file is empty for a process that never was in a session of its own: it runs in the root group.
    return {Path(f"/proc/{pid}/autogroup").read_text().partition(" ")[0].strip() or "root" for pid in pids}
