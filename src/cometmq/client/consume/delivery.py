"""From a cached record to a called handler: message, hooks, figures, verdict."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias

import msgspec

from cometmq.client.cluster.namespaces import strip
from cometmq.client.codecs import Codec
from cometmq.client.consume.handlers import Handler, Reply
from cometmq.client.consume.hooks import ConsumeContext, ConsumeHooks
from cometmq.client.consume.metrics import Figures
from cometmq.client.consume.outcomes import EXCEPTION, FAILED, SUCCESS, TIMEOUT, Outcome, Verdict, judge_error
from cometmq.client.consume.process_queue import Held, ProcessQueue
from cometmq.client.messages import Fields, Message, received_fields
from cometmq.client.traces import ConsumeTrace
from cometmq.clock import Clock
from cometmq.errors import CometError
from cometmq.wire.record.properties import Property

logger = logging.getLogger(__name__)

Threads: TypeAlias = Callable[[], Executor]


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
            self._log(handler, queue, held, error)
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
        self, handler: Handler, queue: ProcessQueue, held: Sequence[Held], error: BaseException | None
    ) -> None:
        logger.error(
            "fail handler=%s group=%s topic=%s broker=%s queue=%d offset=%d count=%d cause=%r",
            handler.name, self._group, queue.queue.topic, queue.queue.broker_name, queue.queue.queue_id,
            held[0].offset, len(held), error, exc_info=error,
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
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
