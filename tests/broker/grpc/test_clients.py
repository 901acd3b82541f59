"""Checks clients of gRPC: settings, membership, what operators see of them, transactions, questions to them."""

import asyncio
from pathlib import Path

import pytest

from cometmq.clock import ManualClock
from cometmq.wire.bodies import ConsumerConnection, ProducerConnection
from cometmq.wire.codes import Request
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2.frames import INVALID_ARGUMENT
from tests.broker.grpc.scene import scene, set_group
from tests.support.brokers import Peer, add_topic, stored
from tests.support.grpc import GrpcPeer, consumer_settings
from tests.support.net import until


async def test_settings_come_back_completed(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        set_group(broker, "g", retry_max_times=2, consume_message_orderly=True)
        settings = await peer.settle_consumer("g", {"T": "a || b"}, pb.PUSH_CONSUMER)
        assert settings.subscription.subscriptions[0].expression.expression == "a || b"
        assert (settings.subscription.fifo, settings.subscription.receive_batch_size) == (True, 32)
        assert settings.subscription.long_polling_timeout.seconds == 20
        policy = settings.backoff_policy
        assert policy.max_attempts == 3
        assert [it.seconds for it in policy.customized_backoff.next][:5] == [1, 5, 10, 30, 60]
        stream = await peer.settle_producer("T", "FIFO")
        (answer, *_) = await peer.told(stream, 1)
        assert answer.settings.publishing.max_body_size == 4 << 20
        assert answer.settings.publishing.validate_message_type
        policy = answer.settings.backoff_policy
        assert (policy.max_attempts, policy.exponential_backoff.initial.nanos) == (3, 10_000_000)


async def test_who_names_several_topics_is_told_its_settings_once_more(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (_, peer):
        stream = await peer.settle_producer("T", "FIFO")
        clock.advance(1.1)
        first, second = await peer.told(stream, 2)
        assert first == second


@pytest.mark.parametrize(
    "settings",
    [
        pb.Settings(),
        consumer_settings("a b", {"T": "*"}),
        consumer_settings("g", {"a b": "*"}),
        consumer_settings("g", {"TBW102": "*"}),
        consumer_settings("g", {"T": "*"}, pb.LITE_PUSH_CONSUMER),
        consumer_settings("g", {"T": "*"}, pb.PULL_CONSUMER),
    ],
)
async def test_settings_that_cannot_be_end_the_stream(tmp_path: Path, settings: pb.Settings) -> None:
    async with scene(tmp_path) as (broker, peer):
        code = await peer.refused("Telemetry", pb.TelemetryCommand(settings=settings))
        assert code == INVALID_ARGUMENT
        assert broker.rooms.grpc.front.desk.clients.table == {}


async def test_operators_see_gRPC_clients_like_any_other(tmp_path: Path) -> None:  # noqa: N802
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer), Peer.of(broker) as operator:
        await peer.settle_consumer("g", {"T": "a"}, pb.PUSH_CONSUMER)
        shown = await operator.call(Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
        connection = ConsumerConnection.decode(shown.body)
        assert [(it.client_id, it.language) for it in connection.connection_set] == [("c1", "JAVA")]
        assert (connection.consume_type, connection.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert connection.subscription_table["T"].sub_string == "a"
        assert broker.tables.topics.get("%RETRY%g") is not None
        async with GrpcPeer.of(broker, "p1") as other:
            await other.settle_producer("T")
            shown = await operator.call(Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="T")
            assert [it.client_id for it in ProducerConnection.decode(shown.body).connection_set] == ["p1"]
            for _ in range(14):
                clock.advance(10)
                beat = pb.HeartbeatRequest(group=pb.Resource(name="g"), client_type=pb.PUSH_CONSUMER)
                assert (await peer.call("Heartbeat", beat, pb.HeartbeatResponse)).status.code == pb.OK
        assert set(broker.rooms.grpc.front.desk.clients.table) == {"c1"}  # the producer was silent for too long
        assert "T" not in broker.tables.producers.table


async def test_only_who_has_sent_settings_has_a_heartbeat_and_says_goodbye(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        beat = pb.HeartbeatRequest(group=pb.Resource(name="g"), client_type=pb.PUSH_CONSUMER)
        goodbye = pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
        for _ in range(2):
            assert (await peer.call("Heartbeat", beat, pb.HeartbeatResponse)).status.code == 40015
            answer = await peer.call("NotifyClientTermination", goodbye, pb.NotifyClientTerminationResponse)
            assert answer.status.code == 40015
            await peer.settle_consumer("g", {"T": "*"})
            assert (await peer.call("Heartbeat", beat, pb.HeartbeatResponse)).status.code == pb.OK
            assert broker.tables.consumers.get("g") is not None
            await peer.call("NotifyClientTermination", goodbye, pb.NotifyClientTerminationResponse)
            assert broker.tables.consumers.get("g") is None


async def test_a_call_without_client_id_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as (_, peer):
        peer.headers["x-mq-client-id"] = " "
        assert (await peer.send("T", b"x")).status.code == pb.CLIENT_ID_REQUIRED


# Transactions


def end_of(message_id: str, resolution: pb.TransactionResolution) -> pb.EndTransactionRequest:
    return pb.EndTransactionRequest(
        topic=pb.Resource(name="TRANSACTION"), message_id=message_id, transaction_id=message_id, resolution=resolution,
        source=pb.SOURCE_CLIENT,
    )  # fmt: skip


async def test_a_transaction_is_committed_or_rolled_back_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        for number, resolution in enumerate((pb.COMMIT, pb.ROLLBACK)):
            message_id = f"transaction {number}"
            sent = await peer.send("TRANSACTION", b"%d" % number, message_type=pb.TRANSACTION, message_id=message_id)
            assert sent.entries[0].transaction_id == message_id
            end = end_of(message_id, resolution)
            assert (await peer.call("EndTransaction", end, pb.EndTransactionResponse)).status.code == pb.OK
            again = await peer.call("EndTransaction", end, pb.EndTransactionResponse)
            assert again.status.code == pb.INTERNAL_SERVER_ERROR
        await until(lambda: broker.store.queue_bounds("TRANSACTION", 0)[1] == 1)
        assert [message.body for message in stored(broker, "TRANSACTION")] == [b"0"]
        blank = await peer.call("EndTransaction", end_of("", pb.COMMIT), pb.EndTransactionResponse)
        assert blank.status.code == pb.INVALID_TRANSACTION_ID


@pytest.mark.mission("GR-04")
async def test_a_producer_is_asked_for_what_it_left_open(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, transactionTimeOut=2000, transactionCheckInterval=3000) as (broker, peer):
        stream = await peer.settle_producer("TRANSACTION")
        await peer.send("TRANSACTION", b"half", message_type=pb.TRANSACTION, message_id="t1",
                        properties={"colour": "red"})  # fmt: skip
        for _ in range(4):
            clock.advance(3)
            await asyncio.sleep(0)
        _, question = (await peer.told(stream, 2))[:2]
        asked = question.recover_orphaned_transaction_command
        assert (asked.transaction_id, asked.message.body, asked.message.topic.name) == ("t1", b"half", "TRANSACTION")
        assert asked.message.user_properties["colour"] == "red"
        assert asked.message.system_properties.message_type == pb.TRANSACTION
        end = end_of("t1", pb.COMMIT)
        end.source = pb.SOURCE_SERVER_CHECK
        assert (await peer.call("EndTransaction", end, pb.EndTransactionResponse)).status.code == pb.OK
        await until(lambda: broker.store.queue_bounds("TRANSACTION", 0)[1] == 1)


# What an operator asks of a client


async def test_a_client_handles_a_message_for_an_operator(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer), Peer.of(broker) as operator:
        stream, _ = await peer.settle(consumer_settings("g", {"T": "*"}, pb.PUSH_CONSUMER))
        await peer.send("T", b"look at this")
        message_id = broker.own.offset_id(stored(broker, "T")[0].physical_offset)
        asking = asyncio.ensure_future(
            operator.call(
                Request.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g", clientId="c1", msgId=message_id, topic="T"
            )
        )
        command = (await peer.told(stream, 2))[1].verify_message_command
        assert command.message.body == b"look at this"
        done = pb.TelemetryCommand(verify_message_result=pb.VerifyMessageResult(nonce=command.nonce))
        done.status.code = pb.OK
        peer.say(stream, done)
        answer = await asking
        assert (answer.code, b"CR_SUCCESS" in answer.body) == (0, True)
        info = await operator.call(Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
        assert (info.code, b'"topic":"T"' in info.body) == (0, True)


# Routes


async def test_a_route_names_queues_their_types_and_the_way_the_client_came(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        add_topic(broker, "W", 2, perm=2)
        asked = pb.QueryRouteRequest(topic=pb.Resource(resource_namespace="ns", name="MIXED"))
        asked.endpoints.scheme = pb.DOMAIN_NAME
        asked.endpoints.addresses.add(host="outside.example", port=1234)
        answer = await peer.call("QueryRoute", asked, pb.QueryRouteResponse)
        (queue,) = answer.message_queues
        assert (queue.permission, queue.broker.name, queue.broker.id) == (pb.READ_WRITE, "broker-a", 0)
        assert list(queue.accept_message_types) == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
        assert (queue.broker.endpoints, queue.topic) == (asked.endpoints, asked.topic)
        plain = await peer.call("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="W")), pb.QueryRouteResponse)
        assert [(it.id, it.permission) for it in plain.message_queues] == [(0, pb.WRITE), (1, pb.WRITE)]
        (address,) = plain.message_queues[0].broker.endpoints.addresses
        assert f"{address.host}:{address.port}" == broker.grpc_address
        for name, code in (("Nowhere", pb.TOPIC_NOT_FOUND), ("a b", pb.ILLEGAL_TOPIC)):
            asked.topic.name = name
            assert (await peer.call("QueryRoute", asked, pb.QueryRouteResponse)).status.code == code


async def test_members_are_assigned_the_broker_or_its_queues_in_order(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        set_group(broker, "fifo", consume_message_orderly=True)
        for group, numbers in (("g", [-1]), ("fifo", [0, 1, 2, 3])):
            asked = pb.QueryAssignmentRequest(topic=pb.Resource(name="PRIORITY"), group=pb.Resource(name=group))
            answer = await peer.call("QueryAssignment", asked, pb.QueryAssignmentResponse)
            assert [it.message_queue.id for it in answer.assignments] == numbers
        add_topic(broker, "W", 2, perm=2)
        asked.topic.name = "W"
        assert (await peer.call("QueryAssignment", asked, pb.QueryAssignmentResponse)).status.code == pb.FORBIDDEN


# Reading by offset


async def test_messages_are_read_by_offset_and_offsets_are_kept(tmp_path: Path) -> None:
    async with scene(tmp_path) as (_, peer):
        for number in range(5):
            await peer.send("T", b"%d" % number)
        queue = pb.MessageQueue(topic=pb.Resource(name="T"), id=0)
        group = pb.Resource(name="g")
        pull = pb.PullMessageRequest(group=group, message_queue=queue, offset=2, batch_size=2)
        parts = [pb.PullMessageResponse.FromString(it) for it in await peer.end(peer.begin("PullMessage", pull))]
        assert parts[0].status.code == pb.OK
        assert [it.message.body for it in parts[1:-1]] == [b"2", b"3"]
        assert parts[-1].next_offset == 4
        got = await peer.call("GetOffset", pb.GetOffsetRequest(group=group, message_queue=queue), pb.GetOffsetResponse)
        assert got.status.code == pb.OFFSET_NOT_FOUND
        update = pb.UpdateOffsetRequest(group=group, message_queue=queue, offset=4)
        assert (await peer.call("UpdateOffset", update, pb.UpdateOffsetResponse)).status.code == pb.OK
        got = await peer.call("GetOffset", pb.GetOffsetRequest(group=group, message_queue=queue), pb.GetOffsetResponse)
        assert got.offset == 4
        for policy, offset in ((pb.BEGINNING, 0), (pb.END, 5)):
            query = pb.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy)
            assert (await peer.call("QueryOffset", query, pb.QueryOffsetResponse)).offset == offset
