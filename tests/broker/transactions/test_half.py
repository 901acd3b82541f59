"""The forms of a half message, judged by records of a RocketMQ broker; and op records."""

from pathlib import Path

import pytest

from cometmq.broker.tables.half_counts import HalfCounts
from cometmq.broker.transactions.half import Half, question
from cometmq.broker.transactions.half_queue import Fate, HalfQueue, Rules, Verdict, judge
from cometmq.broker.transactions.ops import OP_PROPERTIES, WAITING_MAX, OpBatch, OpQueue, decode_op
from cometmq.clock import ManualClock
from cometmq.names import HALF_TOPIC, OP_TOPIC
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.wire import command
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage, decode_record, decode_records
from tests.support.brokers import Peer, add_topic, running_broker, stored
from tests.support.golden import StoreName, golden_commitlog, golden_frames, golden_store
from tests.support.transacting import COMMIT, ROLLBACK, HalfSent, end, halves
from tests.support.whole_store import open_store

ADDED_BY_BROKER = {"MSG_REGION", "CLUSTER", "TRACE_ON", "__transactionId__", "REAL_TOPIC", "REAL_QID"}


def golden_records(name: StoreName) -> list[StoredMessage]:
    """Every record of the golden commit log that has to do with transactions, in order."""
    found: list[StoredMessage] = []
    for _, data in golden_commitlog(name):
        position = 0
        while position < len(data) and data[position : position + 4] != bytes(4):
            if data[position + 4 : position + 8] == b"\xcb\xd4\x31\x94":
                break
            message = decode_record(data, position)
            position += message.record_bytes
            if message.topic in (HALF_TOPIC, OP_TOPIC) or b"TRAN_MSG" in message.properties:
                found.append(message)
    return found


def text_of(message: StoredMessage) -> dict[str, str]:
    return wire_properties.decode(message.properties)


def as_bytes(message: StoredMessage, like: StoredMessage) -> bytes:
    """The record with the place, the times and the addresses of another one, and its properties in order."""
    return StoredMessage(
        0,
        message.version,
        message.body_crc,
        message.queue_id,
        message.flag,
        message.queue_offset,
        like.physical_offset,
        message.sys_flag,
        like.born_timestamp_ms,
        like.born_host,
        like.store_timestamp_ms,
        like.store_host,
        message.reconsume_times,
        like.prepared_transaction_offset,
        message.body,
        message.topic,
        wire_properties.encode(dict(sorted(text_of(message).items()))),
    ).encode()


@pytest.mark.mission("TX-02", "TX-04", "TX-05")
@pytest.mark.parametrize("name", ["clean", "crash"])
async def test_the_transactions_of_a_java_broker_are_repeated_byte_for_byte(tmp_path: Path, name: StoreName) -> None:
    golden = golden_records(name)
    sent = [it for it in golden if it.topic == HALF_TOPIC and "TRANSACTION_CHECK_TIMES" not in text_of(it)]
    copies = [it for it in golden if it.topic == HALF_TOPIC and "TRANSACTION_CHECK_TIMES" in text_of(it)]
    ops = [it for it in golden if it.topic == OP_TOPIC]
    committed = [it for it in golden if it.topic.startswith("GoldenTx")]
    assert (len(sent), len(committed), len(ops)) == (9, 3, 1)
    half_places = {it.physical_offset: it.queue_offset for it in sent}

    clock = ManualClock(sent[0].store_timestamp_ms)
    settings = {"transactionCheckInterval": 20_000}
    async with running_broker(tmp_path, clock, **settings) as broker, Peer.of(broker) as peer:
        add_topic(broker, text_of(sent[0])["REAL_TOPIC"], queues=4)
        known: list[HalfSent] = []
        for half in sent:
            properties = text_of(half)
            answer = await peer.send(
                properties["REAL_TOPIC"],
                half.body,
                queue_id=int(properties["REAL_QID"]),
                properties={key: value for key, value in properties.items() if key not in ADDED_BY_BROKER},
                born_timestamp=half.born_timestamp_ms,
                sys_flag=4,
            )
            assert answer.ext["queueOffset"] == str(half.queue_offset)
            stored_half = halves(broker)[-1]
            known.append(HalfSent(half.queue_offset, stored_half.physical_offset, properties["UNIQ_KEY"]))

        commits = {half_places[it.prepared_transaction_offset] for it in committed}
        group = text_of(sent[0])["PGROUP"]
        for offset in decode_op(ops[0]):
            state = COMMIT if offset in commits else ROLLBACK
            assert await end(peer, known[offset], state, producer_group=group) == 0
        clock.advance(20 * len(copies) / 3)

        ours = halves(broker)
        assert [as_bytes(it, like) for it, like in zip(ours, sent + copies, strict=True)] == [
            as_bytes(it, it) for it in sent + copies
        ]
        assert [as_bytes(it, like) for it, like in zip(stored(broker, OP_TOPIC), ops, strict=True)] == [
            as_bytes(it, it) for it in ops
        ]
        for like in committed:
            (message,) = stored(broker, like.topic, like.queue_id)
            assert as_bytes(message, like) == as_bytes(like, like)
            place = half_places[like.prepared_transaction_offset]
            assert message.prepared_transaction_offset == known[place].physical_offset

        await broker.tables.files.settle_all()
        counts = broker.rooms.transactions.transactions.counts
        assert counts.table[like.topic].count == 3
        assert counts.version.counter == 15


