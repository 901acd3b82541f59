"""A consumer that is a loop: messages one after the other, at least once.

    async with client.consumer("billing-cg", topics={"orders": "created || paid"}) as consumer:
        async for message in consumer:
            await bill(message.value)

    auto_ack (the default)   a message is done when the loop asks for the next one, or is left without an error; an
                             error that leaves the `async with` sends the message back, to come again later
    auto_ack=False           await message.ack(), message.retry(delay=60) or message.dead_letter(), in any order and
                             from any task; at most `max_unacked` messages wait for that

Several tasks may loop over one consumer: each message goes to one of them. What is fetched and not handed out, or never
acked, is delivered again to whoever has the queue next.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import wire_topic
from cometmq.client.codecs import Codec
from cometmq.client.consume.concurrent import AGAIN_S, give_back
from cometmq.client.consume.delivery import is_fine
from cometmq.client.consume.failures import cause_of
from cometmq.client.consume.group_member import Member
from cometmq.client.consume.handlers import Handler
from cometmq.client.consume.hooks import ConsumeContext, ConsumeHook
from cometmq.client.consume.outcomes import (
    BROKER_DECIDES,
    DEAD_LETTER,
    FAILED,
    OK,
    Outcome,
    Reject,
    Verdict,
    judge_error,
    nearest_level,
)
from cometmq.client.consume.process_queue import Held, ProcessQueue
from cometmq.client.consume.subscriptions import subscribe
from cometmq.client.messages import Message
from cometmq.client.options import ClientOptions, ConsumerOptions
from cometmq.errors import CodecError, ConfigError, NotRunning, WireError
from cometmq.wire.bodies import MessageQueue

logger = logging.getLogger(__name__)

T = TypeVar("T")

# topic -> tags ("*" for all), or just topics
Topics: TypeAlias = "str | Sequence[str] | Mapping[str, str]"

UNACKED_MAX: Final = 256
# How often a consumer that stops looks whether other tasks have finished their messages.
LOOK_S: Final = 0.05


class Delivered(Message[T], Generic[T], frozen=True):
    """A message that its program says the end of. Saying it twice does nothing."""

    slip: "Slip | None" = None

    async def ack(self) -> None:
        """It is done."""
        await self._settle(OK)

    async def retry(self, delay: float | None = None, *, reason: str | None = None) -> None:
        """Deliver it again: after `delay` seconds, rounded to a level of the broker, or as the broker decides.
        `reason` is kept with the message."""
        level = BROKER_DECIDES if delay is None else nearest_level(delay)
        error = Reject(reason) if reason else None
        await self._settle(Verdict(FAILED, Outcome.LATER, delay_level=level, error=error))

    async def dead_letter(self, reason: str | None = None) -> None:
        """Do not deliver it again. `reason` is kept with the message."""
        error = Reject(reason) if reason else None
        await self._settle(Verdict(FAILED, Outcome.LATER, delay_level=DEAD_LETTER, error=error))

    async def _settle(self, verdict: Verdict) -> None:
        if self.slip is not None:
            await self.slip.settle(verdict)


class Slip:
    """What ties a delivered message to the cache that it came from."""

    __slots__ = ("_consumer", "_is_settled", "context", "held", "queue")

    def __init__(self, consumer: "Consumer[Any]", queue: ProcessQueue, held: Held) -> None:
        self._consumer = consumer
        self._is_settled = False
        self.queue = queue
        self.held = held
        self.context: ConsumeContext | None = None

    async def settle(self, verdict: Verdict) -> None:
        if not self._is_settled:
            self._is_settled = True
            await self._consumer.settle(self, verdict)

    def __repr__(self) -> str:
        return f"Slip(settled={self._is_settled})"


class Consumer(Generic[T]):
    """Made by `Client.consumer()`; on its own, with `namesrv=`, it has a private client."""

    def __init__(
        self,
        group: str,
        topics: Topics,
        codec: Codec[T],
        options: ConsumerOptions | None = None,
        *,
        auto_ack: bool = True,
        max_unacked: int = UNACKED_MAX,
        instance: Instance | None = None,
        namesrv: str | None = None,
    ) -> None:
        if max_unacked < 1:
            raise ConfigError(f"max_unacked is {max_unacked}, the least is 1")
        self._owns_instance = instance is None
        self.instance = instance if instance is not None else Instance(ClientOptions(namesrv))
        self.options = options if options is not None else ConsumerOptions()
        self.codec = codec
        self.auto_ack = auto_ack
        self.max_unacked = max_unacked
        self.unacked = 0
        self._ready: deque[tuple[ProcessQueue, Held]] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loops: dict[asyncio.Task[Any] | None, Loop[T]] = {}
        self._is_stopping = False
        self._failed = False  # the last message could not be made
        self._returning: set[asyncio.Task[None]] = set()
        self._member = Member(self.instance, group, self.options)
        self._member.subscribe_retries(self.submit)
        self.handler = Handler(_no_handler)
        for topic, tags in _subscriptions(topics).items():
            self._member.subscribe(subscribe(wire_topic(self.instance.namespace, topic), tags), self)

    @property
    def group(self) -> str:
        return self._member.shown_group

    @property
    def is_running(self) -> bool:
        return self._member.is_running

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that are ours at present."""
        return self._member.owned()

    def add_hook(self, hook: ConsumeHook) -> None:
        """Be told when a message is handed out and when it is settled."""
        self._member.delivery.hooks.add(hook)

    # Receiving

    def __aiter__(self) -> "Loop[T]":
        return self.iter()

    def iter(self, timeout: float | None = None) -> "Loop[T]":
        """Messages until the consumer stops, or until none came for `timeout` seconds."""
        return Loop(self, timeout)

    async def receive(self, timeout: float | None = None) -> "Delivered[T] | None":  # noqa: ASYNC109
        """The next message, None if none came in time or the consumer stops. It is not acked by itself."""
        if not self.is_running and not self._is_stopping:
            raise NotRunning(f"consumer {self.group} is not running: use `async with`, or await consumer.start()")
        clock = self.instance.clock
        deadline_s = None if timeout is None else clock.monotonic() + timeout
        while (message := self._next()) is None:
            if self._failed:
                self._failed = False
                await asyncio.sleep(0)  # each may have cost its time: others have their turn in between
                continue
            left_s = None if deadline_s is None else deadline_s - clock.monotonic()
            if self._is_stopping or (left_s is not None and left_s <= 0):
                return None
            await self._wait(left_s)
        return message

    def submit(self, queue: ProcessQueue, held: Sequence[Held]) -> None:
        """Messages were pulled."""
        for one in held:
            self._ready.append((queue, one))
        self._wake(len(held))

    def _next(self) -> "Delivered[T] | None":
        while self._ready and self.unacked < self.max_unacked and not self._is_stopping:
            queue, one = self._ready.popleft()
            if not queue.is_owned or one not in queue:
                continue
            message = self._hand_out(queue, one)
            self._failed = message is None
            return message
        return None

    def _hand_out(self, queue: ProcessQueue, one: Held) -> "Delivered[T] | None":
        delivery = self._member.delivery
        one.started_s = queue.last_consume_s = self.instance.clock.monotonic()
        slip = Slip(self, queue, one)
        self.unacked += 1
        try:
            message: Delivered[T] = Delivered(*delivery.fields(one, queue, self.codec), slip=slip)
        except (CodecError, WireError) as error:
            logger.exception("fail message group=%s topic=%s offset=%d", self.group, queue.queue.topic, one.offset)
            self._return(slip, judge_error(error))
            return None
        slip.context = delivery.begin(queue, (message,))
        return message

    async def _wait(self, limit_s: float | None) -> None:
        """Until there may be something, so long at most."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        timer = None
        if limit_s is not None:
            timer = self.instance.clock.call_later(limit_s, lambda: _release(future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._wake(1)  # woken and cancelled at the same time: it is another one's turn
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1

    # Settling

    async def settle(self, slip: Slip, verdict: Verdict) -> None:
        if is_fine(verdict):
            self._end(slip, verdict)
            self._member.finish(slip.queue, [slip.held])
        else:
            # To its end even if the caller is cancelled: a message half given back would be nobody's.
            await asyncio.shield(self._return(slip, verdict))

    def _return(self, slip: Slip, verdict: Verdict) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self.instance.spawn(self._give_back(slip, verdict))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        return task

    async def _give_back(self, slip: Slip, verdict: Verdict) -> None:
        queue, one = slip.queue, slip.held
        self._end(slip, verdict)
        if await give_back(self._member, queue, [one], verdict.delay_level, cause_of(verdict)):
            self._member.later(AGAIN_S, lambda: self.submit(queue, [one]))
        else:
            self._member.finish(queue, [one])

    def _end(self, slip: Slip, verdict: Verdict) -> None:
        self.unacked -= 1
        self._member.delivery.end(slip.context, slip.queue, [slip.held], verdict, slip.held.started_s or 0.0)
        self._wake(1)

    # Life

    async def start(self) -> None:
        """Only once."""
        if self._owns_instance:
            await self.instance.start()
        await self._member.start()

    async def stop(self) -> None:
        """Loops end after their message; offsets of what was acked are stored; the group is left. Idempotent."""
        await self._stop(None)

    async def _stop(self, error: BaseException | None) -> None:
        self._is_stopping = True
        if self.is_running:
            await self._leave_loops(error)
            if self._returning:
                await asyncio.wait(list(self._returning), timeout=self.options.drain_timeout)
        await self._member.stop()
        self._wake(len(self._waiters))
        if self._owns_instance:
            await self.instance.stop()

    async def _leave_loops(self, error: BaseException | None) -> None:
        """`error` is what ends the loop of the task that we are in; loops of other tasks may finish their message."""
        self._wake(len(self._waiters))
        mine = self._loops.pop(asyncio.current_task(), None)
        if mine is not None:
            await mine.leave(error)
        deadline_s = self.instance.clock.monotonic() + self.options.drain_timeout
        while any(task is not None and not task.done() and loop.is_at_work for task, loop in self._loops.items()):
            left_s = deadline_s - self.instance.clock.monotonic()
            if left_s <= 0:
                break
            await self._wait(min(left_s, LOOK_S))
        for task, loop in list(self._loops.items()):
            if task is not None and task.done() and not task.cancelled():
                await loop.leave(task.exception())

    def pause(self) -> None:
        """Fetch nothing more until `resume()`; what is here is handed out."""
        self._member.is_paused = True

    def resume(self) -> None:
        self._member.is_paused = False

    async def _enter_loop(self, loop: "Loop[T]") -> None:
        """A task begins to loop; one that it left before, with `break`, is done with its message."""
        task = asyncio.current_task()
        before = self._loops.get(task)
        if before is not None and before is not loop:
            await before.leave(None)
        self._loops[task] = loop

    def _end_loop(self) -> None:
        self._loops.pop(asyncio.current_task(), None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(error)


class Loop(Generic[T]):
    """One `async for`. With auto_ack it settles the message before the one it hands out."""

    def __init__(self, consumer: Consumer[T], timeout_s: float | None) -> None:
        self._consumer = consumer
        self._timeout_s = timeout_s
        self._current: Delivered[T] | None = None

    def __aiter__(self) -> "Loop[T]":
        return self

    @property
    def is_at_work(self) -> bool:
        """Whether a message is in the body of the loop."""
        return self._current is not None

    async def __anext__(self) -> "Delivered[T]":
        consumer = self._consumer
        if consumer.auto_ack:
            await consumer._enter_loop(self)
        await self.leave(None)
        message = await consumer.receive(self._timeout_s)
        if message is None:
            consumer._end_loop()
            raise StopAsyncIteration
        if consumer.auto_ack:
            self._current = message
        return message

    async def leave(self, error: BaseException | None) -> None:
        """The body was left: its message is done, or failed, or, if its task is cancelled, neither."""
        current, self._current = self._current, None
        if current is None or current.slip is None:
            return
        if error is None:
            await current.ack()
        elif isinstance(error, Exception):
            await current.slip.settle(judge_error(error))


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _subscriptions(topics: Topics) -> dict[str, str | None]:
    if isinstance(topics, str):
        return {topics: None}
    if isinstance(topics, Mapping):
        return dict(topics)
    given = list(topics)
    if not given:
        raise ConfigError("a consumer needs topics: a name, a list of names, or a map of names to tags")
    return dict.fromkeys(given)


async def _no_handler(message: Message[bytes]) -> None:
    raise RuntimeError("this consumer is a loop and has no handler that could be run")
