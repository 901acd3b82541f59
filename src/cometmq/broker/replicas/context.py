"""What the handlers of a replica group need."""

from collections.abc import Callable
from dataclasses import dataclass

from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import OwnAddress
from cometmq.broker.replicas.registration import Registration
from cometmq.broker.replicas.replica_group import ReplicaGroup
from cometmq.broker.tables.delay_progress import DelayProgress
from cometmq.store.store import Store


@dataclass(slots=True, eq=False)
class ReplicaContext:
    own: OwnAddress
    store: Store
    delays: DelayProgress
    registration: Registration
    group: ReplicaGroup
    # Of a member of a set: (epoch, start) of what its log has, and its id; None of any other broker.
    epochs: Callable[[], tuple[int, list[tuple[int, int]]] | None]
    config: Callable[[], BrokerConfig]
