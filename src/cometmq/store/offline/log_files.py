"""Reading a store directory from outside: nothing is locked, created or changed, a broker may be using it.

The walk goes through the commit log record by record. What is no record is passed on as damage if records follow it;
zeros at the end, and the half record that a running broker is just writing, are simply the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from cometmq.errors import StoreError
from cometmq.names import segment_offset
from cometmq.store.disk import Disk
from cometmq.store.log.resync import Damage, next_record
from cometmq.store.log.segments import Segment
from cometmq.wire.record.scan import BLANK, OK, RecordScan, scan_record


class FoundRecord:
    """A record and where it lies: in `segment`, from `position` on."""

    __slots__ = ("scan", "segment", "position")

    def __init__(self, scan: RecordScan, segment: Segment, position: int) -> None:
        self.scan = scan
        self.segment = segment
        self.position = position

    @property
    def physical_offset(self) -> int:
        return self.segment.start + self.position


class LogFiles:
    """The segments below `directories`; StoreError if there are none, or they are not of one size."""

    def __init__(self, disk: Disk, directories: list[str]) -> None:
        self.gaps: list[Damage] = []
        found: list[tuple[int, str]] = []
        for directory in directories:
            for name in disk.list_files(directory):
                start = segment_offset(name)
                path = os.path.join(directory, name)
                if start is not None and disk.size(path):
                    found.append((start, path))
        found.sort()
        self.segments = [
            Segment(disk.open(path, -1, create=False, allocate=False, writable=False), start) for start, path in found
        ]
        sizes = {segment.size for segment in self.segments}
        if len(sizes) > 1:
            raise StoreError(f"files of {', '.join(directories)} have different sizes: {sorted(sizes)}")
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.end != after.start:
                self.gaps.append(Damage(before.end, after.start, "a file is missing"))

    @property
    def start(self) -> int:
        return self.segments[0].start if self.segments else 0

    def walk(self, check_crc: bool = True) -> Iterator[FoundRecord | Damage]:
        """Every record in log order, and between them what is none."""
        for number, segment in enumerate(self.segments):
            position = 0
            while position < segment.size:
                scan = scan_record(segment.view(), position, segment.size, check_crc)
                if scan.kind == OK and scan.physical_offset == segment.start + position:
                    yield FoundRecord(scan, segment, position)
                    position += scan.size
                    continue
                if scan.kind == BLANK:
                    break
                follows = next_record(segment, position, segment.size)
                if follows < 0 and not self._is_used(number + 1):
                    return
                follows = segment.size if follows < 0 else follows
                reason = scan.reason or f"it says that it lies at {scan.physical_offset}"
                yield Damage(segment.start + position, segment.start + follows, reason)
                position = follows
            segment.close()

    def _is_used(self, number: int) -> bool:
        return any(scan_record(s.view(), 0, s.size, False).kind == OK for s in self.segments[number:])


def commitlog_directories(disk: Disk, root: str) -> list[str]:
    """Where the log of a store directory is. StoreError if `root` is none."""
    directory = os.path.join(root, "commitlog")
    if not disk.exists(directory) and not disk.exists(os.path.join(root, "checkpoint")):
        raise StoreError(f"{root} is no store directory: there is no {directory}")
    return [directory]
