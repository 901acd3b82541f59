"""One socket of a gRPC client: bytes to calls, answers to bytes.

    data_received -> Intake (PROXY header, TLS) -> Session (HTTP/2) -> `calls` -> Session -> Output -> transport.write

All answers of one chunk of input leave in one write. Calls wait in a backlog, still readable by their client's resets,

    while it does not take its answers         until less than `PENDING_BYTES_HIGH` waits for its windows
    after a slice of the loop's time           until the other connections had their turn

because reading must go on: what opens a window comes on the same connection.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic, thread_time
from typing import Any, Final, Protocol, cast

from cometmq.clock import Clock, SystemClock
from cometmq.errors import WireError
from cometmq.net.endpoint import Endpoint
from cometmq.net.intake import Intake
from cometmq.net.limits import Limits
from cometmq.net.peer import Peer, socket_address
from cometmq.net.server import BACKLOG, bind, close_all, emptied
from cometmq.net.tls import ServerTls
from cometmq.net.turns import SHORT_S, SLICE_S
from cometmq.wire.http2.frames import MESSAGE, NO_ERROR, PROTOCOL_ERROR, RESET, UNAVAILABLE, Http2Error
from cometmq.wire.http2.session import Event, Session, Stream

logger = logging.getLogger(__name__)

# What waits for the windows of one client: above the first its calls wait, above the other it is cut.
PENDING_BYTES_HIGH: Final = 8 << 20
PENDING_BYTES_MAX: Final = 256 << 20
# The same over all clients: above the first, those that have something waiting get nothing more; above the other the
# one with the most is cut.
PENDING_TOTAL_HIGH: Final = 128 << 20
PENDING_TOTAL_MAX: Final = 256 << 20
# Messages of calls that wait in the backlog.
BACKLOG_BYTES_MAX: Final = 64 << 20
# A client that takes nothing of what waits for it, and one that says nothing while it has calls.
STALLED_S: Final = 60.0
SILENT_S: Final = 600.0


class Calls(Protocol):
    """What a server does with calls. `message` may come several times for one stream, then `ended`."""

    def message(self, connection: Http2Connection, stream: Stream, message: bytes, /) -> None: ...

    def ended(self, connection: Http2Connection, stream: Stream, /) -> None: ...

    def given_up(self, connection: Http2Connection, stream: Stream, /) -> None: ...

    def closed(self, connection: Http2Connection, /) -> None: ...


class Unsent:
    """What waits for the windows of all clients of a server."""

    __slots__ = ("total_bytes",)

    def __init__(self) -> None:
        self.total_bytes: int = 0


class Http2Connection(Peer):
    """`local` is the socket's own (host, port); `source` the address that access control goes by."""

    def __init__(self, endpoint: Endpoint, calls: Calls, session: Session, unsent: Unsent) -> None:
        super().__init__(Intake(endpoint.frame_bytes_max, True, endpoint.tls, None))
        self.endpoint = endpoint
        self.session = session
        self.source = "?"
        self.local: tuple[str, int] = ("?", 0)
        self.owner: object = None
        self._calls = calls
        self._unsent = unsent
        self._noted_pending = 0
        self._transport: Any = None
        self._is_closed = False
        self._corked = False
        self._scheduled = False
        self._ready = False
        self._backlog: list[Event] = []
        self._backlog_bytes = 0
        self._waits_for_turn = False
        self._counted_bytes = 0
        self._heard_s = 0.0
        self._opened_s = 0.0
        self._taken_s = 0.0
        self._seen_pending = 0
        self._heard = False
        self._closing_s = 0.0

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    @property
    def is_overfull(self) -> bool:
        """Its client does not take what it asks for."""
        pending = self.session.pending_bytes
        if pending > PENDING_BYTES_HIGH or self.output.blocked:
            return True
        return pending > 0 and self._unsent.total_bytes > PENDING_TOTAL_HIGH

    def takes(self) -> bool:
        return not self.is_overfull

    # Called by the event loop

    def connection_made(self, transport: Any) -> None:
        endpoint = self.endpoint
        self._transport = transport
        self.peer = socket_address(transport.get_extra_info("peername"))
        self.local = socket_address(transport.get_extra_info("sockname"))
        self.peer_text = f"{self.peer[0]}:{self.peer[1]}"
        self.source = self.peer[0]
        self._heard_s = self._opened_s = self._taken_s = endpoint.clock.monotonic()
        self.output.attach(transport, endpoint.limits.output_bytes_high)
        if not endpoint.enter(self):
            self._is_closed = True
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._heard = True
        began_s = monotonic()
        self._corked = True
        try:
            self._take(data, began_s)
        except Http2Error as error:
            self._malformed(error.code, error)
        except WireError as fault:
            self._malformed(PROTOCOL_ERROR, fault)
        finally:
            self._corked = False
        self.flush()
        if self.endpoint.turn_until_s == 0:
            after_s = monotonic()
            if after_s - began_s > SHORT_S:
                self.endpoint.turns.begin(after_s)

    def _take(self, data: bytes, now_s: float) -> None:
        intake = self.intake
        if not self._ready or intake.tls is not None:
            data = intake.unwrap(data)
            if intake.tls is not None:
                self.output.write(intake.tls.take())
            if not self._ready and intake.ready:
                self._become_ready()
        if data:
            events = self.session.feed(data)
            intake.frames += len(events)
            if self._backlog:
                self._keep(events)
            elif events and 0 < self.endpoint.turn_until_s < now_s:
                self._keep(events)
                self._wait_for_turn()
            elif events:
                self._serve(events)
            self._count()
        if intake.tls is not None and intake.tls.closed:
            self.close("closed by peer")

    def _become_ready(self) -> None:
        header = self.intake.header
        if header is not None and header.source is not None:
            self.peer_text = f"{header.source[0]}:{header.source[1]}"
            if self.endpoint.is_trusted_proxy is not None and self.endpoint.is_trusted_proxy(self.peer[0]):
                self.source = header.source[0]
        self._ready = True
        self.output.tls = self.intake.tls
        self.output.is_open = True

    def eof_received(self) -> None:
        self.close("closed by peer")

    def pause_writing(self) -> None:
        self.output.block(self.endpoint.clock.monotonic())

    def resume_writing(self) -> None:
        self.output.blocked = False
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()
        self._transport = None
        self.output.detach()
        self.endpoint.leave(self)

    # Serving

    def _serve(self, events: list[Event]) -> None:
        until_s = monotonic() + SLICE_S if len(events) > 1 else 0.0
        used_s = thread_time() if len(events) > 1 else 0.0
        for index, (kind, stream, message) in enumerate(events):
            if self._is_closed:
                return
            if kind == RESET:
                self._calls.given_up(self, stream)
            elif self.is_overfull:
                self._keep(events[index:])
                return
            elif kind == MESSAGE:
                self._calls.message(self, stream, message)
            else:
                self._calls.ended(self, stream)
                if until_s and monotonic() > until_s and thread_time() > used_s + SLICE_S and index + 1 < len(events):
                    self._keep(events[index + 1 :])
                    self._wait_for_turn()
                    return

    def _keep(self, events: list[Event]) -> None:
        self._backlog += events
        self._backlog_bytes += sum(len(event[2]) for event in events)
        if self._backlog_bytes > BACKLOG_BYTES_MAX:
            self.cut(f"over {BACKLOG_BYTES_MAX} bytes of calls while it does not take its answers")

    def _wait_for_turn(self) -> None:
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self.endpoint.turns.wait(self)

    def take_turn(self) -> None:
        self._waits_for_turn = False
        self._go_on()

    def _go_on(self) -> None:
        """What waits in the backlog, as far as it may."""
        if self._is_closed or not self._backlog or self._waits_for_turn or self.is_overfull:
            return
        backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
        self._corked = True
        try:
            # A call that was given up meanwhile is closed: whoever answers it does nothing.
            self._serve([event for event in backlog if event[0] == RESET or not event[1].closed])
        finally:
            self._corked = False
        self.flush_soon()

    def flush_soon(self) -> None:
        """After answers that were not given within `data_received`."""
        if not self._corked and not self._scheduled and not self._is_closed:
            self._scheduled = True
            self.endpoint.flush_soon(self)

    def flush(self) -> None:
        self._scheduled = False
        data = self.session.take()
        if data and not self._is_closed:
            self.output.put(data)
            self.output.flush()
        self._note_pending()
        if self.session.pending_bytes > PENDING_BYTES_MAX or self.output.blocked_bytes > PENDING_BYTES_MAX:
            self.cut(f"over {PENDING_BYTES_MAX} bytes of answers that it does not take")
        elif self._backlog and not self._waits_for_turn and not self.is_overfull:
            self._wait_for_turn()

    def _note_pending(self) -> None:
        unsent = self._unsent
        unsent.total_bytes += self.session.pending_bytes - self._noted_pending
        self._noted_pending = self.session.pending_bytes
        if unsent.total_bytes > PENDING_TOTAL_MAX:
            others = [it for it in self.endpoint.connections if isinstance(it, Http2Connection) and it.is_open]
            if others:
                most = max(others, key=_pending_of)
                most.cut(f"the most, {_pending_of(most)}, of {unsent.total_bytes} bytes that clients do not take")

    def _count(self) -> None:
        held = self.session.partial_bytes + self._backlog_bytes
        self.intake.partial_bytes = self.session.partial_bytes
        change, self._counted_bytes = held - self._counted_bytes, held
        if change:
            self.endpoint.count_partial(change)

    def _malformed(self, code: int, error: WireError) -> None:
        self.endpoint.log_malformed.warning("close connection peer=%s cause=%s", self.peer_text, error)
        self.session.go_away(code, str(error))
        self._corked = False
        if self.intake.tls is not None:
            self.output.write(self.intake.tls.take())
        self.flush()
        self.close("malformed")

    # The end

    def go_away(self, is_final: bool) -> None:
        """No more calls, please: clients connect anew."""
        if self._is_closed:
            return
        self.session.go_away(NO_ERROR, "the server is stopping")
        if is_final:
            for stream in list(self.session.streams.values()):
                self.session.finish(stream, UNAVAILABLE, "the server is stopping")
        self.flush()

    def close(self, reason: str) -> None:
        if self._is_closed:
            return
        logger.debug("close connection peer=%s reason=%s", self.peer_text, reason)
        self.flush()
        self._end()
        if self._transport is not None:
            if self.intake.tls is not None:
                self.intake.tls.close()
                self.output.write(self.intake.tls.take())
            self._transport.close()

    def cut(self, reason: str) -> None:
        self._end()
        if self._transport is not None:
            self.endpoint.log_cut.warning("cut connection peer=%s reason=%s", self.peer_text, reason)
            self._transport.abort()
            self.output.detach()

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._closing_s = self.endpoint.clock.monotonic()
        self.output.close()
        self._backlog = []
        self._backlog_bytes = 0
        self.session.partial_bytes = 0
        self._count()
        self._unsent.total_bytes -= self._noted_pending
        self._noted_pending = 0
        self._calls.closed(self)
        self.session.drop()

    def sweep(self, now_s: float) -> None:
        limits = self.endpoint.limits
        session = self.session
        session.calm()
        if self._heard:
            self._heard = False
            self._heard_s = now_s
        if session.pending_bytes == 0 or session.pending_bytes < self._seen_pending:
            self._taken_s = now_s
        self._seen_pending = session.pending_bytes
        quiet_s = now_s - self._heard_s
        if self._is_closed:
            if now_s - self._closing_s >= limits.closing_s:
                self.cut("output does not leave")
        elif not self._ready and now_s - self._opened_s >= limits.opening_s:
            self.cut("over opening_s")
        elif quiet_s >= (SILENT_S if session.streams else limits.idle_s):
            session.go_away(NO_ERROR, "idle")
            self.close("idle")
        elif self.output.blocked:
            if self.output.is_too_slow(now_s, limits.output_grace_s, limits.output_bytes_per_s_min):
                self.cut("answers leave below output_bytes_per_s_min")
        elif now_s - self._taken_s >= STALLED_S:
            self.cut(f"nothing was taken of {session.pending_bytes} bytes for {STALLED_S:.0f} s")
        elif self.intake.is_too_slow(now_s, limits.partial_grace_s, limits.partial_bytes_per_s_min):
            self.cut("a message arrives below partial_bytes_per_s_min")


