"""Checks cometmq.store.replication.frames and whole: streams in any pieces."""

import random
from collections.abc import Callable

import pytest

from cometmq.errors import StoreError, WireError
from cometmq.store.replication.frames import HEADER, REPORT, Frames, Reports
from cometmq.store.replication.record_cutter import WholeRecords
from tests.store.replication.bench import SEGMENT_BYTES, fill, log_bytes, put, small_store

FRAMES_BYTES_MAX = 1000


def test_the_last_whole_report_of_a_read_counts() -> None:
    reports = Reports()
    assert reports.feed(REPORT.pack(5) + REPORT.pack(7) + b"\0\0\0") == 7
    assert reports.feed(REPORT.pack(9)[3:]) == 9
    assert reports.feed(b"") is None


def test_a_report_byte_by_byte() -> None:
    reports = Reports()
    answers = [reports.feed(bytes((byte,))) for byte in REPORT.pack(258) + REPORT.pack(3)]
    assert answers == [None] * 7 + [258] + [None] * 7 + [3]


def test_an_offset_below_zero_is_refused() -> None:
    with pytest.raises(WireError, match="below 0"):
        Reports().feed(REPORT.pack(-1))


@pytest.mark.mission("HA-03")
@pytest.mark.parametrize("step", [1, 2, 5, 11, 12, 13, 1000])
def test_frames_in_any_pieces(step: int) -> None:
    stream = HEADER.pack(100, 5) + b"abcde" + HEADER.pack(105, 0) + HEADER.pack(105, 20) + bytes(range(20))
    frames = Frames(FRAMES_BYTES_MAX)
    heartbeats: list[int] = []
    data = bytearray()
    for at in range(0, len(stream), step):
        for offset, piece in frames.feed(memoryview(stream)[at : at + step]):
            if len(piece):
                assert offset == 100 + len(data)
                data += piece
            else:
                heartbeats.append(offset)
    assert bytes(data) == b"abcde" + bytes(range(20))
    assert heartbeats == [105]


@pytest.mark.parametrize("header", [(-1, 5), (0, -1), (0, FRAMES_BYTES_MAX + 1)])
def test_a_frame_that_cannot_be_one_is_refused(header: tuple[int, int]) -> None:
    with pytest.raises(WireError, match="0 to 1000 bytes"):
        list(Frames(FRAMES_BYTES_MAX).feed(memoryview(HEADER.pack(*header))))


@pytest.mark.parametrize("step", [1, 3, 8, 9, 97, 350, 5000])
def test_only_whole_records_pass(step: int) -> None:
    store = small_store()
    fill(store, 2 * SEGMENT_BYTES + 1000)
    _assert_only_whole_records_pass(log_bytes(store), SEGMENT_BYTES, lambda: step)


def test_of_long_pieces_only_whole_records_pass() -> None:
    """So many bytes at once that compiled code goes over them quickly."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    segment_bytes = 256 << 10
    store = small_store(segment_bytes=segment_bytes, message_bytes_max=100_000)
    while store.log.max_offset < 4 * segment_bytes:
        put(store, bytes(chance.choice((0, 10, 1000, 5000, 70_000))))
    _assert_only_whole_records_pass(log_bytes(store), segment_bytes, lambda: chance.randint(1, 2 * segment_bytes))


def _assert_only_whole_records_pass(log: bytes, segment_bytes: int, step: Callable[[], int]) -> None:
    """And none is held back."""
    ends = {0} | {at + size for at, size, _ in _starts(log)}
    whole = WholeRecords(segment_bytes)
    passed = bytearray()
    at = 0
    while at < len(log):
        end = min(at + step(), len(log))
        # In several pieces, as from several frames.
        middle = (at + end) // 2
        offset, records = whole.feed(at, [memoryview(log)[at:middle], memoryview(log)[middle:end]])
        assert offset == len(passed)
        passed += records
        last = len(passed)
        assert last in ends or _in_blank(log, last), f"the log would end inside a record at {last}"
        assert not any(last < each <= end for each in ends), f"a whole record was held back at {last}"
        at = end
    assert bytes(passed) == log


def _starts(log: bytes) -> list[tuple[int, int, int]]:
    """(position, size, magic) of every record and blank."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(log):
        size = int.from_bytes(log[at : at + 4], "big")
        found.append((at, size, int.from_bytes(log[at + 4 : at + 8], "big")))
        at += size
    return found


def _in_blank(log: bytes, position: int) -> bool:
    return any(magic == 0xCBD43194 and at <= position <= at + size for at, size, magic in _starts(log))


def test_what_is_no_record_passes_up_to_the_end_of_its_segment() -> None:
    whole = WholeRecords(100)
    for at, pieces in ((0, [b"garbage that", b" is no record"]), (25, [bytes(75)])):
        offset, passed = whole.feed(at, [memoryview(piece) for piece in pieces])
        assert (offset, bytes(passed)) == (at, b"".join(pieces))
    assert len(whole.feed(100, [memoryview(b"abc")])[1]) == 0


def test_a_record_of_many_pieces_passes_when_its_last_one_is_there() -> None:
    """More than the buffer has, so that it grows, and less again."""
    whole = WholeRecords(64 << 20)
    records = [size.to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(size - 8) for size in (100, 9 << 20, 50)]
    log = memoryview(b"".join(records))
    passed = [100, *[0] * 143, (9 << 20) + 50]
    for number, count in enumerate(passed):
        at = number << 16
        offset, piece = whole.feed(at, [log[at : at + (1 << 16)]])
        assert len(piece) == count
        assert piece == log[offset : offset + count]


@pytest.mark.parametrize("segment_bytes", [SEGMENT_BYTES // 2, SEGMENT_BYTES * 2, SEGMENT_BYTES - 100])
def test_a_log_of_other_segments_is_refused(segment_bytes: int) -> None:
    store = small_store()
    fill(store, 2 * SEGMENT_BYTES + 1000)
    whole = WholeRecords(segment_bytes)
    with pytest.raises(StoreError, match=f"mappedFileSizeCommitLog={segment_bytes} is not the master's"):
        whole.feed(0, [memoryview(log_bytes(store))])
