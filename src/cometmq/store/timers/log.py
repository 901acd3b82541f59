"""The timer log: one unit for each message that waits in the timer wheel.

    timerlog/<position of the first byte, 20 digits>        files of mappedFileSizeTimerLog bytes; a log that has
                                                            files of another size goes on with theirs

     0  size                4     52
     4  previous position   8     of the unit before it in the same slot; -1: none
    12  kind               4      bits: 1 always, 2 to be put on the wheel again, 4 takes another message back
    16  written at          8     the wheel's time when this was written, ms
    24  delay               4     ms; with the time before it, the time of its slot
    28  physical offset     8     of the message in the timer topic
    36  message size        4
    40  topic hash          4     of the topic that the message is for
    44  reserved            8     0

A file whose rest has no room for a unit and an end mark ends with the mark: bytes left (4), 0 (8), 0xCBD43194 (4),
zeros. So units start at multiples of 52 from the start of their file.

Units are written in the order of the timer topic's queue, so physical offsets never fall. New units stay in memory
until `write()`; what a crash takes of them is made again from the queue.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from cometmq.store.disk import Disk
from cometmq.store.queues.queue_files import OpenFiles, QueueFiles

log = logging.getLogger(__name__)

UNIT: Final = Struct(">iqiqiqiiq")
UNIT_BYTES: Final = 52
MARK: Final = Struct(">iqi")
MARK_BYTES: Final = 16
MARK_MAGIC: Final = 0xCBD43194 - (1 << 32)
NONE: Final = -1

KIND_DEFAULT: Final = 1
KIND_ROLL: Final = 2
KIND_DELETE: Final = 4
_KIND_MAX: Final = 0xF

_BLOCK_UNITS: Final = 1260
_CACHE_UNITS: Final = 64


class TimerUnit(NamedTuple):
    previous: int
    kind: int
    written_ms: int
    delay_ms: int
    physical_offset: int
    message_bytes: int
    topic_hash: int

    @property
    def time_ms(self) -> int:
        return self.written_ms + self.delay_ms

    @property
    def is_roll(self) -> bool:
        return self.kind & KIND_ROLL != 0

    @property
    def is_delete(self) -> bool:
        return self.kind & KIND_DELETE != 0


class TimerLog:
    def __init__(self, disk: Disk, directory: str, file_bytes: int) -> None:
        self.files = QueueFiles(OpenFiles(disk), directory, file_bytes)
        self._cached_from: int = 0
        self._cached: bytes = b""

    @property
    def first(self) -> int:
        return self.files.first

    @property
    def end(self) -> int:
        return self.files.end

    # Writing

    def append(self, unit: TimerUnit) -> int:
        """The position of the new unit."""
        files = self.files
        left = files.file_bytes - files.end % files.file_bytes
        if left < UNIT_BYTES + MARK_BYTES:
            files.append(MARK.pack(left, 0, MARK_MAGIC) + bytes(left - MARK_BYTES))
        position = files.end
        files.append(_pack(unit))
        return position

    # Reading

    def unit(self, position: int) -> TimerUnit | None:
        """What is at `position`; None if that is no unit (any more)."""
        at = position - self._cached_from
        if not 0 <= at <= len(self._cached) - UNIT_BYTES:
            if not self.first <= position <= self.end - UNIT_BYTES:
                return None
            self._cache_before(position + UNIT_BYTES)
            at = position - self._cached_from
        size, *fields, _ = UNIT.unpack_from(self._cached, at)
        unit = TimerUnit(*fields)
        return unit if size == UNIT_BYTES and _is_sound(position, unit) else None

    def _cache_before(self, end: int) -> None:
        """Chains lead backwards, so the units before the one wanted are likely to be wanted next."""
        start = max(self.files.file_start(end - UNIT_BYTES), end - _CACHE_UNITS * UNIT_BYTES)
        self._cached = self.files.read(start, end - start)
        self._cached_from = start

    def read_units(self, position: int, end: int, count: int) -> tuple[list[TimerUnit], int]:
        """Up to `count` units from `position` on and before `end`, and where to go on; none at the end."""
        position = max(position, self.first)
        left = self.files.file_bytes - position % self.files.file_bytes
        if left < UNIT_BYTES + MARK_BYTES:
            position += left
            left = self.files.file_bytes
        room = (left - MARK_BYTES) // UNIT_BYTES
        stop = min(end, self.end, position + min(count, room) * UNIT_BYTES)
        data = self.files.read(position, stop - position) if position < stop else b""
        units = [TimerUnit(*fields) for _, *fields, _ in UNIT.iter_unpack(data)]
        return units, position + len(units) * UNIT_BYTES

    def last_position(self) -> int:
        """Where the last unit is; -1 if there is none."""
        file_bytes = self.files.file_bytes
        position = self.end - UNIT_BYTES
        if self.end % file_bytes == 0:
            position = self.end - file_bytes + (self._units_per_file - 1) * UNIT_BYTES
        return position if self.unit(position) is not None else NONE

    @property
    def _units_per_file(self) -> int:
        return (self.files.file_bytes - MARK_BYTES) // UNIT_BYTES

    # Loading and cutting

    def load(self) -> None:
        self._keep_size()
        self.files.load()

    def _keep_size(self) -> None:
        """Nothing but the layout depends on the size of files, and positions are only right with the size they had."""
        files = self.files
        disk = files.open_files.disk
        sizes = {disk.size(os.path.join(files.directory, name)) for name in disk.list_files(files.directory)} - {0}
        if len(sizes) != 1 or min(sizes) == files.file_bytes or min(sizes) < UNIT_BYTES + MARK_BYTES:
            return
        log.warning(
            "kept size of timer log files directory=%s file_bytes=%d instead_of mappedFileSizeTimerLog=%d",
            files.directory, min(sizes), files.file_bytes,
        )  # fmt: skip
        files.file_bytes = min(sizes)

    def recover(self, position: int, log_end: int, visit: Callable[[int, TimerUnit], object]) -> None:
        """Find the end, reading from the file of `position` on, and show every unit on the way.

        What follows the first bad unit is dropped. Bad is also a unit for a message that is not in the commit log,
        which ends at `log_end`: its place there will be taken by another message.
        """
        files = self.files
        end = self.first
        for start in files.starts:
            if start + files.file_bytes <= position and start != files.starts[-1]:
                end = start + files.file_bytes
                continue
            end, is_full = self._scan_file(start, log_end, visit)
            if not is_full:
                break
        if end < files.end and files.starts:
            files.cut(end)
        self._cached = b""

    def _scan_file(self, start: int, log_end: int, visit: Callable[[int, TimerUnit], object]) -> tuple[int, bool]:
        """Where its units end, and whether the next file goes on."""
        position = start
        stop = start + self.files.file_bytes
        while stop - position >= UNIT_BYTES + MARK_BYTES:
            data = self.files.read(position, min(_BLOCK_UNITS * UNIT_BYTES, stop - position))
            whole = len(data) - len(data) % UNIT_BYTES
            if not whole:
                return position, False
            for size, *fields, _ in UNIT.iter_unpack(data[:whole]):
                if stop - position < UNIT_BYTES + MARK_BYTES:
                    break
                unit = TimerUnit(*fields)
                if size != UNIT_BYTES or not _is_sound(position, unit):
                    return position, False
                if unit.physical_offset + unit.message_bytes > log_end:
                    log.warning("dropped timers of lost messages position=%d log_end=%d", position, log_end)
                    return position, False
                visit(position, unit)
                position += UNIT_BYTES
        data = self.files.read(position, MARK_BYTES)
        if data == MARK.pack(stop - position, 0, MARK_MAGIC):
            return stop, True
        return position, False

    def delete_expired(self, log_min: int) -> int:
        """Remove files whose units are all for messages below `log_min`, never the last one. Returns how many."""
        files = self.files
        removed = 0
        while len(files.starts) > 1:
            last = self.unit(files.starts[0] + (self._units_per_file - 1) * UNIT_BYTES)
            if last is not None and last.physical_offset >= log_min:
                break
            log.info("deleted timer log path=%s", files.path(files.starts[0]))
            files.remove_first()
            removed += 1
        if removed:
            self._cached = b""
        return removed

    def clear(self) -> None:
        self.files.clear()
        self._cached = b""

    def close(self) -> None:
        self.files.open_files.close()


def _pack(unit: TimerUnit) -> bytes:
    return UNIT.pack(UNIT_BYTES, *unit, 0)


def _is_sound(position: int, unit: TimerUnit) -> bool:
    return (
        0 < unit.kind <= _KIND_MAX
        and NONE <= unit.previous < position
        and unit.physical_offset >= 0
        and unit.message_bytes > 0
    )
