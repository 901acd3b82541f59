"""What is done with delayed and timer messages by the clock, see `Rounds`.

    timer             first after   then every
    delayed messages  1 s           100 ms                   levels.py
    delay progress    10 s          flushDelayOffsetInterval
    timer messages    1 s           100 ms                   timers.py
    timer progress    1 s           timerFlushIntervalMs
    timer log         30 s          30 s                     what has expired is deleted
    timer counts      45 min        45 min                   in the hours of timerCheckMetricsWhen
"""

import asyncio
from collections.abc import Callable
from functools import partial

from cometmq.broker.cold_pages import ColdPages, Place
from cometmq.broker.config import BrokerConfig
from cometmq.broker.delayed.levels import FIRST_ROUND_MS, ROUND_MS, Delays, ScheduleStore
from cometmq.broker.delayed.timers import EXPIRE_S, RECOUNT_S, Timers
from cometmq.broker.delayed.timers import FIRST_ROUND_MS as TIMERS_FIRST_MS
from cometmq.broker.periodic import Rounds
from cometmq.broker.tables.files import DELAYS, TIMER_COUNTS, TableFiles
from cometmq.broker.tables.tables import Tables
from cometmq.clock import Clock
from cometmq.store.background import Background
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from cometmq.store.timers.files import TimerFiles
from cometmq.store.workers import ThreadWorker

Soon = Callable[[Callable[[], None]], object]


class DelayRounds(Rounds):
    """`elsewhere`: on a replica, where it puts what is due."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        delays: Delays,
        store: Store,
        files: TableFiles,
        pages: ColdPages,
        soon: Soon,
        elsewhere: ScheduleStore | None,
    ) -> None:
        super().__init__(clock)
        self._config = config
        self._delays = delays
        self._store = store
        self._files = files
        self._pages = pages
        self._soon = soon
        self._elsewhere = elsewhere

    def start(self) -> None:
        self._periods.every("delays", lambda: ROUND_MS / 1000, self.deliver, FIRST_ROUND_MS / 1000)
        progress_s = self._config().flush_delays_interval_ms / 1000
        self._periods.every("progress", lambda: progress_s, self._save, 10)

    def resume(self) -> None:
        self._soon(self.deliver)

    def deliver(self) -> None:
        """A backlog is worked off without waiting for the next round, but not without serving others in between."""
        if "delays" not in self._periods:
            return
        if self._elsewhere is not None:
            self._delays.deliver(self._elsewhere, self._is_cold)
            self._save_sent()
        elif self._delays.deliver(self._store, self._is_cold):
            self._soon(self.deliver)

    def _is_cold(self, walk: str, places: list[Place]) -> bool:
        return self._pages.wanted(walk, places, self.deliver)

    def _save_sent(self) -> None:
        """What another broker has taken is safe: nothing of it is in the log here."""
        progress = self._delays.progress.unconfirmed()
        if progress is not None:
            self._flushed(progress, PutStatus.OK)

    def _save(self) -> None:
        """Progress goes to disk behind what was delivered: see levels.py."""
        progress = self._delays.progress.unconfirmed()
        if progress is not None:
            self._store.flusher.wait(self._store.log.max_offset, partial(self._flushed, progress))
            self._store.wake_flush()

    def _flushed(self, progress: dict[int, int], status: int) -> None:
        if status == PutStatus.OK:
            self._delays.progress.confirm(progress)
            self._files.save_soon(DELAYS)

    def confirm(self) -> None:
        """The store is closed: all that was delivered is on disk, unless the disk failed."""
        progress = self._delays.progress.unconfirmed()
        if progress is not None and self._store.failure is None:
            self._delays.progress.confirm(progress)


class TimerRounds(Rounds):
    """`elsewhere`: on a replica, where it puts what is due."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        timers: Timers,
        store: Store,
        background: Background,
        tables: Tables,
        soon: Soon,
        elsewhere: ScheduleStore | None,
    ) -> None:
        super().__init__(clock)
        self._config = config
        self._timers = timers
        self._store = store
        self._background = background
        self._tables = tables
        self._soon = soon
        self._elsewhere = elsewhere

    def open(self) -> None:
        if self._config().timer_wheel_enabled:
            files = TimerFiles(self._store.disk, self._store.options)
            worker = ThreadWorker("timers", asyncio.get_running_loop().call_soon_threadsafe)
            put = None if self._elsewhere is None else self._elsewhere.put
            self._timers.open(self._store, files, worker, self._background.load_ranges, put)

    def start(self) -> None:
        if not self._timers.is_open:
            return
        every = self._periods.every
        every("timers", lambda: self._timers.round_ms / 1000, self._tend, TIMERS_FIRST_MS / 1000)
        every("timer progress", self._save_s, self._save, self._save_s())
        every("timer log", lambda: EXPIRE_S, self._timers.expire, EXPIRE_S)
        every("timer counts", lambda: RECOUNT_S, self._timers.recount, RECOUNT_S)

    def resume(self) -> None:
        self.wake()

    def wake(self) -> None:
        """A turn soon, unless the broker stops."""
        if "timers" in self._periods:
            self._soon(self._turn)

    def finish(self) -> None:
        self._timers.finish()

    @property
    def is_writing(self) -> bool:
        return self._timers.is_writing

    def close(self) -> None:
        self._timers.close()

    def _save_s(self) -> float:
        return self._store.options.timer_flush_interval_ms / 1000

    def _turn(self) -> None:
        if "timers" in self._periods:
            self._tend()

    def _tend(self) -> None:
        if self._timers.turn():
            self.wake()

    def _save(self) -> None:
        self._timers.save()
        self._timers.counts.keep_only(self._tables.topics.table)
        self._tables.files.save_soon(TIMER_COUNTS)
