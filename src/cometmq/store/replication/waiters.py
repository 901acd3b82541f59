"""Those who wait until replicas have a message, in log order.

Waiters that need the same number of copies stand in one row, and one offset cuts that row in two. A waiter that needs
more copies stands in another row, so it holds up nobody who is content with fewer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cometmq.store.log.flush import Callback, tell
from cometmq.store.results import PutStatus


class Waiters:
    def __init__(self) -> None:
        # Copies needed, the master's own not counted -> (end offset, deadline, callback)
        self._rows: dict[int, deque[tuple[int, float, Callback]]] = {}
        # Those whom no report can help any more.
        self._stranded: deque[tuple[int, float, Callback]] = deque()

    def __len__(self) -> int:
        return sum(len(row) for row in self._all())

    def _all(self) -> list[deque[tuple[int, float, Callback]]]:
        return [*self._rows.values(), self._stranded]

    def wait(self, end_offset: int, copies: int, deadline_s: float, callback: Callback) -> None:
        row = self._rows.get(copies)
        if row is None:
            row = self._rows[copies] = deque()
        row.append((end_offset, deadline_s, callback))

    def replicated(self, offset_of: Callable[[int], int]) -> None:
        """`offset_of(copies)`: up to where so many replicas have the log."""
        for copies, row in list(self._rows.items()):
            if not row:
                continue
            offset = offset_of(copies)
            while row and row[0][0] <= offset:
                tell(row.popleft()[2], PutStatus.OK)

    def strand(self, offset: int) -> None:
        """A replica begins at `offset`: from now on reports say nothing about what lies before."""
        for row in self._rows.values():
            while row and row[0][0] <= offset:
                self._stranded.append(row.popleft())

    def expire(self, now_s: float) -> None:
        for row in self._all():
            while row and row[0][1] <= now_s:
                tell(row.popleft()[2], PutStatus.FLUSH_SLAVE_TIMEOUT)

    def give_up(self) -> None:
        """The messages are in the log; that replicas have them cannot be said any more."""
        self.expire(float("inf"))

    def next_deadline_s(self) -> float | None:
        return min((row[0][1] for row in self._all() if row), default=None)
