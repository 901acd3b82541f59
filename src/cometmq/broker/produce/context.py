"""What the handlers of sends, replies and fences need."""

from collections.abc import Callable
from dataclasses import dataclass

from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import BornHosts, OwnAddress
from cometmq.broker.produce.fences import Fences
from cometmq.broker.produce.hooks import SendHooks
from cometmq.broker.produce.marks import Marks
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.sessions import Producers
from cometmq.broker.tables.settling import Settling
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult
from cometmq.store.store import Store

Put = Callable[[AppendRequest], PutResult]


@dataclass(slots=True, eq=False)
class ProduceContext:
    """`put` diverts what is delayed; `put_half` takes the first part of a transaction.

    `delay_level_of`: properties -> level; `recall_handle`: message, broker, unique id -> the handle of a timer message;
    `holds_locks`: whether a consumer group holds locks of queues.
    """

    config: Callable[[], BrokerConfig]
    clock: Clock
    own: OwnAddress
    born: BornHosts
    store: Store
    topics: Topics
    groups: Groups
    producers: Producers
    settling: Settling
    stats: Stats
    fences: Fences
    hooks: SendHooks
    marks: Marks
    put: Put
    put_half: Put
    delay_level_of: Callable[[str], int]
    recall_handle: Callable[[AppendRequest, str, str], str | None]
    holds_locks: Callable[[str], bool]
