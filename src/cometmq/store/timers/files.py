"""What the broker keeps about timer messages: wheel, timer log and timercheck, which belong together.

    add       a message for a time: a unit at the end of the log, which becomes the head of its slot's chain
    chain     slot.last -> unit.previous -> ... -> -1
    flush     log, then wheel, then timercheck, each on disk before the next: what a file points to is there

All of it is derived from the queue of the timer topic, except how far that is delivered (`read_ms`). Recovery trusts
what timercheck says and repairs the rest:

- the log ends before the first unit that is not sound, or whose message the commit log does not have;
- slots get the units that were written after the last flush, and lose those that are behind the end of the log;
- messages whose units are not in the log are taken from the queue again;
- a wheel that does not know units from before the last flush was made with another precision. Chains of one precision
  are none of another, so log and wheel are made anew from the queue.

Progress that is flushed may not be ahead of the commit log on disk; that is for the caller to see to.
"""

from __future__ import annotations

import logging
from typing import Final

from cometmq.names import TIMER_TOPIC
from cometmq.store.disk import Disk, DiskFull, File
from cometmq.store.options import StoreOptions
from cometmq.store.store import Store
from cometmq.store.timers.log import KIND_DELETE, NONE, TimerLog, TimerUnit
from cometmq.store.timers.progress import TimerCheck, TimerProgress
from cometmq.store.timers.wheel import WHEEL_SLOTS, Slot, TimerWheel, WheelFlush

log = logging.getLogger(__name__)

# Nobody puts a message into these last slots of half a wheel: while it is delivered, no newer one meets it.
BLANK_SLOTS: Final = 60
# How long a slot may be; of other lengths the next shorter of these is taken, as in RocketMQ.
PRECISIONS_MS: Final = (1000, 500, 200, 100)


