"""Pulls: what is checked, what is read, where to go on. Waiting pulls: tests/broker/consume/test_long_poll.py"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.wire.bodies import ConsumerData, HeartbeatData, SubscriptionGroupConfig
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.record.message import decode_records
from tests.support.brokers import Peer, add_topic, pull_request, running_broker
from tests.support.net import RawPeer

BULK = 4 | 1 << 16
PLACES = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


# Checks, in order


Prepare = Callable[[Broker], object]


def group(broker: Broker, **fields: Any) -> None:
    broker.tables.groups.update([SubscriptionGroupConfig(group_name="consumers", **fields)])


NOTHING: Prepare = lambda broker: None  # noqa: E731 - a table of small things

CHECKS: dict[str, tuple[dict[str, object], Prepare, dict[str, Any], int, int | None]] = {
    "broker not readable": ({"brokerPermission": 2}, NOTHING, {}, 16, 1),
    "lite pull switched off": ({"litePullMessageEnable": False}, NOTHING, {"code": Request.LITE_PULL_MESSAGE}, 16, 1),
    "group unknown": ({"autoCreateSubscriptionGroup": False}, NOTHING, {}, 26, None),
    "group with a bad name": ({}, NOTHING, {"group": "a b"}, 26, None),
    "group switched off": ({}, lambda broker: group(broker, consume_enable=False), {}, 16, 2),
    "topic unknown": ({}, NOTHING, {"topic": "Unknown"}, 17, None),
    "topic not readable": ({}, lambda broker: add_topic(broker, "TopicA", perm=2), {}, 16, 3),
    "queue behind the last": ({}, NOTHING, {"queue_id": 4}, 29, None),
    "negative queue": ({}, NOTHING, {"queue_id": -1}, 29, None),
    "expression without a tag": ({}, NOTHING, {"tags": " || "}, 23, None),
    "group without a heartbeat": ({}, NOTHING, {"tags": None}, 24, None),
    "SQL while it is switched off": ({}, NOTHING, {"tags": "a > 1", "expression_type": "SQL92"}, 1, None),
    "not connected": ({"rejectPullConsumerEnable": True}, NOTHING, {}, 24, None),
}


@pytest.mark.parametrize("case", CHECKS)
async def test_a_pull_that_may_not_be_is_refused_with_its_code(tmp_path: Path, case: str) -> None:
    settings, prepare, fields, code, rule = CHECKS[case]

    async with running_broker(tmp_path, **settings) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        prepare(broker)
        # With permission to wait: a refusal must not be parked.
        given = {"topic": "TopicA", "suspend_ms": 15_000, **fields}
        answer = await peer.pull(given.pop("topic"), **given)
        assert answer.code == code, answer.remark
        assert len(answer.remark or "") > 15
        assert answer.ext == ({} if rule is None else {"forbiddenType": str(rule)})


@pytest.mark.parametrize("field", ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "subVersion"])
async def test_a_missing_field_is_code_1_and_named(tmp_path: Path, field: str) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        command = pull_request("TopicA")
        del command.ext[field]
        answer = await peer.ask(command)
        assert answer.code == Response.SYSTEM_ERROR
        assert field in (answer.remark or "").split()


async def test_checks_against_the_heartbeat_of_the_group(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        add_topic(broker, "TopicB")
        await peer.heartbeat("consumers", topics={"TopicA": "*"})
        assert (await peer.pull("TopicA", tags=None, sub_version=1)).code == 19
        assert (await peer.pull("TopicB", tags=None)).code == Response.SUBSCRIPTION_NOT_EXIST
        assert (await peer.pull("TopicA", tags=None, sub_version=2)).code == Response.SUBSCRIPTION_NOT_LATEST
        broker.tables.groups.allow_reading("consumers", "TopicA", False)
        barred = await peer.pull("TopicA", tags=None)
        assert (barred.code, barred.ext) == (16, {"forbiddenType": "5"})

        await peer.heartbeat("spreading", topics={"TopicA": "*"}, model="BROADCASTING")
        assert (await peer.pull("TopicA", tags=None, group="spreading")).code == 19
        broker.tables.groups.update([SubscriptionGroupConfig(group_name="spreading", consume_broadcast_enable=False)])
        barred = await peer.pull("TopicA", tags=None, group="spreading")
        assert (barred.code, barred.ext) == (16, {"forbiddenType": "4"})


async def test_a_pull_consumer_is_served_where_it_is_connected_when_others_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer, Peer.of(broker) as stranger:
        add_topic(broker, "TopicA")
        active = ConsumerData(group_name="consumers", consume_type="CONSUME_ACTIVELY", message_model="CLUSTERING")
        body = HeartbeatData(client_id="c", consumer_data_set=[active]).encode()
        assert (await peer.call(Request.HEART_BEAT, body)).code == 0
        await broker.rooms.admin.changes.change(b"rejectPullConsumerEnable=true")
        assert (await peer.pull("TopicA")).code == 19
        assert (await stranger.pull("TopicA")).code == Response.SUBSCRIPTION_NOT_EXIST
        assert (await stranger.pull("TopicA", group="CID_RMQ_SYS_x")).code == 19


# Reading


async def test_every_outcome_says_where_to_go_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        for number in range(3):
            await peer.send("TopicA", b"%d" % number, properties={"TAGS": "a"})
        for fields, code, remark, next_offset in (
            ({"offset": 0}, 0, "FOUND", 3),
            ({"offset": 2}, 0, "FOUND", 3),
            ({"offset": 3}, 19, "OFFSET_OVERFLOW_ONE", 3),
            ({"offset": 4}, 21, "OFFSET_OVERFLOW_BADLY", 3),
            ({"offset": 2**62}, 21, "OFFSET_OVERFLOW_BADLY", 3),
            ({"offset": -1}, 21, "OFFSET_TOO_SMALL", 0),
            ({"offset": 0, "tags": "other"}, 20, "NO_MATCHED_MESSAGE", 3),
            ({"offset": 0, "queue_id": 1}, 19, "NO_MATCHED_LOGIC_QUEUE", 0),
            ({"offset": 7, "queue_id": 1}, 21, "NO_MATCHED_LOGIC_QUEUE", 0),
        ):
            given: dict[str, Any] = dict(fields)
            answer = await peer.pull("TopicA", **given)
            assert (answer.code, answer.remark) == (code, remark)
            assert answer.ext.keys() == {*PLACES, "topicSysFlag", "groupSysFlag"}
            assert int(answer.ext["nextBeginOffset"]) == next_offset, remark
            end = 3 if "queue_id" not in given else 0
            assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", str(end))


@pytest.mark.parametrize("count", [-5, 0, 1, 2**31 - 1])
async def test_any_count_brings_at_least_one_and_at_most_what_the_store_allows(tmp_path: Path, count: int) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        for _ in range(40):
            await peer.send("TopicA")
        answer = await peer.pull("TopicA", count=count)
        assert answer.code == 0
        assert len(bodies(answer)) == (32 if count > 32 else 1)


async def test_a_bulk_reader_gets_as_much_as_it_asks_for_up_to_the_bound(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        for _ in range(100):
            await peer.send("TopicA", queue_id=0, body=bytes(1000))
        assert len(bodies(await peer.pull("TopicA", count=80, sys_flag=BULK))) == 80
        assert len(bodies(await peer.pull("TopicA", count=80, sys_flag=BULK, max_msg_bytes=5000))) == 4


async def test_tags_are_filtered_by_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        for tag in "abcabc":
            await peer.send("TopicA", tag.encode(), properties={"TAGS": tag})
        await peer.send("TopicA", b"none")
        assert bodies(await peer.pull("TopicA", tags="a || c")) == [b"a", b"c", b"a", b"c"]
        assert len(bodies(await peer.pull("TopicA", tags="*"))) == 7
        await peer.heartbeat("consumers", topics={"TopicA": "b"})
        answer = await peer.pull("TopicA", tags=None)
        assert bodies(answer) == [b"b", b"b"]
        assert answer.ext["nextBeginOffset"] == "7", "what did not match is passed over"


async def test_flags_of_topic_and_group_are_passed_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", topic_sys_flag=3)
        group(broker, group_sys_flag=5)
        answer = await peer.pull("TopicA")
        assert (answer.ext["topicSysFlag"], answer.ext["groupSysFlag"]) == ("3", "5")


async def test_a_lite_pull_is_a_pull_and_the_fast_port_serves_neither(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", b"x")
        assert bodies(await peer.pull("TopicA", code=Request.LITE_PULL_MESSAGE)) == [b"x"]
        async with RawPeer.connected(broker.port - 2) as fast:
            for code in (Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE):
                answer = await fast.call(pull_request("TopicA", code=code))
                assert answer.code == Response.REQUEST_CODE_NOT_SUPPORTED
                assert str(code) in (answer.remark or "")


async def test_a_pending_reset_moves_the_pull_once_and_keeps_its_offset(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        for _ in range(5):
            await peer.send("TopicA")
        broker.tables.offsets.assign_reset("consumers", "TopicA", 0, 2)
        answer = await peer.pull("TopicA", offset=5, commit=5)
        assert (answer.code, answer.remark, answer.ext["nextBeginOffset"]) == (21, "OFFSET_RESET", "2")
        assert broker.tables.offsets.query("consumers", "TopicA", 0) == 2, "the commit is from before the reset"
        answer = await peer.pull("TopicA", offset=2, commit=3)
        assert answer.code == 0
        assert broker.tables.offsets.query("consumers", "TopicA", 0) == 3


async def test_a_cold_read_is_answered_when_its_pages_are_loaded(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        for number in range(3):
            await peer.send("TopicA", b"%d" % number)
    # A restart: what is in the log may not be in memory.
    reborn = disk.kill()
    async with running_broker(tmp_path, clock, reborn) as broker, Peer.of(broker) as peer:
        reborn.cold_paths.update(segment.file.path for segment in broker.store.segments.segments)
        before = reborn.calls["pread"]
        answer = await peer.pull("TopicA", commit=1)
        assert bodies(answer) == [b"0", b"1", b"2"]
        assert reborn.calls["pread"] > before, "the read thread has loaded them"
        assert broker.tables.offsets.query("consumers", "TopicA", 0) == 1
        assert broker.rooms.families["pull"].waiting == 0
