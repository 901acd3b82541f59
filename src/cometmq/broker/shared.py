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

Soon = Callable[[Callable[[], None]], object]


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
    soon: Soon

    def delivered_late(self, topic: str, queue_id: int, record_bytes: int) -> None:
        """A message came out of a delay level."""
        self.stats.put_back(topic, queue_id, record_bytes)

    def delivered(self, topic: str, queue_id: int, record_bytes: int) -> None:
        """The broker itself has put a message."""
        self.stats.put(topic, queue_id, 1, record_bytes)


def make_shared(
    config: Callable[[], BrokerConfig],
    clock: Clock,
    own: OwnAddress,
    tables: Tables,
    rights: Rights,
    store: Store,
    background: Background,
    soon: Soon,
) -> Shared:
    """The rest is made here."""
    return Shared(
        config=config,
        clock=clock,
        own=own,
        born=BornHosts(),
        tables=tables,
        settling=Settling(tables.topics, tables.groups, tables.files, soon, store.disk_use),
        rights=rights,
        store=store,
        background=background,
        stats=Stats(config, clock),
        soon=soon,
    )
