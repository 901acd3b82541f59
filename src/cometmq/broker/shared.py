"""What every room of the broker may use. All else that a room needs of another one is handed to it by rooms.py."""

from collections.abc import Callable
from dataclasses import dataclass

from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import BornHosts, OwnAddress
from cometmq.broker.rights import Rights
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.settling import Settling
from cometmq.broker.tables.tables import Tables
from cometmq.clock import Clock
from cometmq.store.background import Background
from cometmq.store.store import Store


@dataclass(frozen=True, slots=True)
class Shared:
    """`config` is asked anew each time: settings change. `soon` schedules a callback after the current one."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    own: OwnAddress
    born: BornHosts
    tables: Tables
    settling: Settling
    rights: Rights
    store: Store
    background: Background
    stats: Stats
    soon: Callable[[Callable[[], None]], object]

    def delivered(self, topic: str, queue_id: int, record_bytes: int) -> None:
        """The broker itself has put a message."""
        self.stats.put(topic, queue_id, 1, record_bytes)
