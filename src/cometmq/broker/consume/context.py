"""What the handlers of consumers need: one context for each kind of request."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from cometmq.broker.config import BrokerConfig
from cometmq.broker.consume.locks import QueueLocks
from cometmq.broker.consume.long_poll import LongPoll
from cometmq.broker.rights import Rights
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.files import TableFiles
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.offsets import Offsets
from cometmq.broker.tables.property_filters import PropertyFilters
from cometmq.broker.tables.request_modes import RequestModes
from cometmq.broker.tables.sessions import Consumers, Producers
from cometmq.broker.tables.settling import Settling
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock
from cometmq.store.background import Background
from cometmq.store.disk import File
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult
from cometmq.store.store import Store
from cometmq.wire.bodies import TopicRoute


@dataclass(slots=True, eq=False)
class MembersContext:
    """Heartbeats, who is in a group, and locks of queues."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    topics: Topics
    groups: Groups
    consumers: Consumers
    producers: Producers
    property_filters: PropertyFilters
    queue_locks: QueueLocks


class QueueStore(Protocol):
    """Of the store."""

    def queue_bounds(self, topic: str, queue_id: int, /) -> tuple[int, int]:
        """The first offset and the one behind the last; 0 and 0 for a queue that is not there."""

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, loaded: set[int] | None = None, /) -> int: ...

    def load_ranges(self, ranges: list[tuple[File, int, int]], /) -> None:
        """See cold_pages.py."""

    def is_in_memory(self, topic: str, queue_id: int, offset: int, /) -> bool:
        """Whether the message is there and can be read without waiting for the disk."""


@dataclass(slots=True, eq=False)
class OffsetContext:
    config: Callable[[], BrokerConfig]
    topics: Topics
    groups: Groups
    offsets: Offsets
    consumers: Consumers
    store: QueueStore


@dataclass(slots=True, eq=False)
class PullContext:
    """`is_master_alive`: asked on a replica, which has to know whom to send its readers to."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    topics: Topics
    groups: Groups
    offsets: Offsets
    consumers: Consumers
    property_filters: PropertyFilters
    store: Store
    background: Background
    stats: Stats
    longpoll: LongPoll
    is_master_alive: Callable[[], bool]


@dataclass(slots=True, eq=False)
class SendBackContext:
    """`put` diverts what is delayed; `offset_id` is the id of a message by its place in the log."""

    config: Callable[[], BrokerConfig]
    topics: Topics
    groups: Groups
    settling: Settling
    rights: Rights
    store: Store
    stats: Stats
    put: Callable[[AppendRequest], PutResult]
    offset_id: Callable[[int], str]
    now_ms: Callable[[], int]


@dataclass(slots=True, eq=False)
class RelayContext:
    config: Callable[[], BrokerConfig]
    topics: Topics
    groups: Groups
    consumers: Consumers
    rights: Rights
    store: Store


@dataclass(slots=True, eq=False)
class AssignmentContext:
    """`find_route`: where the cluster has a topic, CometError if nobody knows."""

    config: Callable[[], BrokerConfig]
    topics: Topics
    consumers: Consumers
    request_modes: RequestModes
    files: TableFiles
    find_route: Callable[[str], Awaitable[TopicRoute]]
