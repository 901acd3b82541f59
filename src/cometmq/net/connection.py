"""One socket: bytes to commands, commands to handlers, answers to bytes.

    data_received -> Intake (PROXY header, TLS, frames) -> request  -> handler -> answer -+
                                                           response -> its Call           |
    transport.write <- [TLS] <- Output (one write for all answers of a chunk) <-----------+

It is compiled, so it has asyncio's protocol methods without inheriting them. A request that is answered at once costs
no coroutine, task, timer or look at the clock: what depends on time is left to `sweep`, and activity is one flag.

Reading pauses for the reasons below, each with its own end. Commands that were already cut from the stream then wait
in the backlog, so that a peer that sends a thousand small requests for large answers cannot make us build them all.

    TURN      its work would keep others waiting     until it is its turn again (turns.py)
    OUTPUT    the peer does not take its answers     until the transport has room again
    INFLIGHT  its waiting requests hold too much     until enough of them are answered
    TOTAL     all waiting requests hold too much     until enough of them are answered
    STOPPING  the server is about to close           for good

A request that was not answered at once is remembered in `Waiting` until `answer` is called.
"""

import asyncio
import logging
from time import monotonic, thread_time
from typing import Any, Final, Optional

from cometmq.errors import ConnectFailed, ConnectionLost, SendFailed, TooManyCalls, WireError
from cometmq.net.calls import SENT, Call
from cometmq.net.dispatch import Dispatcher
from cometmq.net.endpoint import Endpoint
from cometmq.net.family import Family
from cometmq.net.intake import Intake
from cometmq.net.meter import CODES_MAX, SLOW_S
from cometmq.net.output import JOIN_BYTES_MAX
from cometmq.net.peer import Peer, socket_address
from cometmq.net.serving import answer_to, serve
from cometmq.net.shares import relieve
from cometmq.net.tls import TlsSession
from cometmq.net.turns import SHORT_S, SLICE_S
from cometmq.net.waiting import Waiting
from cometmq.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, JSON, Command, encode, encode_head

logger = logging.getLogger(__name__)

OUTPUT: Final = 1
INFLIGHT: Final = 2
TOTAL: Final = 4
STOPPING: Final = 8
CLOSED: Final = 16
TURN: Final = 32

# A larger body is written as it is instead of being copied behind its header.
COPY_BYTES_MAX: Final = 32_768


