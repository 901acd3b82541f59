"""POP: messages with a receipt and a time to finish them, acknowledged one by one.

    200050  pop          messages of any queue; nothing there: waits
    200051  ack          this one is done;  200151 several
    200053  later        not done, give it to somebody in so many milliseconds: a new receipt

A receipt (POP_CK) names what was popped and when. Clients make it from two lists in the answer:

    startOffsetInfo   mark queue first;...            mark 0: the topic itself, 1: the retry topic of the group
    msgOffsetInfo     mark queue offset,offset;...

In order of a queue (`order`) a third list says how often a message was given out before, and the least of a queue:

    orderCountInfo    mark qo<queue>%<offset> count;mark queue count;...

Such receipts have 999 in place of the revive queue: that is how acks are told apart.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from cometmq import names
from cometmq.broker import filters, sql
from cometmq.broker.bodies import body_of
from cometmq.broker.entry import Entry
from cometmq.broker.forbidden import Forbidden
from cometmq.broker.matching import record_passes, tag_passes
from cometmq.broker.pop.context import PopContext
from cometmq.broker.pop.in_flight import Key
from cometmq.broker.pop.orders import ORDERED_REVIVE_ID
from cometmq.broker.pop.popping import Wish, relabelled
from cometmq.broker.pop.waiting import PopWaiter
from cometmq.broker.sql import SqlError
from cometmq.broker.tables.system_topics import PERM_READ
from cometmq.clock import uptime_ms
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.wire.bodies import BatchAckRequest
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import (
    AckMessage,
    ChangeInvisibleTime,
    ChangeInvisibleTimeResponse,
    PollingInfo,
    PollingInfoResponse,
    PopMessage,
    PopMessageResponse,
)

logger = logging.getLogger(__name__)

COUNT_MAX: Final = 32
# Messages in one request of acks.
ACKS_MAX: Final = 2_000
LATE_MS: Final = 500
# An answer on the way counts as waiting.
EARLY_MS: Final = 50
POLL_MS_MAX: Final = 60_000
INVISIBLE_MS_MAX: Final = 24 * 3_600_000
RECEIPT_PARTS_MIN: Final = 7
ATTEMPT_ID_CHARS_MAX: Final = 256
OF_TOPIC: Final = 0
OF_RETRY_TOPIC: Final = 1


def pop_message(context: PopContext, connection: Connection, request: Command) -> Command | None:
    header = PopMessage.decode(request.ext)
    now_ms = context.clock.now_ms()
    born_ms = header.born_time or now_ms
    if now_ms - born_ms > header.poll_time + LATE_MS:
        return _nothing(request, Response.POLLING_TIMEOUT, f"the request took {now_ms - born_ms} ms to come here")
    try:
        wish = _wish(context, header, now_ms)
    except Forbidden as forbidden:
        return reply(request, forbidden.code, forbidden.remark, {"forbiddenType": str(forbidden.rule)})
    context.popping.pop(wish)
    if wish.got:
        return _found(context, request, wish)
    if wish.cold is not None:
        _load(context, connection, request, header, wish)
        return None
    until_ms = born_ms + min(header.poll_time, POLL_MS_MAX) - EARLY_MS
    return _wait(context, PopWaiter(connection, request, header, until_ms))


def serve(context: PopContext, waiter: PopWaiter) -> bool:
    """A pop that waits, once more; False: it goes on waiting."""
    try:
        wish = _wish(context, waiter.header, context.clock.now_ms())
        context.popping.pop(wish)
        if wish.got:
            waiter.connection.answer(waiter.request, _found(context, waiter.request, wish))
        elif wish.cold is not None:
            _load(context, waiter.connection, waiter.request, waiter.header, wish)
        else:
            return False
    except RequestError as error:
        waiter.connection.answer(waiter.request, reply(waiter.request, error.code, error.remark))
    return True


def expire(waiter: PopWaiter) -> None:
    waiter.connection.answer(waiter.request, _nothing(waiter.request, Response.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE"))


def _wait(context: PopContext, waiter: PopWaiter) -> Command | None:
    if waiter.header.poll_time <= 0 or waiter.until_ms <= context.clock.now_ms():
        return _nothing(waiter.request, Response.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    if not context.waiting.hold(waiter):
        return _nothing(waiter.request, Response.POLLING_FULL, "too many pops wait for this topic, group and queue")
    return None


def _load(context: PopContext, connection: Connection, request: Command, header: PopMessage, wish: Wish) -> None:
    """What is there has to be read from disk: in a thread, then once more."""
    assert wish.cold is not None
    key, result = wish.cold
    loaded = wish.loaded | {key: result.cold_units}
    context.background.load_pages(result, partial(_go_on, context, connection, request, header, loaded))


def _go_on(
    context: PopContext, connection: Connection, request: Command, header: PopMessage, loaded: dict[Key, int]
) -> None:
    try:
        wish = _wish(context, header, context.clock.now_ms())
        wish.loaded = loaded
        context.popping.pop(wish)
        if wish.got:
            connection.answer(request, _found(context, request, wish))
        elif wish.cold is not None:
            _load(context, connection, request, header, wish)
        else:
            connection.answer(request, _nothing(request, Response.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE"))
    except RequestError as error:
        connection.answer(request, reply(request, error.code, error.remark))


# Checks


def _wish(context: PopContext, header: PopMessage, now_ms: int) -> Wish:
    config = context.config()
    if not config.readable:
        raise Forbidden(f"broker {config.broker_name} is not readable (brokerPermission)", Forbidden.BROKER)
    if not 1 <= header.max_msg_nums <= COUNT_MAX:
        raise _invalid(f"maxMsgNums is {header.max_msg_nums}, allowed are 1 to {COUNT_MAX}")
    if not 0 < header.invisible_time <= INVISIBLE_MS_MAX:
        raise _invalid(f"invisibleTime is {header.invisible_time} ms, allowed are 1 to {INVISIBLE_MS_MAX}")
    if len(header.attempt_id or "") > ATTEMPT_ID_CHARS_MAX:
        raise _invalid(f"attemptId has {len(header.attempt_id or '')} characters, at most {ATTEMPT_ID_CHARS_MAX}")
    if context.store.is_replica:
        raise RequestError(Response.SYSTEM_ERROR, "this broker is a replica: pop from its master")
    if names.takes_no_sends(header.topic):
        raise Forbidden(f"topic {header.topic} is the broker's own: its messages are not popped", Forbidden.TOPIC)
    topic = context.topics.get(header.topic)
    if topic is None:
        raise RequestError(Response.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist")
    if not topic.perm & PERM_READ:
        raise Forbidden(f"topic {header.topic} may not be read (perm {topic.perm})", Forbidden.TOPIC)
    if header.queue_id >= topic.read_queue_nums:
        raise _invalid(f"queue {header.queue_id} does not exist: {header.topic} has {topic.read_queue_nums}")
    if topic.attributes.get("queue.type") == "BatchCQ":
        raise _invalid(f"{header.topic} keeps batches (queue.type=BatchCQ), which cannot be popped: pull them")
    group = context.groups.find(header.consumer_group)
    if group is None:
        raise RequestError(
            Response.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {header.consumer_group} does not exist"
        )
    if not group.consume_enable:
        raise Forbidden(f"group {header.consumer_group} may not consume (consumeEnable=false)", Forbidden.GROUP)
    subscription = filters.parse(header.topic, header.exp or filters.ALL, header.exp_type, 0)
    context.consumers.note_pull(header.consumer_group, header.topic, subscription, uptime_ms(context.clock))
    matches = subscription.matches
    wants = None if subscription.is_tag else _compiled(context, header).matches
    return Wish(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.max_msg_nums,
        header.invisible_time,
        header.init_mode,
        None if matches is None else partial(tag_passes, matches),
        None if wants is None else partial(record_passes, wants),
        now_ms,
        header.order,
        header.attempt_id or None,
    )


def _compiled(context: PopContext, header: PopMessage) -> sql.Filter:
    fault = filters.fault_of(header.exp_type, context.config().property_filter_enabled)
    if fault is not None:
        raise RequestError(fault[0], fault[1])
    try:
        return sql.compile_filter(header.exp or "")
    except SqlError as error:
        raise RequestError(Response.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def _invalid(remark: str) -> RequestError:
    return RequestError(Response.INVALID_PARAMETER, remark)


# Answers


def _found(context: PopContext, request: Command, wish: Wish) -> Command:
    starts: list[str] = []
    offsets: list[str] = []
    body: list[bytes] = []
    for key, result in wish.got:
        mark = OF_TOPIC if key.topic == wish.topic else OF_RETRY_TOPIC
        first = result.queue_offsets[0]
        starts.append(f"{mark} {key.queue_id} {first}")
        offsets.append(f"{mark} {key.queue_id} {','.join(map(str, result.queue_offsets))}")
        context.stats.popped(wish.group, key.topic, key.queue_id, result)
        if mark == OF_TOPIC:
            body += [bytes(piece) for piece in result.slices]
        else:
            start = f"{first} {wish.now_ms} {wish.invisible_ms} 0 {mark} {context.config().broker_name} {key.queue_id}"
            body.append(relabelled(result, wish.topic, start))
    ext = PopMessageResponse(
        wish.now_ms,
        wish.invisible_ms,
        ORDERED_REVIVE_ID if wish.order else 0,
        wish.rest,
        ";".join(starts),
        ";".join(offsets),
        _order_counts(wish) if wish.order else None,
    ).encode()
    return reply(request, remark="FOUND", ext=ext, body=b"".join(body))


def _order_counts(wish: Wish) -> str:
    parts: list[str] = []
    for key, result in wish.got:
        counts = wish.counts[key]
        parts += [f"{OF_TOPIC} qo{key.queue_id}%{offset} {count}" for offset, count in counts.items()]
        least = min(counts.get(offset, 0) for offset in result.queue_offsets)
        parts.append(f"{OF_TOPIC} {key.queue_id} {least}")
    return ";".join(parts)


def _nothing(request: Command, code: int, remark: str) -> Command:
    return reply(request, code, remark, PopMessageResponse(0, 0, 0, 0).encode())


# Acknowledged, or later


def ack(context: PopContext, connection: Connection, request: Command) -> Command:
    header = AckMessage.decode(request.ext)
    _check_place(context, header.topic, header.queue_id, header.offset)
    key = Key(header.topic, header.consumer_group, header.queue_id)
    popped_ms, is_ordered = _receipt(header.extra_info)
    if not is_ordered:
        context.popping.ack(key, header.offset, popped_ms)
    elif not context.popping.ack_in_order(key, header.offset, popped_ms):
        fault = f"offset {header.offset} is not of the batch that is out: {header.topic} queue {header.queue_id}"
        raise RequestError(Response.MESSAGE_ILLEGAL, fault)
    return reply(request)


def ack_batch(context: PopContext, connection: Connection, request: Command) -> Command:
    acks = body_of(BatchAckRequest, request).acks
    count = sum(entry.count() for entry in acks)
    if count > ACKS_MAX:
        raise _invalid(f"the request acks {count} messages, at most {ACKS_MAX} are allowed: send it in parts")
    for entry in acks:
        group, topic = entry.consumer_group or "", entry.topic or ""
        if entry.retry not in (None, "", str(OF_TOPIC)) and not topic.startswith(names.RETRY_PREFIX):
            topic = f"{names.RETRY_PREFIX}{group}_{topic}"
        for offset in entry.offsets():
            key = Key(topic, group, entry.queue_id)
            if entry.revive_queue_id == ORDERED_REVIVE_ID:
                context.popping.ack_in_order(key, offset, entry.pop_time)
            else:
                context.popping.ack(key, offset, entry.pop_time)
    return reply(request)


def change_invisible_time(context: PopContext, connection: Connection, request: Command) -> Command:
    header = ChangeInvisibleTime.decode(request.ext)
    _check_place(context, header.topic, header.queue_id, header.offset)
    if not 0 <= header.invisible_time <= INVISIBLE_MS_MAX:
        raise _invalid(f"invisibleTime is {header.invisible_time} ms, allowed are 0 to {INVISIBLE_MS_MAX}")
    now_ms = context.clock.now_ms()
    key = Key(header.topic, header.consumer_group, header.queue_id)
    popped_ms, is_ordered = _receipt(header.extra_info)
    if is_ordered:
        invisible_ms = context.popping.prolong_in_order(key, header.offset, popped_ms, header.invisible_time, now_ms)
        ext = ChangeInvisibleTimeResponse(popped_ms, invisible_ms, ORDERED_REVIVE_ID).encode()
        return reply(request, ext=ext)
    context.popping.prolong(key, header.offset, popped_ms, header.invisible_time, now_ms)
    return reply(request, ext=ChangeInvisibleTimeResponse(now_ms, header.invisible_time, 0).encode())


def polling_info(context: PopContext, connection: Connection, request: Command) -> Command:
    header = PollingInfo.decode(request.ext)
    count = context.waiting.count_of(header.consumer_group, header.topic, header.queue_id)
    return reply(request, ext=PollingInfoResponse(count).encode())


def _check_place(context: PopContext, name: str, queue_id: int, offset: int) -> None:
    topic = context.topics.get(name)
    if topic is None:
        raise RequestError(Response.TOPIC_NOT_EXIST, f"topic {name} does not exist")
    if not 0 <= queue_id < topic.read_queue_nums:
        fault = f"queue {queue_id} does not exist: {name} has {topic.read_queue_nums}"
        raise RequestError(Response.MESSAGE_ILLEGAL, fault)
    low, high = context.store.queue_bounds(name, queue_id)
    if not low <= offset <= high:
        raise RequestError(Response.NO_MESSAGE, f"offset {offset} is outside {low} to {high}")


def _receipt(receipt: str) -> tuple[int, bool]:
    """When it was popped, and whether in order."""
    parts = receipt.split(" ")
    if len(parts) < RECEIPT_PARTS_MIN or not (parts[1].isascii() and parts[1].isdigit() and len(parts[1]) <= 18):
        raise RequestError(Response.MESSAGE_ILLEGAL, "extraInfo is not a receipt of a popped message")
    return int(parts[1]), parts[3] == str(ORDERED_REVIVE_ID)


HANDLERS: Final = {
    Request.POP_MESSAGE: Entry(pop_message, "pull"),
    Request.ACK_MESSAGE: Entry(ack, "ack"),
    Request.BATCH_ACK_MESSAGE: Entry(ack_batch, "ack"),
    Request.CHANGE_MESSAGE_INVISIBLETIME: Entry(change_invisible_time, "ack"),
    Request.POLLING_INFO: Entry(polling_info, "admin"),
}
