"""archive: topics to the lake, each message once.

The source deals out ranges of offsets, not messages, to as many tasks as run at once; each reads its ranges, writes
them as Parquet, one file per range and day, and returns the names. The driver then publishes the names under the
batch's number (`lake`). Bodies never pass through the JVM, and a task that sees the broker's files reads those
(`nearby`).

Killed anywhere it goes on where the checkpoint says: files of a batch that was not published are leftovers, a batch
that was published is not written again. Deleting the checkpoint begins a new archive query, from `startingOffsets`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.names import readable_part
from cometmq.spark.columns import COLUMNS, Column, chosen, viewed
from cometmq.spark.lake.archive import CODEC, Lake, LakeFile, Manifest, check_codec, data_path
from cometmq.spark.live.offsets import Queue, Range
from cometmq.spark.pipelines.progress import ProgressLine, follow, progress
from cometmq.spark.pipelines.steps import Summary, at

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

FILE_DDL: Final = (
    "path STRING, topic STRING, day STRING, rows BIGINT, bytes BIGINT, broker STRING, queue INT, first BIGINT, "
    "last BIGINT, oldest_ms BIGINT, newest_ms BIGINT"
)


def archive(
    spark: SparkSession,
    *,
    namesrv: str,
    topics: str,
    root: str,
    checkpoint: str | None = None,
    columns: str | None = None,
    codec: str = CODEC,
    rows_per_batch: int = 1_000_000,
    partitions: int | None = None,
    once: bool = True,
    interval_s: float = 60.0,
    **source: str,
) -> Summary:
    """Archives what there is (`once`), or goes on until it is stopped. `source`: further options of the source, such as
    `readMode=remote` to pull even where the broker's files can be read."""
    check_codec(codec)
    lake = Lake(root)
    lake.manifests.mkdir(parents=True, exist_ok=True)
    wanted = chosen(columns.split(",")) if columns else COLUMNS
    options = {
        "namesrvAddr": namesrv,
        "subscribe": topics,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(rows_per_batch),
        "minPartitions": str(partitions or spark.sparkContext.defaultParallelism),
        "readMode": "auto",
        **source,
    }
    ranges = spark.readStream.format("cometmq").options(**options, emit="shares").load()
    before = {file.path for file in lake.live_files()}
    with progress("archive") as line:
        writer = ranges.writeStream.foreachBatch(Batch(str(lake.root), options, tuple(wanted), codec, line))
        writer = writer.option("checkpointLocation", checkpoint or str(lake.root / "_checkpoint"))
        timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
        follow(timed.start(), line, count=False)
    added = [file for file in lake.live_files() if file.path not in before]
    return Summary(
        "archive",
        {
            "rows": sum(file.rows for file in added),
            "bytes": sum(file.bytes for file in added),
            "files": len(added),
            "topics": len({file.topic for file in added}),
            "archive": str(lake.root),
        },
    )


class Batch:
    """What is done for each micro-batch, in the driver."""

    def __init__(
        self, root: str, options: dict[str, str], columns: tuple[Column, ...], codec: str, line: ProgressLine
    ) -> None:
        self.root = root
        self.options = options
        self.columns = columns
        self.codec = codec
        self.line = line

    def __call__(self, ranges: DataFrame, batch: int) -> None:
        lake = Lake(self.root)
        context: Any = ranges.sparkSession.sparkContext
        query = str(context.getLocalProperty("sql.streaming.queryId"))
        if lake.is_published(query, batch):
            logger.info("skip batch=%d: it is in the archive", batch)
            return
        work = _Write(self.root, self.options, self.columns, query, batch, self.codec)
        files = [LakeFile(**row.asDict()) for row in ranges.mapInArrow(work, FILE_DDL).collect()]
        at("written")
        self.publish(lake, Manifest(query, batch, tuple(column.name for column in self.columns), tuple(files)))
        self.line.add(sum(file.rows for file in files))

    def publish(self, lake: Lake, manifest: Manifest) -> None:
        lake.publish(manifest)
        at("committed")


class _Write:
    """Reads ranges and writes them as files; runs in the executors."""

    def __init__(
        self,
        root: str,
        options: dict[str, str],
        columns: tuple[Column, ...],
        query: str,
        batch: int,
        codec: str = CODEC,
    ) -> None:
        self.root = root
        self.options = options
        self.columns = columns
        self.codec = codec
        self.name = f"{query}-{batch}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from cometmq.spark.stores.partitions import mapped_once

        with mapped_once():
            for row in (row for batch in batches for row in batch.to_pylist()):
                queue = Queue(row["topic"], row["brokerName"], row["queueId"])
                files = list(self._files(Range(queue, row["firstOffset"], row["lastOffset"])))
                if files:
                    yield pa.RecordBatch.from_pylist([asdict(file) for file in files], schema=_file_schema())

    def _files(self, one: Range) -> Iterator[LakeFile]:
        from cometmq.spark.lake.body_views import CAN_VIEW
        from cometmq.spark.lake.parquet_writer import DayFile, by_day
        from cometmq.spark.live.source import read_messages, source_options

        options = source_options(self.options)
        names = [column.name for column in self.columns]
        needed = tuple(chosen(dict.fromkeys([*names, "storeTimestamp"])))
        needed = viewed(needed) if CAN_VIEW else needed
        days: dict[str, DayFile] = {}
        for batch in read_messages(options, one, needed):
            for day, part in by_day(batch):
                if day not in days:
                    days[day] = DayFile(Path(self.root) / self._path(one, day), names, self.codec)
                days[day].add(part)
        for day, file in sorted(days.items()):
            size = file.close()
            at("in write")
            yield LakeFile(
                str(file.path.relative_to(self.root)), one.queue.topic, day, file.rows, size, one.queue.broker,
                one.queue.number, one.first, one.last, file.oldest_us // 1000, file.newest_us // 1000,
            )  # fmt: skip

    def _path(self, one: Range, day: str) -> str:
        broker = readable_part(one.queue.broker)
        name = f"part-{self.name}-{broker}-{one.queue.number}-{one.first}-{uuid.uuid4().hex[:8]}.parquet"
        return data_path(one.queue.topic, day, name)


def _file_schema() -> pa.Schema:
    import pyarrow as pa

    numbers = {"queue": pa.int32()}
    texts = ("path", "topic", "day", "broker")
    names = [part.split()[0] for part in FILE_DDL.split(", ")]
    return pa.schema([(name, pa.string() if name in texts else numbers.get(name, pa.int64())) for name in names])
