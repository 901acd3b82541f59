"""Streams of `benchmarks.spark`: a topic into Parquet files, and micro-batches while messages come.

    archive    topic -> `archive` -> Parquet            ranges pass through the JVM, messages do not
    sink       topic -> readStream -> writeStream       the same rows and columns, or Kafka's

Both take all there is in the same batches, from the same broker, with a checkpoint, onto the same disk. What they take
is told with the start of the query, and as the sum of their batches alone.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark_bench import COLUMNS, Bench, Timed
from benchmarks.spark_topics import STREAM_TOPIC, TOPIC, Filled, KafkaBroker, trickle_command
from cometmq.spark.lake.archive import Lake
from cometmq.spark.pipelines import archive
from tests.compat.harness.build import REPO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_BATCH: Final = 1_000_000
SETTLE_S: Final = 12.0
STREAM_S: Final = 15.0
STREAM_PER_S: Final = 1000


class Batches:
    """How long the micro-batches of streams took, without the start of the query."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        batches = self
        self.seconds: list[float] = []
        self.ended = threading.Event()

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802 - Spark's names

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                if event.progress.numInputRows:
                    batches.seconds.append(event.progress.batchDuration / 1000)

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                batches.ended.set()

        self.listener = Listener()
        spark.streams.addListener(self.listener)

    def begin(self) -> None:
        self.seconds.clear()
        self.ended.clear()

    def end(self) -> float:
        """Seconds of the batches of the one query that ran since `begin`. Spark tells of them a little later."""
        self.ended.wait(30)
        return sum(self.seconds)


# Into Parquet


def archiving(bench: Bench, filled: Filled) -> None:
    """As a person runs both, in Snappy: the archive from the broker's files, which it sees, the sink pulled. Then the
    archive in zstd; of the first size also each with the other's ways.
    """
    with filled.served() as namesrv:
        _archive(bench, "archive", filled, namesrv, {})
        _archive(bench, "archive zstd", filled, namesrv, {"codec": "zstd"})
        options = {"namesrvAddr": namesrv, "subscribe": TOPIC, "startingOffsets": "earliest"}
        parquet_sink(bench, "cometmq to parquet sink", filled, "cometmq", options)
        if bench.is_first(filled):
            _archive(bench, "archive pulled", filled, namesrv, {"readMode": "remote"})
            parquet_sink(bench, "cometmq to parquet sink zstd", filled, "cometmq", options, "zstd")
            near = {**options, "readMode": "auto"}
            parquet_sink(bench, "cometmq to parquet sink near the store", filled, "cometmq", near)


def _archive(bench: Bench, name: str, filled: Filled, namesrv: str, more: dict[str, Any]) -> None:
    root = bench.scratch("archive")

    def run() -> None:
        archive(bench.spark, namesrv=namesrv, topics=TOPIC, root=root, rows_per_batch=ROWS_PER_BATCH, **more)

    _drain(bench, name, filled, root, run, 1 + min(2, bench.args.rounds))
    assert sum(file.rows for file in Lake(root).live_files()) == filled.count
    shutil.rmtree(root)


