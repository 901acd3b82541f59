"""Reading by offset, which RocketMQ's proxy does not serve: for programs that replay.

PullMessage     messages of one queue from an offset on; waits if there is none    status, messages, next_offset
UpdateOffset    commits the next offset that a group wants of a queue
GetOffset       what is committed; 40404 if nothing is
QueryOffset     the first, the one behind the last, or the first of a time
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from cometmq.front import checks, deliver
from cometmq.front.call import Call
from cometmq.front.refusals import Refused, code_of, status
from cometmq.wire.codes import Request, Response, Version
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.headers import (
    GetMaxOffset,
    GetMinOffset,
    PullMessage,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from cometmq.wire.record.message import decode_records

BATCH_MAX: Final = 32
WAITS: Final = 2
HAS_SUBSCRIPTION: Final = 4
NEXT: Final = "nextBeginOffset"
I32_MAX: Final = 2**31 - 1


def pull_message(call: Call, request: pb.PullMessageRequest) -> None:
    group, (topic, queue_id, broker) = checks.group_of(request.group), _queue(call, request.message_queue)
    if request.offset < 0:
        raise Refused(pb.ILLEGAL_OFFSET, f"the offset is {request.offset}")
    wait = request.long_polling_timeout
    wait_ms = min(wait.seconds * 1000 + wait.nanos // 1_000_000, call.desk.backend.limits().poll_ms_max)
    left_ms = call.timeout_ms()
    if left_ms is not None:
        wait_ms = int(min(wait_ms, left_ms))
    expression = request.filter_expression
    header = PullMessage(
        group,
        topic,
        queue_id,
        request.offset,
        max_msg_nums=min(max(request.batch_size, 1), BATCH_MAX),
        sys_flag=(WAITS if wait_ms > 0 else 0) | HAS_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=max(wait_ms, 0),
        sub_version=0,
        subscription=expression.expression or "*",
        expression_type="SQL92" if expression.type == pb.SQL else "TAG",
    )
    _ask(call, Request.PULL_MESSAGE, header, broker, partial(_pulled, topic=topic))


def _pulled(call: Call, response: Command, *, topic: str) -> None:
    if response.code not in (Response.SUCCESS, Response.PULL_NOT_FOUND, Response.PULL_RETRY_IMMEDIATELY,
                             Response.PULL_OFFSET_MOVED):  # fmt: skip
        raise Refused(code_of(response.code), response.remark or "")
    session, stream = call.connection.session, call.stream
    code = pb.OK if response.code == Response.SUCCESS else pb.MESSAGE_NOT_FOUND
    session.send(stream, pb.PullMessageResponse(status=status(code)).SerializeToString())
    for message in decode_records(response.body) if response.body else ():
        whole = deliver.message_of(message, topic, "", attempt=message.reconsume_times + 1)
        session.send(stream, pb.PullMessageResponse(message=whole).SerializeToString())
    following = int(response.ext.get(NEXT, "0"))
    session.send(stream, pb.PullMessageResponse(next_offset=following).SerializeToString())
    session.finish(stream)
    call.done()


def update_offset(call: Call, request: pb.UpdateOffsetRequest) -> None:
    group, (topic, queue_id, broker) = checks.group_of(request.group), _queue(call, request.message_queue)
    if request.offset < 0:
        raise Refused(pb.ILLEGAL_OFFSET, f"the offset is {request.offset}")
    header = UpdateConsumerOffset(group, topic, queue_id, request.offset)
    _ask(call, Request.UPDATE_CONSUMER_OFFSET, header, broker, _updated)


def _updated(call: Call, response: Command) -> None:
    if response.code != Response.SUCCESS:
        raise Refused(code_of(response.code), response.remark or "")
    call.answer(pb.UpdateOffsetResponse(status=status(pb.OK)))


def get_offset(call: Call, request: pb.GetOffsetRequest) -> None:
    group, (topic, queue_id, broker) = checks.group_of(request.group), _queue(call, request.message_queue)
    header = QueryConsumerOffset(group, topic, queue_id, set_zero_if_not_found=False)
    _ask(call, Request.QUERY_CONSUMER_OFFSET, header, broker, _got)


def _got(call: Call, response: Command) -> None:
    if response.code == Response.QUERY_NOT_FOUND:
        raise Refused(pb.OFFSET_NOT_FOUND, response.remark or "")
    if response.code != Response.SUCCESS:
        raise Refused(code_of(response.code), response.remark or "")
    call.answer(pb.GetOffsetResponse(status=status(pb.OK), offset=int(response.ext.get("offset", "0"))))


def query_offset(call: Call, request: pb.QueryOffsetRequest) -> None:
    topic, queue_id, broker = _queue(call, request.message_queue)
    policy = request.query_offset_policy
    if policy == pb.BEGINNING:
        _ask(call, Request.GET_MIN_OFFSET, GetMinOffset(topic, queue_id), broker, _found)
    elif policy == pb.END:
        _ask(call, Request.GET_MAX_OFFSET, GetMaxOffset(topic, queue_id), broker, _found)
    elif policy == pb.TIMESTAMP and request.HasField("timestamp"):
        at_ms = request.timestamp.seconds * 1000 + request.timestamp.nanos // 1_000_000
        header = SearchOffset(topic, queue_id, at_ms)
        _ask(call, Request.SEARCH_OFFSET_BY_TIMESTAMP, header, broker, _found)
    else:
        raise Refused(pb.BAD_REQUEST, "the policy is none of BEGINNING, END and TIMESTAMP, or has no timestamp")


def _found(call: Call, response: Command) -> None:
    if response.code != Response.SUCCESS:
        raise Refused(code_of(response.code), response.remark or "")
    call.answer(pb.QueryOffsetResponse(status=status(pb.OK), offset=int(response.ext.get("offset", "0"))))


def _queue(call: Call, queue: pb.MessageQueue) -> tuple[str, int, str]:
    name = checks.topic_of(queue.topic)
    backend = call.desk.backend
    topic = backend.topic(name)
    if topic is None:
        raise Refused(pb.TOPIC_NOT_FOUND, f"topic {name} does not exist")
    if not 0 <= queue.id <= I32_MAX:
        raise Refused(pb.BAD_REQUEST, f"the queue is {queue.id}: it must be named")
    return name, queue.id, backend.broker_of(queue.broker.name, topic)


def _ask(call: Call, code: int, header: Any, broker: str, then: Any) -> None:
    ext = header.encode()
    ext["bname"] = broker
    command = new_request(code, ext)
    command.version = Version.V5_5_0
    call.ask(call.check(command), then)
