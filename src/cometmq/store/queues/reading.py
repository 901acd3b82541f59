"""Reading messages of a queue: from the units of the consume queue to slices of the commit log.

    offset                      status                    next offset
    no such queue               NO_MATCHED_LOGIC_QUEUE    0 *
    queue without messages      NO_MESSAGE_IN_QUEUE       0 *
    below the first             OFFSET_TOO_SMALL          the first *
    the end                     OFFSET_OVERFLOW_ONE       the same
    behind the end              OFFSET_OVERFLOW_BADLY     the end *
    its queue file is gone      OFFSET_FOUND_NULL         first of the next file *
    otherwise                   FOUND, NO_MATCHED_MESSAGE or MESSAGE_WAS_REMOVING, behind the last unit examined
    * a replica gives back the offset that was asked for, unless `offsetCheckInSlave` is on

Nothing is copied, decoded or encoded: the result has slices of the mapped segments, and they stay valid for whoever
holds them, even when the segment is deleted meanwhile.

Touching a page that is not in memory would stop the event loop for as long as the disk takes. So before a record is
touched that this process has not written lately, the kernel is asked whether its pages are there; if not, the result is
`cold` and names the ranges to load, see results.GetResult.

A unit that points to bytes which are not the start of a record of that size is passed over: one such piece in an
answer would make a client drop the good ones behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from cometmq.clock import Clock, SystemClock
from cometmq.store.disk import Disk, File
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.segments import Segment
from cometmq.store.options import StoreOptions
from cometmq.store.queues.batch_queue import BATCH_UNIT_BYTES, BatchQueue
from cometmq.store.queues.consume_queue import BLANK_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from cometmq.store.queues.consume_queues import AnyQueue, ConsumeQueues
from cometmq.store.queues.extension import ExtUnit, is_address
from cometmq.store.record import properties_at
from cometmq.store.results import GetResult, GetStatus
from cometmq.wire.integers import COMPILED, i32_at, i64_at
from cometmq.wire.record.layout import MAGIC_V1, MAGIC_V2

if TYPE_CHECKING:
    from mypy_extensions import i64

log = logging.getLogger(__name__)

GET_BYTES_MAX: Final = 128 << 20
GET_BYTES_MIN: Final = 100
_UNITS_AT_ONCE: Final = 800
# With a filter by properties a unit costs the reading of its record; and a walk that finds little gives the event loop
# back after this long, to go on where the next get begins.
_UNITS_AT_ONCE_FILTERED: Final = 50
_WALK_S_MAX: Final = 0.005
# How much of the log the kernel is asked about at once.
_WINDOW_BYTES: Final = 64 << 10
_WINDOW_BYTES_BULK: Final = 1 << 20
_RAM_UNKNOWN_BYTES: Final = 24 << 30

_START: Final = Struct(">ii")
_START_AS_ONE: Final = Struct(">q")
_V1: Final = MAGIC_V1 & 0xFFFFFFFF
_V2: Final = MAGIC_V2 & 0xFFFFFFFF

# By tag code and extension unit; the code is None where the extension cannot be read. True: the message may be wanted.
UnitFilter: TypeAlias = Callable[[int | None, ExtUnit | None], bool]
# By the properties of the record. True: the message is wanted.
RecordFilter: TypeAlias = Callable[[bytes], bool]
# Number, messages inside, physical offset, size, tag code.
_Unit: TypeAlias = tuple[int, int, int, int, int]


class Reading:
    """`found` and `missed` count gets, `transferred` messages; `longest_s` is the longest get so far."""

    def __init__(
        self,
        commitlog: CommitLog,
        queues: ConsumeQueues,
        options: StoreOptions,
        disk: Disk,
        clock: Clock | None = None,
    ) -> None:
        self.closed: bool = False
        self.found: int = 0
        self.missed: int = 0
        self.transferred: int = 0
        self.longest_s: float = 0.0
        self._monotonic: Callable[[], float] = (clock or SystemClock()).monotonic
        self._log: CommitLog = commitlog
        self._queues: ConsumeQueues = queues
        self._options: StoreOptions = options
        ram_bytes = disk.ram_bytes() or _RAM_UNKNOWN_BYTES
        self.memory_bytes: int = ram_bytes * options.memory_percent_max // 100
        # What was there before this process; its pages may not be in memory, however near the end it lies.
        self._written_from: int = commitlog.max_offset
        self._resident_segment: Segment | None = None
        self._resident_from: int = 0
        self._resident_to: int = 0

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int = GET_BYTES_MAX,
        unit_filter: UnitFilter | None = None,
        record_filter: RecordFilter | None = None,
        loaded_units: int = 0,
        units_max: int = 0,
        bulk: bool = False,
    ) -> GetResult | None:
        """Messages from `offset` on; looks through at most `units_max` units if that is less than the settings allow.

        With `bulk` only `count_max` and `bytes_max` bound the answer, not the settings for one get.

        None: the store is closed or not readable.
        """
        if self.closed or not self._log.flags.readable:
            return None
        began_s = self._monotonic()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            result = GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, self._corrected(offset, 0), 0, 0)
        else:
            result = self._get(
                queue, offset, count_max, bytes_max, unit_filter, record_filter, loaded_units, units_max, bulk
            )
        if result.status == GetStatus.FOUND:
            if not result.cold:
                self.found += 1
                self.transferred += result.count
        else:
            self.missed += 1
        elapsed_s = self._monotonic() - began_s
        if elapsed_s > self.longest_s:
            self.longest_s = elapsed_s
        return result

    def _get(
        self,
        queue: AnyQueue,
        offset: int,
        count_max: int,
        bytes_max: int,
        unit_filter: UnitFilter | None,
        record_filter: RecordFilter | None,
        loaded_units: int,
        units_max: int,
        bulk: bool,
    ) -> GetResult:
        first = max(0, queue.min_offset)
        end = queue.max_offset
        if end == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, self._corrected(offset, 0), first, end)
        if offset < first:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, self._corrected(offset, first), first, end)
        if offset == end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
        if offset > end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, self._corrected(offset, end), first, end)
        result = GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, offset, first, end)
        scan = _Scan(self, queue, result, offset, count_max, bytes_max, unit_filter, record_filter, loaded_units)
        if units_max:
            scan.units_max = min(scan.units_max, units_max)
        if bulk:
            scan.bytes_max_in_memory = scan.bytes_max_on_disk = scan.bytes_max
            scan.count_max_in_memory = scan.count_max_on_disk = count_max
            scan.window_bytes = _WINDOW_BYTES_BULK
        scan.run()
        return result

    def _corrected(self, offset: int, better: int) -> int:
        if self._options.is_slave and not self._options.offset_check_on_slave:
            return offset
        return better

    def load(self, result: GetResult) -> None:
        """Bring the pages of a cold result into memory. Waits for the device: run it in another thread."""
        self.load_ranges(result.cold_ranges)

    def load_ranges(self, ranges: list[tuple[File, int, int]]) -> None:
        for file, position, count in ranges:
            try:
                file.pread(position, count)
            except OSError as error:
                log.warning("failed to load pages path=%s position=%d error=%s", file.path, position, error)

    def cold_range(self, physical_offset: int, size: int) -> tuple[File, int, int] | None:
        """What to read in another thread before this record is touched; None if it is in memory, or not there."""
        segment = self._log.segments.find(physical_offset)
        if segment is None or physical_offset - segment.start + size > segment.wrote:
            return None
        position = physical_offset - segment.start
        is_cold = self._is_cold(segment, position, size, self._log.max_offset)
        return (segment.file, position, size) if is_cold else None

    def _is_cold(
        self, segment: Segment, position: int, size: int, log_end: int, window_bytes: int = _WINDOW_BYTES
    ) -> bool:
        physical_offset = segment.start + position
        if physical_offset >= self._written_from and log_end - physical_offset <= self.memory_bytes:
            return False
        if (
            segment is self._resident_segment
            and self._resident_from <= position
            and position + size <= self._resident_to
        ):
            return False
        segment.view()
        count = min(max(size, window_bytes), segment.wrote - position)
        if not segment.file.resident(position, count):
            return True
        self._resident_segment = segment
        self._resident_from = position
        self._resident_to = position + count
        return False


class _Scan:
    """One get: the walk over units, with what it has found so far."""

    def __init__(
        self,
        reading: Reading,
        queue: AnyQueue,
        result: GetResult,
        offset: int,
        count_max: int,
        bytes_max: int,
        unit_filter: UnitFilter | None,
        record_filter: RecordFilter | None,
        loaded_units: int,
    ) -> None:
        options = reading._options
        self.reading: Reading = reading
        self.queue: AnyQueue = queue
        self.result: GetResult = result
        self.offset: int = offset
        self.next_offset: int = offset
        self.count_max: int = count_max
        self.bytes_max: int = max(GET_BYTES_MIN, min(bytes_max, GET_BYTES_MAX))
        self.unit_filter: UnitFilter | None = unit_filter
        self.record_filter: RecordFilter | None = record_filter
        self.is_filtered: bool = unit_filter is not None or record_filter is not None
        self.loaded_units: int = loaded_units
        self.log_end: int = reading._log.max_offset
        self.segment: Segment | None = None
        self.skip_below: int = -1
        self.full: bool = False
        self.window_bytes: int = _WINDOW_BYTES
        self.last_physical: int = -1
        self.run_segment: Segment | None = None
        self.run_start: int = 0
        self.run_end: int = 0
        unit_bytes = BATCH_UNIT_BYTES if isinstance(queue, BatchQueue) else UNIT_BYTES
        self.units_max: int = -(-max(options.filter_scan_bytes_max, count_max * unit_bytes) // unit_bytes)
        if loaded_units:
            self.units_max = min(self.units_max, loaded_units)
        self.bytes_max_in_memory: int = options.get_bytes_max_in_memory
        self.count_max_in_memory: int = options.get_count_max_in_memory
        self.bytes_max_on_disk: int = options.get_bytes_max_on_disk
        self.count_max_on_disk: int = options.get_count_max_on_disk

    def run(self) -> None:
        files_left = self.reading._options.queue_files_per_get
        result = self.result
        file_end = self.queue.next_file_offset(self.offset)
        count_max = max(1, min(self.count_max, self.count_max_in_memory))
        at_once = count_max
        at_once_max = _UNITS_AT_ONCE if self.record_filter is None else _UNITS_AT_ONCE_FILTERED
        monotonic = self.reading._monotonic
        until_s: float = monotonic() + _WALK_S_MAX if self.is_filtered else 0.0
        more = True
        while more and self.next_offset < result.max_offset:
            if self.next_offset >= file_end:
                files_left -= 1
                if files_left <= 0 or result.count:
                    break
                file_end = self.queue.next_file_offset(self.next_offset)
            before = self.next_offset
            units = self._read(at_once)
            if self.next_offset == before and not units:
                if not result.count:
                    result.status = GetStatus.OFFSET_FOUND_NULL
                    self.next_offset = self.reading._corrected(self.next_offset, file_end)
                break
            more = not self.full and self._take(units) and result.count < count_max
            if not result.count:
                at_once = at_once_max
            if self.is_filtered and monotonic() > until_s:
                break
        self._end_run()
        result.next_offset = self.next_offset
        if self.last_physical >= 0:
            result.behind_bytes = self.log_end - self.last_physical
            result.suggest_slave = result.behind_bytes > self.reading.memory_bytes

    def _read(self, count: int) -> list[_Unit]:
        """The next units, without those at their start that could be taken at once."""
        queue = self.queue
        try:
            if not isinstance(queue, ConsumeQueue):
                found = queue.read(self.next_offset, count)
                return [(unit.base, unit.count, unit.physical_offset, unit.size, unit.tags_code) for unit in found]
            data = queue.read(self.next_offset, count)
        except FileNotFoundError:
            return []
        if COMPILED and self.unit_filter is None and self.record_filter is None:
            data = data[self._take_plain(data) :]
            if self.full:
                return []
        units: list[_Unit] = []
        number = self.next_offset
        for physical_offset, size, tags_code in UNIT.iter_unpack(data[: len(data) // UNIT_BYTES * UNIT_BYTES]):
            units.append((number, 1, physical_offset, size, tags_code))
            number += 1
        return units

    def _take_plain(self, data: bytes) -> int:
        """Take units up to the first that is not simply a record in memory; how many bytes of `data` they are.

        What `_take` would do with them, but without an object for each number and a call for each question.
        """
        result = self.result
        reading = self.reading
        memory_from: i64 = self.log_end - reading.memory_bytes
        warm_from: i64 = 0 if self.loaded_units else max(memory_from, reading._written_from)
        bytes_max_near: i64 = min(self.bytes_max, self.bytes_max_in_memory)
        count_max_near: i64 = min(self.count_max, self.count_max_in_memory)
        bytes_max_far: i64 = min(self.bytes_max, self.bytes_max_on_disk)
        count_max_far: i64 = min(self.count_max, self.count_max_on_disk)
        first = self.next_offset
        end: i64 = min(len(data) // UNIT_BYTES, self.units_max - (first - self.offset)) * UNIT_BYTES
        count: i64 = result.count
        total: i64 = result.bytes
        unpack_from = _START_AS_ONE.unpack_from
        segment: Segment | None = None
        view = memoryview(b"")
        start: i64 = 0
        wrote: i64 = 0
        run_end: i64 = -1
        resident_from: i64 = 0
        resident_to: i64 = 0
        last: i64 = self.last_physical
        at: i64 = 0
        while at < end:
            place = i64_at(data, at)
            size = i32_at(data, at + 8)
            near = place >= memory_from
            if count and (
                count >= (count_max_near if near else count_max_far)
                or total + size > (bytes_max_near if near else bytes_max_far)
            ):
                self.full = True
                break
            if segment is None or place < start or place >= start + wrote:
                segment = reading._log.segments.find(place)
                if segment is None:
                    break
                view = segment.view()
                start = segment.start
                wrote = segment.wrote
                run_end = self.run_end if segment is self.run_segment else -1
                resident_to = 0
            position = place - start
            record_end = position + size
            if size < _START.size or record_end > wrote:
                break
            if place < warm_from and (position < resident_from or record_end > resident_to):
                if self._is_cold(segment, position, size):
                    break
                resident_from = reading._resident_from
                resident_to = reading._resident_to
            head: i64 = unpack_from(view, position)[0]
            if head != (size << 32 | _V1) and head != (size << 32 | _V2):
                break
            if position != run_end:
                self._end_run()
                self.run_segment = segment
                self.run_start = position
            run_end = record_end
            self.run_end = record_end
            last = place
            count += 1
            total += size
            at += UNIT_BYTES
        if at:
            self._pass(first + at // UNIT_BYTES, last)
            self.skip_below = -1
            result.status = GetStatus.FOUND
            result.count = count
            result.bytes = total
            result.queue_offsets.extend(range(first, self.next_offset))
        return at

    def _take(self, units: list[_Unit]) -> bool:
        """Go through some units. False: the walk is over."""
        result = self.result
        for number, inside, physical_offset, size, tags_code in units:
            if number - self.offset >= self.units_max or self._is_full(physical_offset, size, inside):
                return False
            if physical_offset < self.skip_below:
                self._pass(number + inside, physical_offset)
                continue
            if self.unit_filter is not None and not self._unit_matches(tags_code):
                self._pass(number + inside, physical_offset)
                self._if_nothing(GetStatus.NO_MATCHED_MESSAGE)
                continue
            segment = self._segment_of(physical_offset, size)
            if segment is None:
                self._pass(number + inside, physical_offset)
                self._if_nothing(GetStatus.MESSAGE_WAS_REMOVING)
                continue
            position = physical_offset - segment.start
            if not self.loaded_units and self._is_cold(segment, position, size):
                if not result.count:
                    self._collect_cold(units, number)
                return False
            self._pass(number + inside, physical_offset)
            if not _is_record(segment, position, size):
                log.error("passed over unit that points to no record physical_offset=%d size=%d", physical_offset, size)
                self._if_nothing(GetStatus.MESSAGE_WAS_REMOVING)
            elif self.record_filter is not None and not self._record_matches(segment, position, size):
                self._if_nothing(GetStatus.NO_MATCHED_MESSAGE)
            else:
                self._add(segment, position, size, number, inside)
        return True

    def _is_cold(self, segment: Segment, position: int, size: int) -> bool:
        return self.reading._is_cold(segment, position, size, self.log_end, self.window_bytes)

    def _pass(self, next_offset: int, physical_offset: int) -> None:
        self.next_offset = next_offset
        self.last_physical = physical_offset

    def _if_nothing(self, status: int) -> None:
        if not self.result.count:
            self.result.status = status

    def _is_full(self, physical_offset: int, size: int, inside: int) -> bool:
        count = self.result.count
        if count == 0:
            return False
        total = self.result.bytes + size
        if count + inside > self.count_max or total > self.bytes_max:
            return True
        if self.log_end - physical_offset <= self.reading.memory_bytes:
            return total > self.bytes_max_in_memory or count >= self.count_max_in_memory
        return total > self.bytes_max_on_disk or count >= self.count_max_on_disk

    def _unit_matches(self, tags_code: int) -> bool:
        assert self.unit_filter is not None
        if not is_address(tags_code):
            return self.unit_filter(tags_code, None)
        ext = self.reading._queues.ext(self.queue.topic, self.queue.queue_id)
        unit = None if ext is None else ext.get(tags_code)
        return self.unit_filter(None if unit is None else unit.tags_code, unit)

    def _record_matches(self, segment: Segment, position: int, size: int) -> bool:
        assert self.record_filter is not None
        view = segment.view()
        return self.record_filter(bytes(view[properties_at(view, position, size) : position + size]))

    def _segment_of(self, physical_offset: int, size: int) -> Segment | None:
        """The segment that has the whole record; None if it is not there (any more)."""
        if size == BLANK_SIZE:
            return None
        segment = self.segment
        if segment is None or not segment.start <= physical_offset < segment.end:
            segment = self.segment = self.reading._log.segments.find(physical_offset)
            if segment is None:
                segment_bytes = self.reading._log.segments.segment_bytes
                self.skip_below = physical_offset - physical_offset % segment_bytes + segment_bytes
                return None
        return segment if physical_offset + size <= segment.start + segment.wrote else None

    def _collect_cold(self, units: list[_Unit], first: int) -> None:
        """Name what to load: as much as a read from disk would return."""
        result = self.result
        result.cold = True
        result.status = GetStatus.FOUND
        total = count = 0
        for number, inside, physical_offset, size, tags_code in units:
            if number < first:
                continue
            if count and (total + size > self.bytes_max_on_disk or count + inside > self.count_max_on_disk):
                break
            result.cold_units = number + inside - self.offset
            if self.unit_filter is not None and not self._unit_matches(tags_code):
                continue
            segment = self._segment_of(physical_offset, size)
            if segment is not None:
                result.cold_ranges.append((segment.file, physical_offset - segment.start, size))
                total += size
                count += inside

    def _add(self, segment: Segment, position: int, size: int, number: int, inside: int) -> None:
        result = self.result
        if segment is not self.run_segment or position != self.run_end:
            self._end_run()
            self.run_segment = segment
            self.run_start = position
        self.run_end = position + size
        result.status = GetStatus.FOUND
        result.count += inside
        result.bytes += size
        result.queue_offsets.append(number)
        self.skip_below = -1

    def _end_run(self) -> None:
        if self.run_segment is not None:
            self.result.slices.append(self.run_segment.view()[self.run_start : self.run_end])
            self.run_segment = None


def _is_record(segment: Segment, position: int, size: int) -> bool:
    found_size, magic = _START.unpack_from(segment.view(), position)
    return bool(found_size == size and magic in (MAGIC_V1, MAGIC_V2))
