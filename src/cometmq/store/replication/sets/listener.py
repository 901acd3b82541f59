"""The sockets of a set's member that may lead: one listener for the life of the process, replicas only while it leads.

    lead(leader)    replicas are answered; the log goes out at the end of each turn of the loop in which it grew
    resign()        connections are closed, who waits is told that the outcome is unknown

Who does not lead closes what comes: a replica that was sent here by an old document tries again and finds a newer one.
Connections are bounded; one that does not say who it is in time is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from cometmq.clock import Timer
from cometmq.errors import StoreError, WireError
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.disk import File
from cometmq.store.replication.doors import Doors
from cometmq.store.replication.looking import LookingServer
from cometmq.store.replication.sets.leader import Leader, Member
from cometmq.store.results import PutStatus
from cometmq.store.store import Store

log = logging.getLogger(__name__)

LoadRanges = Callable[[list[tuple[File, int, int]], Callable[[], object]], object]

CONNECTIONS_MAX: Final = 64
FRAMES_PER_WRITE: Final = 32
TURN_BYTES_MAX: Final = 4 << 20
OUTPUT_BYTES_MAX: Final = 1 << 20
WARM_BYTES: Final = 64 << 20
LOAD_BYTES: Final = 4 << 20
HELLO_S: Final = 5.0
TIMER_HAIR_S: Final = 0.001


class SetListener:
    """Everything on one event loop. `on_change` is told when a replica comes, joins or goes."""

    def __init__(
        self, store: Store, load_ranges: LoadRanges, doors: Doors, on_change: Callable[[], object]
    ) -> None:
        self.leader: Leader | None = None
        self.port: int = 0
        self.store = store
        self.load_ranges = load_ranges
        self.doors = doors
        self.on_change = on_change
        self.refusals = ThinnedLog(log, store.clock)
        self.closings = ThinnedLog(log, store.clock)
        self.connections: dict[_Connection, None] = {}
        self._clock = store.clock
        self._server: asyncio.Server | None = None
        self._looking: LookingServer | None = None
        self._deadline_timer: Timer | None = None
        self._woken = False

    async def start(self, host: str, port: int) -> None:
        """StoreError if the port is taken."""
        make_protocol = partial(_Connection, self)
        try:
            if self.doors.looks_first:
                self._looking = LookingServer(self.doors, make_protocol, self._clock)
                await self._looking.start(host, port)
                self.port = self._looking.port
            else:
                self._server = await asyncio.get_running_loop().create_server(make_protocol, host, port)
                self.port = self._server.sockets[0].getsockname()[1]
        except OSError as error:
            raise StoreError(f"cannot listen for replicas on {host}:{port}: {error}; set haListenPort") from error
        self.store.subscribe(appended=self.wake, flushed=self.flushed)

    async def stop(self) -> None:
        self.resign()
        self.store.unsubscribe(appended=self.wake, flushed=self.flushed)
        if self._looking is not None:
            await self._looking.stop()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    # Leading

    def lead(self, leader: Leader) -> None:
        self.leader = leader

    def resign(self) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        leader, self.leader = self.leader, None
        if leader is not None:
            leader.give_up()
        for connection in list(self.connections):
            connection.abort()

    def wait(self, end_offset: int, callback: Callable[[int], object]) -> None:
        """For `Store.promise_copies`."""
        if self.leader is None:
            callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
            return
        self.leader.wait(end_offset, callback, self._clock.monotonic())
        if self._deadline_timer is None:
            self._arm()

    def _arm(self) -> None:
        deadline_s = None if self.leader is None else self.leader.next_deadline_s()
        self._deadline_timer = None
        if deadline_s is not None:
            delay_s = max(0.0, deadline_s - self._clock.monotonic())
            self._deadline_timer = self._clock.call_later(delay_s, self._deadline_passed)

    def _deadline_passed(self) -> None:
        if self.leader is not None:
            self.leader.expire(self._clock.monotonic() + TIMER_HAIR_S)
        self._arm()

    def flushed(self) -> None:
        """The master's own disk is one of the copies."""
        self.count()

    def count(self) -> None:
        """More may be committed. First whoever reads, then who waits: a producer that is told OK finds its message."""
        leader = self.leader
        if leader is not None and leader.count():
            self.announce()

    def announce(self) -> None:
        assert self.leader is not None, "committed without a leader"
        self.store.commit(self.leader.committed)
        self.leader.answer()

    def wake(self) -> None:
        """The log has grown. All puts of this turn of the loop go out together."""
        if not self._woken and self.connections:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pump_all)

    def _pump_all(self) -> None:
        self._woken = False
        for connection in list(self.connections):
            connection.pump()


