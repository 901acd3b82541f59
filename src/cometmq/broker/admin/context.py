"""What the handlers of operators need: one context for each kind of request."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from cometmq.broker.admin.setting_changes import SettingChanges
from cometmq.broker.admin.settings import LiveSettings
from cometmq.broker.config import BrokerConfig
from cometmq.broker.rights import Rights
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.delay_progress import DelayProgress
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.half_counts import HalfCounts
from cometmq.broker.tables.offsets import Offsets
from cometmq.broker.tables.property_filters import PropertyFilters
from cometmq.broker.tables.sessions import Consumers
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock
from cometmq.net.dispatch import Family
from cometmq.store.store import Store
from cometmq.wire.bodies import HaStatus


class TopicStore(Protocol):
    """Of the store."""

    def delete_topic(self, topic: str, /) -> None: ...


@dataclass(slots=True, eq=False)
class TopicsContext:
    """`settled` returns when changes of topics, groups and offsets made so far are on disk and name servers were told
    of them; StoreError if they cannot be saved. `address` is this broker's, as clients know it."""

    config: Callable[[], BrokerConfig]
    topics: Topics
    groups: Groups
    offsets: Offsets
    consumers: Consumers
    store: TopicStore
    stats: Stats
    address: str
    settled: Callable[[], Awaitable[None]]


@dataclass(slots=True, eq=False)
class QueriesContext:
    store: Store
    rights: Rights


@dataclass(slots=True, eq=False)
class MaintenanceContext:
    topics: Topics
    store: Store
    ha_status: Callable[[], HaStatus]


@dataclass(slots=True, eq=False)
class RuntimeContext:
    """`is_active`: whether this broker does what one of its replica group does for all of it. `timer_metrics`: key of
    runtime info -> value. `parked_pulls`: how many wait for messages.
    `wrong_signatures`: how many requests were refused for theirs. `own_state`: key -> value, of a member of
    a set, and of the promises that are kept."""

    config: Callable[[], BrokerConfig]
    store: Store
    stats: Stats
    delays: DelayProgress
    half_counts: HalfCounts
    property_filters: PropertyFilters
    families: Mapping[str, Family]
    is_active: Callable[[], bool]
    timer_metrics: Callable[[], dict[str, object]]
    parked_pulls: Callable[[], int]
    wrong_signatures: Callable[[], int]
    own_state: Callable[[], dict[str, str]]


@dataclass(slots=True, eq=False)
class StatsContext:
    config: Callable[[], BrokerConfig]
    clock: Clock
    topics: Topics
    groups: Groups
    offsets: Offsets
    consumers: Consumers
    property_filters: PropertyFilters
    store: Store
    stats: Stats
    address: str
    runtime: RuntimeContext


@dataclass(slots=True, eq=False)
class SettingsContext:
    settings: LiveSettings
    changes: SettingChanges
    store: Store
    stats: Stats
    port: int
