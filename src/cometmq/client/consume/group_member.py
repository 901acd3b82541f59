"""A member of a consumer group: what push consumers and the async iterator are made of.

    start    local offsets -> client's own producer -> group registered -> routes -> filters checked -> heartbeat
             -> first rebalance: a new group begins where its queues end now, and not later
                                                                            an error on the way undoes what was done
    stop     no more pulls -> handlers drained -> offsets stored -> locks released -> group left

    subscribed   what the next heartbeat announces         by topic; %RETRY%group among them
    announced    what brokers have been told: pulls name its version, so they are never ahead of a heartbeat
    queues       the caches of the queues that are ours
    lanes        by topic, who takes what was pulled

All names are those on the wire.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import strip, wire_group
from cometmq.client.consume.delivery import Delivery, TraceHook, Workers, reply_body
from cometmq.client.consume.failures import EXPIRED, Cause, log_failed
from cometmq.client.consume.handlers import Handler
from cometmq.client.consume.offsets import LocalOffsets, Offsets, RemoteOffsets
from cometmq.client.consume.outcomes import DEAD_LETTER, Verdict
from cometmq.client.consume.process_queue import LOST, Held, ProcessQueue
from cometmq.client.consume.pull_loop import PullLoop
from cometmq.client.consume.rebalance import QueueLocks, Rebalance
from cometmq.client.consume.reports import consume_directly, running_info
from cometmq.client.consume.send_back import inner_producer, send_back, send_copy
from cometmq.client.consume.starts import Starts
from cometmq.client.consume.subscriptions import SQL92
from cometmq.client.messages import Message
from cometmq.client.options import ConsumerOptions
from cometmq.client.traces import ConsumeTrace, Tracer
from cometmq.clock import Timer
from cometmq.errors import CometError, ConfigError, NoRoute, NotRunning
from cometmq.names import retry_topic
from cometmq.wire.bodies import (
    CheckClientConfig,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    MessageQueue,
    SubscriptionData,
)
from cometmq.wire.codes import Request
from cometmq.wire.record.message import StoredMessage

logger = logging.getLogger(__name__)

FORBIDDEN_GROUP: Final = "DEFAULT_CONSUMER"
FIRST_RENEWAL_S: Final = 1.0
CHECK_LIMIT_S: Final = 3.0
EXPIRED_LEVEL: Final = 3
EXPIRED_AT_ONCE: Final = 16

NEW: Final = "new"
STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPED: Final = "stopped"

QueueListener: TypeAlias = Callable[[str, set[MessageQueue], set[MessageQueue]], object]


class Bounds(NamedTuple):
    """How much of one queue may be cached."""

    messages_max: int
    bytes_max: int
    span_max: int


class Lane(Protocol):
    """Takes what was pulled of a topic."""

    handler: Handler

    def submit(self, queue: ProcessQueue, held: Sequence[Held]) -> None: ...


class Member:
    def __init__(self, instance: Instance, group: str, options: ConsumerOptions) -> None:
        self.instance = instance
        self.clock = instance.clock
        self.options = options
        self.group = wire_group(instance.namespace, group)
        self.shown_group = strip(instance.namespace, self.group)
        if group == FORBIDDEN_GROUP:
            raise ConfigError(f"consumer group {group} is everybody's default: choose one of your own")
        self.retry_topic = retry_topic(self.group)
        self.subscribed: dict[str, SubscriptionData] = {}
        self.announced: dict[str, SubscriptionData] = {}
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self.lanes: dict[str, Lane] = {}
        self.retry_lane: Callable[[ProcessQueue, Sequence[Held]], None] | None = None
        self.offsets: Offsets = (
            LocalOffsets(instance.stable_id, self.group, options.offsets_dir)
            if options.broadcast
            else RemoteOffsets(instance, self.group)
        )
        self._starts = Starts(instance, self.offsets, options.start)
        self.locks = QueueLocks(instance, self.group, options.lock_timeout, options.lock_expiry)
        self.delivery = Delivery(
            self.group, instance.namespace, self.clock, options.consume_timeout, self.executor, self.reply
        )
        self.figures = self.delivery.figures
        self.workers = Workers(options.concurrency, instance.spawn)
        self.rebalance = Rebalance(self)
        self.bounds = Bounds(options.prefetch, options.prefetch_bytes, options.prefetch_span)
        self.is_paused = False
        self.started_ms = 0
        self.state = NEW
        self._pulls: dict[MessageQueue, PullLoop] = {}
        self._fresh: list[PullLoop] = []
        self._timers: set[Timer] = set()
        self._listeners: list[QueueListener] = []
        self._rebalancing: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._finding: set[str] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._tracer: Tracer | None = None
        if options.trace:
            self._tracer = Tracer(instance, self.group, options.trace_topic)
            self.delivery.hooks.add(TraceHook(ConsumeTrace(self._tracer)))

    # What brokers are told

    @property
    def consume_type(self) -> str:
        return "CONSUME_PASSIVELY"

    @property
    def message_model(self) -> str:
        return "BROADCASTING" if self.options.broadcast else "CLUSTERING"

    @property
    def start_from(self) -> str:
        start = self.options.start
        return "CONSUME_FROM_TIMESTAMP" if isinstance(start, datetime) else str(start.value)

    def subscriptions(self) -> list[SubscriptionData]:
        return list(self.subscribed.values())

    # Start and stop

    @property
    def is_running(self) -> bool:
        return self.state in (STARTING, RUNNING)

    async def start(self) -> None:
        """Once. After a group name that is taken it may be tried again; any other failure is final."""
        if self.state != NEW:
            raise NotRunning(f"consumer {self.shown_group} was started before: make a new one")
        self.instance.check_running()
        if not self.lanes:
            raise ConfigError(f"consumer {self.shown_group} subscribes to nothing: name a topic before it starts")
        self.instance.register_consumer(self)
        self.state = STARTING
        self.started_ms = self.clock.now_ms()
        try:
            await self._begin()
        except BaseException:
            await self.stop(0)
            raise
        if self.state != STARTING:
            raise NotRunning(f"consumer {self.shown_group} was stopped while it started")
        self.state = RUNNING
        logger.info("started consumer group=%s topics=%s", self.group, ",".join(self.subscribed))

    async def _begin(self) -> None:
        await self.offsets.load()
        await inner_producer(self.instance)
        for topic, subscription in list(self.subscribed.items()):
            await self._prepare(topic, subscription)
        await self._announce()
        self.instance.every(self._timer("commit"), self.options.commit_interval, self._commit_soon)
        self.instance.every(self._timer("expiry"), self.options.consume_timeout, self._look_for_expired)
        self.instance.every(self._timer("locks"), self.options.lock_interval, self._renew_soon, FIRST_RENEWAL_S)
        self._rebalancing = self.instance.spawn(self.rebalance.run())
        await self.rebalance.first_round()

    async def _prepare(self, topic: str, subscription: SubscriptionData) -> None:
        """Learn the route, and let a broker check an expression. A topic that nobody knows yet may come later."""
        try:
            route = await self.instance.route(topic)
        except NoRoute as error:
            if topic != self.retry_topic:
                logger.warning("await topic group=%s topic=%s cause=%s", self.group, topic, error)
            return
        address = self.instance.brokers.any_of(route)
        if subscription.expression_type == SQL92 and address is not None:
            body = CheckClientConfig(
                client_id=self.instance.client_id, group=self.group, subscription_data=subscription
            ).encode()
            await self.instance.ask(
                address, self.instance.request(Request.CHECK_CLIENT_CONFIG, {}, body), CHECK_LIMIT_S
            )

    async def stop(self, drain_s: float | None = None) -> None:
        """Idempotent. Messages whose handlers did not end in time are delivered again, to whoever is next."""
        if self.state in (NEW, STOPPED):
            return
        self.state = STOPPED
        for name in ("commit", "expiry", "locks"):
            self.instance.cancel_timer(self._timer(name))
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for pull in self._pulls.values():
            pull.stop()
        if self._rebalancing is not None:
            self._rebalancing.cancel()
            await asyncio.gather(self._rebalancing, return_exceptions=True)
        if not await self.workers.stop(self.options.drain_timeout if drain_s is None else drain_s):
            logger.warning("cancel handlers group=%s: longer than drain_timeout", self.group)
        await self.release(list(self.queues.values()))
        await self.locks.unlock(self.rebalance.unused_locks)
        await self.instance.unregister_consumer(self.group)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._tracer is not None:
            await self._tracer.stop()
        logger.info("stopped consumer group=%s", self.group)

    def _timer(self, name: str) -> str:
        return f"{name} of consumer {self.group}"

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Once, unless we stop before."""
        if not self.is_running:
            return

        def act() -> None:
            self._timers.discard(timer)
            action()

        timer = self.clock.call_later(delay_s, act)
        self._timers.add(timer)

    # Subscriptions

    def subscribe(self, subscription: SubscriptionData, lane: Lane) -> None:
        topic = subscription.topic or ""
        if topic in self.subscribed:
            raise ConfigError(f"topic {strip(self.instance.namespace, topic)} has a handler in this consumer already")
        subscription.sub_version = self.clock.now_ms()
        self.subscribed[topic] = subscription
        self.lanes[topic] = lane
        if self.is_running:
            self.instance.spawn(self._subscribe_now(topic, subscription))

    async def _subscribe_now(self, topic: str, subscription: SubscriptionData) -> None:
        try:
            await self._prepare(topic, subscription)
        except CometError as error:
            logger.error("refuse subscription group=%s topic=%s cause=%s", self.group, topic, error)
            self.unsubscribe(topic)
        else:
            await self._announce()
        # To take its queues; or to give up what a rebalance took while the broker looked at the expression.
        self.rebalance.wake()

    def subscribe_retries(self, deliver: Callable[[ProcessQueue, Sequence[Held]], None]) -> None:
        """Every clustering consumer gets what its group sent back."""
        if not self.options.broadcast:
            self.subscribed[self.retry_topic] = SubscriptionData(
                topic=self.retry_topic, sub_string="*", sub_version=self.clock.now_ms()
            )
            self.retry_lane = deliver

    def unsubscribe(self, topic: str) -> None:
        """Queues are given up at the next rebalance."""
        self.subscribed.pop(topic, None)

    async def _announce(self) -> None:
        told = dict(self.subscribed)  # what changes while the heartbeat is on its way is not told yet
        await self.instance.heartbeat()
        self.announced = told

    def is_ordered(self, topic: str) -> bool:
        lane = self.lanes.get(topic)
        return lane is not None and lane.handler.ordered

    def is_locking(self, topic: str) -> bool:
        return self.is_ordered(topic) and not self.options.broadcast

    # Queues

    def owned(self) -> list[MessageQueue]:
        """Our queues as users know them."""
        return sorted(self._shown(queue) for queue, held in self.queues.items() if held.is_owned)

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(queue.broker_name, queue.queue_id, strip(self.instance.namespace, queue.topic))

    def on_members_changed(self) -> None:
        self.rebalance.wake()

    async def start_offset(self, queue: MessageQueue) -> int:
        """Kept at once: what the next member finds must not lie behind messages that this one only began."""
        offset = await self._starts.of(queue)
        self.offsets.update(queue, offset)
        return offset

    def adopt(self, queue: ProcessQueue, offset: int) -> None:
        """A queue is ours; its pulls begin when brokers know of it."""
        logger.info(
            "take queue group=%s topic=%s broker=%s queue=%d offset=%d",
            self.group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id, offset,
        )  # fmt: skip
        self.queues[queue.queue] = queue
        pull = PullLoop(self, queue, offset, self.is_ordered(queue.queue.topic))
        self._pulls[queue.queue] = pull
        self._fresh.append(pull)

    async def on_assigned(self, topic: str, all_queues: set[MessageQueue], share: set[MessageQueue]) -> None:
        """The queues of a topic changed: new version, new bounds, heartbeat; then new queues are pulled."""
        subscription = self.subscribed.get(topic)
        if subscription is not None:
            self.subscribed[topic] = msgspec.structs.replace(subscription, sub_version=self.clock.now_ms())
        self.bounds = self._divide()
        await self._announce()
        fresh, self._fresh = self._fresh, []
        for pull in fresh:
            pull.start(self.options.first_pull_delay)
        for listener in self._listeners:
            try:
                every, mine = {self._shown(queue) for queue in all_queues}, {self._shown(queue) for queue in share}
                listener(strip(self.instance.namespace, topic), every, mine)
            except Exception:
                logger.exception("fail queue listener group=%s topic=%s", self.group, topic)

    def _divide(self) -> Bounds:
        options, count = self.options, max(1, len(self.queues))
        most, most_bytes = options.prefetch_topic, options.prefetch_topic_bytes
        return Bounds(
            options.prefetch if most is None else max(1, most // count),
            options.prefetch_bytes if most_bytes is None else max(1, most_bytes // count),
            options.prefetch_span,
        )

    async def release(self, queues: Sequence[ProcessQueue]) -> None:
        """Store the offsets of queues that leave, free their locks, forget them."""
        ordered = [it for it in queues if self.is_locking(it.queue.topic)]
        lost = [it for it in ordered if it.state == LOST]  # somebody else may have gone on with these
        freed = [it.queue for it in ordered if it.state != LOST]
        await self.offsets.persist([it.queue for it in queues if it not in lost])
        for queue in queues:
            queue.state = LOST
            self._forget(queue)
        if freed:
            self.rebalance.unused_locks |= set(freed)
            await self.locks.unlock(freed)
            self.rebalance.unused_locks -= set(freed)

    def _forget(self, queue: ProcessQueue) -> None:
        if self.queues.get(queue.queue) is not queue:
            return
        logger.info(
            "leave queue group=%s topic=%s broker=%s queue=%d",
            self.group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id,
        )  # fmt: skip
        del self.queues[queue.queue]
        self._pulls.pop(queue.queue).stop()
        self.offsets.forget(queue.queue)
        queue.clear()

    def repair(self, queue: ProcessQueue, offset: int) -> None:
        """The broker says that our offset is none of its own: take the queue anew, from where it says."""
        queue.state = LOST
        self.offsets.freeze(queue.queue, offset)
        self.instance.spawn(self._repair(queue))

    async def _repair(self, queue: ProcessQueue) -> None:
        await self.offsets.persist([queue.queue])
        if not queue.is_busy:  # else the round after its handler does it
            self._forget(queue)
        self.rebalance.wake()

    def find_route(self, topic: str) -> None:
        """Nobody knows where a queue's broker is: ask again, once at a time."""
        if topic not in self._finding:
            self._finding.add(topic)
            task = self.instance.spawn(self.instance.refresh_route(topic))
            task.add_done_callback(lambda _: self._finding.discard(topic))

    # Messages

    def submit(self, queue: ProcessQueue, held: Sequence[Held]) -> None:
        if not held:
            return
        if queue.queue.topic == self.retry_topic and self.retry_lane is not None:
            self.retry_lane(queue, held)
            return
        self.lanes[queue.queue.topic].submit(queue, held)

    async def call(self, handler: Handler, queue: ProcessQueue, held: Sequence[Held]) -> Verdict:
        return await self.delivery.call(handler, queue, held)

    def executor(self) -> Executor:
        if self.options.executor is not None:
            return self.options.executor
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.options.concurrency, f"cometmq {self.shown_group}")
        return self._threads

    async def reply(self, message: Message[Any], value: object) -> None:
        producer = await inner_producer(self.instance)
        await producer.reply(message, reply_body(value))

    def finish(self, queue: ProcessQueue, held: Sequence[Held]) -> None:
        """These are dealt with: out of the cache, and on with the committed offset."""
        offset = queue.remove(held)
        if offset is not None and queue.is_owned:
            self.offsets.update(queue.queue, offset, increase_only=True)

    async def send_back(self, queue: ProcessQueue, one: Held, delay_level: int, cause: Cause) -> bool:
        log_failed(self.group, one.message, delay_level, self.options.max_retries, cause)
        kept = cause if self.options.keep_cause else None
        return await send_back(
            self.instance, self.group, queue.queue, one.message, delay_level, self.options.max_retries, kept
        )

    async def bury(self, queue: ProcessQueue, one: Held, is_rejected: bool, cause: Cause) -> bool:
        """Make a message of an ordered queue a dead letter. False if no broker took it."""
        if self.options.broadcast:
            logger.warning("skip message group=%s offset=%d: broadcasts have no dead letters", self.group, one.offset)
            return True
        if is_rejected:
            return await self.send_back(queue, one, DEAD_LETTER, cause)
        most = self.options.max_retries or 0
        log_failed(self.group, one.message, DEAD_LETTER, self.options.max_retries, cause)
        times = max(one.message.reconsume_times, most) + 1
        kept = cause if self.options.keep_cause else None
        return await send_copy(self.instance, self.group, one.message, times, most, kept)

    # Locks

    def may_handle(self, queue: ProcessQueue) -> bool:
        """Whether an ordered queue's messages may be handled now."""
        return self.options.broadcast or self.locks.holds(queue)

    def lose(self, queue: ProcessQueue) -> None:
        """Its lock is not ours any more: take it anew."""
        if queue.is_owned:
            logger.warning(
                "lose lock group=%s topic=%s broker=%s queue=%d",
                self.group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id,
            )  # fmt: skip
            queue.state = LOST
            self.rebalance.wake()

    def _renew_soon(self) -> None:
        held = [it for it in self.queues.values() if it.is_owned and self.is_locking(it.queue.topic)]
        if held:
            self.instance.spawn(self._renew(held))

    async def _renew(self, held: list[ProcessQueue]) -> None:
        granted, answered = await self.locks.lock([it.queue for it in held])
        for queue in held:
            if queue.queue in granted and self.locks.holds(queue):
                queue.lock_s = self.clock.monotonic()
            elif queue.queue in answered:
                self.lose(queue)

    # Offsets

    def commit_for_pull(self, queue: MessageQueue) -> int | None:
        return None if self.options.broadcast else self.offsets.read(queue)

    def _commit_soon(self) -> None:
        mine = [queue for queue, held in self.queues.items() if held.may_commit]
        self.instance.spawn(self.offsets.persist(mine, answered=False))

    def _look_for_expired(self) -> None:
        if self._expiring is None or self._expiring.done():
            self._expiring = self.instance.spawn(self._give_back_expired())

    async def _give_back_expired(self) -> None:
        for queue in list(self.queues.values()):
            if not self.is_ordered(queue.queue.topic):
                await self._expire(queue)

    async def _expire(self, queue: ProcessQueue) -> None:
        """Messages that are in their handler for too long go to others; the handler is left alone."""
        limit_s = self.options.consume_timeout
        for _ in range(EXPIRED_AT_ONCE):
            oldest = queue.oldest()
            now_s = self.clock.monotonic()
            if oldest is None or oldest.started_s is None or now_s - oldest.started_s <= limit_s or not queue.is_owned:
                return
            logger.warning(
                "give up message group=%s topic=%s broker=%s queue=%d offset=%d: %d s in its handler",
                self.group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id, oldest.offset,
                now_s - oldest.started_s,
            )  # fmt: skip
            if not self.options.broadcast and not await self.send_back(queue, oldest, EXPIRED_LEVEL, EXPIRED):
                return
            self.finish(queue, [oldest])

    # Asked by a broker

    async def on_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Take our queues anew, from these offsets. Results that come later count for nothing."""
        mine = [self.queues[queue] for queue in offsets if queue.topic == topic and queue in self.queues]
        for queue in mine:
            queue.state = LOST
            self.offsets.freeze(queue.queue, offsets[queue.queue])
        await self.offsets.persist([queue.queue for queue in mine])
        for queue in mine:
            if not queue.is_busy:
                self._forget(queue)
        self.rebalance.wake()

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        known = {queue: self.offsets.read(queue) for queue in self.queues if queue.topic == topic}
        return {queue: offset for queue, offset in known.items() if offset is not None}

    def running_info(self) -> ConsumerRunningInfo:
        return running_info(self)

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeMessageDirectlyResult:
        return await consume_directly(self, message, broker_name)

    def add_queue_listener(self, listener: QueueListener) -> None:
        """`listener(topic, all its queues, ours)` is called when ours change."""
        self._listeners.append(listener)
