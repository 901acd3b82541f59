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

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

from cometmq.broker.matching import PropertyMatch, TagMatch
from cometmq.net.connection import Connection
from cometmq.wire.command import Command
from cometmq.wire.headers import PullMessage
from cometmq.wire.record.properties import decode_text

SWEEP_MS: Final = 5_000
# Pulls run again in one turn of the loop: a sweep may make ten thousands ready, and others want to be served too.
WAKE_MAX: Final = 200
WAKE_S_MAX: Final = 0.01
# Property filters that one arrival tests for one connection; its other pulls are found by the next sweep.
TESTS_MAX: Final = 32
FILTER_CHARS_MAX: Final = 32_768
FILTERS_OF_MAX: Final = 1_000


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
        # By address: those of one peer wait for each other, not for another's.
        self._ready: dict[str, deque[Waiter]] = {}
        self._waking: bool = False
        self._closed: bool = False
        # How many are parked.
        self.count: int = 0
        # By address: the property filters of its parked pulls, which are kept as long as these are.
        self._filters: dict[str, WeakKeyDictionary[PropertyMatch, int]] = {}

    def may_filter(self, address: str, wants: PropertyMatch, chars: int) -> bool:
        """Whether an address may park a pull with this filter of its own: a thousand of them are a large heap, and the
        garbage collector stops the loop to look through it."""
        filters = self._filters.get(address)
        if filters is None:
            if len(self._filters) >= FILTERS_OF_MAX:
                self._filters = {it: those for it, those in self._filters.items() if len(those)}
            filters = self._filters[address] = WeakKeyDictionary()
        if wants in filters:
            return True
        if chars + sum(filters.values()) > FILTER_CHARS_MAX:
            return False
        filters[wants] = chars
        return True

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
        tests: dict[Connection, int] = {}
        for waiter in waiters:
            matches = waiter.matches
            if next_offset <= waiter.header.queue_offset or (matches is not None and not matches(tag_code)):
                staying.append(waiter)
                continue
            if waiter.wants is not None:
                if table is None:
                    table = decode_text(properties)
                tested = tests.get(waiter.connection, 0)
                tests[waiter.connection] = tested + 1
                if tested >= TESTS_MAX or not waiter.wants(table):
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

    def drop_evicted(self) -> None:
        """Forget those that were answered to make room."""
        for topic, queues in list(self._parked.items()):
            for queue_id, waiters in list(queues.items()):
                staying = [waiter for waiter in waiters if waiter.connection.is_kept(waiter.request)]
                if len(staying) < len(waiters):
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
        until_s = monotonic() + WAKE_S_MAX
        ready = self._ready
        count = min(WAKE_MAX, sum(map(len, ready.values())))
        self._waking = True
        for _ in range(count):
            address = next(iter(ready))
            waiters = ready.pop(address)
            waiter = waiters.popleft()
            if waiters:
                ready[address] = waiters  # behind the other addresses
            if waiter.connection.is_open:
                self._run_again(waiter)
            if monotonic() > until_s:
                break
        self._waking = False
        if ready:
            self._soon(self.wake)

    def _make_ready(self, waiter: Waiter) -> None:
        if not self._ready and not self._waking:
            self._soon(self.wake)
        waiters = self._ready.get(waiter.connection.peer[0])
        if waiters is None:
            waiters = self._ready[waiter.connection.peer[0]] = deque()
        waiters.append(waiter)

    def _keep(self, topic: str, queue_id: int, before: list[Waiter], staying: list[Waiter]) -> None:
        self.count -= len(before) - len(staying)
        queues = self._parked[topic]
        if staying:
            queues[queue_id] = staying
            return
        del queues[queue_id]
        if not queues:
            del self._parked[topic]