class TimerFiles:
    """`read_ms`: slots before it are delivered. `queue_offset`: what is taken in. `pending`: messages on the wheel."""

    def __init__(self, disk: Disk, options: StoreOptions, slots: int = WHEEL_SLOTS) -> None:
        self._disk = disk
        wanted_ms = options.timer_precision_ms
        self.precision_ms: int = next((ms for ms in PRECISIONS_MS if ms <= wanted_ms), PRECISIONS_MS[-1])
        self.wheel = TimerWheel(disk, options.path("timerwheel"), slots)
        self.log = TimerLog(disk, options.path("timerlog"), options.timer_log_file_bytes)
        self.check = TimerCheck(disk, options.path("config", "timercheck"))
        disk.make_dirs(self.log.files.directory)
        for directory in (options.root_dir, options.path("config")):
            disk.sync_dir(directory)  # a power cut may not take a file that counts as saved
        # What was known at the start: of the messages before the queue offset of who delivered last, all with an
        # earlier time are delivered.
        self.before: TimerProgress = self.check.saved
        self.read_ms: int = 0
        self.queue_offset: int = 0
        self.pending: int = 0
        self._revising: set[int] | None = None
        self._is_of_other_precision: bool = False

    @property
    def ahead_slots_max(self) -> int:
        """How far ahead of now a slot may be."""
        return self.wheel.slots // 2 - BLANK_SLOTS

    def floor(self, time_ms: int) -> int:
        return time_ms - time_ms % self.precision_ms

    # Recovery

    def recover(self, store: Store, now_ms: int) -> None:
        saved = self.before
        self.read_ms = saved.read_ms or self.floor(now_ms) - self.ahead_slots_max * self.precision_ms
        self.log.load()
        self.log.recover(self._scan_start(store.crashed), store.log.max_offset, self._revise)
        if self._is_of_other_precision:
            self._begin_anew()
        self._mend_slots(store.log.max_offset)
        self.queue_offset = self._find_queue_offset(store)
        self.pending = sum(slot.messages for slot in self.wheel.filled(self._step(self.read_ms)))
        log.info(
            "recovered timers read_ms=%d queue_offset=%d log_end=%d pending=%d",
            self.read_ms, self.queue_offset, self.log.end, self.pending,
        )  # fmt: skip

    def _scan_start(self, crashed: bool) -> int:
        if self.wheel.is_new:
            return 0
        return self.before.log_position - (self.log.files.file_bytes if crashed else 0)

    def _revise(self, position: int, unit: TimerUnit) -> None:
        """Make sure that a slot knows its unit. One that has a later unit knows all before it."""
        step = self._step(unit.time_ms)
        if unit.time_ms < self.read_ms or (self._revising is not None and step not in self._revising):
            return
        if position < self.before.log_position and not (self.wheel.is_new or self.wheel.has_step(step)):
            self._is_of_other_precision = True
            return
        slot = self.wheel.get(step)
        if slot is None or slot.last < position:
            self._link(step, position, unit.kind, slot)

    def _begin_anew(self) -> None:
        """Take the whole queue in again, but for what is known to be delivered."""
        log.warning("made timers anew, the wheel has another precision than timerPrecisionMs=%d", self.precision_ms)
        self.log.clear()
        self.wheel.clear_all()
        self.before = self.before._replace(log_position=0, queue_offset=0)

    def _mend_slots(self, log_end: int) -> None:
        """Slots that point behind the end of the log are made anew from what the log has."""
        broken = [slot for slot in self.wheel.filled(self._step(self.read_ms)) if slot.last >= self.log.end]
        if not broken:
            return
        log.warning("mended timer slots count=%d log_end=%d", len(broken), self.log.end)
        for slot in broken:
            self.wheel.clear(slot.step)
        self._revising = {slot.step for slot in broken}
        self.log.recover(min(slot.first for slot in broken), log_end, self._revise)
        self._revising = None

    def _find_queue_offset(self, store: Store) -> int:
        """Behind the message of the last unit. Late ones are delivered without a unit, which timercheck knows of."""
        low, high = store.queue_bounds(TIMER_TOPIC, 0)
        last = self.log.last_position()
        unit = None if last == NONE else self.log.unit(last)
        offset = low if unit is None else _queue_offset_behind(store, unit.physical_offset)
        if self.log.end >= self.before.log_position:
            offset = max(offset, self.before.queue_offset)
        return min(max(offset, low), high)

    def was_delivered(self, queue_offset: int, time_ms: int) -> bool:
        """Whether this message, taken from the queue again, is known to be delivered."""
        return queue_offset < self.before.master_queue_offset and time_ms < self.before.read_ms

    # Slots

    def add(
        self, time_ms: int, written_ms: int, kind: int, physical_offset: int, message_bytes: int, topic_hash: int
    ) -> None:
        step = self._step(time_ms)
        slot = self.wheel.get(step)
        previous = NONE if slot is None else slot.last
        unit = TimerUnit(previous, kind, written_ms, time_ms - written_ms, physical_offset, message_bytes, topic_hash)
        self._link(step, self.log.append(unit), kind, slot)
        self.pending += -1 if kind & KIND_DELETE else 1

    def _link(self, step: int, position: int, kind: int, slot: Slot | None) -> None:
        change = -1 if kind & KIND_DELETE else 1
        if slot is None:
            self.wheel.put(Slot(step, position, position, change))
        else:
            self.wheel.put(Slot(step, slot.first, position, slot.messages + change, slot.mark))

    def has_room(self, time_ms: int) -> bool:
        """False: the place of this time is taken by messages that should have been delivered a week ago."""
        return not self.wheel.in_the_way(self._step(time_ms), self._step(self.read_ms))

    def count_at(self, time_ms: int) -> int:
        slot = self.wheel.get(self._step(time_ms))
        return 0 if slot is None else slot.messages

    def last_at(self, time_ms: int) -> int:
        """Where the chain of this time begins; -1: there is none."""
        slot = self.wheel.get(self._step(time_ms))
        return NONE if slot is None else slot.last

    def next_due(self, before_ms: int) -> int | None:
        """The first time that is not delivered and has messages, if it is before `before_ms`."""
        step = self.wheel.next_filled(self._step(self.read_ms), self._step(before_ms))
        return None if step is None else step * self.precision_ms

    def first_pending(self) -> int:
        """Where in the log the oldest unit is that is not delivered; the end of the log if there is none."""
        firsts = (slot.first for slot in self.wheel.filled(self._step(self.read_ms)))
        return min(firsts, default=self.log.end)

    def delivered(self, time_ms: int) -> None:
        """All of this time, and whatever was before it."""
        self.pending -= self.count_at(time_ms)
        self.read_ms = time_ms + self.precision_ms

    def go_back(self, time_ms: int) -> None:
        """The clock was set back: times that were passed come again, with nothing of what was delivered in them."""
        log.warning("went back with the clock from_ms=%d to_ms=%d", self.read_ms, time_ms)
        low, high = self._step(time_ms), self._step(self.read_ms)
        for slot in list(self.wheel.filled(low)):
            if slot.step < high:
                self.wheel.clear(slot.step)
        self.read_ms = time_ms

    def _step(self, time_ms: int) -> int:
        return time_ms // self.precision_ms

    # To disk

    @property
    def is_changed(self) -> bool:
        """Whether there is more to save than progress."""
        return self.wheel.is_changed or self.log.end != self.check.saved.log_position

    def begin_flush(self, read_ms: int, queue_offset: int, now_ms: int) -> TimerFlush:
        """Everything, with progress as given. DiskFull: not now."""
        files = self.log.files
        files.write()
        end = files.end
        unsynced = [files.open_files.get(path) for path in files.take_unsynced()]
        new_names = None if files.named else files.directory
        files.named = True
        saved = self.check.saved
        moved = (read_ms, queue_offset) != (saved.read_ms, saved.queue_offset)
        progress = TimerProgress(
            read_ms,
            end,
            queue_offset,
            queue_offset,
            saved.state_version,
            now_ms if moved else saved.timestamp_ms,
            saved.counter + 1 if moved else saved.counter,
        )
        return TimerFlush(self._disk, new_names, unsynced, self.wheel.begin_flush(), self.check, progress)

    def end_flush(self, flush: TimerFlush) -> None:
        """On the owner's thread, when `run()` has returned."""
        self.wheel.end_flush(flush.error is None)

    def close(self) -> None:
        for part in (self.wheel, self.log, self.check):
            part.close()


