"""Checks cometmq.store.log.segments: names, growth, search, positions, loading, cutting, removing."""

import random
import sys
import threading
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.errors import StoreError
from cometmq.store.disk import DiskFull, File, OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.segments import AHEAD_AT_ONCE_BYTES_MAX, Segment, Segments
from cometmq.wire.record.layout import BLANK_BYTES
from tests.support.logs import LOG_DIR, make_log, message, records

MIB = 1 << 20


def names(disk: FakeDisk, directory: str = LOG_DIR) -> list[str]:
    return disk.list_files(directory)


def fill(segments: Segments, count: int) -> None:
    for _ in range(count):
        segment = segments.roll()
        assert segment is not None
        segment.wrote = segment.size


@pytest.mark.mission("MF-01")
def test_files_are_named_by_their_first_offset_and_begin_at_a_boundary() -> None:
    disk = FakeDisk()
    fill(Segments(disk, [LOG_DIR], 10 * MIB), 3)
    assert names(disk) == ["00000000000000000000", "00000000000010485760", "00000000000020971520"]
    assert {disk.size(f"{LOG_DIR}/{name}") for name in names(disk)} == {10 * MIB}

    replica_disk = FakeDisk()
    replica = make_log(replica_disk, segment_bytes=10 * MIB)
    replica.append_raw(15 * MIB, b"bytes of the master")
    assert names(replica_disk) == ["00000000000010485760"]
    assert replica.max_offset == 15 * MIB + 19
    found = replica.read_from(15 * MIB)
    assert found is not None
    assert (found[0], bytes(found[1])) == (15 * MIB, b"bytes of the master")


def test_several_directories_take_files_in_turn_and_crowded_ones_are_passed_over() -> None:
    disk = FakeDisk()
    segments = Segments(disk, ["/b", "/a", "/c"], 1024)
    fill(segments, 4)
    assert [names(disk, path) for path in ("/a", "/b", "/c")] == [
        [f"{0:020d}", f"{3072:020d}"],
        [f"{1024:020d}"],
        [f"{2048:020d}"],
    ]
    segments.is_crowded = lambda path: path != "/c"
    fill(segments, 2)
    assert len(names(disk, "/c")) == 3
    segments.is_crowded = lambda path: True
    fill(segments, 3)
    assert [len(names(disk, path)) for path in ("/a", "/b", "/c")] == [3, 2, 4]


def test_files_of_all_directories_are_loaded_in_order_read_only_ones_too() -> None:
    disk = FakeDisk()
    for start, path in ((0, "/old"), (1024, "/old"), (2048, "/b"), (3072, "/a")):
        disk.open(f"{path}/{start:020d}", 1024, create=True, allocate=True)
    segments = Segments(disk, ["/a", "/b"], 1024, read_only_directories=["/old"])
    segments.load()
    assert [segment.start for segment in segments.segments] == [0, 1024, 2048, 3072]
    assert {(segment.wrote, segment.flushed) for segment in segments.segments} == {(1024, 1024)}
    assert segments.max_offset == segments.flushed_offset == 4096

    newest_read_only = Segments(disk, ["/b"], 1024, read_only_directories=["/old", "/a"])
    with pytest.raises(StoreError, match="readOnlyCommitLogStorePaths"):
        newest_read_only.load()


@pytest.mark.mission("MF-05")
@settings(deadline=None)
@given(st.data())
def test_flushed_is_never_ahead_of_written_nor_written_ahead_of_size(data: st.DataObject) -> None:
    log = make_log(FakeDisk(), segment_bytes=4096, message_bytes_max=4096)
    segments = log.segments
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["put", "put", "put", "flush", "thorough", "cut", "remove", "begin"]))
        if step == "put":
            log.append(message(body=bytes(data.draw(st.integers(0, 4000)))))
        elif step == "flush":
            segments.flush(2)
        elif step == "thorough":
            segments.flush(0)
        elif step == "begin":
            steps = segments.flush_steps(0)
            log.append(message())
            for flush in steps:
                segments.flushed_to(flush)
        elif step == "cut" and segments.segments:
            ends = [0] + [record.physical_offset + record.record_bytes for record in records(log)]
            segments.cut(max(segments.min_offset, data.draw(st.sampled_from(ends))))
            log.refresh()
        elif step == "remove" and len(segments.segments) > 1:
            segments.flush(0)
            segments.remove(segments.segments[0])
        for segment in segments.segments:
            assert 0 <= segment.flushed <= segment.wrote <= segment.size
            readable = log.get(segment.start, segment.wrote)
            assert readable is not None
            assert len(readable) == segment.wrote
            assert log.get(segment.start, segment.wrote + 1) is None
        assert segments.flushed_offset <= segments.max_offset == log.max_offset


