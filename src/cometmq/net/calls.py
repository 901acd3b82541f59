"""Requests under way to a peer: permits, deadlines, and exactly one end for each.

    DIALING   waits for its connection      -> ConnectFailed when its time is over
    WAITING   waits for a permit            -> CallTimeout
    SENT      waits for its answer          -> CallTimeout, ConnectionLost if the connection closes
    DONE      answered, failed or given up; its permit is returned

All waiting counts against the one time limit that the caller gave. A call and a one-way request take permits of two
separate kinds, so that neither starves the other.

Deadlines lie in buckets of 10 ms under one timer for all calls of a server or client: a call costs two dictionary
operations instead of a timer, an answered one leaves nothing behind, and an expired one fails at most one bucket late.
"""

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from cometmq.clock import Clock, Timer
from cometmq.errors import CallError, CallTimeout, ConnectFailed, TooManyCalls
from cometmq.net.peer import Peer
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

DIALING: Final = 0
WAITING: Final = 1
SENT: Final = 2
DONE: Final = 3

BUCKETS_PER_S: Final = 100
OPAQUE_MAX: Final = 2**31 - 1
OPAQUE_COUNT: Final = 2**32

Callback = Callable[[Command | None, CallError | None], object]


class Call:
    """One request to a peer, from the caller's wish to its end, which goes to the future or to the callback."""

    __slots__ = (
        "command", "oneway", "timeout_s", "deadline_s", "sent_left_s", "bucket", "state", "has_permit", "opaque",
        "connection", "future", "callback",
    )  # fmt: skip

    def __init__(
        self,
        command: Command,
        oneway: bool,
        timeout_s: float,
        deadline_s: float,
        future: "asyncio.Future[Command] | None",
        callback: Callback | None,
    ) -> None:
        self.command: Command = command
        self.oneway: bool = oneway
        self.timeout_s: float = timeout_s
        self.deadline_s: float = deadline_s
        self.sent_left_s: float = 0.0
        self.bucket: int = 0
        self.state: int = DIALING
        self.has_permit: bool = False
        self.opaque: int = 0
        self.connection: Peer | None = None
        self.future: asyncio.Future[Command] | None = future
        self.callback: Callback | None = callback

    def deliver(self, response: Command | None, error: CallError | None) -> None:
        future = self.future
        if future is not None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(response if response is not None else self.command)
        elif self.callback is not None:
            try:
                self.callback(response, error)
            except Exception:
                logger.exception("fail callback code=%d", self.command.code)


class Permits:
    """A bound on calls of one kind. Who finds none free waits in line, up to `waiting_max` of them."""

    __slots__ = ("count", "free", "waiting", "waiting_max", "_granting")

    def __init__(self, count: int, waiting_max: int) -> None:
        self.count: int = count
        self.free: int = count
        self.waiting: OrderedDict[Call, None] = OrderedDict()
        self.waiting_max: int = waiting_max
        self._granting: bool = False

    def release(self) -> None:
        self.free += 1
        assert self.free <= self.count, "a permit was returned twice"
        if self._granting or not self.waiting:
            return
        # A call that starts here can fail at once and come back here: the loop goes on instead of nesting.
        self._granting = True
        while self.free > 0 and self.waiting:
            call, _ = self.waiting.popitem(last=False)
            connection = call.connection
            assert connection is not None
            self.free -= 1
            call.has_permit = True
            connection.begin(call)
        self._granting = False


