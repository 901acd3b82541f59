"""Topics: created, changed, deleted, listed; who consumes them.

A request that changes something is answered when the change is on disk and the name servers have been told.
"""

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Final

from cometmq import names
from cometmq.broker.admin.context import TopicsContext
from cometmq.broker.bodies import body_of
from cometmq.broker.entry import Entry
from cometmq.broker.stats.ends import timed
from cometmq.broker.tables.attributes import MESSAGE_TYPE, MIXED, parse_changes
from cometmq.broker.tables.sessions import Link
from cometmq.broker.tables.topics import PAGE_TOPICS_MAX, PERM_MAX, QUEUES_MAX
from cometmq.broker.tables.versions import read_version
from cometmq.errors import RequestError
from cometmq.wire.bodies import (
    GroupList,
    GroupSubscriptionData,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import (
    CreateTopic,
    DeleteTopic,
    GetAllTopicConfig,
    GetAllTopicConfigResponse,
    GetTopicConfig,
    QuerySubscriptionByConsumer,
    QueryTopicConsumers,
    QueryTopicsByConsumer,
)

logger = logging.getLogger(__name__)

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


async def update(context: TopicsContext, connection: Link, request: Command) -> Command:
    header = CreateTopic.decode(request.ext)
    if header.topic_filter_type not in FILTER_TYPES:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"topicFilterType is {header.topic_filter_type[:80]!r}, allowed are {' and '.join(FILTER_TYPES)}",
        )
    wanted = TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=parse_changes(header.attributes),
    )
    return await _update(context, connection, request, [wanted])


async def update_list(context: TopicsContext, connection: Link, request: Command) -> Command:
    """All or none, but for topics that are as wanted already: those stay, the others are changed."""
    return await _update(context, connection, request, body_of(TopicConfigList, request).topic_config_list)


async def _update(context: TopicsContext, connection: Link, request: Command, wanted: list[TopicConfig]) -> Command:
    is_system = all(context.topics.is_system(topic.topic_name) for topic in wanted)
    with timed(partial(context.stats.ends.topic_changed, is_system=is_system)):
        return await _change(context, connection, request, wanted)


async def _change(context: TopicsContext, connection: Link, request: Command, wanted: list[TopicConfig]) -> Command:
    for topic in wanted:
        _check(context, topic)
    changed = [context.topics.changed(topic, topic.attributes) for topic in wanted]
    new = [topic for topic in changed if topic is not None]
    if new:
        logger.info("change topics count=%d peer=%s", len(new), connection.peer_text)
        context.topics.update(new)
        await context.settled()
    return reply(request)


def _check(context: TopicsContext, topic: TopicConfig) -> None:
    _check_name(context, topic.topic_name)
    if not context.config().mixed_message_type_enabled and topic.attributes.get(f"+{MESSAGE_TYPE}") == MIXED:
        raise _invalid("MIXED message type is not supported: set enableMixedMessageType=true")
    for what, queues in (("readQueueNums", topic.read_queue_nums), ("writeQueueNums", topic.write_queue_nums)):
        if not 0 <= queues <= QUEUES_MAX:
            raise _invalid(f"{what} of topic {topic.topic_name} is {queues}, allowed are 0 to {QUEUES_MAX}")
    if not 0 <= topic.perm <= PERM_MAX:
        raise _invalid(f"perm of topic {topic.topic_name} is {topic.perm}, allowed are 0 to {PERM_MAX}")


def _check_name(context: TopicsContext, name: str) -> None:
    fault = names.topic_fault(name)
    if fault is not None:
        raise _invalid(fault)
    if context.config().protect_system_topics and context.topics.is_system(name):
        raise _invalid(f"The topic[{name}] is conflict with system topic.")


def _invalid(remark: str) -> RequestError:
    return RequestError(Response.INVALID_PARAMETER, remark)


def refuse_static(context: TopicsContext, connection: Link, request: Command) -> Command:
    raise RequestError(
        Response.REQUEST_CODE_NOT_SUPPORTED,
        f"request {request.code}: this broker has no static topics (queues mapped over several brokers); "
        "create an ordinary topic with updateTopic",
    )


