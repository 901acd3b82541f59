"""The pull consumer: the program decides when messages come, from where, and when that is remembered.

    async with client.pull_consumer("audit-cg", auto_commit=False) as consumer:
        await consumer.assign(await consumer.queues("orders"))     or: await consumer.subscribe("orders")
        await consumer.seek(consumer.assignment[0], timestamp=yesterday)
        batch = await consumer.poll(max_messages=100, timeout=5.0)
        await consumer.commit(batch.positions)

    assign       these queues, whoever else reads them
    subscribe    our share of a topic's queues among the members of the group, looked at every 20 s and when it changes

One of the two for the life of the object. With `auto_commit` what a poll gave counts as done when the next poll is
asked for, or when the consumer is stopped without an error; it is stored every `commit_interval`. So a crash repeats
messages and loses none.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Self, TypedDict, TypeVar

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import strip, wire_group, wrap
from cometmq.client.cluster.queue_client import QueueClient
from cometmq.client.codecs import Codec
from cometmq.client.consume import allocation
from cometmq.client.consume.allocation import Average, Strategy
from cometmq.client.consume.fetching import Fetcher
from cometmq.client.consume.offsets import RemoteOffsets
from cometmq.client.consume.pull_request import BadRecords
from cometmq.client.consume.starts import Starts
from cometmq.client.consume.subscriptions import subscribe
from cometmq.client.messages import Message, received
from cometmq.client.options import BAD_RECORDS, MIB, ClientOptions, StartFrom, need_choice
from cometmq.errors import CodecError, CometError, ConfigError, NotRunning
from cometmq.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerList,
    ConsumerRunningInfo,
    MessageQueue,
    ProcessQueueInfo,
    SubscriptionData,
)
from cometmq.wire.codes import Request
from cometmq.wire.headers import GetConsumerList
from cometmq.wire.record.message import StoredMessage

logger = logging.getLogger(__name__)

T = TypeVar("T")

REBALANCE_RETRY_S: Final = 1.0


class Edge(Enum):
    BEGIN = "the first message that is there"
    END = "behind the last"


@dataclass(frozen=True, slots=True)
class PullOptions:
    """start                      where a queue begins of which no offset is stored
    auto_commit, commit_interval  store what was handed out, how often
    prefetch, prefetch_bytes      most of a queue that is held here
    pull_batch, poll_hold         messages per pull; how long a broker holds one that finds nothing
    bad_records, bad_record_tries
                                  a message that cannot be read is tried so often, then "skip"ped or "block"ing
    allocation, rebalance_interval  of `subscribe`: how members share the queues, how often that is looked at
    """

    start: StartFrom | datetime = StartFrom.LAST
    auto_commit: bool = True
    commit_interval: float = 5.0
    prefetch: int = 1000
    prefetch_bytes: int = 100 * MIB
    pull_batch: int = 32
    poll_hold: float = 15.0
    bad_records: str = "skip"
    bad_record_tries: int = 5
    allocation: Strategy = field(default_factory=Average)
    rebalance_interval: float = 20.0

    def __post_init__(self) -> None:
        for name in ("commit_interval", "prefetch", "prefetch_bytes", "poll_hold", "rebalance_interval"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be more than 0")
        need_choice("bad_records", self.bad_records, BAD_RECORDS)
        if not 1 <= self.bad_record_tries <= 1_000_000:
            raise ConfigError(f"bad_record_tries is {self.bad_record_tries}, allowed are 1 to 1000000")
        if not 1 <= self.pull_batch <= 1024:
            raise ConfigError(f"pull_batch is {self.pull_batch}, allowed are 1 to 1024")


class PullKeywords(TypedDict, total=False):
    """`PullOptions` as keyword arguments; compared by a test."""

    start: StartFrom | datetime
    auto_commit: bool
    commit_interval: float
    prefetch: int
    prefetch_bytes: int
    pull_batch: int
    poll_hold: float
    bad_records: str
    bad_record_tries: int
    allocation: Strategy
    rebalance_interval: float


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """What one poll gave. `positions` are what to commit when all of it is done: the next offset of each queue."""

    messages: tuple[Message[T], ...] = ()
    positions: Mapping[MessageQueue, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message[T]]:
        return iter(self.messages)


class PullConsumer(Generic[T]):
    """Made by `Client.pull_consumer()`; to be used with `async with`. Queues are as users name them."""

    BEGIN: ClassVar[Edge] = Edge.BEGIN
    END: ClassVar[Edge] = Edge.END

    consume_type: Final = "CONSUME_ACTIVELY"
    message_model: Final = "CLUSTERING"

    def __init__(
        self,
        group: str,
        codec: Codec[T],
        options: PullOptions | None = None,
        *,
        instance: Instance | None = None,
        namesrv: str | None = None,
    ) -> None:
        self._owns_instance = instance is None
        self.instance = instance if instance is not None else Instance(ClientOptions(namesrv))
        self._at_broker = QueueClient(self.instance)
        self.options = options if options is not None else PullOptions()
        self.codec = codec
        self.group = wire_group(self.instance.namespace, group)
        self._offsets = RemoteOffsets(self.instance, self.group)
        self._starts = Starts(self.instance, self._offsets, self.options.start)
        self._fetchers: dict[MessageQueue, Fetcher] = {}
        self._subscribed: dict[str, SubscriptionData] = {}
        self._assigns = False
        self._turn = 0
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._handed_out: dict[MessageQueue, int] = {}
        self._done: dict[MessageQueue, int] = {}
        self._stored: dict[MessageQueue, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_balancing = False
        self._is_running = False
        self._was_started = False

    # Start and stop

    @property
    def is_running(self) -> bool:
        return self._is_running

    async def start(self) -> None:
        """Join the group. Only once."""
        if self._was_started:
            raise NotRunning(f"consumer {self.group} was started before: make a new one")
        if not self._owns_instance:
            self.instance.check_running()
        self.instance.register_consumer(self)
        self._was_started = True
        try:
            await self.instance.start()
        except BaseException:
            await self.instance.unregister_consumer(self.group)
            raise
        self._is_running = True
        if self.options.auto_commit:
            self.instance.every(f"commit {self.group}", self.options.commit_interval, self._commit_timer)
        logger.info("started pull consumer group=%s", self.group)

    async def stop(self) -> None:
        """Leave the group. With `auto_commit` everything that was handed out is committed. Idempotent."""
        await self._stop(all_done=True)

    async def _stop(self, *, all_done: bool) -> None:
        if not self._is_running:
            return
        self._is_running = False
        self._arrived.set()
        self.instance.cancel_timer(f"commit {self.group}")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.options.auto_commit:
            if all_done:
                self._done.update(self._handed_out)
            await self._store_done()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        await self.instance.unregister_consumer(self.group)
        if self._owns_instance:
            await self.instance.stop()
        logger.info("stopped pull consumer group=%s", self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(all_done=error is None)

    # Which queues

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """Queues that are read now."""
        return tuple(self._shown(queue) for queue in sorted(self._fetchers))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of a topic that can be read. NoRoute."""
        self._need_running()
        route = await self.instance.refresh_route(wrap(self.instance.namespace, topic))
        return [self._shown(queue) for queue in route.subscribe]

    async def assign(self, queues: Iterable[MessageQueue], tags: str | None = None, *, sql: str | None = None) -> None:
        """Read exactly these from now on; queues that stay keep their place."""
        self._need_running()
        if self._subscribed:
            raise ConfigError("this consumer subscribes: assign and subscribe exclude each other, make another one")
        self._assigns = True
        wanted = {self._wired(queue) for queue in queues}
        for topic in {queue.topic for queue in wanted}:
            await self.instance.route(topic)
        await self._drop(self._fetchers.keys() - wanted)
        version = self.instance.clock.now_ms()
        await self._take(wanted - self._fetchers.keys(), lambda topic: subscribe(topic, tags, sql, version))

    async def subscribe(self, topic: str, tags: str | None = None, *, sql: str | None = None) -> None:
        """Read our share of a topic; returns when it is known. NoRoute. May be called for several topics."""
        self._need_running()
        if self._assigns:
            raise ConfigError("this consumer was assigned queues: assign and subscribe exclude each other")
        name = wrap(self.instance.namespace, topic)
        await self.instance.route(name)
        self._subscribed[name] = subscribe(name, tags, sql, self.instance.clock.now_ms())
        await self._drop({queue for queue in self._fetchers if queue.topic == name})
        await self.instance.heartbeat()
        await self._rebalance()
        if not self._is_balancing:
            self._is_balancing = True
            self._spawn(self._keep_balanced())

    def pause(self, *queues: MessageQueue) -> None:
        """Take nothing from these, or from all, until `resume`. Their place is kept."""
        self._pause(queues, True)

    def resume(self, *queues: MessageQueue) -> None:
        self._pause(queues, False)

    def _pause(self, queues: tuple[MessageQueue, ...], paused: bool) -> None:
        for fetcher in [self._fetcher(queue) for queue in queues] or self._fetchers.values():
            fetcher.pause(paused)
        self._arrived.set()

    # Messages

    async def poll(self, max_messages: int = 100, timeout: float = 5.0) -> Batch[T]:  # noqa: ASYNC109
        """Messages that are there, from all queues in turn; waits up to `timeout` seconds for the first.

        An empty batch means that nothing came. BrokerError if a broker refuses to give messages, CodecError for a
        message that cannot be decoded: seek past it.
        """
        self._need_running()
        if max_messages < 1:
            raise ConfigError(f"max_messages is {max_messages}, the least is 1")
        self._done.update(self._handed_out)
        timer = self.instance.clock.call_later(timeout, self._over)
        deadline_s = self.instance.clock.monotonic() + timeout
        try:
            while True:
                self._arrived.clear()
                batch = self._take_batch(max_messages)
                if batch or self.instance.clock.monotonic() >= deadline_s:
                    return batch
                self._raise_refusal()
                await self._arrived.wait()
                self._need_running()
        finally:
            timer.cancel()

    def _over(self) -> None:
        self._arrived.set()

    def _take_batch(self, max_messages: int) -> Batch[T]:
        fetchers = list(self._fetchers.values())
        messages: list[Message[T]] = []
        positions: dict[MessageQueue, int] = {}
        for index in range(len(fetchers)):
            fetcher = fetchers[(self._turn + index) % len(fetchers)]
            while len(messages) < max_messages and (stored := fetcher.peek()) is not None:
                try:
                    messages.append(received(stored, fetcher.queue.broker_name, self.codec, self.instance.namespace))
                except CodecError as error:
                    if messages:
                        break
                    place = f"queue {fetcher.queue.broker_name}-{fetcher.queue.queue_id}"
                    raise CodecError(f"{error} ({place}, offset {stored.queue_offset}: seek past it)") from error
                fetcher.take()
                positions[self._shown(fetcher.queue)] = fetcher.position
                self._handed_out[fetcher.queue] = fetcher.position
        self._turn += 1
        return Batch(tuple(messages), positions)

    def _raise_refusal(self) -> None:
        for fetcher in self._fetchers.values():
            refusal = fetcher.take_refusal()
            if refusal is not None:
                raise refusal

    # Offsets

    def position(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue has, or more."""
        return self._fetcher(queue).position

    async def seek(
        self, queue: MessageQueue, offset: int | Edge | None = None, *, timestamp: datetime | None = None
    ) -> int:
        """Go on at an offset, at BEGIN or END, or at the first message stored at a time or later. Gives the offset.

        ConfigError for an offset that the queue does not have.
        """
        fetcher = self._fetcher(queue)
        if (offset is None) == (timestamp is None):
            raise ConfigError("give an offset or a timestamp")
        target = await self._at_broker.at(fetcher.queue, timestamp) if timestamp is not None else offset
        if target is Edge.BEGIN:
            target = await self.begin_offset(queue)
        elif target is Edge.END:
            target = await self.end_offset(queue)
        elif timestamp is None:
            low, high = await self.begin_offset(queue), await self.end_offset(queue)
            if not isinstance(target, int) or not low <= target <= high:
                raise ConfigError(f"offset {target} of queue {queue.broker_name}-{queue.queue_id}: has {low} to {high}")
        assert isinstance(target, int)
        for known in (self._handed_out, self._done):
            known.pop(fetcher.queue, None)
        fetcher.seek(target)
        return target

    async def commit(self, positions: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets, of a batch or of everything that was handed out. The brokers have them when this returns.

        CometError if one does not take them; those before it are stored.
        """
        self._need_running()
        if positions is None:
            given = dict(self._handed_out)
        else:
            given = {self._wired(queue): offset for queue, offset in positions.items()}
        for queue in given:
            await self.instance.route(queue.topic)
        await asyncio.gather(*[self._offsets.commit(queue, offset) for queue, offset in given.items()])
        self._stored.update(given)

    async def committed(self, queue: MessageQueue) -> int | None:
        """What is stored for the group; None if nothing is."""
        self._need_running()
        return await self._at_broker.committed(self.group, self._wired(queue))

    async def begin_offset(self, queue: MessageQueue) -> int:
        self._need_running()
        return await self._at_broker.begin(self._wired(queue))

    async def end_offset(self, queue: MessageQueue) -> int:
        """Behind the last message that can be read."""
        self._need_running()
        return await self._at_broker.end(self._wired(queue))

    async def lag(self) -> dict[MessageQueue, int]:
        """Messages of every assigned queue that were not handed out yet."""
        queues = self.assignment
        ends = await asyncio.gather(*[self.end_offset(queue) for queue in queues])
        return {queue: max(0, end - self.position(queue)) for queue, end in zip(queues, ends, strict=True)}

    async def _start_offset(self, queue: MessageQueue) -> int:
        return await self._starts.of(queue) or await self._at_broker.begin(queue)

    def _commit_timer(self) -> None:
        self._spawn(self._store_done())

    async def _store_done(self) -> None:
        """Store what is new among what is done; what fails is tried again next time."""
        for queue, offset in list(self._done.items()):
            if self._stored.get(queue) != offset:
                try:
                    await self._offsets.commit(queue, offset)
                    self._stored[queue] = offset
                except CometError as error:
                    logger.warning("fail commit group=%s topic=%s cause=%s", self.group, queue.topic, error)

    # Shares

    async def _keep_balanced(self) -> None:
        delay_s = self.options.rebalance_interval
        while True:
            timer = self.instance.clock.call_later(delay_s, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()
            self._changed.clear()
            delay_s = self.options.rebalance_interval
            try:
                await self._rebalance()
            except CometError as error:
                logger.warning("fail rebalance group=%s cause=%s", self.group, error)
                delay_s = REBALANCE_RETRY_S

    async def _rebalance(self) -> None:
        share: set[MessageQueue] = set()
        for topic in self._subscribed:
            route = await self.instance.route(topic)
            address = self.instance.brokers.any_of(route)
            if address is None or not route.subscribe:
                continue
            header = GetConsumerList(self.group)
            command = self.instance.request(Request.GET_CONSUMER_LIST_BY_GROUP, header.encode())
            response = await self.instance.ask(address, command, self.instance.options.call_timeout)
            members = ConsumerList.decode(response.body).consumer_id_list
            if members:
                share.update(
                    allocation.share(self.options.allocation, self.instance.client_id, route.subscribe, members)
                )
        await self._drop(self._fetchers.keys() - share)
        await self._take(share - self._fetchers.keys(), self._subscribed.__getitem__)

    async def _drop(self, queues: Collection[MessageQueue]) -> None:
        """Give queues up; what is done of them is stored first, for whoever has them next."""
        for queue in list(queues):
            self._fetchers.pop(queue).stop()
        if queues and self.options.auto_commit:
            await self._store_done()
        for queue in queues:
            for known in (self._handed_out, self._done, self._stored):
                known.pop(queue, None)

    async def _take(self, queues: Collection[MessageQueue], subscription_of: Callable[[str], SubscriptionData]) -> None:
        ordered = sorted(queues)
        offsets = await asyncio.gather(*[self._start_offset(queue) for queue in ordered])
        options = self.options
        for queue, offset in zip(ordered, offsets, strict=True):
            fetcher = Fetcher(
                self.instance,
                self.group,
                queue,
                subscription_of(queue.topic),
                offset,
                arrived=self._arrived.set,
                batch=options.pull_batch,
                hold_s=options.poll_hold,
                count_max=options.prefetch,
                bytes_max=options.prefetch_bytes,
                bad=BadRecords(self.group, queue, options.bad_record_tries, options.bad_records),
            )
            self._fetchers[queue] = fetcher
            fetcher.start()

    # What brokers ask

    @property
    def start_from(self) -> str:
        start = self.options.start
        return start.value if isinstance(start, StartFrom) else "CONSUME_FROM_TIMESTAMP"

    def subscriptions(self) -> list[SubscriptionData]:
        return list(self._subscribed.values())

    def on_members_changed(self) -> None:
        self._changed.set()

    async def on_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            fetcher = self._fetchers.get(queue)
            if fetcher is not None:
                for known in (self._handed_out, self._done):
                    known.pop(queue, None)
                fetcher.seek(offset)
                await self._offsets.commit(queue, offset)

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: it.position for queue, it in self._fetchers.items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        table = {
            queue: ProcessQueueInfo(
                cached_msg_count=fetcher.cached,
                cached_msg_size_mib=fetcher.cached_bytes // MIB,
                commit_offset=self._stored.get(queue, 0),
                last_pull_timestamp=fetcher.last_pull_ms,
            )
            for queue, fetcher in self._fetchers.items()
        }
        properties = {"PROP_CONSUME_TYPE": self.consume_type, "PROP_CONSUMEORDERLY": "false"}
        return ConsumerRunningInfo(mq_table=table, properties=properties, subscription_set=self.subscriptions())

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeMessageDirectlyResult:
        return ConsumeMessageDirectlyResult(
            consume_result="CR_THROW_EXCEPTION", remark="a pull consumer has no handler: its program asks for messages"
        )

    # How

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.instance.spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _need_running(self) -> None:
        if not self._is_running:
            raise NotRunning(f"consumer {self.group} is not running: use `async with client.pull_consumer(...)`")

    def _fetcher(self, queue: MessageQueue) -> Fetcher:
        self._need_running()
        fetcher = self._fetchers.get(self._wired(queue))
        if fetcher is None:
            raise ConfigError(f"queue {queue.broker_name}-{queue.queue_id} of topic {queue.topic} is not assigned")
        return fetcher

    def _wired(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(queue.broker_name, queue.queue_id, wrap(self.instance.namespace, queue.topic))

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(queue.broker_name, queue.queue_id, strip(self.instance.namespace, queue.topic))
