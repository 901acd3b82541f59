"""A bound on what is under way: so many messages and so many bytes. Who comes then waits in line.

    if not window.enter(size):               the usual case costs two comparisons
        await window.wait(size, timeout_s)
    ...
    window.leave(size)

One that is larger than the whole window enters when nothing else is inside. The line is first come, first served: a
large one at its head is not overtaken.
"""

import asyncio
from collections import deque

from cometmq.clock import Clock
from cometmq.errors import Backpressure


class Window:
    def __init__(self, count_max: int, bytes_max: int, clock: Clock) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._clock = clock
        self.count = 0
        self.size_bytes = 0
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def enter(self, size_bytes: int) -> bool:
        """True if there is room and nobody waits for it."""
        if self._line or not self._has_room(size_bytes):
            return False
        self.count += 1
        self.size_bytes += size_bytes
        return True

    async def wait(self, size_bytes: int, timeout_s: float) -> None:
        """Enter as soon as it is one's turn; Backpressure if that takes too long."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((future, size_bytes))
        timer = self._clock.call_later(timeout_s, lambda: self._expire(future, timeout_s))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.leave(size_bytes)  # it was let in and cancelled in the same turn of the loop
            raise
        finally:
            timer.cancel()
            self._admit()

    def leave(self, size_bytes: int) -> None:
        self.count -= 1
        self.size_bytes -= size_bytes
        if self._line:
            self._admit()

    def _has_room(self, size_bytes: int) -> bool:
        if self.count == 0:
            return True
        return self.count < self._count_max and self.size_bytes + size_bytes <= self._bytes_max

    def _admit(self) -> None:
        while self._line:
            future, size_bytes = self._line[0]
            if future.done():  # cancelled or expired
                self._line.popleft()
                continue
            if not self._has_room(size_bytes):
                return
            self._line.popleft()
            self.count += 1
            self.size_bytes += size_bytes
            future.set_result(None)

    def _expire(self, future: "asyncio.Future[None]", timeout_s: float) -> None:
        if not future.done():
            future.set_exception(
                Backpressure(
                    f"{self.count} messages of {self.size_bytes} bytes are under way (max_in_flight={self._count_max}, "
                    f"max_in_flight_bytes={self._bytes_max}): no room within {timeout_s:.3f} s"
                )
            )
