"""Time, injectable: what the servers ask for the time and for a wake-up call.

Two readings that must not be mixed: `now_ms()` is wall time (goes into files and frames, may jump),
`monotonic()` is for durations (never goes back). `call_later()` is the one kind of timer; a periodic
timer is a callback that calls `call_later()` again.

`SystemClock` uses the running event loop. `ManualClock` stands still until a test moves it, and then
runs every timer that became due, in order of due time, with the clock showing that very time.
"""

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time: milliseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` once, `delay_s` from now, unless the timer is cancelled before."""


class SystemClock:
    # The function itself: every put asks twice.
    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class ManualTimer:
    __slots__ = ("callback", "cancelled", "due_ns", "order")

    def __init__(self, due_ns: int, order: int, callback: Callable[[], object]) -> None:
        self.due_ns = due_ns
        self.order = order
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: "ManualTimer") -> bool:
        return (self.due_ns, self.order) < (other.due_ns, other.order)


class ManualClock:
    """Counts in whole nanoseconds, so that ten steps of 0.1 s are exactly one second."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_start_ms = wall_ms
        self._elapsed_ns = 0
        self._timers: list[ManualTimer] = []
        self._timers_made = 0

    def now_ms(self) -> int:
        return self._wall_start_ms + self._elapsed_ns // 1_000_000

    def monotonic(self) -> float:
        return self._elapsed_ns / 1e9

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualTimer:
        self._timers_made += 1
        due_ns = self._elapsed_ns + max(0, round(delay_s * 1e9))
        timer = ManualTimer(due_ns, self._timers_made, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def advance(self, delta_s: float) -> None:
        """Move on by `delta_s`; timers that callbacks start on the way run too when they become due."""
        target_ns = self._elapsed_ns + round(delta_s * 1e9)
        assert target_ns >= self._elapsed_ns, f"a clock does not go back: delta_s={delta_s}"
        while self._timers and self._timers[0].due_ns <= target_ns:
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._elapsed_ns = timer.due_ns
                timer.callback()
        self._elapsed_ns = target_ns


def uptime_ms(clock: Clock) -> int:
    """Monotonic time in ms: what deadlines and expiry are measured with."""
    return int(clock.monotonic() * 1000)
