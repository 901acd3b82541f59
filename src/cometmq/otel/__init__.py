"""OpenTelemetry for programs that use CometMQ's client: spans that follow a message, and metrics.

It needs the extra `otel`.

    from cometmq import otel

    producer.add_hook(otel.SendTracing())          a PRODUCER span for each send; its context travels in the message
    app.add_hook(otel.ConsumeTracing())            a CONSUMER span around each call of a handler, child of the send's

    traceparent, tracestate, baggage               properties of the message, as W3C names them

Spans and metrics have the names of OpenTelemetry's semantic conventions for messaging. Without an SDK that is set up
they cost little and go nowhere. A message that is sent in a batch has its properties packed already: `inject` writes
the context into the properties that are given with it. A message that is delivered again has a span again.
"""

from collections.abc import Mapping, MutableMapping
from time import perf_counter
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from cometmq import __version__
from cometmq.client.consume.hooks import ConsumeContext
from cometmq.client.produce.hooks import SendContext
from cometmq.wire.record import properties as wire_properties

SYSTEM: Final = "rocketmq"
_NAME: Final = "cometmq"
_SPAN: Final = "span"
_TOKEN: Final = "token"  # noqa: S105 - of a context
_BEGAN_S: Final = "began"


def inject(properties: Mapping[str, str] | None = None) -> dict[str, str]:
    """These properties with the current trace context: for messages that are sent in batches."""
    carrier = dict(properties or {})
    propagate.inject(carrier)
    return {name: text for name, text in carrier.items() if text}


class SendTracing:
    """A hook of producers. `tracer_provider`, `meter_provider`: others than the global ones."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
        meter = metrics.get_meter(_NAME, __version__, meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent")
        self._took = meter.create_histogram("messaging.client.operation.duration", "s", "How long an attempt took")

    def before_send(self, context: SendContext) -> None:
        message = context.message
        count = len(context.outgoing.members or ()) or 1
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": message.topic,
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "messaging.consumer.group.name": context.group,
            "messaging.message.body.size": len(message.body),
            "server.address": context.address,
        }
        if count > 1:
            attributes["messaging.batch.message_count"] = count
        else:
            attributes["messaging.message.id"] = message.id
        span = self._tracer.start_span(f"send {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        context.state[_SPAN] = span
        context.state[_BEGAN_S] = perf_counter()
        if context.outgoing.members is None:
            carrier: dict[str, str] = {}
            propagate.inject(carrier, trace.set_span_in_context(span))
            known = wire_properties.decode_text(context.outgoing.properties)
            known.update({name: text for name, text in carrier.items() if text})  # another attempt has another span
            context.outgoing.properties = wire_properties.encode_text(known)

    def after_send(self, context: SendContext) -> None:
        span = context.state.pop(_SPAN, None)
        if span is None:
            return
        count = len(context.outgoing.members or ()) or 1
        attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "send",
            "messaging.destination.name": context.message.topic,
        }
        if context.error is not None:
            attributes["error.type"] = type(context.error).__name__
            span.record_exception(context.error)
            span.set_status(Status(StatusCode.ERROR, str(context.error)))
        elif context.receipt is not None:
            span.set_attribute("messaging.rocketmq.status", context.receipt.status.value)
            self._sent.add(count, attributes)
        self._took.record(perf_counter() - context.state[_BEGAN_S], attributes)
        span.end()


class ConsumeTracing:
    """A hook of push consumers and iterators. `attach`: whether what the handler does is inside of the span; not for
    iterators, whose messages are ended in any order."""

    def __init__(
        self,
        *,
        attach: bool = True,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._attach = attach
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
        meter = metrics.get_meter(_NAME, __version__, meter_provider)
        name, text = "messaging.client.consumed.messages", "Messages that handlers were given"
        self._consumed = meter.create_counter(name, "{message}", text)
        self._took = meter.create_histogram("messaging.process.duration", "s", "How long a handler took")

    def before_consume(self, context: ConsumeContext) -> None:
        messages = context.messages
        first = messages[0]
        parents = [propagate.extract(_carrier(message.properties)) for message in messages]
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": first.topic,
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "messaging.consumer.group.name": context.group,
        }
        if len(messages) == 1:
            attributes |= {
                "messaging.message.id": first.id,
                "messaging.message.body.size": len(first.body),
                "messaging.rocketmq.delivery_count": first.delivery_count,
            }
            parent, links = parents[0], []
        else:
            attributes["messaging.batch.message_count"] = len(messages)
            found = [trace.get_current_span(one).get_span_context() for one in parents]
            parent, links = None, [Link(one) for one in found if one.is_valid]
        name = f"process {first.topic}"
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, attributes, links)
        context.state[_SPAN] = span
        context.state[_BEGAN_S] = perf_counter()
        if self._attach:
            context.state[_TOKEN] = contexts.attach(trace.set_span_in_context(span, parent))

    def after_consume(self, context: ConsumeContext) -> None:
        span = context.state.pop(_SPAN, None)
        if span is None:
            return
        token = context.state.pop(_TOKEN, None)
        if token is not None:
            contexts.detach(token)
        attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.destination.name": context.messages[0].topic,
            "messaging.consumer.group.name": context.group,
        }
        if not context.success:
            error = context.error
            attributes["error.type"] = type(error).__name__ if error is not None else str(context.label)
            if error is not None:
                span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error) if error is not None else context.label))
        self._consumed.add(len(context.messages), attributes)
        self._took.record(perf_counter() - context.state[_BEGAN_S], attributes)
        span.end()


def _carrier(properties: Mapping[str, str]) -> MutableMapping[str, str]:
    return {name: properties[name] for name in ("traceparent", "tracestate", "baggage") if name in properties}
