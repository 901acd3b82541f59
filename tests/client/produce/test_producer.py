"""Sending: kinds, checks, receipts, hooks. Against a real broker unless an answer has to be made up."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.server import Broker
from cometmq.client.client import Client
from cometmq.client.codecs import bytes_codec, json_codec, text_codec, typed_codec
from cometmq.client.messages import SendStatus
from cometmq.client.produce.hooks import SendContext
from cometmq.client.produce.producer import Producer
from cometmq.errors import (
    BrokerError,
    BrokerUnknown,
    CodecError,
    ConfigError,
    MessageRefused,
    NoNameServer,
    NoRoute,
    NotRunning,
)
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.properties import decode
from cometmq.wire.record.sysflag import COMPRESSED
from tests.support.brokers import stored
from tests.support.clusters import RealCluster, accept, cut_by, real_cluster, refuse, scripted_cluster
from tests.support.net import until


def bodies(broker: Broker, topic: str, queues: int = 4) -> list[bytes]:
    return [message.body for queue in range(queues) for message in stored(broker, topic, queue)]


@asynccontextmanager
async def sending_to(directory: Path, **options: Any) -> AsyncIterator[tuple[RealCluster, Producer[bytes]]]:
    """A real cluster with topic T, and a producer."""
    async with (
        real_cluster(directory, "T") as cluster,
        cluster.client() as client,
        client.producer("pg", **options) as producer,
    ):
        yield cluster, producer


def producers(broker: Broker, group: str) -> list[str]:
    """The client ids that a broker knows as producers of a group."""
    return [member.client_id for member in broker.tables.producers.table.get(group, {}).values()]


async def test_a_message_is_stored_as_it_was_given(tmp_path: Path) -> None:
    async with sending_to(tmp_path) as (cluster, producer):
        receipt = await producer.send(
            "T", b"hello", tag="created", keys=["7", "8"], properties={"colour": "blue"}, flag=5
        )
        (message,) = stored(cluster.broker, "T", receipt.queue.queue_id)
    properties = decode(message.properties)
    assert (message.body, message.flag) == (b"hello", 5)
    assert (properties["TAGS"], properties["KEYS"], properties["colour"]) == ("created", "7 8", "blue")
    assert properties["UNIQ_KEY"] == receipt.id
    assert receipt.status is SendStatus.OK
    assert receipt.is_confirmed
    assert (receipt.queue.broker_name, receipt.topic, receipt.offset) == ("broker-a", "T", 0)
    assert decode_offset_id(receipt.offset_id).physical_offset == message.physical_offset


@pytest.mark.mission("PC-02")
async def test_every_kind_of_send_stores_its_message(tmp_path: Path) -> None:
    async with sending_to(tmp_path) as (cluster, producer):
        await producer.send("T", b"awaited")
        outcomes: list[asyncio.Future[Any]] = []
        future = producer.send_soon("T", b"with callback")
        future.add_done_callback(outcomes.append)
        receipt = await future
        await asyncio.sleep(0)
        assert outcomes == [future]
        assert receipt.is_confirmed
        await producer.send_oneway("T", b"one way")
        producer.send_oneway("T", b"one way, not awaited")
        await producer.send("T", b"last")  # behind the others on the same connection
        assert Counter(bodies(cluster.broker, "T")) == Counter(
            [b"awaited", b"with callback", b"one way", b"one way, not awaited", b"last"]
        )


@pytest.mark.mission("PC-02")
@pytest.mark.parametrize("kind", ["send", "send_soon", "send_oneway", "request"])
@pytest.mark.parametrize(
    ("topic", "body", "error", "code"),
    [
        ("T", b"", MessageRefused, 13),
        ("T", b"x" * (4 * 1024 * 1024 + 1), MessageRefused, 13),
        ("with blank", b"x", ConfigError, None),
        ("", b"x", ConfigError, None),
        ("t" * 128, b"x", ConfigError, None),
        ("SCHEDULE_TOPIC_XXXX", b"x", ConfigError, None),
        ("RMQ_SYS_TRANS_HALF_TOPIC", b"x", ConfigError, None),
    ],
    ids=["empty", "too large", "illegal", "no topic", "long topic", "system", "half"],
)
async def test_what_cannot_be_sent_is_refused_before_any_byte_is(
    kind: str, topic: str, body: bytes, error: type[Exception], code: int | None
) -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        async def attempt() -> None:
            await getattr(producer, kind)(topic, body)

        with pytest.raises(error) as caught:
            await attempt()
        assert getattr(caught.value, "code", None) == code
        assert isinstance(caught.value, ValueError)
        assert cluster.asked == []
        assert cluster["a"].asked == []


async def test_the_largest_body_is_taken(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", mappedFileSizeCommitLog=16 << 20) as cluster:
        async with cluster.client() as client, client.producer("pg", compress_over=1 << 30) as producer:
            receipt = await producer.send("T", b"x" * (4 << 20), timeout=20)
        (message,) = stored(cluster.broker, "T", receipt.queue.queue_id)
        assert len(message.body) == 4 << 20


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"tag": ""}, "tag"),
        ({"tag": "a || b"}, "tag"),
        ({"keys": ["a b"]}, "key"),
        ({"keys": [""]}, "key"),
        ({"keys": [7]}, "key"),
        ({"properties": {"KEYS": "x"}}, "reserved"),
        ({"properties": {"a": " "}}, "blank"),
        ({"properties": {"": "x"}}, "blank"),
        ({"properties": {"a": 5}}, "text"),
        ({"properties": {"a": "\x01"}}, "0x01"),
        ({"properties": {"a": "x" * 32_768}}, "32767"),
        ({"delay": 1, "delay_level": 1}, "exclude"),
        ({"delay": 0}, "delay"),
        ({"delay_level": 19}, "1 to 18"),
        ({"ordering_key": "a", "queue": MessageQueue("a", 0, "T")}, "exclude"),
        ({"queue": MessageQueue("a", 0, "Other")}, "Other"),
        ({"queue": MessageQueue("a", 9, "T")}, "not one of"),
    ],
)
async def test_arguments_that_make_no_sense_say_so(arguments: dict[str, Any], text: str) -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        with pytest.raises(ConfigError, match=text):
            await producer.send("T", b"x", **arguments)
        assert cluster["a"].sends == 0


async def test_a_producer_that_does_not_run_sends_nothing() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client:
        producer = client.producer("pg")
        with pytest.raises(NotRunning):
            await producer.send("T", b"x")
        with pytest.raises(NotRunning):
            producer.send_soon("T", b"x")
        await producer.start()
        await producer.send("T", b"x")
        await producer.stop()
        await producer.stop()
        with pytest.raises(NotRunning):
            producer.send_oneway("T", b"x")
        with pytest.raises(NotRunning):
            await producer.start()
        assert cluster["a"].sends == 1


@pytest.mark.mission("PC-01")
async def test_a_group_is_registered_once_and_told_to_brokers(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        async with client.producer("pg", topics=("T",)):
            assert producers(cluster.broker, "pg") == [client.client_id]
            with pytest.raises(ConfigError, match="pg"):
                await client.producer("pg").start()
            async with cluster.client() as other, other.producer("pg"):
                pass  # another client is another instance
        assert producers(cluster.broker, "pg") == []
        async with client.producer("pg"):
            pass  # it is free again


@pytest.mark.mission("PC-01")
@pytest.mark.parametrize("group", ["", "a b", "g" * 121, "DEFAULT_PRODUCER"])
async def test_a_bad_group_is_refused(group: str) -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client:
        with pytest.raises(ConfigError):
            client.producer(group)


@pytest.mark.mission("PC-01")
async def test_name_servers_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with real_cluster(tmp_path, "T") as cluster:
        monkeypatch.delenv("COMETMQ_NAMESRV", raising=False)
        monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
        async with Client() as client, client.producer("pg") as producer:
            assert (await producer.send("T", b"x")).is_confirmed
        monkeypatch.setenv("COMETMQ_NAMESRV", cluster.namesrv)
        monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
        async with Client() as client, client.producer("pg") as producer:
            assert (await producer.send("T", b"x")).is_confirmed


async def test_a_producer_can_have_a_client_of_its_own(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster:
        async with Producer("pg", text_codec, namesrv=cluster.namesrv) as producer:
            await producer.send("T", "hällo")
        assert not producer.instance.is_running
        assert bodies(cluster.broker, "T") == ["hällo".encode()]


@pytest.mark.mission("PC-03")
async def test_no_route_and_no_name_server_have_their_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMETMQ_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async with scripted_cluster("a") as cluster:
        cluster.missing = {"T", "TBW102"}
        async with cluster.client() as client, client.producer("pg", allow_auto_create=True) as producer:
            with pytest.raises(NoRoute) as no_route:
                await producer.send("T", b"x")
            assert no_route.value.code == 10005
            assert cluster.asked == ["T", "TBW102"]
    async with Client("127.0.0.1:1") as client, client.producer("pg") as producer:
        with pytest.raises(NoRoute, match=r"127\.0\.0\.1:1"):
            await producer.send("T", b"x")
    async with Client() as client, client.producer("pg") as producer:
        with pytest.raises(NoNameServer) as no_name_server:
            await producer.send("T", b"x")
        assert no_name_server.value.code == 10004


@pytest.mark.mission("PC-03")
async def test_unknown_topics_are_made_after_the_template(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client:
        async with client.producer("careful") as producer:
            with pytest.raises(NoRoute, match="create"):
                await producer.send("New", b"x")
        assert cluster.broker.tables.topics.get("New") is None
        async with client.producer("pg", allow_auto_create=True, template_topic_queues=3) as producer:
            receipt = await producer.send("New", b"x")
        assert receipt.offset == 0
        made = cluster.broker.tables.topics.get("New")
        assert made is not None
        assert made.write_queue_nums == 3


@pytest.mark.mission("PC-03")
async def test_a_broker_that_makes_no_topics_refuses_after_all_attempts(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, brokers=2) as cluster:
        async with cluster.client() as client, client.producer("pg", allow_auto_create=True) as producer:
            await producer.instance.borrow_route("New", "TBW102", 4)
            for broker in cluster.brokers:
                await broker.settings.change(b"autoCreateTopicEnable=false")
            with pytest.raises(BrokerError) as refused:
                await producer.send("New", b"x")
        assert refused.value.code == 17
        assert "after 3 attempts" in str(refused.value)
        assert "broker-a" in str(refused.value)
        assert "broker-b" in str(refused.value)


@pytest.mark.mission("PC-09")
@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_bodies_are_compressed_from_4096_bytes_on(tmp_path: Path, compression: str) -> None:
    from cometmq.wire.compression import decompress

    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        async with client.producer("pg", compression=compression) as producer:
            await producer.send("T", b"x" * 4095)
            await producer.send("T", b"y" * 4096)
            await producer.send("T", b"z" * 200_000)  # in a thread
            await producer.send_soon("T", b"s" * 4096)
        plain, *packed = stored(cluster.broker, "T")
        assert (plain.body, plain.sys_flag & COMPRESSED) == (b"x" * 4095, 0)
        assert [decompress(it.body, it.sys_flag) for it in packed] == [b"y" * 4096, b"z" * 200_000, b"s" * 4096]
        assert all(it.sys_flag & COMPRESSED and len(it.body) < 4096 for it in packed)


@pytest.mark.mission("PC-08")
async def test_what_the_caller_gave_is_not_changed() -> None:
    async with scripted_cluster("a", "b") as cluster:
        body = bytes(range(256)) * 32
        keys, properties = ["k"], {"colour": "blue"}
        cluster["a"].answers = cluster["b"].answers = [refuse(2)]
        async with cluster.client(namespace="ns") as client, client.producer("pg") as producer:
            with pytest.raises(BrokerError):
                await producer.send("T", body, keys=keys, properties=properties)
            cluster["b"].answers = [accept()]
            await producer.send("T", body, keys=keys, properties=properties)
            cluster["a"].answers = [cut_by(cluster["a"])]
            for _ in range(8):  # some of them at the broker that cuts its connections
                await producer.send_soon("T", body, keys=keys, properties=properties)
        assert body == bytes(range(256)) * 32
        assert (keys, properties) == (["k"], {"colour": "blue"})
        assert {header.topic for header in cluster["a"].headers()} == {"ns%T"}


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, object, object]] = []

    def before_send(self, context: SendContext) -> None:
        self.seen.append(("before", context.message.topic, context.queue.broker_name))

    def after_send(self, context: SendContext) -> None:
        self.seen.append(("after", context.receipt, context.error))


class Broken:
    def before_send(self, context: SendContext) -> None:
        raise RuntimeError("hook")

    def after_send(self, context: SendContext) -> None:
        raise RuntimeError("hook")


@pytest.mark.mission("PC-08")
async def test_hooks_see_every_attempt_and_its_result_or_exception() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        cluster["a"].answers = [refuse(2), accept()]
        recorder = Recorder()
        producer.add_hook(Broken())  # is logged, and that is all
        producer.add_hook(recorder)
        receipt = await producer.send("T", b"x")
        kinds = [kind for kind, _, _ in recorder.seen]
        assert kinds == ["before", "after"] * 2
        assert recorder.seen[0][1:] == ("T", "a")
        failed = recorder.seen[1][2]
        assert isinstance(failed, BrokerError)
        assert failed.code == 2
        assert recorder.seen[3][1:] == (receipt, None)


@pytest.mark.mission("PC-08")
async def test_a_check_that_raises_aborts_the_send() -> None:
    def forbid(context: SendContext) -> None:
        raise PermissionError(context.message.topic)

    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        producer.add_check(forbid)
        with pytest.raises(PermissionError, match="T"):
            await producer.send("T", b"x")
        assert cluster["a"].sends == 0


@pytest.mark.mission("PC-08")
async def test_the_vip_channel_is_two_ports_below() -> None:
    async with scripted_cluster("a") as cluster:
        route = cluster.route()
        route.broker_datas[0].broker_addrs = {0: f"127.0.0.1:{cluster['a'].server.port + 2}"}
        cluster.routes["T"] = route
        async with cluster.client(vip_channel=True) as client, client.producer("pg") as producer:
            await producer.send("T", b"x")
            await producer.send_oneway("T", b"x")
            await until(lambda: cluster["a"].sends == 2)


@pytest.mark.mission("PC-08")
async def test_a_master_that_is_not_known_is_looked_up_once() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        await producer.send("T", b"x")
        without = cluster.route()
        without.broker_datas[0].broker_addrs = {1: cluster["a"].address}
        without.order_topic_conf = "a:1"  # queues are listed although nobody takes writes
        cluster.routes["T"] = without
        await client.instance.refresh_route("T")
        cluster.asked.clear()
        with pytest.raises(BrokerUnknown) as unknown:
            await producer.send("T", b"x", queue=MessageQueue("a", 0, "T"))
        assert unknown.value.code == 10003
        assert cluster.asked == ["T"]
        cluster.routes.clear()
        assert (await producer.send("T", b"x")).queue.broker_name == "a"
        assert cluster.asked == ["T", "T"]


async def test_delayed_messages_say_when(tmp_path: Path) -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        await producer.send("T", b"x", delay=90.5)
        await producer.send("T", b"x", delay=timedelta(minutes=2))
        await producer.send("T", b"x", delay_level=3)
        await producer.send("T", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
        sent = [decode(header.properties.encode()) for header in cluster["a"].headers()]
        assert sent[0]["TIMER_DELAY_MS"] == "90500"
        assert sent[1]["TIMER_DELAY_MS"] == "120000"
        assert sent[2]["DELAY"] == "3"
        assert sent[3]["TIMER_DELIVER_MS"] == "1893456000000"


async def test_codecs_make_bodies_of_values(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        async with client.producer("json", codec=json_codec) as producer:
            await producer.send("T", {"id": 7})
            with pytest.raises(CodecError):
                await producer.send("T", object())
        async with client.producer("typed", codec=typed_codec(list[int])) as typed:
            await typed.send("T", [1, 2])
        async with client.producer("bytes") as raw:
            with pytest.raises(CodecError, match="codec"):
                await raw.send("T", "text")  # type: ignore[arg-type]
        assert bodies(cluster.broker, "T", 1) == [b'{"id":7}', b"[1,2]"]
    assert typed_codec(list[int]).decode(b"[3]") == [3]
    assert bytes_codec.decode(b"x") == b"x"


async def test_a_record_is_sent_on_with_the_properties_it_has(tmp_path: Path) -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        properties = {"UNIQ_KEY": "ABC", "RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "x": "y"}
        receipt = await producer.send_record("%RETRY%cg", b"again", properties)
        (header,) = cluster["a"].headers()
        assert receipt.id == "ABC"
        assert (header.reconsume_times, header.max_reconsume_times) == (3, 16)
        assert decode(header.properties.encode()) == {"UNIQ_KEY": "ABC", "x": "y"}


async def test_a_namespace_is_around_names_on_the_wire_only(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "ns%T", queues=1) as cluster, cluster.client(namespace="ns") as client:
        async with client.producer("pg") as producer:
            receipt = await producer.send("T", b"x")
            assert producers(cluster.broker, "ns%pg") == [client.client_id]
        assert receipt.queue == MessageQueue("broker-a", 0, "T")
        (message,) = stored(cluster.broker, "ns%T")
        assert decode(message.properties)["INSTANCE_ID"] == "ns"


async def test_a_cancelled_send_leaves_nothing_behind() -> None:
    async with (
        scripted_cluster("a") as cluster,
        cluster.client() as client,
        client.producer("pg", max_in_flight=1) as producer,
    ):
        cluster["a"].answers = [lambda _: None]
        tasks = [asyncio.ensure_future(producer.send("T", b"x", timeout=30)) for _ in range(3)]
        await until(lambda: cluster["a"].sends == 1)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert producer._sender.window.count == 0
        cluster["a"].answers = [accept()]
        await producer.send("T", b"x")


async def test_the_request_says_who_sends_what_where() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client, client.producer("pg") as producer:
        receipt = await producer.send("T", b"x", wait=False, ordering_key="TagA")
        (command,) = [it for it in cluster["a"].asked if it.code == Request.SEND_MESSAGE_V2]
        (header,) = cluster["a"].headers()
        assert (header.producer_group, header.topic, header.broker_name) == ("pg", "T", "a")
        assert (header.queue_id, header.batch, header.default_topic_queue_nums) == (2598919 % 4, False, 4)
        assert command.language == 3
        assert decode(header.properties.encode()) == {"UNIQ_KEY": receipt.id, "WAIT": "false"}
