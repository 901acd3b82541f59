"""The shared core: heartbeats, registration, commands from brokers, start and stop, connections."""

import asyncio
import socket
import time
from pathlib import Path

import pytest

from cometmq.client.cluster.broker_commands import stacks
from cometmq.client.cluster.instance import Instance
from cometmq.client.options import ClientOptions
from cometmq.clock import ManualClock
from cometmq.errors import BrokerError, BrokerUnknown, ConfigError, ConnectFailed, NotRunning
from cometmq.wire.bodies import (
    BrokerData,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    HeartbeatData,
    MessageQueue,
    QueueData,
    ResetOffsets,
    SubscriptionData,
    TopicRoute,
)
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, request
from cometmq.wire.hashing import crc31
from cometmq.wire.headers import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
    ResetConsumerClientOffset,
)
from cometmq.wire.record.message import StoredMessage
from tests.support.aio import run, settle
from tests.support.brokers import Peer, stored
from tests.support.clusters import ScriptedBroker, idle, producing, real_cluster, scripted_cluster
from tests.support.net import serving, until


class Consumer:
    """A consumer as an instance sees it; keeps what it is told."""

    group = "cg"
    consume_type = "CONSUME_PASSIVELY"
    message_model = "CLUSTERING"
    start_from = "CONSUME_FROM_LAST_OFFSET"

    def __init__(self) -> None:
        self.topics = ["T"]
        self.changes = 0
        self.resets: list[tuple[str, dict[MessageQueue, int]]] = []
        self.consumed: list[tuple[bytes, str]] = []

    def subscriptions(self) -> list[SubscriptionData]:
        return [SubscriptionData(topic=topic, sub_string="*") for topic in self.topics]

    def on_members_changed(self) -> None:
        self.changes += 1

    async def on_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.resets.append((topic, offsets))

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {MessageQueue("a", 1, topic): 7}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": self.consume_type})

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeMessageDirectlyResult:
        self.consumed.append((message.body, broker_name))
        return ConsumeMessageDirectlyResult(consume_result="CR_SUCCESS", spent_time_ms=3)


def heartbeats(broker: ScriptedBroker) -> list[HeartbeatData]:
    return [HeartbeatData.decode(it.body) for it in broker.asked if it.code == Request.HEART_BEAT]


@pytest.mark.mission("CG-02")
async def test_heartbeats_go_to_masters_and_with_a_consumer_to_replicas() -> None:
    clock = ManualClock()
    async with scripted_cluster("master", "replica") as cluster, cluster.client(clock) as client:
        instance = client.instance
        master, replica = cluster["master"], cluster["replica"]
        cluster.routes["T"] = TopicRoute(
            broker_datas=[BrokerData(broker_name="a", broker_addrs={0: master.address, 1: replica.address})],
            queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=1, write_queue_nums=1)],
        )

        def counts() -> tuple[int, int]:
            return len(heartbeats(master)), len(heartbeats(replica))

        await instance.route("T")
        await instance.heartbeat()
        clock.advance(31)
        await idle(client)
        assert counts() == (0, 0)  # nothing is registered

        producer = client.producer("pg")
        await producer.start()
        assert counts() == (1, 0)
        assert [it.group_name for it in heartbeats(master)[0].producer_data_set] == ["pg"]
        assert heartbeats(master)[0].client_id == client.client_id
        clock.advance(30)
        await until(lambda: counts() == (2, 0))
        await idle(client)

        consumer = Consumer()
        instance.register_consumer(consumer)
        await instance.heartbeat()
        assert counts() == (3, 1)
        (sent,) = heartbeats(replica)[0].consumer_data_set
        assert (sent.group_name, sent.consume_type, sent.message_model) == ("cg", "CONSUME_PASSIVELY", "CLUSTERING")
        assert sent.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
        assert [it.topic for it in sent.subscription_data_set] == ["T"]

        await asyncio.gather(*[instance.heartbeat() for _ in range(10)])
        assert counts() == (4, 2)  # ten triggers at once are one
        consumer.topics.append("U")  # but not if there is something new to say
        first = asyncio.ensure_future(instance.heartbeat())
        await asyncio.sleep(0)
        consumer.topics.append("V")
        await asyncio.gather(first, instance.heartbeat())
        assert counts() == (6, 4)
        clock.advance(30)
        await until(lambda: counts() == (7, 5))
        await idle(client)
        assert instance.heartbeats.versions == {master.address: 513, replica.address: 513}

        await instance.unregister_consumer("cg")
        assert (master.count(Request.UNREGISTER_CLIENT), replica.count(Request.UNREGISTER_CLIENT)) == (1, 1)
        await producer.stop()
        assert master.count(Request.UNREGISTER_CLIENT) == 2


