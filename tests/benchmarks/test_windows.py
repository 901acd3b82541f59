"""A load counts when it has settled: enough messages, and three windows that agree."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.windows import Reading, Settled, agree, cpu_s, groups_of, settle, until_agree
from tests.compat.harness.processes import Child


def run(counts: list[int], count_min: int = 0, windows_max: int = 24, count_max: int | None = None) -> Settled:
    """Windows of one second each, with these messages in them, over a clock that does not wait."""
    total, readings = 0, [Reading(0, 0.0, 0.0, -1e6)]
    for number, count in enumerate(counts, 1):
        total += count
        readings.append(Reading(total, total * 10e-6, total * 30e-6, number - 1e6))
    ahead = iter(readings)
    return settle(lambda: next(ahead), 1.0, count_min, windows_max, count_max=count_max)


def test_three_windows_that_agree_are_the_measurement() -> None:
    found = run([100, 150, 200, 201, 202, 999])
    assert found.settled
    assert found.windows == 5
    assert found.whole.per_s == pytest.approx(201)
    assert found.whole.server_us == pytest.approx(10)
    assert found.whole.load_us == pytest.approx(30)


def test_windows_before_enough_messages_are_warm_up() -> None:
    assert run([100, 100, 100, 100, 100, 100], count_min=250).windows == 6


def test_a_load_that_never_agrees_says_so() -> None:
    found = run([100, 200] * 4, windows_max=6)
    assert not found.settled
    assert found.windows == 6


def test_a_backlog_ends_before_a_window_runs_dry() -> None:
    found = run([100, 200, 300, 250, 140], count_max=1_100)
    assert not found.settled
    assert found.windows == 4


def test_a_measurement_is_repeated_until_it_is_warm_and_agrees() -> None:
    values = iter([10.0, 100.0, 101.0, 102.0, 103.0, 500.0])
    assert until_agree(lambda: (next(values), 100), count_min=450)
    assert next(values) == 500.0
    climbing = iter(range(1, 1000))
    assert not until_agree(lambda: (float(next(climbing) ** 2), 100), count_min=0)


@pytest.mark.parametrize(("values", "agreed"), [([100, 102, 105], True), ([100, 102, 108], False), ([0, 0, 0], False)])
def test_windows_agree_within_a_twentieth(values: list[float], agreed: bool) -> None:
    assert agree(values) is agreed


def test_processor_time_is_of_the_processes_that_are_asked_for() -> None:
    before = cpu_s([os.getpid()])
    ends_s = time.process_time() + 0.1
    while time.process_time() < ends_s:
        pass
    assert cpu_s([os.getpid()]) - before > 0.05
    assert cpu_s([2**22 + 1]) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling groups are Linux's")
def test_a_process_outside_of_every_session_has_a_scheduling_group_too() -> None:
    """The first process of a machine is in none that the kernel names, and whatever it starts may stay there."""
    assert len(groups_of([1])) == 1


class Sleeper(Child):
    def command(self) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.skipif(sys.platform != "linux", reason="scheduling groups are Linux's")
def test_children_of_the_harness_share_the_scheduling_group_of_their_load(tmp_path: Path) -> None:
    """A broker in a session of its own would be one of several: its threads would compete as one with the load."""
    with Sleeper("sleeper", tmp_path).start() as child:
        assert len(groups_of([os.getpid(), child.pid])) == 1
    apart = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        shared = groups_of([os.getpid(), apart.pid])
        assert shared == {"none"} or len(shared) == 2
    finally:
        apart.kill()
        apart.wait()
