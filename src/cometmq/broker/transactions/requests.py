"""Ending transactions: END_TRANSACTION by a producer, and RESUME_CHECK_HALF_MESSAGE by an operator.

    37   commit     the message goes to its real topic; answered when that is as safe as its sender wished
         roll back  the half is removed
         unknown    nothing, and no answer either: the producers will be asked
    323             a message that was given up is among the halves again, and will be asked for

Producers send their decision one-way. When it does not arrive, or comes too late, they are asked (requests.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from cometmq.auth.needs import half_decided, half_resumed
from cometmq.broker.entry import Entry
from cometmq.broker.stored_records import record_at
from cometmq.broker.transactions.context import TransactionContext
from cometmq.broker.transactions.half import Half
from cometmq.broker.transactions.half_queue import Fate
from cometmq.errors import RequestError, WireError
from cometmq.net.connection import Connection
from cometmq.store.results import PUT_STATUS_NAMES, STORED, PutResult, PutStatus
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import EndTransaction, ResumeCheckHalfMessage
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

Respond = Callable[[Command], object]

# What a parked request is counted with for each field of its header.
EXT_BYTES: Final = 64

FATES: Final = {TRANSACTION_COMMIT: Fate.COMMITTED, TRANSACTION_ROLLBACK: Fate.ROLLED_BACK}

REFUSAL_CODES: Final = {
    PutStatus.MESSAGE_ILLEGAL: Response.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: Response.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: Response.SERVICE_NOT_AVAILABLE,
}


def end_transaction(
    context: TransactionContext, connection: Connection, request: Command
) -> Command | Awaitable[Command | None] | None:
    header = EndTransaction.decode(request.ext)
    if context.store.is_replica:
        raise RequestError(Response.SLAVE_NOT_AVAILABLE, "this broker is a replica: transactions end on its master")
    fate = FATES.get(header.commit_or_rollback)
    if fate is None:
        connection.answer(request, None)
        return None
    if context.store.log.max_offset - header.commit_log_offset > context.store.reading.memory_bytes:
        return _end_cold(context, connection, request, header, fate)
    _check_right(context, connection, request, header)
    return _end(context, request, header, fate, partial(connection.answer, request))


def _check_right(context: TransactionContext, connection: Connection, request: Command, header: EndTransaction) -> None:
    """The request may name another topic than that of its message, or none."""
    if context.rights.are_asked_for:
        context.rights.require(connection, request, half_decided(context.transactions.find(header).real_topic))


async def _end_cold(
    context: TransactionContext, connection: Connection, request: Command, header: EndTransaction, fate: int
) -> Command:
    """The half may be on disk only: its pages are read in a thread before the loop touches them."""
    await record_at(context.store, header.commit_log_offset)
    _check_right(context, connection, request, header)
    later: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
    answer = _end(context, request, header, fate, partial(_resolve, later))
    return answer if answer is not None else await later


def _resolve(later: asyncio.Future[Command], answer: Command) -> None:
    if not later.done():  # the connection may have gone meanwhile
        later.set_result(answer)


def _end(
    context: TransactionContext,
    request: Command,
    header: EndTransaction,
    fate: int,
    respond: Respond,
    settled: bool = False,
) -> Command | None:
    """The answer, unless it is given to `respond` later. `settled`: the topic of the message is in its file."""
    half = context.transactions.find(header)
    if context.transactions.is_ended(half, fate):
        return reply(request)
    if fate == Fate.COMMITTED:
        return _commit(context, request, half, respond, settled)
    context.transactions.end(half, fate)
    context.stats.ends.rolled_back(half.real_topic)
    return reply(request)


def _commit(
    context: TransactionContext, request: Command, half: Half, respond: Respond, settled: bool
) -> Command | None:
    message = half.committed()
    if not settled and context.topics.unsaved and context.settling.holds(message.topic):
        act = partial(_end_settled, context, request, message.topic, respond)
        context.settling.park(act, len(request.ext) * EXT_BYTES)
        return None
    result = context.put(message)
    if result.status not in STORED:
        code = REFUSAL_CODES.get(result.status, Response.SYSTEM_ERROR)
        raise RequestError(code, f"the message is not committed: {result.remark or PUT_STATUS_NAMES[result.status]}")
    context.stats.put(message.topic, message.queue_id, 1, result.record_bytes)
    context.transactions.end(half, Fate.COMMITTED)
    context.stats.committed(message.topic, message.born_time_ms)
    # Not safe in time is no failure: the message is in the log and will be delivered.
    if context.store.must_wait and context.store.put_waiting(message, result, lambda _status: respond(reply(request))):
        return None
    return reply(request)


def _end_settled(context: TransactionContext, request: Command, topic: str, respond: Respond, failure: str) -> None:
    """Once more, because the half may have been ended while the topic of its message was saved."""
    try:
        context.settling.check(topic, failure)
        answer = _end(context, request, EndTransaction.decode(request.ext), Fate.COMMITTED, respond, True)
    except RequestError as error:
        answer = reply(request, error.code, error.remark)
    except Exception as error:
        respond(reply(request, Response.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))
        raise
    if answer is not None:
        respond(answer)


async def resume_check(context: TransactionContext, connection: Connection, request: Command) -> Command:
    message_id = ResumeCheckHalfMessage.decode(request.ext).msg_id or ""
    try:
        physical_offset = decode_offset_id(message_id).physical_offset
    except WireError as error:
        raise RequestError(Response.SYSTEM_ERROR, f"the message id must be an offset id: {error}") from None
    message = decode_record(await record_at(context.store, physical_offset))
    if context.rights.are_asked_for:
        context.rights.require(connection, request, half_resumed(Half(message).real_topic))
    result: PutResult = context.transactions.resume(message)
    if result.status not in STORED:
        raise RequestError(
            Response.SYSTEM_ERROR, f"the message is not resumed: {result.remark or PUT_STATUS_NAMES[result.status]}"
        )
    return reply(request)


HANDLERS: Final = {
    Request.END_TRANSACTION: Entry(end_transaction, "transaction"),
    Request.RESUME_CHECK_HALF_MESSAGE: Entry(resume_check, "admin"),
}
