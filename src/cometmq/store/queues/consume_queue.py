"""One consume queue: where in the commit log the messages of one queue of one topic are.

    consumequeue/<topic>/<queue id>/<position of the first unit, 20 digits>

     0  physical offset   8        unit n belongs to the message with queue offset n
     8  size              4
    12  tag code          8        hash of the tag, delivery time (delay queues), or an address in the extension

A unit of zeros is the end. A blank unit (offset 0, size 0x7FFFFFFF) stands for a message that is not there: a queue
that starts at number 1000, because older files are gone, has blanks from the start of its first file up to 1000.

Units are put in log order, so their physical offsets never fall. Putting a message twice changes nothing. A message
whose number is beyond the end is a gap:

- behind a damaged place of the log the numbers in between are lost with their records. Each of them gets a copy of the
  unit that follows, so that number and unit stay together; a reader sees that message again, which consumers
  must expect anyway, instead of every later message under a wrong number.
- otherwise the number itself is not to be believed: the unit is put at the end, as RocketMQ does, and reported.

A message number 0 in a queue that has units is the first message of a topic that was deleted and made again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from struct import Struct
from typing import Final

from cometmq.store.queues.extension import is_address
from cometmq.store.queues.queue_files import QueueFiles
from cometmq.wire.integers import COMPILED, i32_at, i64_at

log = logging.getLogger(__name__)

UNIT_BYTES: Final = 20
UNIT: Final = Struct(">qiq")
BLANK_SIZE: Final = 0x7FFFFFFF
_BLANK_UNIT: Final = UNIT.pack(0, BLANK_SIZE, 0)
_BLANKS: Final = _BLANK_UNIT * 1024

_RECOVER_FILES: Final = 3
_BLOCK_BYTES: Final = UNIT_BYTES * 3276
# Most queues are short, and there may be ten thousand of them.
_FIRST_BLOCK_BYTES: Final = UNIT_BYTES * 204


class QueueBehind(Exception):
    """Recovery has met a message, but the queue lacks messages before it: those from `physical_offset` on."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(physical_offset)
        self.physical_offset: int = physical_offset


