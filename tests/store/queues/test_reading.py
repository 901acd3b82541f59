"""Checks reading: every status with its next offset, the limits of one read, filters, advice, cold pages."""

import random
from typing import Any

import pytest

from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.write_flags import NOT_READABLE
from cometmq.store.results import GetResult, GetStatus
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.message import decode_records
from cometmq.wire.record.properties import decode
from tests.support.parts import ROOT, Parts

MIB = 1 << 20
FIELDS = (
    "status", "next_offset", "min_offset", "max_offset", "slices", "queue_offsets", "count", "bytes",
    "suggest_slave", "behind_bytes", "cold", "cold_units", "cold_ranges",
)  # fmt: skip


def get(parts: Parts, offset: int, count: int = 32, queue_id: int = 0, **arguments: Any) -> GetResult:
    result = parts.reading.get("TopicA", queue_id, offset, count, **arguments)
    assert result is not None
    return result


def wide(**options: Any) -> Parts:
    """Large enough that no file ends within the test."""
    return Parts(**{"segment_bytes": MIB, "queue_file_bytes": 400_000, "index_entries": 100_000, **options})


def filled(count: int, **options: Any) -> Parts:
    parts = wide(**options)
    for number in range(count):
        parts.put(body=b"%d" % number, TAGS=f"tag{number % 2}")
    return parts


@pytest.mark.mission("RD-01")
@pytest.mark.parametrize(
    ("role", "checked", "corrects"), [("ASYNC_MASTER", False, True), ("SLAVE", False, False), ("SLAVE", True, True)]
)
def test_every_status_has_its_next_offset(role: str, checked: bool, corrects: bool) -> None:
    disk = FakeDisk()
    # The log has lost its first segment, and with it the queue its first file.
    parts = Parts(disk, queue_file_bytes=400)
    for number in range(60):
        parts.put(body=bytes(100) + b"%d" % number)
    parts.segments.remove(parts.segments.segments[0])
    parts.queues.write()
    parts.queues.delete_expired(parts.log.min_offset)
    first = parts.queues.min_offset("TopicA", 0)
    assert first == 20
    parts.queues.queue("TopicB", 0)
    parts.close()

    parts = Parts(disk, queue_file_bytes=400, broker_role=role, offset_check_on_slave=checked)
    parts.queues.queue("TopicB", 0)

    def outcome(topic: str, offset: int, **arguments: Any) -> tuple[int, int]:
        result = parts.reading.get(topic, 0, offset, 4, **arguments)
        assert result is not None
        return result.status, result.next_offset

    def corrected(asked: int, better: int) -> int:
        return better if corrects else asked

    assert outcome("TopicX", 7) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, corrected(7, 0))
    assert outcome("TopicB", 7) == (GetStatus.NO_MESSAGE_IN_QUEUE, corrected(7, 0))
    assert outcome("TopicA", 3) == (GetStatus.OFFSET_TOO_SMALL, corrected(3, first))
    assert outcome("TopicA", 60) == (GetStatus.OFFSET_OVERFLOW_ONE, 60)
    assert outcome("TopicA", 99) == (GetStatus.OFFSET_OVERFLOW_BADLY, corrected(99, 60))
    assert outcome("TopicA", 30) == (GetStatus.FOUND, 34)
    assert outcome("TopicA", 30, unit_filter=lambda _code, _unit: False) == (GetStatus.NO_MATCHED_MESSAGE, 40)
    disk.remove(f"{ROOT}/consumequeue/TopicA/0/{400:020d}")
    parts.queues.queue("TopicA", 0).files.open_files.close()
    assert outcome("TopicA", 25) == (GetStatus.OFFSET_FOUND_NULL, corrected(25, 40))
    parts.segments.segments.clear()
    assert outcome("TopicA", 40) == (GetStatus.MESSAGE_WAS_REMOVING, 60)


