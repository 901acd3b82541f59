"""A commit log on a fake disk, and what is in it: for tests of the store's write side."""

from collections.abc import Iterator
from typing import Any

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.segments import Segments
from cometmq.store.log.write_flags import Flags
from cometmq.store.options import StoreOptions
from cometmq.wire.record.message import StoredMessage, decode_record
from cometmq.wire.record.scan import BLANK, OK, scan_record

ROOT = "/store"
LOG_DIR = f"{ROOT}/commitlog"


def make_log(
    disk: FakeDisk | None = None, clock: ManualClock | None = None, segment_bytes: int = 1 << 20, **options: Any
) -> CommitLog:
    """An empty log that makes its segments itself."""
    settings = StoreOptions(root_dir=ROOT, segment_bytes=segment_bytes, **options)
    clock = clock or ManualClock()
    segments = Segments(disk or FakeDisk(now_ms=clock.now_ms), [LOG_DIR], segment_bytes)
    return CommitLog(segments, Flags(), clock, settings)


def message(topic: str = "TopicA", queue_id: int = 0, body: bytes = b"hello", properties: str = "", **fields: Any) -> (
    AppendRequest
):
    return AppendRequest(topic, queue_id, body, properties, **fields)


def records(log: CommitLog) -> list[StoredMessage]:
    """Every message of the log, decoded with its CRC; asserts that records lie back to back up to the end."""
    return [decode_record(log.segments.segments[number].view(), at) for number, at, _ in _walk(log)]


def blanks(log: CommitLog) -> list[tuple[int, int]]:
    """(physical offset, size) of the blank records."""
    return [(log.segments.segments[number].start + at, size) for number, at, size in _walk(log, blanks=True)]


def _walk(log: CommitLog, blanks: bool = False) -> Iterator[tuple[int, int, int]]:
    for number, segment in enumerate(log.segments.segments):
        at = 0
        while at < segment.wrote:
            scan = scan_record(segment.view(), at, segment.wrote, True)
            assert scan.kind in (OK, BLANK), f"no record at {segment.start + at}: {scan.reason}"
            if (scan.kind == BLANK) == blanks:
                yield number, at, scan.size
            if scan.kind == BLANK:
                assert at + scan.size == segment.size, f"blank at {segment.start + at} has {scan.size} bytes"
                break
            at += scan.size
