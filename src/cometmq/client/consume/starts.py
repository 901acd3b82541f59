"""Where a group begins in a queue of which it has no stored offset.

    FIRST, and the group's retry topic     0: below the first message that is left, the broker says where to continue
    LAST, a new group                      the end of the queue
    a time, a new group                    the first message that was stored then or later
    a group that is not new, or a queue    what the broker says: 0 in a queue that is still young, else as above
    that appeared later

A group is new to a topic if it has an offset in none of its queues. The last row is for topics that grow: a queue that
is made later has messages before any consumer knows of it, and they must not be skipped.

A broker answers 0 for a young queue unless the question says otherwise (`setZeroIfNotFound`). RocketMQ's clients never
say so: with them, a new group that starts with the last message gets all messages of a young topic.
"""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Final

from cometmq.client.options import StartFrom
from cometmq.errors import CometError, NoRoute
from cometmq.names import RETRY_PREFIX
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.headers import GetMaxOffset, OffsetResponse, SearchOffset
from cometmq.wire.headers.base import Header

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance
    from cometmq.client.consume.offsets import Offsets

QUESTIONS_AT_ONCE: Final = 32


class Starts:
    """`offsets` are those of the group; queues are as on the wire."""

    def __init__(self, instance: "Instance", offsets: "Offsets", start: StartFrom | datetime) -> None:
        self._instance = instance
        self._offsets = offsets
        self._start = start
        self._begun: dict[str, asyncio.Task[frozenset[MessageQueue]]] = {}

    async def of(self, queue: MessageQueue) -> int:
        """The stored offset, else where the group begins. CometError if the broker does not say."""
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        stored = await self._offsets.query(queue, zero_if_young=is_retry)
        if stored is not None:
            return stored
        skips = self._start is not StartFrom.FIRST and not is_retry
        if skips and queue not in await self._new_in(queue.topic):
            young = await self._offsets.query(queue, zero_if_young=True)
            if young is not None:
                return young
        return await first_offset(self._instance, queue, self._start)

    async def _new_in(self, topic: str) -> frozenset[MessageQueue]:
        """The queues that the topic had when the group first looked, if it was new then. Found out once."""
        task = self._begun.get(topic)
        if task is None:
            task = self._begun[topic] = self._instance.spawn(self._look(topic))
        try:
            return await asyncio.shield(task)
        except CometError:
            if self._begun.get(topic) is task:
                del self._begun[topic]  # nobody said: ask again next time
            raise

    async def _look(self, topic: str) -> frozenset[MessageQueue]:
        try:
            queues = (await self._instance.route(topic)).subscribe
        except NoRoute:
            return frozenset()
        for at in range(0, len(queues), QUESTIONS_AT_ONCE):
            some = queues[at : at + QUESTIONS_AT_ONCE]
            stored = await asyncio.gather(*[self._offsets.stored(queue) for queue in some])
            if any(offset is not None for offset in stored):
                return frozenset()
        return frozenset(queues)


async def first_offset(instance: "Instance", queue: MessageQueue, start: StartFrom | datetime) -> int:
    """Where a new group begins in a queue. CometError if the broker does not say."""
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if start is StartFrom.FIRST or (start is StartFrom.LAST and is_retry):
        return 0
    if start is StartFrom.LAST or is_retry:
        header: Header = GetMaxOffset(queue.topic, queue.queue_id)
        code = Request.GET_MAX_OFFSET
    else:
        assert isinstance(start, datetime)
        header = SearchOffset(queue.topic, queue.queue_id, round(start.timestamp() * 1000))
        code = Request.SEARCH_OFFSET_BY_TIMESTAMP
    address = await instance.keeper(queue)
    response = await instance.ask(address, instance.request(code, header.encode()), instance.options.call_timeout)
    return OffsetResponse.decode(response.ext).offset
