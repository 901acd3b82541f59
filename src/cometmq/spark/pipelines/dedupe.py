"""dedupe: topics without what producers have sent twice, to a topic or an archive.

    source -> key, arrival -> dropDuplicatesWithinWatermark(key) -> each batch once to the target

The key is a column or an expression on columns: `msgId` (the default: a producer that sends again after a lost answer
keeps it), `keys`, `properties['order']`. A row without key is never a duplicate. Of rows with one key that arrive
within `within` of each other the first passes. What counts is when a row is read, not when it was stored: so no row is
ever too late and dropped for that, and of a backlog that is read in one go all duplicates go.

A duplicate that arrives later than that passes; how many there are in the target is counted at the end (`late`). State
is in the checkpoint. Killed anywhere it goes on from there: a batch that was written is recognised, by its manifest in
an archive, and in a topic by marks that hold the key, so that it does not matter which copy another try takes.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError
from cometmq.spark.columns import NAMES
from cometmq.spark.lake.archive import Lake, LakeFile, Manifest, data_path
from cometmq.spark.pipelines.progress import follow, progress
from cometmq.spark.pipelines.steps import Summary, at, connection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

logger = logging.getLogger(__name__)

KEY: Final = "_key"
ARRIVED: Final = "_arrived"
KEY_PROPERTY: Final = "CMQ_KEY"
_IDENTITY: Final = ("topic", "brokerName", "queueId", "queueOffset")
STATE_CONF: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def dedupe(
    spark: SparkSession,
    *,
    namesrv: str,
    topics: str,
    checkpoint: str,
    to: str | None = None,
    root: str | None = None,
    key: str = "msgId",
    within: str = "1 hour",
    rows_per_batch: int = 1_000_000,
    once: bool = True,
    interval_s: float = 5.0,
    count_late: bool = True,
    **source: str,
) -> Summary:
    """To the topic `to` or the archive `root`: what there is (`once`), or until it is stopped."""
    if (to is None) == (root is None):
        raise ConfigError("say where to: one of to=TOPIC and root=DIRECTORY")
    options = {"namesrvAddr": namesrv, "subscribe": topics, "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": str(rows_per_batch), **source}
    target: _Topic | _Archive = _Topic(connection(options), to) if to is not None else _Archive(str(root))
    before = spark.conf.get(STATE_CONF)
    spark.conf.set(STATE_CONF, ROCKSDB)
    frame = spark.readStream.format("cometmq").options(**options).load()
    single = first_of_each(frame, key, within)
    with progress("dedupe") as line:
        writer = single.writeStream.foreachBatch(target.write).option("checkpointLocation", checkpoint)
        timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
        try:
            query = timed.start()
        finally:
            spark.conf.set(STATE_CONF, str(before))
        follow(query, line)
    figures: dict[str, Any] = {"read": line.rows, "rows": target.rows, "dropped": line.rows - target.rows}
    if count_late:
        figures["late"] = target.late(spark, key)
    return Summary("dedupe", figures | {"to": to or root})


def first_of_each(frame: DataFrame, key: str, within: str) -> DataFrame:
    from pyspark.sql import functions as f

    keyed = frame.withColumn(KEY, key_of(key)).withColumn(ARRIVED, f.current_timestamp())
    return keyed.withWatermark(ARRIVED, within).dropDuplicatesWithinWatermark([KEY]).drop(ARRIVED)


def key_of(key: str) -> Column:
    """Without key a row is itself."""
    from pyspark.sql import functions as f

    return f.coalesce(f.expr(key).cast("string"), f.concat_ws("/", *(f.col(name).cast("string") for name in _IDENTITY)))


class _Topic:
    def __init__(self, cluster: dict[str, str], topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.rows = 0

    def write(self, frame: DataFrame, batch: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        stated = f.map_filter("properties", lambda name, _: name != KEY_PROPERTY)
        shown = f.substring(f.regexp_replace(KEY, "[\\x00-\\x1f]", " "), 1, 1000)
        count = Observation()
        rows = (
            frame.sortWithinPartitions(*_IDENTITY)
            .select(
                "body", "tags", "keys", "flag", f.md5(f.col(KEY).cast("binary")).alias("rowId"),
                f.map_concat(stated, f.create_map(f.lit(KEY_PROPERTY), shown)).alias("properties"),
            )
            .observe(count, f.count(f.lit(1)).alias("rows"))
        )  # fmt: skip
        options = {**self.cluster, "topic": self.topic, "delivery": "deduplicated", "rowId": "rowId"}
        at("dedupe before write")
        rows.write.format("cometmq").options(**options, jobId=f"{_query(frame)}-{batch}").mode("append").save()
        at("dedupe after write")
        self.rows += int(count.get["rows"])

    def late(self, spark: SparkSession, key: str) -> int:
        read = {**self.cluster, "subscribe": self.topic, "columns": "properties"}
        frame = spark.read.format("cometmq").options(**read).load()
        return _repeated(frame.selectExpr(f"properties['{KEY_PROPERTY}'] AS {KEY}").filter(f"{KEY} IS NOT NULL"))


class _Archive:
    def __init__(self, root: str) -> None:
        self.root = root
        self.rows = 0
        Lake(root).manifests.mkdir(parents=True, exist_ok=True)

    def write(self, frame: DataFrame, batch: int) -> None:
        lake, query = Lake(self.root), _query(frame)
        if lake.is_published(query, batch):
            logger.info("skip batch=%d: it is in the archive", batch)
            return
        at("dedupe before write")
        rows = frame.select(*NAMES).sortWithinPartitions(*_IDENTITY)
        work = _WriteRows(self.root, f"{query}-{batch}")
        files = [LakeFile.of(json.loads(row["stated"])) for row in rows.mapInArrow(work, "stated STRING").collect()]
        at("dedupe before publish")
        lake.publish(Manifest(query, batch, tuple(NAMES), tuple(files)))
        self.rows += sum(file.rows for file in files)

    def late(self, spark: SparkSession, key: str) -> int:
        frame = spark.read.format("cometmq_archive").load(self.root)
        return _repeated(frame.select(key_of(key).alias(KEY)))


def _query(frame: DataFrame) -> str:
    context: Any = frame.sparkSession.sparkContext
    return str(context.getLocalProperty("sql.streaming.queryId"))


def _repeated(keys: DataFrame) -> int:
    from pyspark.sql import functions as f

    row = keys.agg(f.count(KEY).alias("all"), f.count_distinct(KEY).alias("different")).collect()[0]
    return int(row["all"] - row["different"])


class _WriteRows:
    """Rows of all queues as files by topic and day; runs in the executors."""

    def __init__(self, root: str, name: str) -> None:
        self.root = root
        self.name = name

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        from cometmq.spark.lake.parquet_writer import DayFile, by_day

        found: dict[tuple[str, str], DayFile] = {}
        for batch in batches:
            for topic in pc.unique(batch.column("topic")).to_pylist():
                for day, part in by_day(batch.filter(pc.equal(batch.column("topic"), topic))):
                    if (topic, day) not in found:
                        found[topic, day] = DayFile(Path(self.root) / self._path(topic, day), list(NAMES))
                    found[topic, day].add(part)
        for (topic, day), file in sorted(found.items()):
            size = file.close()
            made = LakeFile(
                str(file.path.relative_to(self.root)), topic, day, file.rows, size, "", -1, -1, -1,
                file.oldest_us // 1000, file.newest_us // 1000,
            )  # fmt: skip
            yield pa.RecordBatch.from_arrays([pa.array([json.dumps(asdict(made))])], names=["stated"])

    def _path(self, topic: str, day: str) -> str:
        return data_path(topic, day, f"part-{self.name}-{uuid.uuid4().hex}.parquet")
