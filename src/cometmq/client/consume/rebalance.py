"""Which queues are ours: looked at again and again, by every member for itself.

    every 20 s when all was well, every second when not, and when woken: members changed, a broker is back, an offset
    was repaired, a lock was refused. Rounds are at least `rebalance_retry` apart.

    for each topic    queues of the route + members of the group (request 38) -> our share
                      no longer ours     dropped: offset stored, forgotten
                      ours and new       locked if ordered, offset found, pulled after `first_pull_delay`
                      not pulled 120 s   dropped and taken anew
    then              topics that are not subscribed any more are dropped

A missing route or list of members changes nothing. Pulls and handlers of other queues go on meanwhile.

An ordered queue leaves when its handler has ended: until then its lock keeps others away, and the last result is still
committed. It leaves anyway when its lock is 20 s old.

Locks of ordered queues: who holds one at the broker is the only member that may handle its messages.

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
from typing import TYPE_CHECKING, Final

from cometmq.client.cluster.routes import Route
from cometmq.client.consume import allocation
from cometmq.client.consume.process_queue import LEAVING, LOST, ProcessQueue
from cometmq.clock import Timer
from cometmq.errors import CometError, NoRoute
from cometmq.names import RETRY_PREFIX
from cometmq.wire.bodies import ConsumerList, LockBatchRequest, LockBatchResponse, MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.headers import GetConsumerList

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance
    from cometmq.client.consume.group_member import Member

logger = logging.getLogger(__name__)

PULL_IDLE_MAX_S: Final = 120.0
UNLOCK_DELAY_S: Final = 20.0
REFUSED_S: Final = 0.5
# A retry topic appears with the group's first heartbeat; so long it is waited for with short rounds.
RETRY_TOPIC_WAIT_S: Final = 30.0
OFFSETS_AT_ONCE: Final = 64
# The start of a consumer waits this long for its first round.
FIRST_ROUND_LIMIT_S: Final = 5.0


class Rebalance:
    def __init__(self, member: "Member") -> None:
        self._member = member
        self._clock = member.clock
        self._woken = asyncio.Event()
        self._timer: Timer | None = None
        self._started_s = 0.0
        self._first_round = asyncio.Event()
        self.rounds = 0
        self.is_balanced = False
        # Perhaps granted, but not taken: a round was cut short, or an offset could not be told.
        self.unused_locks: set[MessageQueue] = set()

    def wake(self) -> None:
        """Look again soon."""
        self._woken.set()

    async def run(self) -> None:
        """Rounds until cancelled."""
        options = self._member.options
        self._started_s = self._clock.monotonic()
        try:
            while True:
                began_s = self._clock.monotonic()
                self._woken.clear()
                try:
                    self.is_balanced = await self.round()
                except Exception:
                    logger.exception("fail rebalance group=%s", self._member.group)
                    self.is_balanced = False
                self.rounds += 1
                self._first_round.set()
                await self._wait(options.rebalance_interval if self.is_balanced else options.rebalance_retry)
                left_s = began_s + options.rebalance_retry - self._clock.monotonic()
                if left_s > 0:
                    await self._sleep(left_s)
        finally:
            self._first_round.set()
            if self._timer is not None:
                self._timer.cancel()

    async def first_round(self) -> None:
        """Until the first round is over, well or not; for a limited time."""
        timer = self._clock.call_later(FIRST_ROUND_LIMIT_S, self._first_round.set)
        try:
            await self._first_round.wait()
        finally:
            timer.cancel()

    async def _wait(self, delay_s: float) -> None:
        """Until woken, so long at most."""
        self._timer = self._clock.call_later(delay_s, self._woken.set)
        await self._woken.wait()
        self._timer.cancel()

    async def _sleep(self, delay_s: float) -> None:
        over = asyncio.Event()
        self._timer = self._clock.call_later(delay_s, over.set)
        await over.wait()

    async def round(self) -> bool:
        """Once through all topics. True if we have what is ours."""
        member = self._member
        balanced = True
        members: dict[str, list[str]] = {}
        for topic in list(member.subscribed):
            try:
                balanced &= await self._rebalance_topic(topic, members)
            except CometError as error:
                logger.warning("fail rebalance group=%s topic=%s cause=%s", member.group, topic, error)
                balanced = False
        gone = [queue for queue in member.queues.values() if queue.queue.topic not in member.subscribed]
        await self._drop(gone)
        return balanced and not gone

    async def _rebalance_topic(self, topic: str, members: dict[str, list[str]]) -> bool:
        member = self._member
        try:
            route = await member.instance.route(topic)
        except NoRoute as error:
            if topic.startswith(RETRY_PREFIX):
                return self._clock.monotonic() - self._started_s > RETRY_TOPIC_WAIT_S
            logger.warning("skip rebalance group=%s topic=%s cause=%s", member.group, topic, error)
            return True
        share = await self._share(route, members)
        if share is None:
            logger.warning("skip rebalance group=%s topic=%s: no queues or no members", member.group, topic)
            return False
        changed = await self._take_share(topic, share)
        if changed:
            await member.on_assigned(topic, set(route.subscribe), share)
        return {queue for queue, held in member.queues.items() if queue.topic == topic and held.is_owned} == share

    async def _share(self, route: Route, members: dict[str, list[str]]) -> set[MessageQueue] | None:
        member = self._member
        if member.options.broadcast:
            return set(route.subscribe)
        address = member.instance.brokers.any_of(route)
        if address is None or not route.subscribe:
            return None
        if address not in members:
            members[address] = await self._ask_members(address)
        if not members[address]:
            return None
        strategy = member.options.allocation
        return set(allocation.share(strategy, member.instance.client_id, route.subscribe, members[address]))

    async def _ask_members(self, address: str) -> list[str]:
        instance = self._member.instance
        command = instance.request(Request.GET_CONSUMER_LIST_BY_GROUP, GetConsumerList(self._member.group).encode())
        response = await instance.ask(address, command, instance.options.call_timeout)
        return ConsumerList.decode(response.body).consumer_id_list

    async def _take_share(self, topic: str, share: set[MessageQueue]) -> bool:
        """Make what we have our share. True if that changed it."""
        member = self._member
        now_s = self._clock.monotonic()
        mine = [queue for queue in member.queues.values() if queue.queue.topic == topic]
        stalled = [it for it in mine if it.queue in share and now_s - it.last_pull_s > PULL_IDLE_MAX_S]
        for queue in stalled:
            logger.error(
                "retake queue group=%s topic=%s broker=%s queue=%d: not pulled for %d s",
                member.group, topic, queue.queue.broker_name, queue.queue.queue_id, PULL_IDLE_MAX_S,
            )  # fmt: skip
        dropped = await self._drop([it for it in mine if it.queue not in share or not it.is_owned or it in stalled])
        taken = await self._take(topic, share - member.queues.keys())
        return bool(dropped or taken)

    # Losing

    async def _drop(self, queues: list[ProcessQueue]) -> int:
        """Give up these; returns how many are gone. Ordered ones whose handler runs stay for the next round."""
        if not queues:
            return 0
        member = self._member
        leaving: list[ProcessQueue] = []
        for queue in queues:
            ordered = member.is_ordered(queue.queue.topic)
            if queue.is_owned:
                queue.state = LEAVING if ordered else LOST
            if ordered and queue.is_busy and not self._is_overdue(queue):
                queue.unlock_tries += 1
                continue
            leaving.append(queue)
        await member.release(leaving)
        return len(leaving)

    def _is_overdue(self, queue: ProcessQueue) -> bool:
        """Only for queues that leave: one whose lock was lost is waited for, or its message would be handled twice."""
        now_s = self._clock.monotonic()
        return queue.state == LEAVING and queue.lock_s is not None and now_s - queue.lock_s > UNLOCK_DELAY_S

    # Gaining

    async def _take(self, topic: str, queues: set[MessageQueue]) -> int:
        member = self._member
        if queues and member.is_locking(topic):
            self.unused_locks |= queues  # asked for: if we are stopped before the answer, the broker may have said yes
            granted, _ = await member.locks.lock(queues)
            self.unused_locks -= queues - granted
            if granted != queues:
                member.later(REFUSED_S, self.wake)
            queues = granted
        locked_s = self._clock.monotonic()
        begun: list[tuple[ProcessQueue, int]] = []
        ordered = sorted(queues)
        for at in range(0, len(ordered), OFFSETS_AT_ONCE):
            some = ordered[at : at + OFFSETS_AT_ONCE]
            offsets = await asyncio.gather(*[self._start_offset(queue) for queue in some])
            for queue, offset in zip(some, offsets, strict=True):
                if offset is not None:
                    process_queue = ProcessQueue(queue, self._clock.monotonic())
                    process_queue.lock_s = locked_s if member.is_locking(topic) else None
                    begun.append((process_queue, offset))
        for process_queue, offset in begun:
            self.unused_locks.discard(process_queue.queue)
            member.adopt(process_queue, offset)
        return len(begun)

    async def _start_offset(self, queue: MessageQueue) -> int | None:
        """None if it cannot be told now: the queue is taken in another round."""
        self._member.offsets.forget(queue)
        try:
            return await self._member.start_offset(queue)
        except CometError as error:
            logger.warning(
                "skip queue group=%s topic=%s broker=%s queue=%d: no start offset, cause=%s",
                self._member.group, queue.topic, queue.broker_name, queue.queue_id, error,
            )  # fmt: skip
            return None


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
            await self._instance.ask(await self._instance.master(broker, queues[0].topic), command, self._timeout_s)
        except CometError as error:
            logger.warning("fail unlock group=%s broker=%s queues=%d cause=%s", self._group, broker, len(queues), error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequest(client_id=self._instance.client_id, consumer_group=self._group, mq_set=queues).encode()
