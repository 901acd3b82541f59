"""Locks of ordered queues: who holds one at the broker is the only member that may handle its messages.

    taken      before a queue is pulled                  request 41, all queues of a broker at once, at its master
    renewed    after 1 s, then every `lock_interval`     the stamp in the process queue
    expired    `lock_expiry` after the last renewal      for us; for the broker after 60 s, so two owners never overlap
    released   when the queue leaves                     request 42

A queue whose lock was refused or had expired is lost: others may have been at it. It is taken anew, with its offset
from the broker.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cometmq.client.consume.process_queue import ProcessQueue
from cometmq.errors import CometError
from cometmq.wire.bodies import LockBatchRequest, LockBatchResponse, MessageQueue
from cometmq.wire.codes import Request

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)


class QueueLocks:
    """`timeout_s` is for one request, `expiry_s` how long a lock holds without renewal."""

    def __init__(self, instance: "Instance", group: str, timeout_s: float, expiry_s: float) -> None:
        self._instance = instance
        self._group = group
        self._timeout_s = timeout_s
        self._expiry_s = expiry_s

    def holds(self, queue: ProcessQueue) -> bool:
        """Whether the lock is ours and fresh enough to start a handler."""
        return queue.lock_s is not None and self._instance.clock.monotonic() - queue.lock_s <= self._expiry_s

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Ask for these: those that are granted, and those that brokers answered for, granted or not."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(self._instance.host(queue), []).append(queue)
        granted: set[MessageQueue] = set()
        answered: set[MessageQueue] = set()
        for asked, held in await asyncio.gather(*[self._lock_at(name, some) for name, some in by_broker.items()]):
            granted |= held & set(asked)
            answered |= set(asked)
        return granted, answered

    async def _lock_at(self, broker: str, queues: list[MessageQueue]) -> tuple[list[MessageQueue], set[MessageQueue]]:
        try:
            command = self._instance.request(Request.LOCK_BATCH_MQ, {}, self._body(queues))
            address = await self._instance.master(broker, queues[0].topic)
            response = await self._instance.ask(address, command, self._timeout_s)
            return queues, set(LockBatchResponse.decode(response.body).locked)
        except CometError as error:
            logger.warning("fail lock group=%s broker=%s queues=%d cause=%s", self._group, broker, len(queues), error)
            return [], set()

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Waits for the answers. What fails is freed by time."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(self._instance.host(queue), []).append(queue)
        await asyncio.gather(*[self._unlock_at(name, some) for name, some in by_broker.items()])

    async def _unlock_at(self, broker: str, queues: list[MessageQueue]) -> None:
        try:
            command = self._instance.request(Request.UNLOCK_BATCH_MQ, {}, self._body(queues))
            await self._instance.ask(
                await self._instance.master(broker, queues[0].topic), command, self._timeout_s
            )
        except CometError as error:
            logger.warning("fail unlock group=%s broker=%s queues=%d cause=%s", self._group, broker, len(queues), error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequest(
            client_id=self._instance.client_id, consumer_group=self._group, mq_set=queues
        ).encode()
