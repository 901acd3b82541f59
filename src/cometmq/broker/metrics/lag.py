"""How far consumers are behind, worked out when somebody looks.

    committed          pulled                 end of the queue
    ────┼───── in flight ──┼────── ready ─────────┼
        └──────────────── lag ────────────────────┘

For each group that is connected and each topic it subscribes to, over the topic's write queues. As in RocketMQ a queue
where the group never committed has no lag; `cometmq_consumer_lag_messages` counts it from its first message.

When the oldest messages were stored is read from the log. What is not in memory is not read here: its place is noted
in `ColdTimes`, loaded by a thread, and read in a second round.
"""

from collections.abc import Iterator
from typing import Final

from cometmq import names
from cometmq.broker.metrics.collectors import is_system_group, truth
from cometmq.broker.metrics.context import MetricsContext
from cometmq.broker.metrics.snapshot import Point
from cometmq.broker.tables.offsets import NONE
from cometmq.broker.tables.sessions import ConsumerGroup
from cometmq.broker.tables.system_topics import PERM_READ_WRITE
from cometmq.store.disk import File
from cometmq.store.queues.lookup import ColdPage

COLD_MAX: Final = 1_000
PULLS: Final = "CONSUME_ACTIVELY"
POPS: Final = "CONSUME_POP"


class ColdTimes:
    """Records whose store time is wanted and that are not in memory."""

    def __init__(self) -> None:
        self.loaded: set[int] = set()
        self.ranges: list[tuple[File, int, int]] = []

    def note(self, page: ColdPage) -> None:
        if len(self.ranges) < COLD_MAX:
            self.ranges.append(page.range)
            self.loaded.add(page.physical_offset)


class _Times:
    def __init__(self, context: MetricsContext, cold: ColdTimes) -> None:
        self._lookup = context.store.lookup
        self._now_ms = context.clock.now_ms()
        self._cold = cold

    def age_ms(self, topic: str, places: list[tuple[int, int]]) -> int:
        """Of the oldest of these (queue, offset); 0 if there is none."""
        oldest_ms = self._now_ms
        for queue_id, offset in places:
            try:
                stored_ms = self._lookup.queue_store_time(topic, queue_id, offset, self._cold.loaded)
            except ColdPage as page:
                self._cold.note(page)
                continue
            if 0 <= stored_ms < oldest_ms:
                oldest_ms = stored_ms
        return self._now_ms - oldest_ms


def lag(context: MetricsContext, cold: ColdTimes) -> Iterator[Point | None]:
    times = _Times(context, cold)
    for group in list(context.tables.consumers.table.values()):
        for topic in list(group.subscriptions):
            yield from _of_topic(context, times, group, topic)


def _of_topic(context: MetricsContext, times: _Times, group: ConsumerGroup, topic: str) -> Iterator[Point | None]:
    is_retry = topic.startswith(names.RETRY_PREFIX)
    if is_retry and group.consume_type in (PULLS, POPS):
        return
    yield from _points(context, times, group.name, topic, topic, "false")
    if group.consume_type == POPS:
        for separator in "_+":
            retry = f"{names.retry_topic(group.name)}{separator}{topic}"
            if retry in context.tables.topics.table:
                yield from _points(context, times, group.name, retry, topic, "true")
                return


def _points(
    context: MetricsContext, times: _Times, group: str, topic: str, shown: str, is_retry: str
) -> Iterator[Point | None]:
    config = context.tables.topics.table.get(topic)
    if config is None or not config.perm & PERM_READ_WRITE:
        return
    behind = in_flight = ready = 0
    uncommitted: list[tuple[int, int]] = []
    unpulled: list[tuple[int, int]] = []
    offsets = context.tables.offsets
    for queue_id in range(config.write_queue_nums):
        _, end = context.store.queue_bounds(topic, queue_id)
        committed = offsets.query(group, topic, queue_id)
        pulled = offsets.query_pull(group, topic, queue_id)
        if committed != NONE:
            behind += end - committed
            in_flight += max(committed, pulled) - committed
            if committed < end:
                uncommitted.append((queue_id, committed))
        if pulled != NONE:
            ready += end - pulled
            if pulled < end:
                unpulled.append((queue_id, pulled))
        yield None
    labels = (group, is_retry, truth(context.tables.topics.is_system(topic) or is_system_group(group)), shown)
    yield "rocketmq_consumer_lag_messages", labels, max(0, behind)
    yield "rocketmq_consumer_lag_latency_milliseconds", labels, times.age_ms(topic, uncommitted)
    yield "rocketmq_consumer_inflight_messages", labels, max(0, in_flight)
    yield "rocketmq_consumer_queueing_latency_milliseconds", labels, times.age_ms(topic, unpulled)
    yield "rocketmq_consumer_ready_messages", labels, max(0, ready)


def dead_letters(context: MetricsContext) -> Iterator[Point | None]:
    for topic, groups in list(context.stats.gets().items()):
        for group, gets in list(groups.items()):
            if gets.given_up.count:
                labels = (group, truth(gets.is_system or is_system_group(group)), topic)
                yield "rocketmq_send_to_dlq_messages", labels, gets.given_up.count
        yield None


def by_queue(context: MetricsContext) -> Iterator[Point | None]:
    """Also of groups that are not connected; what a group never committed counts from the queue's first message."""
    offsets, consumers = context.tables.offsets, context.tables.consumers
    pairs = {(group, topic) for group in offsets.groups() for topic in offsets.topics_of_group(group)}
    pairs |= {(group.name, topic) for group in list(consumers.table.values()) for topic in group.subscriptions}
    for group_name, topic in sorted(pairs):
        config = context.tables.topics.table.get(topic)
        if config is None or is_system_group(group_name):
            continue
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            low, end = context.store.queue_bounds(topic, queue_id)
            committed = offsets.query(group_name, topic, queue_id)
            start = low if committed == NONE else committed
            yield "cometmq_consumer_lag_messages", (group_name, str(queue_id), topic), max(0, end - start)
