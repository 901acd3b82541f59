"""Topics that a broker makes by itself: at its start, and by the first message. With real name servers."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.server import Broker
from cometmq.wire.bodies import TopicConfigTable, TopicRoute
from cometmq.wire.codes import Request, Response
from cometmq.wire.frame import FrameSplitter
from tests.nameserver.support import nameserver, route
from tests.support.brokers import Peer, add_topic, running_broker, send_request, until_routed
from tests.support.golden import golden_frames, golden_store
from tests.support.net import RawPeer, until


def saved_topics(directory: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((directory / "store/config/topics.json").read_text())["topicConfigTable"]
    return table


def queues(found: TopicRoute) -> dict[str, tuple[int, int, int]]:
    return {
        data.broker_name or "": (data.read_queue_nums, data.write_queue_nums, data.perm) for data in found.queue_datas
    }


@pytest.mark.mission("TO-01")
async def test_the_template_topic_is_there_with_auto_creation_and_only_then(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as names, RawPeer.connected(names.port) as asking:
        async with running_broker(tmp_path, namesrvAddr=names.address) as broker:
            assert queues(await until_routed(asking, "TBW102")) == {"broker-a": (8, 8, 7)}
            await broker.rooms.settled()
            saved = saved_topics(tmp_path)["TBW102"]
            assert (saved["readQueueNums"], saved["writeQueueNums"], saved["perm"]) == (8, 8, 7)

        settings = {"namesrvAddr": names.address, "autoCreateTopicEnable": False}
        async with running_broker(tmp_path, **settings) as broker, Peer.of(broker) as peer:
            await until_routed(asking, "BenchmarkTest")
            assert await route(asking, "TBW102") is None
            await broker.rooms.settled()
            assert "TBW102" not in saved_topics(tmp_path)
            answer = await peer.send("Unknown")
            assert answer.code == Response.TOPIC_NOT_EXIST
            assert "autoCreateTopicEnable" in (answer.remark or "")


@pytest.mark.mission("TO-02")
async def test_the_first_message_makes_the_topic_saves_it_and_tells_the_name_servers(tmp_path: Path) -> None:
    """The message is a frame that a Java producer wrote."""
    row = next(row for row in golden_frames() if row["request_code"] == 310 and row["kind"] == "request")
    frame = bytes.fromhex(row["frame_hex"])
    topic = FrameSplitter().feed(frame)[0].ext["b"]

    async with (
        nameserver(tmp_path / "n1") as first,
        nameserver(tmp_path / "n2") as second,
        running_broker(tmp_path, namesrvAddr=f"{first.address};{second.address}") as broker,
        RawPeer.connected(broker.port) as producer,
        RawPeer.connected(first.port) as asking_first,
        RawPeer.connected(second.port) as asking_second,
    ):
        counter = broker.tables.topics.data_version.counter
        assert await route(asking_first, topic) is None
        began_s = time.monotonic()
        producer.write(frame)
        assert (await producer.receive()).code == 0
        for asking in (asking_first, asking_second):
            assert queues(await until_routed(asking, topic)) == {"broker-a": (4, 4, 6)}
        assert time.monotonic() - began_s < 5, "not by the clock, every 30 s"
        await broker.rooms.settled()
        saved = saved_topics(tmp_path)[topic]
        assert (saved["readQueueNums"], saved["writeQueueNums"], saved["perm"]) == (4, 4, 6)
        assert broker.tables.topics.data_version.counter == counter + 1


async def test_only_the_broker_that_got_the_message_has_the_topic(tmp_path: Path) -> None:
    """The trap: clients spread over all brokers of the template, until they see the real route."""
    async with (
        nameserver(tmp_path) as names,
        running_broker(tmp_path / "a", namesrvAddr=names.address, brokerName="a") as first,
        running_broker(tmp_path / "b", namesrvAddr=names.address, brokerName="b") as second,
        RawPeer.connected(names.port) as asking,
        Peer.of(first) as peer,
    ):
        assert queues(await until_routed(asking, "TBW102")).keys() == {"a", "b"}
        await peer.send("Trap")
        assert queues(await until_routed(asking, "Trap")).keys() == {"a"}
        assert second.tables.topics.get("Trap") is None


async def test_queues_of_a_new_topic_are_what_producer_and_template_agree_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "Template", 2, perm=7)
        for topic, fields, count in (
            ("Few", {"default_topic_queue_nums": 3}, 3),
            ("Many", {"default_topic_queue_nums": 100}, 8),
            ("Own", {"default_topic": "Template"}, 2),
            ("%RETRY%group", {}, 1),
        ):
            assert (await peer.send(topic, **fields)).code == 0
            made = broker.tables.topics.table[topic]
            assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (count, count, 6)


@pytest.mark.mission("TO-04")
async def test_a_fresh_broker_has_the_golden_system_topics(tmp_path: Path) -> None:
    golden = TopicConfigTable.decode((golden_store("clean") / "config/topics.json").read_bytes()).topic_config_table

    async with running_broker(tmp_path, brokerName="broker-golden", defaultTopicQueueNums=4) as broker:
        own = {
            name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
            for name, topic in broker.tables.topics.table.items()
        }
        theirs = {
            name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm)
            for name, topic in golden.items()
            if not name.startswith(("Golden", "%RETRY%", "%DLQ%"))
        }
        assert own == theirs


@pytest.mark.mission("TO-04")
@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"])
async def test_a_client_can_neither_redefine_nor_send_to_a_closed_system_topic(tmp_path: Path, topic: str) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        before = broker.tables.topics.table[topic]
        update = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "order": False,
        }  # fmt: skip
        assert (await peer.call(Request.UPDATE_AND_CREATE_TOPIC, **update)).code == Response.INVALID_PARAMETER
        assert (await peer.send(topic)).code == Response.NO_PERMISSION
        assert broker.tables.topics.table[topic] == before
        assert broker.store.log.max_offset == 0


async def test_a_burst_of_new_topics_is_told_in_few_registrations(tmp_path: Path) -> None:
    async with (
        nameserver(tmp_path) as names,
        running_broker(tmp_path, namesrvAddr=names.address) as broker,
        RawPeer.connected(broker.port) as producer,
        RawPeer.connected(names.port) as asking,
    ):
        sent = broker.rooms.replicas.registration.sent
        for number in range(200):
            producer.send(send_request(f"Burst{number}"))
        for _ in range(200):
            assert (await producer.receive()).code == 0
        await until_routed(asking, "Burst199")
        assert all([await route(asking, f"Burst{number}") for number in range(200)])
        later = broker.rooms.replicas.registration.sent - sent
        assert later < 50, "one registration gathers what changed during the last one"


async def test_topics_survive_a_restart_with_their_version(tmp_path: Path) -> None:
    async def version_and_topics(broker: Broker) -> tuple[object, object]:
        await until(lambda: broker.tables.topics.get("Kept") is not None)
        return broker.tables.topics.data_version, broker.tables.topics.table

    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("Kept")
        before = await version_and_topics(broker)
    async with running_broker(tmp_path) as broker:
        assert await version_and_topics(broker) == before
