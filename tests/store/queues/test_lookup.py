"""Checks finding by time, by key and by place in the log."""

import os
import random
import shutil
from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.wire.record.message import decode_record
from tests.support.golden import copy_golden_store, golden_messages
from tests.support.parts import GOLDEN_SIZES, Parts

EVER = (0, 1 << 60)


def put_at(parts: Parts, times_ms: list[int]) -> None:
    """Messages stored at these times, which must not fall."""
    for time_ms in times_ms:
        parts.clock.advance((time_ms - parts.clock.now_ms()) / 1000)
        parts.put(body=b"%d" % time_ms)


@pytest.mark.mission("RD-05")
@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(-2, 32))
def test_the_offset_by_time_is_the_first_message_at_or_after_it(steps: list[int], time_ms: int) -> None:
    times = sorted(steps)
    parts = Parts(clock=ManualClock(wall_ms=0))
    put_at(parts, times)
    assert parts.lookup.offset_by_time("TopicA", 0, time_ms) == bisect_left(times, time_ms)
    upper = parts.lookup.offset_by_time("TopicA", 0, time_ms, upper=True)
    assert upper == max(0, bisect_right(times, time_ms) - 1)


@pytest.mark.mission("RD-05")
def test_1000_messages_with_equal_and_missing_times(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    times = sorted(chance.randrange(0, 3000) * 10 for _ in range(1000))
    parts = Parts(OsDisk(), ManualClock(wall_ms=0), root_dir=str(tmp_path / "a"), segment_bytes=1 << 16)
    put_at(parts, times)
    # Some records cannot be read: the answer may differ by them, and by nothing else.
    missing = set(chance.sample(range(1000), 50))
    for number in missing:
        at = parts.lookup.physical_offset("TopicA", 0, number)
        segment = parts.segments.find(at)
        assert segment is not None
        segment.view()[at - segment.start + 4 : at - segment.start + 8] = b"\0" * 4
    readable = [number for number in range(1000) if number not in missing]
    asked = [chance.randrange(-10, 30_010) for _ in range(500)]
    answers = {time_ms: parts.lookup.offset_by_time("TopicA", 0, time_ms) for time_ms in asked}
    for time_ms, answer in answers.items():
        before = [number for number in readable if number < answer]
        after = [number for number in readable if number >= answer]
        assert not before or times[before[-1]] < time_ms, f"seed {seed} time {time_ms} answer {answer}"
        assert not after or times[after[0]] >= time_ms, f"seed {seed} time {time_ms} answer {answer}"
    parts.close()

    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for file in (tmp_path / "b").rglob("*"):
        os.utime(file, (1, 1))
    copy = Parts(OsDisk(), parts.clock, root_dir=str(tmp_path / "b"), segment_bytes=1 << 16)
    assert {time_ms: copy.lookup.offset_by_time("TopicA", 0, time_ms) for time_ms in asked} == answers


@pytest.mark.mission("RD-05")
def test_the_answer_stays_between_the_first_message_and_the_end() -> None:
    parts = Parts(clock=ManualClock(wall_ms=0))
    assert parts.lookup.offset_by_time("TopicA", 0, 5) == 0, "no such queue"
    put_at(parts, [number * 10 for number in range(100)])
    parts.segments.remove(parts.segments.segments[0])
    parts.queues.write()
    parts.queues.delete_expired(parts.log.min_offset)
    first, end = parts.queues.min_offset("TopicA", 0), parts.queues.max_offset("TopicA", 0)
    assert first > 0
    for upper in (False, True):
        assert parts.lookup.offset_by_time("TopicA", 0, 0, upper) == first
    assert parts.lookup.offset_by_time("TopicA", 0, 10_000) == end
    assert parts.lookup.offset_by_time("TopicA", 0, 10_000, upper=True) == end - 1
    assert parts.lookup.earliest_time("TopicA", 0) == first * 10 == parts.lookup.earliest_log_time()


@pytest.mark.mission("RD-06")
def test_golden_messages_are_found_by_place_and_by_key(tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    parts = Parts(OsDisk(), root_dir=str(root), **GOLDEN_SIZES)
    for golden in golden_messages("clean"):
        offset, size = golden["commitLogOffset"], golden["storeSize"]
        for record in (parts.lookup.record_at(offset), parts.lookup.record_at(offset, size)):
            assert record is not None
            message = decode_record(record)
            assert (message.topic, message.queue_offset) == (golden["topic"], golden["queueOffset"])
        assert parts.lookup.record_at(offset, size + 1) is None
        assert parts.lookup.store_time_at(offset) == golden["storeTimestamp"]
        found = parts.lookup.query(golden["topic"], golden["properties"]["UNIQ_KEY"], 32, *EVER).records
        assert offset in [decode_record(record).physical_offset for record in found]


@pytest.mark.mission("RD-06")
def test_an_offset_that_hits_no_record_finds_nothing_and_harms_nothing() -> None:
    parts = Parts()
    starts = [parts.put(body=bytes(range(256))).physical_offset for _ in range(20)]
    record = parts.lookup.record_at(starts[3])
    assert record is not None
    starts.append(parts.put(body=b"a record inside a record: " + bytes(record)).physical_offset)
    for offset in range(-5, parts.log.max_offset + 5000):
        assert (parts.lookup.record_at(offset) is not None) == (offset in starts)


@pytest.mark.mission("RD-06")
def test_a_query_stops_at_the_wanted_number_and_respects_the_time_range() -> None:
    parts = Parts(clock=ManualClock(wall_ms=1000))
    for number in range(100):
        parts.clock.advance(1)
        parts.put(body=b"%d" % number, KEYS="same")

    def bodies(count: int, begin_ms: int, end_ms: int) -> list[bytes]:
        records = parts.lookup.query("TopicA", "same", count, begin_ms, end_ms).records
        return [decode_record(record).body for record in records]

    assert bodies(5, *EVER) == [b"95", b"96", b"97", b"98", b"99"]
    assert len(bodies(1000, *EVER)) == 64, "maxMsgsNumBatch"
    assert bodies(64, 12_000, 15_000) == [b"10", b"11", b"12", b"13"]
    assert bodies(64, 200_000, 300_000) == []


@pytest.mark.mission("RD-06")
def test_keys_with_equal_hash_are_both_returned() -> None:
    parts = Parts()
    parts.put(body=b"one", KEYS="Aa")
    parts.put(body=b"two", KEYS="BB")
    found = parts.lookup.query("TopicA", "Aa", 10, *EVER).records
    assert [decode_record(record).body for record in found] == [b"one", b"two"]


def test_messages_that_are_deleted_are_left_out_of_a_query() -> None:
    parts = Parts()
    for number in range(100):
        parts.put(body=b"%d" % number, KEYS="same")
    parts.segments.remove(parts.segments.segments[0])
    records = parts.lookup.query("TopicA", "same", 64, *EVER).records
    assert 0 < len(records) <= 64
    assert min(decode_record(record).physical_offset for record in records) >= parts.log.min_offset


def test_a_query_says_how_far_the_index_reaches() -> None:
    parts = Parts()
    last = parts.put(KEYS="k")
    result = parts.lookup.query("TopicA", "k", 10, *EVER)
    assert (result.index_offset, result.index_time_ms) == (last.physical_offset, last.store_time_ms)
    empty = Parts().lookup.query("TopicA", "k", 10, *EVER)
    assert (empty.index_offset, empty.index_time_ms, empty.records) == (0, 0, [])
