"""The tables of a broker and the contexts of some of its rooms, with a connection and a store that a test can look
into."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cometmq.broker.admin.context import TopicsContext
from cometmq.broker.config import BrokerConfig
from cometmq.broker.consume.context import MembersContext, OffsetContext
from cometmq.broker.consume.locks import QueueLocks
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.offsets import Offsets
from cometmq.broker.tables.property_filters import PropertyFilters
from cometmq.broker.tables.sessions import Consumers, Producers
from cometmq.broker.tables.topics import Topics
from cometmq.clock import ManualClock
from cometmq.errors import SendFailed
from cometmq.store.disk import File
from cometmq.wire.bodies import Body, TopicConfig
from cometmq.wire.command import Command, request


class FakeLink:
    """Stands for a connection; keeps what was sent on it."""

    def __init__(self, peer_text: str = "192.0.2.9:50001", *, is_open: bool = True, is_writable: bool = True) -> None:
        self.peer_text = peer_text
        self.is_open = is_open
        self.is_writable = is_writable
        self.sent: list[Command] = []
        self.closed_because: str | None = None

    def send_oneway(self, command: Command, /) -> None:
        if not self.is_open:
            raise SendFailed(f"connection to {self.peer_text} is closed")
        self.sent.append(command)

    def close(self, reason: str, /) -> None:
        self.is_open = False
        self.closed_because = reason

    def notices(self) -> list[str]:
        """Groups of which this connection was told that they changed."""
        return [command.ext["consumerGroup"] for command in self.sent if command.code == 40]


@dataclass
class FakeStore:
    """`bounds` of queues; others are empty. An offset in `cold` is on disk only."""

    bounds: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    cold: set[tuple[str, int, int]] = field(default_factory=set)
    by_time: dict[tuple[str, int, int], int] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    def queue_bounds(self, topic: str, queue_id: int, /) -> tuple[int, int]:
        return self.bounds.get((topic, queue_id), (0, 0))

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, loaded: set[int] | None = None, /) -> int:
        return self.by_time.get((topic, queue_id, time_ms), 0)

    def load_ranges(self, ranges: list[tuple[File, int, int]], /) -> None: ...

    def is_in_memory(self, topic: str, queue_id: int, offset: int, /) -> bool:
        low, high = self.queue_bounds(topic, queue_id)
        return low <= offset < high and (topic, queue_id, offset) not in self.cold

    def delete_topic(self, topic: str, /) -> None:
        self.deleted.append(topic)


class Assembly:
    def __init__(self, **settings: Any) -> None:
        self.config = replace(BrokerConfig(), **settings)
        self.clock = ManualClock()
        self.store = FakeStore()
        self.registered: list[str] = []
        self.topics = Topics(lambda: self.config, self.clock, self._topics_changed)
        self.groups = Groups(lambda: self.config, self.clock, lambda: None)
        self.offsets = Offsets(lambda: self.config, self.clock)
        self.property_filters = PropertyFilters(lambda: self.config, self.clock)
        self.consumers = Consumers(lambda: self.config, self.property_filters.retire)
        self.producers = Producers()
        self.stats = Stats(lambda: self.config, self.clock)
        self.queue_locks = QueueLocks(self.config.lock_max_live_ms)
        self.address = "192.0.2.1:10911"
        self.settled_count = 0
        self.for_members = MembersContext(
            self._current,
            self.clock,
            self.topics,
            self.groups,
            self.consumers,
            self.producers,
            self.property_filters,
            self.queue_locks,
        )
        self.for_offsets = OffsetContext(
            self._current, self.topics, self.groups, self.offsets, self.consumers, self.store
        )
        self.for_lists = TopicsContext(
            self._current,
            self.topics,
            self.groups,
            self.offsets,
            self.consumers,
            self.store,
            self.stats,
            self.address,
            self.settled,
        )
        self.topics.make_system_topics()
        self.groups.make_built_in_groups()

    def _current(self) -> BrokerConfig:
        return self.config

    def set(self, **settings: Any) -> None:
        self.config = replace(self.config, **settings)

    def uptime_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    async def settled(self) -> None:
        self.settled_count += 1

    def add_topic(self, name: str, queues: int = 4, **fields: Any) -> TopicConfig:
        topic = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **fields)
        self.topics.update([topic])
        return topic

    def _topics_changed(self, topics: Sequence[TopicConfig]) -> None:
        self.registered += [topic.topic_name for topic in topics]


def ask(code: int, body: Body | bytes = b"", *, language: int = 0, version: int = 513, **ext: Any) -> Command:
    """A request as it arrives."""
    data = body if isinstance(body, bytes) else body.encode()
    command = request(code, {name: _text(value) for name, value in ext.items()}, data, opaque=7, language=language)
    command.version = version
    return command


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
