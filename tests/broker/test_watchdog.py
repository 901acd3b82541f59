"""The watchdog: stacks of a loop that stands still."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from cometmq.broker.admission import LoopWatch
from cometmq.broker.watchdog import FILES_MAX, STALL_S, Watchdog
from cometmq.clock import SystemClock
from tests.support.aio import run
from tests.support.brokers import running_broker
from tests.support.net import until


@pytest.mark.mission("MO-05")
async def test_a_loop_blocked_for_2_seconds_leaves_stacks_of_all_threads_and_tasks(tmp_path: Path) -> None:
    async def a_task_that_waits() -> None:
        await asyncio.Event().wait()

    async with running_broker(tmp_path, debugLockEnable=True):
        task = asyncio.create_task(a_task_that_waits(), name="patient")
        await asyncio.sleep(0.3)
        threads = {thread.name for thread in threading.enumerate()}
        began_s = time.monotonic()
        block_here(2.3)
        directory = tmp_path / "store/stacks"
        await until(lambda: "task patient" in first_text(directory), "the first file")
        assert len(list(directory.iterdir())) <= time.monotonic() - began_s, "at most one per second"
        text = first_text(directory)
        assert "block_here" in text, "what blocks is in its stack"
        assert "task patient" in text
        assert "a_task_that_waits" in text
        assert {"MainThread", "cometmq-flush"} <= threads
        assert all(f"thread {name} " in text for name in threads)
        task.cancel()


def first_text(directory: Path) -> str:
    files = sorted(directory.iterdir()) if directory.exists() else []
    return files[0].read_text() if files else ""


def block_here(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.mission("MO-05")
def test_without_the_setting_and_without_a_stall_nothing_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path / "off"):
            block_here(1.3)
        async with running_broker(tmp_path / "on", debugLockEnable=True) as broker:
            block_here(0.5)
            await asyncio.sleep(0.3)
            stalls_s.append(broker.watch.longest_s)

    stalls_s: list[float] = []
    run(main())
    assert not list(tmp_path.glob("off/store/stacks"))
    # Unless the machine has added to the stall.
    assert not list(tmp_path.glob("on/store/stacks")) or stalls_s[0] > STALL_S - 0.1


def test_only_the_newest_files_are_kept_and_a_stopped_watchdog_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        for number in range(FILES_MAX + 5):
            (tmp_path / f"stack-old-{number}.txt").write_text("old")
        clock = SystemClock()
        watch = LoopWatch(clock)
        watch.ticked_s = clock.monotonic() - 5
        watchdog = Watchdog(watch, clock, asyncio.get_running_loop(), tmp_path)
        watchdog.start()
        await until(lambda: watchdog.written == 1)
        watchdog.stop()

    run(main())
    files = list(tmp_path.iterdir())
    assert len(files) == FILES_MAX
    assert sum(path.read_text() == "old" for path in files) == FILES_MAX - 1
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}