class Calls:
    """All calls of one server or client."""

    __slots__ = ("clock", "twoway", "oneway", "_buckets", "_bucket_heap", "_timer", "_timer_bucket", "_opaque")

    def __init__(self, clock: Clock, calls_max: int, oneway_max: int, waiting_max: int) -> None:
        self.clock: Clock = clock
        self.twoway: Permits = Permits(calls_max, waiting_max)
        self.oneway: Permits = Permits(oneway_max, waiting_max)
        self._buckets: dict[int, dict[Call, None]] = {}
        self._bucket_heap: list[int] = []
        self._timer: Timer | None = None
        self._timer_bucket: int = 0
        self._opaque: int = 0

    def open(
        self,
        command: Command,
        oneway: bool,
        timeout_s: float,
        future: "asyncio.Future[Command] | None",
        callback: Callback | None,
    ) -> Call:
        """A call whose time begins to run; whoever has a connection then passes it to `admit`."""
        now: float = self.clock.monotonic()
        call = Call(command, oneway, timeout_s, now + timeout_s, future, callback)
        call.sent_left_s = timeout_s
        # The first bucket that begins at or after the deadline: a call is never ended early.
        call.bucket = int(call.deadline_s * BUCKETS_PER_S) + 1
        calls = self._buckets.get(call.bucket)
        if calls is None:
            calls = {}
            self._buckets[call.bucket] = calls
            heapq.heappush(self._bucket_heap, call.bucket)
            self._arm(now)
        calls[call] = None
        return call

    def admit(self, call: Call, connection: Peer) -> None:
        """Send the call on `connection`, at once or as soon as there is a permit."""
        call.connection = connection
        permits = self.oneway if call.oneway else self.twoway
        if permits.free > 0:
            permits.free -= 1
            call.has_permit = True
            connection.begin(call)
        elif call.timeout_s <= 0 or len(permits.waiting) >= permits.waiting_max:
            self.end(call, None, TooManyCalls(
                f"{permits.count} calls are under way, the limit, and {len(permits.waiting)} wait; "
                f"this one may wait {call.timeout_s} s"
            ))  # fmt: skip
        else:
            call.state = WAITING
            permits.waiting[call] = None

    def next_opaque(self) -> int:
        """1, 2, ... and after the largest 32-bit number the smallest; never 0, which some peers replace."""
        opaque = self._opaque + 1
        if opaque > OPAQUE_MAX:
            opaque -= OPAQUE_COUNT
        elif opaque == 0:
            opaque = 1
        self._opaque = opaque
        return opaque

    def end(self, call: Call, response: Command | None, error: CallError | None) -> bool:
        """End a call with a result. False if it had ended before."""
        if not self.give_up(call):
            return False
        call.deliver(response, error)
        return True

    def give_up(self, call: Call) -> bool:
        """End a call whose result nobody awaits: the table forgets it and its permit is free again."""
        if call.state == DONE:
            return False
        call.state = DONE
        calls = self._buckets.get(call.bucket)
        if calls is not None:
            calls.pop(call, None)
            if not calls:
                calls.clear()  # an emptied dictionary keeps its size, a cleared one does not
        permits = self.oneway if call.oneway else self.twoway
        permits.waiting.pop(call, None)
        if call.connection is not None and call.opaque != 0:
            call.connection.forget(call)
        if call.has_permit:
            call.has_permit = False
            permits.release()
        return True

    def end_waiting(self, connection: Peer, error: CallError) -> None:
        """End the calls that wait for a permit to be sent on a connection that is gone."""
        for permits in (self.twoway, self.oneway):
            if permits.waiting:
                for call in [call for call in permits.waiting if call.connection is connection]:
                    self.end(call, None, error)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, now: float) -> None:
        """Have the timer run for the first bucket."""
        bucket = self._bucket_heap[0]
        if self._timer is not None:
            if self._timer_bucket <= bucket:
                return
            self._timer.cancel()
        self._timer_bucket = bucket
        self._timer = self.clock.call_later(bucket / BUCKETS_PER_S - now, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now: float = self.clock.monotonic()
        # A clock that stands exactly at a bucket's time may be a rounding error below it: arming again would not end.
        current = int(now * BUCKETS_PER_S + 1e-6)
        heap = self._bucket_heap
        # Buckets whose calls were all answered are skipped on the way, so the timer sleeps until the next real one.
        while heap and (heap[0] <= current or not self._buckets[heap[0]]):
            for call in list(self._buckets.pop(heapq.heappop(heap))):
                self.end(call, None, _expiry(call))
        if heap:
            self._arm(now)


def _expiry(call: Call) -> CallError:
    what = f"request code {call.command.code}"
    if call.state == DIALING:
        return ConnectFailed(f"{what}: no connection within {call.timeout_s} s")
    if call.state == WAITING:
        return CallTimeout(f"{what}: no permit to send within {call.timeout_s} s")
    peer = call.connection.peer_text if call.connection is not None else "?"
    return CallTimeout(f"{what} to {peer}: no answer within {call.timeout_s} s")