@pytest.mark.mission("CG-02")
def test_heartbeats_that_fail_are_logged_and_the_others_arrive(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with producing("a", "b") as (cluster, producer):
            await cluster["a"].server.stop()
            before = len(heartbeats(cluster["b"]))
            await producer.instance.heartbeat()
            assert len(heartbeats(cluster["b"])) == before + 1
            for _ in range(60):
                await producer.instance.heartbeat()

    with caplog.at_level("INFO"):
        run(main())
    sent = [record.getMessage() for record in caplog.records if record.getMessage().startswith("sent heartbeat")]
    failed = [record.getMessage() for record in caplog.records if record.getMessage().startswith("fail heartbeat")]
    assert len(sent) in (3, 4)  # every 20th of 63
    assert len(failed) == 61
    assert "broker=a" in failed[0]


@pytest.mark.mission("CG-02")
async def test_a_heartbeat_has_3_seconds() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(clock) as client,
        client.producer("pg", topics=("T",)) as producer,
    ):
        cluster["a"].server.connections[0].stop_reading()
        beating = asyncio.ensure_future(producer.instance.heartbeat())
        await settle()
        clock.advance(2.9)
        await settle()
        assert not beating.done()
        clock.advance(0.2)
        await beating


async def test_a_new_connection_is_greeted_with_a_heartbeat(tmp_path: Path) -> None:
    async with producing("a") as (cluster, producer):
        consumer = Consumer()
        producer.instance.register_consumer(consumer)
        before = len(heartbeats(cluster["a"]))
        cluster["a"].server.connections[0].cut("test")
        await until(lambda: not cluster["a"].server.connections)
        await producer.send("T", b"x")
        await until(lambda: len(heartbeats(cluster["a"])) == before + 1)
        await until(lambda: consumer.changes == 1)


async def test_brokers_that_no_route_names_are_forgotten() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a", "b") as cluster,
        cluster.client(clock) as client,
        client.producer("pg", topics=("T",)),
    ):
        await idle(client)
        del cluster.brokers["b"]
        await client.instance.refresh_route("T")
        clock.advance(1)
        assert [name for name, _, _ in client.instance.brokers.members()] == ["a"]
        await idle(client)