def parquet_sink(
    bench: Bench, name: str, filled: Filled, kind: str, options: dict[str, str], codec: str = "snappy"
) -> None:
    """Spark's own Parquet files. Warmed by a batch write of a part, since the whole takes long."""
    target = bench.scratch("parquet")
    bench.spark.read.format(kind).options(**options).load().limit(filled.count // 5).write.parquet(
        target, compression=codec
    )

    def run() -> None:
        stream = bench.spark.readStream.format(kind).options(**options, maxOffsetsPerTrigger=ROWS_PER_BATCH).load()
        writer = stream.writeStream.format("parquet").option("path", target + "/data").option("compression", codec)
        writer.option("checkpointLocation", target + "/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()

    _drain(bench, name, filled, target, run, 1)
    assert bench.spark.read.parquet(target + "/data").count() == filled.count
    shutil.rmtree(target)


def _drain(bench: Bench, name: str, filled: Filled, target: str, run: Callable[[], Any], times: int) -> None:
    """A stream over the whole topic into files below `target`, often; the first warms up, unless it is alone. What the
    one before has written is removed first, which is not counted.
    """
    batches = Batches(bench.spark)
    timed, in_batches_s = Timed(), []
    for _ in range(times):
        shutil.rmtree(target, ignore_errors=True)
        batches.begin()
        with timed:
            run()
        in_batches_s.append(batches.end())
    bench.spark.streams.removeListener(batches.listener)
    in_batches_s = in_batches_s[1:] or in_batches_s
    size = sum(path.stat().st_size for path in Path(target).glob("**/*.parquet"))
    bench.put(
        name, timed, filled, parquet_mb=round(size / 1e6), in_batches_s=[round(one, 2) for one in in_batches_s],
        m_rows_per_s_in_batches=round(filled.count / max(statistics.median(in_batches_s), 1e-3) / 1e6, 3),
    )  # fmt: skip


# Micro-batches


def latency(bench: Bench, filled: Filled) -> None:
    """In directories of its own, which go again: what it sends is no part of the filled topics."""
    fresh = Filled(bench.keep, 0, filled.size)
    shutil.rmtree(fresh.directory, ignore_errors=True)
    with fresh.served() as namesrv:
        options = {"namesrvAddr": namesrv, "subscribe": STREAM_TOPIC, "columns": COLUMNS}
        command = trickle_command(namesrv, STREAM_PER_S, SETTLE_S + STREAM_S + 30, filled.size)
        _micro_batches(bench, f"latency cometmq/{filled.size}", "cometmq", options, command)
    with KafkaBroker(fresh.directory / "kafka") as broker:
        broker.start()
        options = {"kafka.bootstrap.servers": broker.address, "subscribe": STREAM_TOPIC}
        command = broker.trickle(STREAM_PER_S, SETTLE_S + STREAM_S + 30, filled.size)
        _micro_batches(bench, f"latency kafka/{filled.size}", "kafka", options, command)
        broker.stop()
    shutil.rmtree(fresh.directory)


def _micro_batches(bench: Bench, name: str, kind: str, options: dict[str, str], producer: list[str]) -> None:
    """One after the other into a sink that does nothing; those of the last `STREAM_S` count."""
    with tempfile.TemporaryDirectory(dir=bench.keep) as folder:
        sender = subprocess.Popen(producer, stdout=subprocess.DEVNULL, cwd=REPO)
        try:
            _await_first(bench, kind, options)
            stream = bench.spark.readStream.format(kind).options(**options, startingOffsets="latest").load()
            query = stream.writeStream.format("noop").option("checkpointLocation", folder).start()
            settling = _collect(query, SETTLE_S)
            counted = {number: one for number, one in _collect(query, STREAM_S).items() if number not in settling}
            query.stop()
        finally:
            sender.terminate()
            sender.wait()
    times = sorted(one["durationMs"]["triggerExecution"] for one in counted.values())
    assert times, f"{name}: no batch had rows; {len(settling)} before"
    rows = sum(one["numInputRows"] for one in counted.values())
    figure = {"batches": len(times), "rows": rows, "rows_per_s_sent": STREAM_PER_S}
    figure |= {"p50_ms": times[len(times) // 2], "p95_ms": times[len(times) * 95 // 100], "worst_ms": times[-1]}
    bench.tell(name, figure)


def _await_first(bench: Bench, kind: str, options: dict[str, str]) -> None:
    """Until messages come: the sender makes Kafka's topic."""
    give_up_s = time.monotonic() + 60
    while time.monotonic() < give_up_s:
        try:
            if bench.spark.read.format(kind).options(**options).load().limit(1).count():
                return
        except Exception as error:  # no such topic yet, in the words of either source
            if "nknown" not in str(error) and "oute" not in str(error):
                raise
        time.sleep(0.5)
    raise TimeoutError(f"no message came into {STREAM_TOPIC} in 60 s: does its sender run?")


def _collect(query: Any, seconds: float) -> dict[int, Any]:
    """Reports of batches with rows, by their number."""
    found: dict[int, Any] = {}
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(0.5)
        found |= {one["batchId"]: one for one in query.recentProgress if one["numInputRows"]}
    return found
