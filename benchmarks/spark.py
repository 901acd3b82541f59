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
Our formats are asked for the columns that Kafka's source has (`columns`), and once for all 21. Each read is made once
to start workers and warm the JVM, then `--rounds` times; the median and the best count, and the processor
time of all processes together, which a busy machine disturbs less. Broker and Spark share the
machine, as Kafka and Spark do. The archive is compared with Spark's own Parquet sink as a stream with a checkpoint
that takes all there is in the same batches, once from our topic with the same columns, once from Kafka with its own.

Topics are filled once and kept in `--keep`. `--json` adds to what the file has, so that the parts can run one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark_topics import QUEUES, STREAM_TOPIC, TOPIC, Filled, KafkaBroker, kafka_jars, trickle_command
from cometmq.spark import session
from cometmq.spark.pipelines import archive, audit
from tests.compat.harness.build import REPO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS: Final = ("fill", "live", "store", "kafka", "archive", "audit", "latency", "scaling")
# What Kafka's source has too: key, value, topic, partition, offset, timestamp.
COLUMNS: Final = "topic,queueId,queueOffset,keys,body,storeTimestamp"
OURS: Final = (
    "count(*) AS rows, sum(length(body)) AS bytes, max(queueOffset) AS last, count(keys) AS keys, "
    "max(storeTimestamp) AS newest, max(queueId) AS queue, max(topic) AS topic"
)
KAFKAS: Final = (
    "count(*) AS rows, sum(length(value)) AS bytes, max(offset) AS last, count(key) AS keys, "
    "max(timestamp) AS newest, max(partition) AS queue, max(topic) AS topic"
)
ROWS_PER_BATCH: Final = 1_000_000
STREAM_S: Final = 20.0
STREAM_PER_S: Final = 1000

Figure = dict[str, Any]


class Bench:
    """What the parts share: session, arguments, figures so far."""

    def __init__(self, args: argparse.Namespace, keep: Path, spark: SparkSession | None = None) -> None:
        self.args = args
        self.keep = keep
        self.figures: dict[str, Figure] = {}
        self.spark: SparkSession = spark or self._session()

    def _session(self) -> SparkSession:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYTHONPATH"] = os.pathsep.join([str(REPO / "src"), str(REPO)])
        conf = {"spark.driver.memory": "3g", "spark.local.dir": str(self.keep / "local"), **dict(self.args.conf)}
        if {"fill", "kafka", "latency"} & set(self.args.only):
            conf["spark.jars"] = ",".join(map(str, sorted(kafka_jars("source").glob("*.jar"))))
        return session("cometmq-benchmark", master=self.args.master, conf=conf)

    def topic(self, size: int) -> Filled:
        return Filled(self.keep, self.args.messages, size).make_store()

    def put(self, name: str, seconds: list[float], rows: int, size: int, **more: Any) -> None:
        median = statistics.median(seconds)
        figure: Figure = {"rows": rows, "seconds": [round(one, 2) for one in seconds]}
        figure |= {"best_m_rows_per_s": round(rows / min(seconds) / 1e6, 3)}
        figure |= {
            "m_rows_per_s": round(rows / median / 1e6, 3),
            "mb_bodies_per_s": round(rows * size / median / 1e6),
            **more,
        }
        self.tell(name, figure)

    def tell(self, name: str, figure: Figure) -> None:
        self.figures[name] = figure
        print(name, json.dumps(figure), flush=True)

    def read(self, name: str, make: Callable[[], DataFrame], aggregate: str, filled: Filled, rounds: int) -> None:
        """Reads it once to warm up, then `rounds` times."""
        seconds, cpu_s = [], []
        for _ in range(rounds + 1):
            before_s, began_s = tree_cpu_s(), time.perf_counter()
            row = make().selectExpr(*aggregate.split(", ")).collect()[0]
            seconds.append(time.perf_counter() - began_s)
            cpu_s.append(tree_cpu_s() - before_s)
            assert row["rows"] == filled.count, (name, row)
            assert row["keys"] == filled.count, (name, row)
        self.put(
            f"{name}/{filled.size}", seconds[1:], filled.count, filled.size,
            first_s=round(seconds[0], 2), cpu_us_per_row=round(min(cpu_s[1:]) / filled.count * 1e6, 2),
        )  # fmt: skip

    def scratch(self, name: str) -> str:
        path = self.keep / name
        shutil.rmtree(path, ignore_errors=True)
        return str(path)


