"""When the commit log goes to disk, and who is told.

    begin() ──> FlushWork ──> work.run() in the flush thread ──> finish(work)
                  which files, up to where      fdatasync           positions, checkpoint, waiters

One piece of work runs at a time. Puts that come meanwhile wait for the next one, so one fdatasync answers all
who wait for it, however many they are (group commit). Waiters stand in log order because puts do: the flushed offset
cuts the row in two, and everybody before it is told OK, in one pass. Who waits longer than `sync_flush_timeout_ms` is
told FLUSH_DISK_TIMEOUT; the message stays in the log. One timer serves all of them: the wait is as long for everybody.

The first failed sync is final. Linux marks the pages clean although they never reached the device, so a second sync
would succeed and say nothing: there is no retry, nobody is told OK any more, and the store takes no messages.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from cometmq.clock import Clock, Timer
from cometmq.store.log.checkpoint import Checkpoint
from cometmq.store.log.segments import FlushStep, Segments
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutStatus

log = logging.getLogger(__name__)

Callback = Callable[[int], object]

SLOW_FLUSH_S: Final = 0.5
FLUSH_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
PROGRESS_EVERY: Final = 10
TIMER_HAIR_S: Final = 0.001


class Waiter:
    __slots__ = ("end_offset", "deadline_s", "callback")

    def __init__(self, end_offset: int, deadline_s: float, callback: Callback) -> None:
        self.end_offset = end_offset
        self.deadline_s = deadline_s
        self.callback = callback


class GroupCommit:
    """Those who wait for the disk, in log order."""

    def __init__(self) -> None:
        self._waiters: list[Waiter] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def wait(self, end_offset: int, deadline_s: float, callback: Callback) -> None:
        self._waiters.append(Waiter(end_offset, deadline_s, callback))

    def flushed(self, offset: int) -> None:
        count = 0
        for waiter in self._waiters:
            if waiter.end_offset > offset:
                break
            count += 1
        self._tell_first(count, PutStatus.OK)

    def expire(self, now_s: float) -> None:
        """Deadlines are in order too: the time to wait is the same for all."""
        count = 0
        for waiter in self._waiters:
            if waiter.deadline_s > now_s:
                break
            count += 1
        self._tell_first(count, PutStatus.FLUSH_DISK_TIMEOUT)

    def refuse(self) -> None:
        self._tell_first(len(self._waiters), PutStatus.SERVICE_NOT_AVAILABLE)

    def _tell_first(self, count: int, status: int) -> None:
        """Who is told may wait again at once, so they leave the row first."""
        told = self._waiters[:count]
        del self._waiters[:count]
        for waiter in told:
            tell(waiter.callback, status)

    def next_deadline_s(self) -> float | None:
        return self._waiters[0].deadline_s if self._waiters else None


def tell(callback: Callback, status: int) -> None:
    """One waiter's bug must not keep the others waiting."""
    try:
        callback(status)
    except Exception:
        log.exception("failed to tell waiter status=%d", status)


class FlushWork:
    """Syncs to be made, in log order. `run()` touches nothing but the files and its own fields."""

    def __init__(self, steps: list[FlushStep], thorough: bool) -> None:
        self.steps = steps
        self.thorough = thorough
        self.done: list[FlushStep] = []
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            for step in self.steps:
                step.segment.file.sync()
                self.done.append(step)
        except OSError as error:
            self.error = error


