"""Checks cometmq.clock."""

import asyncio
import time
from collections.abc import Callable

import pytest

from cometmq.clock import Clock, ManualClock, SystemClock
from tests.support.aio import run


def test_manual_clock_stands_still_until_advanced() -> None:
    clock = ManualClock(wall_ms=5_000)
    before = clock.monotonic()
    assert clock.now_ms() == 5_000
    clock.advance(1.5)
    assert clock.now_ms() == 6_500
    assert clock.monotonic() - before == 1.5


def test_timers_run_in_order_of_due_time_and_see_that_time() -> None:
    clock = ManualClock(wall_ms=0)
    seen: list[tuple[str, int]] = []
    clock.call_later(3, lambda: seen.append(("late", clock.now_ms())))
    clock.call_later(1, lambda: seen.append(("early", clock.now_ms())))
    clock.call_later(1, lambda: seen.append(("early too", clock.now_ms())))
    clock.advance(10)
    assert seen == [("early", 1_000), ("early too", 1_000), ("late", 3_000)]
    assert clock.now_ms() == 10_000


def test_a_timer_is_not_run_before_its_time_and_only_once() -> None:
    clock = ManualClock()
    calls: list[int] = []
    clock.call_later(1, lambda: calls.append(1))
    clock.advance(0.999_999)
    assert calls == []
    clock.advance(0.000_001)
    clock.advance(5)
    assert calls == [1]


def test_ten_tenths_of_a_second_are_one_second() -> None:
    clock = ManualClock()
    calls: list[int] = []
    clock.call_later(1, lambda: calls.append(1))
    for _ in range(10):
        clock.advance(0.1)
    assert calls == [1]


def test_a_cancelled_timer_does_not_run() -> None:
    clock = ManualClock()
    calls: list[int] = []
    clock.call_later(1, lambda: calls.append(1)).cancel()
    clock.advance(2)
    assert calls == []


def test_one_advance_drives_a_timer_that_starts_itself_again() -> None:
    clock = ManualClock(wall_ms=0)
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(clock.now_ms())
        clock.call_later(5, tick)

    clock.call_later(5, tick)
    clock.advance(17)
    assert ticks == [5_000, 10_000, 15_000]


def test_manual_clock_refuses_to_go_back() -> None:
    with pytest.raises(AssertionError, match="does not go back"):
        ManualClock().advance(-1)


def test_system_clock_reads_the_time_of_this_machine() -> None:
    clock = SystemClock()
    before_ms, before_s = time.time() * 1000, time.monotonic()
    now_ms, now_s = clock.now_ms(), clock.monotonic()
    assert int(before_ms) <= now_ms <= time.time() * 1000
    assert before_s <= now_s <= time.monotonic()


@pytest.mark.parametrize("kind", ["system", "manual"])
def test_both_clocks_call_in_order_and_honour_cancel(kind: str) -> None:
    calls: list[str] = []

    def start(clock: Clock, done: Callable[[], object]) -> None:
        clock.call_later(0.02, lambda: calls.append("second"))
        clock.call_later(0.03, done)
        clock.call_later(0.01, lambda: calls.append("first"))
        clock.call_later(0.005, lambda: calls.append("never")).cancel()

    async def on_system_clock() -> None:
        finished = asyncio.Event()
        start(SystemClock(), finished.set)
        await finished.wait()

    if kind == "system":
        run(on_system_clock())
    else:
        manual = ManualClock()
        start(manual, lambda: None)
        manual.advance(1)
    assert calls == ["first", "second"]