@pytest.mark.mission("RD-01")
def test_a_closed_or_unreadable_store_reads_nothing() -> None:
    parts = filled(1)
    parts.flags.set(NOT_READABLE)
    assert parts.reading.get("TopicA", 0, 0, 1) is None
    parts.flags.clear(NOT_READABLE)
    assert parts.reading.get("TopicA", 0, 0, 1) is not None
    parts.reading.closed = True
    assert parts.reading.get("TopicA", 0, 0, 1) is None


def test_reading_on_gives_every_message_once() -> None:
    parts = Parts()
    for number in range(300):
        parts.put(queue_id=number % 4, body=b"%d" % number)
    for queue_id in range(4):
        assert parts.bodies(queue_id=queue_id) == [b"%d" % number for number in range(queue_id, 300, 4)]


# Limits


@pytest.mark.mission("RD-02")
def test_a_read_that_matches_nothing_examines_800_units() -> None:
    parts = wide(segment_bytes=4 * MIB)
    for _ in range(2000):
        parts.put()
    result = get(parts, 100, unit_filter=lambda _code, _unit: False)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 900)
    result = get(parts, 100, count=1000, unit_filter=lambda _code, _unit: False)
    assert result.next_offset == 1100, "more messages asked for, more units examined"


@pytest.mark.mission("RD-02")
def test_one_large_message_is_returned_alone() -> None:
    parts = wide(segment_bytes=8 * MIB)
    parts.put(body=bytes(MIB))
    parts.put(body=b"small")
    result = get(parts, 0, bytes_max=1000)
    assert (result.count, result.next_offset) == (1, 1)
    assert len(result.slices[0]) == result.bytes > MIB


@pytest.mark.mission("RD-02")
def test_count_and_bytes_end_a_read_from_memory() -> None:
    parts = filled(100)
    assert get(parts, 0, count=7).count == 7
    assert get(parts, 0, count=100).count == 32, "maxTransferCountOnMessageInMemory"
    one = get(parts, 0, count=1).bytes
    assert get(parts, 0, bytes_max=one * 3).count == 3
    assert get(parts, 0, bytes_max=0).count == 1
    large = wide(segment_bytes=4 * MIB)
    for _ in range(10):
        large.put(body=bytes(60_000))
    assert get(large, 0).count == 4, "maxTransferBytesOnMessageInMemory"


@pytest.mark.mission("RD-02")
def test_a_read_from_disk_returns_less() -> None:
    parts = filled(100, memory_percent_max=0)
    assert get(parts, 0).count == 8, "maxTransferCountOnMessageInDisk"
    large = wide(segment_bytes=4 * MIB, memory_percent_max=0)
    for _ in range(10):
        large.put(body=bytes(30_000))
    assert get(large, 0).count == 2, "maxTransferBytesOnMessageInDisk"


@pytest.mark.mission("RD-02")
def test_entries_of_a_deleted_segment_are_skipped_to_the_next() -> None:
    parts = wide(segment_bytes=4096)
    for number in range(100):
        parts.put(body=bytes(100) + b"%d" % number)
    second = parts.segments.segments[1].start
    parts.segments.remove(parts.segments.segments[0])
    result = get(parts, 3, count=5)
    (first, *_) = decode_records(result.slices[0])
    assert first.physical_offset == second
    assert result.queue_offsets[0] == first.queue_offset
    assert result.next_offset == first.queue_offset + 5


def test_a_read_ends_with_its_queue_file_unless_nothing_was_found() -> None:
    parts = Parts(queue_files_per_get=3)
    for number in range(50):
        parts.put(body=b"%d" % number)
    assert get(parts, 5).next_offset == 10
    only_late = get(parts, 5, unit_filter=lambda _code, _unit: False)
    assert only_late.next_offset == 30


# Slices