def test_the_counts_of_a_java_broker_are_read_and_written_as_they_were() -> None:
    content = (golden_store("clean") / "config" / "transactionMetrics").read_bytes()
    counts = HalfCounts()
    counts.restore(content)
    assert counts.snapshot()() == content
    counts.keep_only({"GoldenTxA"})
    assert counts.table["GoldenTxA"].count == 3
    counts.keep_only({"Other"})
    assert counts.table == {}


@pytest.mark.mission("TX-09")
def test_a_question_is_that_of_a_java_broker() -> None:
    """But for WAIT, which RocketMQ sets to false there by mistake."""
    frames = [row for row in golden_frames() if row["request_code"] == 39]
    assert len(frames) == 2
    for row in frames:
        data = bytes.fromhex(row["frame_hex"])
        asked = command.decode(data, 4, len(data))
        (shown,) = decode_records(asked.body)
        properties = {**text_of(shown), "WAIT": "true"}
        del properties["TRANSACTION_CHECK_TIMES"]
        half = Half(
            StoredMessage(
                0, 1, shown.body_crc, 0, shown.flag, 1, 2, shown.sys_flag, shown.born_timestamp_ms, shown.born_host,
                shown.store_timestamp_ms, shown.store_host, shown.reconsume_times, 0, shown.body, HALF_TOPIC,
                wire_properties.encode(properties),
            )
        )  # fmt: skip
        ours = question(
            half, half.copy(1), shown.queue_offset, shown.physical_offset, asked.ext["offsetMsgId"], "broker-a"
        )
        assert (ours.code, ours.ext) == (39, asked.ext)
        (ours_shown,) = decode_records(ours.body)
        assert text_of(ours_shown) == {**text_of(shown), "WAIT": "true"}
        shown.properties = ours_shown.properties
        assert ours_shown.encode() == shown.encode()


# Judging


NOW_MS = 10**12


def half_of(age_ms: int, **properties: str) -> Half:
    host = (b"\x7f\x00\x00\x01", 1)
    data = wire_properties.encode({"UNIQ_KEY": "U", "REAL_TOPIC": "T", "REAL_QID": "1", **properties})
    return Half(StoredMessage(0, 1, 0, 0, 0, 5, 6, 0, NOW_MS - age_ms, host, 0, host, 0, 0, b"b", HALF_TOPIC, data))


