"""Sends: what is checked, what is stored, what is answered. One real broker per test, over a socket."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.produce.hooks import SendContext
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.bodies import TopicConfig
from cometmq.wire.codes import Language, Request, Response
from cometmq.wire.command import JSON, ROCKETMQ, Command
from cometmq.wire.frame import FrameSplitter
from cometmq.wire.record import properties
from cometmq.wire.record.batch import split_batch
from cometmq.wire.record.message import StoredMessage, decode_record, decode_records
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.scan import OK, scan_record
from cometmq.wire.record.sysflag import INNER_BATCH, NEEDS_UNWRAP
from tests.support.aio import run, settle
from tests.support.brokers import (
    BORN_MS,
    Peer,
    add_topic,
    batch_request,
    broker_settings,
    running_broker,
    send_request,
    stored,
)
from tests.support.golden import golden_commitlog, golden_frames
from tests.support.net import RawPeer, until

REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def props(message: StoredMessage) -> dict[str, str]:
    return properties.decode(message.properties)


def timeless(message: StoredMessage) -> tuple[Any, ...]:
    """All of a record but times, places and ids."""
    kept = {name: value for name, value in props(message).items() if name != "UNIQ_KEY"}
    return (
        message.topic, message.queue_id, message.flag, message.sys_flag, message.body, message.born_timestamp_ms,
        message.reconsume_times, message.prepared_transaction_offset, kept,
    )  # fmt: skip


# Codes and fields


@pytest.mark.mission("SE-01")
async def test_the_same_message_in_both_spellings_is_stored_alike(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        for code in (Request.SEND_MESSAGE, Request.SEND_MESSAGE_V2):
            answer = await peer.send(
                "TopicA", b"same", code=code, flag=7, sys_flag=1, reconsume_times=2, unit_mode=True,
                properties={"KEYS": "k1 k2", "TAGS": "a", "own": "Grüße"},
            )  # fmt: skip
            assert answer.code == 0, answer.remark
        long_names, letters = stored(broker, "TopicA")
        assert timeless(long_names) == timeless(letters)
        assert props(letters)["own"] == "Grüße"


@pytest.mark.mission("SE-01")
@pytest.mark.parametrize(
    ("code", "field"),
    [(Request.SEND_MESSAGE, name) for name in ("producerGroup", "topic", "queueId", "bornTimestamp")]
    + [(code, name) for code in (Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE) for name in "abcdefgh"]
    + [(Request.CONSUMER_SEND_MSG_BACK, "offset"), (Request.CONSUMER_SEND_MSG_BACK, "group")],
)
async def test_a_missing_field_is_code_1_and_named(tmp_path: Path, code: int, field: str) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        command = send_request("TopicA", code=code)
        if code == Request.CONSUMER_SEND_MSG_BACK:
            command.ext = {"offset": "0", "group": "g", "delayLevel": "0"}
        del command.ext[field]
        answer = await peer.ask(command)
        assert answer.code == Response.SYSTEM_ERROR
        assert field in (answer.remark or "").split()
        assert broker.store.log.max_offset == 0


async def test_every_golden_send_of_a_java_or_go_producer_is_stored(tmp_path: Path) -> None:
    """Frames as real clients wrote them, byte for byte."""
    rows = [row for row in golden_frames() if row["kind"] == "request" and row["request_code"] in (10, 310, 320)]
    sends = [bytes.fromhex(row["frame_hex"]) for row in rows]
    assert {FrameSplitter().feed(frame)[0].language for frame in sends} >= {Language.JAVA, Language.GO}

    async with running_broker(tmp_path) as broker, RawPeer.connected(broker.port) as peer:
        for frame in sends:
            (command,) = FrameSplitter().feed(frame)
            peer.write(frame)
            if command.is_oneway:
                continue
            answer = await peer.receive()
            assert (answer.code, answer.opaque, answer.form) == (0, command.opaque, command.form), answer.remark
            assert answer.ext.keys() >= {"msgId", "queueId", "queueOffset", "transactionId", *REGION}


# Hooks, region, start time


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[str, SendContext]] = []

    def before(self, context: SendContext) -> None:
        self.calls.append(("before", context))

    def after(self, context: SendContext) -> None:
        self.calls.append(("after", context))


@pytest.mark.mission("SE-02")
async def test_hooks_see_every_send_once_before_and_once_after(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        hook = Recorder()
        broker.rooms.produce.hooks.add(hook)
        answer = await peer.send("TopicA", b"12345", queue_id=2)
        await peer.send("bad topic!", b"123")
        await peer.send("TopicA", b"x" * (5 << 20))  # over maxMessageSize: the store refuses it
        await peer.send_oneway("TopicA", b"1234567")
        await until(lambda: len(hook.calls) == 8)
        assert [name for name, _ in hook.calls] == ["before", "after"] * 4
        contexts = [context for _, context in hook.calls[::2]]
        assert contexts == [context for _, context in hook.calls[1::2]]
        assert [context.code for context in contexts] == [0, Response.INVALID_PARAMETER, 13, 0]
        assert [context.state for context in contexts] == [
            "SEND_SUCCESS", "SEND_FAILURE", "SEND_FAILURE", "SEND_SUCCESS",
        ]  # fmt: skip
        first = contexts[0]
        assert (first.group, first.topic, first.body_bytes) == ("producers", "TopicA", 5)
        assert (first.message_id, first.queue_id, first.queue_offset) == (answer.ext["msgId"], 2, 0)


@pytest.mark.mission("SE-03")
async def test_region_and_trace_switch_are_in_every_answer(tmp_path: Path) -> None:
    clock = ManualClock()
    opens_ms = clock.now_ms() + 3_600_000
    settings = {"regionId": "north", "traceOn": False}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        bad = send_request("TopicA")
        del bad.ext["b"]
        for command in (send_request("TopicA"), send_request("bad topic!"), bad):
            answer = await peer.ask(command)
            assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("north", "false")
        (message,) = stored(broker, "TopicA")
        assert (props(message)["MSG_REGION"], props(message)["TRACE_ON"]) == ("north", "false")

    texts = {"startAcceptSendRequestTimeStamp": opens_ms}
    async with running_broker(tmp_path / "late", clock, **texts) as broker:
        async with Peer.of(broker) as peer:
            answer = await peer.send("TopicA")
            assert answer.code == Response.SYSTEM_ERROR
            assert str(opens_ms) in (answer.remark or "")
            assert answer.ext == REGION
        await until(lambda: not broker.server.connections)
        clock.advance(3600)
        async with Peer.of(broker) as peer:
            assert (await peer.send("TopicA")).code == 0


# Checks


CHECKS: dict[str, tuple[Callable[[], Command], int]] = {
    "ordered topic while the broker is not writable": (lambda: send_request("Ordered"), Response.NO_PERMISSION),
    "blank name": (lambda: send_request(" "), Response.INVALID_PARAMETER),
    "name with a slash": (lambda: send_request("a/../b"), Response.INVALID_PARAMETER),
    "name with a dot": (lambda: send_request("a.b"), Response.INVALID_PARAMETER),
    "name of 128 characters": (lambda: send_request("t" * 128), Response.INVALID_PARAMETER),
    "retry topic of 256 characters": (lambda: send_request("%RETRY%" + "g" * 249), Response.INVALID_PARAMETER),
    "unknown topic without a template": (
        lambda: send_request("New", default_topic="NoTemplate"), Response.TOPIC_NOT_EXIST,
    ),
    "template that may not be inherited from": (
        lambda: send_request("New", default_topic="Plain"), Response.TOPIC_NOT_EXIST,
    ),
    "queue behind the last": (lambda: send_request("Plain", queue_id=4), Response.INVALID_PARAMETER),
    "huge queue": (lambda: send_request("Plain", queue_id=2**31 - 1), Response.INVALID_PARAMETER),
}  # fmt: skip
for forbidden in (
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_wheel_timer",
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a", "rmq_sys_anything",
):  # fmt: skip
    for kind, fields in (("", {}), ("batch", {"code": Request.SEND_BATCH_MESSAGE, "batch": True}), (
        "first form", {"code": Request.SEND_MESSAGE}), ("reply", {"code": Request.SEND_REPLY_MESSAGE_V2})):
        CHECKS[f"{kind} to closed topic {forbidden}"] = (
            lambda topic=forbidden, fields=fields: send_request(topic, **fields),  # type: ignore[misc]
            Response.NO_PERMISSION,
        )


@pytest.mark.mission("SE-04")
@pytest.mark.parametrize("case", CHECKS)
async def test_a_send_that_may_not_be_is_refused_with_its_code(tmp_path: Path, case: str) -> None:
    make, code = CHECKS[case]

    permission = 4 if "writable" in case else 6
    async with running_broker(tmp_path, brokerPermission=permission) as broker, Peer.of(broker) as peer:
        add_topic(broker, "Plain", 4)
        add_topic(broker, "Ordered", 4, order=True)
        answer = await peer.ask(make())
        assert answer.code == code, answer.remark
        assert len(answer.remark or "") > 15
        assert answer.ext == REGION
        assert broker.store.log.max_offset == 0


async def test_a_broker_that_is_not_writable_still_takes_unordered_messages(tmp_path: Path) -> None:
    async with running_broker(tmp_path, brokerPermission=4) as broker, Peer.of(broker) as peer:
        add_topic(broker, "Plain", 4)
        assert (await peer.send("Plain")).code == 0


async def test_a_queue_beyond_the_write_queues_but_not_the_read_queues_is_taken(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        shrunk = add_topic(broker, "Shrunk", 4)
        shrunk.write_queue_nums = 2
        assert (await peer.send("Shrunk", queue_id=3)).code == 0
        assert len(stored(broker, "Shrunk", 3)) == 1


async def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "Compacted", attributes={"cleanup.policy": "COMPACTION"})
        refused = await peer.send("Compacted")
        assert (refused.code, refused.ext) == (Response.MESSAGE_ILLEGAL, REGION)
        assert "KEYS" in (refused.remark or "")
        assert (await peer.send("Compacted", properties={"KEYS": "k"})).code == 0


async def test_transactional_messages_are_refused_where_they_are_switched_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, rejectTransactionMessage=True) as broker, Peer.of(broker) as peer:
        half = {"TRAN_MSG": "true", "PGROUP": "producers"}
        assert (await peer.send("TopicA", properties=half)).code == Response.NO_PERMISSION
        assert stored(broker, "TopicA") == []
        retried = {**half, "DELAY": "1"}
        assert (await peer.send("TopicA", properties=retried, reconsume_times=1)).code == 0
        assert (await peer.send("TopicA", properties={**half, "DELAY": "0"}, reconsume_times=1)).code == 16


# What is stored


@pytest.mark.mission("SE-05")
async def test_the_record_is_built_from_the_request_and_the_socket(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, RawPeer.connected(broker.port) as peer:
        given = {"KEYS": "k", "POP_CK": "gone", "UNIQ_KEY": "own-id", "CLUSTER": "elsewhere"}
        fields: dict[str, Any] = {"queue_id": 3, "flag": -5, "sys_flag": 0x100, "reconsume_times": 4}
        answer = await peer.call(send_request("TopicA", b"body", properties=given, **fields))
        (message,) = stored(broker, "TopicA", 3)
        assert message.body == b"body"
        assert (message.flag, message.sys_flag, message.queue_offset) == (-5, 0x100, 0)
        assert (message.born_timestamp_ms, message.store_timestamp_ms) == (BORN_MS, clock.now_ms())
        assert message.born_host == (bytes([127, 0, 0, 1]), peer.local_port)
        assert message.store_host == (bytes([127, 0, 0, 1]), broker.port)
        assert (message.reconsume_times, message.prepared_transaction_offset) == (4, 0)
        assert props(message) == {"KEYS": "k", "UNIQ_KEY": "own-id", "CLUSTER": "DefaultCluster", **REGION}
        place = decode_offset_id(answer.ext["msgId"])
        assert (place.address, place.port, place.physical_offset) == (bytes([127, 0, 0, 1]), broker.port, 0)
        assert (answer.ext["transactionId"], answer.ext["queueId"]) == ("own-id", "3")


async def test_a_message_without_a_unique_id_gets_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        ids = [(await peer.send("TopicA")).ext["transactionId"] for _ in range(3)]
        assert [props(message)["UNIQ_KEY"] for message in stored(broker, "TopicA")] == ids
        assert len(set(ids)) == 3


async def test_properties_without_their_last_separator_stay_readable(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        command = send_request("TopicA")
        command.ext["i"] = "UNIQ_KEY\x01u\x02KEYS\x01k"
        assert (await peer.ask(command)).code == 0
        expected = {"UNIQ_KEY": "u", "KEYS": "k", "CLUSTER": "DefaultCluster", **REGION}
        assert props(stored(broker, "TopicA")[0]) == expected


async def test_a_message_that_came_here_before_carries_its_marks_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", properties={"UNIQ_KEY": "u"})
        again = props(stored(broker, "TopicA")[0])
        await peer.send("TopicA", properties=again)
        first, second = stored(broker, "TopicA")
        assert len(second.properties) == len(first.properties)
        assert props(second) == props(first)


@pytest.mark.mission("SE-05")
async def test_a_negative_queue_is_drawn_among_the_write_queues(tmp_path: Path) -> None:
    random.seed(20261115)
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        answers = await asyncio.gather(*(peer.send("TopicA", queue_id=-1) for _ in range(1000)))
        drawn = Counter(int(answer.ext["queueId"]) for answer in answers)
        assert drawn.keys() == {0, 1, 2, 3}
        assert all(150 <= count <= 350 for count in drawn.values()), drawn
        assert {queue: len(stored(broker, "TopicA", queue)) for queue in drawn} == drawn


async def test_the_flag_of_a_multi_tag_topic_is_in_its_records(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "Multi", topic_filter_type="MULTI_TAG")
        await peer.send("Multi", sys_flag=1)
        assert stored(broker, "Multi")[0].sys_flag == 3


# From the put's result to the answer


def result(status: int, remark: str = "") -> PutResult:
    if status <= PutStatus.SLAVE_NOT_AVAILABLE:
        return PutResult(status, 4096, 200, 1, 12, 1, 4296)
    return PutResult(status, remark=remark)


STATUSES = [
    (PutStatus.OK, 0, None),
    (PutStatus.FLUSH_DISK_TIMEOUT, 10, "FLUSH_DISK_TIMEOUT"),
    (PutStatus.FLUSH_SLAVE_TIMEOUT, 12, "FLUSH_SLAVE_TIMEOUT"),
    (PutStatus.SLAVE_NOT_AVAILABLE, 11, "SLAVE_NOT_AVAILABLE"),
    (PutStatus.MESSAGE_ILLEGAL, 13, "why"),
    (PutStatus.PROPERTIES_SIZE_EXCEEDED, 13, "why"),
    (PutStatus.WHEEL_TIMER_MESSAGE_ILLEGAL, 13, "why"),
    (PutStatus.SERVICE_NOT_AVAILABLE, 14, "% full"),
    (PutStatus.OS_PAGE_CACHE_BUSY, 2, "[PC_SYNCHRONIZED]why"),
    (PutStatus.LMQ_QUOTA_EXCEEDED, 2017, "why"),
    (PutStatus.CREATE_FILE_FAILED, 1, "why"),
    (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, 1, "why"),
    (PutStatus.WHEEL_TIMER_FLOW_CONTROL, 1, "why"),
    (PutStatus.WHEEL_TIMER_NOT_ENABLED, 1, "why"),
    (PutStatus.UNKNOWN_ERROR, 1, "why"),
]


@pytest.mark.mission("SE-06")
async def test_each_put_status_has_its_code_remark_and_fields(tmp_path: Path) -> None:
    broker = Broker(broker_settings(tmp_path))
    await broker.start()
    results: list[PutResult] = []
    broker.rooms.produce.context.put = lambda _: results.pop(0)
    try:
        async with Peer.of(broker) as peer:
            add_topic(broker, "TopicA")
            for status, code, remark in STATUSES:
                results.append(result(status, "why"))
                before = broker.rooms.shared.stats.messages()[0]
                answer = await peer.send("TopicA", queue_id=2, properties={"UNIQ_KEY": "u"})
                assert answer.code == code
                assert (answer.remark is None) if remark is None else remark in (answer.remark or "")
                is_stored = code in (0, 10, 11, 12)
                place = {"msgId": broker.own.offset_id(4096), "queueId": "2", "queueOffset": "12", "transactionId": "u"}
                assert answer.ext == (REGION | place if is_stored else REGION)
                assert broker.rooms.shared.stats.messages()[0] - before == (1 if is_stored else 0)
    finally:
        await broker.stop()


@pytest.mark.mission("SE-06")
async def test_a_message_that_is_too_large_is_refused_with_the_real_limit(tmp_path: Path) -> None:
    async with running_broker(tmp_path, maxMessageSize=1000) as broker, Peer.of(broker) as peer:
        answer = await peer.send("TopicA", b"x" * 1001)
        assert answer.code == Response.MESSAGE_ILLEGAL
        assert "maxMessageSize=1000" in (answer.remark or "")
        answer = await peer.send("TopicA", properties={"long": "v" * 32_700})
        assert answer.code == Response.MESSAGE_ILLEGAL
        assert "32767" in (answer.remark or "")


@pytest.mark.mission("SE-06")
async def test_a_one_way_send_is_stored_and_counted_and_never_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, RawPeer.connected(broker.port) as peer:
        peer.send(send_request("TopicA", b"silent", oneway=True))
        peer.send(send_request("bad topic!", b"silent", oneway=True))
        answer = await peer.call(send_request("TopicA", b"spoken"))
        assert answer.ext["queueOffset"] == "1", "the first byte on the socket answers the two-way send"
        assert [message.body for message in stored(broker, "TopicA")] == [b"silent", b"spoken"]
        assert broker.rooms.shared.stats.messages()[0] == 2


# Batches


@pytest.mark.mission("SE-07")
async def test_a_batch_becomes_one_record_per_member(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", queue_id=1)
        members = [(b"body %d" % number, {"UNIQ_KEY": f"u{number}", "TAGS": "b"}) for number in range(100)]
        answer = await peer.ask(batch_request("TopicA", members, queue_id=1))
        assert answer.code == 0, answer.remark
        assert answer.ext["queueOffset"] == "1"
        messages = stored(broker, "TopicA", 1)[1:]
        assert [message.queue_offset for message in messages] == list(range(1, 101))
        assert [(message.body, props(message)) for message in messages] == members
        ids = answer.ext["msgId"].split(",")
        assert [decode_offset_id(text).physical_offset for text in ids] == [m.physical_offset for m in messages]
        assert len(set(ids)) == 100
        assert broker.rooms.shared.stats.messages()[0] == 101


async def test_a_batch_for_a_topic_of_batches_is_one_record_and_the_answer_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        topic = TopicConfig(topic_name="Batches", attributes={"queue.type": "BatchCQ"})
        broker.tables.topics.update([topic])
        for base in (0, 3):
            members = [(b"body %d" % number, {"UNIQ_KEY": f"u{number}"}) for number in range(3)]
            command = batch_request("Batches", members, queue_id=1, properties={"UNIQ_KEY": "whole"})
            answer = await peer.ask(command)
            assert answer.code == 0, answer.remark
            assert (answer.ext["queueOffset"], answer.ext["batchUniqId"]) == (str(base), "whole")
            assert "," not in answer.ext["msgId"]
        assert broker.store.queue_bounds("Batches", 1) == (0, 6)
        result = broker.store.get("Batches", 1, 0, 32)
        assert result is not None
        assert (result.count, result.next_offset) == (6, 6)
        (first, _) = decode_records(b"".join(result.slices))
        assert first.sys_flag & (INNER_BATCH | NEEDS_UNWRAP) == INNER_BATCH | NEEDS_UNWRAP
        assert [body for _, body, _ in split_batch(first.body)] == [body for body, _ in members]
        assert broker.rooms.shared.stats.messages()[0] == 6


@pytest.mark.mission("SE-07")
async def test_members_of_a_batch_are_the_records_that_java_made_of_them(tmp_path: Path) -> None:
    """The golden batches, sent again as they were, give the same records but for hosts, times and place."""
    golden = [message for message in golden_records() if message.topic == "GoldenBatchA"]
    batches: dict[tuple[int, str], list[StoredMessage]] = {}
    for message in golden:
        batches.setdefault((message.queue_id, props(message)["KEYS"].rpartition("-")[0]), []).append(message)
    assert len(batches) > 5

    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "GoldenBatchA")
        for (queue_id, _), members in batches.items():
            fields = {"queue_id": queue_id, "born_timestamp": members[0].born_timestamp_ms}
            command = batch_request("GoldenBatchA", [(m.body, props(m)) for m in members], **fields)
            assert (await peer.ask(command)).code == 0
        ours = [message for queue in range(4) for message in stored(broker, "GoldenBatchA", queue)]
        theirs = sorted(golden, key=lambda message: (message.queue_id, message.queue_offset))
        assert [_record(message) for message in ours] == [_record(message) for message in theirs]


def golden_records() -> list[StoredMessage]:
    found: list[StoredMessage] = []
    for _, data in golden_commitlog("clean"):
        position = 0
        while (scan := scan_record(memoryview(data), position, len(data), False)).kind == OK:
            found.append(decode_record(data[position : position + scan.size]))
            position += scan.size
    return found


def _record(message: StoredMessage) -> tuple[Any, ...]:
    return (
        message.queue_id, message.queue_offset, message.flag, message.sys_flag & ~0x30, message.body,
        message.body_crc, message.born_timestamp_ms, message.reconsume_times, message.prepared_transaction_offset,
        props(message),
    )  # fmt: skip


@pytest.mark.mission("SE-07")
@pytest.mark.parametrize(
    "fields", [{"properties": {"DELAY": "1"}}, {"sys_flag": 4}, {"topic": "%RETRY%g"}, {"body": b"not a batch"}]
)
async def test_a_batch_that_may_not_be_is_illegal_and_leaves_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        given = {"topic": "TopicA", **fields}
        body = given.pop("body", None)
        command = batch_request(members=[(b"a", {}), (b"b", {})], **given)
        if body is not None:
            command.body = body
        assert (await peer.ask(command)).code == Response.MESSAGE_ILLEGAL
        assert broker.store.log.max_offset == 0


async def test_the_batch_flag_counts_and_not_the_code(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        command = batch_request("TopicA", [(b"a", {}), (b"b", {})])
        command.code = Request.SEND_MESSAGE_V2
        assert (await peer.ask(command)).code == 0
        assert len(stored(broker, "TopicA")) == 2


# Waiting for the disk


class SlowSync:
    """Each sync of the log takes some time of a real clock; `stuck` never returns until `let_go`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.syncs = 0
        self.stuck = threading.Event()

    def __call__(self, operation: str, path: str) -> None:
        if operation == "sync" and "commitlog" in path:
            self.syncs += 1
            self.stuck.wait(self.seconds)

    def let_go(self) -> None:
        self.stuck.set()