class Flusher:
    """`on_flushed` is told when the flushed offset moved, `on_failed` once, at the first failed sync."""

    def __init__(
        self,
        segments: Segments,
        checkpoint: Checkpoint,
        clock: Clock,
        options: StoreOptions,
        on_flushed: Callable[[], object],
        on_failed: Callable[[OSError], object],
    ) -> None:
        self.failure: OSError | None = None
        self.flushes: int = 0
        self.longest_s = 0.0
        # How many flushes took up to each of FLUSH_BOUNDS_S, or longer, and what all took.
        self.times: list[int] = [0] * (len(FLUSH_BOUNDS_S) + 1)
        self.sum_s: float = 0.0
        self.waiters = GroupCommit()
        self._segments = segments
        self._checkpoint = checkpoint
        self._clock = clock
        self._options = options
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._running: FlushWork | None = None
        self._began_s = 0.0
        self._thorough_s = clock.monotonic()
        self._thorough_rounds = 0
        self._deadline_timer: Timer | None = None

    @property
    def running(self) -> bool:
        return self._running is not None

    # Waiting

    def wait(self, end_offset: int, callback: Callback) -> None:
        """Call back with OK when the log is flushed up to `end_offset`, or with what became of it instead."""
        if self.failure is not None:
            callback(PutStatus.SERVICE_NOT_AVAILABLE)
        elif end_offset <= self._segments.flushed_offset:
            callback(PutStatus.OK)
        else:
            timeout_s = self._options.sync_flush_timeout_ms / 1000
            self.waiters.wait(end_offset, self._clock.monotonic() + timeout_s, callback)
            if self._deadline_timer is None:
                self._deadline_timer = self._clock.call_later(timeout_s, self._deadline_passed)

    def _deadline_passed(self) -> None:
        now_s = self._clock.monotonic()
        # A timer may come a hair early; what is due within it is due.
        self.waiters.expire(now_s + TIMER_HAIR_S)
        next_s = self.waiters.next_deadline_s()
        self._deadline_timer = None if next_s is None else self._clock.call_later(next_s - now_s, self._deadline_passed)

    # Flushing

    def begin(self, pages_min: int = 0) -> FlushWork | None:
        """What to sync now; None if there is nothing, or a sync is running, or one has failed."""
        if self._running is not None or self.failure is not None:
            return None
        steps = self._segments.flush_steps(pages_min)
        if not steps:
            if pages_min == 0:
                self._note_all_flushed()
            return None
        self._running = FlushWork(steps, thorough=pages_min == 0)
        self._began_s = self._clock.monotonic()
        return self._running

    def _note_all_flushed(self) -> None:
        """A thorough round that finds nothing to do: earlier rounds have flushed the last record."""
        last = self._segments.last()
        if last is not None and last.store_time_ms:
            self._checkpoint.physic_time_ms = last.store_time_ms

    def finish(self, work: FlushWork) -> None:
        """Take over what `work.run()` did, on the store's thread."""
        assert work is self._running, "finish() of work that is not running"
        self._running = None
        self._note_time(self._clock.monotonic() - self._began_s)
        for step in work.done:
            self._segments.flushed_to(step)
            if work.thorough and step.store_time_ms:
                self._checkpoint.physic_time_ms = step.store_time_ms
        if work.error is not None:
            self._fail(work.error, work.steps[len(work.done)].segment.file.path)
            return
        self.flushes += len(work.done)
        # First whoever reads, then who waits: a producer that is told OK finds its message in the queue.
        self._on_flushed()
        self.waiters.flushed(self._segments.flushed_offset)

    def begin_timed(self) -> FlushWork | None:
        """The regular round of ASYNC_FLUSH: a few dirty pages can wait, but only for the thorough interval."""
        now_s = self._clock.monotonic()
        if now_s - self._thorough_s < self._options.flush_thorough_interval_ms / 1000:
            return self.begin(self._options.flush_pages_min)
        self._thorough_s = now_s
        self._thorough_rounds += 1
        if self._thorough_rounds % PROGRESS_EVERY == 1:
            log.info(
                "flushed log up_to=%d behind_bytes=%d longest_ms=%d",
                self._segments.flushed_offset,
                self._segments.max_offset - self._segments.flushed_offset,
                self.longest_s * 1000,
            )
        return self.begin(0)

    def flush_now(self, pages_min: int = 0) -> None:
        """All steps here and now; waits for nobody. Without effect while a sync is running elsewhere."""
        work = self.begin(pages_min)
        if work is not None:
            work.run()
            self.finish(work)

    def _note_time(self, elapsed_s: float) -> None:
        self.longest_s = max(self.longest_s, elapsed_s)
        self.times[bisect_left(FLUSH_BOUNDS_S, elapsed_s)] += 1
        self.sum_s += elapsed_s
        if elapsed_s > SLOW_FLUSH_S:
            log.warning("flushed slowly took_ms=%.0f", elapsed_s * 1000)

    def _fail(self, error: OSError, path: str) -> None:
        self.failure = error
        log.critical(
            "lost trust in disk path=%s error=%s: no more messages are taken; check the device, then restart",
            path,
            error,
        )
        self._on_failed(error)  # first: what is said to those who wait names the cause
        self.waiters.refuse()

    def stop(self) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self.waiters.refuse()
