"""What the handlers of timer messages need."""

from collections.abc import Callable
from dataclasses import dataclass

from cometmq.broker.config import BrokerConfig
from cometmq.broker.delayed.timers import Timers
from cometmq.broker.hosts import BornHosts
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult
from cometmq.store.store import Store


@dataclass(slots=True, eq=False)
class TimerContext:
    config: Callable[[], BrokerConfig]
    clock: Clock
    born: BornHosts
    topics: Topics
    store: Store
    stats: Stats
    timers: Timers
    put: Callable[[AppendRequest], PutResult]
