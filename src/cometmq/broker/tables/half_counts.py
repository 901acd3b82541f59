"""How many transactions of each topic are undecided: RocketMQ's file transactionMetrics, one line.

    {"dataVersion":{...},"transactionCount":{"T":{"count":3,"timeStamp":1700000000000}}}

A figure for operators, nothing is decided by it; a crash may leave it off by what the last seconds changed.
"""

from collections.abc import Callable

from cometmq.broker.tables.topic_counts import TopicCounts
from cometmq.wire.bodies import TransactionCounts


class HalfCounts(TopicCounts):
    def restore(self, content: bytes) -> None:
        read = TransactionCounts.decode(content)
        self.table = read.transaction_count
        self.version = read.data_version

    def snapshot(self) -> Callable[[], bytes]:
        content = TransactionCounts(data_version=self.version, transaction_count=dict(self.table))
        return content.encode
