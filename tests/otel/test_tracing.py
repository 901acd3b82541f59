"""Spans and metrics of producers and consumers, by OpenTelemetry's own SDK, on a real cluster."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cometmq import Message, Reject, StartFrom, otel
from cometmq.errors import CometError
from tests.support.clusters import real_cluster
from tests.support.consuming import quick
from tests.support.net import until


class Telemetry:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])
        self.tracer = self.tracers.get_tracer("test")

    def sending(self) -> otel.SendTracing:
        return otel.SendTracing(self.tracers, self.meters)

    def consuming(self, **more: Any) -> otel.ConsumeTracing:
        return otel.ConsumeTracing(tracer_provider=self.tracers, meter_provider=self.meters, **more)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def sums(self, name: str) -> float:
        data: Any = self._reader.get_metrics_data()
        found = [one for kept in data.resource_metrics for scope in kept.scope_metrics for one in scope.metrics]
        return sum(
            getattr(point, "value", getattr(point, "count", 0))
            for one in found if one.name == name for point in one.data.data_points
        )  # fmt: skip


@pytest.mark.mission("DU-08")
async def test_a_handler_is_a_child_of_the_send_and_what_it_does_a_child_of_the_handler(tmp_path: Path) -> None:
    told = Telemetry()
    async with real_cluster(tmp_path, "orders", queues=1) as cluster, cluster.client() as client:
        seen: list[Message[bytes]] = []
        app = quick(client)
        app.add_hook(told.consuming())

        @app.on("orders")
        async def handle(body: bytes, message: Message[bytes]) -> None:
            with told.tracer.start_as_current_span("work"):
                seen.append(message)

        async with app, client.producer("pg") as producer:
            producer.add_hook(told.sending())
            with told.tracer.start_as_current_span("checkout"):
                receipt = await producer.send("orders", b"one", keys=["k"], properties={"colour": "red"})
            await until(lambda: told.spans("process orders"))
    (outer,), (send,), (process,), (work,) = map(
        told.spans, ("checkout", "send orders", "process orders", "work")
    )  # fmt: skip
    assert send.parent is not None
    assert process.parent is not None
    assert work.parent is not None
    assert outer.context is not None
    assert send.context is not None
    assert process.context is not None
    assert send.parent.span_id == outer.context.span_id
    assert process.parent.span_id == send.context.span_id
    assert work.parent.span_id == process.context.span_id
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.attributes is not None
    assert process.attributes is not None
    assert send.attributes["messaging.message.id"] == process.attributes["messaging.message.id"] == receipt.id
    assert process.attributes["messaging.consumer.group.name"] == "cg"
    assert (seen[0].keys, seen[0].properties["colour"]) == (("k",), "red")
    assert told.sums("messaging.client.sent.messages") == told.sums("messaging.client.consumed.messages") == 1
    assert told.sums("messaging.process.duration") == told.sums("messaging.client.operation.duration") == 1


async def test_a_failure_is_one_in_the_span(tmp_path: Path) -> None:
    told = Telemetry()
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        app = quick(client)
        app.add_hook(told.consuming())

        @app.on("T")
        async def handle(body: bytes) -> None:
            raise Reject("no stock")

        async with app, client.producer("pg") as producer:
            producer.add_hook(told.sending())
            await producer.send("T", b"x")
            await until(lambda: told.spans("process T"))
            cluster.broker.settings.config  # noqa: B018 - the broker is still there
            await cluster.broker.stop()
            with pytest.raises(CometError):
                await producer.send("T", b"y", timeout=1)
    (process,) = told.spans("process T")
    assert (process.status.status_code, process.status.description) == (StatusCode.ERROR, "no stock")
    failed = [span for span in told.spans("send T") if span.status.status_code is StatusCode.ERROR]
    assert failed
    assert all(span.events[0].name == "exception" for span in failed)


async def test_batches_are_linked_to_what_was_injected(tmp_path: Path) -> None:
    told = Telemetry()
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        app = quick(client)
        app.add_hook(told.consuming())
        got: list[bytes] = []

        @app.on("T", batch=8)
        async def handle(bodies: list[bytes]) -> None:
            got.extend(bodies)

        async with client.producer("pg") as producer:
            producer.add_hook(told.sending())
            with told.tracer.start_as_current_span("import") as span:
                queue = (await producer.queues("T"))[0]
                await producer.send_many("T", [b"1", b"2"], queue=queue, properties=otel.inject())
            async with app:
                await until(lambda: len(got) == 2 and told.spans("process T"))
    (batch,) = told.spans("send T")
    assert batch.attributes is not None
    assert batch.attributes["messaging.batch.message_count"] == 2
    linked = [link.context.span_id for one in told.spans("process T") for link in one.links]
    parents = [one.parent.span_id for one in told.spans("process T") if one.parent is not None]
    assert set(linked + parents) == {span.get_span_context().span_id}


async def test_messages_of_an_iterator_have_spans_that_end_with_them(tmp_path: Path) -> None:
    told = Telemetry()
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            await producer.send_many("T", [b"1", b"2"])
        consumer = client.consumer("cg", "T", auto_ack=False, start=StartFrom.FIRST)
        consumer.add_hook(told.consuming(attach=False))
        async with consumer:
            first, second = await consumer.receive(20), await consumer.receive(20)
            assert first is not None
            assert second is not None
            assert told.spans("process T") == []
            await second.ack()
            await first.ack()
            assert len(told.spans("process T")) == 2
    assert trace.get_current_span().get_span_context().is_valid is False
