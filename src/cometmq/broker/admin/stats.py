"""Figures for operators: of the broker, of a topic, of a consumer group and its lag.

Requests that go through all queues of a topic or all groups of the broker let others run in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from cometmq.broker.admin.context import StatsContext
from cometmq.broker.admin.runtime_info import runtime_info
from cometmq.broker.cold_pages import when_loaded
from cometmq.broker.entry import Entry
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.store.queues.consume_queue import ConsumeQueue
from cometmq.store.queues.consume_queues import AnyQueue
from cometmq.wire.bodies import (
    BrokerConsumeStats,
    ConsumeQueueEntry,
    ConsumeQueuePage,
    ConsumeStats,
    ConsumeTimeSpans,
    KVTable,
    MessageQueue,
    QueueProgress,
    QueueTimeSpan,
    TopicConfig,
    TopicOffset,
    TopicStats,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetTopicStats,
    QueryConsumeQueue,
    QueryConsumeTimeSpan,
    ViewBrokerStats,
)

# So many queues are looked at before others may run: about a millisecond.
QUEUES_PER_TURN: Final = 100
PAGE_ENTRIES_MAX: Final = 4_096


def runtime(context: StatsContext, connection: Connection, request: Command) -> Command:
    return reply(request, body=KVTable(table=runtime_info(context.runtime)).encode())


def view(context: StatsContext, connection: Connection, request: Command) -> Command:
    """One counter by name and key."""
    header = ViewBrokerStats.decode(request.ext)
    found = context.stats.find(header.stats_name, header.stats_key)
    if found is None:
        raise RequestError(Response.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
    return reply(request, body=found.encode())


# Topics


async def topic_stats(context: StatsContext, connection: Connection, request: Command) -> Command:
    """Bounds and last message of every queue, and how fast messages come."""
    topic = _topic(context, GetTopicStats.decode(request.ext).topic)
    name = topic.topic_name
    table: dict[MessageQueue, TopicOffset] = {}
    used = max(topic.read_queue_nums, topic.write_queue_nums)
    for number, queue_id in enumerate(_queues(context, topic, used)):
        await _give_way(number)
        low, high = context.store.queue_bounds(name, queue_id)
        last_ms = await _store_time(context, name, queue_id, high - 1) if high > 0 else 0
        table[MessageQueue(context.config().broker_name, queue_id, name)] = TopicOffset(last_ms, high, low)
    body = TopicStats(offset_table=table, topic_put_tps=context.stats.put_rate(name))
    return reply(request, body=body.encode())


def _queues(context: StatsContext, topic: TopicConfig, used: int) -> list[int]:
    """Those that clients use, and behind them those that hold messages which clients do not see."""
    hidden = [number for number in context.store.queues.of_topic(topic.topic_name) if number >= used]
    bounds = ((number, context.store.queue_bounds(topic.topic_name, number)) for number in sorted(hidden))
    return [*range(used), *[number for number, (low, high) in bounds if low < high]]


async def _store_time(context: StatsContext, topic: str, queue_id: int, offset: int) -> int:
    return await when_loaded(context.store, partial(context.store.lookup.queue_store_time, topic, queue_id, offset))


def _topic(context: StatsContext, name: str) -> TopicConfig:
    topic = context.topics.get(name)
    if topic is None:
        raise RequestError(Response.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    return topic


async def time_spans(context: StatsContext, connection: Connection, request: Command) -> Command:
    """When the oldest, the newest and the last consumed message of each queue were stored; how long the next waits."""
    header = QueryConsumeTimeSpan.decode(request.ext)
    topic = _topic(context, header.topic)
    spans: list[QueueTimeSpan] = []
    for queue_id in range(topic.write_queue_nums):
        await _give_way(queue_id)
        span = partial(_time_span, context, header.topic, header.group, queue_id)
        spans.append(await when_loaded(context.store, span))
    return reply(request, body=ConsumeTimeSpans(consume_time_span_set=spans).encode())


def _time_span(context: StatsContext, topic: str, group: str, queue_id: int, loaded: set[int]) -> QueueTimeSpan:
    lookup = context.store.lookup
    _, high = context.store.queue_bounds(topic, queue_id)
    next_offset = max(0, context.offsets.query(group, topic, queue_id))
    first_ms = lookup.earliest_time(topic, queue_id, loaded)
    last_ms = lookup.queue_store_time(topic, queue_id, high - 1, loaded) if high > 0 else -1
    consumed_ms = lookup.queue_store_time(topic, queue_id, next_offset - 1, loaded) if next_offset > 0 else first_ms
    delay_ms = 0
    if next_offset < high:
        waiting_ms = lookup.queue_store_time(topic, queue_id, next_offset, loaded)
        delay_ms = max(0, context.clock.now_ms() - waiting_ms) if waiting_ms >= 0 else 0
    return QueueTimeSpan(
        consume_time_stamp=consumed_ms,
        consume_time_stamp_str=_time_text(consumed_ms),
        delay_time=delay_ms,
        max_time_stamp=last_ms,
        max_time_stamp_str=_time_text(last_ms),
        message_queue=MessageQueue(context.config().broker_name, queue_id, topic),
        min_time_stamp=first_ms,
        min_time_stamp_str=_time_text(first_ms),
    )


def _time_text(time_ms: int) -> str:
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(time_ms // 1000))}:{time_ms % 1000:03d}"


# Consumer groups


async def consume_stats(context: StatsContext, connection: Connection, request: Command) -> Command:
    """How far a group is in each queue: of the topics asked for, else of all that it has offsets for."""
    header = GetConsumeStats.decode(request.ext)
    group = header.consumer_group
    listed = [name for name in (header.topic_list or "").split(";") if name.strip()]
    wanted = listed or ([header.topic] if header.topic else context.offsets.topics_of_group(group))
    stats = ConsumeStats()
    for name in wanted:
        topic = context.topics.get(name)
        if topic is not None and (listed or _is_consumed(context, group, name)):
            stats.offset_table.update(await _progress(context, group, topic))
            stats.consume_tps += context.stats.get_rate(group, name)
    return reply(request, body=stats.encode())


def _is_consumed(context: StatsContext, group: str, topic: str) -> bool:
    """False for a topic that the group has offsets for, but which its members do not subscribe any more."""
    live = context.consumers.get(group)
    if live is None or not live.subscriptions:
        return True
    return context.consumers.find_subscription(group, topic) is not None


async def _progress(context: StatsContext, group: str, topic: TopicConfig) -> dict[MessageQueue, QueueProgress]:
    table: dict[MessageQueue, QueueProgress] = {}
    name = topic.topic_name
    for number, queue_id in enumerate(_queues(context, topic, topic.read_queue_nums)):
        await _give_way(number)
        _, high = context.store.queue_bounds(name, queue_id)
        consumed = max(0, context.offsets.query(group, name, queue_id))
        last_ms = await _store_time(context, name, queue_id, consumed - 1) if consumed > 0 else 0
        table[MessageQueue(context.config().broker_name, queue_id, name)] = QueueProgress(
            broker_offset=high,
            consumer_offset=consumed,
            last_timestamp=max(0, last_ms),
            pull_offset=max(consumed, context.offsets.query_pull(group, name, queue_id)),
        )
    return table


async def broker_consume_stats(context: StatsContext, connection: Connection, request: Command) -> Command:
    """All groups with all their topics, or with their ordered topics only."""
    only_ordered = GetBrokerConsumeStats.decode(request.ext).is_order
    body = BrokerConsumeStats(broker_addr=context.address)
    for group in sorted(context.groups.table):
        await asyncio.sleep(0)
        stats = [
            ConsumeStats(context.stats.get_rate(group, topic.topic_name), await _progress(context, group, topic))
            for topic in _topics_of(context, group, only_ordered)
        ]
        body.consume_stats_list.append({group: stats})
        for one in stats:
            body.total_diff += sum(row.broker_offset - row.consumer_offset for row in one.offset_table.values())
            body.total_inflight_diff += sum(row.pull_offset - row.consumer_offset for row in one.offset_table.values())
    return reply(request, body=body.encode())


def _topics_of(context: StatsContext, group: str, only_ordered: bool) -> Iterable[TopicConfig]:
    for name in context.offsets.topics_of_group(group):
        topic = context.topics.get(name)
        if topic is not None and (topic.order or not only_ordered) and _is_consumed(context, group, name):
            yield topic


async def _give_way(step: int) -> None:
    if step % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
        await asyncio.sleep(0)


# Entries of a consume queue


def queue_page(context: StatsContext, connection: Connection, request: Command) -> Command:
    """Entries of a queue as they are; with a group also whether its filter lets them pass."""
    header = QueryConsumeQueue.decode(request.ext)
    queue = context.store.queues.find(header.topic, header.queue_id)
    if queue is None:
        raise RequestError(Response.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
    page = ConsumeQueuePage(max_queue_index=queue.max_offset, min_queue_index=max(0, queue.min_offset))
    subscription = None
    if header.consumer_group:
        subscription = context.consumers.find_subscription(header.consumer_group, header.topic)
        if subscription is None:
            page.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
        else:
            page.subscription_data = subscription.data
            page.filter_data = context.property_filters.show(header.consumer_group, header.topic)
    units = _units(queue, header.index, min(header.count, PAGE_ENTRIES_MAX))
    if not units:
        remark = f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
        return reply(request, remark=remark)
    for physical_offset, size, tags_code in units:
        entry = ConsumeQueueEntry(physic_offset=physical_offset, physic_size=size, tags_code=tags_code)
        if subscription is not None:
            entry.eval = subscription.matches is None or subscription.matches(tags_code)
        page.queue_data.append(entry)
    return reply(request, body=page.encode())


def _units(queue: AnyQueue, index: int, count: int) -> list[tuple[int, int, int]]:
    """(physical offset, size, tag code) from `index` on; nothing if the queue does not have it."""
    if count <= 0 or not max(0, queue.min_offset) <= index < queue.max_offset:
        return []
    if not isinstance(queue, ConsumeQueue):
        return [(unit.physical_offset, unit.size, unit.tags_code) for unit in queue.read(index, count)]
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        unit = queue.unit(index + len(found))
        if unit is None:
            break
        found.append(unit)
    return found


HANDLERS: Final = {
    Request.GET_BROKER_RUNTIME_INFO: Entry(runtime, "admin"),
    Request.VIEW_BROKER_STATS_DATA: Entry(view, "admin"),
    Request.GET_TOPIC_STATS_INFO: Entry(topic_stats, "admin"),
    Request.GET_CONSUME_STATS: Entry(consume_stats, "admin"),
    Request.GET_BROKER_CONSUME_STATS: Entry(broker_consume_stats, "admin"),
    Request.QUERY_CONSUME_TIME_SPAN: Entry(time_spans, "admin"),
    Request.QUERY_CONSUME_QUEUE: Entry(queue_page, "admin"),
}
