"""The format cometmq as a sink: what arrives, and what arrives when tasks fail half-way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import NoRoute
from cometmq.spark.live.exactly_once import records
from cometmq.spark.live.offsets import Positions, Range
from cometmq.spark.live.remote import CONNECTION_OPTIONS, remote
from cometmq.spark.options import Options
from cometmq.testing import SyncCluster
from cometmq.wire.record.properties import Property, decode
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# Where rows of a transaction are until it ends.
HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"


def write(frame: DataFrame, cluster: SyncCluster, **options: Any) -> None:
    texts = {name: str(value) for name, value in {"namesrvAddr": cluster.namesrv, **options}.items()}
    frame.write.format("cometmq").options(**texts).mode("append").save()


def bodies(cluster: SyncCluster, topic: str) -> Counter[int]:
    return Counter(int(message.body) for message in cluster.messages(topic))


def test_rows_become_messages_with_all_that_they_say(spark: SparkSession, cluster: SyncCluster, topic: str) -> None:
    rows = [(f"body {n}", "red", f"k{n} all", {"p": str(n)}, n, f"s{n % 3}") for n in range(50)]
    frame = spark.createDataFrame(
        rows,
        "body STRING, tags STRING, keys STRING, properties MAP<STRING,STRING>, flag INT, shardingKey STRING",
    )
    write(frame, cluster, topic=topic)
    found = {message.body.decode(): message for message in cluster.messages(topic)}
    assert len(found) == 50
    one = found["body 7"]
    assert (one.tag, one.keys, one.properties["p"], one.flag) == ("red", ("k7", "all"), "7", 7)
    places = {key: {found[f"body {n}"].queue for n in range(50) if n % 3 == key} for key in range(3)}
    assert all(len(queues) == 1 for queues in places.values())


def test_a_topic_that_does_not_exist_is_made_only_when_that_is_asked_for(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    frame = spark.createDataFrame([("1",), ("2",)], "body STRING")
    misspelt = f"{topic}-misspelt"
    with pytest.raises(Exception, match=r"no name server knows topic .*createTopic=true"):
        write(frame, cluster, topic=misspelt)
    with pytest.raises(Exception, match="createTopic=true is for delivery=at-least-once"):
        write(frame, cluster, topic=misspelt, delivery="deduplicated", createTopic=True, jobId="j")
    with cluster.client() as client, client.admin() as admin:
        assert misspelt not in admin.topics()
    write(frame, cluster, topic=misspelt, createTopic=True)
    assert bodies(cluster, misspelt) == Counter((1, 2))


def test_a_topic_column_names_the_topic_and_a_queue_column_the_queue(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    broker = cluster.brokers[1].name
    frame = spark.createDataFrame(
        [(topic, b"%d" % number, broker, 1) for number in range(10)],
        "topic STRING, body BINARY, brokerName STRING, queueId INT",
    )
    write(frame, cluster, partitioner="column")
    queues = {one.queue for one in cluster.messages(topic) if one.queue is not None}
    assert {(queue.broker_name, queue.queue_id) for queue in queues} == {(broker, 1)}


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("value STRING", {"topic": "t"}, "column value has no meaning for the sink"),
        ("topic STRING", {}, "needs a column body"),
        ("body STRING", {}, "say where to"),
        ("body STRING", {"topic": "t", "delivery": "exactly-once"}, "delivery=exactly-once is none of"),
        ("body STRING", {"topic": "t", "partitioner": "column"}, "needs the columns brokerName and queueId"),
    ],
)
def test_a_frame_that_cannot_be_sent_is_refused(
    spark: SparkSession, cluster: SyncCluster, ddl: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.createDataFrame([("x",)], ddl), cluster, **options)


def failing(frame: DataFrame, failures: int, cluster: SyncCluster, watched: str, proof: Path) -> DataFrame:
    """The same rows, but on its first tries each task fails after 80 of them, when some are in the topic `watched`.

    Each such failure leaves a file in `proof`."""
    import pyarrow as pa

    options = Options({"namesrvAddr": cluster.namesrv}, CONNECTION_OPTIONS)
    before = ends(options, watched)

    def await_some(mine: set[str]) -> None:
        """Until the topic has five of a task's rows, by their keys."""
        cluster = remote(options)
        seen, found = dict(before), 0
        give_up_s = time.monotonic() + 60
        while found < 5:
            assert time.monotonic() < give_up_s, "no row has arrived"
            for queue, end in ends(options, watched).items():
                fresh = cluster.run(records(cluster, Range(queue, seen.get(queue, 0), end)))
                found += sum(decode(one.properties).get(Property.KEYS) in mine for one in fresh)
                seen[queue] = fresh[-1].queue_offset + 1 if fresh else seen.get(queue, 0)
            time.sleep(0.05)

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        mine: set[str] = set()
        for batch in batches:
            for first in range(0, batch.num_rows, 10):
                if len(mine) >= 80 and context.attemptNumber() < failures:
                    await_some(mine)
                    (proof / f"{context.partitionId()}-{context.attemptNumber()}").touch()
                    raise RuntimeError("as planned")
                piece = batch.slice(first, 10)
                mine |= set(piece.column("keys").to_pylist())
                yield piece

    return frame.mapInArrow(pass_on, frame.schema)


