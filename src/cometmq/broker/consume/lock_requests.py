"""Queue locks of ordered consumers."""

from typing import Final

from cometmq.broker.bodies import body_of
from cometmq.broker.consume.context import MembersContext
from cometmq.broker.entry import Entry
from cometmq.broker.tables.sessions import Link
from cometmq.clock import uptime_ms
from cometmq.errors import RequestError
from cometmq.wire.bodies import LockBatchRequest, LockBatchResponse
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply


def lock(context: MembersContext, connection: Link, request: Command) -> Command:
    """The answer lists what the client holds; what is missing was refused."""
    group, client_id, body = _read(request)
    held = context.queue_locks.lock(group, body.mq_set, client_id, uptime_ms(context.clock))
    return reply(request, body=LockBatchResponse(locked=held).encode())


def unlock(context: MembersContext, connection: Link, request: Command) -> Command:
    group, client_id, body = _read(request)
    context.queue_locks.unlock(group, body.mq_set, client_id)
    return reply(request)


def _read(request: Command) -> tuple[str, str, LockBatchRequest]:
    body = body_of(LockBatchRequest, request)
    if not body.consumer_group or not body.client_id:
        raise RequestError(Response.INVALID_PARAMETER, "a lock request needs both consumerGroup and clientId")
    return body.consumer_group, body.client_id, body


HANDLERS: Final = {
    Request.LOCK_BATCH_MQ: Entry(lock, "admin"),
    Request.UNLOCK_BATCH_MQ: Entry(unlock, "admin"),
}
