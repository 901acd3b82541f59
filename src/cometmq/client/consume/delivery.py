"""From a cached record to a called handler: a free worker, message, hooks, verdict, figures.

A worker is a task that takes jobs from the line until it is empty. Workers start when there is something to do: an idle
consumer has none, and a busy one starts no task per message. Figures are by topic, over the last minute, for the tools
that ask how a consumer is doing.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Protocol, TypeAlias

from cometmq.client.cluster.namespaces import strip
from cometmq.client.codecs import Codec, json_codec
from cometmq.client.consume.handlers import Handler, Reply
from cometmq.client.consume.hooks import ConsumeContext, ConsumeHooks
from cometmq.client.consume.outcomes import EXCEPTION, FAILED, SUCCESS, TIMEOUT, Outcome, Verdict, judge_error
from cometmq.client.consume.process_queue import Held, ProcessQueue
from cometmq.client.messages import Fields, Message, received_fields
from cometmq.client.traces import ConsumeTrace
from cometmq.clock import Clock
from cometmq.errors import CometError
from cometmq.wire.bodies import ConsumeStatus
from cometmq.wire.record.properties import Property

logger = logging.getLogger(__name__)

Threads: TypeAlias = Callable[[], Executor]
WINDOW_S: Final = 60.0
BUCKET_S: Final = 5.0
# Handlers that never wait would keep the loop from everything else.
JOBS_IN_A_ROW: Final = 32


class Delivery:
    """Calls handlers for one member of a group, and keeps count.

    `executor` runs handlers that are plain functions, `reply` sends what a handler of requests returns.
    """

    def __init__(
        self, group: str, namespace: str | None, clock: Clock, timeout_s: float, executor: Threads, reply: Reply
    ) -> None:
        self._group = group
        self._shown_group = strip(namespace, group)
        self._namespace = namespace
        self._clock = clock
        self._timeout_s = timeout_s
        self._executor = executor
        self._reply = reply
        self.hooks = ConsumeHooks()
        self.figures = Figures()

    def fields(self, one: Held, queue: ProcessQueue, codec: Codec[Any]) -> Fields:
        """The arguments of the Message that a handler gets. WireError or CodecError."""
        extra = {
            Property.MIN_OFFSET: str(queue.min_offset),
            Property.MAX_OFFSET: str(queue.max_offset),
            Property.CONSUME_START_TIME: str(self._clock.now_ms()),
        }
        return received_fields(one.message, queue.queue.broker_name, codec, self._namespace, extra)

    async def call(self, handler: Handler, queue: ProcessQueue, held: Sequence[Held]) -> Verdict:
        """Let a handler have these messages. Refused if no thread takes it."""
        began_s = self._clock.monotonic()
        queue.last_consume_s = began_s
        for one in held:
            one.started_s = began_s
        try:
            messages = [Message(*self.fields(one, queue, handler.codec)) for one in held]
        except CometError as error:
            verdict = judge_error(error)
            self._log(handler, queue, held, error, traced=False)
            self._count(queue, held, verdict, 0.0)
            return verdict
        context = self.begin(queue, messages)
        verdict = await handler.handle(messages, self._executor, self._reply)
        if verdict.label == EXCEPTION:
            self._log(handler, queue, held, verdict.error)
        return self.end(context, queue, held, verdict, began_s)

    def begin(self, queue: ProcessQueue, messages: Sequence[Message[Any]]) -> ConsumeContext | None:
        if not self.hooks:
            return None
        return self.hooks.begin(self._shown_group, queue.queue, messages)

    def end(
        self,
        context: ConsumeContext | None,
        queue: ProcessQueue,
        held: Sequence[Held],
        verdict: Verdict,
        began_s: float,
    ) -> Verdict:
        took_s = self._clock.monotonic() - began_s
        if took_s >= self._timeout_s and verdict.label in (SUCCESS, FAILED):
            verdict = Verdict(TIMEOUT, verdict.outcome, verdict.done, verdict.delay_level, verdict.suspend_s)
        self._count(queue, held, verdict, took_s)
        if context is not None:
            self.hooks.end(context, verdict, is_fine(verdict))
        return verdict

    def _count(self, queue: ProcessQueue, held: Sequence[Held], verdict: Verdict, took_s: float) -> None:
        now_s = self._clock.monotonic()
        self.figures.consumed(queue.queue.topic, now_s, len(held), took_s, is_fine(verdict))

    def _log(
        self,
        handler: Handler,
        queue: ProcessQueue,
        held: Sequence[Held],
        error: BaseException | None,
        traced: bool = True,
    ) -> None:
        """With its traceback if it is the handler's: that of a body that cannot be decoded says nothing."""
        logger.error(
            "fail handler=%s group=%s topic=%s broker=%s queue=%d offset=%d count=%d cause=%r",
            handler.name, self._group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id,
            held[0].offset, len(held), error, exc_info=error if traced else None,
        )  # fmt: skip