@pytest.mark.mission("SE-08")
def test_thousands_of_sends_wait_for_the_disk_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FakeDisk()
        disk.on_call = slow = SlowSync(0.02)
        settings = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": 16 << 20}
        async with running_broker(tmp_path, None, disk, **settings) as broker, Peer.of(broker) as peer:
            await peer.send("TopicA")
            slow.syncs = 0
            tasks_before = len(asyncio.all_tasks())
            began_s = asyncio.get_running_loop().time()
            sends = [asyncio.create_task(peer.send("TopicA")) for _ in range(5000)]
            waiting_most = 0
            while not all(send.done() for send in sends):
                waiting_most = max(waiting_most, broker.rooms.families["send"].waiting)
                assert len(asyncio.all_tasks()) <= tasks_before + 5000, "the broker made tasks for waiting sends"
                await asyncio.sleep(0.005)
            took_s = asyncio.get_running_loop().time() - began_s
            assert {send.result().code for send in sends} == {0}
            assert took_s < 2 or slow.syncs < 500, f"took {took_s:.1f} s with {slow.syncs} syncs"
            assert waiting_most > 100
            print(f"5000 sends in {took_s:.2f} s with {slow.syncs} syncs of 20 ms, {waiting_most} waiting at most")

    run(main(), timeout_s=60)


