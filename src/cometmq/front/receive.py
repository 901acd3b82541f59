"""Receives: a pop that waits for messages, answered as a stream.

    found       status OK, one `message` each, delivery_timestamp
    nothing     status 40401, delivery_timestamp: the normal end of an empty poll

Between pop and delivery each message is looked at: one whose tag only shares a hash with those asked for is done with,
one that was tried too often goes to the dead letters. What cannot be delivered any more, because the client has given
up the call, is visible again in a second.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cometmq.front import checks, deliver
from cometmq.front.call import Call
from cometmq.front.client import Client
from cometmq.front.handles import Handle
from cometmq.front.refusals import Refused, Unsettled, code_of, status
from cometmq.front.requests import ack_command, change_command
from cometmq.wire.codes import Request, Response, Version
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.headers import PopMessage, PopMessageResponse
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.properties import Property, find

BATCH_MAX: Final = 32
FROM_NEWEST: Final = 1
RENEWED_MS: Final = 60_000
GIVEN_BACK_MS: Final = 1_000
SINCE_POLL_CODE: Final = "5.0.3"
REQUEST_TIMEOUT_MS: Final = 3_000
# What of a client's deadline is left for the way of the answer.
MARGIN_MS: Final = 100
EXPRESSION_CHARS_MAX: Final = 32_768
ALL_QUEUES: Final = -1


def receive_message(call: Call, request: pb.ReceiveMessageRequest) -> None:
    topic_name = checks.topic_of(request.message_queue.topic)
    group = checks.group_of(request.group)
    desk = call.desk
    limits = desk.backend.limits()
    invisible_ms = RENEWED_MS
    if not request.auto_renew:
        invisible = request.invisible_duration
        invisible_ms = invisible.seconds * 1000 + invisible.nanos // 1_000_000
        if not limits.invisible_ms_min <= invisible_ms <= limits.invisible_ms_max:
            text = f"the invisible time is {invisible_ms} ms, {limits.invisible_ms_min} to {limits.invisible_ms_max}"
            raise Refused(pb.ILLEGAL_INVISIBLE_TIME, f"{text} are allowed")
    client = desk.clients.table.get(call.client_id)
    if client is None:
        raise Unsettled  # Python's simple consumers do not wait for the answer to their settings
    poll_ms = _poll_ms(call, request, client)
    topic = desk.backend.topic(topic_name)
    if topic is None:
        raise Refused(pb.TOPIC_NOT_FOUND, f"topic {topic_name} does not exist")
    broker = desk.backend.broker_of(request.message_queue.broker.name, topic)
    expression = request.filter_expression
    if len(expression.expression) > EXPRESSION_CHARS_MAX:
        text = f"the expression has {len(expression.expression)} characters, at most {EXPRESSION_CHARS_MAX}"
        raise Refused(pb.ILLEGAL_FILTER_EXPRESSION, f"{text} are allowed")
    if request.batch_size <= 0:
        _nothing(call)
        return
    header = PopMessage(
        consumer_group=group,
        topic=topic_name,
        queue_id=ALL_QUEUES,
        max_msg_nums=min(request.batch_size, BATCH_MAX),
        invisible_time=invisible_ms,
        poll_time=poll_ms,
        init_mode=FROM_NEWEST,
        born_time=desk.backend.now_ms(),
        exp_type="SQL92" if expression.type == pb.SQL else "TAG",
        exp=expression.expression or "*",
        order=client.is_fifo,
        attempt_id=request.attempt_id or None,
    )
    ext = header.encode()
    ext["bname"] = broker
    command = call.check(new_request(Request.POP_MESSAGE, ext, language=client.language))
    command.version = Version.V5_5_0
    tags = _tags(expression)
    call.ask(command, partial(_popped, group=group, topic=topic_name, broker=broker, tags=tags, client=client))


def _poll_ms(call: Call, request: pb.ReceiveMessageRequest, client: Client) -> int:
    limits = call.desk.backend.limits()
    left_ms = call.timeout_ms()
    if request.HasField("long_polling_timeout"):
        wished = request.long_polling_timeout
        poll_ms = float(wished.seconds * 1000 + wished.nanos // 1_000_000)
    else:
        timeout = client.settings.request_timeout
        timeout_ms = timeout.seconds * 1000 + timeout.nanos // 1_000_000 or REQUEST_TIMEOUT_MS
        poll_ms = (left_ms if left_ms is not None else float(limits.poll_ms_max)) - timeout_ms / 2
    poll_ms = min(max(poll_ms, float(limits.poll_ms_min)), float(limits.poll_ms_max))
    if left_ms is not None and poll_ms > left_ms:
        if left_ms < limits.poll_ms_min:
            is_old = call.stream.headers.get("x-mq-client-version", "") < SINCE_POLL_CODE
            text = f"the deadline leaves {left_ms:.0f} ms, at least {limits.poll_ms_min} are needed for a receive"
            raise Refused(pb.BAD_REQUEST if is_old else pb.ILLEGAL_POLLING_TIME, text)
        poll_ms = left_ms - MARGIN_MS
    return int(poll_ms)


def _tags(expression: pb.FilterExpression) -> frozenset[str] | None:
    if expression.type == pb.SQL or expression.expression.strip() in ("", "*"):
        return None
    return frozenset(tag for part in expression.expression.split("||") if (tag := part.strip()))


def _nothing(call: Call, code: int = pb.MESSAGE_NOT_FOUND, text: str = "") -> None:
    call.refuse(Refused(code, text))


def _popped(
    call: Call,
    response: Command,
    *,
    group: str,
    topic: str,
    broker: str,
    tags: frozenset[str] | None,
    client: Client,
) -> None:
    if response.code != Response.SUCCESS:
        _nothing(call, code_of(response.code), response.remark or "")
        return
    found = popped(response, broker)
    desk = call.desk
    link = desk.link_of(call.connection)
    if call.is_over or not call.connection.is_open:
        for _, handle, _ in found:
            desk.tell(change_command(handle, group, topic, GIVEN_BACK_MS))
        return
    delivered: list[bytes] = []
    for message, handle, tries in found:
        if tags is not None and find(message.properties.decode("utf-8", "replace"), Property.TAGS) not in tags:
            link.ask(ack_command(handle, group, topic), desk.ignore)
        elif 0 < client.attempts_max <= tries:
            desk.bury(handle, group, topic, client.attempts_max)
        else:
            text = handle.text
            whole = deliver.message_of(
                message, topic, text, attempt=tries + 1, queue_id=handle.queue_id, queue_offset=handle.offset
            )
            delivered.append(pb.ReceiveMessageResponse(message=whole).SerializeToString())
            if call.request.auto_renew:
                client.renewals.add(whole.system_properties.message_id, handle, group, topic)
    if not delivered:
        _nothing(call)
        return
    session, stream = call.connection.session, call.stream
    session.send(stream, pb.ReceiveMessageResponse(status=status(pb.OK)).SerializeToString())
    for piece in delivered:
        session.send(stream, piece)
    session.send(stream, desk.delivered_now().SerializeToString())
    session.finish(stream)
    call.done()


def popped(response: Command, broker: str) -> list[tuple[StoredMessage, Handle, int]]:
    """Messages of an answer to a pop, with handle and how often each was tried before."""
    header = PopMessageResponse.decode(response.ext)
    starts = _entries(header.start_offset_info)
    counts = _entries(header.order_count_info)
    found = []
    for message in decode_records(response.body):
        receipt = find(message.properties.decode("utf-8", "replace"), Property.POP_CK)
        if receipt is not None:
            parts = receipt.split(" ")
            handle = Handle(
                int(parts[0]), int(parts[1]), int(parts[2]), int(parts[3]), int(parts[4]), parts[5], int(parts[6]),
                int(parts[7]), message.physical_offset,
            )  # fmt: skip
            found.append((message, handle, message.reconsume_times))
            continue
        start = int(starts.get(f"0 {message.queue_id}", message.queue_offset))
        handle = Handle(
            start, header.pop_time, header.invisible_time, header.revive_qid, 0, broker, message.queue_id,
            message.queue_offset, message.physical_offset,
        )  # fmt: skip
        before = int(counts.get(f"0 qo{message.queue_id}%{message.queue_offset}", 0))
        found.append((message, handle, message.reconsume_times + before))
    return found


def _entries(text: str | None) -> dict[str, str]:
    """`mark queue value` joined by `;`."""
    parts = (part.rpartition(" ") for part in (text or "").split(";") if part)
    return {key: value for key, _, value in parts}