@pytest.mark.mission("MF-06")
def test_the_segment_of_an_offset_is_found_at_every_boundary() -> None:
    segments = Segments(FakeDisk(), [LOG_DIR], 1000)
    fill(segments, 7)
    for _ in range(2):
        segments.remove(segments.segments[0])
    assert segments.find(1999) is None
    assert segments.find(7000) is None
    for start in range(2000, 7000, 1000):
        for offset in (start, start + 1, start + 999):
            found = segments.find(offset)
            assert found is not None
            assert found.start == start
    assert segments.find(0) is None
    first = segments.find(0, return_first=True)
    assert first is not None
    assert first.start == segments.min_offset == 2000
    # With a gap arithmetic leads astray, and the search goes through the list.
    segments.remove(segments.segments[1])
    assert segments.find(3500) is None
    after_gap = segments.find(4500)
    assert after_gap is not None
    assert after_gap.start == 4000
    assert segments.report_gaps() == 1
    assert Segments(FakeDisk(), [LOG_DIR], 1000).find(0, return_first=True) is None


def test_offset_zero_reads_from_the_first_segment_that_still_exists() -> None:
    log = make_log(segment_bytes=4096)
    while len(log.segments.segments) < 3:
        log.append(message(body=bytes(1000)))
    log.segments.remove(log.segments.segments[0])
    found = log.read_from(0)
    assert found is not None
    assert found[0] == 4096
    assert log.read_from(1) is None
    assert log.get(0, 100) is None


@pytest.mark.mission("MF-07")
def test_readers_of_a_deleted_segment_get_all_of_it_or_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """8 readers on the oldest segment while it is deleted, 100 times, on the real disk."""
    root = str(tmp_path_factory.mktemp("log"))
    segments = Segments(OsDisk(), [root], 65_536)
    stop = threading.Event()
    wrong: list[str] = []
    complete, removed = [0] * 8, [0] * 8

    def read(reader: int) -> None:
        while not stop.is_set():
            rows = segments.segments
            segment = rows[0] if rows else None
            if segment is None:
                continue
            try:
                data = segment.file.pread(0, 65_536) if reader % 2 else bytes(segment.view()[:65_536])
            except FileNotFoundError:
                removed[reader] += 1
                continue
            if data != segment.start.to_bytes(8, "big") * 8192:
                wrong.append(f"segment {segment.start} gave {data[:8].hex()} and {len(data)} bytes")
            complete[reader] += 1

    # Readers and the deleting thread meet more often, and the latter gets its turn among eight.
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    threads = [threading.Thread(target=read, args=(reader,)) for reader in range(8)]
    for _ in range(2):
        _add_marked(segments)
    for thread in threads:
        thread.start()
    for _ in range(100):
        _add_marked(segments)
        segments.remove(segments.segments[0])
    stop.set()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval_s)
    assert wrong == []
    assert sum(complete) > 0
    assert len(segments.segments) == 2


def _add_marked(segments: Segments) -> None:
    """A new last segment, full of its own start offset before anyone can see it."""
    segment = segments.create(segments.next_start(0))
    segment.view()[:] = segment.start.to_bytes(8, "big") * 8192
    segment.wrote = segment.size
    segments.segments.append(segment)


