"""audit: is a store what it should be? Reads only; damage never stops it.

    log        records whole, with their CRC, lying where they say; between them nothing that is none
    queues     every message of the log that belongs in a queue has its unit, with its place and size; no unit
               without its message

The log is scanned range by range in the executors, and only findings and the few columns that queues are compared by
come back. A finding is a row: kind, topic, queue, offset in the queue, place in the log, bytes, detail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

from cometmq.spark.pipelines.steps import Summary
from cometmq.spark.storeparts import LogRange, StoreDirectory, scan_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FINDINGS_DDL: Final = (
    "kind STRING, topic STRING, queueId INT, queueOffset BIGINT, commitLogOffset BIGINT, bytes BIGINT, detail STRING"
)
SCAN_DDL: Final = FINDINGS_DDL + ", ok BOOLEAN"
UNITS_DDL: Final = "topic STRING, queueId INT, queueOffset BIGINT, unitOffset BIGINT, unitBytes BIGINT"


@dataclass(frozen=True)
class Finding:
    kind: str
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    commit_log_offset: int | None
    bytes: int | None
    detail: str


def audit(spark: SparkSession, *, store: str, partition_mib: int = 64) -> tuple[Summary, list[Finding]]:
    """Looks through one store directory."""
    directory = StoreDirectory.at(store, "store")
    ranges = list(directory.log_ranges(partition_mib << 20))
    queues = [(topic, queue) for topic, queue in directory.queues(lambda topic: True)]
    parallel = max(1, spark.sparkContext.defaultParallelism)
    scan = (
        spark.createDataFrame([(one.first, one.last) for one in ranges] or [(0, 0)], "first BIGINT, last BIGINT")
        .repartition(max(1, min(len(ranges), parallel * 4)))
        .mapInArrow(_Scan(directory), SCAN_DDL)
        .cache()
    )
    units = (
        spark.createDataFrame(queues or [("", -1)], "topic STRING, queueId INT")
        .repartition(parallel)
        .mapInArrow(_Units(directory), UNITS_DDL)
    )
    try:
        damaged = scan.filter("NOT ok").drop("ok")
        records = scan.filter("ok")
        rows = [*damaged.collect(), *_compared(records, units).collect()]
        count = records.count()
    finally:
        scan.unpersist()
    found = [Finding(*row) for row in rows]
    findings = sorted(found, key=lambda one: [(item is not None, item) for item in astuple(one)])
    figures: dict[str, Any] = {"messages": count, "log_bytes": sum(one.last - one.first for one in ranges)}
    figures |= {"queues": len(queues), "findings": len(findings)}
    return Summary("audit", figures), findings


def _compared(records: DataFrame, units: DataFrame) -> DataFrame:
    """Records that queues should have against the units that they have."""
    from pyspark.sql import functions as f

    inside = records.filter("kind = 'record'").drop("kind", "detail", "ok")
    both = inside.join(units, ["topic", "queueId", "queueOffset"], "full_outer")
    kind = (
        f.when(f.col("unitOffset").isNull(), "missing unit")
        .when(f.col("commitLogOffset").isNull(), "unit without message")
        .when(f.col("unitOffset") != f.col("commitLogOffset"), "unit points elsewhere")
        .when(f.col("unitBytes") != f.col("bytes"), "unit with a wrong size")
    )
    detail = f.concat(f.lit("unit: "), f.coalesce(f.col("unitOffset").cast("string"), f.lit("none")))
    wrong = both.withColumn("kind", kind).withColumn("detail", detail).filter("kind IS NOT NULL")
    return wrong.select("kind", "topic", "queueId", "queueOffset", "commitLogOffset", "bytes", "detail")


class _Scan:
    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.schema(
            [
                ("kind", pa.string()), ("topic", pa.string()), ("queueId", pa.int32()), ("queueOffset", pa.int64()),
                ("commitLogOffset", pa.int64()), ("bytes", pa.int64()), ("detail", pa.string()), ("ok", pa.bool_()),
            ]
        )  # fmt: skip
        for batch in batches:
            for row in batch.to_pylist():
                if row["last"] > row["first"]:
                    found = list(scan_log(self.directory, LogRange(row["first"], row["last"])))
                    columns = list(zip(*found, strict=True)) if found else [() for _ in schema]
                    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Units:
    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            for row in batch.to_pylist():
                if row["queueId"] < 0:
                    continue
                first, units = self.directory.units(row["topic"], row["queueId"])
                count = len(units)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([row["topic"]]).take(pa.array(np.zeros(count, np.int32))),
                        pa.array(np.full(count, row["queueId"], np.int32)),
                        pa.array(np.arange(first, first + count, dtype=np.int64)),
                        pa.array(units["offset"].astype(np.int64)),
                        pa.array(units["size"].astype(np.int64)),
                    ],
                    names=["topic", "queueId", "queueOffset", "unitOffset", "unitBytes"],
                )
