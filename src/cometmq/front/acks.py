"""Acknowledging, putting off, and giving up single messages, by their handles.

    AckMessage                        done
    ChangeInvisibleDuration           not done, visible again in a while: a new handle
    ForwardMessageToDeadLetterQueue   given up: into %DLQ%group, then done

A handle that is renewed for a client stands for its newest form, so clients keep the one that they were given.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from cometmq.front import checks, handles
from cometmq.front.call import Call
from cometmq.front.handles import Handle
from cometmq.front.refusals import Refused, code_of, status
from cometmq.front.requests import ack_command, change_command, dead_letter_command, renewed
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request
from cometmq.wire.grpc import messages_pb2 as pb

ENTRIES_MAX: Final = 2_000


def ack_message(call: Call, request: pb.AckMessageRequest) -> None:
    group, topic = checks.group_of(request.group), checks.topic_of(request.topic)
    if not 1 <= len(request.entries) <= ENTRIES_MAX:
        text = f"the request has {len(request.entries)} entries, 1 to {ENTRIES_MAX} are allowed"
        raise Refused(pb.INTERNAL_SERVER_ERROR, text)
    # Topic and group are those of the request, whatever its handles say.
    call.check(new_request(Request.POP_MESSAGE, {"consumerGroup": group, "topic": topic}))
    results = [
        pb.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
        for entry in request.entries
    ]
    left = _Left(call, results)
    for entry, result in zip(request.entries, results, strict=True):
        try:
            handle = _handle(call, entry.message_id, entry.receipt_handle, forget=True)
        except Refused as error:
            left.done(result, error.code, str(error))
            continue
        command = ack_command(handle, group, topic)
        call.desk.link_of(call.connection).ask(command, partial(left.answered, result))


class _Left:
    """Entries of one request that are not answered yet."""

    def __init__(self, call: Call, results: list[pb.AckMessageResultEntry]) -> None:
        self._call = call
        self._results = results
        self._count = len(results)

    def answered(self, result: pb.AckMessageResultEntry, response: Command) -> None:
        is_done = response.code == Response.SUCCESS
        self.done(result, pb.OK if is_done else pb.INTERNAL_SERVER_ERROR, "" if is_done else response.remark or "")

    def done(self, result: pb.AckMessageResultEntry, code: int, text: str = "") -> None:
        result.status.CopyFrom(status(code, text))
        self._count -= 1
        if self._count:
            return
        codes = {it.status.code for it in self._results}
        whole = self._results[0].status if len(codes) == 1 else status(pb.MULTIPLE_RESULTS)
        self._call.answer(pb.AckMessageResponse(status=whole, entries=self._results))


def _handle(call: Call, message_id: str, text: str, *, forget: bool) -> Handle:
    """The newest form of a handle. Raises Refused."""
    client = call.desk.clients.table.get(call.client_id)
    known = client.renewals.newest(message_id, text, forget=forget) if client is not None else None
    return known if known is not None else handles.parse_valid(text, call.desk.backend.now_ms())


def change_invisible_duration(call: Call, request: pb.ChangeInvisibleDurationRequest) -> None:
    group, topic = checks.group_of(request.group), checks.topic_of(request.topic)
    invisible_ms = request.invisible_duration.seconds * 1000 + request.invisible_duration.nanos // 1_000_000
    most_ms = call.desk.backend.limits().invisible_ms_max
    if not 0 <= invisible_ms <= most_ms:
        text = f"the invisible time is {invisible_ms} ms, 0 to {most_ms} are allowed"
        raise Refused(pb.ILLEGAL_INVISIBLE_TIME, text)
    call.check(new_request(Request.POP_MESSAGE, {"consumerGroup": group, "topic": topic}))
    handle = _handle(call, request.message_id, request.receipt_handle, forget=True)
    call.ask(change_command(handle, group, topic, invisible_ms), partial(_changed, handle=handle))


def _changed(call: Call, response: Command, *, handle: Handle) -> None:
    if response.code == Response.SYSTEM_BUSY:
        text = response.remark or ""
        answer = pb.ChangeInvisibleDurationResponse(status=status(pb.TOO_MANY_REQUESTS, text))
        answer.receipt_handle = call.request.receipt_handle
        call.answer(answer)
        return
    if response.code != Response.SUCCESS:
        raise Refused(code_of(response.code), response.remark or "")
    new = renewed(handle, response)
    call.answer(pb.ChangeInvisibleDurationResponse(status=status(pb.OK), receipt_handle=new.text))


def forward_to_dead_letters(call: Call, request: pb.ForwardMessageToDeadLetterQueueRequest) -> None:
    group, topic = checks.group_of(request.group), checks.topic_of(request.topic)
    call.check(new_request(Request.POP_MESSAGE, {"consumerGroup": group, "topic": topic}))
    handle = _handle(call, request.message_id, request.receipt_handle, forget=True)
    if handle.place < 0:
        raise Refused(pb.INVALID_RECEIPT_HANDLE, "the receipt handle does not say where the message is")
    command = dead_letter_command(handle, group, topic, request.max_delivery_attempts)
    call.ask(command, partial(_buried, handle=handle, group=group, topic=topic))


def _buried(call: Call, response: Command, *, handle: Handle, group: str, topic: str) -> None:
    if response.code != Response.SUCCESS:
        raise Refused(code_of(response.code), response.remark or str(response.code))
    call.ask(ack_command(handle, group, topic), _forwarded)


def _forwarded(call: Call, response: Command) -> None:
    """The letter is there; an acknowledgement that failed lets it come twice."""
    call.answer(pb.ForwardMessageToDeadLetterQueueResponse(status=status(pb.OK)))
