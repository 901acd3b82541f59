"""The timer wheel: for every second of fourteen days, where in the timer log its messages are.

    timerwheel      1,209,600 slots of 32 bytes; slot number = step mod 1,209,600; step = time / timerPrecisionMs

     0  step             8      which lap this slot is for; of another step than asked for, it is empty
     8  first position   8      of the slot's oldest unit in the timer log
    16  last position    8      of its newest; the others follow by their `previous`
    24  messages         4      how many; one that takes another back counts -1
    28  mark             4      0

A message is never more than seven days ahead, so slots of different laps meet only after a stop of as long. A slot
stays as it is when its messages were delivered; how far that has come is in `timercheck`.

The file is sparse and is not mapped: 38 MB of it would be in memory, and a store to a page without a block on a full
disk ends the process. Slots that changed since the last flush are in memory, all others are read when asked for.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from cometmq.store.disk import Disk, File

WHEEL_SLOTS: Final = 2 * 7 * 86_400
SLOT: Final = Struct(">qqqii")
SLOT_BYTES: Final = 32

_BLOCK_SLOTS: Final = 2048
_PROBES_MAX: Final = 64


class Slot(NamedTuple):
    step: int
    first: int
    last: int
    messages: int
    mark: int = 0


class TimerWheel:
    """`slots` is for tests. StoreError if the file has another length."""

    def __init__(self, disk: Disk, path: str, slots: int = WHEEL_SLOTS) -> None:
        self.slots: int = slots
        self._disk = disk
        self._path = path
        # A Java process that died at its first start leaves an empty file.
        if disk.exists(path) and disk.size(path) == 0:
            disk.remove(path)
        self.is_new: bool = not disk.exists(path)
        self._file: File = disk.open(path, slots * SLOT_BYTES, create=True, allocate=False)
        # By slot number: changed since the last flush began; being written by the flush that is under way.
        self._changed: dict[int, Slot] = {}
        self._flushing: dict[int, Slot] = {}

    # Slots

    def get(self, step: int) -> Slot | None:
        """None if the slot is empty."""
        slot = self._at(step % self.slots)
        return slot if slot.step == step and slot.last >= 0 else None

    def put(self, slot: Slot) -> None:
        self._changed[slot.step % self.slots] = slot

    def clear(self, step: int) -> None:
        self._changed[step % self.slots] = Slot(step, -1, -1, 0)

    def has_step(self, step: int) -> bool:
        """Whether the place of `step` was last used for it, even if it is empty now."""
        return self._at(step % self.slots).step == step

    def clear_all(self) -> None:
        self._changed.clear()
        self._file.close()
        self._disk.remove(self._path)
        self._file = self._disk.open(self._path, self.slots * SLOT_BYTES, create=True, allocate=False)

    def in_the_way(self, step: int, low: int) -> bool:
        """Whether the place of `step` is taken by messages of an earlier lap, not before `low`."""
        slot = self._at(step % self.slots)
        return low <= slot.step < step and slot.last >= 0

    def _at(self, number: int) -> Slot:
        slot = self._changed.get(number) or self._flushing.get(number)
        return slot or Slot(*SLOT.unpack(self._file.pread(number * SLOT_BYTES, SLOT_BYTES)))

    # Many slots

    def next_filled(self, low: int, high: int) -> int | None:
        """The first step from `low` on and before `high` whose slot is not empty."""
        high = min(high, low + self.slots)
        if high - low <= _PROBES_MAX:
            return next((step for step in range(low, high) if self.get(step) is not None), None)
        recent = min((slot.step for slot in self._recent() if low <= slot.step < high and slot.last >= 0), default=high)
        for step in self._saved_steps(low, recent):
            if self.get(step) is not None:
                return step
        return recent if recent < high else None

    def _saved_steps(self, low: int, high: int) -> Iterator[int]:
        """Steps that the file has a slot for, in order."""
        step = low
        while step < high:
            number = step % self.slots
            count = min(_BLOCK_SLOTS, self.slots - number, high - step)
            for index, found in enumerate(self._steps_at(number, count)):
                if found == step + index:
                    yield found
            step += count

    def filled(self, low: int) -> Iterator[Slot]:
        """All slots from step `low` on that are not empty, in any order. They may be changed meanwhile."""
        low = max(1, low)  # a slot of zeros was never used
        for number in self._numbers_from(low):
            slot = self._at(number)
            if slot.step >= low and slot.last >= 0:
                yield slot

    def _numbers_from(self, low: int) -> set[int]:
        numbers = {slot.step % self.slots for slot in self._recent() if slot.step >= low}
        at = self._file.next_data(0)
        while at is not None:
            number = at // SLOT_BYTES
            count = min(_BLOCK_SLOTS, self.slots - number)
            numbers.update(number + index for index, step in enumerate(self._steps_at(number, count)) if step >= low)
            at = self._file.next_data((number + count) * SLOT_BYTES) if number + count < self.slots else None
        return numbers

    def _steps_at(self, number: int, count: int) -> list[int]:
        """Of neighbouring slots in the file."""
        words = array("q", self._file.pread(number * SLOT_BYTES, count * SLOT_BYTES))
        steps = words[:: SLOT_BYTES // 8]
        if sys.byteorder == "little":
            steps.byteswap()
        return steps.tolist()

    def _recent(self) -> Iterator[Slot]:
        """Slots that the file does not have as they are."""
        yield from self._changed.values()
        yield from (slot for number, slot in self._flushing.items() if number not in self._changed)

    # To disk

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    def begin_flush(self) -> WheelFlush:
        assert not self._flushing, "one flush at a time"
        self._flushing, self._changed = self._changed, {}
        return WheelFlush(self._file, self._flushing)

    def end_flush(self, is_written: bool) -> None:
        if not is_written:
            self._changed = {**self._flushing, **self._changed}
        self._flushing = {}

    def close(self) -> None:
        self._file.close()


class WheelFlush:
    """Writes slots and syncs; may run in any thread. DiskFull or OSError: some of them are not written."""

    def __init__(self, file: File, slots: dict[int, Slot]) -> None:
        self._file = file
        self._slots = slots

    def run(self) -> None:
        if not self._slots:
            return
        for number, data in _runs(self._slots):
            self._file.pwrite(number * SLOT_BYTES, data)
        self._file.sync()


def _runs(slots: dict[int, Slot]) -> Iterator[tuple[int, bytes]]:
    """Neighbours together: the first number, and their bytes."""
    first = -1
    data = bytearray()
    for number in sorted(slots):
        if data and number != first + len(data) // SLOT_BYTES:
            yield first, bytes(data)
            data.clear()
        if not data:
            first = number
        data += SLOT.pack(*slots[number])
    if data:
        yield first, bytes(data)
