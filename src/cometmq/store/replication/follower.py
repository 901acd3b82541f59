"""The replica's socket: connect to the master, append what it sends, report what is on disk, and never give up.

    follow(address) ──> connect ──> transfer ──> lost ──> RETRY_S later ──> connect ...

Bytes go from the socket into one buffer, those of long frames into the one where records are looked for, and from there
into the log. If the disk or the building of queues does not keep up, reading pauses, and the master's socket with it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Final, cast

from cometmq.clock import Timer
from cometmq.errors import StoreError, WireError
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.replication.doors import Doors, is_deaf
from cometmq.store.replication.replica import Diverged, Replica
from cometmq.store.store import Store

log = logging.getLogger(__name__)

RETRY_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 3.0
BUFFER_BYTES: Final = 1 << 20
# Received but not flushed, and not in the queues yet: above these reading pauses.
UNFLUSHED_BYTES_MAX: Final = 256 << 20
UNDISPATCHED_BYTES_MAX: Final = 1 << 30
# While so much comes in so long, a backlog is being sent: the log comes first, its queues now and then.
FLOWING_BYTES: Final = 8 << 20
FLOW_S: Final = 0.05
FLOWING_READ_BYTES: Final = BUFFER_BYTES // 4
LOOK_S: Final = 0.02
TIMER_HAIR_S: Final = 0.001


class Follower:
    """Everything on one event loop."""

    def __init__(self, store: Store, doors: Doors | None = None) -> None:
        self.store = store
        self._doors = doors or Doors()
        self.address: str = ""
        self.connection: _Connection | None = None
        self.failures = ThinnedLog(log, store.clock)
        self.divergences = ThinnedLog(log, store.clock)
        self._clock = store.clock
        self._buffer = bytearray(BUFFER_BYTES)
        self._connecting: asyncio.Task[None] | None = None
        self._retry_timer: Timer | None = None
        self._stopped = False

    @property
    def is_connected(self) -> bool:
        return self.connection is not None

    @property
    def is_caught_up(self) -> bool:
        """Connected, and all that was received is known to be in the master's log."""
        return self.connection is not None and self.connection.replica.is_checked

    def follow(self, address: str) -> None:
        """Take this master from now on; "" takes none."""
        if address == self.address or self._stopped:
            return
        log.info("follow master address=%s before=%s", address, self.address or "none")
        self.address = address
        if self.connection is not None:
            self.connection.abort()
        self._try_soon(0.0)

    async def stop(self) -> None:
        self._stopped = True
        if self.connection is not None:
            self.store.unsubscribe(flushed=self.connection.flushed)
        self._cancel_retry()
        if self.connection is not None:
            self.connection.abort()
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting

    # Connecting

    def _try_soon(self, delay_s: float) -> None:
        self._cancel_retry()
        if self.address and not self._stopped:
            self._retry_timer = self._clock.call_later(delay_s, self._try)

    def _cancel_retry(self) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None

    def _try(self) -> None:
        self._retry_timer = None
        if self.store.failure is not None:
            log.error("follow no master any more cause=%s", self.store.failure)
            return
        if self._connecting is None and self.connection is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(self.address))

    async def _connect(self, address: str) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._open(address)
        except (OSError, ValueError, TimeoutError) as error:
            self.failures.warning("fail to reach master address=%s cause=%s", address, str(error) or "time is over")
            self._connecting = None
            self._try_soon(RETRY_S if address == self.address else 0.0)
        finally:
            self._connecting = None

    async def _open(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        attempts = list(self._doors.attempts())
        for number, context in enumerate(attempts, 1):
            name = (self._doors.server_name or host) if context is not None else None
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self, address), host, int(port), ssl=context, server_hostname=name
                )
            except OSError as error:
                if number == len(attempts) or not is_deaf(error):
                    raise
                self.failures.warning("go on without TLS address=%s cause=%s", address, error)
            else:
                return

    def made(self, connection: _Connection) -> bool:
        """False: it is not wanted any more."""
        if self._stopped or connection.address != self.address:
            return False
        self.connection = connection
        self.store.subscribe(flushed=connection.flushed)
        return True

    def lost(self, connection: _Connection) -> None:
        if self.connection is connection:
            self.connection = None
            self.store.unsubscribe(flushed=connection.flushed)
        if self._retry_timer is None:
            self._try_soon(RETRY_S if connection.address == self.address else 0.0)

    @property
    def buffer(self) -> bytearray:
        """One for all connections: there is one at a time."""
        return self._buffer


