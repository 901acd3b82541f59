"""Pulls with a filter, over sockets: by tags, by properties, by a class that nobody runs any more."""

import ast
import json
from pathlib import Path

import pytest

import cometmq.broker
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.wire.bodies import CheckClientConfig, ConsumeQueuePage, ConsumerData, HeartbeatData, SubscriptionData
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.record.message import decode_records
from tests.support.brokers import Peer, add_topic, pull_request, running_broker
from tests.support.expressions import MESSAGES, REFUSED, SELECTED
from tests.support.net import RawPeer, until

SQL = "SQL92"
SUSPEND_MS = 15_000
FLAG_CLASS_FILTER = 8


def bodies(answer: Command) -> list[str]:
    return [message.body.decode() for message in decode_records(answer.body)] if answer.body else []


async def subscribe(peer: Peer, expression: str, version: int = 1, group: str = "consumers", kind: str = SQL) -> None:
    wanted = SubscriptionData(topic="TopicA", sub_string=expression, sub_version=version, expression_type=kind)
    consumer = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=[wanted],
    )
    body = HeartbeatData(client_id="client-1", consumer_data_set=[consumer]).encode()
    assert (await peer.call(Request.HEART_BEAT, body)).code == 0


async def send_all(peer: Peer) -> None:
    for name, properties in MESSAGES.items():
        await peer.send("TopicA", name.encode(), properties=properties)


# Tags


