"""A running name server as its peers see it, over real sockets."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.wire.bodies import DataVersion, KVTable, TopicConfig, TopicList
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, encode
from tests.nameserver.support import BROKER, asked, call, nameserver, register, registration, route
from tests.support.aio import run
from tests.support.golden import golden_frames
from tests.support.net import RawPeer, until

VERSION_4_9_7 = 407


# Brokers come


@pytest.mark.mission("NS-03")
async def test_registrations_of_every_age_make_a_route_and_104_ends_it(tmp_path: Path) -> None:
    old_body = b'{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{"Old":{"topicName":"Old","readQueueNums":1,"writeQueueNums":2,"perm":6},"Old2":{"topicName":"Old2"}}}'  # noqa: E501
    wrapper = b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % old_body.replace(b"Old", b"Middle")

    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as broker:
        await register(broker, body=old_body, version=36, broker_name="old", broker_addr="10.0.0.36:1")
        await register(broker, body=wrapper, version=VERSION_4_9_7, broker_name="middle", broker_addr="10.0.0.49:1")
        await register(broker, "New", "New2", broker_name="new", broker_addr="10.0.0.55:1")
        for topic, name, address in [("Old", "old", "36"), ("Middle", "middle", "49"), ("New", "new", "55")]:
            found = await route(broker, topic)
            assert found is not None
            assert found.broker_datas[0].broker_addrs == {0: f"10.0.0.{address}:1"}
            assert found.queue_datas[0].broker_name == name
        old = await route(broker, "Old")
        assert old is not None
        assert (old.queue_datas[0].read_queue_nums, old.queue_datas[0].write_queue_nums) == (1, 2)
        for topic, name, address in [("Old", "old", "36"), ("Middle", "middle", "49"), ("New", "new", "55")]:
            ext = {"brokerName": name, "brokerAddr": f"10.0.0.{address}:1", "clusterName": "c1", "brokerId": "0"}
            assert (await call(broker, Request.UNREGISTER_BROKER, **ext)).code == 0
            assert await route(broker, topic) is None


@pytest.mark.mission("NS-03")
async def test_the_frames_that_a_java_broker_sent_add_their_topics(tmp_path: Path) -> None:
    frames = [f for f in golden_frames() if f["request_code"] == Request.REGISTER_BROKER and f["kind"] == "request"]
    assert frames

    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as broker:
        cluster = {"cluster_name": "DefaultCluster", "broker_addr": "127.0.0.1:10911"}
        await register(broker, "TBW102", "BenchmarkTest", **cluster)
        for frame in frames:
            broker.write(bytes.fromhex(frame["frame_hex"]))
            assert (await broker.receive()).code == 0
        for topic in ("GoldenNormalW", "GoldenBigW", "TBW102"):
            assert await route(broker, topic) is not None


@pytest.mark.parametrize(
    ("refused", "cause"),
    [
        (registration("only one"), "send the whole topic table"),
        (registration(body=b"no JSON"), "JSON"),
        (registration("A", "B", body_crc32=5), "does not have the CRC 5"),
        (asked(Request.REGISTER_BROKER, {"brokerName": "b"}), "brokerAddr is missing"),
    ],
    ids=["one topic", "bad body", "bad crc", "no address"],
)
async def test_a_bad_registration_is_answered_1_with_its_cause(refused: Command, cause: str, tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as broker:
        answer = await broker.call(refused)
        assert answer.code == 1
        assert cause in str(answer.remark)
        assert server.state.routes.brokers == {}


async def test_a_broker_that_goes_while_its_registration_waits_for_its_turn_leaves_no_trace(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server:
        async with server.state.turn:
            async with RawPeer.connected(server.port) as broker:
                broker.send(registration("A", "B"))
                await until(lambda: server._default.waiting == 1, "the registration to arrive")
            await until(lambda: not server.connections, "the end of the connection")
        await until(lambda: server._default.waiting == 0, "the end of the registration")
        assert server.state.routes.brokers == {}


async def test_a_replica_is_told_its_master_and_the_order_settings(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        assert (await register(peer, "A", "B")).body == b""
        await call(peer, Request.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="A", value="broker-a:4")
        answer = await register(peer, "A", "B", broker_id=1, broker_addr="10.0.0.2:10911")
        assert answer.ext == {"haServerAddr": "10.0.0.1:10912", "masterAddr": BROKER}
        assert KVTable.decode(answer.body).table == {"A": "broker-a:4"}
        await call(peer, Request.UPDATE_NAMESRV_CONFIG, b"returnOrderTopicConfigToBroker=false")
        assert (await register(peer, "A", "B")).body == b""


# Brokers go


async def pass_time(clock: ManualClock, seconds: int) -> None:
    """Second by second, with the sockets served in between."""
    for _ in range(seconds):
        clock.advance(1)
        await asyncio.sleep(0)


@pytest.mark.mission("NS-04")
async def test_a_silent_broker_is_dropped_and_cut_after_its_timeout(tmp_path: Path) -> None:
    clock = ManualClock()

    # Idle connections would be closed after 120 s too; here the scan alone shall do it.
    async with (
        nameserver(tmp_path, clock, serverChannelMaxIdleTimeSeconds="3600") as server,
        RawPeer.connected(server.port) as silent,
        RawPeer.connected(server.port) as quick,
        RawPeer.connected(server.port) as client,
    ):
        await register(silent, "Slow", "Slow2")
        fields = {"broker_name": "quick", "broker_addr": "10.0.0.2:1", "heartbeat_timeout_ms": 10_000}
        await register(quick, "Quick", "Quick2", **fields)
        await pass_time(clock, 9)
        assert await route(client, "Quick") is not None
        await pass_time(clock, 16 - 9)
        assert await route(client, "Quick") is None
        assert await quick.is_cut()
        await pass_time(clock, 119 - 16)
        assert await route(client, "Slow") is not None
        await pass_time(clock, 126 - 119)
        assert await route(client, "Slow") is None
        assert await silent.is_cut()


@pytest.mark.mission("NS-04")
@pytest.mark.parametrize("sign", ["register", "heartbeat", "query"])
async def test_any_sign_of_life_keeps_a_broker(sign: str, tmp_path: Path) -> None:
    clock = ManualClock()
    identity = {"clusterName": "c1", "brokerName": "broker-a", "brokerAddr": BROKER, "brokerId": "0"}

    async with nameserver(tmp_path, clock) as server, RawPeer.connected(server.port) as broker:
        await register(broker, "A", "B", heartbeat_timeout_ms=10_000)
        for _ in range(5):
            await pass_time(clock, 9)
            if sign == "register":
                await register(broker, "A", "B", heartbeat_timeout_ms=10_000)
            elif sign == "heartbeat":
                assert (await call(broker, Request.BROKER_HEARTBEAT, **identity)).code == 0
            else:
                await call(broker, Request.QUERY_DATA_VERSION, DataVersion(1, 0, 5).encode(), **identity)
        assert await route(broker, "A") is not None


@pytest.mark.mission("NS-05")
async def test_losing_the_connection_of_the_last_registration_removes_the_broker_at_once(tmp_path: Path) -> None:
    async with (
        nameserver(tmp_path) as server,
        RawPeer.connected(server.port) as client,
        RawPeer.connected(server.port) as first,
        RawPeer.connected(server.port) as second,
    ):
        await register(first, "A", "B")
        await register(second, "A", "B")
        await first.close()
        await until(lambda: len(server.connections) == 2, "the end of the first connection")
        assert await route(client, "A") is not None
        second.writer.transport.abort()
        await until(lambda: len(server.connections) == 1, "the end of the second connection")
        assert await route(client, "A") is None


@pytest.mark.mission("NS-05")
async def test_all_brokers_behind_one_connection_go_with_it(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as client:
        async with RawPeer.connected(server.port) as container:
            for name in ("one", "two"):
                await register(container, "A", name, broker_name=name, broker_addr=f"{name}:1")
        await until(lambda: len(server.connections) == 1, "the end of the connection")
        assert await route(client, "A") is None


@pytest.mark.mission("NS-05")
@pytest.mark.parametrize("end", ["malformed", "idle"])
async def test_a_connection_that_errs_or_idles_takes_its_broker_along(end: str, tmp_path: Path) -> None:
    clock = ManualClock()

    async with nameserver(tmp_path, clock, serverChannelMaxIdleTimeSeconds="30") as server:
        async with RawPeer.connected(server.port) as broker:
            await register(broker, "A", "B")
            if end == "malformed":
                broker.write(b"\xff" * 64)
            else:
                await pass_time(clock, 32)
            assert await broker.is_cut()
        async with RawPeer.connected(server.port) as client:
            assert await route(client, "A") is None


# Routes


@pytest.mark.mission("NS-06")
async def test_route_answers_are_those_of_rocketmq_byte_for_byte(tmp_path: Path) -> None:
    frames = [f for f in golden_frames() if f["request_code"] == Request.GET_ROUTEINFO_BY_TOPIC]
    answers = [f for f in frames if f["kind"] == "response" and f["header"]["code"] == 0]
    assert answers

    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        auto_create = TopicConfig(topic_name="TBW102", perm=7, read_queue_nums=8, write_queue_nums=8)
        await register(peer, auto_create, "B", broker_addr="127.0.0.1:10911", cluster_name="DefaultCluster")
        for answer in answers:
            golden = bytes.fromhex(answer["frame_hex"])
            question = asked(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
            question.opaque = answer["header"]["opaque"]
            peer.send(question)
            assert await peer.reader.readexactly(len(golden)) == golden
        # Callers before 401 get the same with bare broker ids, unless they ask for the standard form.
        body = bytes.fromhex(answers[0]["frame_hex"])[-answers[0]["body_len"] :]
        for version, accept, expected in [
            (401, {}, body),
            (400, {}, body.replace(b'{"0":', b"{0:")),
            (400, {"acceptStandardJsonOnly": "TRUE"}, body),
            (400, {"acceptStandardJsonOnly": "false"}, body.replace(b'{"0":', b"{0:")),
        ]:
            for _ in range(2):
                question = asked(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102", **accept}, version=version)
                assert (await peer.call(question)).body == expected


@pytest.mark.mission("NS-06")
async def test_an_unknown_topic_is_exactly_17(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        for ext in ({"topic": "unknown"}, {}):
            answer = await call(peer, Request.GET_ROUTEINFO_BY_TOPIC, **ext)
            assert (answer.code, answer.body) == (17, b"")


@pytest.mark.mission("NS-06")
async def test_the_order_setting_is_in_the_route_only_when_switched_on(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        await register(peer, "A", "B")
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "A"}

        async def shown() -> str | None:
            found = await route(peer, "A")
            assert found is not None
            return found.order_topic_conf

        await call(peer, Request.PUT_KV_CONFIG, **order, value="broker-a:4")
        assert await shown() is None
        await call(peer, Request.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
        assert await shown() == "broker-a:4"
        await call(peer, Request.PUT_KV_CONFIG, **order, value="broker-a:2")
        assert await shown() == "broker-a:2"
        await call(peer, Request.DELETE_KV_CONFIG, **order)
        assert await shown() is None


async def test_kept_answers_are_bounded_and_never_stale(tmp_path: Path) -> None:
    """Every request that can change a route, against answers that were asked for before."""
    writable, identity = 6, {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c1", "brokerId": "0"}

    async def permission(peer: RawPeer) -> int | None:
        found = await route(peer, "A")
        return found.queue_datas[0].perm if found is not None else None

    async with nameserver(tmp_path, routeAnswerBytesMax="700") as server, RawPeer.connected(server.port) as peer:
        await register(peer, *(f"T{i}" for i in range(20)), "A")
        for i in range(20):
            assert await route(peer, f"T{i}") is not None
            assert server.state.queries._kept_bytes <= 700
        assert await permission(peer) == writable
        assert (await call(peer, Request.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")).code == 0
        assert await permission(peer) == 4
        await call(peer, Request.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert await permission(peer) == writable
        await call(peer, Request.DELETE_TOPIC_IN_NAMESRV, topic="A")
        assert await permission(peer) is None
        await register(peer, TopicConfig(topic_name="A", perm=4), counter=2)
        assert await permission(peer) == 4
        await call(peer, Request.UNREGISTER_BROKER, **identity)
        assert await permission(peer) is None
        assert server.state.queries._kept_bytes == 0


async def test_zones_acting_masters_and_warm_up(tmp_path: Path) -> None:
    clock = ManualClock()

    texts = {"needWaitForService": "true", "waitSecondsForService": "45"}
    async with nameserver(tmp_path, clock, **texts) as server, RawPeer.connected(server.port) as peer:
        acting = {"enable_acting_master": True, "broker_id": 1}
        await register(peer, "A", "B", broker_name="here", broker_addr="h:1", zone_name="z1", **acting)
        await register(peer, "A", "B", broker_name="there", broker_addr="t:1", zone_name="z2")
        answer = await call(peer, Request.GET_ROUTEINFO_BY_TOPIC, topic="A")
        assert (answer.code, "started" in str(answer.remark)) == (1, True)
        await pass_time(clock, 46)
        zone = {"topic": "A", "__ZONE_MODE": "true", "__ZONE_NAME": "Z2"}
        answer = await call(peer, Request.GET_ROUTEINFO_BY_TOPIC, **zone)
        assert b'{0:"t:1"}' in answer.body
        answer = await call(peer, Request.GET_ROUTEINFO_BY_TOPIC, topic="A")
        assert b'{"1":"h:1"}' in answer.body
        await call(peer, Request.UPDATE_NAMESRV_CONFIG, b"supportActingMaster=true")
        answer = await call(peer, Request.GET_ROUTEINFO_BY_TOPIC, topic="A")
        assert b'{"0":"h:1"}' in answer.body


# Key values


@pytest.mark.mission("NS-08")
def test_key_values_survive_a_restart_and_are_logged_by_the_clock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    caplog.set_level(logging.INFO, "cometmq.nameserver")

    def printed() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [line for line in lines if line.startswith("key value ")]

    async def first() -> None:
        async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
            for key in ("one", "two"):
                assert (await call(peer, Request.PUT_KV_CONFIG, namespace="ns", key=key, value=f"v {key}")).code == 0

    async def second() -> None:
        async with nameserver(tmp_path, clock) as server, RawPeer.connected(server.port) as peer:
            assert (await call(peer, Request.GET_KV_CONFIG, namespace="ns", key="one")).ext == {"value": "v one"}
            assert (await call(peer, Request.GET_KV_CONFIG, namespace="ns", key="absent")).code == 22
            assert (await call(peer, Request.GET_KVLIST_BY_NAMESPACE, namespace="absent")).code == 22
            assert (await call(peer, Request.DELETE_KV_CONFIG, namespace="ns", key="absent")).code == 0
            answer = await call(peer, Request.GET_KVLIST_BY_NAMESPACE, namespace="ns")
            assert KVTable.decode(answer.body).table == {"one": "v one", "two": "v two"}
            expected = [f"key value namespace=ns key={key} value=v {key}" for key in ("one", "two")]
            clock.advance(59)
            assert printed() == []
            clock.advance(1)
            assert printed() == expected
            clock.advance(599)
            assert printed() == []
            clock.advance(1)
            assert printed() == expected

    run(first())
    run(second())


async def test_a_put_that_cannot_be_saved_is_refused_and_not_seen(tmp_path: Path) -> None:
    directory = tmp_path / "made by the first save"

    async with nameserver(directory) as server, RawPeer.connected(server.port) as peer:
        directory.touch()
        answer = await call(peer, Request.PUT_KV_CONFIG, namespace="ns", key="k", value="v")
        assert answer.code == 1
        assert "nothing was changed" in str(answer.remark)
        assert (await call(peer, Request.GET_KV_CONFIG, namespace="ns", key="k")).code == 22
        directory.unlink()
        assert (await call(peer, Request.PUT_KV_CONFIG, namespace="ns", key="k", value="v")).code == 0


# Lists and administration


@pytest.mark.mission("NS-09")
async def test_the_cluster_is_listed_as_rocketmq_lists_it_byte_for_byte(tmp_path: Path) -> None:
    frames = [f for f in golden_frames() if f["request_code"] == Request.GET_BROKER_CLUSTER_INFO]
    requests, answers = ([f for f in frames if f["kind"] == kind] for kind in ("request", "response"))
    assert requests
    assert len(requests) == len(answers)

    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        await register(peer, "A", "B", broker_addr="127.0.0.1:10911", cluster_name="DefaultCluster")
        for question, answer in zip(requests, answers, strict=True):
            golden = bytes.fromhex(answer["frame_hex"])
            peer.write(bytes.fromhex(question["frame_hex"]))
            assert await peer.reader.readexactly(len(golden)) == golden


@pytest.mark.mission("NS-09")
async def test_lists_show_what_is_registered_and_a_deleted_topic_comes_back_with_its_broker(tmp_path: Path) -> None:
    async def topics(peer: RawPeer, code: int, **ext: str) -> list[str]:
        answer = await call(peer, code, **ext)
        assert answer.code == 0
        return TopicList.decode(answer.body).topic_list

    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        flagged = [TopicConfig(topic_name=f"F{flags}", topic_sys_flag=flags) for flags in (0, 1, 2, 3)]
        await register(peer, *flagged)
        await register(peer, "X", "F0", broker_name="other", broker_addr="10.0.0.2:1", cluster_name="c2")
        everything = Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        assert await topics(peer, everything) == ["F0", "F1", "F2", "F3", "X"]
        assert await topics(peer, Request.GET_TOPICS_BY_CLUSTER, cluster="c2") == ["F0", "X"]
        assert await topics(peer, Request.GET_TOPICS_BY_CLUSTER, cluster="none") == []
        assert await topics(peer, Request.GET_UNIT_TOPIC_LIST) == ["F1", "F3"]
        assert await topics(peer, Request.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["F2", "F3"]
        assert await topics(peer, Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["F2"]
        answer = await call(peer, Request.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        assert answer.body == b'{"brokerAddr":"10.0.0.1:10911","topicList":["broker-a","c1","c2","other"]}'
        answer = await call(peer, Request.GET_BROKER_CLUSTER_INFO)
        assert answer.body.startswith(b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"},')
        assert answer.body.endswith(b'"clusterAddrTable":{"c1":["broker-a"],"c2":["other"]}}')
        answer = await call(peer, Request.GET_BROKER_MEMBER_GROUP, clusterName="c1", brokerName="broker-a")
        assert answer.body == (
            b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c1"}}'
        )
        await call(peer, Request.DELETE_TOPIC_IN_NAMESRV, topic="F1")
        assert "F1" not in await topics(peer, everything)
        await register(peer, *flagged)
        assert "F1" in await topics(peer, everything)
        await call(peer, Request.UPDATE_NAMESRV_CONFIG, b"enableAllTopicList=false\nenableTopicList=false")
        for code in (everything, Request.GET_TOPICS_BY_CLUSTER, Request.GET_UNIT_TOPIC_LIST):
            assert (await call(peer, code, cluster="c1")).code == 1


@pytest.mark.mission("NS-10")
async def test_data_version_and_write_permission_by_request(tmp_path: Path) -> None:
    identity = {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c1", "brokerId": "0"}
    same, other = DataVersion(1, 0, 5).encode(), DataVersion(2, 0, 5).encode()
    clock = ManualClock()

    async with nameserver(tmp_path, clock) as server, RawPeer.connected(server.port) as peer:
        answer = await call(peer, Request.QUERY_DATA_VERSION, same, **identity)
        assert (answer.ext, answer.body) == ({"changed": "true"}, b"")
        await register(peer, TopicConfig(topic_name="A", perm=7), "B", heartbeat_timeout_ms=10_000)
        answer = await call(peer, Request.QUERY_DATA_VERSION, other, **identity)
        assert (answer.ext, answer.body) == ({"changed": "true"}, same)
        await pass_time(clock, 8)
        answer = await call(peer, Request.QUERY_DATA_VERSION, same, **identity)
        assert (answer.ext, answer.body) == ({"changed": "false"}, same)
        await pass_time(clock, 8)
        found = await route(peer, "A")
        assert found is not None, "the live time was not refreshed"
        answer = await call(peer, Request.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert answer.ext == {"wipeTopicCount": "2"}
        found = await route(peer, "A")
        assert found is not None
        assert found.queue_datas[0].perm == 5
        answer = await call(peer, Request.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert answer.ext == {"addTopicCount": "2"}
        found = await route(peer, "A")
        assert found is not None
        assert found.queue_datas[0].perm == 6


async def test_a_code_without_handler_is_answered_3_and_a_one_way_request_not_at_all(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        oneway = asked(Request.BROKER_HEARTBEAT, {"clusterName": "c", "brokerAddr": "a", "brokerName": "b"})
        oneway.flag = 2
        peer.write(encode(oneway))
        assert (await call(peer, Request.SEND_MESSAGE)).code == 3


async def test_both_queue_lengths_are_logged_every_second_where_somebody_wants_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    caplog.set_level(logging.INFO, "cometmq.nameserver.watermark")

    async with nameserver(tmp_path, clock):
        clock.advance(9)
        assert not caplog.records
        clock.advance(3)
        assert [record.getMessage() for record in caplog.records] == [
            "water mark route_waiting=0 route_refused=0 default_waiting=0 default_refused=0"
        ] * 3


@pytest.mark.parametrize(
    ("fields", "topics"),
    [
        ({"broker_name": "../../outside"}, ("A",)),
        ({"broker_name": "a/b"}, ("A",)),
        ({"broker_name": "a\nWARNING forged"}, ("A",)),
        ({"broker_name": "b" * 256}, ("A",)),
        ({"cluster_name": "c/../d"}, ("A",)),
        ({"broker_addr": "10.0.0.1:1\n"}, ("A",)),
        ({}, ("A", "a/../b")),
        ({}, ("A", "a\rb")),
        ({}, ("A", TopicConfig(topic_name="wide", read_queue_nums=2**31 - 1))),
        ({}, ("A", TopicConfig(topic_name="narrow", write_queue_nums=-1))),
    ],
)
async def test_a_registration_with_a_name_or_number_that_may_not_be_is_refused(
    tmp_path: Path, fields: dict[str, Any], topics: tuple[str | TopicConfig, ...]
) -> None:
    async with nameserver(tmp_path) as server, RawPeer.connected(server.port) as peer:
        answer = await peer.call(registration("B", *topics, **fields))
        assert answer.code == 29, answer.remark
        assert answer.remark
        assert server.state.routes.brokers == {}
        assert server.state.routes.topics == {}