def test_a_slice_outlives_the_removal_of_its_segment() -> None:
    segments = Segments(FakeDisk(), [LOG_DIR], 1024)
    fill(segments, 2)
    held = segments.segments[0].view()[:4]
    held[:] = b"mine"
    segments.remove(segments.segments[0])
    other = segments.create(0)
    assert bytes(held) == b"mine"
    assert bytes(other.view()[:4]) == bytes(4)


@pytest.mark.parametrize(
    ("name", "size", "fault"),
    [
        (f"{1024:020d}", 1000, "has 1000 bytes, but the file size is set to 1024"),
        (f"{1024:020d}", 1025, "has 1025 bytes"),
        ("notes.txt", 1024, "is not a store file"),
        ("000000000000000001024", 1024, "is not a store file"),
    ],
)
def test_a_foreign_file_stops_the_load(name: str, size: int, fault: str) -> None:
    disk = FakeDisk()
    disk.open(f"{LOG_DIR}/{0:020d}", 1024, create=True, allocate=True)
    disk.open(f"{LOG_DIR}/{name}", size, create=True, allocate=True)
    with pytest.raises(StoreError, match=fault):
        Segments(disk, [LOG_DIR], 1024).load()


def test_an_empty_last_file_is_removed_and_an_empty_one_before_it_stops_the_load() -> None:
    disk = FakeDisk()
    disk.open(f"{LOG_DIR}/{0:020d}", 1024, create=True, allocate=True)
    disk.open(f"{LOG_DIR}/{1024:020d}", 0, create=True, allocate=False)
    segments = Segments(disk, [LOG_DIR], 1024)
    segments.load()
    assert names(disk) == [f"{0:020d}"]
    disk.open(f"{LOG_DIR}/{1024:020d}", 0, create=True, allocate=False)
    disk.open(f"{LOG_DIR}/{2048:020d}", 1024, create=True, allocate=True)
    with pytest.raises(StoreError, match="has 0 bytes"):
        Segments(disk, [LOG_DIR], 1024).load()


def test_cutting_removes_what_follows_and_zeroes_the_rest_on_disk() -> None:
    disk = FakeDisk()
    segments = Segments(disk, [LOG_DIR], 8192)
    fill(segments, 3)
    for segment in segments.segments:
        segment.view()[:] = b"x" * 8192
    segments.flush(0)
    segments.cut(8192 + 5000)
    assert names(disk) == [f"{0:020d}", f"{8192:020d}"]
    assert (segments.max_offset, segments.flushed_offset) == (13_192, 13_192)
    # On the device too: a record left behind the end must not come back after the next crash.
    left = disk.crash(1).read_bytes(f"{LOG_DIR}/{8192:020d}")
    assert left == b"x" * 5000 + bytes(3192)


class ReadAhead:
    """A file of which only the start was written, under a kernel that reads ahead, and takes that for data."""

    path = "log"
    size = 64 << 20
    written = 100_000

    def __init__(self) -> None:
        self.reads = 0
        self.cached_to = self.size

    def pread(self, offset: int, count: int) -> bytes:
        self.reads += 1
        self.cached_to = max(self.cached_to, offset + count + (128 << 10))
        return bytes(count)

    def forget(self, offset: int) -> None:
        self.cached_to = min(self.cached_to, offset)

    def next_data(self, offset: int) -> int | None:
        return offset if offset < min(self.size, max(self.written, self.cached_to)) else None


def test_cutting_does_not_read_what_was_never_written() -> None:
    file = ReadAhead()
    segments = Segments(FakeDisk(), [LOG_DIR], file.size)
    segments.segments.append(Segment(cast("File", file), 0))
    segments.cut(1000)
    assert segments.max_offset == 1000
    assert 0 < file.reads <= 3


def test_cutting_at_a_boundary_keeps_the_next_file_empty() -> None:
    segments = Segments(FakeDisk(), [LOG_DIR], 1024)
    fill(segments, 3)
    segments.cut(1024)
    assert [(segment.start, segment.wrote) for segment in segments.segments] == [(0, 1024), (1024, 0)]
    assert segments.max_offset == 1024
    segments.cut(0)
    assert (segments.max_offset, segments.flushed_offset) == (0, 0)


