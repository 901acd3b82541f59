"""A clock that goes by itself and can be moved ahead: a delay of an hour is over when a test says so.

    real time      |----|----|                   the clock shows real time plus what it was moved
    advance(60)              |====|----|         timers of that minute run at once, in their order, each at its time

Between two seconds of a move the event loop gets its turns, so that heartbeats, registrations and long polls, which
wait for the network, happen in their seconds too: whoever must be heard of every 30 s is.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Final

STEP_S: Final = 1.0
# Request, its handling, the answer, and what follows from it: each hop takes a turn or two.
TURNS_PER_STEP: Final = 12


class MovableTimer:
    __slots__ = ("callback", "cancelled", "due_s", "order")

    def __init__(self, due_s: float, order: int, callback: Callable[[], object]) -> None:
        self.due_s = due_s
        self.order = order
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: "MovableTimer") -> bool:
        return (self.due_s, self.order) < (other.due_s, other.order)


class MovableClock:
    """Used on one event loop; only reading it is allowed from other threads."""

    def __init__(self) -> None:
        self._moved_s = 0.0
        self._timers: list[MovableTimer] = []
        self._numbers = count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = 0.0

    def now_ms(self) -> int:
        return (time.time_ns() + round(self._moved_s * 1e9)) // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() + self._moved_s

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> MovableTimer:
        timer = MovableTimer(self.monotonic() + max(0.0, delay_s), next(self._numbers), callback)
        heapq.heappush(self._timers, timer)
        self._set_alarm()
        return timer

    async def advance(self, seconds: float) -> None:
        """Move ahead; what becomes due runs on the way."""
        assert seconds >= 0, f"a clock does not go back: {seconds}"
        left_s = seconds
        while left_s > 0:
            step_s = min(STEP_S, left_s)
            left_s -= step_s
            self._move(step_s)
            for _ in range(TURNS_PER_STEP):
                await asyncio.sleep(0)

    def stop(self) -> None:
        """Forget all timers."""
        self._timers.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _move(self, step_s: float) -> None:
        target_s = self._moved_s + step_s
        while self._timers:
            # The clock shows each timer's own time while that runs.
            ahead_s = self._timers[0].due_s - self.monotonic()
            if self._moved_s + ahead_s > target_s:
                break
            self._moved_s += max(0.0, ahead_s)
            self._run(heapq.heappop(self._timers))
        self._moved_s = max(self._moved_s, target_s)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """The loop wakes us for the first timer."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return
        due_s = self._timers[0].due_s - self._moved_s
        if self._alarm is not None:
            if self._alarm_s <= due_s:
                return
            self._alarm.cancel()
        delay_s = max(0.0, due_s - time.monotonic())
        self._alarm_s = due_s
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        try:
            now_s = self.monotonic()
            while self._timers and self._timers[0].due_s <= now_s:
                self._run(heapq.heappop(self._timers))
        finally:
            self._set_alarm()

    def _run(self, timer: MovableTimer) -> None:
        if not timer.cancelled:
            timer.cancelled = True
            timer.callback()