class _Connection(asyncio.BufferedProtocol):
    """One connection to the master."""

    def __init__(self, follower: Follower, address: str) -> None:
        self.address = address
        self._follower = follower
        self._store = follower.store
        self._clock = self._store.clock
        self.replica = Replica(self._store.log, self._store.options, self._clock.monotonic())
        self._view = memoryview(follower.buffer)
        self._lands = False
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._flow_timer: Timer | None = None
        self._flow_bytes = 0
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        if not self._follower.made(self):
            self._transport.abort()
            return
        self._transport.write(self.replica.connected(self._clock.monotonic()))
        log.info("reached master address=%s from=%d", self.address, self.replica.reported_offset)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._flow_timer):
            if timer is not None:
                timer.cancel()
        self._paused = False
        self._store.put_log_first(False)
        self._store.wake_dispatch()
        log.info("lost master address=%s at=%d cause=%s", self.address, self._store.log.max_offset, exc or "closed")
        self._follower.lost(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        landing = self.replica.landing()
        self._lands = landing is not None
        return self._view if landing is None else landing

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            grew = self._take(nbytes, self._clock.monotonic())
        except (WireError, StoreError, OSError) as error:
            self._give_up(error)
            return
        if grew:
            self._store.wake_flush()
            self._dispatch(nbytes)
            self._pause_if_behind()
        elif not self.replica.is_checked:
            self._report()

    def _take(self, nbytes: int, now_s: float) -> bool:
        if self._lands:
            return self.replica.landed(nbytes, now_s)
        return self.replica.received(self._view[:nbytes], now_s)

    def _dispatch(self, nbytes: int) -> None:
        """A step of building queues takes longer than it takes to receive what it is for."""
        self._flow_bytes += nbytes
        if self._flow_bytes >= FLOWING_BYTES:
            self._set_flowing(True)
        if not self._store.log_first:
            self._store.wake_dispatch()
        if self._flow_timer is None:
            self._flow_timer = self._clock.call_later(FLOW_S, self._look_at_flow)

    def _look_at_flow(self) -> None:
        flows = self._flow_bytes >= FLOWING_BYTES
        self._flow_bytes = 0
        self._flow_timer = self._clock.call_later(FLOW_S, self._look_at_flow) if flows else None
        self._set_flowing(flows)
        self._store.wake_dispatch()

    def _set_flowing(self, flows: bool) -> None:
        """While it flows, a read waits for so much that its cost does not count; closing ends the wait at once."""
        if flows != self._store.log_first and self._transport is not None:
            self._store.put_log_first(flows)
            link: socket.socket = self._transport.get_extra_info("socket")
            with suppress(OSError):  # it is closed, or this system has no such option
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, FLOWING_READ_BYTES if flows else 1)

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, Diverged):
            self._follower.divergences.warning("diverged from master address=%s cause=%s", self.address, error)
        else:
            self._follower.failures.warning("closed master address=%s cause=%s", self.address, error)
        # What came before the error may be in the log already.
        self._store.replicated()
        self.abort()

    def eof_received(self) -> bool:
        return False

    # Reports

    def flushed(self) -> None:
        """More of the log is on disk."""
        self._report()
        self._resume_if_able()

    def _report(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        report = self.replica.report(self._clock.monotonic())
        if report:
            self._transport.write(report)

    def _arm(self) -> None:
        delay_s = max(TIMER_HAIR_S, self.replica.due_s() - self._clock.monotonic())
        self._timer = self._clock.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        if self._store.failure is not None:
            self._give_up(self._store.failure)
        elif self.replica.is_silent(self._clock.monotonic()):
            self._give_up(WireError(f"silent for {self._store.options.ha_silence_ms} ms (haHousekeepingInterval)"))
        else:
            self._report()
            self._arm()

    # Not faster than the disk

    def _is_behind(self) -> bool:
        store = self._store
        unflushed = store.log.max_offset - store.log.flushed_offset
        return unflushed > UNFLUSHED_BYTES_MAX or store.dispatcher.behind_bytes > UNDISPATCHED_BYTES_MAX

    def _pause_if_behind(self) -> None:
        if not self._paused and self._is_behind():
            assert self._transport is not None
            self._paused = True
            self._transport.pause_reading()
            self._clock.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Queues that are being built tell nobody when they have caught up."""
        self._resume_if_able()
        if self._paused:
            self._clock.call_later(LOOK_S, self._look)

    def _resume_if_able(self) -> None:
        if self._paused and self._transport is not None and not self._is_behind():
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
