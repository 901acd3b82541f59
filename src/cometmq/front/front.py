"""The service apache.rocketmq.v2.MessagingService: which function serves which call.

    Http2Connection ── message, ended ──> Call ── Rpc.serve ──> backend ──> answer

A call with one request is served when the client has said all; the telemetry stream, command by command. A name that is
not in the table, or that is not built, is answered UNIMPLEMENTED (12) with its name.

What runs by the clock: renewals, every 5 s.
"""

from __future__ import annotations

import logging
from typing import Final

from google.protobuf.message import DecodeError

from cometmq.clock import Clock, Timer
from cometmq.front import acks, clients, offsets, produce, receive, routes, telemetry
from cometmq.front.backend import Backend
from cometmq.front.call import Call, Rpc
from cometmq.front.desk import Desk
from cometmq.front.refusals import Refused
from cometmq.net.http2 import Http2Connection
from cometmq.net.inside import Inside
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2.frames import INTERNAL, INVALID_ARGUMENT, UNIMPLEMENTED
from cometmq.wire.http2.session import Stream

logger = logging.getLogger(__name__)

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
RENEW_S: Final = 5.0


RPCS: Final[tuple[Rpc, ...]] = (
    Rpc("QueryRoute", pb.QueryRouteRequest, pb.QueryRouteResponse, routes.query_route),
    Rpc("QueryAssignment", pb.QueryAssignmentRequest, pb.QueryAssignmentResponse, routes.query_assignment),
    Rpc("Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse, clients.heartbeat),
    Rpc("NotifyClientTermination", pb.NotifyClientTerminationRequest, pb.NotifyClientTerminationResponse,
        clients.terminate),
    Rpc("SendMessage", pb.SendMessageRequest, pb.SendMessageResponse, produce.send_message),
    Rpc("EndTransaction", pb.EndTransactionRequest, pb.EndTransactionResponse, produce.end_transaction),
    Rpc("RecallMessage", pb.RecallMessageRequest, pb.RecallMessageResponse, produce.recall_message),
    Rpc("ReceiveMessage", pb.ReceiveMessageRequest, pb.ReceiveMessageResponse, receive.receive_message, stream=True),
    Rpc("AckMessage", pb.AckMessageRequest, pb.AckMessageResponse, acks.ack_message),
    Rpc("ChangeInvisibleDuration", pb.ChangeInvisibleDurationRequest, pb.ChangeInvisibleDurationResponse,
        acks.change_invisible_duration),
    Rpc("ForwardMessageToDeadLetterQueue", pb.ForwardMessageToDeadLetterQueueRequest,
        pb.ForwardMessageToDeadLetterQueueResponse, acks.forward_to_dead_letters),
    Rpc("PullMessage", pb.PullMessageRequest, pb.PullMessageResponse, offsets.pull_message, stream=True),
    Rpc("UpdateOffset", pb.UpdateOffsetRequest, pb.UpdateOffsetResponse, offsets.update_offset),
    Rpc("GetOffset", pb.GetOffsetRequest, pb.GetOffsetResponse, offsets.get_offset),
    Rpc("QueryOffset", pb.QueryOffsetRequest, pb.QueryOffsetResponse, offsets.query_offset),
)  # fmt: skip
NOT_BUILT: Final = {"SyncLiteSubscription": "lite topics are not built"}
_BY_PATH: Final = {SERVICE + rpc.name: rpc for rpc in RPCS}
_TELEMETRY: Final = SERVICE + "Telemetry"
_TELEMETRY_RPC: Final = Rpc(
    "Telemetry", pb.TelemetryCommand, pb.TelemetryCommand, lambda call, _: telemetry.settle(call)
)


class Front:
    """`serves_all`: every broker of the cluster is reached through it."""

    def __init__(self, backend: Backend, clock: Clock, *, serves_all: bool = False) -> None:
        self.desk = Desk(backend, clock, serves_all=serves_all)
        self._clock = clock
        self._timer: Timer | None = None

    def start(self) -> None:
        self.desk.open()
        self._timer = self._clock.call_later(RENEW_S, self._renew)

    def stop(self) -> None:
        """Before its server stops: what is renewed for clients is given back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.desk.close()

    # Calls (`net.http2.Calls`)

    def message(self, connection: Http2Connection, stream: Stream, message: bytes) -> None:
        if stream.headers.get(":path") == _TELEMETRY:
            call = stream.owner
            if not isinstance(call, Call):
                call = stream.owner = Call(self.desk, connection, stream, _TELEMETRY_RPC)
            try:
                telemetry.take(call, message)
            except DecodeError as error:
                telemetry.end(call, INVALID_ARGUMENT, f"the command cannot be read: {error}")
            except Exception as error:
                logger.exception("fail telemetry peer=%s", connection.peer_text)
                telemetry.end(call, INTERNAL, f"{type(error).__name__} in the server")
        elif stream.message is not None:
            connection.session.finish(stream, INVALID_ARGUMENT, "the call has more than one message")
        else:
            stream.message = message

    def ended(self, connection: Http2Connection, stream: Stream) -> None:
        if stream.closed:
            return
        path = stream.headers.get(":path", "")
        rpc = _BY_PATH.get(path)
        if rpc is None:
            if path == _TELEMETRY:
                connection.session.finish(stream)
                return
            name = path.removeprefix(SERVICE)
            text = NOT_BUILT.get(name, "there is no such call")
            connection.session.finish(stream, UNIMPLEMENTED, f"{name[:80]}: {text}")
            return
        call = Call(self.desk, connection, stream, rpc)
        stream.owner = call
        try:
            call.request = rpc.request.FromString(stream.message or b"")
        except DecodeError as error:
            connection.session.finish(stream, INTERNAL, f"the request cannot be read: {error}")
            return
        stream.message = None
        if not call.client_id.strip():
            call.refuse(Refused(pb.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing or blank"))
            return
        call.serve()

    def given_up(self, connection: Http2Connection, stream: Stream) -> None:
        call = stream.owner
        if isinstance(call, Call) and call.asked is not None:
            link, request = call.asked
            link.give_up(request)

    def closed(self, connection: Http2Connection) -> None:
        for stream in list(connection.session.streams.values()):
            stream.closed = True
            self.given_up(connection, stream)
        link, connection.owner = connection.owner, None
        if isinstance(link, Inside):
            link.close("its connection is closed")

    def _renew(self) -> None:
        self._timer = self._clock.call_later(RENEW_S, self._renew)
        now_ms = self.desk.backend.now_ms()
        for client in list(self.desk.clients.table.values()):
            if client.renewals.table:
                client.renewals.turn(now_ms)
