"""The format cometmq as a source of batches and streams, on a live cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.spark.live.offsets import from_json
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def read(spark: SparkSession, cluster: SyncCluster) -> Callable[..., DataFrame]:
    def load(**options: Any) -> DataFrame:
        texts = {name: str(value) for name, value in {"namesrvAddr": cluster.namesrv, **options}.items()}
        return spark.read.format("cometmq").options(**texts).load()

    return load


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row["body"])) for row in frame.select("body").collect())


def test_a_batch_has_every_message_once_with_all_its_columns(
    read: Callable[..., DataFrame], cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 5000)
    frame = read(subscribe=topic)
    assert numbers(frame) == list(range(5000))
    row = frame.filter("keys = 'k42'").collect()[0]
    assert (row["topic"], row["tags"], row["properties"]["n"]) == (topic, "third", "42")
    assert {one["brokerName"] for one in frame.select("brokerName").distinct().collect()} == {
        broker.name for broker in cluster.brokers
    }
    assert frame.select("brokerName", "queueId", "queueOffset").distinct().count() == 5000


def test_the_same_frame_reads_the_same_again_while_messages_come(
    read: Callable[..., DataFrame], cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 100)
    frame = read(subscribe=topic)
    first = frame.count()
    fill(cluster, topic, 50, first=100)
    assert (first, frame.count(), read(subscribe=topic).count()) == (100, 100, 150)


def test_tags_and_sql_are_filtered_by_the_broker(
    read: Callable[..., DataFrame], cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 90)
    assert numbers(read(subscribe=topic, tags="third")) == list(range(0, 90, 3))
    assert numbers(read(subscribe=topic, sqlFilter="n BETWEEN 10 AND 19")) == list(range(10, 20))


def test_a_batch_may_begin_and_end_where_it_is_told(
    read: Callable[..., DataFrame], cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 80)
    rows = read(subscribe=topic).collect()
    middle: dict[str, dict[str, int]] = {}
    for row in rows:
        queues = middle.setdefault(row["brokerName"], {})
        queues[str(row["queueId"])] = max(queues.get(str(row["queueId"]), 0), row["queueOffset"] // 2)
    below = read(subscribe=topic, endingOffsets=json.dumps({topic: middle}))
    above = read(subscribe=topic, startingOffsets=json.dumps({topic: middle}))
    assert sorted(numbers(below) + numbers(above)) == list(range(80))
    assert below.count() > 0
    assigned = read(assign=json.dumps({topic: {cluster.brokers[0].name: [1]}}))
    assert {(row["brokerName"], row["queueId"]) for row in assigned.collect()} == {(cluster.brokers[0].name, 1)}


def test_a_batch_may_begin_at_a_time(read: Callable[..., DataFrame], cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 40)
    time.sleep(0.1)
    fill(cluster, topic, 40, first=40)
    newest = {}
    for row in read(subscribe=topic).collect():
        newest[int(bytes(row["body"]))] = row["storeTimestamp"].timestamp() * 1000
    moment = int(min(at for number, at in newest.items() if number >= 40))
    assert numbers(read(subscribe=topic, startingTimestamp=moment)) == list(range(40, 80))
    assert numbers(read(subscribe=topic, endingTimestamp=moment)) == list(range(40))
    with pytest.raises(Exception, match="has no message of"):
        read(subscribe=topic, startingTimestamp=int(time.time() * 1000) + 60_000).collect()


def test_partitions_are_cut_as_asked(read: Callable[..., DataFrame], cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 1000)
    assert read(subscribe=topic).rdd.getNumPartitions() == 4
    many = read(subscribe=topic, minPartitions=10)
    assert many.rdd.getNumPartitions() >= 10
    assert numbers(many) == list(range(1000))
    small = read(subscribe=topic, maxRecordsPerPartition=100, batchRows=7, pullBatchSize=13)
    assert small.rdd.getNumPartitions() >= 10
    assert numbers(small) == list(range(1000))


def test_ranges_are_rows_too(read: Callable[..., DataFrame], cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 100)
    ranges = read(subscribe=topic, emit="ranges").collect()
    assert sum(row["lastOffset"] - row["firstOffset"] for row in ranges) == 100


def test_shares_are_ranges_for_as_many_tasks_as_were_wanted(
    read: Callable[..., DataFrame], cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 100)
    shared = read(subscribe=topic, emit="shares", minPartitions=3)
    dealt = shared.rdd.glom().collect()
    assert [sum(row["lastOffset"] - row["firstOffset"] for row in share) for share in dealt] == [33, 33, 34]
    # Four queues of 25, two of which are cut.
    assert [len(share) for share in dealt] == [2, 2, 2]


def test_filters_prune_and_hold(read: Callable[..., DataFrame], cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 100)
    frame = read(subscribe=topic, filterPushdown=True)
    some = frame.filter((frame.queueId == 1) & (frame.queueOffset < 5))
    assert some.rdd.getNumPartitions() == 2
    assert some.count() == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give exactly one of subscribe"),
        ({"subscribe": "no_such_topic"}, "no_such_topic.*the cluster has these topics"),
        ({"subscribe": "x", "namesrvAddr": "127.0.0.1:1", "retryMs": "0"}, "127.0.0.1:1"),
        ({"subscribe": "x", "startingOffsets": "latest"}, "reads nothing in a batch"),
        ({"subscribe": "x", "startingOffset": "earliest"}, "no option startingoffset: do you mean startingOffsets"),
        ({"subscribe": "x", "startingOffsets": "somewhere"}, "none of earliest, latest, group"),
        ({"assign": '{"x": 1}'}, "option assign must be"),
    ],
)
def test_a_wrong_option_is_named(
    read: Callable[..., DataFrame], cluster: SyncCluster, options: dict[str, str], message: str
) -> None:
    cluster.create_topic("x", queues=1)
    with pytest.raises(Exception, match=message):
        read(**options).collect()


# Streams


@pytest.fixture
def stream(spark: SparkSession, cluster: SyncCluster, tmp_path: Path) -> Callable[..., list[int]]:
    """Runs a stream over all that is there, into Parquet; what the sink has so far."""

    def run(topic: str, **options: Any) -> list[int]:
        texts = {name: str(value) for name, value in {"namesrvAddr": cluster.namesrv, **options}.items()}
        source = spark.readStream.format("cometmq").options(subscribe=topic, **texts).load()
        query = (
            source.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        run.progress = query.recentProgress  # type: ignore[attr-defined]
        return numbers(spark.read.parquet(str(tmp_path / "out")))

    return run


def test_a_stream_goes_on_where_it_stopped(
    stream: Callable[..., list[int]], cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 300)
    assert stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=100) == list(range(300))
    progress = [one for one in stream.progress if one["numInputRows"]]  # type: ignore[attr-defined]
    assert len(progress) >= 3
    assert all(one["numInputRows"] <= 100 for one in progress)
    fill(cluster, topic, 100, first=300)
    assert stream(topic, startingOffsets="earliest") == list(range(400))
    logged = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]
    assert set(from_json(logged)) >= {queue for queue in from_json(logged) if queue.topic == topic}


def test_a_stream_of_the_latest_begins_where_it_was_pinned(
    stream: Callable[..., list[int]], cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 20)
    pin = tmp_path / "pin"
    assert stream(topic, startingOffsets="latest", initialOffsetStore=pin) == []
    for name in ("checkpoint", "out"):  # as if its first batch had failed
        (tmp_path / name).rename(tmp_path / f"lost {name}")
    fill(cluster, topic, 20, first=20)
    assert stream(topic, startingOffsets="latest", initialOffsetStore=pin) == list(range(20, 40))


def test_a_stream_sees_queues_that_appear(
    stream: Callable[..., list[int]], cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 50)
    assert stream(topic, startingOffsets="earliest") == list(range(50))
    cluster.create_topic(topic, queues=4)
    fill(cluster, topic, 100, first=50)
    assert stream(topic, startingOffsets="earliest") == list(range(150))