@pytest.mark.parametrize(
    ("age_ms", "properties", "verdict"),
    [
        (0, {}, Verdict.WAIT),
        (5_999, {}, Verdict.WAIT),
        (6_000, {}, Verdict.ASK),
        (-1, {}, Verdict.ASK),
        (6_000, {"TRANSACTION_CHECK_TIMES": "14"}, Verdict.ASK),
        (6_000, {"TRANSACTION_CHECK_TIMES": "15"}, Verdict.GIVE_UP),
        (0, {"TRANSACTION_CHECK_TIMES": "15"}, Verdict.GIVE_UP),
        (3_600_000, {}, Verdict.ASK),
        (3_600_001, {}, Verdict.GIVE_UP),
        (19_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"}, Verdict.KEEP),
        (20_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"}, Verdict.ASK),
        (1_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, Verdict.ASK),
        (-100, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"}, Verdict.KEEP),
        (-20_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"}, Verdict.ASK),
        (5_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, Verdict.WAIT),
        (5_999, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, Verdict.WAIT),
        (6_000, {"TRANSACTION_CHECK_TIMES": "often"}, Verdict.ASK),
    ],
)
def test_what_is_to_be_done_with_a_half(age_ms: int, properties: dict[str, str], verdict: int) -> None:
    assert judge(half_of(age_ms, **properties), NOW_MS, Rules(6_000, 15, 3_600_000)) == verdict


def test_a_half_without_a_place_to_go_is_told() -> None:
    assert half_of(0).is_whole
    for bad in ({"REAL_TOPIC": "../etc"}, {"REAL_QID": "x"}, {"REAL_QID": "-1"}, {"REAL_TOPIC": " "}):
        assert not half_of(0, **bad).is_whole


def test_two_sends_of_one_message_are_two_transactions() -> None:
    queue = HalfQueue(0, 0, 0, 0)
    queue.found_copies()
    first, second = half_of(1_000), half_of(999)
    queue.copied(first, 9)
    assert queue.is_superseded(first)
    assert not queue.is_superseded(second)
    assert queue.end(first, Fate.COMMITTED) == [5, 9]


# Ops


def op(body: bytes, properties: str = OP_PROPERTIES) -> StoredMessage:
    host = (b"\x7f\x00\x00\x01", 1)
    return StoredMessage(0, 1, 0, 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, body, OP_TOPIC, properties.encode())


def test_both_forms_of_an_op_are_read() -> None:
    assert decode_op(op(b"17")) == [17]
    assert decode_op(op(b"17,18,25,")) == [17, 18, 25]
    assert decode_op(op(b"17, 18")) == [17, 18]
    assert decode_op(op(b"")) == decode_op(op(b"x,-1,,9999999999999999999999")) == []
    assert decode_op(op(b"17", "TAGS\x01x\x02")) == []


def test_ops_are_cut_into_records_of_a_size() -> None:
    batch = OpBatch(3)
    assert [batch.add(offset, 10) for offset in (1, 22, 333, 4444)] == [False, False, False, True]
    record, count = batch.next_record(10, 77, b"host")
    assert (record.topic, record.queue_id, record.body, count) == (OP_TOPIC, 3, b"1,22,333,", 3)
    batch.written(count)
    record, count = batch.next_record(2, 77, b"host")
    assert (record.body, count) == (b"4444,", 1), "one that is larger than a record may be goes alone"
    batch.written(count)
    assert len(batch) == 0


def test_a_full_list_is_written_whatever_its_size_and_grows_no_further() -> None:
    batch = OpBatch(0)
    assert not any(batch.add(1, 1 << 30) for _ in range(WAITING_MAX - 1))
    assert batch.add(1, 1 << 30)
    assert batch.add(1, 1 << 30)
    assert len(batch) == WAITING_MAX == 20_000


def test_an_op_is_done_when_all_that_it_names_is_passed() -> None:
    store = open_store(FakeDisk(), ManualClock())
    for _ in range(10):
        store.put(AppendRequest(HALF_TOPIC, 0, b"half"))
    for body in (b"0,3,", b"1,", b"2,1,99,"):
        store.put(AppendRequest(OP_TOPIC, 0, body, OP_PROPERTIES))
    ops = OpQueue(0, 0)
    assert ops.read(store, 1, 10)
    assert not ops.read(store, 1, 10)
    assert ops.offset == 3
    assert [offset for offset in range(10) if ops.names(offset)] == [0, 1, 2, 3]
    assert not ops.names(99), "there is no such half"
    ops.passed(1)
    assert ops.progress == 0
    ops.passed(3)
    assert ops.progress == 2, "the second op is done, the third not yet"
    ops.passed(2)
    assert ops.progress == 3
    store.close()


def test_a_walk_that_jumps_is_done_with_the_ops_before() -> None:
    store = open_store(FakeDisk(), ManualClock())
    for _ in range(10):
        store.put(AppendRequest(HALF_TOPIC, 0, b"half"))
    store.put(AppendRequest(OP_TOPIC, 0, b"2,3,", OP_PROPERTIES))
    queue = HalfQueue(0, 0, 0, 0)
    queue.ops.read(store, 0, 10)
    assert queue.move_within(4, 10)
    assert (queue.offset, queue.ops.progress) == (4, 1)
    assert queue.move_within(0, 3)
    assert queue.offset == 3
    assert not queue.move_within(0, 10)
    store.close()
