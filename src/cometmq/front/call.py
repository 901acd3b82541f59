"""One call of a client: who sent it, how long it may take, and its answer.

A function of the front (`Rpc.serve`) is given the call and its request. It answers at once, or asks the backend and
answers in what it gave to `ask`; what it raises becomes the refusal. Nothing of it is a coroutine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from cometmq.errors import CometError
from cometmq.front import refusals
from cometmq.front.backend import Credentials, Wanted
from cometmq.front.desk import Desk
from cometmq.front.refusals import Refused, Unsettled
from cometmq.net.http2 import Http2Connection
from cometmq.net.inside import Inside
from cometmq.wire.command import Command
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2.frames import INTERNAL, INVALID_ARGUMENT
from cometmq.wire.http2.session import Stream

logger = logging.getLogger(__name__)

# Header fields that are read of a call; all others are skipped.
WANTED: Final = frozenset(
    (
        b":path", b"content-type", b"grpc-timeout", b"x-mq-client-id", b"x-mq-language", b"x-mq-client-version",
        b"x-mq-date-time", b"authorization",
    )
)  # fmt: skip
TIMEOUT_UNITS_MS: Final = {"H": 3_600_000.0, "M": 60_000.0, "S": 1_000.0, "m": 1.0, "u": 0.001, "n": 0.000001}
TIMEOUT_DIGITS_MAX: Final = 8
CLIENT_ID_CHARS_MAX: Final = 1_024
# How often a call waits for what the backend has to ask somewhere.
LOADS_MAX: Final = 3
SETTINGS_WAIT_S: Final = 3.0
UNSETTLED_MAX: Final = 1_000
# Codes from here on are the server's fault.
BAD_MAX: Final = 50_000

Serve = Callable[["Call", Any], None]


@dataclass(frozen=True, slots=True)
class Rpc:
    """`stream`: the answer is a stream whose members have the status each."""

    name: str
    request: type[Message]
    response: type[Message]
    serve: Serve
    stream: bool = False


class Call:
    __slots__ = ("desk", "connection", "stream", "rpc", "request", "client_id", "asked", "loads")

    def __init__(self, desk: Desk, connection: Http2Connection, stream: Stream, rpc: Rpc) -> None:
        self.desk = desk
        self.connection = connection
        self.stream = stream
        self.rpc = rpc
        self.request: Any = None
        self.client_id = stream.headers.get("x-mq-client-id", "")
        self.loads = 0
        # What the backend was asked last, and where: to be given up with the call.
        self.asked: tuple[Inside, Command] | None = None

    @property
    def credentials(self) -> Credentials:
        headers = self.stream.headers
        return Credentials(headers.get("authorization", ""), headers.get("x-mq-date-time", ""), self.connection.source)

    @property
    def is_over(self) -> bool:
        return self.stream.closed

    def timeout_ms(self) -> float | None:
        """What the client has given the call, from its arrival on."""
        text = self.stream.headers.get("grpc-timeout", "")
        unit = TIMEOUT_UNITS_MS.get(text[-1:])
        digits = text[:-1]
        if unit is None or not (digits.isascii() and digits.isdigit() and len(digits) <= TIMEOUT_DIGITS_MAX):
            return None
        return int(digits) * unit

    # Serving

    def serve(self) -> None:
        self.guarded(self.rpc.serve, self.request)

    def guarded(self, function: Callable[..., None], *arguments: object) -> None:
        """What a function raises is the answer."""
        try:
            function(self, *arguments)
        except Refused as error:
            if error.delay_s:
                self.desk.later(error.delay_s, partial(self.fail, error))
            else:
                self.fail(error)
        except Wanted as wanted:
            self.load(wanted)
        except Unsettled:
            self._await_settings()
        except CometError as error:
            self.fail(refusals.refused(error))
        except Exception as error:
            logger.exception("fail call rpc=%s peer=%s", self.rpc.name, self.connection.peer_text)
            self.connection.session.finish(self.stream, INTERNAL, f"{type(error).__name__} in the server")
            self.connection.flush_soon()

    def load(self, wanted: Wanted) -> None:
        """The call begins anew when the backend knows more."""
        self.loads += 1
        if self.loads > LOADS_MAX:
            self.fail(Refused(pb.INTERNAL_SERVER_ERROR, "the cluster changes too fast"))
        else:
            self.desk.load(wanted, self.serve, self.fail)

    def _await_settings(self) -> None:
        """It has overtaken those of its client: it waits for them, for a while."""
        unsettled = self.desk.clients.unsettled
        if sum(map(len, unsettled.values())) >= UNSETTLED_MAX:
            self.refuse(Refused(pb.TOO_MANY_REQUESTS, "too many calls wait for settings"))
            return
        unsettled.setdefault(self.client_id, []).append(self.serve)
        self.desk.later(SETTINGS_WAIT_S, self._give_up_settings)

    def _give_up_settings(self) -> None:
        unsettled = self.desk.clients.unsettled
        waiting = unsettled.get(self.client_id, [])
        if self.serve in waiting:
            waiting.remove(self.serve)
            if not waiting:
                del unsettled[self.client_id]
            self.refuse(Refused(pb.UNRECOGNIZED_CLIENT_TYPE, f"client {self.client_id[:80]} has sent no settings"))

    def fail(self, error: Refused) -> None:
        """The refusal of a call that is served by a function of its own, too."""
        if self.rpc.response is pb.TelemetryCommand:
            bad = error.code < BAD_MAX
            self.connection.session.finish(self.stream, INVALID_ARGUMENT if bad else INTERNAL, str(error))
            self.connection.flush_soon()
        else:
            self.refuse(error)

    def check(self, request: Command) -> Command:
        """May the sender do this? Raises Refusal."""
        self.desk.backend.check(request, self.credentials)
        return request

    def ask(self, request: Command, then: Callable[[Call, Command], None], link: Inside | None = None) -> None:
        link = link or self.desk.link_of(self.connection)
        self.asked = (link, request)
        link.ask(request, partial(self._answered, then))

    def _answered(self, then: Callable[[Call, Command], None], response: Command) -> None:
        self.asked = None
        self.guarded(then, response)

    # Answering

    def answer(self, message: Message) -> None:
        self.answer_bytes(message.SerializeToString())

    def answer_bytes(self, message: bytes) -> None:
        self.connection.session.answer(self.stream, message)
        self.done()

    def done(self) -> None:
        """All is said: call and stream let go of each other, and of the request."""
        self.stream.owner = None
        self.request = None
        self.connection.flush_soon()

    def refuse(self, error: Refused) -> None:
        status = refusals.status(error.code, str(error))
        if not self.rpc.stream:
            self.answer(self.rpc.response(status=status))
            return
        session = self.connection.session
        session.send(self.stream, self.rpc.response(status=status).SerializeToString())
        if self.rpc.response is pb.ReceiveMessageResponse:
            session.send(self.stream, self.desk.delivered_now().SerializeToString())
        session.finish(self.stream)
        self.done()