class ConsumeQueue:
    __slots__ = ("topic", "queue_id", "files", "min_position", "max_physical", "waiting")

    def __init__(self, topic: str, queue_id: int, files: QueueFiles) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.files: QueueFiles = files
        self.min_position: int = 0
        # Where the newest message ends in the log.
        self.max_physical: int = -1
        # Listed among the queues with something to write.
        self.waiting: bool = False

    @property
    def min_offset(self) -> int:
        return self.min_position // UNIT_BYTES

    @property
    def max_offset(self) -> int:
        return self.files.end // UNIT_BYTES

    @property
    def is_empty(self) -> bool:
        return self.files.end == self.files.first

    def next_file_offset(self, queue_offset: int) -> int:
        """The first number in the file after the one that has `queue_offset`."""
        units = self.files.file_bytes // UNIT_BYTES
        return queue_offset - queue_offset % units + units

    # Building

    def put(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        damages: list[int],
        strict: bool = False,
    ) -> bool:
        """True if a unit was added. `damages` are the offsets of known damaged places of the log, ascending.

        `strict`: raise QueueBehind where units before this one are missing.
        """
        if physical_offset + size <= self.max_physical:
            return False
        files = self.files
        if queue_offset * UNIT_BYTES != files.end and not self._place(
            physical_offset, size, tags_code, queue_offset, damages, strict
        ):
            return False
        self.max_physical = physical_offset + size
        files.append(UNIT.pack(physical_offset, size, tags_code))
        return True

    def _place(
        self, physical_offset: int, size: int, tags_code: int, queue_offset: int, damages: list[int], strict: bool
    ) -> bool:
        """Bring the end of the queue to where this unit belongs. False: it is there already."""
        files = self.files
        position = queue_offset * UNIT_BYTES
        if queue_offset == 0:
            log.warning(
                "started queue again topic=%s queue=%d units=%d physical_offset=%d",
                self.topic, self.queue_id, self.max_offset - self.min_offset, physical_offset,
            )  # fmt: skip
            files.clear()
            self.min_position = 0
            return True
        if self.is_empty:
            self._begin_at(position)
            return True
        if position < files.end:
            return False
        missing = (position - files.end) // UNIT_BYTES
        if self._lost_between(physical_offset, damages):
            log.error(
                "filled numbers of damaged messages topic=%s queue=%d from=%d to=%d",
                self.topic, self.queue_id, self.max_offset, queue_offset,
            )  # fmt: skip
            unit = UNIT.pack(physical_offset, size, tags_code)
            for _ in range(missing):
                files.append(unit)
            return True
        if strict:
            raise QueueBehind(self.max_physical)
        log.error(
            "found gap in queue topic=%s queue=%d expected=%d found=%d physical_offset=%d",
            self.topic, self.queue_id, self.max_offset, queue_offset, physical_offset,
        )  # fmt: skip
        return True

    def _begin_at(self, position: int) -> None:
        """The first unit is not number 0: blanks from the start of its file."""
        files = self.files
        files.begin_at(files.file_start(position))
        missing = position - files.end
        while missing > 0:
            files.append(_BLANKS[: min(missing, len(_BLANKS))])
            missing = position - files.end
        self.min_position = position

    def _lost_between(self, physical_offset: int, damages: list[int]) -> bool:
        index = bisect_left(damages, self.max_physical)
        return index < len(damages) and damages[index] < physical_offset

    def check_last(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """If this message has the last unit, the unit must say so: its last bytes may be missing."""
        position = self.files.end - UNIT_BYTES
        if queue_offset * UNIT_BYTES != position or self.is_empty:
            return
        found_offset, found_size, found_code = UNIT.unpack(self.files.read(position, UNIT_BYTES))
        if found_offset != physical_offset or (found_size == size and found_code == tags_code):
            return
        if found_size == size and is_address(found_code):
            return
        log.warning("repaired last unit topic=%s queue=%d offset=%d", self.topic, self.queue_id, queue_offset)
        self.files.cut(position)
        self._set_max_physical()

    # Reading

    def read(self, queue_offset: int, count: int) -> bytes:
        """Units from `queue_offset` on, at most `count` and not beyond their file. FileNotFoundError if it is gone."""
        return self.files.read(queue_offset * UNIT_BYTES, count * UNIT_BYTES)

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tag code."""
        if queue_offset < self.files.first // UNIT_BYTES:
            return None
        try:
            data = self.files.read(queue_offset * UNIT_BYTES, UNIT_BYTES)
        except FileNotFoundError:
            return None
        return UNIT.unpack(data) if len(data) == UNIT_BYTES else None

    def first_at_or_after(self, physical_offset: int) -> int:
        """The number of the first unit that points there or behind; blanks count as too small."""
        low = self.files.first // UNIT_BYTES
        high = self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is None or unit[1] == BLANK_SIZE or unit[0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    # Recovering, cutting, expiring

    def recover(self, trusted_offset: int) -> None:
        """Find the end: the first unit that is not valid, or not in log order, and all behind it are dropped.

        Looks at the last three files, and further back as long as a file starts with a unit for a message at or behind
        `trusted_offset`: such a unit may not have been on disk when the power went.
        """
        files = self.files
        index = max(0, len(files.starts) - _RECOVER_FILES)
        while index > 0 and not self._starts_before(files.starts[index], trusted_offset):
            index -= 1
        end = files.starts[index] if files.starts else 0
        previous = -1
        for start in files.starts[index:]:
            end, previous = self._scan_file(start, previous)
            if end < start + files.file_bytes:
                break
        files.cut(end)
        self._drop_last_blanks()
        self._set_max_physical()
        self.min_position = files.first

    def _starts_before(self, position: int, physical_offset: int) -> bool:
        unit = self.unit(position // UNIT_BYTES)
        return unit is not None and unit[1] > 0 and unit[0] < physical_offset

    def _scan_file(self, start: int, previous: int) -> tuple[int, int]:
        """Where the valid units of this file end, and the physical offset of the last one."""
        position = start
        stop = start + self.files.file_bytes
        while position < stop:
            data = self.files.read(position, _FIRST_BLOCK_BYTES if position == start else _BLOCK_BYTES)
            at = 0
            whole = len(data) - len(data) % UNIT_BYTES
            while at < whole:
                if COMPILED:
                    # 0.02 us; with the Struct 0.1 us.
                    physical_offset, size = i64_at(data, at), i32_at(data, at + 8)
                else:
                    physical_offset, size, _ = UNIT.unpack_from(data, at)
                if physical_offset < previous or size <= 0:
                    return position + at, previous
                if size != BLANK_SIZE:
                    previous = physical_offset
                at += UNIT_BYTES
            if not whole:
                break
            position += whole
        return position, previous

    def _drop_last_blanks(self) -> None:
        """Blanks with nothing behind them: the message that they were made for is not there."""
        while not self.is_empty:
            unit = self.unit(self.max_offset - 1)
            if unit is None or unit[1] != BLANK_SIZE:
                return
            self.files.cut(self.files.end - UNIT_BYTES)

    def _set_max_physical(self) -> None:
        unit = None if self.is_empty else self.unit(self.max_offset - 1)
        self.max_physical = -1 if unit is None else unit[0] + unit[1]

    def cut(self, physical_offset: int) -> None:
        """Drop the units that point to `physical_offset` or behind it."""
        if self.max_physical <= physical_offset:
            return
        self.files.cut(self.first_at_or_after(physical_offset) * UNIT_BYTES)
        self._drop_last_blanks()
        self._set_max_physical()
        self.min_position = min(self.min_position, self.files.end)

    def correct_min(self, log_min: int) -> None:
        """The first number whose message is still in the log; the end if there is none."""
        if self.is_empty:
            return
        first = self.unit(self.files.first // UNIT_BYTES)
        if first is not None and first[1] != BLANK_SIZE and first[0] >= log_min:
            self.min_position = self.files.first
        else:
            self.min_position = self.first_at_or_after(log_min) * UNIT_BYTES

    def delete_expired(self, log_min: int) -> int:
        """Remove files whose units all point below `log_min`, never the last one. Returns how many."""
        removed = 0
        files = self.files
        while len(files.starts) > 1:
            last = self.unit(files.starts[1] // UNIT_BYTES - 1)
            if last is not None and last[1] != BLANK_SIZE and last[0] >= log_min:
                break
            files.remove_first()
            removed += 1
        if removed:
            self.min_position = max(self.min_position, files.first)
        return removed