class _Connection(asyncio.Protocol):
    """One replica."""

    def __init__(self, listener: SetListener) -> None:
        self.name: str = "?"
        self.member: Member
        self._listener = listener
        self._leader: Leader | None = None
        self._clock = listener.store.clock
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._paused = False
        self._loading = False

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, made)  # uvloop's is none by name
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.name = f"{peer[0]}:{peer[1]}"
        listener = self._listener
        refusal = ""
        if not listener.doors.is_allowed(str(peer[0])):
            refusal = "not in haAllowedAddresses"
        elif listener.leader is None:
            refusal = "this broker does not lead its set"
        elif len(listener.connections) >= CONNECTIONS_MAX:
            refusal = f"there are {CONNECTIONS_MAX} connections"
        if refusal:
            listener.refusals.warning("refused replica peer=%s cause=%s", self.name, refusal)
            transport.abort()
            return
        self._leader = listener.leader
        self.member = Member(self.name, self._clock.monotonic())
        self._transport = transport
        transport.set_write_buffer_limits(high=OUTPUT_BYTES_MAX)
        listener.connections[self] = None
        self._timer = self._clock.call_later(HELLO_S, self._tick)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self.abort()
        if self._leader is not None:
            self._leader.lost(self.member)
        if self._listener.connections.pop(self, self) is None:
            log.info("lost replica member=%d peer=%s at=%d", self.member.id, self.name, self.member.acked)
            self._listener.on_change()

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _drop(self, reason: object) -> None:
        """What it says counts no more from now on, not only when the socket is closed."""
        self._listener.closings.warning("closed replica member=%d peer=%s cause=%s", self.member.id, self.name, reason)
        if self._leader is not None:
            self._leader.lost(self.member)
        self.abort()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        leader, listener = self._leader, self._listener
        if leader is None or leader is not listener.leader or self not in listener.connections:
            return
        was_joined = leader.is_joined(self.member)
        is_new = self.member.next_offset < 0
        try:
            moved = leader.received(self.member, data, self._clock.monotonic())
        except WireError as error:
            self._drop(error)
            return
        if moved:
            listener.count()
        if is_new:
            self._arm()
            self.pump()
        if moved and leader.is_joined(self.member) != was_joined:
            log.info("joined replica member=%d epoch=%d at=%d", self.member.id, leader.epoch, self.member.acked)
            listener.on_change()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def pump(self) -> None:
        """Write what the replica does not have yet, as much as may go in this turn."""
        transport, leader, member = self._transport, self._leader, self.member
        if transport is None or leader is None or leader is not self._listener.leader or self._loading:
            return
        turn_end = member.pace.total_bytes + TURN_BYTES_MAX
        try:
            while not self._paused and not transport.is_closing() and not self._is_cold():
                buffers = leader.output(member, FRAMES_PER_WRITE, self._clock.monotonic())
                if not buffers:
                    return
                transport.writelines(buffers)
                if member.pace.total_bytes >= turn_end:
                    asyncio.get_running_loop().call_soon(self.pump)
                    return
        except WireError as error:
            self._drop(error)

    def _is_cold(self) -> bool:
        """Whether the next bytes must come from the disk; then they are asked for, and the pump goes on later."""
        member, store = self.member, self._listener.store
        if member.next_offset < 0 or store.log.max_offset - member.next_offset <= WARM_BYTES:
            return False
        segment = store.segments.find(member.next_offset)
        if segment is None:
            return False
        position = member.next_offset - segment.start
        count = min(LOAD_BYTES, segment.size - position)
        if segment.file.resident(position, min(count, FRAMES_PER_WRITE * store.options.ha_frame_bytes)):
            return False
        self._loading = True
        self._listener.load_ranges([(segment.file, position, count)], self._loaded)
        return True

    def _loaded(self) -> None:
        self._loading = False
        self.pump()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        leader = self._leader
        if leader is not None:
            delay_s = max(TIMER_HAIR_S, leader.due_s(self.member) - self._clock.monotonic())
            self._timer = self._clock.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        now_s = self._clock.monotonic()
        if not self.member.id:
            self._drop("it did not say which member it is")
        elif self._leader is not None and self._leader.is_silent(self.member, now_s):
            self._drop(f"silent for {self._listener.store.options.ha_silence_ms} ms (haHousekeepingInterval)")
        else:
            self.pump()
            self._arm()
