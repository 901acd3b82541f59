"""Pulls that found nothing and wait for a message.

    hold()      park a pull under its topic and queue; the request stays unanswered
    arrived()   the dispatcher's notice; waiters whose tags and properties match become ready
    wake()      runs the ready pulls again, this time without permission to park
    sweep()     every few seconds: time-outs, and queues that grew without a notice
    close()     the broker stops: everybody becomes ready, and nobody is parked any more

A waiter costs one small object: no task, no timer. All waiters that become ready while one chunk of input is handled
are woken by one callback after it, so that a burst of sends wakes each consumer once and with all of the burst.

A waiter is in exactly one place: parked, ready, or gone. That is why a pull is answered exactly once, whatever
arrival, time-out and a closing connection do to each other. One whose connection closed is dropped by the next sweep,
or when it becomes ready.
"""

from collections.abc import Callable
from typing import Final

from cometmq.broker.sql import Properties
from cometmq.net.connection import Connection
from cometmq.wire.command import Command
from cometmq.wire.headers import PullMessage
from cometmq.wire.properties import decode_text

SWEEP_MS: Final = 5_000
# Pulls run again in one turn of the loop: a sweep may make ten thousands ready, and others want to be served too.
WAKE_MAX: Final = 200

TagMatch = Callable[[int], bool]
PropertyMatch = Callable[[Properties], bool]


class Waiter:
    """One parked pull. `matches` is None unless it asks for tags, `wants` unless it asks for properties."""

    __slots__ = ("connection", "request", "header", "matches", "deadline_ms", "wants")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PullMessage,
        matches: TagMatch | None,
        deadline_ms: int,
        wants: PropertyMatch | None = None,
    ) -> None:
        self.connection: Connection = connection
        self.request: Command = request
        self.header: PullMessage = header
        self.matches: TagMatch | None = matches
        self.deadline_ms: int = deadline_ms
        self.wants: PropertyMatch | None = wants


class LongPoll:
    """`run_again` answers one waiter now and never raises; `soon` schedules a callback after the current one."""

    def __init__(
        self,
        run_again: Callable[[Waiter], None],
        soon: Callable[[Callable[[], None]], object],
        queue_end: Callable[[str, int], int],
    ) -> None:
        self._run_again: Callable[[Waiter], None] = run_again
        self._soon: Callable[[Callable[[], None]], object] = soon
        self._queue_end: Callable[[str, int], int] = queue_end
        self._parked: dict[str, dict[int, list[Waiter]]] = {}
        self._ready: list[Waiter] = []
        self._closed: bool = False
        # How many are parked.
        self.count: int = 0

    def hold(self, waiter: Waiter) -> None:
        """Park a pull. If the queue grew since it was read, it becomes ready at once."""
        header = waiter.header
        if self._closed or self._queue_end(header.topic, header.queue_id) > header.queue_offset:
            self._make_ready(waiter)
            return
        queues = self._parked.get(header.topic)
        if queues is None:
            queues = self._parked[header.topic] = {}
        waiters = queues.get(header.queue_id)
        if waiters is None:
            waiters = queues[header.queue_id] = []
        waiters.append(waiter)
        self.count += 1

    def arrived(
        self,
        topic: str,
        queue_id: int,
        next_offset: int,
        tag_code: int,
        _store_time_ms: int,
        properties: str,
    ) -> None:
        """A message was dispatched; `next_offset` is the queue's end behind it."""
        queues = self._parked.get(topic)
        if queues is None:
            return
        waiters = queues.get(queue_id)
        if waiters is None:
            return
        staying: list[Waiter] = []
        table: dict[str, str] | None = None
        for waiter in waiters:
            matches = waiter.matches
            if next_offset <= waiter.header.queue_offset or (matches is not None and not matches(tag_code)):
                staying.append(waiter)
                continue
            if waiter.wants is not None:
                if table is None:
                    table = decode_text(properties)
                if not waiter.wants(table):
                    staying.append(waiter)
                    continue
            self._make_ready(waiter)
        self._keep(topic, queue_id, waiters, staying)

    def sweep(self, now_ms: int) -> None:
        """Wake what waited long enough or missed its notice; forget what has no connection any more."""
        for topic, queues in list(self._parked.items()):
            for queue_id, waiters in list(queues.items()):
                end = self._queue_end(topic, queue_id)
                staying: list[Waiter] = []
                for waiter in waiters:
                    if not waiter.connection.is_open:
                        continue
                    if waiter.deadline_ms <= now_ms or end > waiter.header.queue_offset:
                        self._make_ready(waiter)
                    else:
                        staying.append(waiter)
                self._keep(topic, queue_id, waiters, staying)

    def close(self) -> None:
        self._closed = True
        self.wake_all()

    def wake_all(self) -> None:
        for queues in self._parked.values():
            for waiters in queues.values():
                for waiter in waiters:
                    self._make_ready(waiter)
        self._parked = {}
        self.count = 0

    def wake(self) -> None:
        """Run ready pulls again, some of them; the others, and what becomes ready meanwhile, by the next callback."""
        ready = self._ready[:WAKE_MAX]
        self._ready = self._ready[WAKE_MAX:]
        if self._ready:
            self._soon(self.wake)
        for waiter in ready:
            if waiter.connection.is_open:
                self._run_again(waiter)

    def _make_ready(self, waiter: Waiter) -> None:
        if not self._ready:
            self._soon(self.wake)
        self._ready.append(waiter)

    def _keep(self, topic: str, queue_id: int, before: list[Waiter], staying: list[Waiter]) -> None:
        self.count -= len(before) - len(staying)
        queues = self._parked[topic]
        if staying:
            queues[queue_id] = staying
            return
        del queues[queue_id]
        if not queues:
            del self._parked[topic]
