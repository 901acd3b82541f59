"""Questions of an operator that only a consumer can answer: asked on the consumer's own connection.

    operator ── 307, 309 ──> broker ── the same ──> consumer          its answer goes back as it came, byte for byte
    operator ── 223 ───────> broker ── 221 ──> every member           their answers are put together

The answer arrives on the connection that the loop reads, so these handlers wait in tasks of their own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cometmq.auth.needs import message_relayed
from cometmq.auth.signature import SIGNED_WITH
from cometmq.broker.consume.context import RelayContext
from cometmq.broker.entry import Entry
from cometmq.broker.stored_records import record_at
from cometmq.broker.tables.sessions import Member
from cometmq.errors import CallError, CallTimeout, RequestError, WireError
from cometmq.net.connection import Connection
from cometmq.wire.bodies import ConsumerStatus, MessageQueue
from cometmq.wire.codes import Request, Response, Version
from cometmq.wire.command import Command, reply
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import ConsumeMessageDirectly, GetConsumerRunningInfo, GetConsumerStatus
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.message_id import decode_offset_id

logger = logging.getLogger(__name__)

RELAY_LIMIT_S: Final = 10.0
STATUS_LIMIT_S: Final = 5.0


async def running_info(context: RelayContext, connection: Connection, request: Command) -> Command:
    """What a consumer knows about itself."""
    header = GetConsumerRunningInfo.decode(request.ext)
    return await _relay(context, request, header.consumer_group, header.client_id, request.ext, request.body)


async def consume_directly(context: RelayContext, connection: Connection, request: Command) -> Command:
    """Let a consumer handle one stored message now, and say what came of it."""
    header = ConsumeMessageDirectly.decode(request.ext)
    body = await _record(context, connection, request, header.msg_id) if header.msg_id else request.body
    ext = dict(request.ext)
    ext["brokerName"] = context.config().broker_name
    topic = context.topics.get(header.topic) if header.topic else None
    group = context.groups.get(header.consumer_group)
    if topic is not None:
        ext["topicSysFlag"] = str(topic.topic_sys_flag)
    if group is not None:
        ext["groupSysFlag"] = str(group.group_sys_flag)
    return await _relay(context, request, header.consumer_group, header.client_id or "", ext, body)


async def _record(context: RelayContext, connection: Connection, request: Command, message_id: str) -> bytes:
    """The consumer gets what is found, whatever topic the request names."""
    record = await record_at(context.store, _offset_of(message_id))
    if context.rights.are_asked_for:
        context.rights.require(connection, request, message_relayed(decode_record(record).topic))
    return record


def _offset_of(message_id: str) -> int:
    try:
        return decode_offset_id(message_id).physical_offset
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, f"the message id must be an offset id: {error}") from None


async def _relay(
    context: RelayContext, request: Command, group: str, client_id: str, ext: dict[str, str], body: bytes
) -> Command:
    member = context.consumers.find_member(group, client_id)
    if member is None:
        raise RequestError(Response.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    if member.version < Version.V3_1_8_SNAPSHOT:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
            f"please upgrade it to {Version.V3_1_8_SNAPSHOT} at least",
        )
    # The operator's signature is nothing for a client: it could send it again.
    told = {name: value for name, value in ext.items() if name not in SIGNED_WITH}
    try:
        return await _call(member, new_request(request.code, told, body), RELAY_LIMIT_S)
    except CallTimeout as error:
        raise RequestError(Response.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}") from None
    except CallError as error:
        raise RequestError(
            Response.SYSTEM_ERROR, f"consumer <{group}> <{client_id}> cannot be asked: {error}"
        ) from None


async def consumer_status(context: RelayContext, connection: Connection, request: Command) -> Command:
    """Where each member of a group is in a topic, as it sees it. Who does not answer is left out."""
    header = GetConsumerStatus.decode(request.ext)
    group = context.consumers.get(header.group)
    if group is None or not group.members:
        raise RequestError(
            Response.CONSUMER_NOT_ONLINE, f"No Any Consumer online in the consumer group: [{header.group}]"
        )
    members = list(group.members.values())
    for member in members:
        if member.version < Version.V3_0_7_SNAPSHOT:
            raise RequestError(
                Response.SYSTEM_ERROR,
                f"the client {member.client_id} does not support this feature: its version is {member.version}, at "
                f"least {Version.V3_0_7_SNAPSHOT} is needed",
            )
    asked = [member for member in members if header.client_addr in (None, "", member.client_id)]
    tables = await asyncio.gather(*(_ask_status(member, header) for member in asked))
    status = ConsumerStatus()
    for member, table in zip(asked, tables, strict=True):
        if table is not None:
            status.consumer_table[member.client_id] = table
    return reply(request, body=status.encode())


async def _ask_status(member: Member, header: GetConsumerStatus) -> dict[MessageQueue, int] | None:
    question = GetConsumerStatus(topic=header.topic, group=header.group)
    try:
        answer = await _call(
            member, new_request(Request.GET_CONSUMER_STATUS_FROM_CLIENT, question.encode()), STATUS_LIMIT_S
        )
        if answer.code == Response.SUCCESS:
            return ConsumerStatus.decode(answer.body).message_queue_table
        cause = f"code {answer.code} {answer.remark}"
    except (CallError, WireError) as error:
        cause = str(error)
    logger.warning("fail consumer status group=%s client=%s cause=%s", header.group, member.client_id, cause)
    return None


async def _call(member: Member, command: Command, limit_s: float) -> Command:
    link = member.link
    assert isinstance(link, Connection), "only a real connection can be called"
    return await link.call(command, limit_s)


HANDLERS: Final = {
    Request.GET_CONSUMER_RUNNING_INFO: Entry(running_info, "admin"),
    Request.CONSUME_MESSAGE_DIRECTLY: Entry(consume_directly, "admin"),
    Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Entry(consumer_status, "admin"),
}
