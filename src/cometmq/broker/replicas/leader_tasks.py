"""What one broker of a replica group does for all of it: delays, timers, open transactions.

    start    the master at its start; a replica when it has to act as the master
    stop     with the broker; when the master is back

    timer             first after   then every
    delayed messages  1 s           100 ms
    delay progress    10 s          flushDelayOffsetInterval
    timer messages    1 s           100 ms                            delayed/timers.py
    timer progress    1 s           timerFlushIntervalMs
    open halves       30 s          transactionCheckInterval          transactions/transactions.py
    ended halves      3 s           transactionOpBatchInterval
    half counts       10 s          10 s
    popped, not done  200 ms        200 ms                            pop/popping.py
    the same, of RocketMQ's broker  1 s                               pop/revive.py
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from cometmq.broker.cold_pages import ColdPages
from cometmq.broker.delayed.levels import FIRST_ROUND_MS, ROUND_MS
from cometmq.broker.delayed.timers import EXPIRE_S, RECOUNT_S
from cometmq.broker.delayed.timers import FIRST_ROUND_MS as TIMERS_FIRST_MS
from cometmq.broker.periodic import Periods
from cometmq.broker.pop.revive import PopRevival
from cometmq.store.results import PutStatus
from cometmq.store.timers.files import TimerFiles
from cometmq.store.workers import ThreadWorker

if TYPE_CHECKING:
    from cometmq.broker.server import Broker


THREADS_LOOK_S: Final = 0.005
POP_REVIVE_S: Final = 0.2
LEFT_POPS_S: Final = 1.0


class Duties:
    """`is_on`: this broker is the one that does it."""

    def __init__(self, broker: Broker) -> None:
        self.is_on: bool = False
        self._broker = broker
        self._periods = Periods(broker.clock)
        self._left_pops = PopRevival(broker)
        self._is_open: bool = False
        self._pages: ColdPages | None = None

    def open(self) -> None:
        """Transactions and timers, as the store and the tables are now. StoreError or OSError: they cannot be read."""
        broker = self._broker
        pages = ColdPages(broker.store.reading.cold_range, broker.background.load_ranges)
        broker.delays.pages = broker.transactions.pages = broker.popping.pages = self._pages = pages
        broker.delays.wake = self.deliver_delayed
        broker.popping.wake = self._revive
        broker.transactions.open()
        if broker.config.timer_wheel_enabled:
            files = TimerFiles(broker.disk, broker.store.options)
            worker = ThreadWorker("timers", asyncio.get_running_loop().call_soon_threadsafe)
            put = broker.escape.put if broker.is_replica else None
            broker.timers.open(broker.store, files, worker, broker.background.load_ranges, put)
        self._is_open = True

    def start(self) -> None:
        if not self._is_open:
            self.open()
        self.is_on = True
        self._start_delays()
        self._left_pops = PopRevival(self._broker)
        self._left_pops.pages, self._left_pops.wake = self._pages, self._revive_left
        self._periods.every("pop", lambda: POP_REVIVE_S, self._revive, POP_REVIVE_S)
        self._periods.every("left pops", lambda: LEFT_POPS_S, self._revive_left, LEFT_POPS_S)
        self._start_transactions()
        if self._broker.timers.is_open:
            self._start_timers()

    def pause(self) -> None:
        """Nothing by the clock any more."""
        self._periods.stop()
        self.is_on = False

    async def stop(self) -> None:
        """Another broker does it from now on."""
        self.pause()
        broker = self._broker
        await broker.escape.stop()
        broker.transactions.close()
        broker.timers.finish()
        while broker.timers.is_writing:  # noqa: ASYNC110 - threads end it, not tasks
            await asyncio.sleep(THREADS_LOOK_S)
        broker.timers.close()
        self._is_open = False

    def _start_delays(self) -> None:
        broker = self._broker
        every = self._periods.every
        every("delays", lambda: ROUND_MS / 1000, self.deliver_delayed, FIRST_ROUND_MS / 1000)
        progress_s = broker.config.flush_delays_interval_ms / 1000
        every("progress", lambda: progress_s, self._save_progress, 10)

    def _start_transactions(self) -> None:
        broker = self._broker

        def round_s() -> float:
            return broker.config.transaction_check_interval_ms / 1000

        def tend_s() -> float:
            return broker.config.op_interval_ms / 1000

        every = self._periods.every
        every("transactions", round_s, broker.transactions.begin_round, round_s())
        every("ops", tend_s, self._tend_transactions, tend_s())
        every("half counts", lambda: 10.0, self._save_counts, 10)

    def _start_timers(self) -> None:
        broker = self._broker

        def save_s() -> float:
            return broker.store.options.timer_flush_interval_ms / 1000

        every = self._periods.every
        every("timers", lambda: broker.timers.round_ms / 1000, self._tend_timers, TIMERS_FIRST_MS / 1000)
        every("timer progress", save_s, self._save_timers, save_s())
        every("timer log", lambda: EXPIRE_S, broker.timers.expire, EXPIRE_S)
        every("timer counts", lambda: RECOUNT_S, broker.timers.recount, RECOUNT_S)

    def resume(self) -> None:
        """A message that somebody tries to put has got to its place."""
        if self.is_on:
            self._broker.soon(self.deliver_delayed)
            self._broker.soon(self._broker.transactions.begin_round)
            self.wake_timers()

    # Delayed messages

    def deliver_delayed(self) -> None:
        """A backlog is worked off without waiting for the next round, but not without serving others in between."""
        broker = self._broker
        if "delays" not in self._periods:
            return
        if broker.is_replica:
            broker.delays.deliver(broker.escape)
            self._save_escaped()
        elif broker.delays.deliver(broker.store):
            broker.soon(self.deliver_delayed)

    def _save_escaped(self) -> None:
        """What another broker has taken is safe: nothing of it is in the log here."""
        progress = self._broker.delays.progress()
        if progress is not None:
            self._progress_flushed(progress, PutStatus.OK)

    def _save_progress(self) -> None:
        """Progress of delayed messages goes to disk behind what was delivered: see delayed/levels.py."""
        store = self._broker.store
        progress = self._broker.delays.progress()
        if progress is not None:
            store.flusher.wait(store.log.max_offset, partial(self._progress_flushed, progress))
            store.wake_flush()

    def _progress_flushed(self, progress: dict[int, int], status: int) -> None:
        if status == PutStatus.OK:
            self._broker.delays.confirm(progress)
            self._broker.save_soon("delayOffset.json")

    def confirm_progress(self) -> None:
        """The store is closed: all that was delivered is on disk, unless the disk failed."""
        progress = self._broker.delays.progress()
        if progress is not None and self._broker.store.failure is None:
            self._broker.delays.confirm(progress)

    # Timer messages

    def _tend_timers(self) -> None:
        if self._broker.timers.turn():
            self.wake_timers()

    def wake_timers(self) -> None:
        """A turn soon, unless the broker stops."""
        if "timers" in self._periods:
            self._broker.soon(self._turn_timers)

    def _turn_timers(self) -> None:
        if "timers" in self._periods:
            self._tend_timers()

    def _save_timers(self) -> None:
        self._broker.timers.save()
        self._broker.timers.counts.keep_only(self._broker.topics.table)
        self._broker.save_soon("timermetrics")

    # Popped messages whose time is over

    def _revive(self) -> None:
        if "pop" in self._periods and self._broker.popping.revive():
            self._broker.soon(self._revive)

    def _revive_left(self) -> None:
        if "left pops" in self._periods and self._left_pops.turn():
            self._broker.soon(self._revive_left)

    # Transactions

    def _tend_transactions(self) -> None:
        self._broker.transactions.tend(save_progress=not self._broker.is_saving("consumerOffset.json"))

    def _save_counts(self) -> None:
        self._broker.transactions.counts.keep_only(self._broker.topics.table)
        self._broker.save_soon("transactionMetrics")
        self._broker.popping.windows.keep_only(self._broker.topics.table, self._broker.groups.table)
