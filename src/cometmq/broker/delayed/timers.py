"""Timer messages: kept in the timer topic, put on the wheel, delivered when their time has come.

    put        TIMER_*        ->  timer topic, queue 0; real topic and queue become properties
    take in    from the queue ->  a unit of the timer log, in the slot of its time
    deliver    slot is due    ->  put again, to its real topic and queue

    read_ms ........ write_ms .......................... + timerRollWindowSlot
    | to be delivered | slots that take messages          | too far: kept half way, then taken in again

`write_ms` is now, rounded down. A slot is due when it lies before that, and gets no more messages then: what comes in
later is delivered without a detour. All messages of a slot are delivered before `read_ms` moves on, oldest first; those
that take others back are read before them.

It all happens on the event loop, some messages in each turn, so that thousands that are due at one moment share it with
everybody. Messages that are on disk only are read in a thread first.

Progress is saved when the commit log is on disk up to what was delivered (`save`). After a crash what was delivered
since is delivered again. A message that the store refuses now is tried again until it is taken; later ones wait.

When the clock is set back, times that were passed come again and new messages wait for them; none is early.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Final

from cometmq.broker.delayed import timer_messages
from cometmq.broker.delayed.timer_admission import admit
from cometmq.broker.delayed.timer_counts import Rate, Recount
from cometmq.broker.delayed.timer_messages import NEVER_ON_WHEEL, TimerMessage
from cometmq.broker.stats.ends import TimerTally
from cometmq.broker.tables.pending_timers import PendingTimers
from cometmq.clock import Clock
from cometmq.names import TIMER_TOPIC
from cometmq.store.disk import DiskFull, File
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.store import Store
from cometmq.store.timers.files import TimerFiles, TimerFlush
from cometmq.store.timers.log import KIND_DEFAULT, KIND_DELETE, KIND_ROLL, NONE, TimerUnit
from cometmq.store.workers import Act, Worker
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.sysflag import enters_consume_queue

log = logging.getLogger(__name__)

FIRST_ROUND_MS: Final = 100
ROUND_MS_MAX: Final = 100
ROUND_MS_MIN: Final = 10
EXPIRE_S: Final = 30.0
RECOUNT_S: Final = 2_700.0
PAUSE_AFTER_ERROR_S: Final = 10.0
# How many messages one turn may take in, and how many it may put.
TURN_MESSAGES_MAX: Final = 200
# Reading a unit costs a tenth of putting a message.
UNITS_PER_MESSAGE: Final = 10
# How much of the timer log may wait in memory while the disk is full.
UNWRITTEN_BYTES_MAX: Final = 16 << 20
# How long a stop may go on to deliver the slot that is under way.
FINISH_S: Final = 1.0
# Progress of nothing but time is saved less often.
IDLE_SAVE_S: Final = 10.0

Load = Callable[[list[tuple[File, int, int]], Act], object]
Put = Callable[[AppendRequest], PutResult]


class DueSlot:
    """A slot that is being delivered. `position`: where its chain goes on; the lists have positions, newest first."""

    def __init__(self, time_ms: int, position: int) -> None:
        self.time_ms = time_ms
        self.position = position
        self.deletes = array("q")
        self.messages = array("q")
        self.taken_back: set[str] = set()


class Timers:
    """Off until `open`. `delivered` is told topic, queue and size of each message; `wake` asks for a turn soon."""

    def __init__(
        self,
        clock: Clock,
        counts: PendingTimers,
        delivered: Callable[[str, int, int], object],
        wake: Callable[[], object],
    ) -> None:
        self.counts = counts
        self.tally = TimerTally()
        self.taken_in = Rate(clock)
        self.delivering = Rate(clock)
        self._clock = clock
        self._delivered = delivered
        self._wake = wake
        self._write_ms = 0
        self._due: DueSlot | None = None
        self._recount: Recount | None = None
        self._is_loading = False
        self._loaded_for: tuple[int, int] | None = None
        # What to save when the commit log is flushed up to the first of them: its end, read_ms, queue_offset.
        self._mark: tuple[int, int, int] | None = None
        self.is_writing = False
        self._is_unsaved = False
        self._saved_s = 0.0
        self._paused_until_s: dict[str, float] = {}
        self.is_open = False
        self.files: TimerFiles
        self._store: Store
        self._worker: Worker
        self._load: Load
        self._put_elsewhere: Put | None = None

    def open(self, store: Store, files: TimerFiles, worker: Worker, load: Load, put: Put | None = None) -> None:
        """`worker` syncs files, `load` brings pages into memory, `put` takes messages that are due: the store's unless
        given. The store has recovered; now the timers do."""
        self._put_elsewhere = put
        self._due = self._recount = self._loaded_for = self._mark = None
        self._is_loading = self._is_unsaved = False
        self._store = store
        self.files = files
        self._worker = worker
        self._load = load
        files.recover(store, self._clock.now_ms())
        self._follow_clock()
        self.is_open = True

    @property
    def round_ms(self) -> int:
        return max(ROUND_MS_MIN, min(ROUND_MS_MAX, self.files.precision_ms // 10))

    # Figures

    @property
    def read_behind_ms(self) -> int:
        return self._clock.now_ms() - self.files.read_ms if self.is_open else 0

    @property
    def queue_behind(self) -> int:
        return self._store.queue_bounds(TIMER_TOPIC, 0)[1] - self.files.queue_offset if self.is_open else 0

    @property
    def pending(self) -> int:
        return self.files.pending if self.is_open else 0

    def metrics(self) -> dict[str, object]:
        """By the keys of runtime info."""
        return {
            "timerReadBehind": self.read_behind_ms // 1000,
            "timerOffsetBehind": self.queue_behind,
            "timerCongestNum": self.pending,
            "timerEnqueueTps": self.taken_in.value(),
            "timerDequeueTps": self.delivering.value(),
        }

    # On the way in

    def divert(self, request: AppendRequest) -> PutResult | None:
        """If the message asks for a timer, turn it into one for the timer topic; or say why it cannot be stored."""
        if not enters_consume_queue(request.sys_flag) or not timer_messages.asks_for_timer(request.properties):
            return None
        if not self.is_open:
            return PutResult(
                PutStatus.WHEEL_TIMER_NOT_ENABLED, remark="this broker has no timers: set timerWheelEnable=true"
            )
        return admit(request, self.files, self._store.options, self._clock.now_ms())

    # By the clock

    def turn(self) -> bool:
        """Take in and deliver some messages. True: there is more to do, call again soon."""
        self._write_marked()
        if self._is_loading:
            return False
        more = self._try("take in", self._take_in)
        self._follow_clock()
        more = self._try("deliver", self._deliver) or more
        return self._try("count", self._count_again) or more

    def _try(self, name: str, act: Callable[[], bool]) -> bool:
        now_s = self._clock.monotonic()
        if now_s < self._paused_until_s.get(name, 0.0):
            return False
        try:
            return act()
        except OSError as error:
            log.error("paused timers act=%s for_s=%.0f cause=%s", name, PAUSE_AFTER_ERROR_S, error)
        except Exception:
            log.exception("paused timers act=%s for_s=%.0f", name, PAUSE_AFTER_ERROR_S)
        self._paused_until_s[name] = now_s + PAUSE_AFTER_ERROR_S
        return False

    def _follow_clock(self) -> None:
        now_ms = self.files.floor(self._clock.now_ms())
        if self._due is not None:
            self._write_ms = max(self._write_ms, now_ms)
            return
        if now_ms < self.files.read_ms:
            self.files.go_back(now_ms)
            self._is_unsaved = True
        self._write_ms = now_ms

    # Taking in

    def _take_in(self) -> bool:
        files, store = self.files, self._store
        if store.options.timer_intake_stopped or len(files.log.files.tail) > UNWRITTEN_BYTES_MAX:
            return False
        if files.read_ms < files.check.saved.read_ms:
            return False  # the clock was set back: by what is saved, the times that come now are delivered
        low, high = store.queue_bounds(TIMER_TOPIC, 0)
        if not low <= files.queue_offset <= high:
            log.warning("moved timer progress from=%d low=%d high=%d", files.queue_offset, low, high)
            files.queue_offset = min(max(files.queue_offset, low), high)
        if files.queue_offset == high:
            return False
        entries = store.queue_entries(TIMER_TOPIC, 0, files.queue_offset, TURN_MESSAGES_MAX)
        if self._load_cold([(physical_offset, record_bytes) for physical_offset, record_bytes, _ in entries]):
            return False
        for physical_offset, record_bytes, _ in entries:
            if not self._take(physical_offset, record_bytes):
                return False
            files.queue_offset += 1
        return bool(entries) and files.queue_offset < high

    def _take(self, physical_offset: int, record_bytes: int) -> bool:
        """The message at `queue_offset`. False: it must wait, and the others behind it."""
        files = self.files
        timer = self._read(physical_offset, record_bytes)
        if timer is None or files.was_delivered(files.queue_offset, timer.out_ms):
            return True
        now_ms = self._clock.now_ms()
        if timer.out_ms < self._write_ms:
            if timer.out_ms + files.precision_ms > now_ms:
                return False  # the clock was set back in the middle of a slot
            # Too late to take another one back.
            return timer.delete_key is not None or self._put(timer.delivered(NEVER_ON_WHEEL, now_ms))
        time_ms, kind = self._place(timer.out_ms)
        if not files.has_room(time_ms):
            return False
        if timer.delete_key is not None:
            kind |= KIND_DELETE
        hash_ = java_string_hash(timer.real_topic)
        files.add(time_ms, self._write_ms, kind, physical_offset, record_bytes, hash_)
        self.counts.add(timer.real_topic, -1 if kind & KIND_DELETE else 1, now_ms)
        self.taken_in.add(1)
        self.tally.taken_in(timer.real_topic, max(0, timer.out_ms - timer.message.born_timestamp_ms) // 1000)
        return True

    def _place(self, out_ms: int) -> tuple[int, int]:
        """The time of the slot for a message that is due at `out_ms`, and its kind."""
        files = self.files
        slots = self._store.options.timer_roll_slots
        if not 2 <= slots <= files.ahead_slots_max:
            slots = files.ahead_slots_max
        excess_ms = out_ms - self._write_ms - slots * files.precision_ms
        if excess_ms < 0:
            return out_ms, KIND_DEFAULT
        # What is left after this roll should not be just a moment.
        if excess_ms < slots // 3 * files.precision_ms:
            slots //= 2
        return self._write_ms + slots * files.precision_ms, KIND_DEFAULT | KIND_ROLL

    def _read(self, physical_offset: int, record_bytes: int) -> TimerMessage | None:
        """None if there is nothing that could be delivered."""
        message = self._store.message_at(physical_offset, record_bytes)
        timer = None if message is None else timer_messages.read(message)
        if timer is None:
            why = "it is not in the log" if message is None else "it is not a timer message"
            log.error("skipped timer physical_offset=%d reason=%r", physical_offset, why)
        return timer

    # Delivering

    def _deliver(self) -> bool:
        if self._is_loading or self._store.options.timer_delivery_stopped:
            return False
        left = TURN_MESSAGES_MAX
        while left > 0:
            due = self._due or self._next_due()
            if due is None:
                return False
            done = self._work_on(due, left)
            if done == 0:
                return False
            left -= done
        return True

    def _next_due(self) -> DueSlot | None:
        files = self.files
        time_ms = files.next_due(self._write_ms)
        if time_ms is None:
            files.read_ms = max(files.read_ms, self._write_ms)
            return None
        self._due = DueSlot(time_ms, files.last_at(time_ms))
        return self._due

    def _work_on(self, due: DueSlot, count: int) -> int:
        """How much was done, in messages; 0: it must wait."""
        if due.position != NONE:
            return self._walk(due, count)
        if due.deletes:
            return self._take_back(due, count)
        if due.messages:
            return self._put_some(due, count)
        self.files.delivered(due.time_ms)
        self._due = None
        self._is_unsaved = True
        return 1

    def _walk(self, due: DueSlot, count: int) -> int:
        walked = 0
        while due.position != NONE and walked < count * UNITS_PER_MESSAGE:
            unit = self.files.log.unit(due.position)
            if unit is None or self.files.floor(unit.time_ms) != due.time_ms:
                log.error("lost chain of timers time_ms=%d position=%d unit=%s", due.time_ms, due.position, unit)
                due.position = NONE
                break
            (due.deletes if unit.is_delete and not unit.is_roll else due.messages).append(due.position)
            due.position = unit.previous
            walked += 1
        return walked // UNITS_PER_MESSAGE + 1

    def _take_back(self, due: DueSlot, count: int) -> int:
        """Learn which messages of this slot are not wanted any more."""
        units = self._units(due.deletes[-count:])
        if self._load_cold(_places(units)):
            return 0
        for unit in units:
            timer = self._read(unit.physical_offset, unit.message_bytes) if unit else None
            if timer is not None and timer.delete_key is not None:
                due.taken_back.add(timer.delete_key)
                self.counts.add(timer.real_topic, 1, self._clock.now_ms())
            due.deletes.pop()
        return len(units)

    def _put_some(self, due: DueSlot, count: int) -> int:
        units = self._units(due.messages[-count:])
        if self._load_cold(_places(units)):
            return 0
        for unit in units:
            if unit is not None and not self._put_due(due, unit):
                return 0
            due.messages.pop()
        return len(units)

    def _units(self, positions: array[int]) -> list[TimerUnit | None]:
        """Oldest first; None where the file has expired meanwhile."""
        found = [self.files.log.unit(position) for position in positions]
        found.reverse()
        return found

    def _put_due(self, due: DueSlot, unit: TimerUnit) -> bool:
        """False: the store refused it, try the same message again."""
        timer = self._read(unit.physical_offset, unit.message_bytes)
        if timer is None:
            return True
        now_ms = self._clock.now_ms()
        if not timer.is_taken_back(due.taken_back):
            request = (
                timer.rolled(unit.written_ms, now_ms) if unit.is_roll else timer.delivered(unit.written_ms, now_ms)
            )
            if not self._put(request):
                return False
        self.counts.add(timer.real_topic, 1 if unit.is_delete else -1, now_ms)
        self.tally.delivered(timer.real_topic)
        return True

    def _put(self, request: AppendRequest) -> bool:
        result = (self._put_elsewhere or self._store.put)(request)
        if result.status == PutStatus.MESSAGE_ILLEGAL or result.status == PutStatus.PROPERTIES_SIZE_EXCEEDED:
            log.error("dropped timer message topic=%s reason=%s", request.topic, result.remark)
            return True
        if result.status != PutStatus.OK:
            return False
        self.delivering.add(1)
        self._delivered(request.topic, request.queue_id, result.record_bytes)
        return True

    # Cold pages

    def _load_cold(self, places: list[tuple[int, int]]) -> bool:
        """True: messages have to be read from disk first, a turn will be asked for then."""
        if not places or places[0] == self._loaded_for:
            return False  # whatever the kernel says, they were read
        found = [self._store.reading.cold_range(offset, size) for offset, size in places]
        ranges = [place for place in found if place is not None]
        if not ranges:
            return False
        self._is_loading = True
        self._loaded_for = places[0]
        self._load(ranges, self._loaded)
        return True

    def _loaded(self) -> None:
        self._is_loading = False
        self._wake()

    # Upkeep

    def expire(self) -> None:
        """Files of the timer log whose messages are no longer in the commit log."""
        self.files.log.delete_expired(self._store.log.min_offset)

    def recount(self) -> None:
        """In the hours of `timerCheckMetricsWhen`."""
        options = self._store.options
        hour = time.localtime(self._clock.now_ms() // 1000).tm_hour
        hours = [text.strip() for text in options.timer_recount_hours.split(";")]
        is_hour = any(text.isdecimal() and int(text) == hour for text in hours)
        if options.timer_recount and is_hour and self._recount is None and self._due is None:
            self._recount = Recount(self.counts, self.files)

    def _count_again(self) -> bool:
        if self._recount is None:
            return False
        more = self._recount.step(TURN_MESSAGES_MAX * UNITS_PER_MESSAGE, self._clock.now_ms())
        if not more:
            self._recount = None
        return more

    # To disk

    def save(self) -> None:
        """Begin to write what changed, in a thread, as soon as the commit log is on disk up to here."""
        if self._mark is None and not self.is_writing and self._is_to_save():
            self._is_unsaved = False
            self._saved_s = self._clock.monotonic()
            self._mark = (self._store.log.max_offset, self.files.read_ms, self.files.queue_offset)
            self._store.wake_flush()
        self._write_marked()

    def _is_to_save(self) -> bool:
        files = self.files
        if self._is_unsaved or files.is_changed or files.queue_offset != files.check.saved.queue_offset:
            return True
        return self._clock.monotonic() - self._saved_s >= IDLE_SAVE_S

    def _write_marked(self) -> None:
        if self._mark is None or self._store.log.flushed_offset < self._mark[0] or self._store.failure is not None:
            return
        _, read_ms, queue_offset = self._mark
        self._mark = None
        try:
            flush = self.files.begin_flush(read_ms, queue_offset, self._clock.now_ms())
        except DiskFull as error:
            self._not_saved(error)
            return
        self.is_writing = True
        self._worker.submit(flush.run, partial(self._written, flush))

    def _written(self, flush: TimerFlush) -> None:
        self.is_writing = False
        self.files.end_flush(flush)
        if isinstance(flush.error, DiskFull):
            self._not_saved(flush.error)
        elif flush.error is not None:
            self._store.fail(flush.error)

    def _not_saved(self, error: DiskFull) -> None:
        self._is_unsaved = True
        log.warning("kept timers in memory error=%s", error)

    def finish(self) -> None:
        """The slot that is under way, if that takes no time to speak of: half delivered, it would come again."""
        stop_s = self._clock.monotonic() + FINISH_S
        while self._due is not None and not self._is_loading and self._clock.monotonic() < stop_s:
            due = self._due
            if not self._try("deliver", lambda: self._work_on(due, TURN_MESSAGES_MAX) > 0):  # noqa: B023 - called at once
                return

    def close(self) -> None:
        """Everything to disk, as far as the disk is to be trusted. The store is open, its threads have ended."""
        if not self.is_open:
            return
        self._worker.stop()
        self.is_open = False
        self._store.flush_now()
        try:
            if self._store.failure is None:
                flush = self.files.begin_flush(self.files.read_ms, self.files.queue_offset, self._clock.now_ms())
                flush.run()
                self._written(flush)
        except DiskFull as error:
            log.error("lost what was not saved of timers, it is made again at the start error=%s", error)
        except OSError as error:
            self._store.fail(error)
        self.files.close()


def _places(units: list[TimerUnit | None]) -> list[tuple[int, int]]:
    return [(unit.physical_offset, unit.message_bytes) for unit in units if unit is not None]
