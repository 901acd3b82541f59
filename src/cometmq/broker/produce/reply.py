"""Replies: the answer to a message that was sent as a request, on its way back to who asked.

    requester ── message ──> topic ──> responder ── 324, 325 ──> broker ── 326 ──> requester
                                                                  └──> <cluster>_REPLY_TOPIC, a copy for the record

The requester is the producer whose client id is in REPLY_TO_CLIENT; it must be connected to this broker. The code of
the answer says whether it has the reply. Whether the copy could be stored changes nothing about that; if it was, the
answer has its ids.
"""

from __future__ import annotations

import logging
import random
from typing import Final

from cometmq.broker.entry import Entry
from cometmq.broker.produce.context import ProduceContext
from cometmq.broker.produce.send import check_topic
from cometmq.errors import CallError, RequestError
from cometmq.net.connection import Connection
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PUT_STATUS_NAMES, PutStatus
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.command import reply as answer_to
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import PushReplyMessage, SendMessage
from cometmq.wire.record.properties import Property, find, with_property

logger = logging.getLogger(__name__)

PUSH_LIMIT_S: Final = 10.0
PUSH_TIME: Final = "PUSH_REPLY_TIME"


async def reply(context: ProduceContext, connection: Connection, request: Command) -> Command:
    """Requests 324 and 325."""
    if request.code == Request.SEND_REPLY_MESSAGE:
        header = SendMessage.decode(request.ext)
    else:
        header = SendMessage.decode_v2(request.ext)
    ext = dict(context.marks.answer_ext)
    try:
        topic = check_topic(context, header)
    except RequestError as error:
        return answer_to(request, error.code, error.remark, ext)
    if header.queue_id < 0:
        header.queue_id = random.randrange(topic.write_queue_nums or 1)  # noqa: S311 - spreads load, keeps no secret
    header.properties = _with_region(context, header.properties)
    born_host = context.born.of(connection)  # now: the connection may be gone after the push
    failure = await _push(context, connection, header, request.body)
    if failure is None:
        ext.update(msgId="0", queueId=str(header.queue_id), queueOffset="0")
    if context.config().store_reply_messages and not await context.settling.settle(header.topic):
        ext.update(_store(context, header, request.body, born_host))
    return answer_to(request, Response.SUCCESS if failure is None else Response.SYSTEM_ERROR, failure, ext)


def _with_region(context: ProduceContext, properties: str) -> str:
    for name, value in context.marks.answer_ext.items():
        properties = with_property(properties, name, value)
    return properties


async def _push(context: ProduceContext, connection: Connection, header: SendMessage, body: bytes) -> str | None:
    """Why the requester did not get the reply; None if it did."""
    client_id = find(header.properties, Property.REPLY_TO_CLIENT)
    if not client_id:
        return "reply message properties[REPLY_TO_CLIENT] is null"
    link = context.producers.find(client_id)
    if link is None:
        return f"push reply message fail, channel of <{client_id}> not found."
    assert isinstance(link, Connection), "only a real connection can be called"
    now_ms = context.clock.now_ms()
    pushed = PushReplyMessage(
        producer_group=header.producer_group,
        topic=header.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        born_host=connection.peer_text,
        store_host=context.own.address,
        store_timestamp=now_ms,
        properties=with_property(header.properties, PUSH_TIME, str(now_ms)),
        reconsume_times=header.reconsume_times,
        unit_mode=header.unit_mode,
    )
    try:
        answer = await link.call(new_request(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed.encode(), body), PUSH_LIMIT_S)
    except CallError as error:
        return f"push reply message to <{client_id}> fail: {error}"
    if answer.code != Response.SUCCESS:
        return f"push reply message to <{client_id}> fail: it answered {answer.code} {answer.remark or ''}"
    return None


def _store(context: ProduceContext, header: SendMessage, body: bytes, born_host: bytes) -> dict[str, str]:
    """Keep a copy; its ids, or nothing if the store refused it."""
    message = AppendRequest(
        header.topic,
        header.queue_id,
        body,
        header.properties,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_time_ms=header.born_timestamp,
        born_host=born_host,
        reconsume_times=header.reconsume_times,
        wait=False,
    )
    result = context.put(message)
    if result.status != PutStatus.OK:
        logger.warning("fail store reply topic=%s cause=%s", header.topic, PUT_STATUS_NAMES[result.status])
        return {}
    context.stats.sent(message.topic, message.queue_id, result.count, result.record_bytes, message.properties)
    return {
        "msgId": context.own.offset_id(result.physical_offset),
        "queueId": str(header.queue_id),
        "queueOffset": str(result.queue_offset),
    }


HANDLERS: Final = {
    Request.SEND_REPLY_MESSAGE: Entry(reply, "reply"),
    Request.SEND_REPLY_MESSAGE_V2: Entry(reply, "reply"),
}
