"""What all connections of one server or client share: budgets, calls, and one sweep.

Nothing here happens per message. A connection counts what it holds of three budgets (incomplete frames, requests in
flight, unsent output); whoever crosses one pays at once, as `limits` says. Everything about time is seen by the sweep,
one timer that looks at every connection each `sweep_s` and runs only while there are connections.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from cometmq.clock import Clock, Timer
from cometmq.net.calls import Calls
from cometmq.net.family import Family, Guard, Hook
from cometmq.net.limits import Limits
from cometmq.net.meter import Meter
from cometmq.net.peer import Peer
from cometmq.net.shares import make_room_for_connection
from cometmq.net.tls import ServerTls
from cometmq.net.turns import Turns
from cometmq.net.waiting import Budget
from cometmq.rate_limited_log import ThinnedLog
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

Event = Callable[[Peer], object]
ErrorEvent = Callable[[Peer, BaseException], object]


class Endpoint(Budget):
    """Bounds are copied out of `limits`: compiled code reads them as plain fields."""

    def __init__(
        self, limits: Limits, clock: Clock, hooks: Iterable[Hook], tls: ServerTls | None
    ) -> None:
        super().__init__()
        self.limits: Limits = limits
        self.frame_bytes_max: int = limits.frame_bytes_max
        self.inflight_bytes_max: int = limits.inflight_bytes_max
        self.inflight_bytes_total_max: int = limits.inflight_bytes_total_max
        self.clock: Clock = clock
        self.tls: ServerTls | None = tls
        self.guard: Guard | None = None
        self.is_trusted_proxy: Callable[[str], bool] | None = None
        self.refused: Family = Family("refused", limits.refused_max)
        self.meter: Meter | None = None
        # When the bytes were read whose requests are served now.
        self.read_s: float = 0.0
        self.hooks: list[Hook] = []
        for hook in hooks:
            self.add_hook(hook)
        self.calls: Calls = Calls(clock, limits.calls_max, limits.oneway_max, limits.calls_waiting_max)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.connections: dict[Peer, None] = {}
        self.connections_of: dict[str, int] = {}
        self.turns: Turns = Turns(self)
        self.turn_until_s: float = 0.0
        self.tasks: set[asyncio.Future[Command | None]] = set()

        self.partial_bytes: int = 0
        self.output_bytes: int = 0
        self.leaving: bool = False
        self.closed: bool = False
        self.answered: asyncio.Event | None = None
        self.emptied: asyncio.Event | None = None

        self.on_connect: Event | None = None
        self.on_idle: Event | None = None
        self.on_exception: ErrorEvent | None = None
        self.on_close: Event | None = None

        self.log_malformed: ThinnedLog = ThinnedLog(logger, clock)
        self.log_cut: ThinnedLog = ThinnedLog(logger, clock)
        self.log_refused: ThinnedLog = ThinnedLog(logger, clock)
        self.log_evicted: ThinnedLog = ThinnedLog(logger, clock)
        self.log_failed: ThinnedLog = ThinnedLog(logger, clock)
        self.log_stray: ThinnedLog = ThinnedLog(logger, clock)

        self._sweep_timer: Timer | None = None
        self._starved: dict[Peer, None] = {}
        self._unflushed: list[Peer] = []

    def add_hook(self, hook: Hook) -> None:
        """Each hook counts once, however often it is offered."""
        if not any(known is hook for known in self.hooks):
            self.hooks.append(hook)

    def run_before(self, peer: str, request: Command) -> None:
        for hook in self.hooks:
            hook.before(peer, request)

    def run_after(self, peer: str, request: Command, response: Command) -> None:
        for hook in self.hooks:
            hook.after(peer, request, response)

    # Connections come and go

    def enter(self, connection: Peer) -> bool:
        """False if there is no room for another connection."""
        if self.closed:
            return False
        if len(self.connections) >= self.limits.connections_max and not make_room_for_connection(self, connection):
            self.log_cut.warning(
                "cut connection peer=%s reason=over connections_max=%d",
                connection.peer_text,
                self.limits.connections_max,
            )
            return False
        self.connections[connection] = None
        self.connections_of[connection.peer[0]] = self.connections_of.get(connection.peer[0], 0) + 1
        if self._sweep_timer is None:
            self._sweep_timer = self.clock.call_later(self.limits.sweep_s, self._sweep)
        return True

    def leave(self, connection: Peer) -> None:
        if connection in self.connections:
            del self.connections[connection]
            left = self.connections_of[connection.peer[0]] - 1
            if left:
                self.connections_of[connection.peer[0]] = left
            else:
                del self.connections_of[connection.peer[0]]
        self._starved.pop(connection, None)
        if self.emptied is not None and not self.connections:
            self.emptied.set()

    def tell(self, event: Event | None, connection: Peer) -> None:
        if event is not None:
            try:
                event(connection)
            except Exception:
                logger.exception("fail event peer=%s", connection.peer_text)

    def tell_error(self, connection: Peer, error: BaseException) -> None:
        if self.on_exception is not None:
            try:
                self.on_exception(connection, error)
            except Exception:
                logger.exception("fail event peer=%s", connection.peer_text)

    # Budgets

    def release(self, size_bytes: int) -> None:
        self.waiting -= 1
        self.inflight_bytes -= size_bytes
        if self._starved and self.inflight_bytes <= self.inflight_bytes_total_max * 3 // 4:
            starved = list(self._starved)
            self._starved.clear()
            for connection in starved:
                connection.feed_again()
        if self.answered is not None and self.waiting == 0:
            self.answered.set()

    def starve(self, connection: Peer) -> None:
        """Remember a connection whose reading paused because all connections together hold too much."""
        self._starved[connection] = None

    def count_partial(self, change_bytes: int) -> None:
        self.partial_bytes += change_bytes
        bound = self.limits.partial_bytes_max
        if self.partial_bytes > bound:
            now: float = self.clock.monotonic()
            held = [(c.intake.cost(now), c.intake.partial_bytes, c) for c in self.connections]
            self._cut_costliest(held, self.partial_bytes - bound * 3 // 4, "over partial_bytes_max")

    def count_output(self, added_bytes: int) -> None:
        """Output that a blocked connection cannot get rid of; the sweep sets the exact sum."""
        self.output_bytes += added_bytes
        bound = self.limits.output_bytes_total_max
        if self.output_bytes > bound:
            now: float = self.clock.monotonic()
            self._sum_output()
            held = [(c.output.cost(now), c.output.blocked_bytes, c) for c in self.connections]
            if self.output_bytes > bound:
                self._cut_costliest(held, self.output_bytes - bound * 3 // 4, "over output_bytes_total_max")
                self._sum_output()

    def _sum_output(self) -> None:
        total = 0
        for connection in self.connections:
            total += connection.output.blocked_bytes
        self.output_bytes = total

    def _cut_costliest(self, held: list[tuple[float, int, Peer]], excess_bytes: int, reason: str) -> None:
        """Cut down to three quarters of a budget, so that a flood does not make us sort for every chunk."""
        held.sort(key=_cost, reverse=True)
        for _, held_bytes, connection in held:
            if excess_bytes <= 0 or held_bytes == 0:
                return
            excess_bytes -= held_bytes
            connection.cut(reason)

    # Output that was produced outside of data_received leaves once per turn of the loop

    def flush_soon(self, connection: Peer) -> None:
        if not self._unflushed:
            assert self.loop is not None
            self.loop.call_soon(self._flush_all)
        self._unflushed.append(connection)

    def _flush_all(self) -> None:
        unflushed = self._unflushed
        self._unflushed = []
        for connection in unflushed:
            connection.flush()

    # Time

    def _sweep(self) -> None:
        now: float = self.clock.monotonic()
        for connection in list(self.connections):
            connection.sweep(now)
        self._sum_output()
        go_on = len(self.connections) > 0
        self._sweep_timer = self.clock.call_later(self.limits.sweep_s, self._sweep) if go_on else None

    def stop(self) -> None:
        """The timers; whoever owns the connections has closed them before."""
        self.calls.stop()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None


def _cost(held: tuple[float, int, Peer]) -> float:
    return held[0]
