"""The clock that goes by itself and can be moved ahead."""

import asyncio
import time

import pytest

from cometmq.testing import MovableClock
from tests.conftest import run


async def test_it_shows_real_time_until_it_is_moved() -> None:
    clock = MovableClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    before_ms, before_s = clock.now_ms(), clock.monotonic()
    await clock.advance(3600)
    assert 3_600_000 <= clock.now_ms() - before_ms < 3_660_000
    assert 3600 <= clock.monotonic() - before_s < 3660


async def test_timers_run_by_themselves_and_at_their_own_time_when_moved() -> None:
    clock = MovableClock()
    rang = asyncio.Event()
    clock.call_later(0.001, rang.set)
    await rang.wait()

    start_s = clock.monotonic()
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic() - start_s))

    def note_and_follow() -> None:
        note("soon")
        clock.call_later(10, lambda: note("following"))

    clock.call_later(50, lambda: note("later"))
    clock.call_later(20, note_and_follow)
    clock.call_later(5, lambda: note("never")).cancel()
    clock.call_later(500, lambda: note("not yet"))
    await clock.advance(100)
    assert [name for name, _ in seen] == ["soon", "following", "later"]
    for (_, at_s), wanted_s in zip(seen, (20, 30, 50), strict=True):
        assert wanted_s <= at_s < wanted_s + 10, "a timer saw another time than its own"
    clock.stop()


async def test_a_timer_that_is_set_far_ahead_rings_early_enough_after_a_move() -> None:
    clock = MovableClock()
    rang = asyncio.Event()
    clock.call_later(3600, rang.set)
    await clock.advance(3599.99)
    await rang.wait()


async def test_a_callback_that_fails_does_not_stop_the_others() -> None:
    clock = MovableClock()
    rang = asyncio.Event()
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail() -> None:
        raise RuntimeError("on purpose")

    clock.call_later(0, fail)
    clock.call_later(0.001, rang.set)
    await rang.wait()
    assert [str(failure["exception"]) for failure in failures] == ["on purpose"]


def test_it_does_not_go_back() -> None:
    with pytest.raises(AssertionError, match="does not go back"):
        run(MovableClock().advance(-1))
