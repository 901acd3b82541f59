"""The queue of a BatchCQ topic: one unit stands for a whole batch that is stored as one record.

    batchconsumequeue/<topic>/<queue id>/<position of the first unit, 20 digits>

     0  physical offset   8        28  base: queue offset of the first message inside   8
     8  size              4        36  number of messages inside                        2
    12  tag code          8        38  compacted offset, -1                             4
    20  store time, ms    8        42  0                                                4

Numbers and units do not run in step here, so a number is found by binary search over the bases.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import Final

from cometmq.store.queues.queue_files import QueueFiles

log = logging.getLogger(__name__)

BATCH_UNIT_BYTES: Final = 46
_UNIT: Final = Struct(">qiqqqhii")
_RECOVER_FILES: Final = 3


class BatchUnit:
    __slots__ = ("physical_offset", "size", "tags_code", "store_time_ms", "base", "count")

    def __init__(
        self, physical_offset: int, size: int, tags_code: int, store_time_ms: int, base: int, count: int
    ) -> None:
        self.physical_offset: int = physical_offset
        self.size: int = size
        self.tags_code: int = tags_code
        self.store_time_ms: int = store_time_ms
        self.base: int = base
        self.count: int = count


class BatchQueue:
    __slots__ = ("topic", "queue_id", "files", "min_position", "max_physical", "max_offset", "waiting")

    def __init__(self, topic: str, queue_id: int, files: QueueFiles) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.files: QueueFiles = files
        self.min_position: int = 0
        # Where the newest record starts in the log.
        self.max_physical: int = -1
        self.max_offset: int = 0
        self.waiting: bool = False

    @property
    def is_empty(self) -> bool:
        return self.files.end == self.files.first

    @property
    def min_offset(self) -> int:
        """The first number; -1 if there is none."""
        unit = self.unit_at(self.min_position)
        return self.max_offset if unit is None and not self.is_empty else -1 if unit is None else unit.base

    def put(self, physical_offset: int, size: int, tags_code: int, store_time_ms: int, base: int, count: int) -> bool:
        """True if a unit was added."""
        if physical_offset <= self.max_physical or base < 0 or count <= 0:
            return False
        if base == 0 and not self.is_empty:
            log.warning("started batch queue again topic=%s queue=%d", self.topic, self.queue_id)
            self.files.clear()
            self.min_position = 0
        elif base != self.max_offset and not self.is_empty:
            log.error(
                "found gap in batch queue topic=%s queue=%d expected=%d found=%d",
                self.topic, self.queue_id, self.max_offset, base,
            )  # fmt: skip
        self.files.append(_UNIT.pack(physical_offset, size, tags_code, store_time_ms, base, count, -1, 0))
        self.max_physical = physical_offset
        self.max_offset = base + count
        return True

    # Reading

    def unit_at(self, position: int) -> BatchUnit | None:
        if not self.files.first <= position < self.files.end:
            return None
        try:
            data = self.files.read(position, BATCH_UNIT_BYTES)
        except FileNotFoundError:
            return None
        return _decode(data, 0) if len(data) == BATCH_UNIT_BYTES else None

    def position_of(self, queue_offset: int) -> int:
        """The unit with the greatest base at or below `queue_offset`."""
        return max(self.min_position, self._first_position(queue_offset + 1) - BATCH_UNIT_BYTES)

    def _first_position(self, base: int) -> int:
        """The first unit whose base is not below `base`."""
        low = self.files.first // BATCH_UNIT_BYTES
        high = self.files.end // BATCH_UNIT_BYTES
        while low < high:
            middle = (low + high) // 2
            unit = self.unit_at(middle * BATCH_UNIT_BYTES)
            if unit is None or unit.base < base:
                low = middle + 1
            else:
                high = middle
        return low * BATCH_UNIT_BYTES

    def read(self, queue_offset: int, count: int) -> list[BatchUnit]:
        """At most `count` units from the one that has `queue_offset` on, not beyond its file."""
        data = self.files.read(self.position_of(queue_offset), count * BATCH_UNIT_BYTES)
        return [_decode(data, at) for at in range(0, len(data) - len(data) % BATCH_UNIT_BYTES, BATCH_UNIT_BYTES)]

    def next_file_offset(self, queue_offset: int) -> int:
        """The first number in the file after the one that has `queue_offset`."""
        start = self.files.file_start(self.position_of(queue_offset)) + self.files.file_bytes
        unit = self.unit_at(start)
        return self.max_offset if unit is None else unit.base

    # Recovering, cutting, expiring

    def recover(self, trusted_offset: int) -> None:
        """Find the end, as in a consume queue: the first unit that is not valid or not in order."""
        files = self.files
        index = max(0, len(files.starts) - _RECOVER_FILES)
        while index > 0 and not self._starts_before(files.starts[index], trusted_offset):
            index -= 1
        end = files.starts[index] if files.starts else 0
        previous = -1
        while end < files.end:
            unit = self.unit_at(end)
            if unit is None or not _is_valid(unit) or unit.physical_offset <= previous:
                break
            previous = unit.physical_offset
            end += BATCH_UNIT_BYTES
        files.cut(end)
        self._set_max()
        self.min_position = files.first

    def _starts_before(self, position: int, physical_offset: int) -> bool:
        unit = self.unit_at(position)
        return unit is not None and _is_valid(unit) and unit.physical_offset < physical_offset

    def _set_max(self) -> None:
        last = self.unit_at(self.files.end - BATCH_UNIT_BYTES)
        self.max_physical = -1 if last is None else last.physical_offset
        self.max_offset = 0 if last is None else last.base + last.count

    def cut(self, physical_offset: int) -> None:
        """Drop the units that point to `physical_offset` or behind it."""
        if self.max_physical < physical_offset:
            return
        self.files.cut(self._first_behind(physical_offset))
        self._set_max()
        self.min_position = min(self.min_position, self.files.end)

    def correct_min(self, log_min: int) -> None:
        self.min_position = self._first_behind(log_min)

    def _first_behind(self, physical_offset: int) -> int:
        """The position of the first unit that points to `physical_offset` or behind it."""
        low = self.files.first // BATCH_UNIT_BYTES
        high = self.files.end // BATCH_UNIT_BYTES
        while low < high:
            middle = (low + high) // 2
            unit = self.unit_at(middle * BATCH_UNIT_BYTES)
            if unit is None or unit.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low * BATCH_UNIT_BYTES

    def delete_expired(self, log_min: int) -> int:
        """Remove files whose units all point below `log_min`, never the last one. Returns how many."""
        removed = 0
        files = self.files
        while len(files.starts) > 1:
            last = self.unit_at(files.starts[1] - BATCH_UNIT_BYTES)
            if last is not None and last.physical_offset >= log_min:
                break
            files.remove_first()
            removed += 1
        self.min_position = max(self.min_position, files.first)
        return removed


def _decode(data: bytes, at: int) -> BatchUnit:
    physical_offset, size, tags_code, store_time_ms, base, count, _, _ = _UNIT.unpack_from(data, at)
    return BatchUnit(physical_offset, size, tags_code, store_time_ms, base, count)


def _is_valid(unit: BatchUnit) -> bool:
    return unit.physical_offset >= 0 and unit.size > 0 and unit.base >= 0 and unit.count > 0
