"""Timer messages on request: one that waits is taken back, and a replica learns how far its master is.

A message is taken back by the handle that its sender was given. A recall is a timer message itself, for the same slot.
It is stored like any other and says nothing about success: the message is dropped when it is due, if it is still on the
wheel then.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cometmq.broker.delayed.context import TimerContext
from cometmq.broker.delayed.timer_messages import RecallHandle, recalling
from cometmq.broker.entry import Entry
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.store.results import PUT_STATUS_NAMES, STORED
from cometmq.store.timers import following
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import RecallMessage


def recall(context: TimerContext, connection: Connection, request: Command) -> Command | None:
    header = RecallMessage.decode(request.ext)
    _check_broker(context)
    if context.topics.get(header.topic) is None:
        raise RequestError(Response.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist on this broker")
    handle = _handle_of(context, header)
    key_has_topic = context.store.options.timer_delete_key_has_topic
    born_host = context.born.of(connection)
    message = recalling(handle, header.producer_group, key_has_topic, context.clock.now_ms(), born_host)
    result = context.put(message)
    if result.status not in STORED:
        why = result.remark or PUT_STATUS_NAMES[result.status]
        raise RequestError(Response.SYSTEM_ERROR, f"the message is not recalled: {why}")
    context.stats.put(message.topic, message.queue_id, 1, result.record_bytes)
    answer = reply(request, ext={"msgId": handle.unique_key, "MSG_REGION": context.config().region_id})
    # Not safe in time is no failure: the recall is in the log.
    respond = partial(_answer, connection, request, answer)
    if context.store.must_wait and context.store.put_waiting(message, result, respond):
        return None
    return answer


def _answer(connection: Connection, request: Command, answer: Command, _status: int) -> None:
    connection.answer(request, answer)


def _check_broker(context: TimerContext) -> None:
    config = context.config()
    if not config.recall_enabled:
        raise RequestError(
            Response.NO_PERMISSION, f"broker {config.broker_name} recalls no messages: set recallMessageEnable=true"
        )
    if context.store.is_replica:
        raise RequestError(Response.SLAVE_NOT_AVAILABLE, "this broker is a replica: recall on its master")
    if context.clock.now_ms() < config.start_accept_send_ms:
        raise RequestError(
            Response.SERVICE_NOT_AVAILABLE,
            f"broker {config.broker_name} takes messages from {config.start_accept_send_ms} on "
            "(startAcceptSendRequestTimeStamp, ms since 1970)",
        )
    if not config.writable and not config.recall_when_not_writable:
        raise RequestError(
            Response.SERVICE_NOT_AVAILABLE,
            f"broker {config.broker_name} is not writable (brokerPermission), "
            "and allowRecallWhenBrokerNotWriteable=false",
        )


def _handle_of(context: TimerContext, header: RecallMessage) -> RecallHandle:
    try:
        handle = RecallHandle.decode(header.recall_handle)
    except ValueError as error:
        raise RequestError(Response.ILLEGAL_OPERATION, str(error)) from None
    limit_s = context.store.options.timer_delay_s_max
    left_ms = handle.deliver_ms - context.clock.now_ms()
    if handle.topic != header.topic:
        fault = f"the handle is for topic {handle.topic}, not {header.topic}"
    elif handle.broker_name != context.config().broker_name:
        fault = f"the handle is for broker {handle.broker_name}, this is {context.config().broker_name}"
    elif left_ms <= 0:
        fault = "the message was due already"
    elif left_ms >= limit_s * 1000:
        fault = f"the message is due in {left_ms // 1000} s, above timerMaxDelaySec={limit_s}"
    else:
        return handle
    raise RequestError(Response.ILLEGAL_OPERATION, fault)


def progress(context: TimerContext, connection: Connection, request: Command) -> Command:
    """As it is on disk: seven numbers, see `store/timers/progress.py`. A replica has its master's."""
    _check_enabled(context)
    if not context.timers.is_open:
        return reply(request, body=following.noted(context.store.disk, context.store.options).packed())
    return reply(request, body=context.timers.files.check.saved.packed())


def counts(context: TimerContext, connection: Connection, request: Command) -> Command:
    """How many messages of each topic wait."""
    _check_enabled(context)
    return reply(request, body=context.timers.counts.snapshot()())


def _check_enabled(context: TimerContext) -> None:
    if not context.config().timer_wheel_enabled:
        raise RequestError(Response.SYSTEM_ERROR, "this broker has no timers: timerWheelEnable=false")


HANDLERS: Final = {
    Request.GET_TIMER_CHECK_POINT: Entry(progress, "admin"),
    Request.GET_TIMER_METRICS: Entry(counts, "admin"),
    Request.RECALL_MESSAGE: Entry(recall, "send"),
}
