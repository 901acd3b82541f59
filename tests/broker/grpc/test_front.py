"""Checks the port of gRPC: TLS and plain, what is not served, who may do what, peers that misbehave, stopping."""

import asyncio
import ssl
from pathlib import Path

import pytest

from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2 import frames as h2
from cometmq.wire.http2.frames import INTERNAL, UNAVAILABLE, UNIMPLEMENTED
from cometmq.wire.http2.session import PINGS_MAX
from tests.broker.grpc.scene import scene
from tests.support.access import SECURED, add_user, allow, password_of, signed_peer
from tests.support.brokers import broker_settings, running_broker
from tests.support.grpc import GrpcPeer, consumer_settings, receive_request, received, signed
from tests.support.http2 import frame
from tests.support.net import until


def any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


@pytest.mark.mission("GR-06")
async def test_tls_and_plain_clients_meet_at_one_port(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, plain), GrpcPeer.of(broker, "c2", any_certificate()) as secured:
        chosen = secured.writer.get_extra_info("ssl_object").selected_alpn_protocol()
        assert chosen == "h2"
        await secured.settle_consumer("g", {"T": "*"})
        await plain.send("T", b"x" * 100_000)
        (message,) = await secured.receive("T")
        assert message.body == b"x" * 100_000


async def test_without_test_mode_and_certificate_there_is_no_tls(tmp_path: Path) -> None:
    async with scene(tmp_path, tlsTestModeEnable=False) as (broker, plain):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            async with GrpcPeer.of(broker, "c2", any_certificate()):
                pass
        assert (await plain.send("T", b"x")).status.code == pb.OK


async def test_what_is_not_served_is_refused_by_its_name(tmp_path: Path) -> None:
    async with scene(tmp_path) as (_, peer):
        for rpc in ("SyncLiteSubscription", "Nothing"):
            assert await peer.refused(rpc, pb.SyncLiteSubscriptionRequest()) == UNIMPLEMENTED
            assert rpc.encode() in (peer.frames.trailers(peer._next_id - 2) or b"")
        assert await peer.refused("SendMessage", pb.UA(language=pb.JAVA)) in (0, INTERNAL)
        stream = peer.begin("QueryRoute", None)
        peer.writer.write(frame(h2.DATA, h2.END_STREAM, stream, b"\x00\x00\x00\x00\x03\xff\xff\xff"))
        await peer.until(lambda: peer.frames.trailers(stream) is not None)
        assert peer.status(stream) == INTERNAL


# Who may do what


@pytest.mark.mission("GR-05")
async def test_a_closed_broker_serves_who_signs_and_may(tmp_path: Path) -> None:
    async with scene(tmp_path, None, **SECURED) as (broker, peer), signed_peer(broker) as root:
        await add_user(root, "alice", allow("Topic:T", "Pub"))
        await add_user(root, "bob", allow("Topic:T", "Sub"), allow("Group:g", "Sub"))

        async def code(user: str | None, password: str | None = None) -> int:
            peer.headers = {"x-mq-client-id": user or "nobody"}
            if user is not None:
                peer.headers |= signed(user, password or password_of(user))
            return (await peer.send("T", b"x")).status.code

        assert await code(None) == pb.UNAUTHORIZED
        assert await code("alice", "wrong") == pb.UNAUTHORIZED
        assert await code("nobody") == pb.UNAUTHORIZED
        assert await code("bob") == pb.UNAUTHORIZED
        assert await code("alice") == pb.OK
        assert await code("root") == pb.OK


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="T"))),
        ("QueryAssignment", pb.QueryAssignmentRequest(topic=pb.Resource(name="T"), group=pb.Resource(name="g"))),
        ("EndTransaction", pb.EndTransactionRequest(topic=pb.Resource(name="TRANSACTION"), transaction_id="t")),
        ("RecallMessage", pb.RecallMessageRequest(topic=pb.Resource(name="DELAY"), recall_handle="h")),
        ("AckMessage", pb.AckMessageRequest(group=pb.Resource(name="g"), topic=pb.Resource(name="T"),
                                            entries=[pb.AckMessageEntry(receipt_handle="0 1 2 0 0 b 0 0 0")])),
        ("ChangeInvisibleDuration", pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name="g"), topic=pb.Resource(name="T"), receipt_handle="0 1 2 0 0 b 0 0 0")),
        ("ForwardMessageToDeadLetterQueue", pb.ForwardMessageToDeadLetterQueueRequest(
            group=pb.Resource(name="g"), topic=pb.Resource(name="T"), receipt_handle="0 1 2 0 0 b 0 0 0")),
        ("UpdateOffset", pb.UpdateOffsetRequest(
            group=pb.Resource(name="g"), message_queue=pb.MessageQueue(topic=pb.Resource(name="T")))),
        ("GetOffset", pb.GetOffsetRequest(
            group=pb.Resource(name="g"), message_queue=pb.MessageQueue(topic=pb.Resource(name="T")))),
        ("QueryOffset", pb.QueryOffsetRequest(message_queue=pb.MessageQueue(topic=pb.Resource(name="T")))),
    ],
)  # fmt: skip
async def test_who_has_no_key_is_refused_whatever_it_calls(
    tmp_path: Path, rpc: str, request_: pb.QueryRouteRequest
) -> None:
    async with scene(tmp_path, None, **SECURED) as (_, peer):
        (answer,) = await peer.end(peer.begin(rpc, request_))
        assert pb.HeartbeatResponse.FromString(answer).status.code == pb.UNAUTHORIZED


