"""CONSUMER_SEND_MSG_BACK: a consumer returns a message that it could not handle.

The stored message is read by its physical offset and put once more: into the group's retry topic with a delay that
grows with the number of tries, or among its dead letters when there were enough (retries.py).

The answer says that the copy can be read, so retry topic, dead letters and group are in their files before it is put
(settling.py).

The copy does not wait for disk or replicas: the original is in the log already. If the put is refused, the consumer
sends the message again itself, so that it may come twice but is never lost.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from cometmq import names
from cometmq.auth.needs import message_sent_back
from cometmq.broker import retries
from cometmq.broker.consume.context import SendBackContext
from cometmq.broker.entry import Entry
from cometmq.broker.tables.system_topics import PERM_READ_WRITE, PERM_WRITE
from cometmq.broker.tables.topics import UNIT_SUBSCRIPTION_FLAG
from cometmq.errors import RequestError, WireError
from cometmq.net.connection import Connection
from cometmq.store.log.append import AppendRequest, copy_to
from cometmq.store.results import PUT_STATUS_NAMES, PutStatus
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import SendMessageBack
from cometmq.wire.record import failure
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage

# A message with more properties than this is given back without the cause: there may be no room for it.
MARKED_CHARS_MAX: Final = 16_384


def send_back(context: SendBackContext, connection: Connection, request: Command) -> Command | None:
    header = SendMessageBack.decode(request.ext)
    group = context.groups.find(header.group)
    if group is None:
        raise RequestError(
            Response.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"consumer group {header.group} does not exist: create it, or set autoCreateSubscriptionGroup=true",
        )
    if not context.config().writable:
        raise RequestError(
            Response.NO_PERMISSION, f"broker {context.config().broker_name} is not writable (brokerPermission)"
        )
    if group.retry_queue_nums <= 0:
        return reply(request)
    sys_flag = UNIT_SUBSCRIPTION_FLAG if header.unit_mode else 0
    retry = context.topics.create_in_send_back(
        names.retry_topic(header.group), group.retry_queue_nums, PERM_READ_WRITE, sys_flag=sys_flag
    )
    if not retry.perm & PERM_WRITE:
        raise RequestError(Response.NO_PERMISSION, f"topic {retry.topic_name} may not be written (perm {retry.perm})")
    message = context.store.message_at(header.offset)
    if message is None:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"no message at physical offset {header.offset}: it was deleted, or the offset is not one of this broker",
        )
    context.rights.require(connection, request, message_sent_back(message.topic))
    if names.takes_no_sends(message.topic):
        raise RequestError(
            Response.NO_PERMISSION,
            f"the message at {header.offset} is of {message.topic}: nobody consumes the broker's own",
        )
    target = retries.sent_back(
        header.group,
        group.retry_queue_nums,
        message.reconsume_times,
        retries.limit_of(group, request.version, header.max_reconsume_times),
        header.delay_level,
    )
    if target.is_dead_letter:
        context.topics.create_in_send_back(target.topic, target.queues, PERM_READ_WRITE)
    copy = _copy(context, message, target, header)
    if (context.topics.unsaved or context.groups.unsaved) and context.settling.holds(target.topic, header.group):
        act = partial(_put_settled, context, connection, request, message, target, copy)
        context.settling.park(act, len(message.body) + len(copy.properties))
        return None
    return _put(context, request, message, target, copy)


def _put_settled(
    context: SendBackContext,
    connection: Connection,
    request: Command,
    message: StoredMessage,
    target: retries.Destination,
    copy: AppendRequest,
    failure: str,
) -> None:
    try:
        context.settling.check(target.topic, failure)
        answer = _put(context, request, message, target, copy)
    except RequestError as error:
        answer = reply(request, error.code, error.remark)
    except Exception as error:
        connection.answer(request, reply(request, Response.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))
        raise
    connection.answer(request, answer)


def _put(
    context: SendBackContext, request: Command, message: StoredMessage, target: retries.Destination, copy: AppendRequest
) -> Command:
    group = SendMessageBack.decode(request.ext).group
    result = context.put(copy)
    if result.status != PutStatus.OK:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"the message was not given back: {result.remark or PUT_STATUS_NAMES[result.status]}",
        )
    topic = wire_properties.find(copy.properties, wire_properties.Property.RETRY_TOPIC) or message.topic
    context.stats.sent_back(group, topic)
    if target.is_dead_letter:
        context.stats.dead_letter(group, topic)
    return reply(request)


def _copy(
    context: SendBackContext, message: StoredMessage, target: retries.Destination, header: SendMessageBack
) -> AppendRequest:
    properties = retries.sent_back_properties(
        wire_properties.decode(message.properties),
        message.topic,
        context.offset_id(message.physical_offset),
        target.delay_level,
    )
    if header.failure_type is not None:
        cause, consumer = header.failure_cause or "", header.failure_consumer or ""
        failure.mark(properties, cause, header.failure_type, consumer, context.now_ms())
    try:
        if sum(map(len, properties.values())) > MARKED_CHARS_MAX:
            failure.unmark(properties)
        encoded = wire_properties.encode(properties).decode()
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, f"the message cannot be given back: {error}") from error
    queue_id = random.randrange(target.queues)  # noqa: S311 - spreads load, keeps no secret
    request = copy_to(message, target.topic, queue_id, encoded)
    request.reconsume_times += 1
    return request


HANDLERS: Final = {Request.CONSUMER_SEND_MSG_BACK: Entry(send_back, "send")}
