"""A count for each topic, with the version that RocketMQ's files of this kind have.

Used by half_counts.py and pending_timers.py.
"""

from collections.abc import Container

from cometmq.broker.tables.versions import next_version
from cometmq.wire.bodies import DataVersion, TopicCount


class TopicCounts:
    """`table` is for reading; `changes` says whether it must be saved."""

    def __init__(self) -> None:
        self.table: dict[str, TopicCount] = {}
        self.version: DataVersion = DataVersion()
        self.changes: int = 0

    def add(self, topic: str, count: int, now_ms: int) -> None:
        old = self.table.get(topic)
        self.table[topic] = TopicCount(count=count + (old.count if old else 0), time_stamp=now_ms)
        self.version = next_version(self.version, now_ms)
        self.changes += 1

    def keep_only(self, topics: Container[str]) -> None:
        """Forget topics that are not there any more."""
        for topic in [topic for topic in self.table if topic not in topics]:
            del self.table[topic]
            self.changes += 1
