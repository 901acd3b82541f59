"""Consumer offsets: reported, asked for, reset, cloned, copied by replicas."""

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Final

from cometmq.broker.cold_pages import searched
from cometmq.broker.consume.context import OffsetContext
from cometmq.broker.entry import Entry
from cometmq.broker.tables.sessions import Link, Member
from cometmq.broker.tables.topics import QUEUES_MAX
from cometmq.errors import CallError, RequestError
from cometmq.wire.bodies import CorrectionOffsets, MessageQueue, ResetOffsets, TopicConfig
from cometmq.wire.codes import MASTER_ID, Language, Request, Response, Version
from cometmq.wire.command import Command, reply
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import (
    CloneGroupOffset,
    OffsetResponse,
    QueryConsumerOffset,
    QueryCorrectionOffset,
    ResetConsumerClientOffset,
    ResetOffset,
    UpdateConsumerOffset,
)

logger = logging.getLogger(__name__)

I64_MAX: Final = 2**63 - 1
UNSET: Final = -1
FILTER_GROUPS_CHARS_MAX: Final = 65_536


def commit(context: OffsetContext, connection: Link, request: Command) -> Command:
    """Any offset is taken, also one that goes back. While a reset waits for its pull, nothing is."""
    header = UpdateConsumerOffset.decode(request.ext)
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    if context.groups.get(group) is None:
        raise RequestError(Response.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
    if context.topics.get(topic) is None:
        raise RequestError(Response.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
    if not 0 <= queue_id < QUEUES_MAX:
        raise RequestError(
            Response.INVALID_PARAMETER, f"queue id {queue_id} of topic {topic} is outside 0 to {QUEUES_MAX - 1}"
        )
    if context.config().reset_offsets_on_server and context.offsets.has_reset(group, topic, queue_id):
        return reply(request, remark="Offset has been previously reset")
    context.offsets.commit(group, topic, queue_id, header.commit_offset, connection.peer_text)
    return reply(request)


def query(context: OffsetContext, connection: Link, request: Command) -> Command:
    """A group without offset starts at 0 where the whole queue is still there and new, else by its own rule (22).

    A queue that has never had a message is such a queue, also one without files yet. RocketMQ answers 22 for it; the
    client then asks for the end, and what is stored between the two questions is skipped.
    """
    header = QueryConsumerOffset.decode(request.ext)
    topic, queue_id = header.topic, header.queue_id
    offset = context.offsets.query(header.consumer_group, topic, queue_id)
    if offset < 0:
        if header.set_zero_if_not_found is False:
            raise RequestError(Response.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first")
        first, end = context.store.queue_bounds(topic, queue_id)
        is_fresh = end == 0 and context.topics.get(topic) is not None
        if not is_fresh and (first > 0 or not context.store.is_in_memory(topic, queue_id, 0)):
            raise RequestError(Response.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")
        offset = 0
    return reply(request, ext=OffsetResponse(offset=offset).encode())


async def dump(context: OffsetContext, connection: Link, request: Command) -> Command:
    """All offsets, for a replica."""
    body = await asyncio.to_thread(context.offsets.encode, context.offsets.data_version)
    return reply(request, body=body)


def clone(context: OffsetContext, connection: Link, request: Command) -> Command:
    """Let another group go on where this one is; topics that the group no longer subscribes only with `offline`."""
    header = CloneGroupOffset.decode(request.ext)
    source = header.src_group
    live = context.consumers.get(source)
    subscribed = live.subscriptions if live is not None else {}
    wanted = (header.topic or "").strip()
    for topic in [wanted] if wanted else context.offsets.topics_of_group(source):
        if context.topics.get(topic) is None:
            logger.warning("skip clone topic=%s group=%s reason=topic unknown", topic, source)
        elif not header.offline and subscribed and topic not in subscribed:
            logger.warning("skip clone topic=%s group=%s reason=not subscribed", topic, source)
        else:
            context.offsets.clone(source, header.dest_group, topic)
    return reply(request)


def correct(context: OffsetContext, connection: Link, request: Command) -> Command:
    """For each queue how far the slowest other group is; the largest number where the asking group is the slowest."""
    header = QueryCorrectionOffset.decode(request.ext)
    topic, offsets = header.topic, context.offsets
    passed_over = set((header.filter_groups or "")[:FILTER_GROUPS_CHARS_MAX].split(","))
    slowest: dict[int, int] = {}
    for group in offsets.groups_of_topic(topic):
        if group not in passed_over:
            for queue_id, offset in offsets.of_group(group, topic).items():
                if offset >= context.store.queue_bounds(topic, queue_id)[0]:
                    slowest[queue_id] = min(offset, slowest.get(queue_id, I64_MAX))
    for queue_id, own in offsets.of_group(header.compare_group, topic).items():
        if slowest.get(queue_id, own) > own:
            slowest[queue_id] = I64_MAX
    return reply(request, body=CorrectionOffsets(correction_offsets=slowest).encode())


def reset_when_loaded(context: OffsetContext, connection: Link, request: Command) -> Command | Awaitable[Command]:
    return searched(context.store, partial(reset, context, connection, request))


def reset(context: OffsetContext, connection: Link, request: Command, loaded: set[int] | None = None) -> Command:
    """Send a group to an offset or a time: by this broker at its next pull, or by telling its members.

    ColdPage, and nothing has changed, if a page for the search by time is not in memory.
    """
    header = ResetOffset.decode(request.ext)
    logger.info(
        "reset offsets topic=%s group=%s queue=%d timestamp=%d offset=%s peer=%s",
        header.topic, header.group, header.queue_id, header.timestamp, header.offset, connection.peer_text,
    )  # fmt: skip
    topic = context.topics.get(header.topic)
    if context.config().reset_offsets_on_server and context.config().broker_id != MASTER_ID:
        raise RequestError(Response.SYSTEM_ERROR, "offsets cannot be reset on a replica: ask the master")
    if topic is None:
        raise RequestError(Response.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
    if context.config().reset_offsets_on_server:
        return reply(request, body=_reset_here(context, header, topic, loaded).encode())
    return _reset_by_members(context, header, topic, request, loaded)


def _reset_here(
    context: OffsetContext, header: ResetOffset, topic: TopicConfig, loaded: set[int] | None
) -> ResetOffsets:
    if context.groups.get(header.group) is None:
        raise RequestError(Response.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
    queue_ids = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
    targets = {queue_id: _target(context, header, topic, queue_id, loaded) for queue_id in queue_ids}
    if not targets:
        raise RequestError(Response.SYSTEM_ERROR, f"No queues to reset: topic {header.topic} has no read queues")
    for queue_id, offset in targets.items():
        context.offsets.assign_reset(header.group, header.topic, queue_id, offset)
    return _by_queue(context, header.topic, targets)


def _target(
    context: OffsetContext, header: ResetOffset, topic: TopicConfig, queue_id: int, loaded: set[int] | None
) -> int:
    queues = max(topic.read_queue_nums, topic.write_queue_nums)
    if queue_id >= queues:
        raise RequestError(Response.SYSTEM_ERROR, f"topic {header.topic} has {queues} queues, none with id {queue_id}")
    if header.queue_id < 0 or header.offset is None or header.offset == UNSET:
        return _offset_at(context, header.topic, queue_id, header.timestamp, loaded)
    low, high = context.store.queue_bounds(header.topic, queue_id)
    if not max(low, 0) <= header.offset <= high + 1:
        raise RequestError(
            Response.SYSTEM_ERROR, f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
        )
    return header.offset


def _offset_at(context: OffsetContext, topic: str, queue_id: int, timestamp_ms: int, loaded: set[int] | None) -> int:
    """Negative times mean the end of the queue."""
    if timestamp_ms < 0:
        return context.store.queue_bounds(topic, queue_id)[1]
    return max(0, context.store.offset_by_time(topic, queue_id, timestamp_ms, loaded))


def _reset_by_members(
    context: OffsetContext, header: ResetOffset, topic: TopicConfig, request: Command, loaded: set[int] | None
) -> Command:
    targets = {queue_id: _older_target(context, header, queue_id, loaded) for queue_id in range(topic.write_queue_nums)}
    group = context.consumers.get(header.group)
    if group is None:
        raise RequestError(
            Response.CONSUMER_NOT_ONLINE,
            f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
            f"Timestamp: {header.timestamp}",
        )
    members = list(group.members.values())
    too_old = [member for member in members if member.version < Version.V3_0_7_SNAPSHOT]
    if too_old:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"the client {too_old[0].client_id} does not support this feature: its version is "
            f"{too_old[0].version}, at least {Version.V3_0_7_SNAPSHOT} is needed",
        )
    body = _by_queue(context, header.topic, targets)
    for_cpp = request.language == Language.CPP
    _tell_members(members, header, body.encode_for_cpp() if for_cpp else body.encode())
    return reply(request, body=body.encode())


def _older_target(context: OffsetContext, header: ResetOffset, queue_id: int, loaded: set[int] | None) -> int:
    """Without force a group is only sent back."""
    committed = context.offsets.query(header.group, header.topic, queue_id)
    if committed < 0:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"THe consumer group <{header.group}> not exist: no offset for queue {queue_id} of topic {header.topic}",
        )
    wanted = _offset_at(context, header.topic, queue_id, header.timestamp, loaded)
    return wanted if header.is_force else min(wanted, committed)


def _tell_members(members: list[Member], header: ResetOffset, body: bytes) -> None:
    told = ResetConsumerClientOffset(topic=header.topic, group=header.group, timestamp=header.timestamp)
    for member in members:
        try:
            member.link.send_oneway(new_request(Request.RESET_CONSUMER_CLIENT_OFFSET, told.encode(), body, oneway=True))
        except CallError as error:
            logger.warning("fail reset group=%s client=%s error=%s", header.group, member.client_id, error)


def _by_queue(context: OffsetContext, topic: str, targets: dict[int, int]) -> ResetOffsets:
    name = context.config().broker_name
    return ResetOffsets(offset_table={MessageQueue(name, queue_id, topic): at for queue_id, at in targets.items()})


HANDLERS: Final = {
    Request.UPDATE_CONSUMER_OFFSET: Entry(commit, "consumer"),
    Request.QUERY_CONSUMER_OFFSET: Entry(query, "consumer"),
    Request.GET_ALL_CONSUMER_OFFSET: Entry(dump, "admin"),
    Request.INVOKE_BROKER_TO_RESET_OFFSET: Entry(reset_when_loaded, "admin"),
    Request.CLONE_GROUP_OFFSET: Entry(clone, "admin"),
    Request.QUERY_CORRECTION_OFFSET: Entry(correct, "admin"),
}