class TimerFlush:
    """`run()` may run in any thread. `error` is DiskFull if it may be tried again; another is final."""

    def __init__(
        self,
        disk: Disk,
        new_names: str | None,
        files: list[File],
        wheel: WheelFlush,
        check: TimerCheck,
        progress: TimerProgress,
    ) -> None:
        self.error: OSError | DiskFull | None = None
        self._disk = disk
        self._new_names = new_names
        self._files = files
        self._wheel = wheel
        self._check = check
        self._progress = progress

    def run(self) -> None:
        try:
            for file in self._files:
                try:
                    file.sync()
                except FileNotFoundError:
                    continue  # it has expired meanwhile
            if self._new_names is not None:
                self._disk.sync_dir(self._new_names)
            self._wheel.run()
            self._check.write(self._progress)
        except (OSError, DiskFull) as error:
            self.error = error


def _queue_offset_behind(store: Store, physical_offset: int) -> int:
    """The first queue offset of the timer topic whose message is behind this place of the log."""
    low, high = store.queue_bounds(TIMER_TOPIC, 0)
    while low < high:
        middle = (low + high) // 2
        entries = store.queue_entries(TIMER_TOPIC, 0, middle, 1)
        if entries and entries[0][0] > physical_offset:
            high = middle
        else:
            low = middle + 1
    return low
