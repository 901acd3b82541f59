"""What the broker does for consumers by the clock.

    timer             first after   then every
    parked pulls      5 s           5 s (1 s without long polling)
    offsets to disk   10 s          flushConsumerOffsetInterval
    silent clients    10 s          10 s
    property filters  10 s          10 s
    notices           30 s          15 s
    slow groups       3 min         3 min
"""

import logging
from collections.abc import Callable

from cometmq.broker.config import BrokerConfig
from cometmq.broker.consume.long_poll import SWEEP_MS, LongPoll
from cometmq.broker.periodic import Periods
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.files import FILTERS, OFFSETS
from cometmq.broker.tables.tables import Tables
from cometmq.clock import Clock, uptime_ms

logger = logging.getLogger(__name__)


class ConsumeRounds:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        longpoll: LongPoll,
        tables: Tables,
        stats: Stats,
        expire_clients: Callable[[], object],
        tell_postponed: Callable[[], object],
    ) -> None:
        self._config = config
        self._clock = clock
        self._longpoll = longpoll
        self._tables = tables
        self._stats = stats
        self._expire_clients = expire_clients
        self._tell_postponed = tell_postponed
        self._periods = Periods(clock)

    def start(self) -> None:
        every = self._periods.every
        every("pulls", self._sweep_s, self._sweep, self._sweep_s())
        flush_s = self._config().flush_offsets_interval_ms / 1000
        every("offsets", lambda: flush_s, self._save_offsets, 10)
        every("clients", lambda: 10.0, self._expire_clients, 10)
        every("filters", lambda: 10.0, self._save_filters, 10)
        every("notices", lambda: 15.0, self._tell_postponed, 30)
        every("slow groups", lambda: 180.0, self._disable_slow, 180)

    def stop(self) -> None:
        self._periods.stop()

    def _sweep_s(self) -> float:
        config = self._config()
        return (SWEEP_MS if config.long_polling else config.short_polling_ms) / 1000

    def _sweep(self) -> None:
        began_s = self._clock.monotonic()
        self._longpoll.sweep(uptime_ms(self._clock))
        took_s = self._clock.monotonic() - began_s
        if took_s * 1000 > SWEEP_MS:
            logger.warning("swept parked pulls slowly took_ms=%d count=%d", took_s * 1000, self._longpoll.count)

    def _save_offsets(self) -> None:
        self._tables.files.save_soon(OFFSETS)

    def _save_filters(self) -> None:
        self._tables.property_filters.forget()
        self._tables.files.save_soon(FILTERS)

    def _disable_slow(self) -> None:
        """Groups that read too far behind are switched off until an operator switches them on."""
        config = self._config()
        if config.disable_slow_groups:
            for group in self._tables.groups.disable_slow(self._stats.bytes_behind(), config.slow_group_bytes):
                logger.warning("disabled slow group=%s limit_bytes=%d", group, config.slow_group_bytes)