def ends(options: Options, topic: str) -> Positions:
    """Of a topic that may not be there yet."""
    try:
        return remote(options).maximums(remote(options).queues([topic]))
    except NoRoute:
        return {}


@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated", "transactional"])
def test_tasks_that_fail_lose_nothing_and_double_only_where_said(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path, delivery: str
) -> None:
    # Large rows in small batches: so that they do not wait in a buffer of Spark's until the task has failed.
    frame = spark.range(0, 200, 1, 2).selectExpr("rpad(CAST(id AS STRING), 16384, ' ') AS body", "string(id) AS keys")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        watched = HALVES if delivery == "transactional" else topic
        write(failing(frame, 2, cluster, watched, tmp_path), cluster, topic=topic, delivery=delivery, maxInFlight=5)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert {path.name for path in tmp_path.iterdir()} == {"0-0", "0-1", "1-0", "1-1"}, "all had sent some"
    counts = bodies(cluster, topic)
    assert set(counts) == set(range(200))
    if delivery == "at-least-once":
        assert counts.total() > 200, "what was sent before a failure is sent again"
    else:
        assert set(counts.values()) == {1}


def test_rows_with_an_id_may_come_in_any_order_and_partition(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    rows = spark.range(0, 200, 1, 2).selectExpr(
        "rpad(CAST(id AS STRING), 16384, ' ') AS body", "string(id) AS keys", "concat('k', id) AS name"
    )
    options = {"topic": topic, "delivery": "deduplicated", "rowId": "name", "jobId": f"job-{topic}", "maxInFlight": 5}
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        with pytest.raises(Exception, match="as planned"):
            write(failing(rows, 99, cluster, topic, tmp_path), cluster, **options)
        assert 0 < len(cluster.messages(topic)) < 200
        write(rows.repartition(3).sortWithinPartitions("name", ascending=False), cluster, **options)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert bodies(cluster, topic) == Counter(range(200))
    assert "name" not in cluster.messages(topic)[-1].properties


@pytest.mark.parametrize("delivery", ["deduplicated", "transactional"])
def test_a_stream_that_is_killed_between_write_and_commit_sends_each_row_once(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path, delivery: str
) -> None:
    source_topic = f"{topic}_in"
    cluster.create_topic(source_topic, queues=2)
    fill(cluster, source_topic, 100)

    def run() -> None:
        source = (
            spark.readStream.format("cometmq")
            .options(namesrvAddr=cluster.namesrv, subscribe=source_topic, startingOffsets="earliest", columns="body")
            .option("maxOffsetsPerTrigger", "40")
            .load()
        )
        query = (
            source.writeStream.format("cometmq")
            .options(namesrvAddr=cluster.namesrv, topic=topic, delivery=delivery)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName(f"named_{delivery}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    # As if the driver had died before it noted the last batch as done, and the one before.
    for path in commits.iterdir():
        if path.name.strip(".").removesuffix(".crc") in (str(last),):
            path.unlink()
    run()
    fill(cluster, source_topic, 50, first=100)
    run()
    assert bodies(cluster, topic) == Counter(range(150))
