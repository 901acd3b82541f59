"""Writing to topics: rows in, messages out, with the guarantee that `delivery` names.

    at-least-once    a task that is tried again sends its rows again
    deduplicated     each message carries CMQ_TX = query:batch:partition:sequence; before it sends, and after sends that
                     failed, a task looks in the target queues for what is there already (`once`)
    transactional    rows are sent as half messages; `commit` makes them visible, `abort` takes them back

What both must know of earlier tries is in the `ledger`. Deduplication needs rows to come in the same order when a batch
is repeated: true for source and map, after a shuffle only if sorted. Rows that have a name of their own do not: with
`rowId` = a column, the mark is query:batch:ROWID, and order and partitions do not matter.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from cometmq.errors import CallError, ConfigError, NoRoute
from cometmq.spark.kill_points import at
from cometmq.spark.live.exactly_once import OffsetsById, send_once
from cometmq.spark.live.fencing import Fence
from cometmq.spark.live.ledger import Ledger
from cometmq.spark.live.remote import CONNECTION_ALIASES, CONNECTION_OPTIONS, Remote, remote
from cometmq.spark.live.rows import RowReader
from cometmq.spark.live.sending import Handle, end_all, pending, producer_of, send_halves, send_rows
from cometmq.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SINK_OPTIONS: Final[dict[str, str | None]] = {
    **CONNECTION_OPTIONS,
    "topic": None,
    "producerGroup": "cometmq-spark",
    "delivery": "at-least-once",
    "maxInFlight": "8192",
    "sendTimeoutMs": "3000",
    "sendRetries": "3",
    "partitioner": "round-robin",
    "oversize": "fail",
    "extraColumns": "error",
    "createTopic": "false",
    "jobId": None,
    "rowId": None,
}
DELIVERIES: Final = ("at-least-once", "deduplicated", "transactional")


@dataclass
class Written(WriterCommitMessage):
    """What one task has sent; travels to the driver."""

    query: str
    batch: int
    handles: list[Handle]


class Task(NamedTuple):
    """Which part of which batch this is, and which try."""

    query: str
    batch: int
    partition: int
    attempt: int

    @property
    def prefix(self) -> str:
        return f"{self.batch_prefix}{self.partition}:"

    @property
    def batch_prefix(self) -> str:
        return f"{self.query}:{self.batch}:"


def sink_options(given: Any) -> Options:
    return Options(dict(given), SINK_OPTIONS, CONNECTION_ALIASES)


def batch_writer(given: dict[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    if overwrite:
        raise ConfigError('a topic cannot be overwritten: use .mode("append")')
    return BatchWriter({**given, "jobId": given.get("jobid") or uuid.uuid4().hex}, tuple(schema.fieldNames()))


def stream_writer(given: dict[str, str], schema: StructType) -> DataSourceStreamWriter:
    return StreamWriter(given, tuple(schema.fieldNames()))


class _Writer:
    """What both kinds share. Built anew for every micro-batch, in planner, executor and commit processes alike."""

    def __init__(self, given: dict[str, str], names: tuple[str, ...]) -> None:
        options = sink_options(given)
        self.given = given
        self.names = names
        self.delivery = options.choice("delivery", DELIVERIES)
        if options.flag("createTopic") and self.delivery != "at-least-once":
            raise ConfigError(
                f"createTopic=true is for delivery=at-least-once: with {self.delivery} create the topic first "
                "(cometmq topic create NAME)"
            )
        RowReader(names, options)  # says at once what is wrong with columns and options

    def _write(self, batches: Iterator[pa.RecordBatch], task: Task) -> Written:
        options = sink_options(self.given)
        cluster = remote(options)
        rows = RowReader(self.names, options).rows(batches)
        if self.delivery == "at-least-once":
            try:
                cluster.run(send_rows(cluster, rows, options))
            except NoRoute as error:
                if isinstance(error.__cause__, CallError):
                    raise
                raise NoRoute(f"{error}, or let the sink make it: createTopic=true") from error
            return Written(task.query, task.batch, [])
        ledger = _ledger(cluster, options, task.query)
        note = ledger.begin()
        if note.next_batch > task.batch:
            return Written(task.query, task.batch, [])
        if self.delivery == "transactional":
            handles = cluster.run(send_halves(cluster, rows, options, task.prefix))
            return Written(task.query, task.batch, handles)
        prefix = task.batch_prefix if options.get("rowId") else task.prefix
        fence = Fence(cluster, options.text("topic"), task.prefix)

        def look() -> OffsetsById:
            fence.rise()
            return ledger.look(note, prefix)

        send_once(cluster, pending(cluster, rows, options, prefix, fence), look, options.number("maxInFlight", 1))
        return Written(task.query, task.batch, [])

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = [one for one in messages if isinstance(one, Written)]
        if self.delivery == "at-least-once" or not written:
            return
        options = sink_options(self.given)
        cluster = remote(options)
        ledger = _ledger(cluster, options, written[0].query)
        at("written")
        if self.delivery == "transactional":
            cluster.run(end_all(cluster, [handle for one in written for handle in one.handles], options, commit=True))
        ledger.close(written[0].batch)
        at("committed")

    def _abort(self, messages: list[WriterCommitMessage | None]) -> None:
        handles = [handle for one in messages if isinstance(one, Written) for handle in one.handles]
        if handles:
            options = sink_options(self.given)
            cluster = remote(options)
            cluster.run(end_all(cluster, handles, options, commit=False))


class BatchWriter(_Writer, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return self._write(iterator, Task(self.given["jobId"], 0, context.partitionId(), context.attemptNumber()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        return self._write(iterator, Task(query, batch, context.partitionId(), context.attemptNumber()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._abort(messages)


def _ledger(cluster: Remote, options: Options, query: str) -> Ledger:
    topic = options.get("topic")
    if not topic:
        raise ConfigError("delivery=deduplicated and transactional need the option topic: one topic for all rows")
    return Ledger(cluster, cluster.run(producer_of(cluster, options, once=True)), query, topic)
