"""Exhaustive: a small store cut at every byte, and with every 512-byte sector zeroed; no wrong answer may come of it.

The log has a record of every kind. "No wrong answer" means: what is found is exactly what was put, as far as it can be
there; queue offsets, index and counters agree with it; and the store goes on from there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq import state_file
from cometmq.clock import ManualClock
from cometmq.errors import WireError
from cometmq.store.fake_disk import SECTOR_BYTES, FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from cometmq.wire.fastjson import reader
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import StoredMessage, decode_record
from cometmq.wire.record.properties import decode, encode
from cometmq.wire.record.scan import BLANK, OK, scan_record
from cometmq.wire.record.sysflag import (
    COMPRESSED,
    INNER_BATCH,
    NEEDS_UNWRAP,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tests.support.parts import files_below
from tests.support.whole_store import ROOT
from tests.support.whole_store import open_store as open_whole_store

SEGMENT_BYTES = 2048
V6_HOST = bytes(range(16)) + b"\0\0\x2a\x9f"
EVER = (0, 1 << 60)
ALL_QUEUES = [
    *[("TopicA", queue) for queue in range(3)],
    ("%RETRY%" + "g" * 130, 0),
    ("SCHEDULE_TOPIC_XXXX", 2),
    ("Batches", 0),
    ("%LMQ%a", 0),
    ("%LMQ%b", 0),
]


def open_store(disk: FakeDisk, clock: ManualClock) -> Store:
    return open_whole_store(
        disk,
        clock,
        segment_bytes=SEGMENT_BYTES,
        queue_file_bytes=100,
        batch_queue_file_bytes=460,
        index_slots=7,
        index_entries=16,
        lmq_enabled=True,
        multi_dispatch_enabled=True,
    )


def every_kind() -> list[tuple[AppendRequest, bool]]:
    """(message, is a batch in the producer's form) of every kind that a log can hold."""

    def one(topic: str, queue: int, body: bytes, sys_flag: int = 0, **fields: str) -> AppendRequest:
        born_host = V6_HOST if fields.pop("v6", "") else b"\x7f\0\0\1\0\0\0\1"
        return AppendRequest(topic, queue, body, encode(fields).decode(), sys_flag=sys_flag, born_host=born_host)

    batch = encode_batch([(0, b"b%d" % number, encode({"KEYS": f"batch{number}"})) for number in range(3)])
    return [
        (one("TopicA", 0, b"plain", KEYS="k1 k2", TAGS="TagA", UNIQ_KEY="0A00065200001FBB0000000000000000"), False),
        (one("TopicA", 0, b"no properties"), False),
        (one("TopicA", 1, b"", KEYS="empty"), False),
        (one("TopicA", 1, b"born v6", v6="1", TAGS="TagB"), False),
        (AppendRequest("TopicA", 2, batch), True),
        (one("TopicA", 0, b"half", TRANSACTION_PREPARED, KEYS="half"), False),
        (one("TopicA", 0, b"commit", TRANSACTION_COMMIT, KEYS="commit"), False),
        (one("TopicA", 0, b"rollback", TRANSACTION_ROLLBACK, KEYS="rollback"), False),
        (one("%RETRY%" + "g" * 130, 0, b"version 2", KEYS="retry"), False),
        (one("SCHEDULE_TOPIC_XXXX", 2, b"delayed", DELAY="3", REAL_TOPIC="TopicA", REAL_QID="0"), False),
        (one("Batches", 0, b"inner", INNER_BATCH | NEEDS_UNWRAP, INNER_NUM="4", KEYS="inner"), False),
        (one("TopicA", 1, bytes(300), COMPRESSED, TAGS="TagA", long="p" * 700), False),
        (one("TopicA", 2, b"light", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b", KEYS="light"), False),
        (one("TopicA", 0, b"last", KEYS="k1", TAGS="TagB"), False),
    ]


class Sample:
    """A store with every kind of record, as a killed process leaves it, and what is in it."""

    def __init__(self, flush_after: int = -1) -> None:
        self.clock = ManualClock()
        disk = FakeDisk(now_ms=self.clock.now_ms)
        store = open_store(disk, self.clock)
        store.log.counters.is_batch_topic = lambda topic: topic == "Batches"
        for number, (request, is_batch) in enumerate(every_kind()):
            self.clock.advance(1)
            store.log.store_host = V6_HOST if number % 5 == 4 else b"\x7f\0\0\1\0\0\0\2"
            result = store.put_batch(request) if is_batch else store.put(request)
            assert result.status == PutStatus.OK, result
            if number == flush_after:
                store.flush_now()
                store.flush_queues_now()
        store.write_queues()
        self.flushed_ms = store.checkpoint.physic_time_ms
        self.disk = disk
        self.end = store.log.max_offset
        self.records = {record.physical_offset: record for record in walk(store)}
        self.image = disk.kill()
        self.segments = [segment.file.path for segment in store.segments.segments]

    def was_flushed(self, offset: int) -> bool:
        """As far as the checkpoint tells."""
        return self.records[offset].store_timestamp_ms < self.flushed_ms

    def disk_with(self, path: str, begin: int, end: int) -> FakeDisk:
        """What was left, with zeros from `begin` to `end` of one file."""
        disk = self.image.kill()
        disk.open(path, -1, create=False, allocate=False).pwrite(begin, bytes(end - begin))
        return disk


def walk(store: Store) -> Iterator[StoredMessage]:
    for segment in store.segments.segments:
        at = 0
        while at < segment.wrote:
            scan = scan_record(segment.view(), at, segment.wrote, True)
            if scan.kind == BLANK:
                break
            assert scan.kind == OK
            yield decode_record(segment.view(), at)
            at += scan.size


def same(one: StoredMessage, other: StoredMessage) -> bool:
    return one.encode() == other.encode()


def check(sample: Sample, disk: FakeDisk, expected: set[int], what: str) -> Store:
    """Open it, and compare everything with the records at the `expected` offsets."""
    store = open_store(disk, sample.clock)
    found: set[int] = set()
    for topic, queue in ALL_QUEUES:
        first, end = store.queue_bounds(topic, queue)
        assert store.log.counters.next_offset(topic, queue) == end, what
        for offset in range(first, end):
            result = store.get(topic, queue, offset, 1)
            assert result is not None
            assert len(result.slices) == 1, f"{what}: {topic} {queue} {offset} has status {result.status}"
            message = decode_record(result.slices[0])
            assert same(message, sample.records[message.physical_offset]), what
            found.add(message.physical_offset)
            if not topic.startswith("%LMQ%") and topic != "Batches":
                assert message.queue_offset == offset, what
    visible = {TRANSACTION_PREPARED, TRANSACTION_ROLLBACK}
    in_queues = {offset for offset in expected if sample.records[offset].sys_flag & 0xC not in visible}
    assert found == in_queues, what
    for offset, record in sample.records.items():
        properties = decode(record.properties)
        keys = [*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY", "")]
        if record.sys_flag & 0xC == TRANSACTION_ROLLBACK:
            continue
        for key in filter(None, keys):
            assert (offset in store.index.query(record.topic, key, 64, *EVER)) == (offset in expected), (what, key)
    before = store.log.counters.next_offset("TopicA", 0)
    put = store.put(AppendRequest("TopicA", 0, b"and on it goes"))
    assert (put.status, put.queue_offset) == (PutStatus.OK, before), what
    after = store.get("TopicA", 0, before, 1)
    assert after is not None
    assert decode_record(after.slices[0]).body == b"and on it goes", what
    return store


def test_the_sample_itself_comes_back_whole() -> None:
    sample = Sample()
    assert len(sample.segments) == 2
    assert len(sample.records) == 16
    assert {record.version for record in sample.records.values()} == {1, 2}
    check(sample, sample.image.kill(), set(sample.records), "nothing is torn")


@pytest.mark.mission("RC-07")
def test_a_log_cut_at_every_byte_keeps_exactly_the_whole_records() -> None:
    sample = Sample()
    for cut_at in range(sample.end):
        first = cut_at // SEGMENT_BYTES
        disk = sample.disk_with(sample.segments[first], cut_at % SEGMENT_BYTES, SEGMENT_BYTES)
        for path in sample.segments[first + 1 :]:
            disk.open(path, -1, create=False, allocate=False).pwrite(0, bytes(SEGMENT_BYTES))
        # Zeros at the end of a record are there even if they are not.
        expected = {
            offset for offset, record in sample.records.items() if offset + len(record.encode().rstrip(b"\0")) <= cut_at
        }
        check(sample, disk, expected, f"log cut at {cut_at}")


@pytest.mark.parametrize("flush_after", [-1, 5])
def test_every_sector_of_the_log_zeroed_gives_no_half_message(flush_after: int) -> None:
    sample = Sample(flush_after)
    for number, path in enumerate(sample.segments):
        for sector in range(0, SEGMENT_BYTES, SECTOR_BYTES):
            begin = number * SEGMENT_BYTES + sector
            end = begin + SECTOR_BYTES
            hit = [
                offset
                for offset, record in sample.records.items()
                if offset < end
                and offset + record.record_bytes > begin
                # A record whose bytes there are zeros anyway is not hurt.
                and any(record.encode()[max(0, begin - offset) : end - offset])
            ]
            expected = set(sample.records) - set(hit)
            behind = [offset for offset in sorted(expected) if hit and offset > hit[-1]]
            if hit and not (behind and sample.was_flushed(behind[0])):
                expected = {offset for offset in expected if offset < hit[0]}
            disk = sample.disk_with(path, sector, sector + SECTOR_BYTES)
            _check_survivors(sample, disk, expected, f"sector at {begin} zeroed")


def _check_survivors(sample: Sample, disk: FakeDisk, expected: set[int], what: str) -> None:
    """Like check(), but numbers of lost messages may show the message behind them."""
    store = open_store(disk, sample.clock)
    found: set[int] = set()
    for topic, queue in ALL_QUEUES:
        first, end = store.queue_bounds(topic, queue)
        for offset in range(first, end):
            result = store.get(topic, queue, offset, 1)
            assert result is not None
            for part in result.slices:
                message = decode_record(part)
                assert same(message, sample.records[message.physical_offset]), what
                found.add(message.physical_offset)
                if not topic.startswith("%LMQ%") and topic != "Batches":
                    assert message.queue_offset >= offset, what
                    assert message.queue_offset == offset or len(expected) < len(sample.records), what
    lost = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
    assert found == {offset for offset in expected if sample.records[offset].sys_flag & 0xC not in lost}, what


@pytest.mark.mission("RC-05")
def test_a_consume_queue_cut_at_every_byte_that_was_not_flushed() -> None:
    sample = Sample(flush_after=6)
    flushed = dict(files_below(_flushed_image(6), f"{ROOT}/consumequeue"))
    for path, content in files_below(sample.image, f"{ROOT}/consumequeue"):
        safe = len(flushed.get(path, b"").rstrip(b"\0")) + 19
        safe -= safe % 20
        for cut_at in range(safe if path in flushed else 0, len(content)):
            disk = sample.disk_with(path, cut_at, len(content))
            check(sample, disk, set(sample.records), f"{path} cut at {cut_at}")


def _flushed_image(flush_after: int) -> FakeDisk:
    """What is on disk for sure after the flush of a sample: a crash that drops all that can be dropped."""
    sample = Sample(flush_after)
    for seed in range(1000):
        image = sample.disk.crash(seed)
        if image.read_bytes(sample.segments[-1]) != sample.image.read_bytes(sample.segments[-1]):
            return image
    raise AssertionError("no crash drops anything")


def test_every_byte_of_the_queues_zeroed_before_they_were_ever_flushed() -> None:
    sample = Sample()
    folders = [f"{ROOT}/consumequeue", f"{ROOT}/batchconsumequeue"]
    for path, content in [found for folder in folders for found in files_below(sample.image, folder)]:
        for begin in range(0, len(content), 4):
            disk = sample.disk_with(path, begin, min(len(content), begin + 4))
            check(sample, disk, set(sample.records), f"{path} zeroed at {begin}")


@pytest.mark.mission("RC-04")
def test_the_index_cut_at_every_byte_and_every_sector() -> None:
    sample = Sample()
    for path, content in files_below(sample.image, f"{ROOT}/index"):
        for cut_at in range(0, len(content), 3):
            check(sample, sample.disk_with(path, cut_at, len(content)), set(sample.records), f"index cut at {cut_at}")
        for begin in range(0, len(content), 40):
            end = min(len(content), begin + 40)
            check(sample, sample.disk_with(path, begin, end), set(sample.records), f"index zeroed at {begin}")


@pytest.mark.mission("RC-03")
@pytest.mark.parametrize("flush_after", [-1, 6])
def test_the_checkpoint_cut_at_every_byte(flush_after: int) -> None:
    sample = Sample(flush_after)
    path = f"{ROOT}/checkpoint"
    for cut_at in range(49):
        check(sample, sample.disk_with(path, cut_at, 4096), set(sample.records), f"checkpoint cut at {cut_at}")
    check(sample, sample.disk_with(path, 0, SECTOR_BYTES), set(sample.records), "first sector of the checkpoint zeroed")
    missing = sample.image.kill()
    missing.remove(path)
    check(sample, missing, set(sample.records), "no checkpoint")


def loads(content: bytes) -> Any:
    try:
        return reader.loads(content)
    except WireError as error:
        raise ValueError(str(error)) from None


def test_a_json_table_cut_at_every_byte_or_with_any_sector_zeroed_is_the_new_one_or_the_old() -> None:
    disk = FakeDisk()
    path = Path(f"{ROOT}/config/consumerOffset.json")
    old = b'{"offsetTable":{"TopicA@group":{0:1,1:2}},"filler":"' + b"o" * 1500 + b'"}'
    new = b'{"offsetTable":{"TopicA@group":{0:5,1:9}},"filler":"' + b"n" * 1500 + b'"}'
    state_file.save(path, old, disk)
    state_file.save(path, new, disk)
    values = [state_file.load(path, loads, disk)]
    for cut_at in range(len(new) + 1):
        image = disk.kill()
        image.remove(str(path))
        image.open(str(path), cut_at, create=True, allocate=False).pwrite(0, new[:cut_at])
        loaded = state_file.load(path, loads, image)
        assert loaded is not None
        assert loaded["offsetTable"]["TopicA@group"] in ({0: 5, 1: 9}, {0: 1, 1: 2}), cut_at
        if loaded not in values:
            values.append(loaded)
    for begin in range(0, len(new), SECTOR_BYTES):
        image = disk.kill()
        file = image.open(str(path), -1, create=False, allocate=False)
        file.pwrite(begin, bytes(min(SECTOR_BYTES, len(new) - begin)))
        assert state_file.load(path, loads, image) in values, begin
    assert len(values) == 2
