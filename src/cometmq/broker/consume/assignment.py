"""Which queues a client shall consume, decided by the broker: for clients that do not share queues among themselves.

    400   the queues of this client, and whether it pulls or pops
    401   an operator decides between pull and pop, for a topic and group; 402 shows all of that

Pulling clients share queues by the strategy that they name, AVG or AVG_BY_CIRCLE. Popping ones get whole brokers
(queue -1) unless `popShareQueueNum` says that a queue is shared by so many more clients only. Where 401 has said
nothing, defaultMessageRequestMode and defaultPopShareQueueNum hold.
"""

from __future__ import annotations

import logging
from typing import Final

from cometmq import names
from cometmq.broker.bodies import body_of
from cometmq.broker.consume.context import AssignmentContext
from cometmq.broker.entry import Entry
from cometmq.broker.tables.files import REQUEST_MODES
from cometmq.broker.tables.sessions import BROADCASTING
from cometmq.broker.tables.system_topics import PERM_READ
from cometmq.errors import CometError, RequestError
from cometmq.net.connection import Connection
from cometmq.wire.bodies import (
    MessageQueue,
    MessageRequestMode,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueueAssignment,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply

logger = logging.getLogger(__name__)

PULL: Final = "PULL"
POP: Final = "POP"
ALL_QUEUES: Final = -1


async def query_assignment(context: AssignmentContext, connection: Connection, request: Command) -> Command:
    asked = body_of(QueryAssignmentRequest, request)
    topic, group, client_id = asked.topic or "", asked.consumer_group or "", asked.client_id or ""
    config = context.config()
    mode = context.request_modes.get(topic, group)
    if mode is None:
        mode = MessageRequestMode(mode=config.request_mode, pop_share_queue_num=config.pop_shared_by)
    pops = mode.mode == POP and not topic.startswith(names.RETRY_PREFIX)
    queues = await _queues(context, topic)
    mine: list[MessageQueue] | None
    if asked.message_model == BROADCASTING or not config.shares_queues:
        mine = queues
    else:
        members = context.consumers.get(group)
        clients = sorted({member.client_id for member in members.members.values()}) if members is not None else []
        mine = None
        if client_id in clients and pops:
            mine = _for_pop(queues, clients, client_id, asked.strategy_name or "", mode.pop_share_queue_num)
        elif client_id in clients:
            mine = allocate(asked.strategy_name or "", clients.index(client_id), len(clients), queues)
    if mine is None:
        return reply(request, body=QueryAssignmentResponse(message_queue_assignments=None).encode())
    assignments = [QueueAssignment(queue, POP if pops else PULL) for queue in mine]
    return reply(request, body=QueryAssignmentResponse(message_queue_assignments=assignments).encode())


async def _queues(context: AssignmentContext, topic: str) -> list[MessageQueue]:
    """All that may be read in the cluster, sorted; those of this broker if no name server tells of more."""
    own = context.topics.get(topic)
    try:
        route = await context.find_route(topic)
    except CometError as error:
        logger.debug("found no route topic=%s cause=%s", topic, error)
        count = own.read_queue_nums if own is not None and own.perm & PERM_READ else 0
        return [MessageQueue(context.config().broker_name, queue_id, topic) for queue_id in range(count)]
    return sorted(
        MessageQueue(queues.broker_name or "", queue_id, topic)
        for queues in route.queue_datas
        if queues.perm & PERM_READ
        for queue_id in range(queues.read_queue_nums)
    )


def _for_pop(
    queues: list[MessageQueue], clients: list[str], client_id: str, strategy: str, shared_by: int
) -> list[MessageQueue] | None:
    if shared_by <= 0 or shared_by >= len(clients) - 1:
        brokers = sorted({queue.broker_name for queue in queues})
        topic = queues[0].topic if queues else ""
        return [MessageQueue(name, ALL_QUEUES, topic) for name in brokers]
    index = clients.index(client_id)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    mine: set[MessageQueue] = set()
    for step in range(shared_by + 1):
        share = allocate(strategy, (index + step) % len(clients), len(clients), queues)
        if share is None:
            return None
        mine.update(share)
    return sorted(mine)


def allocate(strategy: str, index: int, count: int, queues: list[MessageQueue]) -> list[MessageQueue] | None:
    """The share of the client at `index` of `count`; None for a strategy that nobody knows."""
    if strategy == "AVG_BY_CIRCLE":
        return queues[index::count]
    if strategy != "AVG":
        return None
    share, extra = divmod(len(queues), count)
    start = index * share + min(index, extra)
    return queues[start : start + share + (1 if index < extra else 0)]


async def set_request_mode(context: AssignmentContext, connection: Connection, request: Command) -> Command:
    mode = body_of(MessageRequestMode, request)
    if (mode.topic or "").startswith(names.RETRY_PREFIX):
        raise RequestError(Response.NO_PERMISSION, "a retry topic is always pulled")
    logger.info(
        "set request mode topic=%s group=%s mode=%s share=%d peer=%s",
        mode.topic, mode.consumer_group, mode.mode, mode.pop_share_queue_num, connection.peer_text,
    )  # fmt: skip
    context.request_modes.set(mode)
    await context.files.settle(REQUEST_MODES)
    return reply(request)


def request_modes(context: AssignmentContext, connection: Connection, request: Command) -> Command:
    return reply(request, body=context.request_modes.encode())


HANDLERS: Final = {
    Request.QUERY_ASSIGNMENT: Entry(query_assignment, "balance"),
    Request.SET_MESSAGE_REQUEST_MODE: Entry(set_request_mode, "balance"),
    Request.GET_ALL_MESSAGE_REQUEST_MODE: Entry(request_modes, "admin"),
}