def _pending_of(connection: Http2Connection) -> int:
    return connection.session.pending_bytes


class Http2Server:
    """A listener for gRPC. `wanted`: the header fields that calls are read for."""

    def __init__(
        self,
        calls: Calls,
        wanted: frozenset[bytes],
        message_bytes_max: int,
        limits: Limits,
        clock: Clock | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.host = ""
        self.port = 0
        self.endpoint = Endpoint(limits, clock or SystemClock(), (), tls)
        self._calls = calls
        self._wanted = wanted
        self._message_bytes_max = message_bytes_max
        self._tls = tls
        self._listener: asyncio.Server | None = None
        self.unsent = Unsent()

    @property
    def connections(self) -> list[Http2Connection]:
        return [it for it in self.endpoint.connections if isinstance(it, Http2Connection)]

    async def start(self, host: str, port: int) -> None:
        """Raises CometError that names the address if it cannot be bound."""
        self.endpoint.loop = asyncio.get_running_loop()
        listening = await bind(host, port)
        try:
            if self._tls is not None:
                self._tls.start()
            self._listener = await self.endpoint.loop.create_server(self._accept, sock=listening, backlog=BACKLOG)
        except BaseException:
            if self._tls is not None:
                self._tls.stop()
            listening.close()
            raise
        self.host, self.port = listening.getsockname()[:2]
        logger.info("listen for gRPC host=%s port=%d", self.host, self.port)

    def _accept(self) -> asyncio.Protocol:
        session = Session(self._wanted, self._message_bytes_max)
        return cast(asyncio.Protocol, Http2Connection(self.endpoint, self._calls, session, self.unsent))

    async def stop(self, grace_s: float) -> None:
        """Clients are told first; calls that end within `grace_s` end as they should."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        if self._tls is not None:
            self._tls.stop()
        for connection in self.connections:
            connection.go_away(is_final=True)
        await emptied(self.endpoint, grace_s)
        await close_all(self.endpoint, "server stops")
        await listener.wait_closed()
