"""The room of what is shown: made of what it reads, and asked for metrics and for the conditions of /readyz.

condition      does not hold while
store          it takes no messages: a failed disk, a failed queue, fenced; of a replica: it cannot be read
flush          a flush has failed (the first one is final)
disk           the disk is above the mark where sends are refused
dispatch       messages that were acknowledged are not in their queues yet, by more than DISPATCH_BEHIND_BYTES
copies         a SYNC_MASTER has fewer replicas than it promises copies
master         a replica is not connected to its master
name servers   none of them knows this broker, so no client finds it
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Final

from cometmq.broker.metrics import collectors, lag
from cometmq.broker.metrics.context import MetricsContext
from cometmq.broker.metrics.snapshot import Point, Points, families, gather
from cometmq.health import Check
from cometmq.metrics_settings import own_labels
from cometmq.net.meter import Meter
from cometmq.store.log.write_flags import DISK_FULL, QUEUE_DISK_FULL
from cometmq.wire.exposition import Family

DISPATCH_BEHIND_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Promises:
    """Of the rooms that keep them. `copies`: promised, and as many as there would be now. `name_servers`: address ->
    whether it knows this broker. `master`: of a replica whether it is connected; None on a master."""

    copies: Callable[[], tuple[int, int]]
    name_servers: Callable[[], dict[str, bool]]
    master: Callable[[], bool | None]


class MetricsRoom:
    def __init__(self, context: MetricsContext, promises: Promises) -> None:
        self._context = context
        self._promises = promises
        self._took_s = 0.0
        context.checks = self.checks

    def measure(self) -> None:
        """Requests are counted from now on."""
        if self._context.config().request_metrics:
            for endpoint in self._context.endpoints:
                endpoint.meter = Meter()

    # Metrics

    async def families(self) -> list[Family]:
        begun_s = monotonic()
        context = self._context
        config = context.config()
        points = await gather(self._collectors())
        if config.lag_metrics:
            await self._add_lag(points)
        points["cometmq_scrape_seconds"] = {(): self._took_s}
        common = {
            "cluster": config.cluster_name,
            "node_type": "broker",
            "node_id": config.broker_name,
            "otel_scope_name": "broker-meter",
            **own_labels(config),
        }
        made = await asyncio.to_thread(families, points, common, config.metrics_series_max)
        self._took_s = monotonic() - begun_s
        return made

    def _collectors(self) -> Iterator[Iterator[Point | None]]:
        context = self._context
        config = context.config()
        groups: tuple[tuple[bool, Callable[[MetricsContext], Iterator[Point | None]]], ...] = (
            (config.stats_metrics, collectors.state),
            (config.message_metrics, collectors.messages),
            (config.connection_metrics, collectors.connections),
            (config.lag_metrics, lag.dead_letters),
            (config.transaction_metrics, collectors.transactions),
            (config.request_metrics, collectors.requests),
            (config.store_metrics, collectors.store),
            (config.pop_metrics, collectors.pop),
            (config.queue_lag_metrics, lag.by_queue),
            (True, collectors.own),
        )
        return (collect(context) for is_on, collect in groups if is_on)

    async def _add_lag(self, points: Points) -> None:
        cold = lag.ColdTimes()
        found = await gather([lag.lag(self._context, cold)])
        if cold.ranges:
            await asyncio.to_thread(self._context.store.load_ranges, cold.ranges)
            found = await gather([lag.lag(self._context, cold)])
        points.update(found)

    # Health

    def fatal(self) -> str:
        """A broker with a failed disk still serves reads: a restart would not mend it, and could lose them."""
        return ""

    def checks(self) -> list[Check]:
        return [Check("recovery", True, "done"), *self._store_checks(), *self._promise_checks()]

    def _store_checks(self) -> Iterator[Check]:
        store = self._context.store
        flags = store.flags
        takes = flags.readable if store.options.is_slave else flags.writable
        yield Check("store", takes, "takes messages" if takes else flags.refusal())
        failure = store.flusher.failure
        yield Check("flush", failure is None, "no flush has failed" if failure is None else f"failed: {failure}")
        full = bool(flags.bits & (DISK_FULL | QUEUE_DISK_FULL))
        yield Check("disk", not full, "below the mark" if not full else "above the mark: sends are refused")
        behind = store.dispatcher.behind_bytes
        yield Check("dispatch", behind <= DISPATCH_BEHIND_BYTES, f"{behind} bytes behind the log")

    def _promise_checks(self) -> Iterator[Check]:
        promises = self._promises
        needed, there = promises.copies()
        yield Check("copies", there >= needed, f"{there} of {needed} that an acknowledgement promises")
        connected = promises.master()
        if connected is not None:
            yield Check("master", connected, "connected" if connected else "not connected to the master")
        known = promises.name_servers()
        silent = sorted(address for address, knows in known.items() if not knows)
        text = "none is configured" if not known else f"{len(known) - len(silent)} of {len(known)} know this broker"
        if silent:
            text += f"; not {', '.join(silent)}"
        yield Check("name servers", not known or len(silent) < len(known), text)