class Connection(Peer):
    """`local` is the socket's own (host, port).

    `source` is the address that access control goes by: the socket's, unless that is a trusted proxy.
    """

    __slots__ = (
        "endpoint", "dispatcher", "accepted", "source", "local", "form", "opened", "serving",
        "_transport", "_entered", "_ready", "_held_back", "_backlog", "_attributes", "_corked", "_scheduled",
        "_unfed", "kept_bytes", "_counted_bytes", "_calls", "_oneway_held", "_retiring",
        "_heard", "_seen_bytes", "_quiet_since_s", "_opening_since_s", "_closing_since_s", "_reported",
    )  # fmt: skip

    def __init__(
        self, endpoint: Endpoint, dispatcher: Dispatcher, accepted: bool, tls: TlsSession | None = None
    ) -> None:
        super().__init__(Intake(endpoint.frame_bytes_max, accepted, endpoint.tls, tls))
        self.endpoint: Endpoint = endpoint
        self.dispatcher: Dispatcher = dispatcher
        self.accepted: bool = accepted
        self.source: str = "?"
        self.local: tuple[str, int] = ("?", 0)
        self.form: int = JSON
        self.opened: asyncio.Future[None] | None = None
        self.serving: Command | None = None  # the request whose handler is running

        self._transport: Any = None
        self._entered: bool = False
        self._ready: bool = False
        self._held_back: int = 0
        self._backlog: list[Command] | None = None
        self._attributes: dict[str, Any] | None = None
        self._corked: bool = False
        self._scheduled: bool = False

        self._unfed: bytes | None = None  # what was read when the turn of the loop was over
        self.kept_bytes: int = 0  # set by a handler that keeps a request: how much of it besides body and fields
        self._counted_bytes: int = 0
        self._calls: dict[int, Call] | None = None
        self._oneway_held: int = 0
        self._retiring: bool = False

        self._heard: bool = False
        self._seen_bytes: int = 0
        self._quiet_since_s: float = 0.0
        self._opening_since_s: float = -1.0
        self._closing_since_s: float = 0.0
        self._reported: bool = False

    def __repr__(self) -> str:
        return f"<connection {self.peer_text}{'' if self.is_open else ' closed'}>"

    # What handlers and owners use

    @property
    def is_open(self) -> bool:
        return self._entered and not self._held_back & CLOSED

    @property
    def is_writable(self) -> bool:
        """False while the peer takes its answers too slowly; what can wait should."""
        return self.is_open and not self.output.blocked

    @property
    def waiting(self) -> int:
        """Requests of this connection whose answer is outstanding."""
        return self.requests.count if self.requests is not None else 0

    def is_kept(self, request: Command) -> bool:
        """Whether this request still waits for its answer."""
        return request is self.serving or (self.requests is not None and self.requests.has(request))

    @property
    def attributes(self) -> dict[str, Any]:
        """Whatever its owner wants to remember about this connection, and the fields of a PROXY header."""
        if self._attributes is None:
            self._attributes = {}
        return self._attributes

    def answer(self, request: Command, response: Command | None) -> bool:
        """Answer a request that was kept, once; None ends it without an answer. False: too late, or already done."""
        since_s = 0.0
        if request is self.serving:
            self.serving = None
        elif self.requests is None or not self.requests.remove(request):
            return False
        else:
            since_s = self.requests.ended_since_s
            if self._held_back & INFLIGHT and self.requests.size_bytes <= self.endpoint.inflight_bytes_max * 3 // 4:
                self._go_on_without(INFLIGHT)
        if self._held_back & CLOSED:
            return False
        if response is not None:
            self.respond(request, response, since_s)
        return True

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Send a request to the peer and await its answer; raises CallError."""
        endpoint = self.endpoint
        assert endpoint.loop is not None
        if endpoint.hooks:
            endpoint.run_before(self.peer_text, command)
        future: asyncio.Future[Command] = endpoint.loop.create_future()
        call = endpoint.calls.open(command, False, timeout_s, future, None)
        endpoint.calls.admit(call, self)
        try:
            return await future
        except asyncio.CancelledError:
            endpoint.calls.give_up(call)
            raise

    def send_oneway(self, command: Command) -> None:
        """Send a request that the peer does not answer; raises SendFailed or TooManyCalls, never waits."""
        if self.endpoint.hooks:
            self.endpoint.run_before(self.peer_text, command)
        permits = self.endpoint.calls.oneway
        if permits.free <= 0:
            raise TooManyCalls(f"{permits.count} one-way requests are under way, the limit")
        if self._held_back & CLOSED:
            raise SendFailed(f"connection to {self.peer_text} is closed")
        command.flag = FLAG_ONEWAY
        self._number(command)
        self._emit(command)
        if self.output.blocked:
            permits.free -= 1
            self._oneway_held += 1

    def close(self, reason: str) -> None:
        """Let what was written leave, then close. Requests that wait are forgotten."""
        if self._held_back & CLOSED:
            return
        logger.debug("close connection peer=%s reason=%s", self.peer_text, reason)
        self.output.flush()
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

    def close_when_answered(self) -> None:
        """Close after the last answer to our own calls has come; new ones must go elsewhere."""
        self._retiring = True
        if not self._calls:
            self.close("retired")

    def stop_reading(self) -> None:
        """No further requests are taken; answers still leave."""
        self._pause(STOPPING)

    # Called by the event loop

    def connection_made(self, transport: Any) -> None:
        endpoint = self.endpoint
        self._transport = transport
        self.peer = socket_address(transport.get_extra_info("peername"))
        self.local = socket_address(transport.get_extra_info("sockname"))
        self.peer_text = f"{self.peer[0]}:{self.peer[1]}"
        self.source = self.peer[0]
        self._quiet_since_s = endpoint.clock.monotonic()
        self.output.attach(transport, endpoint.limits.output_bytes_high)
        if not endpoint.enter(self):
            self._held_back |= CLOSED
            transport.abort()
            return
        if self.accepted:
            self._entered = True
            endpoint.tell(endpoint.on_connect, self)
        elif self.intake.tls is None:
            self._become_ready()
        else:
            self.data_received(b"")  # begins the handshake

    def data_received(self, data: bytes) -> None:
        if self._held_back & CLOSED:
            return
        self._heard = True
        endpoint = self.endpoint
        now_s: float = monotonic()
        if self._unfed is not None:  # what was on its way when reading was paused
            self._unfed += data
            return
        if 0 < endpoint.turn_until_s < now_s and self._held_back == 0:
            self._unfed = data
            self._wait_for_turn()
            return
        endpoint.read_s = now_s
        mark: int = len(endpoint.meter.codes) if endpoint.meter is not None else 0
        self._take(data)
        after_s: float = monotonic()
        if endpoint.turn_until_s == 0 and after_s - now_s > SHORT_S:
            endpoint.turns.begin(after_s)
        if endpoint.meter is not None and (after_s - now_s >= SLOW_S or len(endpoint.meter.codes) > CODES_MAX):
            endpoint.meter.settle(mark, after_s - now_s)

    def _take(self, data: bytes) -> None:
        intake = self.intake
        try:
            commands = intake.feed(data)
        except WireError as error:
            self._malformed(error)
            return
        if not self._ready or intake.tls is not None:
            self._open()
        if commands:
            if self._backlog is not None:
                self._backlog.extend(commands)
            else:
                self._serve_all(commands)
        if intake.partial_bytes != self._counted_bytes:
            self._count_partial(intake.partial_bytes)
        if intake.broken is not None:
            self._malformed(WireError(intake.broken))
        elif intake.tls is not None and intake.tls.closed:
            self.close("closed by peer")

    def eof_received(self) -> None:
        self.close("closed by peer")

    def pause_writing(self) -> None:
        self.output.block(self.endpoint.clock.monotonic())
        # The dialling side reads on: if both sides stopped reading until the other reads, neither ever would.
        if self.accepted:
            self._pause(OUTPUT)

    def resume_writing(self) -> None:
        self.output.blocked = False
        self._return_oneway_permits()
        self._go_on_without(OUTPUT)

    def connection_lost(self, error: Optional[Exception]) -> None:  # noqa: UP045 - as asyncio declares it
        endpoint = self.endpoint
        self._end()
        self._transport = None
        self.output.detach()
        self._return_oneway_permits()
        endpoint.leave(self)
        if self.opened is not None and not self.opened.done():
            self.opened.set_exception(ConnectFailed(f"{self.peer_text} closed the connection: {error or 'no cause'}"))
        if error is not None:
            self._report(error)
        if self._entered:
            endpoint.tell(endpoint.on_close, self)

    # Opening

    def _open(self) -> None:
        """Until frames can be read, and for every chunk of TLS: see how far the connection has come."""
        intake = self.intake
        if intake.tls is not None:
            self.output.write(intake.tls.take())
        if self._ready:
            return
        if intake.ready:
            self._become_ready()
        elif self._opening_since_s < 0:
            self._opening_since_s = self.endpoint.clock.monotonic()

    def _become_ready(self) -> None:
        header = self.intake.header
        if header is not None:
            self.attributes.update(header.attributes())
            if header.source is not None:
                self.peer_text = f"{header.source[0]}:{header.source[1]}"
                if self.endpoint.is_trusted_proxy is not None and self.endpoint.is_trusted_proxy(self.peer[0]):
                    self.source = header.source[0]
        self._ready = True
        self._opening_since_s = -1.0
        self.output.tls = self.intake.tls
        self.output.is_open = True
        if not self.accepted:
            self._entered = True
            self.endpoint.tell(self.endpoint.on_connect, self)
        if self.opened is not None and not self.opened.done():
            self.opened.set_result(None)
        self.flush()

    # Serving

    def _serve_all(self, commands: list[Command]) -> None:
        """Serve until done or held back; what is left becomes the backlog."""
        self._corked = True
        index = 0
        count = len(commands)
        until_s: float = monotonic() + SLICE_S if count > 1 else 0.0
        used_s: float = thread_time() if count > 1 else 0.0
        while index < count:
            command = commands[index]
            index += 1
            if command.flag & FLAG_RESPONSE:
                self._resolve(command)
            else:
                self.form = command.form
                serve(self, command)
            if self.output.size_bytes >= JOIN_BYTES_MAX:
                self.flush()  # in between, to see whether the peer takes it
            if index < count and not self._held_back and monotonic() > until_s and thread_time() > used_s + SLICE_S:
                self._wait_for_turn()
            if self._held_back:
                if index < count and not self._held_back & CLOSED:
                    self._backlog = commands[index:]
                break
        self._corked = False
        self.flush()

    def _resolve(self, response: Command) -> None:
        call = self._calls.get(response.opaque) if self._calls is not None else None
        if call is None:
            self.endpoint.log_stray.warning(
                "drop response peer=%s code=%d opaque=%d: nobody waits for it",
                self.peer_text, response.code, response.opaque,
            )  # fmt: skip
            return
        if self.endpoint.hooks:
            try:
                self.endpoint.run_after(self.peer_text, call.command, response)
            except Exception as error:
                response = answer_to(self.endpoint, call.command, error)
        self.endpoint.calls.end(call, response, None)

    def _malformed(self, error: WireError) -> None:
        if self._held_back & CLOSED:
            return
        if self.intake.tls is not None:
            self.output.write(self.intake.tls.take())
        self.endpoint.log_malformed.warning("close connection peer=%s cause=%s", self.peer_text, error)
        self._report(error)
        if self.opened is not None and not self.opened.done():
            self.opened.set_exception(ConnectFailed(f"{self.peer_text}: {error}"))
        self.close("malformed")

    def _report(self, error: Exception) -> None:
        if self._entered and not self._reported:
            self._reported = True
            self.endpoint.tell_error(self, error)

    def is_serving(self, request: Command) -> bool:
        """A function because compiled code trusts what was assigned to a field shortly before."""
        return request is self.serving

    def respond(self, request: Command, response: Command, since_s: float = 0.0) -> None:
        endpoint, meter = self.endpoint, self.endpoint.meter
        if meter is not None:
            if response.code == 0 and since_s == 0 and not request.flag & FLAG_ONEWAY:
                meter.codes.append(request.code)
            else:
                meter.note(request.code, response.code, request.flag, since_s, endpoint.read_s)
        if request.flag & FLAG_ONEWAY:
            return
        if endpoint.hooks:
            try:
                endpoint.run_after(self.peer_text, request, response)
            except Exception as error:
                response = answer_to(endpoint, request, error)
        response.opaque = request.opaque
        response.form = request.form
        response.flag = FLAG_RESPONSE
        try:
            self._emit(response)
        except Exception as error:
            self._emit(answer_to(endpoint, request, error))

    def hold(self, request: Command, family: Family, running: bool) -> None:
        endpoint = self.endpoint
        if self.requests is None:
            self.requests = Waiting(endpoint, self.peer[0])
        self.requests.add(request, family, running, self.kept_bytes, endpoint.read_s)
        self.kept_bytes = 0
        if self.requests.size_bytes > endpoint.inflight_bytes_max:
            self._pause(INFLIGHT)
        if endpoint.inflight_bytes > endpoint.inflight_bytes_total_max and not relieve(endpoint, self):
            endpoint.starve(self)
            self._pause(TOTAL)

    # Taking turns

    def _wait_for_turn(self) -> None:
        self._pause(TURN)
        self.endpoint.turns.wait(self)

    def take_turn(self) -> None:
        if self._held_back & CLOSED or not self._held_back & TURN:
            return
        self._held_back &= ~TURN
        data, self._unfed = self._unfed, None
        if data is not None:
            self._take(data)
        if self._held_back == 0:
            self._go_on()

    # Pausing

    def feed_again(self) -> None:
        self._go_on_without(TOTAL)

    def _pause(self, reason: int) -> None:
        if self._held_back == 0 and self._transport is not None:
            self._transport.pause_reading()
        self._held_back |= reason

    def _go_on_without(self, reason: int) -> None:
        if not self._held_back & reason:
            return
        self._held_back &= ~reason
        if self._held_back == 0 and self.endpoint.loop is not None:
            # Not here: this may be the middle of a handler.
            self.endpoint.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._held_back == 0 and self._backlog is not None:
            backlog = self._backlog
            self._backlog = None
            self._serve_all(backlog)
        if self._held_back == 0 and self._transport is not None:
            self._transport.resume_reading()

    # Calls to the peer

    def begin(self, call: Call) -> None:
        calls = self.endpoint.calls
        if self._held_back & CLOSED:
            calls.end(call, None, SendFailed(f"connection to {self.peer_text} is closed"))
            return
        command = call.command
        command.flag = FLAG_ONEWAY if call.oneway else 0
        self._number(command)
        try:
            self._emit(command)
        except WireError as error:
            calls.end(call, None, SendFailed(f"request code {command.code} was not sent: {error}"))
            return
        if call.oneway:
            if self.output.blocked:
                call.has_permit = False
                self._oneway_held += 1
            calls.end(call, None, None)
            return
        call.state = SENT
        call.opaque = command.opaque
        if self._calls is None:
            self._calls = {}
        self._calls[call.opaque] = call

    def forget(self, call: Call) -> None:
        if self._calls is not None:
            self._calls.pop(call.opaque, None)
            if self._retiring and not self._calls:
                self.close("retired")

    def _number(self, command: Command) -> None:
        """A server speaks the header form that its peer spoke last."""
        command.opaque = self.endpoint.calls.next_opaque()
        if self.accepted:
            command.form = self.form

    def _lose_calls(self) -> None:
        calls = self.endpoint.calls
        calls.end_waiting(self, SendFailed(f"connection to {self.peer_text} closed before the request was written"))
        if self._calls is not None:
            error = ConnectionLost(f"connection to {self.peer_text} closed before the answer came")
            for call in list(self._calls.values()):
                calls.end(call, None, error)

    def _return_oneway_permits(self) -> None:
        while self._oneway_held > 0:
            self._oneway_held -= 1
            self.endpoint.calls.oneway.release()

    # Output

    def _emit(self, command: Command) -> None:
        """Encode, and write soon. Raises WireError for a command that does not fit a frame."""
        output = self.output
        body_bytes = len(command.body)
        whole = body_bytes <= COPY_BYTES_MAX
        head = encode(command) if whole else encode_head(command, body_bytes)
        frame_bytes = len(head) if whole else len(head) + body_bytes
        if frame_bytes > self.endpoint.frame_bytes_max:
            raise WireError(f"frame of {frame_bytes} bytes, frame_bytes_max is {self.endpoint.frame_bytes_max}")
        output.put(head)
        if not whole:
            output.put(command.body)
        if not self._corked and not self._scheduled:
            self._scheduled = True
            self.endpoint.flush_soon(self)

    def flush(self) -> None:
        """Write what was emitted, as soon as the connection is open for it."""
        self._scheduled = False
        flushed_bytes = self.output.flush()
        if self.accepted and self.output.blocked and flushed_bytes:
            self.endpoint.count_output(flushed_bytes)
            if self.output.blocked_bytes > self.endpoint.limits.output_bytes_max:
                self.cut("over output_bytes_max")

    # Input that ends, and time

    def _count_partial(self, partial_bytes: int) -> None:
        change_bytes = partial_bytes - self._counted_bytes
        self._counted_bytes = partial_bytes
        self.endpoint.count_partial(change_bytes)

    def _end(self) -> None:
        """Whatever was asked of us or of the peer and is not done has come to nothing."""
        if self._held_back & CLOSED:
            return
        self._held_back |= CLOSED
        self._closing_since_s = self.endpoint.clock.monotonic()
        self.output.close()
        self._backlog = self._unfed = None
        self.intake.drop()
        self._count_partial(0)
        if self.requests is not None:
            self.requests.remove_parked()
        self._lose_calls()

    def sweep(self, now_s: float) -> None:
        limits = self.endpoint.limits
        if self._heard or self.output.written_bytes != self._seen_bytes:
            self._heard = False
            self._seen_bytes = self.output.written_bytes
            self._quiet_since_s = now_s
        if self._held_back & CLOSED:
            if now_s - self._closing_since_s >= limits.closing_s:
                self.cut("output does not leave")
        elif now_s - self._quiet_since_s >= limits.idle_s:
            self._reported = True
            self.endpoint.tell(self.endpoint.on_idle, self)
            self.close("idle")
        elif self._opening_since_s >= 0 and now_s - self._opening_since_s >= limits.opening_s:
            self.cut("over opening_s")
        elif self.output.blocked:
            if self.output.is_too_slow(now_s, limits.output_grace_s, limits.output_bytes_per_s_min):
                self.cut("answers leave below output_bytes_per_s_min")
        elif self._held_back:
            self.intake.forgive()
        elif self.intake.is_too_slow(now_s, limits.partial_grace_s, limits.partial_bytes_per_s_min):
            self.cut("frame arrives below partial_bytes_per_s_min")
