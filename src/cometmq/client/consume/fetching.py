"""Messages of one queue, kept ready for a pull consumer.

    broker ── pull, held open ──> | cache, bounded | ── take() ──> poll()

    next_offset    where the next pull begins: behind everything in the cache
    position       where the next take() begins: what was handed out ends here

One pull is under way at a time, and none while the cache is full or the queue is paused. A seek throws the cache and
the pull under way away. What a broker refuses is kept for the consumer to raise; what fails on the way is tried again.
A record that cannot be read is tried again, too, and then passed over (bad_records.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cometmq.client.cluster.queue_client import PullStatus
from cometmq.client.consume import pull_request
from cometmq.client.consume.pull_request import BadRecords, Unreadable
from cometmq.clock import Clock
from cometmq.errors import BrokerError, CometError
from cometmq.wire.bodies import MessageQueue, SubscriptionData
from cometmq.wire.codes import MASTER_ID, Response
from cometmq.wire.record.message import StoredMessage

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)

ERROR_S: Final = 1.0
FLOW_CONTROL_S: Final = 0.02


class Fetcher:
    """`queue` is as on the wire. `arrived` is called when there is something new to take, or an error."""

    def __init__(
        self,
        instance: "Instance",
        group: str,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        *,
        arrived: Callable[[], object],
        batch: int,
        hold_s: float,
        count_max: int,
        bytes_max: int,
        bad: BadRecords,
    ) -> None:
        self.queue = queue
        self.position = offset
        self.next_offset = offset
        self.refusal: BrokerError | None = None
        self.last_pull_ms = 0
        self._instance = instance
        self._group = group
        self._subscription = subscription
        self._arrived = arrived
        self._batch = batch
        self._hold_s = hold_s
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._cache: deque[StoredMessage] = deque()
        self._cached_bytes = 0
        self._reader = MASTER_ID
        self._paused = False
        self._bad = bad
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def cached(self) -> int:
        return len(self._cache)

    @property
    def cached_bytes(self) -> int:
        return self._cached_bytes

    def start(self) -> None:
        if self._task is None:
            self._task = self._instance.spawn(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._room.set()

    def seek(self, offset: int) -> None:
        """Go on there; what was fetched is forgotten."""
        self.stop()
        self._cache.clear()
        self._cached_bytes = 0
        self.position = self.next_offset = offset
        self.refusal = None
        self.start()

    def peek(self) -> StoredMessage | None:
        return self._cache[0] if self._cache and not self._paused else None

    def take(self) -> None:
        """Hand out what `peek` showed."""
        message = self._cache.popleft()
        self._cached_bytes -= len(message.body)
        self.position = message.queue_offset + 1 if self._cache else self.next_offset
        self._room.set()

    def take_refusal(self) -> BrokerError | None:
        refusal, self.refusal = self.refusal, None
        return refusal

    async def _run(self) -> None:
        while True:
            while self._paused or self._is_full():
                self._room.clear()
                await self._room.wait()
            try:
                await self._pull()
            except BrokerError as error:
                if error.code == Response.FLOW_CONTROL:
                    await sleep(self._instance.clock, FLOW_CONTROL_S)
                    continue
                self.refusal = error
                self._arrived()
                await sleep(self._instance.clock, ERROR_S)
            except Unreadable as error:
                following = self._bad.failed(error, self.next_offset, self._bad.count_max(self._batch))
                if following is None:
                    logger.warning(
                        "fail pull group=%s topic=%s broker=%s queue=%d offset=%d cause=%s",
                        self._group, self.queue.topic, self.queue.broker_name, self.queue.queue_id, self.next_offset,
                        error,
                    )  # fmt: skip
                    await sleep(self._instance.clock, ERROR_S)
                    continue
                self.next_offset = following
                if not self._cache:
                    self.position = following
            except CometError as error:
                logger.warning(
                    "fail pull group=%s topic=%s broker=%s queue=%d cause=%s",
                    self._group, self.queue.topic, self.queue.broker_name, self.queue.queue_id, error,
                )  # fmt: skip
                await sleep(self._instance.clock, ERROR_S)

    def _is_full(self) -> bool:
        return len(self._cache) >= self._count_max or self._cached_bytes >= self._bytes_max

    async def _pull(self) -> None:
        self.last_pull_ms = self._instance.clock.now_ms()
        result = await pull_request.pull(
            self._instance,
            self.queue,
            self._group,
            self.next_offset,
            subscription=self._subscription,
            count_max=self._bad.count_max(self._batch),
            suspend_s=self._hold_s,
            timeout_s=self._hold_s + 10,
            broker_id=self._reader,
            lite=True,
        )
        self._reader = result.suggested_broker_id
        self._bad.passed(result.next_offset)
        if result.status is PullStatus.ILLEGAL:
            logger.warning(
                "move group=%s topic=%s broker=%s queue=%d from=%d to=%d: the queue has nothing there",
                self._group, self.queue.topic, self.queue.broker_name, self.queue.queue_id, self.next_offset,
                result.next_offset,
            )  # fmt: skip
        self.next_offset = result.next_offset
        self.refusal = None
        for message in result.messages:
            self._cache.append(message)
            self._cached_bytes += len(message.body)
        if not self._cache:
            self.position = self.next_offset
        if result.messages:
            self._arrived()


async def sleep(clock: Clock, delay_s: float) -> None:
    """By a clock that a test may move."""
    over = asyncio.Event()
    timer = clock.call_later(delay_s, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