@pytest.mark.mission("RD-04")
def test_the_slices_are_the_bytes_of_the_log_and_adjoining_records_are_one() -> None:
    parts = filled(10)
    result = get(parts, 2, count=5)
    (part,) = result.slices
    view = parts.segments.segments[0].view()
    at = parts.lookup.physical_offset("TopicA", 0, 2)
    assert part == view[at : at + result.bytes]
    assert part.obj is view.obj, "a reference, not a copy"
    parts.put("TopicB")
    parts.put()
    assert [len(decode_records(part)) for part in get(parts, 8).slices] == [2, 1]


def test_a_slice_stays_readable_when_its_segment_is_deleted() -> None:
    parts = Parts()
    for number in range(100):
        parts.put(body=b"%d" % number)
    result = get(parts, 0, count=5)
    before = bytes(result.slices[0])
    parts.segments.remove(parts.segments.segments[0])
    assert bytes(result.slices[0]) == before


def test_a_unit_that_points_to_no_record_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    parts = filled(5)
    at = parts.lookup.physical_offset("TopicA", 0, 2)
    parts.segments.segments[0].view()[at + 4 : at + 8] = b"\0\0\0\0"
    result = get(parts, 0)
    assert result.queue_offsets == [0, 1, 3, 4]
    assert f"passed over unit that points to no record physical_offset={at}" in caplog.text


@pytest.mark.parametrize("seed", range(60))
def test_units_taken_at_once_are_those_that_are_looked_at_one_by_one(seed: int) -> None:
    """Without a filter a compiled store takes the plain units of a queue together, with one it asks about each."""
    print("seed", seed)
    chance = random.Random(seed)
    disk = SmallRam()
    options: dict[str, Any] = {"segment_bytes": 16 << 10, "queue_file_bytes": 20 * chance.choice([7, 100, 3000])}
    parts = wide(disk=disk, memory_percent_max=chance.choice([0, 40]), **options)
    for number in range(chance.randrange(50, 400)):
        parts.put(queue_id=chance.choice([0, 0, 1]), body=bytes(chance.randrange(300)) + b"%d" % number)
    if chance.random() < 0.5:
        parts.close()
        parts = wide(disk=disk, memory_percent_max=40, **options)
    for segment in parts.segments.segments:
        if chance.random() < 0.1:
            disk.cold_paths.add(segment.file.path)
    for _ in range(chance.choice([0, 0, 3])):
        at = parts.lookup.physical_offset("TopicA", 0, chance.randrange(20))
        segment = next(one for one in parts.segments.segments if one.start <= at < one.end)
        segment.view()[at - segment.start + chance.randrange(8)] ^= 1
    if chance.random() < 0.3:
        parts.segments.remove(parts.segments.segments[0])
    for _ in range(100):
        asked: dict[str, Any] = {
            "offset": chance.randrange(200),
            "count": chance.choice([1, 8, 32, 500]),
            "bytes_max": chance.choice([1, 1000, 50_000, MIB]),
            "bulk": chance.random() < 0.5,
            "units_max": chance.choice([0, 0, 5]),
            "loaded_units": chance.choice([0, 0, 0, 3]),
        }
        together = get(parts, **asked)
        one_by_one = get(parts, unit_filter=lambda _code, _unit: True, **asked)
        assert [getattr(together, name) for name in FIELDS] == [getattr(one_by_one, name) for name in FIELDS], asked


# Filters


def test_filters_by_tag_code_and_by_properties() -> None:
    parts = filled(10)
    wanted = java_string_hash("tag1")
    assert get(parts, 0, unit_filter=lambda code, _unit: code == wanted).queue_offsets == [1, 3, 5, 7, 9]
    seen: list[dict[str, str]] = []

    def matches(properties: bytes) -> bool:
        seen.append(decode(properties))
        return seen[-1]["TAGS"] == "tag0"

    result = get(parts, 0, record_filter=matches)
    assert result.queue_offsets == [0, 2, 4, 6, 8]
    assert result.next_offset == 10
    assert seen == [{"TAGS": f"tag{number % 2}"} for number in range(10)]
    none = get(parts, 0, record_filter=lambda _properties: False)
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)