def tree_cpu_s() -> float:
    """Processor time of this process and all below it: Spark, its workers, the servers."""
    parents: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended meanwhile
        # Those of children that have ended count with their parent.
        parents[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    known = {os.getpid()}
    while found := {pid for pid, (parent, _) in parents.items() if parent in known and pid not in known}:
        known |= found
    return sum(parents[pid][1] for pid in known if pid in parents) / os.sysconf("SC_CLK_TCK")


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
        _parquet_sink(bench, "kafka to parquet sink", filled, "kafka", options)
        broker.stop()


def _fill_kafka(bench: Bench, filled: Filled, address: str) -> None:
    done = filled.directory / "kafka.done"
    if done.exists():
        return
    frame = store_frame(bench, filled).selectExpr("topic", "queueId AS partition", "keys AS key", "body AS value")
    frame.write.format("kafka").option("kafka.bootstrap.servers", address).mode("append").save()
    done.touch()


def scaling(bench: Bench, filled: Filled) -> None:
    """The same rows in more pieces; one or two pieces hold several queues, which their task reads in turn."""
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


# Into Parquet


def archiving(bench: Bench, filled: Filled) -> None:
    with filled.served() as namesrv:
        seconds, cpu_s = [], []
        for _ in range(2):
            root = bench.scratch("archive")
            before_s, began_s = tree_cpu_s(), time.perf_counter()
            done = archive(bench.spark, namesrv=namesrv, topics=TOPIC, root=root, rows_per_batch=ROWS_PER_BATCH)
            seconds.append(time.perf_counter() - began_s)
            cpu_s.append(tree_cpu_s() - before_s)
            assert done.figures["rows"] == filled.count, done
        bench.put(
            f"archive/{filled.size}", seconds[1:], filled.count, filled.size,
            first_s=round(seconds[0], 2), files=done.figures["files"], parquet_mb=round(done.figures["bytes"] / 1e6),
            cpu_us_per_row=round(cpu_s[1] / filled.count * 1e6, 2),
        )  # fmt: skip
        shutil.rmtree(root)
        options = {"namesrvAddr": namesrv, "subscribe": TOPIC, "startingOffsets": "earliest"}
        _parquet_sink(bench, "cometmq to parquet sink", filled, "cometmq", options)


def _parquet_sink(bench: Bench, name: str, filled: Filled, kind: str, options: dict[str, str]) -> None:
    """A stream that takes all there is, into Spark's own Parquet files. Warmed by a batch write of a part."""
    target = bench.scratch("parquet")
    bench.spark.read.format(kind).options(**options).load().limit(filled.count // 10).write.parquet(target + "/warm")
    stream = bench.spark.readStream.format(kind).options(**options, maxOffsetsPerTrigger=ROWS_PER_BATCH).load()
    writer = stream.writeStream.format("parquet").option("path", target + "/data")
    writer = writer.option("checkpointLocation", target + "/checkpoint").trigger(availableNow=True)
    before_s, began_s = tree_cpu_s(), time.perf_counter()
    query = writer.start()
    query.awaitTermination()
    seconds = time.perf_counter() - began_s
    cpu_us = (tree_cpu_s() - before_s) / filled.count * 1e6
    rows = sum(one["numInputRows"] for one in query.recentProgress)
    assert rows == filled.count, rows
    size = sum(path.stat().st_size for path in Path(target, "data").glob("*.parquet"))
    bench.put(
        f"{name}/{filled.size}",
        [seconds],
        rows,
        filled.size,
        parquet_mb=round(size / 1e6),
        cpu_us_per_row=round(cpu_us, 2),
    )
    shutil.rmtree(target)


# The rest


def auditing(bench: Bench, filled: Filled) -> None:
    seconds, cpu_s = [], []
    for _ in range(bench.args.rounds + 1):
        before_s, began_s = tree_cpu_s(), time.perf_counter()
        done, findings = audit(bench.spark, store=str(filled.store))
        seconds.append(time.perf_counter() - began_s)
        cpu_s.append(tree_cpu_s() - before_s)
        assert not findings, findings[:3]
        assert done.figures["messages"] == filled.count, done
    used = _log_bytes_used(filled)
    median = statistics.median(seconds[1:])
    figure = {"seconds": [round(one, 2) for one in seconds[1:]], "first_s": round(seconds[0], 2)}
    figure |= {"log_mb": round(used / 1e6), "mb_log_per_s": round(used / median / 1e6)}
    bench.tell(
        f"audit/{filled.size}",
        {
            **figure,
            "best_mb_log_per_s": round(used / min(seconds[1:]) / 1e6),
            "mb_log_per_cpu_s": round(used / min(cpu_s[1:]) / 1e6),
        },
    )


def _log_bytes_used(filled: Filled) -> int:
    """What records take: files are made whole, ahead of need."""
    from cometmq.spark.storeparts import StoreDirectory

    directory = StoreDirectory.at(str(filled.store), "store")
    found = [directory.units(topic, queue)[1] for topic, queue in directory.queues(lambda topic: topic == TOPIC)]
    return sum(int(units["size"].sum()) for units in found)


def latency(bench: Bench, filled: Filled) -> None:
    with filled.served() as namesrv:
        options = {"namesrvAddr": namesrv, "subscribe": STREAM_TOPIC, "columns": COLUMNS}
        command = trickle_command(namesrv, STREAM_PER_S, STREAM_S + 25, filled.size)
        _stream(bench, f"latency cometmq/{filled.size}", "cometmq", options, command)
    with KafkaBroker(filled.directory / "kafka") as broker:
        broker.start()
        options = {"kafka.bootstrap.servers": broker.address, "subscribe": STREAM_TOPIC}
        command = broker.trickle(STREAM_PER_S, STREAM_S + 25, filled.size)
        _stream(bench, f"latency kafka/{filled.size}", "kafka", options, command)
        broker.stop()


def _stream(bench: Bench, name: str, kind: str, options: dict[str, str], producer: list[str]) -> None:
    """Micro-batches one after the other into a sink that does nothing; those of the last `STREAM_S` count."""
    with tempfile.TemporaryDirectory(dir=bench.keep) as folder:
        sender = subprocess.Popen(producer, stdout=subprocess.DEVNULL, cwd=REPO)
        try:
            stream = bench.spark.readStream.format(kind).options(**options, startingOffsets="earliest").load()
            query = stream.writeStream.format("noop").option("checkpointLocation", folder).start()
            progress: dict[int, Any] = {}
            settled_s = time.monotonic() + 15
            while time.monotonic() < settled_s + STREAM_S:
                time.sleep(0.5)
                for one in query.recentProgress:
                    if time.monotonic() > settled_s and one["numInputRows"]:
                        progress[one["batchId"]] = one
            query.stop()
        finally:
            sender.terminate()
            sender.wait()
    times = sorted(one["durationMs"]["triggerExecution"] for one in list(progress.values())[20:])
    rows = sum(one["numInputRows"] for one in progress.values())
    figure = {
        "batches": len(times),
        "rows": rows,
        "p50_ms": times[len(times) // 2],
        "p95_ms": times[len(times) * 95 // 100],
    }
    bench.tell(name, figure)


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
        try:
            for size in told.bodies:
                for part in told.only:
                    # Latency and scaling say little more with another size.
                    if part not in ("latency", "scaling") or size == told.bodies[0]:
                        RUN[part](bench, bench.topic(size))
        finally:
            if spark is None:
                bench.spark.stop()
    if told.json:
        before = json.loads(told.json.read_text()) if told.json.exists() else {}
        told.json.write_text(json.dumps({**before, **bench.figures}, indent=1, sort_keys=True) + "\n")
    return bench.figures


if __name__ == "__main__":
    main()