def is_fine(verdict: Verdict) -> bool:
    return verdict.outcome in (Outcome.SUCCESS, Outcome.COMMIT)


class TraceHook:
    """Writes down for the trace topic what a consumer does."""

    def __init__(self, trace: ConsumeTrace) -> None:
        self._trace = trace

    def before_consume(self, context: ConsumeContext) -> None:
        context.state[self] = self._trace.before(context.messages)

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.verdict is not None
        self._trace.after(context.state[self], context.messages, context.success, context.verdict.label)


def reply_body(value: object) -> bytes:
    """What a handler returned, as the body of a reply."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return value.encode() if isinstance(value, str) else json_codec.encode(value)


class Rate:
    """How many, and how long they took together, in the last minute."""

    __slots__ = ("_buckets", "count", "total_s")

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, int, float]] = deque()
        self.count = 0
        self.total_s = 0.0

    def add(self, now_s: float, count: int, took_s: float = 0.0) -> None:
        self.trim(now_s)
        began_s = now_s - now_s % BUCKET_S
        self.count += count
        self.total_s += took_s
        if self._buckets and self._buckets[-1][0] == began_s:
            _, before, total_s = self._buckets.pop()
            count, took_s = count + before, took_s + total_s
        self._buckets.append((began_s, count, took_s))

    def trim(self, now_s: float) -> None:
        while self._buckets and self._buckets[0][0] <= now_s - WINDOW_S:
            _, count, took_s = self._buckets.popleft()
            self.count -= count
            self.total_s -= took_s

    @property
    def per_second(self) -> float:
        return self.count / WINDOW_S

    @property
    def mean_ms(self) -> float:
        return self.total_s * 1000 / self.count if self.count else 0.0


class Figures:
    def __init__(self) -> None:
        self._topics: dict[str, tuple[Rate, Rate, Rate]] = {}

    def pulled(self, topic: str, now_s: float, count: int, took_s: float) -> None:
        self._of(topic)[0].add(now_s, count, took_s)

    def consumed(self, topic: str, now_s: float, count: int, took_s: float, fine: bool) -> None:
        self._of(topic)[1 if fine else 2].add(now_s, count, took_s)

    def status(self, topic: str, now_s: float) -> ConsumeStatus:
        pulled, fine, failed = self._of(topic)
        for rate in (pulled, fine, failed):
            rate.trim(now_s)
        return ConsumeStatus(
            consume_failed_msgs=failed.count,
            consume_failed_tps=failed.per_second,
            consume_ok_tps=fine.per_second,
            consume_rt=fine.mean_ms,
            pull_rt=pulled.mean_ms,
            pull_tps=pulled.per_second,
        )

    def _of(self, topic: str) -> tuple[Rate, Rate, Rate]:
        figures = self._topics.get(topic)
        if figures is None:
            figures = self._topics[topic] = (Rate(), Rate(), Rate())
        return figures


class Job(Protocol):
    async def run(self) -> None: ...


class Workers:
    """`spawn` starts a task."""

    def __init__(self, count_max: int, spawn: "Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]") -> None:
        self._count_max = count_max
        self._spawn = spawn
        self._line: deque[Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def running(self) -> int:
        return len(self._tasks)

    def submit(self, job: Job) -> None:
        if self._is_closed:
            return
        self._line.append(job)
        if len(self._tasks) < self._count_max:
            task = self._spawn(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def stop(self, timeout_s: float) -> bool:
        """Forget the line, wait for what runs, cancel what takes too long. True if nothing was cancelled.

        A handler that stops its own consumer is not waited for.
        """
        self._is_closed = True
        self._line.clear()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return not late

    async def _work(self) -> None:
        in_a_row = 0
        while self._line:
            job = self._line.popleft()
            try:
                await job.run()
            except Exception:
                logger.exception("fail job %r", job)
            in_a_row += 1
            if in_a_row % JOBS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._line and not self._is_closed:  # one was cancelled from outside
            self.submit(self._line.popleft())
