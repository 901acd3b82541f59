"""Recovery: where the log really ends, and queues and index that agree with it.

    segments   |  trusted  |  trusted  |   scanned   |   scanned ..x      |  zeros (made ahead)  |
                                       ^ start                     ^ end   removed

The scan begins at a segment whose older messages are safely in the queues:

    after a clean stop   the newest segment that starts at or before the newest message known to a queue
    after a crash        the newest segment that starts with a flushed record, at or before the message up to which the
                         queues were synced (checkpoint field 40), or by the checkpoint's times less 3 s, as releases
                         before 5.5 do; every unit for a message from there on is dropped and made again: it may be torn

and after a clean stop looks back over `commitLogRecoverMaxNum` segments at most, unless no queue reaches that far: such
a limit may save time, it may not lose messages. So a store whose queues were deleted is read from its first segment.
Every record is checked and dispatched; what is known already changes nothing. If a queue turns out to lack older
messages than the scan goes through, because its own tail is lost, the scan begins again further back.

Where the bytes are no record, this is either the torn tail that a power cut leaves, which is cut, or damage, which is
reported and stays. Damage has a record behind it, in this segment or at the start of a later one, and

- no 512-byte sector of zeros in it: what a power cut takes away is zeros, because a segment is made of them, or
- that record is known to have been on disk: after a clean stop all were, after a crash those that are older than the
  checkpoint says. (Pages reach the disk in any order, those of two segments too: behind a hole in what was not flushed
  there may be whole records that nobody was promised.)

A record is whole if its lengths add up, its body matches its CRC, and it says itself that it lies where it lies. The
CRC does not cover topic and properties: there, zeros at the end give a cut record away, and in the part that was not
flushed, a 512-byte sector of zeros gives a torn one away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cometmq.store.disk import DiskFull
from cometmq.store.log.checkpoint import Checkpoint
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.resync import Damage, next_record
from cometmq.store.log.segments import Segment
from cometmq.store.options import StoreOptions
from cometmq.store.queues.consume_queue import QueueBehind
from cometmq.store.queues.consume_queues import ConsumeQueues
from cometmq.store.queues.dispatch import INDEX_TRIES, Dispatcher
from cometmq.store.queues.index import Index
from cometmq.store.record import properties_at
from cometmq.wire.integers import COMPILED, i32_at
from cometmq.wire.record.plain_scan import PlainScan
from cometmq.wire.record.scan import BLANK, OK, RecordScan, scan_record

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int], object]

_SECTOR_BYTES: Final = 512
_SEGMENTS_MAX_DEFAULT: Final = 10
# How much of the log is read again for the index alone: half a minute of starting, not more.
_INDEX_BYTES_MAX: Final = 8 << 30
_FAR: Final = (1 << 63) - 1
# Of the log, copied at a time for the scan of plain records.
_BLOCK_BYTES: Final = 256 << 10


class Recovered:
    """`end`: the log ends here. `last_valid`: the last record starts here (the checkpoint's confirm offset).

    `last_store_time_ms` is that of the last record; `scanned_from` is where the scan began.
    """

    def __init__(self) -> None:
        self.end: int = 0
        self.last_valid: int = 0
        self.last_store_time_ms: int = 0
        self.scanned_from: int = 0
        self.records: int = 0
        self.damages: list[Damage] = []


class Recovery:
    def __init__(
        self,
        commitlog: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        options: StoreOptions,
        crashed: bool,
    ) -> None:
        self.result: Recovered = Recovered()
        self._log: CommitLog = commitlog
        self._segments: list[Segment] = commitlog.segments.segments
        self._queues: ConsumeQueues = queues
        self._index: Index = index
        self._dispatcher: Dispatcher = dispatcher
        self._checkpoint: Checkpoint = checkpoint
        self._options: StoreOptions = options
        self._crashed: bool = crashed
        self._verify_property_crc: bool = options.property_crc_verify
        # Told how many segments were read, of how many.
        self.on_progress: OnProgress | None = None

    def run(self) -> Recovered:
        """Segments, queues, checkpoint and index are loaded. Afterwards all of them agree."""
        if not self._segments:
            self._queues.destroy_all()
            self._index.destroy_all()
            self._log.refresh()
            self._dispatcher.position = self._log.max_offset
            return self.result
        self._queues.verifying = self._index.headers_later = True
        try:
            self._rebuild()
        finally:
            self._index.headers_later = False
            self._index.write_headers()
            self._queues.verifying = self._queues.strict = False
            self._queues.made_from = 0
        result = self.result
        log.info(
            "recovered log crashed=%s from=%d end=%d records=%d damages=%d",
            self._crashed, result.scanned_from, result.end, result.records, len(result.damages),
        )  # fmt: skip
        return result

    def _rebuild(self) -> None:
        trusted = self._checkpoint.logics_physical_offset if self._crashed else _FAR
        newest = self._queues.recover(trusted)
        start = self.start_number(newest)
        if self._crashed:
            self._cut_queues(self._segments[start].start)
        else:
            self._queues.made_from = newest
        result = self.result
        result.end, start = self._scan_all(start)
        result.damages = list(self._dispatcher.damages)
        self._queues.cut(result.end)
        if self._crashed:
            # What a killed process left in memory only must not be taken for flushed.
            for segment in self._segments[start:]:
                segment.file.sync()
        self._log.segments.cut(result.end)
        self._log.refresh()
        self._segments = self._log.segments.segments
        if self._index.cut(result.end) and self._segments:
            records = result.records
            self._scan(self._index_start(), len(self._segments))
            result.records = records
        self._finish()

    def _cut_queues(self, physical_offset: int) -> None:
        """Drop the units from here on. A crash in between must not find a checkpoint that still speaks of them."""
        checkpoint = self._checkpoint
        if checkpoint.logics_physical_offset >= physical_offset:
            checkpoint.logics_physical_offset = max(0, physical_offset - 1)
            if physical_offset == 0:
                checkpoint.logics_time_ms = 0
            checkpoint.flush()
        self._queues.cut(physical_offset)

    def _scan_all(self, start: int) -> tuple[int, int]:
        """Scan from segment number `start` on, or from an earlier one if a queue turns out to lack older messages.

        Returns the end of the log, and where the scan began in the end.
        """
        self._queues.strict = True
        while True:
            result = self.result
            result.records = 0
            result.last_valid = result.scanned_from = self._segments[start].start
            try:
                return self._scan(min(start, self._index_start()), start), start
            except QueueBehind as behind:
                earlier = self._number_of(behind.physical_offset)
                log.warning("found queue behind physical_offset=%d start=%d", behind.physical_offset, earlier)
                if earlier >= start:
                    # It lacks what the log does not have either.
                    self._queues.strict = False
                else:
                    start = earlier

    def _number_of(self, physical_offset: int) -> int:
        """The number of the segment that has this offset; 0 if it lies before the log."""
        for number in range(len(self._segments) - 1, 0, -1):
            if self._segments[number].start <= physical_offset:
                return number
        return 0

    def _finish(self) -> None:
        result = self.result
        self._checkpoint.confirm_offset = result.last_valid
        if self._crashed:
            self._checkpoint.physic_time_ms = max(self._checkpoint.physic_time_ms, result.last_store_time_ms)
        # On a full disk units stay in memory, from where they are read; the store takes no messages until they are out.
        with suppress(DiskFull):
            if self._crashed:
                self._queues.flush_now(self._checkpoint)
            else:
                self._queues.write()
        self._queues.correct_min(self._log.min_offset)
        last = self._log.segments.last()
        if last is not None:
            last.store_time_ms = result.last_store_time_ms
        self._dispatcher.position = self._log.max_offset

    # Where to begin

    def start_number(self, newest: int) -> int:
        """The number of the segment where the scan begins; `newest` is the end of the newest message in a queue."""
        count_max = self._segments_max()
        for number in range(len(self._segments) - 1, 0, -1):
            if self._matches(self._segments[number], newest):
                return number
            # After a crash what a queue says is not known to be whole, so the limit cannot be trusted either.
            looked_back = len(self._segments) - number
            if not self._crashed and looked_back >= count_max and newest > self._segments[number].start:
                return number
        return 0

    def _segments_max(self) -> int:
        setting = self._options.recover_segments_max
        return setting if setting > 0 else _SEGMENTS_MAX_DEFAULT

    def _matches(self, segment: Segment, newest: int) -> bool:
        scan = self._scan_at(segment, 0, self._options.crc_check_on_recover)
        if scan.kind != OK or scan.store_timestamp_ms == 0:
            return False
        checkpoint = self._checkpoint
        time_ms = scan.store_timestamp_ms
        if self._options.index_enabled and self._options.index_safe and time_ms > checkpoint.index_time_ms:
            return False
        # Whatever the checkpoint says: where no queue reaches, they are incomplete.
        if segment.start > newest or not self._crashed:
            return segment.start <= newest
        # What lies before the scan is not looked at, so it must have been flushed.
        if not self._was_flushed(scan):
            return False
        if checkpoint.logics_physical_offset > 0:
            return segment.start <= checkpoint.logics_physical_offset
        return time_ms <= checkpoint.min_time_ms

    def _index_start(self) -> int:
        """The number of the segment behind which the index knows nothing; not further back than it is worth."""
        if not self._options.index_enabled:
            return len(self._segments)
        segments_max = max(self._segments_max(), _INDEX_BYTES_MAX // self._log.segments.segment_bytes)
        oldest = max(0, len(self._segments) - segments_max)
        for number in range(len(self._segments) - 1, oldest, -1):
            if self._segments[number].start <= self._index.newest_offset:
                return number
        return oldest

    # The scan

    def _scan(self, first: int, checked_from: int) -> int:
        """Go through the records from segment number `first` on. Returns the end of the log.

        Segments before `checked_from` are only read for the index.
        """
        number = first
        position = 0
        while True:
            segment = self._segments[number]
            if self.on_progress is not None:
                self.on_progress(number - first, len(self._segments) - first)
            check_crc = self._options.crc_check_on_recover and number >= checked_from
            position = self._scan_records(segment, position, check_crc)
            scan = self._scan_at(segment, position, check_crc)
            if scan.kind != BLANK:
                follows = self._behind_damage(number, position, scan)
                if follows < 0:
                    return segment.start + position
                if follows < segment.size:
                    position = follows
                    continue
            if number + 1 == len(self._segments):
                return segment.start + position
            number += 1
            position = 0

    def _scan_records(self, segment: Segment, position: int, check_crc: bool) -> int:
        """Dispatch records from `position` on. Returns where something else than a whole record lies."""
        view = segment.view()
        limit = segment.size
        start = segment.start
        result = self.result
        verify_property_crc = self._verify_property_crc
        dispatcher = self._dispatcher
        block = _Block(segment, dispatcher)
        takes_plain = COMPILED and not verify_property_crc
        while True:
            is_plain = takes_plain and block.take(position, check_crc)
            scan = block.plain.scan if is_plain else scan_record(view, position, limit, check_crc, verify_property_crc)
            if scan.kind != OK or scan.physical_offset != start + position:
                return position
            has_key_positions = is_plain and block.plain.has_key_positions
            if not has_key_positions and self._is_torn(view, position, scan):
                return position
            for _ in range(INDEX_TRIES):
                if block.dispatch() if has_key_positions else _dispatch(dispatcher, scan):
                    break
            result.records += 1
            result.last_valid = scan.physical_offset
            result.last_store_time_ms = scan.store_timestamp_ms
            position += scan.size

    def _is_torn(self, view: memoryview, position: int, scan: RecordScan) -> bool:
        """Whether topic or properties, which no CRC covers, have zeros that a power cut left."""
        if "\0" in scan.topic or scan.properties.endswith("\0"):
            return True
        flushed_ms = self._checkpoint.physic_time_ms if self._crashed else _FAR
        if scan.store_timestamp_ms < flushed_ms or "\0" not in scan.properties:
            return False
        return _has_zero_sector(view, properties_at(view, position, scan.size), position + scan.size)

    def _scan_at(self, segment: Segment, position: int, check_crc: bool) -> RecordScan:
        return scan_record(segment.view(), position, segment.size, check_crc, self._verify_property_crc)

    # Torn tail or damage

    def _behind_damage(self, number: int, position: int, scan: RecordScan) -> int:
        """Where the scan goes on behind bytes that are no record: a position in this segment or its end.

        -1: it does not, this is the end of the log.
        """
        segment = self._segments[number]
        follows = next_record(segment, position, segment.size)
        end = segment.size if follows < 0 else follows
        proof = self._record_behind(number, follows)
        if proof is None or (not self._was_flushed(proof) and _has_zero_sector(segment.view(), position, end)):
            return -1
        reason = scan.reason or "the record is torn or belongs elsewhere"
        self._dispatcher.note_damage(Damage(segment.start + position, segment.start + end, reason))
        return end

    def _record_behind(self, number: int, follows: int) -> RecordScan | None:
        """The proof that the log went on: the record at `follows`, else the first one of a later segment."""
        if follows >= 0:
            scan = self._scan_at(self._segments[number], follows, True)
            if scan.kind == OK:
                return scan
        for segment in self._segments[number + 1 :]:
            scan = self._scan_at(segment, 0, True)
            if scan.kind == OK and scan.physical_offset == segment.start:
                return scan
        return None

    def _was_flushed(self, scan: RecordScan) -> bool:
        """Whether this record is known to have been on disk before the crash, and so all that lies before it."""
        return not self._crashed or scan.store_timestamp_ms < self._checkpoint.physic_time_ms


def _dispatch(dispatcher: Dispatcher, scan: RecordScan) -> bool:
    return dispatcher.dispatch(
        scan.topic,
        scan.queue_id,
        scan.physical_offset,
        scan.size,
        scan.queue_offset,
        scan.sys_flag,
        scan.store_timestamp_ms,
        scan.properties,
    )


class _Block:
    """A copy of a part of a segment, where plain records are looked for."""

    def __init__(self, segment: Segment, dispatcher: Dispatcher) -> None:
        self.plain: PlainScan = PlainScan()
        self._segment: Segment = segment
        self._dispatcher: Dispatcher = dispatcher
        self._wants_key_positions: bool = dispatcher.takes_key_positions
        self._start: int = 0
        self._data: bytes = b""

    def take(self, position: int, check_crc: bool) -> bool:
        """Have `plain` take the record at `position` of the segment."""
        if not self._holds(position - self._start):
            self._start = position
            self._data = self._segment.file.pread(position, min(_BLOCK_BYTES, self._segment.size - position))
        return self.plain.take(self._data, position - self._start, check_crc, self._wants_key_positions)

    def dispatch(self) -> bool:
        """Dispatch what was taken last, which `has_key_positions`."""
        return self._dispatcher.dispatch_by_key_positions(self.plain, self._data)

    def _holds(self, at: int) -> bool:
        left = len(self._data) - at
        return left >= 4 and i32_at(self._data, at) <= left


def _has_zero_sector(view: memoryview, position: int, end: int) -> bool:
    """Whether these bytes have a sector, or the part of one that lies in them, of nothing but zeros."""
    while position < end:
        sector_end = min(end, position - position % _SECTOR_BYTES + _SECTOR_BYTES)
        if not any(view[position:sector_end]):
            return True
        position = sector_end
    return False
