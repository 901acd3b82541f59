"""How many timer messages of each topic wait: RocketMQ's file timermetrics, one line.

    {"dataVersion":{...},"timingCount":{"T":{"count":3,"timeStamp":1700000000000}}}

A figure for operators, nothing is decided by it. A crash may leave it off by what the last second changed, so once a
day the timer log is counted: delayed/timer_counts.py.
"""

from collections.abc import Callable

from cometmq.broker.tables.topic_counts import TopicCounts
from cometmq.wire.bodies import TimerCounts


class PendingTimers(TopicCounts):
    def restore(self, content: bytes) -> None:
        read = TimerCounts.decode(content)
        self.table = read.timing_count
        self.version = read.data_version

    def follow(self, other: TimerCounts) -> None:
        """Be as another broker of the replica group is."""
        self.table = other.timing_count
        self.version = other.data_version
        self.changes += 1

    def snapshot(self) -> Callable[[], bytes]:
        content = TimerCounts(data_version=self.version, timing_count=dict(self.table))
        return content.encode
