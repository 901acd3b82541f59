"""Offsets of a queue that its master knows: where it begins and ends, what lies at a time, what a group has stored.

Queues and groups are as on the wire. NoRoute, BrokerUnknown, CallError, BrokerError.
"""

from datetime import datetime
from typing import Protocol

from cometmq.client.cluster.instance import Instance
from cometmq.errors import BrokerError
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request, Response
from cometmq.wire.headers import GetMaxOffset, GetMinOffset, OffsetResponse, QueryConsumerOffset, SearchOffset


class Fields(Protocol):
    def encode(self) -> dict[str, str]: ...


async def begin(instance: Instance, queue: MessageQueue) -> int:
    """Of the first message that is there."""
    return await _ask(instance, queue, Request.GET_MIN_OFFSET, GetMinOffset(queue.topic, queue.queue_id))


async def end(instance: Instance, queue: MessageQueue) -> int:
    """Behind the last."""
    return await _ask(instance, queue, Request.GET_MAX_OFFSET, GetMaxOffset(queue.topic, queue.queue_id))


async def at(instance: Instance, queue: MessageQueue, moment: datetime) -> int:
    """Of the first message that was stored then or later; the end if there is none. Times without zone are local."""
    header = SearchOffset(queue.topic, queue.queue_id, int(moment.timestamp() * 1000))
    return await _ask(instance, queue, Request.SEARCH_OFFSET_BY_TIMESTAMP, header)


async def committed(instance: Instance, group: str, queue: MessageQueue) -> int | None:
    """What a group has stored; None if nothing."""
    header = QueryConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
    try:
        return await _ask(instance, queue, Request.QUERY_CONSUMER_OFFSET, header)
    except BrokerError as error:
        if error.code == Response.QUERY_NOT_FOUND:
            return None
        raise


async def home(instance: Instance, queue: MessageQueue) -> str:
    """The address of who knows a queue."""
    await instance.route(queue.topic)
    return await instance.keeper(queue)


async def _ask(instance: Instance, queue: MessageQueue, code: int, header: Fields) -> int:
    command = instance.request(code, header.encode())
    response = await instance.ask(await home(instance, queue), command, instance.options.call_timeout)
    return OffsetResponse.decode(response.ext).offset
