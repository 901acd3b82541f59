"""The master's sockets: one listener, one connection for each replica.

    put ──> wake() ──> end of this turn of the loop ──> frames to every replica that can take them

Frames are written as slices of the mapped log: nothing is copied in Python. A replica that takes no more stops being
written to until its socket has room, and one that falls silent is closed. Bytes that are likely not in memory are
brought there by the read thread first, so that a replica that is far behind does not stop the loop.

Connections are bounded, in all and for each address. Beyond that a newcomer takes the place of one that has never been
shown to take what it is sent, of the address that has most of them: idle connections cannot lock a replica out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from cometmq.clock import Timer
from cometmq.errors import WireError
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.disk import File
from cometmq.store.replication.doors import Doors
from cometmq.store.replication.links import BACKLOG_FRAME_BYTES, Link
from cometmq.store.replication.looking import LookingServer
from cometmq.store.replication.master import Master
from cometmq.store.results import PutStatus
from cometmq.store.store import Store

log = logging.getLogger(__name__)

LoadRanges = Callable[[list[tuple[File, int, int]], Callable[[], object]], object]

LINKS_MAX: Final = 64
LINKS_PER_ADDRESS_MAX: Final = 16
FRAMES_PER_WRITE: Final = 16
# Written to one replica before others have their turn, and what may wait for its socket.
TURN_BYTES_MAX: Final = 4 << 20
OUTPUT_BYTES_MAX: Final = 1 << 20
# What was written longer ago than this may have left memory; so much of it is brought back at once.
WARM_BYTES: Final = 64 << 20
LOAD_BYTES: Final = 4 << 20
TIMER_HAIR_S: Final = 0.001


class Listener:
    """Everything on one event loop. `load_ranges` brings pages into memory: `Background.load_ranges`. `doors` say who
    is served."""

    def __init__(self, store: Store, load_ranges: LoadRanges, doors: Doors | None = None) -> None:
        self.master = Master(store.log, store.options)
        self.port: int = 0
        self.store = store
        self.load_ranges = load_ranges
        self.doors = doors or Doors()
        self.refusals = ThinnedLog(log, store.clock)
        self.closings = ThinnedLog(log, store.clock)
        self.connections: dict[_Connection, None] = {}
        self._clock = store.clock
        self._server: asyncio.Server | None = None
        self._looking: LookingServer | None = None
        self._deadline_timer: Timer | None = None
        self._woken = False
        self._stopped = False

    async def start(self, host: str, port: int) -> None:
        """OSError if the port is taken."""
        make_protocol = partial(_Connection, self)
        if self.doors.looks_first:
            self._looking = LookingServer(self.doors, make_protocol, self._clock)
            await self._looking.start(host, port)
            self.port = self._looking.port
        else:
            self._server = await asyncio.get_running_loop().create_server(make_protocol, host, port)
            self.port = self._server.sockets[0].getsockname()[1]
        # Under SYNC_FLUSH replicas get what is on disk, else what is in the log.
        if self.store.options.sync_flush:
            self.store.subscribe(flushed=self.wake)
        else:
            self.store.subscribe(appended=self.wake)

    async def stop(self) -> None:
        self._stopped = True
        self.store.unsubscribe(appended=self.wake, flushed=self.wake)
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self.master.waiters.give_up()
        for connection in list(self.connections):
            connection.abort()
        if self._looking is not None:
            await self._looking.stop()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def wake(self) -> None:
        """The log has grown. All puts of this turn of the loop go out together."""
        if not self._woken and self.connections:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._pump_all)

    def _pump_all(self) -> None:
        self._woken = False
        for connection in list(self.connections):
            connection.pump()

    # Who waits

    def wait(self, end_offset: int, callback: Callable[[int], object]) -> None:
        """For `Store.promise_copies` of a SYNC_MASTER."""
        if self._stopped:
            callback(PutStatus.SLAVE_NOT_AVAILABLE)
            return
        self.master.wait(end_offset, callback, self._clock.monotonic())
        if self._deadline_timer is None:
            self._arm()

    def _arm(self) -> None:
        deadline_s = self.master.waiters.next_deadline_s()
        self._deadline_timer = None
        if deadline_s is not None:
            delay_s = max(0.0, deadline_s - self._clock.monotonic())
            self._deadline_timer = self._clock.call_later(delay_s, self._deadline_passed)

    def _deadline_passed(self) -> None:
        # A timer may come a hair early; what is due within it is due.
        self.master.expire(self._clock.monotonic() + TIMER_HAIR_S)
        self._arm()

    # Connections

    def admit(self, connection: _Connection) -> Link | None:
        """None: there are too many that have shown to be replicas."""
        own = [each for each in self.connections if each.address == connection.address]
        if len(own) >= LINKS_PER_ADDRESS_MAX:
            if not self._make_room(own):
                return None
        elif len(self.connections) >= LINKS_MAX and not self._make_room(list(self.connections)):
            return None
        link = self.master.connect(connection.name, self._clock.monotonic())
        self.connections[connection] = None
        return link

    def _make_room(self, candidates: list[_Connection]) -> bool:
        """Close the oldest that has proven nothing, of the address with most of these; one without a report first."""
        idle = [each for each in candidates if each.link.proven_offset < 0]
        if not idle:
            return False
        counts = Counter(each.address for each in idle)
        loser = min(idle, key=lambda each: (-counts[each.address], each.link.next_offset >= 0, each.link.born_s))
        self.closings.warning("closed replica peer=%s cause=idle, another one needs its place", loser.name)
        loser.abort()
        self._forget(loser)
        return True

    def closed(self, connection: _Connection) -> None:
        if connection in self.connections:
            self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        del self.connections[connection]
        self.master.disconnect(connection.link)


class _Connection(asyncio.Protocol):
    """One replica."""

    link: Link

    def __init__(self, listener: Listener) -> None:
        self.name: str = "?"
        self.address: str = "?"
        self._listener = listener
        self._clock = listener.store.clock
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._paused = False
        self._loading = False

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, made)  # uvloop's is none by name
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.address = str(peer[0])
        self.name = f"{peer[0]}:{peer[1]}"
        if not self._listener.doors.is_allowed(self.address):
            self._listener.refusals.warning("refused replica peer=%s cause=not in haAllowedAddresses", self.name)
            transport.abort()
            return
        link = self._listener.admit(self)
        if link is None:
            self._listener.refusals.warning(
                "refused replica peer=%s connections_max=%d address_max=%d", self.name, LINKS_MAX, LINKS_PER_ADDRESS_MAX
            )
            transport.abort()
            return
        self.link = link
        self._transport = transport
        transport.set_write_buffer_limits(high=OUTPUT_BYTES_MAX)
        link.unsent_bytes = transport.get_write_buffer_size
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self.abort()
        if self.link.next_offset >= 0:
            log.info("lost replica peer=%s acked_offset=%d", self.name, self.link.acked_offset)
        self._listener.closed(self)

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _drop(self, reason: object) -> None:
        """What it says counts no more from now on, not only when the socket is closed."""
        self._listener.closings.warning("closed replica peer=%s cause=%s", self.name, reason)
        self.abort()
        self._listener.closed(self)

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        if self not in self._listener.connections:
            return
        is_new = self.link.next_offset < 0
        try:
            self._listener.master.received(self.link, data, self._clock.monotonic())
        except WireError as error:
            self._drop(error)
            return
        if is_new and self.link.next_offset >= 0:
            log.info("found replica peer=%s from=%d", self.name, self.link.next_offset)
            self._arm()
            self.pump()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def pump(self) -> None:
        """Write what the replica does not have yet, as much as may go in this turn."""
        transport, listener, link = self._transport, self._listener, self.link
        if transport is None or self._loading or self not in listener.connections:
            return
        turn_end = link.pace.total_bytes + TURN_BYTES_MAX
        try:
            while not self._paused and not self._is_cold():
                buffers = link.output(FRAMES_PER_WRITE, self._clock.monotonic())
                if not buffers:
                    self._arm_if_paced()
                    return
                transport.writelines(buffers)
                if link.pace.total_bytes >= turn_end:
                    asyncio.get_running_loop().call_soon(self.pump)
                    return
        except WireError as error:
            self._drop(error)

    def _is_cold(self) -> bool:
        """Whether the next bytes must come from the disk; then they are asked for, and the pump goes on later."""
        link, store = self.link, self._listener.store
        if link.next_offset < 0 or store.log.max_offset - link.next_offset <= WARM_BYTES:
            return False
        segment = store.segments.find(link.next_offset)
        if segment is None:
            return False
        position = link.next_offset - segment.start
        wanted = max(FRAMES_PER_WRITE * store.options.ha_frame_bytes, BACKLOG_FRAME_BYTES)
        count = min(wanted, segment.size - position)
        if segment.file.resident(position, count):
            return False
        self._loading = True
        count = min(LOAD_BYTES, segment.size - position)
        self._listener.load_ranges([(segment.file, position, count)], self._loaded)
        return True

    def _loaded(self) -> None:
        self._loading = False
        self.pump()

    # By the clock

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(TIMER_HAIR_S, self.link.due_s() - self._clock.monotonic())
        self._timer = self._clock.call_later(delay_s, self._tick)

    def _arm_if_paced(self) -> None:
        """What may not go in this second goes in the next one, long before a heartbeat is due."""
        if self._listener.store.options.ha_pace_enabled:
            self._arm()

    def _tick(self) -> None:
        if self.link.is_silent(self._clock.monotonic()):
            self._drop(f"silent for {self._listener.store.options.ha_silence_ms} ms (haHousekeepingInterval)")
            return
        self.pump()
        if self in self._listener.connections:
            self._arm()
