"""The socket of a set's member that follows: one epoch of one master, until told otherwise.

    follow(epoch, address) ──> connect ──> hello, epochs ──> cut ──> frames, reports ──> lost ──> connect again at once

What the master's end shows is what failover is decided by: `is_refused`, its machine answers and nobody listens;
`is_silent`, nothing was heard for `silence_s`, on this connection or on any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from cometmq.clock import Timer
from cometmq.errors import StoreError, WireError
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.replication.doors import Doors, is_deaf
from cometmq.store.replication.sets.cut import cut
from cometmq.store.replication.sets.promises import SetMemory
from cometmq.store.replication.sets.replica import SetReplica
from cometmq.store.store import Store

log = logging.getLogger(__name__)

RETRY_S: Final = 0.1
RETRY_LATER_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 1.0
LOOK_S: Final = 0.02
FLUSH_LOOK_S: Final = 0.002
UNFLUSHED_BYTES_MAX: Final = 256 << 20
UNDISPATCHED_BYTES_MAX: Final = 1 << 30


class SetFollower:
    """Everything on one event loop. `on_change`: what is seen of the master has changed."""

    def __init__(
        self,
        store: Store,
        memory: SetMemory,
        doors: Doors,
        silence_s: Callable[[], float],
        on_change: Callable[[], object],
        *,
        is_learner: bool = False,
    ) -> None:
        self.store = store
        self.memory = memory
        self.epoch: int = 0
        self.address: str = ""
        self.is_refused = False
        self.is_silent = False
        self.connection: _Connection | None = None
        self.failures = ThinnedLog(log, store.clock)
        self.is_learner = is_learner
        # Cannot go on without an operator: why.
        self.stuck: str = ""
        self._doors = doors
        self._silence_s = silence_s
        self._on_change = on_change
        self._clock = store.clock
        self._heard_s = 0.0
        self._running: asyncio.Task[None] | None = None
        self._look_timer: Timer | None = None

    @property
    def is_agreed(self) -> bool:
        return self.connection is not None and self.connection.replica.is_agreed

    def follow(self, epoch: int, address: str) -> None:
        """Take the log of this epoch from this master from now on."""
        if (epoch, address) == (self.epoch, self.address):
            return
        log.info("follow master epoch=%d address=%s", epoch, address)
        self._leave()
        self.epoch, self.address = epoch, address
        self.is_refused = self.is_silent = False
        self.stuck = ""
        self._heard_s = self._clock.monotonic()
        self._running = asyncio.get_running_loop().create_task(self._run(epoch, address))
        self._watch()

    def _leave(self) -> None:
        """Nothing is taken or reported any more when this returns."""
        self.epoch, self.address = 0, ""
        if self._running is not None:
            self._running.cancel()
            self._running = None
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.close()

    async def leave(self) -> None:
        running = self._running
        self._leave()
        if running is not None:
            await asyncio.gather(running, return_exceptions=True)

    # What is seen of the master

    def heard(self) -> None:
        self._heard_s = self._clock.monotonic()
        if self.is_silent or self.is_refused:
            self.is_silent = self.is_refused = False
            self._on_change()

    def _watch(self) -> None:
        left_s = self._heard_s + self._silence_s() - self._clock.monotonic()
        if left_s <= 0 and not self.is_silent:
            log.warning("hear nothing of master epoch=%d for_ms=%d", self.epoch, self._silence_s() * 1000)
            self.is_silent = True
            self._on_change()
        self._look_timer = self._clock.call_later(max(LOOK_S, left_s if left_s > 0 else self._silence_s()), self._watch)

    # Connecting

    async def _run(self, epoch: int, address: str) -> None:
        while self.epoch == epoch and self.store.failure is None:
            delay_s = RETRY_S
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    connection = await self._open(epoch, address)
                self.connection = connection
                await connection.over
            except ConnectionRefusedError as error:
                self.failures.warning("refused by master address=%s cause=%s", address, error)
                if not self.is_refused:
                    self.is_refused = True
                    self._on_change()
            except (OSError, ValueError, TimeoutError) as error:
                self.failures.warning("fail to reach master address=%s cause=%s", address, str(error) or "time is over")
            finally:
                if self.connection is not None and self.epoch == epoch:
                    delay_s = RETRY_LATER_S if self.stuck else 0.0 if self.connection.was_heard else RETRY_S
                    self.connection.close()
                    self.connection = None
            await asyncio.sleep(delay_s)

    async def _open(self, epoch: int, address: str) -> _Connection:
        host, _, port = address.rpartition(":")
        attempts = list(self._doors.attempts())
        for number, context in enumerate(attempts, 1):
            name = (self._doors.server_name or host) if context is not None else None
            try:
                _, protocol = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self, epoch), host, int(port), ssl=context, server_hostname=name
                )
            except OSError as error:
                if number == len(attempts) or not is_deaf(error):
                    raise
                self.failures.warning("go on without TLS address=%s cause=%s", address, error)
            else:
                return protocol
        raise OSError(f"no way to reach {address} (tls.ha.mode)")


class _Connection(asyncio.Protocol):
    """One connection to the master."""

    def __init__(self, follower: SetFollower, epoch: int) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.was_heard = False
        self._follower = follower
        self._store = follower.store
        self._clock = self._store.clock
        self.replica = SetReplica(
            follower.memory.kept.id,
            epoch,
            self._store.log,
            follower.memory,
            self._store.options,
            self._clock.monotonic(),
            is_learner=follower.is_learner,
        )
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._cutting: asyncio.Task[None] | None = None
        self._paused = False
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        if self._follower.epoch != self.replica.epoch:
            self.close()
            return
        self._store.subscribe(flushed=self._flushed)
        self._transport.write(self.replica.connected(self._clock.monotonic()))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._store.unsubscribe(flushed=self._flushed)
        if self._timer is not None:
            self._timer.cancel()
        if self._cutting is not None:
            self._cutting.cancel()
        if self._transport is not None:
            self._transport.abort()
        if not self.over.done():
            self.over.set_result(None)

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            grew = self.replica.received(memoryview(data), self._clock.monotonic())
            self.was_heard = True
            self._follower.heard()
            if self.replica.cut_to >= 0 and self._cutting is None:
                self._cutting = asyncio.get_running_loop().create_task(self._cut())
            self._store.commit(min(self.replica.committed, self._store.log.max_offset))
        except (WireError, StoreError, OSError) as error:
            self._give_up(error)
            return
        if grew:
            self._store.replicated()
            self._pause_if_behind()

    async def _cut(self) -> None:
        """Not while a sync of the log is running: what it says when it ends would be of what is not there any more."""
        while self._store.flusher.running:  # noqa: ASYNC110 - a thread ends it, not a task
            await asyncio.sleep(FLUSH_LOOK_S)
        if self._is_over:
            return
        try:
            cut(self._store, self._follower.memory, self.replica.cut_to)
            self._store.wake_flush()
            self._store.wake_dispatch()
            report = self.replica.was_cut(self._clock.monotonic())
        except (StoreError, OSError) as error:
            self._give_up(error)
            return
        log.info("agreed with master epoch=%d at=%d", self.replica.epoch, self._store.log.max_offset)
        if self._transport is not None and report:
            self._transport.write(report)
        self._tick()

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            self._follower.stuck = str(error)
        self._follower.failures.warning("closed master epoch=%d cause=%s", self.replica.epoch, error)
        self._store.replicated()
        self.close()

    # Reports

    def _flushed(self) -> None:
        self._report()
        self._resume_if_able()

    def _report(self) -> None:
        if self._is_over or self._transport is None:
            return
        try:
            report = self.replica.report(self._clock.monotonic())
        except OSError as error:
            self._give_up(error)
            return
        if report:
            self._transport.write(report)

    def _tick(self) -> None:
        self._report()
        if not self._is_over:
            delay_s = max(LOOK_S, self.replica.due_s() - self._clock.monotonic())
            self._timer = self._clock.call_later(delay_s, self._tick)

    # Not faster than the disk

    def _is_behind(self) -> bool:
        store = self._store
        unflushed = store.log.max_offset - store.log.flushed_offset
        return unflushed > UNFLUSHED_BYTES_MAX or store.dispatcher.behind_bytes > UNDISPATCHED_BYTES_MAX

    def _pause_if_behind(self) -> None:
        if not self._paused and self._is_behind() and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
            self._clock.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._resume_if_able()
        if self._paused and not self._is_over:
            self._clock.call_later(LOOK_S, self._look)

    def _resume_if_able(self) -> None:
        if self._paused and not self._is_over and self._transport is not None and not self._is_behind():
            self._paused = False
            with suppress(RuntimeError):
                self._transport.resume_reading()