async def ask(broker: ScriptedBroker, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
    """Ask the client as its broker."""
    return await broker.server.connections[0].call(request(code, ext, body), 5)


async def test_brokers_commands_reach_their_group() -> None:
    async with producing("a") as (cluster, producer):
        consumer = Consumer()
        producer.instance.register_consumer(consumer)
        broker = cluster["a"]
        link = broker.server.connections[0]
        link.send_oneway(request(Request.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged("cg").encode()))
        link.send_oneway(request(Request.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged("other").encode()))
        offsets = {MessageQueue("a", 0, "T"): 100}
        reset = ResetConsumerClientOffset(topic="T", group="cg", timestamp=-1)
        table = ResetOffsets(offset_table=offsets)
        for body in (table.encode(), table.encode_for_cpp()):
            link.send_oneway(request(Request.RESET_CONSUMER_CLIENT_OFFSET, reset.encode(), body))
        await until(lambda: len(consumer.resets) == 2)
        assert consumer.changes == 1
        assert consumer.resets == [("T", offsets)] * 2

        status = await ask(
            broker, Request.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(topic="T", group="cg").encode()
        )
        assert ConsumerStatus.decode(status.body).message_queue_table == {MessageQueue("a", 1, "T"): 7}

        info = await ask(
            broker,
            Request.GET_CONSUMER_RUNNING_INFO,
            GetConsumerRunningInfo("cg", "client", jstack_enable=True).encode(),
        )
        running = ConsumerRunningInfo.decode(info.body)
        assert running.properties == {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}
        assert running.jstack is not None
        assert "MainThread" in running.jstack
        unknown = await ask(
            broker, Request.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo("none", "client").encode()
        )
        assert unknown.code == 1

        direct = await ask(
            broker,
            Request.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectly(consumer_group="cg", broker_name="a").encode(),
            record(b"directly").encode(),
        )
        assert ConsumeMessageDirectlyResult.decode(direct.body).consume_result == "CR_SUCCESS"
        assert consumer.consumed == [(b"directly", "a")]

        assert (await ask(broker, 9999, {})).code == 3


def record(body: bytes) -> StoredMessage:
    host = (b"\x7f\x00\x00\x01", 1)
    return StoredMessage(0, 1, crc31(body), 0, 0, 0, 0, 0, 1, host, 1, host, 0, 0, body, "T", b"")


async def test_stacks_show_threads_and_tasks() -> None:
    text = stacks()
    assert "MainThread" in text
    assert "task " in text


async def test_calls_find_brokers_by_name_or_address() -> None:
    async with producing("a") as (cluster, producer):
        instance = producer.instance
        for target in ("a", cluster["a"].address):
            assert (await instance.call(target, instance.request(105, {}), 3)).code == 0
        with pytest.raises(BrokerUnknown, match="zzz"):
            await instance.call("zzz", instance.request(105, {}), 3)
        await instance.ask(cluster.namesrv, instance.request(105, {"topic": "x"}), 3)
        cluster.missing.add("x")
        with pytest.raises(BrokerError) as refused:
            await instance.ask(cluster.namesrv, instance.request(105, {"topic": "x"}), 3)
        assert (refused.value.code, refused.value.broker) == (17, cluster.namesrv)


async def test_start_is_idempotent_and_stop_final() -> None:
    instance = Instance(ClientOptions("127.0.0.1:1"))
    await instance.stop()
    await instance.start()
    await instance.start()
    assert instance.is_running
    await instance.stop()
    await instance.stop()
    with pytest.raises(NotRunning):
        await instance.start()


async def test_a_stopped_client_leaves_nothing_behind(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster:
        before = asyncio.all_tasks()
        async with cluster.client() as client:
            producer = client.producer("pg")
            await producer.start()
            await producer.send("T", b"x")
            future = producer.send_soon("T", b"waits")
        assert (await future).is_confirmed  # what waited was sent before the end
        assert not producer.is_running
        assert asyncio.all_tasks() <= before
        assert cluster.broker.tables.producers.table == {}
        assert len([message for queue in range(4) for message in stored(cluster.broker, "T", queue)]) == 2


def test_groups_are_registered_once() -> None:
    instance = Instance(ClientOptions("127.0.0.1:1"))
    instance.register_consumer(Consumer())
    with pytest.raises(ConfigError, match="cg"):
        instance.register_consumer(Consumer())


def test_client_ids_are_javas() -> None:
    options = ClientOptions("127.0.0.1:1", client_ip="10.0.0.7")
    one, two = Instance(options), Instance(options)
    assert one.client_id.startswith("10.0.0.7@")
    assert one.client_id != two.client_id
    assert one.stable_id == "10.0.0.7@DEFAULT"
    named = Instance(ClientOptions("127.0.0.1:1", client_ip="::1", instance_name="mine", unit_name="u"))
    assert named.client_id == "[::1]@mine@u"
    assert len(named.ids.next(1_700_000_000_000)) == 56


@pytest.mark.mission("RM-13")
async def test_simultaneous_sends_to_a_new_broker_share_one_connection() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client:
        await client.instance.route("T")
        peers: list[tuple[str, int]] = []
        instance = client.instance
        calls = [
            instance.call(cluster["a"].address, instance.request(Request.GET_MAX_OFFSET, {}), 5) for _ in range(100)
        ]
        answers = await asyncio.gather(*calls)
        assert {answer.code for answer in answers} == {0}
        peers = [connection.peer for connection in cluster["a"].server.connections]
        assert len(peers) == 1
        cluster["a"].server.connections[0].cut("test")
        await until(lambda: instance.net.connection(cluster["a"].address) is None)
        await instance.call(cluster["a"].address, instance.request(Request.GET_MAX_OFFSET, {}), 5)
        assert [connection.peer for connection in cluster["a"].server.connections] != peers


@pytest.mark.mission("RM-13")
async def test_a_black_hole_fails_all_callers_by_3_seconds_and_is_tried_again() -> None:
    # A listener whose queue of pending connections is full does not answer further ones.
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        address = f"127.0.0.1:{hole.getsockname()[1]}"
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(hole.getsockname())
            await asyncio.sleep(0.05)
            instance = Instance(ClientOptions("127.0.0.1:1"))
            began = time.monotonic()
            calls = [instance.net.call(address, instance.request(105, {}), 10) for _ in range(20)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            took = time.monotonic() - began
            assert all(isinstance(outcome, ConnectFailed) for outcome in outcomes)
            assert 2.9 < took < 9.5  # the calls themselves have 10 s
        finally:
            for filler in fillers:
                filler.close()
        while not await can_connect(instance, hole, address):
            pass
        await instance.net.stop()


async def can_connect(instance: Instance, hole: socket.socket, address: str) -> bool:
    """The listener takes connections now: the next call dials anew, and is written."""
    hole.setblocking(False)
    try:
        await instance.net.send_oneway(address, instance.request(105, {}), 1)
    except ConnectFailed:
        try:
            hole.accept()[0].close()
        except BlockingIOError:
            await asyncio.sleep(0.01)
        return False
    return True


async def test_hooks_see_every_request(tmp_path: Path) -> None:
    class Count:
        def __init__(self) -> None:
            self.codes: list[int] = []

        def before(self, peer: str, request: Command) -> None:
            self.codes.append(request.code)

        def after(self, peer: str, request: Command, response: Command) -> None:
            self.codes.append(-request.code)

    hook = Count()
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(hooks=[hook]) as client,
        client.producer("pg", topics=("T",)) as producer,
    ):
        await producer.send("T", b"x")
    assert hook.codes == [105, -105, 34, -34, 310, -310, 35, -35]


async def test_peers_that_ask_nonsense_are_told_so() -> None:
    async with serving(), producing("a") as (cluster, _):
        answer = await ask(cluster["a"], Request.GET_CONSUMER_RUNNING_INFO, {})
        assert answer.code == 1


async def test_a_peer_is_only_a_peer(tmp_path: Path) -> None:
    """The scripted broker and the real one see the same requests of a producer's life."""
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client, client.producer("pg") as sender:
        await sender.send("T", b"x")
        async with Peer.of(cluster.broker) as peer:
            answer = await peer.call(Request.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
            assert client.client_id.encode() in answer.body
