"""Checks a proxy before two brokers: what is sent on to whom, what brokers see of clients, what is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.proxy.config import load
from cometmq.proxy.server import Proxy
from cometmq.testing import Cluster, EmbeddedBroker
from cometmq.wire.bodies import ConsumerConnection, ProducerConnection
from cometmq.wire.codes import Request
from cometmq.wire.grpc import messages_pb2 as pb
from tests.support.brokers import Peer
from tests.support.grpc import GrpcPeer, ack_request, consumer_settings, receive_request, received, send_request
from tests.support.net import until

BROKERS = ("broker-a", "broker-b")
GROUP = pb.Resource(name="g")


def proxy_of(cluster: Cluster) -> Proxy:
    texts = {"namesrvAddr": cluster.namesrv, "grpcServerPort": "0", "grpcShutdownTimeSeconds": "1"}
    return Proxy(load(texts), cluster.clock)


async def taken_from(cluster: Cluster, peer: GrpcPeer, broker: EmbeddedBroker, **fields: object) -> list[pb.Message]:
    """What one broker has; time passes until a poll that finds nothing is over."""
    queue = pb.MessageQueue(broker=pb.Broker(name=broker.name))
    stream = peer.begin("ReceiveMessage", receive_request("T", message_queue=queue, **fields))  # type: ignore[arg-type]
    asking = asyncio.ensure_future(peer.end(stream))
    await until(lambda: asking.done() or polls(broker))
    if not asking.done():
        await cluster.advance(6)
    return received(await asking)[1]


def polls(broker: EmbeddedBroker) -> int:
    """Receives that wait there."""
    return broker.server.rooms.pop.waiting.count_of("g", "T", -1)


@asynccontextmanager
async def proxied(directory: Path) -> AsyncIterator[tuple[Cluster, Proxy, GrpcPeer]]:
    """Topic T on both brokers, and one named like each other type."""
    asked_soon: dict[str, object] = {"transactionTimeOut": 2_000, "transactionCheckInterval": 3_000}
    more = {"enablePropertyFilter": True, "recallMessageEnable": True}
    async with Cluster(brokers=2, directory=directory, settings=asked_soon | more) as cluster:  # type: ignore[arg-type]
        await cluster.create_topic("T", queues=1)
        for kind in ("FIFO", "DELAY", "TRANSACTION"):
            await cluster.create_topic(kind, queues=1, kind=kind)
        proxy = proxy_of(cluster)
        await proxy.start()
        try:
            async with GrpcPeer.at(proxy.address) as peer:
                yield cluster, proxy, peer
        finally:
            await proxy.stop()


@pytest.mark.mission("GR-08")
async def test_messages_are_spread_over_the_brokers_and_come_back_from_each(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        await peer.settle_consumer("g", {"T": "*"})
        for number in range(40):
            answer = await peer.send("T", b"%d" % number, message_id=f"m{number}")
            assert answer.entries[0].status.code == pb.OK
        found: dict[str, int] = {}
        bodies = set()
        for broker in cluster.brokers * 2:
            for message in await taken_from(cluster, peer, broker):
                handle = message.system_properties.receipt_handle
                found[handle.split(" ")[5]] = found.get(handle.split(" ")[5], 0) + 1
                bodies.add(message.body)
                assert await peer.ack(message) == pb.OK
        assert bodies == {b"%d" % number for number in range(40)}
        assert set(found) == set(BROKERS)


async def test_a_route_names_both_brokers_at_the_address_that_the_client_came_by(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (_, _, peer):
        came_by = pb.Endpoints(scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host="front.example", port=443)])
        request = pb.QueryRouteRequest(topic=pb.Resource(name="T"), endpoints=came_by)
        answer = await peer.call("QueryRoute", request, pb.QueryRouteResponse)
        assert [it.broker.name for it in answer.message_queues] == list(BROKERS)
        assert all(it.broker.endpoints == came_by for it in answer.message_queues)
        assert all(list(it.accept_message_types) == [pb.NORMAL] for it in answer.message_queues)


async def test_what_nobody_has_is_refused_with_its_code(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (_, _, peer):
        await peer.settle_consumer("g", {"T": "*"})
        assert (await peer.send("Nothing", b"x")).status.code == pb.TOPIC_NOT_FOUND
        assert (await peer.send("FIFO", b"x")).status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        code, _ = await peer.try_receive("Nothing")
        assert code == pb.TOPIC_NOT_FOUND
        handle = "0 9999999999999 60000 0 0 broker-z 0 0 0"
        entry = pb.AckMessageEntry(message_id="m", receipt_handle=handle)
        ack = pb.AckMessageRequest(group=GROUP, topic=pb.Resource(name="T"), entries=[entry])
        later = pb.ChangeInvisibleDurationRequest(
            group=GROUP, topic=pb.Resource(name="T"), receipt_handle=handle, message_id="m"
        )
        assert (await peer.call("AckMessage", ack, pb.AckMessageResponse)).status.code != pb.OK
        answer = await peer.call("ChangeInvisibleDuration", later, pb.ChangeInvisibleDurationResponse)
        assert answer.status.code == pb.BAD_REQUEST
        assert "broker-z" in answer.status.message


async def test_a_handle_is_good_at_a_proxy_that_has_just_started(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        await peer.settle_consumer("g", {"T": "*"})
        await peer.send("T", b"x")
        (message,) = [it for broker in cluster.brokers for it in await taken_from(cluster, peer, broker)]
        other = proxy_of(cluster)
        await other.start()
        async with GrpcPeer.at(other.address, "c2") as second:
            answer = await second.call("AckMessage", ack_request(message), pb.AckMessageResponse)
            assert answer.status.code == pb.OK
        await other.stop()


def _at(broker: str) -> pb.MessageQueue:
    return pb.MessageQueue(broker=pb.Broker(name=broker))


@pytest.mark.mission("GR-08")
async def test_brokers_list_the_clients_of_a_proxy_until_they_say_goodbye(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        await peer.settle_consumer("g", {"T": "a"}, pb.PUSH_CONSUMER)
        async with GrpcPeer.at(_address_of(peer), "p1") as producer:
            await producer.settle_producer("T")
            for broker in cluster.brokers:
                tables = broker.server.tables
                await until(lambda tables=tables: tables.consumers.get("g") and "T" in tables.producers.table)  # type: ignore[misc]
                async with Peer.at(broker.address) as operator:
                    shown = await operator.call(Request.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
                    connection = ConsumerConnection.decode(shown.body)
                    assert [it.client_id for it in connection.connection_set] == ["c1"]
                    assert connection.subscription_table["T"].sub_string == "a"
                    shown = await operator.call(Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="T")
                    assert [it.client_id for it in ProducerConnection.decode(shown.body).connection_set] == ["p1"]
        goodbye = pb.NotifyClientTerminationRequest(group=GROUP)
        answer = await peer.call("NotifyClientTermination", goodbye, pb.NotifyClientTerminationResponse)
        assert answer.status.code == pb.OK
        for broker in cluster.brokers:
            consumers = broker.server.tables.consumers
            await until(lambda consumers=consumers: consumers.get("g") is None)  # type: ignore[misc]


def _address_of(peer: GrpcPeer) -> str:
    host, port = peer.writer.get_extra_info("peername")
    return f"{host}:{port}"


@pytest.mark.mission("GR-08")
async def test_a_producer_is_asked_through_the_proxy_for_what_it_left_open(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        stream = await peer.settle_producer("TRANSACTION")
        for broker in cluster.brokers:
            producers = broker.server.tables.producers
            await until(lambda producers=producers: "TRANSACTION" in producers.table)  # type: ignore[misc]
        half = send_request("TRANSACTION", b"half", message_type=pb.TRANSACTION, message_id="t1")
        half.messages[0].system_properties.born_timestamp.FromMilliseconds(cluster.clock.now_ms())
        await peer.call("SendMessage", half, pb.SendMessageResponse)
        for _ in range(4):
            await cluster.advance(3)
        _, question = (await peer.told(stream, 2))[:2]
        asked = question.recover_orphaned_transaction_command
        assert (asked.transaction_id, asked.message.body) == ("t1", b"half")
        end = pb.EndTransactionRequest(
            topic=pb.Resource(name="TRANSACTION"), message_id="t1", transaction_id="t1", resolution=pb.COMMIT,
            source=pb.SOURCE_SERVER_CHECK,
        )  # fmt: skip
        assert (await peer.call("EndTransaction", end, pb.EndTransactionResponse)).status.code == pb.OK

        def committed() -> int:
            return sum(broker.server.store.queue_bounds("TRANSACTION", 0)[1] for broker in cluster.brokers)

        await until(lambda: committed() == 1)


async def test_a_delayed_message_is_taken_back_at_the_broker_that_has_it(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        at_ms = cluster.clock.now_ms() + 60_000
        message = pb.Message().system_properties.delivery_timestamp
        message.FromMilliseconds(at_ms)
        for number in range(6):  # on either broker
            sent = await peer.send("DELAY", b"later", message_id=f"d{number}", delivery_timestamp=message)
            request = pb.RecallMessageRequest(
                topic=pb.Resource(name="DELAY"), recall_handle=sent.entries[0].recall_handle
            )
            answer = await peer.call("RecallMessage", request, pb.RecallMessageResponse)
            assert (answer.status.code, answer.message_id) == (pb.OK, f"d{number}"), answer


@pytest.mark.mission("GR-08")
async def test_what_a_receive_took_that_was_given_up_is_soon_there_again(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        await peer.settle_consumer("g", {"T": "*"})
        waiting = [peer.begin("ReceiveMessage", receive_request("T", message_queue=_at(it))) for it in BROKERS]
        await until(lambda: all(polls(broker) for broker in cluster.brokers))
        for stream in waiting:
            peer.give_up(stream)
        await peer.send("T", b"x")
        await until(lambda: not all(polls(broker) for broker in cluster.brokers))
        await cluster.advance(5)
        found = [message for broker in cluster.brokers for message in await taken_from(cluster, peer, broker)]
        assert [(it.body, it.system_properties.delivery_attempt) for it in found] == [(b"x", 2)]


async def test_a_broker_that_has_gone_costs_only_what_is_asked_of_it(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        await peer.settle_consumer("g", {"T": "*"})
        await peer.send("T", b"first")
        await cluster.brokers[0].kill()
        codes = set()
        for number in range(30):
            codes.add((await peer.send("T", b"x", message_id=f"m{number}")).status.code)
        assert pb.OK in codes
        assert codes <= {pb.OK, pb.INTERNAL_SERVER_ERROR}
        await cluster.brokers[0].restart()
        await until(lambda: cluster.brokers[0].is_running)

        async def all_are_taken() -> bool:
            answers = [await peer.send("T", b"x", message_id=f"n{number}") for number in range(8)]
            return all(it.status.code == pb.OK for it in answers)

        async with asyncio.timeout(30):
            while not await all_are_taken():
                pass


async def test_a_proxy_that_stops_gives_back_what_it_renewed(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, _, peer):
        other = proxy_of(cluster)
        await other.start()
        async with GrpcPeer.at(other.address, "c2") as second:
            await second.settle(consumer_settings("g", {"T": "*"}, pb.PUSH_CONSUMER))
            await second.send("T", b"x")
            taken = [
                message
                for broker in cluster.brokers
                for message in await taken_from(cluster, second, broker, auto_renew=True)
            ]
            assert len(taken) == 1
            await other.stop()
        await cluster.advance(5)
        await peer.settle_consumer("g", {"T": "*"})
        found = [message for broker in cluster.brokers for message in await taken_from(cluster, peer, broker)]
        assert [(it.body, it.system_properties.delivery_attempt) for it in found] == [(b"x", 2)]


async def test_it_is_ready_while_a_name_server_answers(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (cluster, proxy, _):
        await until(lambda: proxy.seen.readyz().status == 200)
        await cluster.nameserver.stop()
        await cluster.advance(25)
        await until(lambda: proxy.seen.readyz().status == 503)
        assert b"name server" in proxy.seen.readyz().body
