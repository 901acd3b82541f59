"""How many transactions of each topic are undecided: RocketMQ's file transactionMetrics, one line.

    {"dataVersion":{...},"transactionCount":{"T":{"count":3,"timeStamp":1700000000000}}}

A figure for operators, nothing is decided by it; a crash may leave it off by what the last seconds changed.
"""

from collections.abc import Callable, Container

from cometmq.broker.versions import next_version
from cometmq.wire.bodies import DataVersion, TopicCount, TransactionCounts


class HalfCounts:
    """`table` is for reading."""

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

    def restore(self, content: bytes) -> None:
        read = TransactionCounts.decode(content)
        self.table = read.transaction_count
        self.version = read.data_version

    def snapshot(self) -> Callable[[], bytes]:
        content = TransactionCounts(data_version=self.version, transaction_count=dict(self.table))
        return content.encode
