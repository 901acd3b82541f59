"""Format `cometmq`: a live cluster, ours or RocketMQ's, as source and sink of batches and streams.

    spark.read.format("cometmq").option("namesrvAddr", "127.0.0.1:9876").option("subscribe", "orders").load()

Options, columns and guarantees: docs/spark.md. Objects here are pickled and travel between Spark's processes, so they
hold plain values and connect when they are used (`remote.remote`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from cometmq.spark.columns import COLUMNS, Column, chosen, ddl
from cometmq.spark.live.local_files import NEARBY_OPTIONS, near, read_near
from cometmq.spark.live.offsets import Range, cut, shares
from cometmq.spark.live.reading import PullOptions, check_loss, read_range
from cometmq.spark.live.remote import CONNECTION_ALIASES, CONNECTION_OPTIONS, READER_GROUP, remote
from cometmq.spark.live.starting import END_OPTIONS, START_OPTIONS, TOPIC_OPTIONS, ending, queues_of, starting
from cometmq.spark.options import Options
from cometmq.spark.pruning import Pruning, Pushes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SOURCE_OPTIONS: Final[dict[str, str | None]] = {
    **CONNECTION_OPTIONS,
    **TOPIC_OPTIONS,
    **START_OPTIONS,
    **END_OPTIONS,
    "tags": None,
    "sqlFilter": None,
    "failOnDataLoss": "true",
    "maxOffsetsPerTrigger": None,
    "maxBytesPerTrigger": None,
    "minOffsetsPerTrigger": None,
    "maxTriggerDelay": "15m",
    "minPartitions": None,
    "maxRecordsPerPartition": "1000000",
    "groupCommit": None,
    "pullBatchSize": "4096",
    "pullMaxBytes": str(4 * 1024 * 1024),
    "pullConcurrency": "4",
    **NEARBY_OPTIONS,
    "emit": "messages",
    "columns": None,
    "decompress": "true",
    "filterPushdown": "false",
    "offsetPollMs": "200",
    "metadataTtlMs": "30000",
    "batchRows": "8192",
    "batchBytes": str(16 * 1024 * 1024),
}
RANGES_DDL: Final = "topic STRING, brokerName STRING, queueId INT, firstOffset BIGINT, lastOffset BIGINT"


EMITS: Final = ("messages", "ranges", "shares")


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """What a task reads; several ranges only where it is told them and not their messages."""

    ranges: tuple[Range, ...]


class CometSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "cometmq"

    def schema(self) -> str:
        options = source_options(self.options)
        if options.choice("emit", EMITS) != "messages":
            return RANGES_DDL
        return ddl(chosen(options.names("columns")) if options.get("columns") else COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options)
        kind = PushingReader if options.flag("filterPushdown") else CometReader
        return kind(dict(self.options), tuple(schema.fieldNames()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from cometmq.spark.live.stream import CometStreamReader

        return CometStreamReader(dict(self.options), tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from cometmq.spark.live.sink import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from cometmq.spark.live.sink import stream_writer

        return stream_writer(dict(self.options), schema)


class CometReader(DataSourceReader):
    """One batch. What "latest" means is settled when it is planned; every action on the same plan reads the same."""

    def __init__(self, given: dict[str, str], names: tuple[str, ...]) -> None:
        self.given = given
        self.names = names
        self.pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        options = source_options(self.given)
        cluster = remote(options)
        queues = queues_of(options, cluster)
        first = starting(options, cluster, queues, streaming=False)
        last = ending(options, cluster, queues)
        bounds = cluster.bounds(queues)
        fail = options.flag("failOnDataLoss")
        wanted = [Range(queue, first[queue], max(first[queue], last[queue])) for queue in queues]
        ranges = [check_loss(one, bounds[one.queue], fail) for one in wanted]
        return [one for one in partitions_of(options, ranges) if any(map(self._is_wanted, one.ranges))]

    def _is_wanted(self, one: Range) -> bool:
        return self.pruning.takes_range(one.queue.topic, one.queue.number, one.first, one.last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):  # Spark's own, where there is nothing to read
            return iter(())
        return read_partition(self.given, self.names, partition)


class PushingReader(Pushes, CometReader):
    """With `filterPushdown`."""


def source_options(given: Any) -> Options:
    return Options(dict(given), SOURCE_OPTIONS, {**CONNECTION_ALIASES, "topic": "subscribe"})


def partitions_of(options: Options, ranges: list[Range]) -> list[RangePartition]:
    limits = options.number("maxRecordsPerPartition", 1), options.optional_number("minPartitions", 1)
    if options.choice("emit", EMITS) == "shares":
        return [RangePartition(tuple(share)) for share in shares(ranges, *limits)]
    return [RangePartition((one,)) for one in cut(ranges, *limits)]


def read_partition(given: dict[str, str], names: tuple[str, ...], part: RangePartition) -> Iterator[pa.RecordBatch]:
    options = source_options(given)
    if options.choice("emit", EMITS) != "messages":
        return iter([_range_rows(part.ranges, names)])
    (one,) = part.ranges
    return read_messages(options, one, tuple(chosen(names)))


def read_messages(options: Options, one: Range, columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
    """The messages of a range, from where `readMode` says."""
    pulling = pull_options(options, columns)
    store = near(options, one)
    if store is not None:
        return read_near(store, one, columns, options, pulling.tags)
    batches = read_range(remote(options), one, pulling)
    is_shown = options.get("namespace") and any(column.name == "topic" for column in columns)
    return _shown(batches, one.queue.topic) if is_shown else batches


def _shown(batches: Iterator[pa.RecordBatch], topic: str) -> Iterator[pa.RecordBatch]:
    """The name by which the topic was asked for, without the namespace that it has at the broker."""
    import pyarrow as pa

    for batch in batches:
        place = batch.schema.get_field_index("topic")
        yield batch.set_column(place, "topic", pa.repeat(topic, batch.num_rows))


def pull_options(options: Options, columns: tuple[Column, ...]) -> PullOptions:
    tags, sql = options.get("tags"), options.get("sqlFilter")
    wanted: frozenset[str] | None = None
    if tags and tags.strip() != "*":
        wanted = frozenset(part.strip() for part in tags.split("||") if part.strip())
    return PullOptions(
        columns,
        options.flag("decompress"),
        options.get("consumerGroup") or READER_GROUP,
        ("SQL92", sql) if sql else ("TAG", tags or "*"),
        wanted,
        options.number("pullBatchSize", 1),
        options.number("pullMaxBytes", 1),
        options.number("pullConcurrency", 1),
        options.flag("failOnDataLoss"),
        options.number("batchRows", 1),
        options.number("batchBytes", 1),
    )


def _range_rows(ranges: tuple[Range, ...], names: tuple[str, ...]) -> pa.RecordBatch:
    import pyarrow as pa

    values = {
        "topic": pa.array([one.queue.topic for one in ranges]),
        "brokerName": pa.array([one.queue.broker for one in ranges]),
        "queueId": pa.array([one.queue.number for one in ranges], pa.int32()),
        "firstOffset": pa.array([one.first for one in ranges], pa.int64()),
        "lastOffset": pa.array([one.last for one in ranges], pa.int64()),
    }
    return pa.RecordBatch.from_arrays([values[name] for name in names], names=list(names))
