"""The room of operators: made of what it needs, and asked for the requests that it serves."""

from collections.abc import Awaitable, Callable, Mapping

from cometmq.broker.admin import groups, maintenance, queries, setting_requests, stats, topics
from cometmq.broker.admin.context import (
    MaintenanceContext,
    QueriesContext,
    RuntimeContext,
    SettingsContext,
    StatsContext,
    TopicsContext,
)
from cometmq.broker.admin.setting_changes import SettingChanges
from cometmq.broker.admin.settings import LiveSettings
from cometmq.broker.entry import bound, merged
from cometmq.broker.shared import Shared
from cometmq.net.dispatch import Family
from cometmq.wire.bodies import HaStatus


class AdminRoom:
    """`follow_settings` is called when they have changed; see the contexts for what else other rooms give."""

    def __init__(
        self,
        shared: Shared,
        settings: LiveSettings,
        families: Mapping[str, Family],
        *,
        follow_settings: Callable[[], object],
        settled: Callable[[], Awaitable[None]],
        ha_status: Callable[[], HaStatus],
        is_active: Callable[[], bool],
        timer_metrics: Callable[[], dict[str, object]],
        parked_pulls: Callable[[], int],
        wrong_signatures: Callable[[], int],
        own_state: Callable[[], dict[str, str]],
    ) -> None:
        tables, store, config = shared.tables, shared.store, shared.config
        self.changes = SettingChanges(settings, store, tables.topics, follow_settings)
        self.runtime = RuntimeContext(
            config,
            store,
            shared.stats,
            tables.delays,
            tables.half_counts,
            tables.property_filters,
            families,
            is_active,
            timer_metrics,
            parked_pulls,
            wrong_signatures,
            own_state,
        )
        lists = TopicsContext(
            config,
            tables.topics,
            tables.groups,
            tables.offsets,
            tables.consumers,
            store,
            shared.stats,
            shared.own.address,
            settled,
        )
        counters = StatsContext(
            config,
            shared.clock,
            tables.topics,
            tables.groups,
            tables.offsets,
            tables.consumers,
            tables.property_filters,
            store,
            shared.stats,
            shared.own.address,
            self.runtime,
        )
        own = SettingsContext(settings, self.changes, store, shared.stats, shared.own.port)
        self.handlers = merged(
            bound(topics.HANDLERS, lists),
            bound(groups.HANDLERS, lists),
            bound(queries.HANDLERS, QueriesContext(store, shared.rights)),
            bound(stats.HANDLERS, counters),
            bound(setting_requests.HANDLERS, own),
            bound(maintenance.HANDLERS, MaintenanceContext(tables.topics, store, ha_status)),
        )
