"""How fast Spark reads and archives messages, beside Spark's own Kafka source on the same bodies.

    python -m benchmarks.spark                                           everything
    python -m benchmarks.spark --only live,kafka --bodies 256 --keep DIR --json FILE
    python -m benchmarks.spark --only store --messages 200000            smaller

    fill      makes the topics, ours and Kafka's; the other parts do it too where it was not done
    live      batch read of the topic from our broker, format `cometmq`
    store     batch read of the broker's directory, format `cometmq_store`
    kafka     batch read of the same bodies from a Kafka broker with Spark's Kafka source, and Kafka into Parquet
    archive   topic to archive, beside the same topic into Spark's Parquet sink
    audit     every record and every unit of the store checked
    latency   micro-batches while a thousand messages a second come, ours and Kafka's
    scaling   live and store with 1 to 16 partitions

Reads are one aggregate that touches what a consumer would: number of rows, bytes of bodies, last offset, keys, time.
Our formats are asked for the columns that Kafka's source has (`columns`), and once for all 21. Each read is repeated
until three in a row agree within 5 %, which warms Spark's JVM and Kafka's broker, and those three count: the median,
the best, and the processor time of all processes together, which a busy machine disturbs less. Servers, Spark and this
program are in one scheduling group. Broker and Spark share the machine, as Kafka and Spark do. The archive is compared
with Spark's own Parquet sink as a stream with a checkpoint that takes all there is in the same batches, once from our
topic with the same columns, once from Kafka with its own.

Topics are filled once and kept in `--keep`. `--json` adds to what the file has, so that the parts can run one by one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.spark_bench import COLUMNS, Bench, Figure, Timed
from benchmarks.spark_streams import archiving, latency, parquet_sink
from benchmarks.spark_topics import OVERLAY, QUEUES, TOPIC, Filled, KafkaBroker
from cometmq.spark.pipelines import audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS: Final = ("fill", "live", "store", "kafka", "archive", "audit", "latency", "scaling")
OURS: Final = (
    "count(*) AS rows, sum(length(body)) AS bytes, max(queueOffset) AS last, count(keys) AS keys, "
    "max(storeTimestamp) AS newest, max(queueId) AS queue, max(topic) AS topic"
)
KAFKAS: Final = (
    "count(*) AS rows, sum(length(value)) AS bytes, max(offset) AS last, count(key) AS keys, "
    "max(timestamp) AS newest, max(partition) AS queue, max(topic) AS topic"
)


# Reads


def live(bench: Bench, filled: Filled) -> None:
    with filled.served() as namesrv:
        bench.read("live", lambda: live_frame(bench, namesrv), OURS, filled, bench.args.rounds)
        bench.read("live all columns", lambda: live_frame(bench, namesrv, None), OURS, filled, 1)


def live_frame(bench: Bench, namesrv: str, columns: str | None = COLUMNS, **more: str) -> DataFrame:
    options = {"namesrvAddr": namesrv, "subscribe": TOPIC, **({"columns": columns} if columns else {}), **more}
    return bench.spark.read.format("cometmq").options(**options).load()


def store(bench: Bench, filled: Filled) -> None:
    bench.read("store", lambda: store_frame(bench, filled), OURS, filled, bench.args.rounds)
    bench.read("store all columns", lambda: store_frame(bench, filled, None), OURS, filled, 1)


def store_frame(bench: Bench, filled: Filled, columns: str | None = COLUMNS, **more: str) -> DataFrame:
    options = {"subscribe": TOPIC, **({"columns": columns} if columns else {}), **more}
    return bench.spark.read.format("cometmq_store").options(**options).load(str(filled.store))


def fill(bench: Bench, filled: Filled) -> None:
    with KafkaBroker(filled.directory / "kafka") as broker:
        broker.start()
        _fill_kafka(bench, filled, broker.address)
        broker.stop()


def kafka(bench: Bench, filled: Filled) -> None:
    with KafkaBroker(filled.directory / "kafka") as broker:
        broker.start()
        _fill_kafka(bench, filled, broker.address)
        options = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC, "startingOffsets": "earliest"}

        def frame() -> DataFrame:
            return bench.spark.read.format("kafka").options(**options).load()

        bench.read("kafka", frame, KAFKAS, filled, bench.args.rounds)
        if bench.is_first(filled):
            parquet_sink(bench, "kafka to parquet sink", filled, "kafka", options)
        broker.stop()


def _fill_kafka(bench: Bench, filled: Filled, address: str) -> None:
    done = filled.directory / "kafka.done"
    if done.exists():
        return
    frame = store_frame(bench, filled).selectExpr("topic", "queueId AS partition", "keys AS key", "body AS value")
    frame.write.format("kafka").option("kafka.bootstrap.servers", address).mode("append").save()
    done.touch()


def scaling(bench: Bench, filled: Filled) -> None:
    """The same rows in more pieces; where they are one or two, a task pulls from several queues in turn."""
    with filled.served() as namesrv:
        for count in (1, 2, 4, 8, 16):
            size = str(filled.count * (filled.size + 250) // count)

            def from_broker(count: int = count) -> DataFrame:
                return _in_pieces(live_frame(bench, namesrv, minPartitions=str(count)), count)

            def from_store(count: int = count, size: str = size) -> DataFrame:
                return _in_pieces(store_frame(bench, filled, maxBytesPerPartition=size), count)

            bench.read(f"scaling live {count} partitions", from_broker, OURS, filled, 1)
            bench.read(f"scaling store {count} partitions", from_store, OURS, filled, 1)


def _in_pieces(frame: DataFrame, count: int) -> DataFrame:
    return frame.coalesce(count) if count < QUEUES else frame


# The rest


def auditing(bench: Bench, filled: Filled) -> None:
    timed = Timed()
    for _ in range(bench.args.rounds + 1):
        with timed:
            done, findings = audit(bench.spark, store=str(filled.store))
        assert not findings, findings[:3]
        assert done.figures["messages"] == filled.count, done
    used = _log_bytes_used(filled)
    figure: Figure = {"seconds": [round(one, 2) for one in timed.seconds], "first_s": round(timed.first_s, 2)}
    figure |= {
        "log_mb": round(used / 1e6),
        "mb_log_per_s": round(used / statistics.median(timed.seconds) / 1e6),
        "best_mb_log_per_s": round(used / min(timed.seconds) / 1e6),
        "mb_log_per_cpu_s": round(used / timed.least_cpu_s / 1e6),
    }
    bench.tell(f"audit/{filled.size}", figure)


def _log_bytes_used(filled: Filled) -> int:
    """What records take: files are made whole, ahead of need."""
    from cometmq.spark.stores.partitions import StoreDirectory

    directory = StoreDirectory.at(str(filled.store), "store")
    found = [directory.units(topic, queue)[1] for topic, queue in directory.queues(lambda topic: topic == TOPIC)]
    return sum(int(units["size"].sum()) for units in found)


RUN: Final[dict[str, Callable[[Bench, Filled], None]]] = {
    "fill": fill,
    "live": live,
    "store": store,
    "kafka": kafka,
    "archive": archiving,
    "audit": auditing,
    "latency": latency,
    "scaling": scaling,
}


def main(args: list[str] | None = None, spark: SparkSession | None = None) -> dict[str, Figure]:
    """Runs what the arguments say, in a session of its own unless one is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--bodies", type=lambda text: [int(one) for one in text.split(",")], default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", type=lambda text: tuple(text.split("=", 1)), action="append", default=[])
    parser.add_argument("--keep", type=Path, help="directory of filled topics, for the next run; else a temporary one")
    parser.add_argument("--json", type=Path, help="file to add the figures to")
    told = parser.parse_args(args)
    unknown = set(told.only) - set(PARTS)
    if unknown:
        parser.error(f"--only: there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-spark-") as folder:
        bench = Bench(told, told.keep or Path(folder), spark)
        bench.tell("setting", {"cores": os.cpu_count(), "spark": bench.spark.version, "compiled": OVERLAY.is_dir()})
        try:
            for size in told.bodies:
                for part in told.only:
                    if part not in ("latency", "scaling") or size == told.bodies[0]:
                        RUN[part](bench, bench.topic(size))
        finally:
            if spark is None:
                bench.spark.stop()
    return bench.figures


if __name__ == "__main__":
    main()
