"""Writing to topics: rows in, messages out, with the guarantee that `delivery` names.

    at-least-once    a task that is tried again sends its rows again
    deduplicated     each message carries CMQ_TX = query:batch:partition:sequence; before it sends, a task looks in the
                     target queues, from the floor noted for its partition on, for what an earlier try has sent
    transactional    rows are sent as half messages; `commit` makes them visible, `abort` takes them back

The ledger of both is kept by the brokers, as offsets of groups that only the sink knows:

    __spark_tx_QUERY            the number of the batch to come: what is below was committed and is not sent again
    __spark_floor_QUERY_PART    from where on messages of this partition's present batch may lie

The ledger is written before floors rise, and both are in one file of a broker, so a broker that loses its last seconds
loses floors no later than the ledger: then a task looks through more than it must, and finds what is there.
Deduplication needs rows to come in the same order when a batch is repeated: true for source and map, after a shuffle
only if sorted.
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

from cometmq.errors import ConfigError
from cometmq.spark.ledger import Ledger
from cometmq.spark.offsets import Positions
from cometmq.spark.options import Options
from cometmq.spark.remote import CONNECTION_ALIASES, CONNECTION_OPTIONS, remote
from cometmq.spark.rows import Row, RowReader
from cometmq.spark.sending import Handle, Sent, end_all, send_halves, send_rows

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
    "jobId": None,
}
DELIVERIES: Final = ("at-least-once", "deduplicated", "transactional")


@dataclass
class Written(WriterCommitMessage):
    """What one task has sent; travels to the driver."""

    partition: int
    rows: int
    query: str
    batch: int
    # Behind the last message of this task, by target queue.
    ends: Positions
    handles: list[Handle]


class Task(NamedTuple):
    """Which part of which batch this is, and which try."""

    query: str
    batch: int
    partition: int
    attempt: int

    @property
    def prefix(self) -> str:
        return f"{self.query}:{self.batch}:{self.partition}:"


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
        RowReader(names, options)  # says at once what is wrong with columns and options

    def _write(self, batches: Iterator[pa.RecordBatch], task: Task) -> Written:
        options = sink_options(self.given)
        cluster = remote(options)
        rows = RowReader(self.names, options).rows(batches)
        if self.delivery == "at-least-once":
            return _written(task, cluster.run(send_rows(cluster, rows, options)))
        ledger = Ledger(cluster, task.query, _ledger_topic(options, self.given))
        if ledger.next_batch() > task.batch:
            return Written(task.partition, 0, task.query, task.batch, {}, [])
        if self.delivery == "transactional":
            handles = cluster.run(send_halves(cluster, rows, options, task.prefix))
            return Written(task.partition, len(handles), task.query, task.batch, {}, handles)
        there = ledger.look(task.partition, task.prefix, task.attempt)
        left = _unsent(rows, task.prefix, there)
        return _written(task, cluster.run(send_rows(cluster, left, options)))

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = [one for one in messages if isinstance(one, Written)]
        if self.delivery == "at-least-once" or not written:
            return
        options = sink_options(self.given)
        cluster = remote(options)
        ledger = Ledger(cluster, written[0].query, _ledger_topic(options, self.given))
        if self.delivery == "transactional":
            cluster.run(end_all(cluster, [handle for one in written for handle in one.handles], options, commit=True))
        ledger.close_batch(written[0].batch)
        if self.delivery == "deduplicated":
            for one in written:
                ledger.raise_floor(one.partition, one.ends)

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


def _ledger_topic(options: Options, given: dict[str, str]) -> str:
    topic = options.get("topic")
    if not topic:
        raise ConfigError("delivery=deduplicated and transactional need the option topic: one topic for all rows")
    return topic


def _unsent(rows: Iterator[Row], prefix: str, there: set[int]) -> Iterator[Row]:
    """Rows that no earlier try has sent, each marked with its place in the batch."""
    for number, row in enumerate(rows):
        if number not in there:
            yield row.marked(f"{prefix}{number}")


def _written(task: Task, sent: Sent) -> Written:
    return Written(task.partition, sent.rows, task.query, task.batch, sent.ends, [])