async def test_settings_of_a_stranger_are_refused_on_the_stream(tmp_path: Path) -> None:
    async with scene(tmp_path, None, **SECURED) as (broker, peer):
        for settings in (consumer_settings("g", {"T": "*"}), pb.Settings(publishing=pb.Publishing(
                topics=[pb.Resource(name="T")]))):  # fmt: skip
            stream, answer = await peer.settle(settings)
            assert answer.status.code == pb.UNAUTHORIZED
            await peer.end(stream)
        assert broker.rooms.grpc.front.desk.clients.table == {}


# Peers that misbehave


async def test_a_flood_of_pings_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer), GrpcPeer.of(broker, "c2") as hostile:
        hostile.writer.write(frame(h2.PING, 0, 0, bytes(8)) * (PINGS_MAX + 1))
        await until(lambda: hostile.is_closed)
        assert hostile.frames.all[-1][0] == h2.GOAWAY
        assert (await peer.send("T", b"x")).status.code == pb.OK


async def test_who_does_not_take_its_answers_gets_no_more_and_holds_little(tmp_path: Path) -> None:
    async with scene(tmp_path, mappedFileSizeCommitLog=16 << 20) as (broker, peer), GrpcPeer.of(broker, "c2") as slow:
        for _ in range(12):
            await peer.send("T", bytes(1 << 20))
        await slow.settle_consumer("g", {"T": "*"})
        # No window for anything that comes from now on.
        slow.writer.write(frame(h2.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00"))
        for _ in range(12):
            slow.begin("ReceiveMessage", receive_request("T", count=1))
        (session,) = [it.session for it in broker.rooms.grpc.server.connections  # type: ignore[union-attr]
                      if it.peer_text == slow.writer.get_extra_info("sockname")[0] + ":"
                      + str(slow.writer.get_extra_info("sockname")[1])]  # fmt: skip
        await until(lambda: session.pending_bytes > 8 << 20)
        assert (await peer.send("T", b"x")).status.code == pb.OK
        assert session.pending_bytes <= 10 << 20
        slow.writer.write(frame(h2.SETTINGS, 0, 0, b"\x00\x04\x40\x00\x00\x00"))
        streams = range(3, 3 + 2 * 12, 2)
        for stream in streams:
            assert received(await slow.end(stream))[0] == pb.OK


async def test_calls_that_stop_halfway_hold_what_they_have_and_not_their_connection(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        stream = peer.begin("SendMessage", None)
        peer.writer.write(frame(h2.DATA, 0, stream, b"\x00\x00\x01\x00\x00" + bytes(1000)))
        assert (await peer.send("T", b"x")).status.code == pb.OK
        peer.give_up(stream)
        assert (await peer.send("T", b"y")).status.code == pb.OK
        (connection,) = broker.rooms.grpc.server.connections  # type: ignore[union-attr]
        assert connection.session.partial_bytes == 0


# Stopping


async def test_a_broker_that_stops_answers_those_who_wait_and_says_goodbye(tmp_path: Path) -> None:
    broker = Broker(broker_settings(tmp_path, grpcServerPort=0), ManualClock())
    await broker.start()
    broker.tables.topics.create_in_send_back("%RETRY%T", 1, 6)
    async with GrpcPeer.of(broker) as peer:
        await peer.settle_consumer("g", {"%RETRY%T": "*"})
        waiting = peer.begin("ReceiveMessage", receive_request("%RETRY%T"))
        await until(lambda: broker.rooms.pop.waiting.count == 1)
        stopping = asyncio.ensure_future(broker.stop())
        assert received(await peer.end(waiting))[0] == pb.MESSAGE_NOT_FOUND
        await stopping
        await until(lambda: peer.is_closed)
        assert peer.frames.has(h2.GOAWAY)
        assert peer.status(1) == UNAVAILABLE


async def test_a_broker_without_the_setting_has_no_such_port(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert broker.grpc_address is None