async def delete(context: TopicsContext, connection: Link, request: Command) -> Command:
    """With its offsets, its queues, and the retry topics of its POP groups. One that is not there is no error."""
    name = DeleteTopic.decode(request.ext).topic
    if context.topics.get(name) is None:
        _check_name(context, name)
    elif context.config().protect_system_topics and context.topics.is_system(name):
        raise _invalid(f"The topic[{name}] is conflict with system topic.")
    doomed = [name]
    if context.config().clear_retry_topic_with_topic:
        doomed += [retry for retry in _pop_retry_topics(context, name) if context.topics.get(retry) is not None]
    logger.info("delete topics=%s peer=%s", doomed, connection.peer_text)
    for topic in doomed:
        context.topics.delete(topic)
        context.offsets.remove_topic(topic)
        context.store.delete_topic(topic)
        context.stats.drop_topic(topic)
    await context.settled()
    return reply(request)


def _pop_retry_topics(context: TopicsContext, topic: str) -> list[str]:
    groups = context.offsets.groups_of_topic(topic)
    return [f"{names.retry_topic(group)}{separator}{topic}" for group in groups for separator in "+_"]


def list_all(context: TopicsContext, connection: Link, request: Command) -> Command | Awaitable[Command]:
    """The whole table, or a page of it for callers that ask by page."""
    header = GetAllTopicConfig.decode(request.ext)
    topics = context.topics
    if header.topic_seq is None and header.data_version is None and header.max_topic_num is None:
        page = topics.table.copy()
    else:
        count = PAGE_TOPICS_MAX if header.max_topic_num is None else header.max_topic_num
        page = topics.page(read_version(header.data_version), header.topic_seq or 0, count)
    ext = GetAllTopicConfigResponse(total_topic_num=len(topics.table)).encode()
    table = TopicConfigTable(data_version=topics.data_version, topic_config_table=page)
    if len(page) > PAGE_TOPICS_MAX:
        return _encoded_aside(request, ext, table)
    return reply(request, ext=ext, body=table.encode())


async def _encoded_aside(request: Command, ext: dict[str, str], table: TopicConfigTable) -> Command:
    """A table of tens of thousands of topics takes a while; others are served meanwhile."""
    return reply(request, ext=ext, body=await asyncio.to_thread(table.encode))


def get(context: TopicsContext, connection: Link, request: Command) -> Command:
    name = GetTopicConfig.decode(request.ext).topic
    topic = context.topics.get(name)
    if topic is None:
        raise RequestError(Response.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
    return reply(request, body=topic.encode())


def list_system(context: TopicsContext, connection: Link, request: Command) -> Command:
    return reply(request, body=TopicList(topic_list=context.topics.system_names()).encode())


def list_consumers(context: TopicsContext, connection: Link, request: Command) -> Command:
    """Groups that subscribe the topic now, and those that have offsets for it."""
    topic = QueryTopicConsumers.decode(request.ext).topic
    groups = {*context.consumers.subscribers(topic), *context.offsets.groups_of_topic(topic)}
    return reply(request, body=GroupList(group_list=sorted(groups)).encode())


def list_consumed(context: TopicsContext, connection: Link, request: Command) -> Command:
    """Topics for which the group has offsets."""
    topics = context.offsets.topics_of_group(QueryTopicsByConsumer.decode(request.ext).group)
    return reply(request, body=TopicList(topic_list=topics, broker_addr=context.address).encode())


def get_subscription(context: TopicsContext, connection: Link, request: Command) -> Command:
    header = QuerySubscriptionByConsumer.decode(request.ext)
    subscription = context.consumers.find_subscription(header.group, header.topic or "")
    data = subscription.data if subscription is not None else None
    return reply(request, body=GroupSubscriptionData(header.group, data, header.topic).encode())


HANDLERS: Final = {
    Request.UPDATE_AND_CREATE_TOPIC: Entry(update, "admin"),
    Request.UPDATE_AND_CREATE_TOPIC_LIST: Entry(update_list, "admin"),
    Request.UPDATE_AND_CREATE_STATIC_TOPIC: Entry(refuse_static, "admin"),
    Request.DELETE_TOPIC_IN_BROKER: Entry(delete, "admin"),
    Request.GET_ALL_TOPIC_CONFIG: Entry(list_all, "admin"),
    Request.GET_TOPIC_CONFIG: Entry(get, "admin"),
    Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Entry(list_system, "admin"),
    Request.QUERY_TOPIC_CONSUME_BY_WHO: Entry(list_consumers, "admin"),
    Request.QUERY_TOPICS_BY_CONSUMER: Entry(list_consumed, "admin"),
    Request.QUERY_SUBSCRIPTION_BY_CONSUMER: Entry(get_subscription, "admin"),
}
