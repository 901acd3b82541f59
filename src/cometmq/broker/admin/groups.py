"""Consumer groups: created, changed, deleted, listed, barred from topics.

A request that changes something is answered when the change is on disk.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from cometmq import names
from cometmq.broker.admin.context import TopicsContext
from cometmq.broker.bodies import body_of
from cometmq.broker.entry import Entry
from cometmq.broker.stats.ends import timed
from cometmq.broker.tables.groups import PAGE_GROUPS_MAX
from cometmq.broker.tables.sessions import Link
from cometmq.broker.tables.topics import QUEUES_MAX
from cometmq.broker.tables.versions import read_version
from cometmq.errors import RequestError
from cometmq.wire.bodies import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import (
    DeleteGroup,
    GetAllGroupConfig,
    GetAllGroupConfigResponse,
    GetGroupConfig,
    UpdateGroupForbidden,
)

logger = logging.getLogger(__name__)


async def update(context: TopicsContext, connection: Link, request: Command) -> Command:
    return await _update(context, connection, request, [body_of(SubscriptionGroupConfig, request)])


async def update_list(context: TopicsContext, connection: Link, request: Command) -> Command:
    return await _update(context, connection, request, body_of(SubscriptionGroupList, request).group_config_list)


async def _update(
    context: TopicsContext, connection: Link, request: Command, wanted: list[SubscriptionGroupConfig]
) -> Command:
    with timed(context.stats.ends.group_changed):
        return await _change(context, connection, request, wanted)


async def _change(
    context: TopicsContext, connection: Link, request: Command, wanted: list[SubscriptionGroupConfig]
) -> Command:
    for group in wanted:
        fault = names.group_fault(group.group_name)
        if fault is None and group.retry_queue_nums > QUEUES_MAX:
            fault = f"retryQueueNums of group {group.group_name} is {group.retry_queue_nums}, at most {QUEUES_MAX}"
        if fault is not None:
            raise RequestError(Response.INVALID_PARAMETER, fault)
    if wanted:
        logger.info("change groups count=%d peer=%s", len(wanted), connection.peer_text)
        context.groups.update(wanted)
        await context.settled()
    return reply(request)


async def delete(context: TopicsContext, connection: Link, request: Command) -> Command:
    """Its offsets stay unless asked for; a group that is not there is no error."""
    header = DeleteGroup.decode(request.ext)
    logger.info("delete group=%s clean_offset=%s peer=%s", header.group_name, header.clean_offset, connection.peer_text)
    context.groups.delete(header.group_name)
    context.stats.drop_group(header.group_name)
    if header.clean_offset:
        context.offsets.remove_group(header.group_name)
    await context.settled()
    return reply(request)


def get(context: TopicsContext, connection: Link, request: Command) -> Command:
    """Asking for a group makes it, where using it would."""
    name = GetGroupConfig.decode(request.ext).group
    group = context.groups.find(name)
    if group is None:
        raise RequestError(Response.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
    return reply(request, body=group.encode())


def list_all(context: TopicsContext, connection: Link, request: Command) -> Command | Awaitable[Command]:
    """The whole table, or a page of it for callers that ask by page."""
    header = GetAllGroupConfig.decode(request.ext)
    groups = context.groups
    if header.group_seq is None and header.data_version is None and header.max_group_num is None:
        page = groups.table.copy()
    else:
        count = PAGE_GROUPS_MAX if header.max_group_num is None else header.max_group_num
        page = groups.page(read_version(header.data_version), header.group_seq or 0, count)
    ext = GetAllGroupConfigResponse(total_group_num=len(groups.table)).encode()
    table = SubscriptionGroupTable(
        data_version=groups.data_version,
        forbidden_table={group: topics.copy() for group, topics in groups.forbidden.items() if group in page},
        subscription_group_table=page,
    )
    if len(page) > PAGE_GROUPS_MAX:
        return _encoded_aside(request, ext, table)
    return reply(request, ext=ext, body=table.encode())


async def _encoded_aside(request: Command, ext: dict[str, str], table: SubscriptionGroupTable) -> Command:
    """A table of tens of thousands of groups takes a while; others are served meanwhile."""
    return reply(request, ext=ext, body=await asyncio.to_thread(table.encode))


async def update_forbidden(context: TopicsContext, connection: Link, request: Command) -> Command:
    """Bar a group from reading a topic, or let it again; without `readable` only ask."""
    header = UpdateGroupForbidden.decode(request.ext)
    if header.readable is not None:
        logger.info(
            "forbid group=%s topic=%s readable=%s peer=%s",
            header.group, header.topic, header.readable, connection.peer_text,
        )  # fmt: skip
        context.groups.allow_reading(header.group, header.topic, header.readable)
        await context.settled()
    readable = context.groups.may_read(header.group, header.topic)
    return reply(request, remark="", body=GroupForbidden(header.group, readable, header.topic).encode())


HANDLERS: Final = {
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Entry(update, "admin"),
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Entry(update_list, "admin"),
    Request.DELETE_SUBSCRIPTIONGROUP: Entry(delete, "admin"),
    Request.GET_SUBSCRIPTIONGROUP_CONFIG: Entry(get, "admin"),
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Entry(list_all, "admin"),
    Request.UPDATE_AND_GET_GROUP_FORBIDDEN: Entry(update_forbidden, "admin"),
}
