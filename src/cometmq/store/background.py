"""Timers and threads around a store: everything that happens without being asked for.

    flush thread        fdatasync of the log                   SYNC_FLUSH: woken by puts; ASYNC_FLUSH: every 500 ms
    allocation thread   the next segments                      when the log rolls or a segment is half full
    upkeep thread       sync of queues, index, checkpoint      every second, everything every minute
    read thread         pages that are not in memory           when a get is cold

Each thread does one thing at a time and reports on the event loop; decisions are made there, in log/flush.py,
log/allocation.py and store.py. A test passes InlineWorkers and a manual clock, and has the same without threads.

Under SYNC_FLUSH the flusher is woken at the end of the loop's current turn, so that all puts of that turn share one
fdatasync; while it runs, further puts gather for the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from cometmq.clock import Clock, Timer
from cometmq.store.disk import File
from cometmq.store.log.allocation import Allocation
from cometmq.store.log.flush import FlushWork
from cometmq.store.queues.consume_queues import QueueFlush
from cometmq.store.queues.index import IndexFile
from cometmq.store.results import GetResult
from cometmq.store.store import Store
from cometmq.store.workers import Act, ThreadWorker, Worker

log = logging.getLogger(__name__)

CHECKPOINT_S = 1.0
CLEAN_FIRST_S = 60.0
CHECK_FIRST_S = 60.0
CHECK_S = 600.0
FOLLOW_S = 0.1
# Of every 50 ms in which a replica gets a backlog: queues of short records wait, those of long ones keep up.
LOG_FIRST_DISPATCH_S = 0.002


class Background:
    """`post` runs a function soon on the store's thread and may be called from any: loop.call_soon_threadsafe."""

    def __init__(
        self, store: Store, post: Callable[[Act], object], make_worker: Callable[[str], Worker] | None = None
    ) -> None:
        self._store = store
        self._post = post
        self._clock: Clock = store.clock
        make = make_worker or partial(_thread_worker, post)
        self._flush_worker = make("flush")
        self._upkeep_worker = make("upkeep")
        self._read_worker = make("read")
        self._allocation_worker = make("allocate")
        self._workers = (self._flush_worker, self._upkeep_worker, self._read_worker, self._allocation_worker)
        self._allocation = Allocation(store.segments, self._allocation_worker, self._clock)
        self._timers: dict[str, Timer] = {}
        self._flush_woken = False
        self._dispatch_woken = False
        self._upkeep_busy = False
        self._thorough_s = -1e9
        self._makes_ahead = False

    def start(self) -> None:
        store, options = self._store, self._store.options
        store.drive(wake_flush=self._wake_flush, wake_dispatch=self._wake_dispatch)
        if not options.is_slave and not options.controller_mode:
            self._allocation.attach()
        if not options.sync_flush:
            self._every("flush", lambda: options.flush_interval_ms / 1000, self._timed_flush)
        self._every("queues", lambda: options.queue_flush_interval_ms / 1000, self._queue_round)
        self._every("checkpoint", lambda: CHECKPOINT_S, self._checkpoint_round)
        self._every("clean", lambda: options.clean_interval_ms / 1000, self._clean, CLEAN_FIRST_S)
        self._every("check", lambda: CHECK_S, store.segments.report_gaps, CHECK_FIRST_S)

    def make_ahead(self) -> None:
        """Segments are made ahead from now on: this broker has become a master."""
        if not self._makes_ahead:
            self._makes_ahead = True
            self._allocation.attach()

    @property
    def busy(self) -> bool:
        """Whether a thread is at work, so that `stop` would have to wait for it."""
        return any(worker.pending for worker in self._workers)

    def stop(self) -> None:
        """Threads and timers end, their last reports are taken; the store itself is still open."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for worker in self._workers:
            worker.stop()
        self._allocation.detach()
        self._store.drive()

    def _every(self, name: str, interval_s: Callable[[], float], act: Act, first_s: float | None = None) -> None:
        """Call `act` again and again; the interval is asked for each time, because settings may change."""

        def tick() -> None:
            self._timers[name] = self._clock.call_later(interval_s(), tick)
            act()

        self._timers[name] = self._clock.call_later(interval_s() if first_s is None else first_s, tick)

    # The log

    def _wake_flush(self) -> None:
        if not self._flush_woken:
            self._flush_woken = True
            self._post(self._flush)

    def _flush(self) -> None:
        self._flush_woken = False
        self._run_flush(self._store.flusher.begin())

    def _timed_flush(self) -> None:
        self._run_flush(self._store.flusher.begin_timed())

    def _run_flush(self, work: FlushWork | None) -> None:
        if work is not None:
            self._flush_worker.submit(work.run, partial(self._flushed, work))

    def _flushed(self, work: FlushWork) -> None:
        flusher = self._store.flusher
        flusher.finish(work)
        # Puts that came while the sync was running.
        options = self._store.options
        if (options.sync_flush or options.is_slave or options.controller_mode) and self._timers:
            self._run_flush(flusher.begin())

    def _wake_dispatch(self) -> None:
        if not self._dispatch_woken:
            self._dispatch_woken = True
            self._post(self._dispatch)

    def _dispatch(self) -> None:
        """One step per turn of the loop: a long backlog does not keep clients waiting."""
        self._dispatch_woken = False
        if self._store.log_first:
            self._dispatch_a_little()
        elif self._store.dispatcher.step():
            self._wake_dispatch()

    def _dispatch_a_little(self) -> None:
        end_s = self._clock.monotonic() + LOG_FIRST_DISPATCH_S
        while self._store.dispatcher.step() and self._clock.monotonic() < end_s:
            pass

    # Queues, index, checkpoint

    def _queue_round(self) -> None:
        store = self._store
        # What dispatch could not do when it was due: a failed index put, a replica's unfinished record.
        if store.dispatcher.behind_bytes or store.dispatcher.unindexed_from >= 0:
            self._wake_dispatch()
        now_s = self._clock.monotonic()
        thorough = now_s - self._thorough_s >= store.options.queue_flush_thorough_interval_ms / 1000
        store.write_queues(thorough)
        if store.failure is not None or store.queues_full or self._upkeep_busy:
            return
        if thorough:
            self._thorough_s = now_s
        flush = store.queues.begin_flush(0 if thorough else store.options.queue_flush_pages_min)
        files = store.index.to_sync()
        if thorough or flush.paths or files:
            errand = _Upkeep(flush, files)
            self._upkeep_busy = True
            self._upkeep_worker.submit(errand.run, partial(self._queues_synced, errand, thorough))

    def _queues_synced(self, errand: _Upkeep, thorough: bool) -> None:
        store = self._store
        self._upkeep_busy = False
        if errand.error is not None:
            store.fail(errand.error)
            return
        for file in errand.files:
            file.synced = True
        if thorough:
            store.queues.finish_flush(errand.flush, store.checkpoint)
        store.note_index_time()
        self._checkpoint_round()

    def _checkpoint_round(self) -> None:
        store = self._store
        store.note_index_time()
        if store.failure is None and store.checkpoint.dirty and not self._upkeep_busy:
            errand = _CheckpointWrite(store, store.checkpoint.packed())
            self._upkeep_busy = True
            self._upkeep_worker.submit(errand.run, partial(self._checkpoint_written, errand))

    def _checkpoint_written(self, errand: _CheckpointWrite) -> None:
        self._upkeep_busy = False
        if errand.error is not None:
            self._store.fail(errand.error)

    # Old files, cold pages

    def _clean(self) -> None:
        self._store.retention.round()
        self._follow()

    def _follow(self) -> None:
        if self._store.retention.follow():
            self._timers["follow"] = self._clock.call_later(FOLLOW_S, self._follow)

    def load_pages(self, result: GetResult, then: Act) -> None:
        """Bring what a cold result needs into memory, then call `then`, which gets the messages again."""
        self._read_worker.submit(partial(self._store.reading.load, result), then)

    def load_ranges(self, ranges: list[tuple[File, int, int]], then: Act) -> None:
        """The same for ranges of files."""
        self._read_worker.submit(partial(self._store.reading.load_ranges, ranges), then)


class _Upkeep:
    """Syncs of derived files; `error` says what went wrong."""

    def __init__(self, flush: QueueFlush, files: list[IndexFile]) -> None:
        self.flush = flush
        self.files = files
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self.flush.sync()
            for file in self.files:
                self._sync(file)
        except OSError as error:
            self.error = error

    @staticmethod
    def _sync(file: IndexFile) -> None:
        """One that has expired meanwhile need not be on disk."""
        try:
            file.sync()
        except FileNotFoundError:
            return


class _CheckpointWrite:
    def __init__(self, store: Store, packed: bytes) -> None:
        self._checkpoint = store.checkpoint
        self._packed = packed
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            self._checkpoint.write(self._packed)
        except OSError as error:
            self.error = error


def _thread_worker(post: Callable[[Act], object], name: str) -> ThreadWorker:
    return ThreadWorker(name, post)
