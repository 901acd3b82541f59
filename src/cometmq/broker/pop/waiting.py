"""Pops that found nothing and wait.

Waiters of one topic and group stand in a row, the first to come is the first to be served. While there are any, a sweep
every 20 ms looks for rows that have something to get, and for waiters whose time is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from cometmq.broker.config import BrokerConfig
from cometmq.clock import Clock, Timer
from cometmq.wire.command import Command
from cometmq.wire.headers import PopMessage

if TYPE_CHECKING:
    from cometmq.net.connection import Connection

SWEEP_S: Final = 0.02
SWEEP_S_MAX: Final = 0.005
# How many of a row are served in one sweep, so that others have their turn.
SERVED_PER_SWEEP: Final = 50


class PopWaiter:
    __slots__ = ("connection", "header", "request", "until_ms")

    def __init__(self, connection: Connection, request: Command, header: PopMessage, until_ms: int) -> None:
        self.connection = connection
        self.request = request
        self.header = header
        self.until_ms = until_ms


# Group, topic, queue, and whether in order.
Row = tuple[str, str, int, bool]


class PopWaiting:
    """`serve` tries a waiter again and says whether that is over; `expire` answers one; `has_more` asks for a row."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        serve: Callable[[PopWaiter], bool],
        expire: Callable[[PopWaiter], object],
        has_more: Callable[[str, str, int, bool], bool],
    ) -> None:
        self.count: int = 0
        self._config = config
        self._clock = clock
        self._serve = serve
        self._expire = expire
        self._has_more = has_more
        self._rows: dict[Row, deque[PopWaiter]] = {}
        self._timer: Timer | None = None
        self._closed = False

    def hold(self, waiter: PopWaiter) -> bool:
        """False: too many wait."""
        header = waiter.header
        row = self._rows.setdefault((header.consumer_group, header.topic, header.queue_id, header.order), deque())
        config = self._config()
        if self._closed or self.count >= config.pop_waiting_max or len(row) >= config.pop_waiting_of_row_max:
            return False
        row.append(waiter)
        self.count += 1
        if self._timer is None:
            self._timer = self._clock.call_later(SWEEP_S, self._sweep)
        return True

    def drop_evicted(self) -> None:
        """Forget those that were answered to make room."""
        for name, row in list(self._rows.items()):
            staying = deque(waiter for waiter in row if waiter.connection.is_kept(waiter.request))
            self.count -= len(row) - len(staying)
            if staying:
                self._rows[name] = staying
            else:
                del self._rows[name]

    def count_of(self, group: str, topic: str, queue_id: int) -> int:
        return sum(len(self._rows.get((group, topic, queue_id, order), ())) for order in (False, True))

    def _sweep(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        until_s = monotonic() + SWEEP_S_MAX
        for name, row in list(self._rows.items()):
            self._let_go(row, now_ms)
            if row and self._has_more(*name):
                self._serve_some(row, until_s)
            del self._rows[name]
            if row:
                self._rows[name] = row  # behind those that this sweep may not come to
            if monotonic() > until_s:
                break
        if self._rows and not self._closed:
            self._timer = self._clock.call_later(SWEEP_S, self._sweep)

    def _let_go(self, row: deque[PopWaiter], now_ms: int) -> None:
        for _ in range(len(row)):
            waiter = row.popleft()
            if not waiter.connection.is_kept(waiter.request):  # closed, or given up
                self.count -= 1
            elif waiter.until_ms <= now_ms:
                self.count -= 1
                self._expire(waiter)
            else:
                row.append(waiter)

    def _serve_some(self, row: deque[PopWaiter], until_s: float) -> None:
        for _ in range(min(len(row), SERVED_PER_SWEEP)):
            if not row[0].connection.is_writable:
                row.rotate(-1)  # who does not take answers now lets others come first
                continue
            if monotonic() > until_s or not self._serve(row[0]):
                return
            row.popleft()
            self.count -= 1

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for row in self._rows.values():
            for waiter in row:
                self._expire(waiter)
        self._rows.clear()
        self.count = 0