def test_a_caller_can_look_through_fewer_units_than_the_settings_allow() -> None:
    parts = filled(30)

    def nothing(_properties: bytes) -> bool:
        return False

    some = get(parts, 5, record_filter=nothing, units_max=10)
    assert (some.status, some.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 15)
    assert get(parts, 5, record_filter=nothing, units_max=1000).next_offset == 30
    assert get(parts, 5, record_filter=nothing).next_offset == 30


def test_properties_are_found_behind_hosts_and_topics_of_both_kinds() -> None:
    parts = wide()
    parts.log.store_host = bytes(16) + b"\0\0\0\1"
    long_topic = "%RETRY%" + "g" * 150
    parts.put(long_topic, KEYS="k1", TAGS="t")
    seen: list[bytes] = []

    def note(properties: bytes) -> bool:
        seen.append(properties)
        return True

    parts.reading.get(long_topic, 0, 0, 1, record_filter=note)
    assert decode(seen[0]) == {"KEYS": "k1", "TAGS": "t"}


# Memory


class SmallRam(FakeDisk):
    def ram_bytes(self) -> int:
        return 10 * MIB


@pytest.mark.mission("RD-03")
def test_a_reader_beyond_40_percent_of_memory_is_advised_to_ask_the_replica() -> None:
    parts = wide(disk=SmallRam(), segment_bytes=8 * MIB)
    for _ in range(10):
        parts.put(body=bytes(MIB // 2))
    assert get(parts, 0).behind_bytes > 5 * MIB
    assert get(parts, 0, count=1).suggest_slave
    assert not get(parts, 3, count=1).suggest_slave
    assert not get(parts, 9, count=1).suggest_slave


@pytest.mark.mission("RD-04")
def test_pages_that_are_not_in_memory_are_named_and_not_touched() -> None:
    disk = FakeDisk()
    parts = wide(disk=disk)
    for number in range(100):
        parts.put(body=b"%d" % number, TAGS=f"tag{number % 2}")
    parts.close()
    parts = wide(disk=disk)
    path = parts.segments.segments[0].file.path
    disk.cold_paths.add(path)
    cold = get(parts, 10)
    assert cold.cold
    assert not cold.slices
    assert (cold.cold_units, len(cold.cold_ranges)) == (8, 8)
    read: list[tuple[str, str]] = []
    disk.on_call = lambda operation, where: read.append((operation, where))
    parts.reading.load(cold)
    assert read == [("pread", path)] * 8
    warm = get(parts, 10, loaded_units=cold.cold_units)
    assert (warm.cold, warm.count, warm.next_offset) == (False, 8, 18)
    assert [record.queue_offset for record in decode_records(warm.slices[0])] == list(range(10, 18))


def test_a_filter_on_cold_messages_gets_on_step_by_step() -> None:
    disk = FakeDisk()
    parts = wide(disk=disk)
    for number in range(30):
        parts.put(body=b"%d" % number, TAGS=f"tag{number % 2}")
    parts.close()
    parts = wide(disk=disk)
    disk.cold_paths.add(parts.segments.segments[0].file.path)
    offset, found = 0, []
    while offset < 30:
        cold = get(parts, offset)
        assert cold.cold
        result = get(
            parts, offset, record_filter=lambda properties: b"tag1" in properties, loaded_units=cold.cold_units
        )
        assert result.next_offset == offset + cold.cold_units
        found += result.queue_offsets
        offset = result.next_offset
    assert found == list(range(1, 30, 2))


def test_what_this_process_has_written_is_not_asked_about() -> None:
    disk = FakeDisk()
    parts = wide(disk=disk)
    parts.put(body=b"one")
    disk.cold_paths.add(parts.segments.segments[0].file.path)
    assert not get(parts, 0).cold


def test_figures_count_reads() -> None:
    parts = filled(10)
    get(parts, 0, count=3)
    get(parts, 3, count=3)
    get(parts, 10)
    reading = parts.reading
    assert (reading.found, reading.missed, reading.transferred) == (2, 1, 6)
