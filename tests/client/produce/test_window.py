"""The bound on what is under way."""

import asyncio

import pytest

from cometmq.client.produce.window import Window
from cometmq.clock import ManualClock
from cometmq.errors import Backpressure


async def test_those_who_come_late_wait_in_line() -> None:
    window = Window(2, 100, ManualClock())
    assert window.enter(40)
    assert window.enter(40)
    assert not window.enter(1)
    order: list[int] = []

    async def come(number: int, size_bytes: int) -> None:
        await window.wait(size_bytes, 10)
        order.append(number)

    tasks = [asyncio.ensure_future(come(number, size)) for number, size in enumerate([90, 5, 5])]
    await asyncio.sleep(0)
    assert window.waiting == 3
    window.leave(40)
    await asyncio.sleep(0)
    assert order == []  # the large one at the head is not overtaken
    window.leave(40)
    await asyncio.gather(*tasks[:2])
    assert order == [0, 1]
    assert (window.count, window.size_bytes, window.waiting) == (2, 95, 1)
    window.leave(5)
    await tasks[2]
    window.leave(90)
    window.leave(5)
    assert (window.count, window.size_bytes, window.waiting) == (0, 0, 0)


async def test_one_larger_than_the_window_goes_alone() -> None:
    window = Window(2, 100, ManualClock())
    assert window.enter(1000)
    assert not window.enter(1)
    window.leave(1000)
    assert window.enter(1)
    assert not window.enter(1000)


async def test_waiting_ends_with_backpressure_that_names_the_bounds() -> None:
    clock = ManualClock()
    window = Window(1, 100, clock)
    window.enter(10)
    waiting = asyncio.ensure_future(window.wait(10, 3))
    await asyncio.sleep(0)
    clock.advance(3)
    with pytest.raises(Backpressure, match="max_in_flight=1"):
        await waiting
    window.leave(10)
    assert (window.count, window.waiting) == (0, 0)
    assert window.enter(10)


@pytest.mark.parametrize("let_in_first", [False, True])
async def test_cancelled_waiters_take_no_room(let_in_first: bool) -> None:
    window = Window(1, 100, ManualClock())
    window.enter(10)
    waiting = [asyncio.ensure_future(window.wait(10, 3)) for _ in range(2)]
    await asyncio.sleep(0)
    if let_in_first:
        window.leave(10)
    waiting[0].cancel()
    if not let_in_first:
        window.leave(10)
    await asyncio.wait([waiting[1]], timeout=5)
    assert waiting[1].done()
    assert waiting[0].cancelled()
    assert window.count == 1
