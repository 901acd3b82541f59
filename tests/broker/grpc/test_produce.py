"""Checks sends by gRPC: what is stored, which queue, what is refused and with which code; recalls."""

import os
from pathlib import Path

import pytest

from cometmq.clock import ManualClock
from cometmq.front.produce import consistent
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.record.properties import decode
from tests.broker.grpc.scene import scene
from tests.support.brokers import add_topic, stored
from tests.support.grpc import send_request


async def test_a_message_is_stored_with_what_its_sender_said(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        answer = await peer.send("T", b"hello", tag="a", keys=["k1", "k2"], properties={"colour": "red"})
        assert (answer.status.code, answer.status.message) == (pb.OK, "OK")
        entry = answer.entries[0]
        assert (entry.message_id, entry.transaction_id, entry.offset) == (f"ID{0:032d}", f"ID{0:032d}", 0)
        (message,) = stored(broker, "T")
        properties = decode(message.properties)
        assert (message.body, message.born_timestamp_ms) == (b"hello", 1_700_000_000_123)
        assert properties.items() >= {
            "colour": "red", "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": f"ID{0:032d}", "PGROUP": "T",
            "RECONSUME_TIME": "0", "BORN_TIMESTAMP": "1700000000123", "__BORNHOST": "here", "CLUSTER": "DefaultCluster",
        }.items()  # fmt: skip


async def test_several_messages_have_an_entry_each(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        answer = await peer.send("T", b"0", b"1", b"2")
        assert [(it.message_id[-1], it.offset) for it in answer.entries] == [("0", 0), ("1", 1), ("2", 2)]
        assert [message.body for message in stored(broker, "T")] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("key", "bucket"),
    [("ga", 2), ("gb", 1), ("g1", 0), ("order-42", 3), ("a", 0), ("客户", 3), ("user:1001", 3), ("zzzzzz", 3)],
)
def test_a_message_group_has_the_queue_that_rocketmq_gives_it(key: str, bucket: int) -> None:
    assert consistent(key, 4) == bucket


async def test_a_message_group_stays_in_its_queue(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        add_topic(broker, "F", 4, attributes={"message.type": "FIFO"})
        for number in range(8):
            await peer.send("F", b"%d" % number, message_group="ga")
        assert [message.body for message in stored(broker, "F", 2)] == [b"%d" % number for number in range(8)]


async def test_priorities_choose_queues(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        for priority in (0, 1, 7):
            await peer.send("PRIORITY", b"%d" % priority, priority=priority)
        assert [len(stored(broker, "PRIORITY", queue)) for queue in range(4)] == [1, 1, 0, 1]


async def test_the_largest_body_is_taken_and_one_byte_more_is_not(tmp_path: Path) -> None:
    async with scene(tmp_path, mappedFileSizeCommitLog=16 << 20) as (broker, peer):
        body = os.urandom(4 << 20)
        assert (await peer.send("T", body)).status.code == pb.OK
        assert stored(broker, "T")[0].body == body
        refused = await peer.send("T", body + b"x")
        assert (refused.status.code, len(refused.entries)) == (pb.MESSAGE_BODY_TOO_LARGE, 0)


LONG = "x" * 16_000
REFUSALS: list[tuple[str, bytes, dict[str, object], int]] = [
    ("T", b"", {}, pb.MESSAGE_BODY_EMPTY),
    ("Nowhere", b"x", {}, pb.TOPIC_NOT_FOUND),
    ("a b", b"x", {}, pb.ILLEGAL_TOPIC),
    ("x" * 128, b"x", {}, pb.ILLEGAL_TOPIC),
    ("TBW102", b"x", {}, pb.ILLEGAL_TOPIC),
    ("rmq_sys_wheel_timer", b"x", {}, pb.ILLEGAL_TOPIC),
    ("T", b"x", {"message_id": " "}, pb.ILLEGAL_MESSAGE_ID),
    ("T", b"x", {"tag": " "}, pb.ILLEGAL_MESSAGE_TAG),
    ("T", b"x", {"tag": "a||b"}, pb.ILLEGAL_MESSAGE_TAG),
    ("T", b"x", {"tag": "a\nb"}, pb.ILLEGAL_MESSAGE_TAG),
    ("T", b"x", {"keys": [" "]}, pb.ILLEGAL_MESSAGE_KEY),
    ("T", b"x", {"keys": ["a\x01"]}, pb.ILLEGAL_MESSAGE_KEY),
    ("T", b"x", {"properties": {"KEYS": "a"}}, pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("T", b"x", {"properties": {"a": "\x02"}}, pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("T", b"x", {"properties": {str(number): "x" for number in range(129)}}, pb.MESSAGE_PROPERTIES_TOO_LARGE),
    ("T", b"x", {"properties": {"a": LONG}, "tag": LONG}, pb.MESSAGE_PROPERTIES_TOO_LARGE),
    ("FIFO", b"x", {"message_group": " "}, pb.ILLEGAL_MESSAGE_GROUP),
    ("FIFO", b"x", {"message_group": "x" * 64}, pb.ILLEGAL_MESSAGE_GROUP),
    ("T", b"x", {"message_group": "g"}, pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ("FIFO", b"x", {}, pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ("T", b"x", {"message_type": pb.TRANSACTION}, pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ("T", b"x", {"lite_topic": "l"}, pb.ILLEGAL_LITE_TOPIC),
]


@pytest.mark.mission("GR-02")
async def test_what_may_not_be_sent_is_refused_with_its_code_and_nothing_is_stored(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, peer):
        for topic, body, fields, code in REFUSALS:
            answer = await peer.send(topic, body, **fields)
            assert (answer.status.code, len(answer.entries)) == (code, 0), (topic, fields, answer)
        none = await peer.call("SendMessage", pb.SendMessageRequest(), pb.SendMessageResponse)
        assert none.status.code == pb.MESSAGE_CORRUPTED
        two = send_request("T", b"a")
        two.messages.extend(send_request("FIFO", b"b").messages)
        assert (await peer.call("SendMessage", two, pb.SendMessageResponse)).status.code == pb.MESSAGE_CORRUPTED
        assert stored(broker, "T") == stored(broker, "FIFO") == []
        assert (await peer.send("MIXED", b"x", message_group="g")).status.code == pb.OK
        assert (await peer.send("MIXED", b"x", tag="a")).status.code == pb.OK


async def test_a_delayed_message_has_a_handle_and_can_be_recalled(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, recallMessageEnable=True) as (_, peer):
        due = pb.SystemProperties()
        due.delivery_timestamp.FromMilliseconds(clock.now_ms() + 60_000)
        sent = await peer.send("DELAY", b"later", delivery_timestamp=due.delivery_timestamp)
        handle = sent.entries[0].recall_handle
        assert handle
        recall = pb.RecallMessageRequest(topic=pb.Resource(name="DELAY"), recall_handle=handle)
        answer = await peer.call("RecallMessage", recall, pb.RecallMessageResponse)
        assert (answer.status.code, answer.message_id) == (pb.OK, f"ID{0:032d}")
        recall.topic.name = "T"
        answer = await peer.call("RecallMessage", recall, pb.RecallMessageResponse)
        assert answer.status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        recall.topic.name, recall.recall_handle = "DELAY", "rubbish"
        assert (await peer.call("RecallMessage", recall, pb.RecallMessageResponse)).status.code == 50001
        due.delivery_timestamp.FromMilliseconds(clock.now_ms() + 90_000_000)
        far = await peer.send("DELAY", b"far", delivery_timestamp=due.delivery_timestamp)
        assert far.status.code == pb.ILLEGAL_DELIVERY_TIME