@pytest.mark.mission("SE-08")
async def test_a_disk_that_never_returns_gives_code_10_after_5_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with running_broker(tmp_path, clock, disk, **settings) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        await broker.rooms.settled()
        disk.on_call = slow = SlowSync(1e6)
        sends = [asyncio.create_task(peer.send("TopicA", b"%d" % number)) for number in range(10)]
        await until(lambda: broker.rooms.families["send"].waiting == 10)
        clock.advance(4.9)
        await settle()
        assert not any(send.done() for send in sends)
        clock.advance(0.2)
        answers = await asyncio.gather(*sends)
        assert {answer.code for answer in answers} == {Response.FLUSH_DISK_TIMEOUT}
        assert all(answer.ext["msgId"] and answer.ext["queueOffset"] for answer in answers)
        clock.advance(6)
        assert broker.rooms.families["send"].waiting == 0
        assert not broker.server.endpoint.tasks
        assert len(broker.store.flusher.waiters) == 0
        slow.let_go()


@pytest.mark.parametrize(("count", "host"), [(31_000, "127.0.0.1"), (32_000, "127.0.0.1"), (65_536, "::1")])
@pytest.mark.parametrize("form", [JSON, ROCKETMQ])
def test_a_batch_is_answered_with_all_its_ids_however_many(tmp_path: Path, count: int, host: str, form: int) -> None:
    async def main() -> None:
        settings = {"mappedFileSizeCommitLog": 32 << 20, "brokerIP1": host}
        async with running_broker(tmp_path, **settings) as broker, Peer.at(f"127.0.0.1:{broker.port}") as peer:
            ask = batch_request("TopicA", [(b"x", {})] * count)
            ask.form = form
            answer = await peer.ask(ask)
            assert answer.code == 0, answer.remark
            ids = answer.ext["msgId"].split(",")
            assert len(ids) == count
            assert broker.store.queue_bounds("TopicA", 0) == (0, count)
            last = broker.store.message_at(decode_offset_id(ids[-1]).physical_offset)
            assert last is not None
            assert last.queue_offset == count - 1

    run(main(), timeout_s=60)


def test_a_batch_beyond_the_bound_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, mappedFileSizeCommitLog=32 << 20) as broker, Peer.of(broker) as peer:
            answer = await peer.ask(batch_request("TopicA", [(b"x", {})] * 65_537))
            assert answer.code == Response.MESSAGE_ILLEGAL
            assert "send smaller batches" in (answer.remark or "")
            assert broker.store.log.max_offset == 0

    run(main(), timeout_s=60)
