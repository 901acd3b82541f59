"""What the handlers of POP need."""

from collections.abc import Callable
from dataclasses import dataclass

from cometmq.broker.config import BrokerConfig
from cometmq.broker.pop.popping import Popping
from cometmq.broker.pop.waiting import PopWaiting
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.sessions import Consumers
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock
from cometmq.store.background import Background
from cometmq.store.store import Store


@dataclass(slots=True, eq=False)
class PopContext:
    config: Callable[[], BrokerConfig]
    clock: Clock
    topics: Topics
    groups: Groups
    consumers: Consumers
    store: Store
    background: Background
    stats: Stats
    popping: Popping
    waiting: PopWaiting
