"""A row of files of equal length that together are one long run of bytes.

    00000000000000000000   00000000001073741824   00000000002147483648        names: offset of the first byte
    |<--- segment_bytes -->|<-- segment_bytes ->|<----- wrote ---->          |
    0                                  flushed_offset        max_offset

    flushed <= wrote <= size in every segment, at every moment; what was written can be read.

Everything here runs on the one thread that owns the store, with one exception: `create()` touches no state and may run
in the allocation thread, which hands over what it made with `offer()`. Where no such thread is attached, `roll()`
creates the file itself.

A removed segment stays readable for whoever holds a slice of it; see store/disk.py. So nobody counts references, and
removal never waits.

Flushing has three steps, because the middle one runs in another thread:
`flush_steps()` says which files to sync up to where, `file.sync()`, `flushed_to()` notes the success.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from cometmq.errors import StoreError
from cometmq.names import segment_name, segment_offset
from cometmq.store.disk import PAGE_BYTES, Disk, File

log = logging.getLogger(__name__)

# Small segments roll often, and two of them cost little room; of large ones the next is made when half is written.
AHEAD_AT_ONCE_BYTES_MAX: Final = 64 << 20
CREATE_SLOW_MS: Final = 10
_ZERO_BLOCK: Final = bytes(64 << 10)
# Pages of a new file come to memory by a write of so many zeros, not by a fault of the map for each, which reads what
# was never written: 0.5 us for a record of 1.1 KB, against 2.4 us.
TOUCH_BYTES: Final = 64 << 10


class Segment:
    def __init__(self, file: File, start: int) -> None:
        self.file = file
        self.start = start
        self.size = file.size
        self.end = start + file.size
        self.wrote = 0
        self.flushed = 0
        # Of the last record written here; what the checkpoint takes when this much is flushed.
        self.store_time_ms = 0
        # True when every block is owned: only then may anyone write to the map.
        self.reserved = False
        # Up to here pages were in memory before the map was written; see TOUCH_BYTES.
        self.touched = 0
        self._view: memoryview | None = None

    @property
    def is_full(self) -> bool:
        return self.wrote == self.size

    def view(self) -> memoryview:
        """The whole file, mapped when first needed. OSError if it was removed before."""
        view = self._view
        if view is None:
            view = self._view = memoryview(self.file.map())
        return view

    def reserve(self) -> None:
        """Own all blocks, also of a file that Java left sparse. DiskFull: not now."""
        if not self.reserved:
            self.file.allocate(0, self.size)
            self.reserved = True

    def touch(self, end: int) -> None:
        """Have the pages from `wrote` to `end`, and some more, in memory. What was written stays as it is."""
        begin = max(self.wrote, self.touched)
        self.touched = min(self.size, (end + TOUCH_BYTES) & ~(TOUCH_BYTES - 1))
        while begin < self.touched:
            count = min(TOUCH_BYTES, self.touched - begin)
            self.file.pwrite(begin, _ZERO_BLOCK[:count])
            begin += count

    def close(self) -> None:
        self._view = None
        self.file.close()


class FlushStep:
    """Sync `segment`; then its bytes up to `target` are on disk, the last record of store time `store_time_ms`."""

    def __init__(self, segment: Segment, target: int, store_time_ms: int) -> None:
        self.segment = segment
        self.target = target
        self.store_time_ms = store_time_ms


class Segments:
    """`directories` take new files in turn; those of `read_only_directories` are only read."""

    def __init__(
        self,
        disk: Disk,
        directories: list[str],
        segment_bytes: int,
        *,
        read_only_directories: list[str] | None = None,
        warm: bool = False,
        read_ahead: bool = True,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.disk = disk
        self.directories = sorted(directories)
        self.read_only_directories = read_only_directories or []
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self.flushed_offset = 0
        # Directories on a partition that is nearly full get no new file while there is another choice.
        self.is_crowded: Callable[[str], bool] = _never
        # Makes the segment at an offset for roll(): here and now, unless an allocation thread took this over.
        self.make: Callable[[int], Segment | None] = self.create
        # Told which segment will be needed next; the allocation thread listens.
        self.want: Callable[[int], object] = _ignore
        self.prepared: dict[int, Segment] = {}
        self._warm = warm
        self._read_ahead = read_ahead
        self._now_ms = now_ms

    # Who makes segments, and where

    def allocate_with(self, make: Callable[[int], Segment | None], want: Callable[[int], object]) -> None:
        """`make` gives the segment that is needed now; `want` is told of one that will be needed next."""
        self.make = make
        self.want = want

    def allocate_alone(self) -> None:
        """A segment is made when it is needed."""
        self.make = self.create
        self.want = _ignore

    def avoid(self, is_crowded: Callable[[str], bool]) -> None:
        """`is_crowded`: directory -> whether new segments should be elsewhere."""
        self.is_crowded = is_crowded

    # Where things are

    @property
    def min_offset(self) -> int:
        return self.segments[0].start if self.segments else 0

    @property
    def max_offset(self) -> int:
        if not self.segments:
            return 0
        last = self.segments[-1]
        return last.start + last.wrote

    def last(self) -> Segment | None:
        return self.segments[-1] if self.segments else None

    def find(self, offset: int, return_first: bool = False) -> Segment | None:
        """The segment that has this offset; with `return_first` the oldest one when none has it."""
        segments = self.segments
        if not segments:
            return None
        size = self.segment_bytes
        first = segments[0]
        if first.start <= offset < segments[-1].end:
            index = offset // size - first.start // size
            if index < len(segments) and segments[index].start <= offset < segments[index].end:
                return segments[index]
            # Only a gap between files brings us here.
            for segment in segments:
                if segment.start <= offset < segment.end:
                    return segment
        return first if return_first else None

    def totals(self) -> tuple[int, int]:
        """How many files, and the sum of their sizes."""
        return len(self.segments), len(self.segments) * self.segment_bytes

    # Growing

    def path_of(self, start: int) -> str:
        roomy = [path for path in self.directories if not self.is_crowded(path)] or self.directories
        return os.path.join(roomy[start // self.segment_bytes % len(roomy)], segment_name(start))

    def create(self, start: int) -> Segment:
        """Make the file with all its blocks, durable by name. Changes no state: may run in any thread.

        DiskFull or OSError if that is not possible; then there is no file either.
        """
        began_ms = self._now_ms() if self._now_ms is not None else 0
        path = self.path_of(start)
        file = self.disk.open(path, self.segment_bytes, create=True, allocate=True)
        self.disk.sync_dir(os.path.dirname(path))
        if self._warm:
            file.warm()
        if not self._read_ahead:
            file.advise_random()
        segment = Segment(file, start)
        segment.reserved = True
        segment.view()
        if self._now_ms is not None and self._now_ms() - began_ms > CREATE_SLOW_MS:
            log.info("created segment slowly path=%s took_ms=%d", path, self._now_ms() - began_ms)
        return segment

    def offer(self, segment: Segment) -> None:
        """A segment made ahead of need."""
        self.prepared[segment.start] = segment

    def wanted(self) -> list[int]:
        """Offsets of the segments that should be prepared now, nearest first. A new log begins at 0."""
        last = self.last()
        if last is None:
            return [0] if 0 not in self.prepared else []
        ahead = 2 if self.segment_bytes <= AHEAD_AT_ONCE_BYTES_MAX else 1 if last.wrote * 2 >= last.size else 0
        starts = [last.end + number * self.segment_bytes for number in range(ahead)]
        return [start for start in starts if start not in self.prepared]

    def prepare_now(self) -> None:
        """What the allocation thread does, done here: make all that is wanted."""
        for start in self.wanted():
            self.offer(self.create(start))

    def prepare_at(self) -> int:
        """The offset at which `ask_ahead()` has something to ask for."""
        last = self.last()
        if last is None or self.segment_bytes <= AHEAD_AT_ONCE_BYTES_MAX:
            return 0
        return last.start + last.size // 2

    def ask_ahead(self) -> None:
        for start in self.wanted():
            self.want(start)

    def next_start(self, first_offset: int) -> int:
        """Where the next file begins; `first_offset` counts only for the very first one."""
        last = self.last()
        return last.end if last is not None else first_offset - first_offset % self.segment_bytes

    def roll(self, first_offset: int = 0) -> Segment | None:
        """The next segment, empty, now the last one. None: it cannot be had in time. DiskFull, OSError: as create().

        Nothing changes unless it succeeds.
        """
        start = self.next_start(first_offset)
        segment = self._take_prepared(start) or self.make(start)
        if segment is None:
            return None
        if not self.segments:
            self.flushed_offset = max(self.flushed_offset, first_offset)
            segment.wrote = segment.flushed = first_offset - start
        self.segments.append(segment)
        return segment

    def _take_prepared(self, start: int) -> Segment | None:
        """A RocketMQ broker that is started on this directory by mistake removes empty files before it sees that the
        directory is taken. What we would write to such a file were lost with our last reference to it."""
        segment = self.prepared.pop(start, None)
        if segment is None or self.disk.exists(segment.file.path):
            return segment
        log.error("lost segment that was made ahead, make it anew path=%s: who removed it?", segment.file.path)
        segment.close()
        return None

    def drop_prepared(self) -> None:
        """Remove the files that nobody took, as before a stop."""
        for segment in self.prepared.values():
            segment.close()
            try:
                self.disk.remove(segment.file.path)
            except OSError as error:  # the next start removes what lies behind the end of the log
                log.warning("kept segment made ahead path=%s error=%s", segment.file.path, error)
        self.prepared.clear()

    # Flushing

    def flush_steps(self, pages_min: int) -> list[FlushStep]:
        """What has to be synced, in order. A full segment always counts, the last one from `pages_min` dirty pages."""
        steps: list[FlushStep] = []
        for segment in reversed(self.segments):
            if segment.end <= self.flushed_offset:
                break
            if segment.wrote > segment.flushed and (segment.is_full or _dirty_enough(segment, pages_min)):
                steps.append(FlushStep(segment, segment.wrote, segment.store_time_ms))
        steps.reverse()
        return steps

    def flushed_to(self, step: FlushStep) -> None:
        segment = step.segment
        segment.flushed = max(segment.flushed, step.target)
        self.flushed_offset = max(self.flushed_offset, segment.start + step.target)

    def flush(self, pages_min: int) -> int:
        """All three steps here and now. Returns how many files were synced; OSError if one could not be."""
        steps = self.flush_steps(pages_min)
        for step in steps:
            step.segment.file.sync()
            self.flushed_to(step)
        return len(steps)

    # Loading, cutting, removing

    def load(self) -> None:
        """Take what is in the directories, every file as full; recovery finds the real end. See `cut()`.

        StoreError for a file of another length or name: such a directory was made with other settings, or is damaged.
        """
        found: list[tuple[int, str, bool]] = []
        for directory in self.directories:
            found += [(_start_of(directory, name), directory, True) for name in self.disk.list_files(directory)]
        for directory in self.read_only_directories:
            found += [(_start_of(directory, name), directory, False) for name in self.disk.list_files(directory)]
        found.sort()
        if found and not found[-1][2]:
            raise StoreError(
                f"the newest segment {segment_name(found[-1][0])} lies in {found[-1][1]}, a path of "
                "readOnlyCommitLogStorePaths: move it to a path of storePathCommitLog"
            )
        for index, (start, directory, writable) in enumerate(found):
            path = os.path.join(directory, segment_name(start))
            length = self.disk.size(path)
            if length == 0 and index == len(found) - 1:
                log.warning("removed empty segment path=%s", path)
                self.disk.remove(path)
                continue
            if length != self.segment_bytes:
                raise StoreError(
                    f"{path} has {length} bytes, but the file size is set to {self.segment_bytes}: "
                    "set it to the size that this store was made with, or restore the file"
                )
            segment = Segment(self.disk.open(path, length, create=False, allocate=False, writable=writable), start)
            segment.wrote = segment.flushed = segment.size
            self.segments.append(segment)
        self.flushed_offset = self.max_offset
        self.report_gaps()

    def report_gaps(self) -> int:
        """Log and count the places where a segment is missing; nothing is changed."""
        gaps = 0
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.end != after.start:
                gaps += 1
                log.error("found gap between segments end=%d next_start=%d", before.end, after.start)
        return gaps

    def cut(self, offset: int) -> None:
        """Make `offset` the end: later files go, the rest of the file that has it becomes zeros, on disk.

        Zeros, because a whole record left behind the end would come back to life when a shorter log grows up to it.
        """
        kept: list[Segment] = []
        behind: list[Segment] = []
        for segment in self.segments:
            if segment.end <= offset:
                kept.append(segment)
            elif segment.start <= offset:
                segment.wrote = segment.flushed = offset - segment.start
                if _zero_from(segment, segment.wrote):
                    segment.file.sync()
                kept.append(segment)
            else:
                behind.append(segment)
        # The last one first, so that a crash in between leaves no gap; and for good, or its records come back.
        for segment in reversed(behind):
            log.warning("removed segment behind the end path=%s end=%d", segment.file.path, offset)
            self._remove_file(segment)
        for directory in sorted({os.path.dirname(segment.file.path) for segment in behind}):
            self.disk.sync_dir(directory)
        self.segments = kept
        self.flushed_offset = min(offset, self.max_offset) if kept else offset

    def remove(self, segment: Segment) -> None:
        """Delete one segment, usually the oldest. Who still reads it can finish."""
        self.segments.remove(segment)
        self._remove_file(segment)

    def _remove_file(self, segment: Segment) -> None:
        segment.close()
        self.disk.remove(segment.file.path)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


def _never(_path: str) -> bool:
    return False


def _ignore(_start: int) -> None: ...


def _start_of(directory: str, name: str) -> int:
    start = segment_offset(name)
    if start is None:
        raise StoreError(f"{os.path.join(directory, name)} is not a store file (20 digits): move it elsewhere")
    return start


def _dirty_enough(segment: Segment, pages_min: int) -> bool:
    return segment.wrote // PAGE_BYTES - segment.flushed // PAGE_BYTES >= pages_min


def _zero_from(segment: Segment, position: int) -> bool:
    """Zero what is not zero already, without touching the (many) pages that are. True if something was."""
    changed = False
    at = _next_data(segment.file, position)
    while at is not None:
        end = min(segment.size, at + len(_ZERO_BLOCK))
        # Not through the map: on tmpfs even reading a hole there takes a page.
        data = segment.file.pread(at, end - at)
        # Compiled, a slice of the whole block would be a copy.
        if data != (_ZERO_BLOCK if len(data) == len(_ZERO_BLOCK) else bytes(len(data))):
            _zero_pages(segment.view(), at, data)
            changed = True
        at = _next_data(segment.file, end)
    return changed


def _next_data(file: File, position: int) -> int | None:
    """Where data may follow. Pages that were only read ahead, as our own reading does, are no data.

    Without this a GiB that was never written was read to its end, at over 1 ms a MiB.
    """
    file.forget(position - position % PAGE_BYTES)
    return file.next_data(position)


def _zero_pages(view: memoryview, start: int, data: bytes) -> None:
    """Zero the pages of `data`, which lies at `start`, that are not zeros: these have their blocks.

    The others may be holes in a file that Java left sparse; writing to one on a full disk would be a SIGBUS.
    """
    at = start
    end = start + len(data)
    while at < end:
        page_end = min(end, at - at % PAGE_BYTES + PAGE_BYTES)
        if any(data[at - start : page_end - start]):
            view[at:page_end] = bytes(page_end - at)
        at = page_end