def test_a_roll_that_fails_changes_nothing() -> None:
    disk = FakeDisk()
    segments = Segments(disk, [LOG_DIR], 1024)
    fill(segments, 1)
    disk.full_after(0)
    with pytest.raises(DiskFull):
        segments.roll()
    assert names(disk) == [f"{0:020d}"]
    assert len(segments.segments) == 1
    disk.full_after(None)
    assert segments.roll() is segments.last()


def test_a_prepared_file_that_somebody_removed_is_made_anew() -> None:
    disk = FakeDisk()
    segments = Segments(disk, [LOG_DIR], 1024)
    fill(segments, 1)
    segments.prepare_now()
    for name in (f"{1024:020d}", f"{2048:020d}"):
        disk.remove(f"{LOG_DIR}/{name}")
    fill(segments, 2)
    assert names(disk) == [f"{0:020d}", f"{1024:020d}", f"{2048:020d}"]
    assert [segment.start for segment in segments.segments] == [0, 1024, 2048]


def test_segments_are_wanted_two_ahead_when_small_and_one_from_half_on_when_large() -> None:
    small = Segments(FakeDisk(), [LOG_DIR], 1024)
    assert small.wanted() == [0]
    fill(small, 1)
    assert small.wanted() == [1024, 2048]
    small.prepare_now()
    assert small.wanted() == []
    assert names(small.disk)[1:] == [f"{1024:020d}", f"{2048:020d}"]  # type: ignore[arg-type]
    made = small.prepared[1024]
    assert small.roll() is made
    small.drop_prepared()
    assert names(small.disk) == [f"{0:020d}", f"{1024:020d}"]  # type: ignore[arg-type]

    large = Segments(OsDisk(), ["/nowhere"], AHEAD_AT_ONCE_BYTES_MAX + 1)
    large.segments.append(Segment(_SizeOnly(large.segment_bytes), 0))  # type: ignore[arg-type]
    assert large.wanted() == []
    assert large.prepare_at() == large.segment_bytes // 2
    large.segments[0].wrote = large.segment_bytes // 2 + 1
    assert large.wanted() == [large.segment_bytes]


class _SizeOnly:
    def __init__(self, size: int) -> None:
        self.size = size


def test_flush_takes_full_segments_always_and_the_last_one_from_enough_pages() -> None:
    disk = FakeDisk()
    segments = Segments(disk, [LOG_DIR], 32_768)
    fill(segments, 1)
    segments.flush(0)
    last = segments.roll()
    assert last is not None
    last.wrote = 3 * 4096 + 100
    assert segments.flush(4) == 0
    last.wrote = 4 * 4096
    assert segments.flush(4) == 1
    assert segments.flushed_offset == 32_768 + 4 * 4096
    last.wrote += 1
    assert segments.flush(1) == 0
    assert segments.flush(0) == 1
    assert segments.flush(0) == 0
    last.wrote = last.size
    assert segments.flush(1000) == 1
    assert disk.calls["sync"] == 4


@pytest.mark.mission("FL-05")
def test_a_backlog_over_three_files_drains_in_order() -> None:
    disk = FakeDisk()
    synced: list[str] = []
    disk.on_call = lambda operation, path: synced.append(path[-5:]) if operation == "sync" else None
    log = make_log(disk, segment_bytes=4096)
    while len(log.segments.segments) < 4:
        log.append(message(body=bytes(900)))
    assert log.segments.flush(0) == 4
    assert synced == ["00000", "04096", "08192", "12288"]
    assert log.flushed_offset == log.max_offset


def test_random_appends_leave_only_multiples_of_the_segment_size_as_starts() -> None:
    chance = random.Random(7)
    log = make_log(segment_bytes=4096)
    for _ in range(300):
        log.append(message(body=bytes(chance.randint(0, 3900))))
    starts = [segment.start for segment in log.segments.segments]
    assert starts == list(range(0, 4096 * len(starts), 4096))
    for segment in log.segments.segments[:-1]:
        assert segment.is_full
    assert log.max_offset - log.segments.segments[-1].start <= 4096 - BLANK_BYTES