@pytest.mark.mission("FI-01")
async def test_records_whose_tag_is_not_wanted_are_not_read(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        for number in range(40):
            tag = {7: "Aa", 11: "BB"}.get(number, "other")
            await peer.send("TopicA", b"%d" % number, properties={"TAGS": tag})
    # After a restart nothing of the log is in memory, so that every record that is touched is read from the disk.
    reborn = disk.kill()
    async with running_broker(tmp_path, clock, reborn) as broker, Peer.of(broker) as peer:
        paths = {segment.file.path for segment in broker.store.segments.segments}
        reborn.cold_paths.update(paths)
        reads: list[str] = []
        reborn.on_call = lambda operation, path: reads.append(operation) if path in paths else None
        answer = await peer.pull("TopicA", tags="nobody")
        assert (answer.code, answer.ext["nextBeginOffset"]) == (Response.PULL_RETRY_IMMEDIATELY, "40")
        assert reads.count("pread") == 0
        answer = await peer.pull("TopicA", tags="Aa")
        assert bodies(answer) == ["7", "11"], "tags with one hash both pass; the client compares their texts"
        assert reads.count("pread") == 2


# Properties


@pytest.mark.mission("FI-02")
async def test_a_pull_by_heartbeat_or_with_its_own_expression_gets_what_the_expression_selects(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enablePropertyFilter=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        await send_all(peer)
        for version, (expression, selected) in enumerate(SELECTED.items()):
            await subscribe(peer, expression, version)
            answer = await peer.pull("TopicA", tags=None, sub_version=version)
            assert set(bodies(answer)) == selected, expression
            assert answer.ext["nextBeginOffset"] == str(len(MESSAGES))
            assert answer.code == (0 if selected else Response.PULL_RETRY_IMMEDIATELY)
            answer = await peer.pull("TopicA", tags=expression, expression_type=SQL, group="others")
            assert set(bodies(answer)) == selected, expression


@pytest.mark.mission("FI-02")
async def test_a_wrong_expression_is_refused_with_its_reason(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enablePropertyFilter=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        for version, expression in enumerate(REFUSED):
            wanted = SubscriptionData(topic="TopicA", sub_string=expression, expression_type=SQL)
            asked = CheckClientConfig(client_id="c", group="consumers", subscription_data=wanted)
            checked = await peer.call(Request.CHECK_CLIENT_CONFIG, asked.encode())
            assert checked.code == Response.SUBSCRIPTION_PARSE_FAILED, expression
            assert len(checked.remark or "") > 15
            answer = await peer.pull("TopicA", tags=expression, expression_type=SQL, suspend_ms=SUSPEND_MS)
            assert answer.code == Response.SUBSCRIPTION_PARSE_FAILED, expression
            await subscribe(peer, expression, version)
            answer = await peer.pull("TopicA", tags=None, sub_version=version, suspend_ms=SUSPEND_MS)
            assert answer.code == Response.FILTER_DATA_NOT_EXIST, expression
        answer = await peer.pull("TopicA", tags="//a", expression_type="XPATH")
        assert answer.code == Response.SUBSCRIPTION_PARSE_FAILED
        assert "XPATH" in (answer.remark or "")


async def test_a_pull_that_is_ahead_of_the_filter_is_told_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enablePropertyFilter=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        await subscribe(peer, "a > 5", 2)
        assert (await peer.pull("TopicA", tags=None, sub_version=2)).code == Response.PULL_NOT_FOUND
        known = broker.tables.property_filters.find("consumers", "TopicA")
        assert known is not None
        known.version = 1
        assert (await peer.pull("TopicA", tags=None, sub_version=2)).code == Response.FILTER_DATA_NOT_LATEST
        await subscribe(peer, "a > 5", 2)
        assert (await peer.pull("TopicA", tags=None, sub_version=2)).code == Response.PULL_NOT_FOUND


async def test_filters_that_are_switched_on_serve_consumers_that_are_there(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        await send_all(peer)
        await subscribe(peer, "a > 5")
        answer = await peer.pull("TopicA", tags=None, sub_version=1)
        assert answer.code == Response.SYSTEM_ERROR
        assert "enablePropertyFilter" in (answer.remark or "")
        await broker.rooms.admin.changes.change(b"enablePropertyFilter=true")
        answer = await peer.pull("TopicA", tags=None, sub_version=1)
        assert set(bodies(answer)) == SELECTED["a > 5"]
        await broker.rooms.admin.changes.change(b"enablePropertyFilter=false")
        assert (await peer.pull("TopicA", tags=None, sub_version=1)).code == Response.SYSTEM_ERROR


@pytest.mark.mission("FI-02")
@pytest.mark.parametrize("by", ["heartbeat", "pull"])
async def test_a_parked_pull_is_woken_by_properties(tmp_path: Path, by: str) -> None:
    async with (
        running_broker(tmp_path, ManualClock(), enablePropertyFilter=True) as broker,
        RawPeer.connected(broker.port) as waiting,
        Peer.of(broker) as peer,
    ):
        add_topic(broker, "TopicA", 1)
        if by == "heartbeat":
            await subscribe(peer, "a > 5")
            command = pull_request("TopicA", suspend_ms=SUSPEND_MS, tags=None, sub_version=1)
        else:
            command = pull_request("TopicA", suspend_ms=SUSPEND_MS, tags="a > 5", expression_type=SQL)
        waiting.send(command)
        await until(lambda: broker.rooms.consume.longpoll.count == 1)
        # Time stands still: nothing but a matching message can end the wait.
        for properties in ({}, {"a": "5"}, {"a": "x"}, {"b": "6"}):
            await peer.send("TopicA", b"unwanted", properties=properties)
            assert broker.rooms.consume.longpoll.count == 1
        await peer.send("TopicA", b"wanted", properties={"a": "6"})
        answer = await waiting.receive()
        assert bodies(answer) == ["wanted"]
        assert answer.ext["nextBeginOffset"] == "5"


async def test_a_costly_expression_looks_through_less_at_a_time(tmp_path: Path) -> None:
    """Every message takes a part of a millisecond, and others want to be served too."""
    expression = " OR ".join(f"a = {number}" for number in range(350))

    async with running_broker(tmp_path, enablePropertyFilter=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        for _ in range(99):
            await peer.send("TopicA", b"unwanted", properties={"a": "-1"})
        await peer.send("TopicA", b"wanted", properties={"a": "349"})
        offset, pulls = 0, 0
        while True:
            answer = await peer.pull("TopicA", offset=offset, tags=expression, expression_type=SQL)
            if answer.code != Response.PULL_RETRY_IMMEDIATELY:
                break
            pulls += 1
            assert offset < int(answer.ext["nextBeginOffset"]) <= offset + 50
            offset = int(answer.ext["nextBeginOffset"])
        assert bodies(answer) == ["wanted"]
        assert pulls >= 2


async def test_an_operator_sees_the_filter_of_a_group(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enablePropertyFilter=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        await send_all(peer)
        await subscribe(peer, "a > 5", 3)
        await subscribe(peer, "TagA", group="others", kind="TAG")
        wanted = {"topic": "TopicA", "queueId": 0, "index": 0, "count": 2}
        shown = await peer.call(Request.QUERY_CONSUME_QUEUE, consumerGroup="consumers", **wanted)
        page = ConsumeQueuePage.decode(shown.body)
        data = json.loads(page.filter_data or "")
        assert (data["expression"], data["clientVersion"], data["dead"]) == ("a > 5", 3, False)
        assert [entry.eval for entry in page.queue_data] == [True, True], "the queue itself excludes nothing"
        shown = await peer.call(Request.QUERY_CONSUME_QUEUE, consumerGroup="others", **wanted)
        assert ConsumeQueuePage.decode(shown.body).filter_data == "null"


# Retried messages


@pytest.mark.parametrize("filtered", [True, False])
async def test_retried_messages_are_filtered_if_that_is_wanted(tmp_path: Path, filtered: bool) -> None:
    settings = {"enablePropertyFilter": True, "filterSupportRetry": filtered}
    async with (
        running_broker(tmp_path, ManualClock(), **settings) as broker,
        RawPeer.connected(broker.port) as waiting,
        Peer.of(broker) as peer,
    ):
        retry = "%RETRY%consumers"
        await subscribe(peer, "a > 5")
        for body, properties in (
            (b"wanted", {"a": "6", "RETRY_TOPIC": "TopicA"}),
            (b"unwanted", {"a": "5", "RETRY_TOPIC": "TopicA"}),
            (b"of another topic", {"a": "5", "RETRY_TOPIC": "TopicB"}),
            (b"of nowhere", {"a": "5"}),
        ):
            await peer.send(retry, body, properties=properties)
        expected = ["wanted", "unwanted", "of another topic", "of nowhere"]
        if filtered:
            expected.remove("unwanted")
        assert bodies(await peer.pull(retry)) == expected
        waiting.send(pull_request(retry, offset=4, suspend_ms=SUSPEND_MS))
        await until(lambda: broker.rooms.consume.longpoll.count == 1)
        await peer.send(retry, b"later", properties={"a": "5", "RETRY_TOPIC": "TopicA"})
        assert broker.rooms.consume.longpoll.count == (1 if filtered else 0)
        await peer.send(retry, b"last", properties={"a": "7", "RETRY_TOPIC": "TopicA"})
        assert bodies(await waiting.receive()) == (["last"] if filtered else ["later"])


# Life cycle


def on_disk(broker: Broker) -> dict[str, bool]:
    """Groups with a filter for TopicA, and whether it is dead."""
    path = Path(broker.settings.store_options.path("config", "consumerFilter.json"))
    if not path.exists():
        return {}
    filters = json.loads(path.read_text())["filterDataByTopic"].get("TopicA", {"groupFilterData": {}})
    return {group: data["dead"] for group, data in filters["groupFilterData"].items()}


async def test_filters_are_saved_every_10_seconds_and_at_the_stop_and_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"enablePropertyFilter": True, "filterDataCleanTimeSpan": 60_000}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        await send_all(peer)
        await subscribe(peer, "a > 5")
        assert on_disk(broker) == {}
        clock.advance(10)
        await until(lambda: on_disk(broker) == {"consumers": False})
        async with Peer.of(broker) as other:
            await subscribe(other, "a > 6", group="leaving")
        await until(lambda: broker.tables.consumers.get("leaving") is None)
    assert on_disk(broker) == {"consumers": True, "leaving": True}, "the last members left before the file"
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        known = broker.tables.property_filters.find("consumers", "TopicA")
        assert known is not None
        assert known.dead_ms
        await subscribe(peer, "a > 5")
        assert broker.tables.property_filters.find("consumers", "TopicA") is known
        assert not known.dead_ms
        answer = await peer.pull("TopicA", tags=None, sub_version=1)
        assert set(bodies(answer)) == SELECTED["a > 5"]
        clock.advance(70)
        assert broker.tables.property_filters.find("leaving", "TopicA") is None
        assert broker.tables.property_filters.find("consumers", "TopicA") is known


# Classes


@pytest.mark.mission("FI-03")
@pytest.mark.parametrize("inline", [True, False])
async def test_a_pull_with_the_class_filter_bit_gets_everything(tmp_path: Path, inline: bool) -> None:
    async with running_broker(tmp_path, enablePropertyFilter=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 1)
        await peer.send("TopicA", b"one", properties={"TAGS": "A"})
        await peer.send("TopicA", b"two")
        await subscribe(peer, "com.example.Filter", kind="TAG")
        flags = FLAG_CLASS_FILTER | (4 if inline else 0)
        answer = await peer.pull("TopicA", tags="com.example.Filter", sys_flag=flags, sub_version=1)
        assert bodies(answer) == ["one", "two"]
        answer = await peer.pull("TopicA", tags="a >", expression_type=SQL, sys_flag=FLAG_CLASS_FILTER | 4)
        assert bodies(answer) == ["one", "two"]
        answer = await peer.pull("TopicA", sys_flag=FLAG_CLASS_FILTER, group="unknown")
        assert answer.code == Response.SUBSCRIPTION_NOT_EXIST


@pytest.mark.mission("FI-03")
async def test_source_that_a_client_sends_is_not_taken(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        source = b"class Filter { boolean match() { System.exit(1); } }"
        answer = await peer.call(
            Request.REGISTER_MESSAGE_FILTER_CLASS, source, consumerGroup="g", className="Filter"
        )
        assert answer.code == Response.REQUEST_CODE_NOT_SUPPORTED
        wanted = SubscriptionData(topic="TopicA", sub_string="com.example.Filter", class_filter_mode=True)
        body = json.loads(wanted.encode())
        body["filterClassSource"] = source.decode()
        consumer = {"groupName": "g", "messageModel": "CLUSTERING", "subscriptionDataSet": [body]}
        heartbeat = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
        assert (await peer.call(Request.HEART_BEAT, heartbeat)).code == 0
        add_topic(broker, "TopicA", 1)
        await peer.send("TopicA", b"one", properties={"TAGS": "A"})
        assert bodies(await peer.pull("TopicA", tags=None, group="g")) == ["one"]


@pytest.mark.mission("FI-03")
def test_nothing_in_the_broker_can_run_a_text() -> None:
    names = {"eval", "exec", "compile", "__import__", "import_module", "run_path", "run_module", "Popen", "system"}
    for path in sorted(Path(cometmq.broker.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = node.func
                owner = called.value if isinstance(called, ast.Attribute) else None
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                is_regular_expression = isinstance(owner, ast.Name) and owner.id == "re"
                assert name not in names or is_regular_expression, f"{path}:{node.lineno} calls {name}"
