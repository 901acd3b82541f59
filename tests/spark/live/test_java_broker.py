"""The format cometmq at RocketMQ's own broker, 5.5.0, which wants every request signed: source and sink."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.options import ClientKeywords
from cometmq.errors import NoRoute
from cometmq.spark import attach
from cometmq.spark.columns import COLUMNS
from cometmq.spark.live.local_files import near
from cometmq.spark.live.offsets import Queue, Range
from cometmq.spark.live.source import read_messages, source_options
from cometmq.sync import Client
from tests.compat.harness import java as releases
from tests.compat.harness.build import ToolMissing, tool
from tests.compat.harness.processes import wait_until
from tests.compat.harness.servers import JavaBroker, JavaNameServer
from tests.spark.conftest import fill
from tests.support.certificates import authority, pair
from tests.support.require import unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.interop]

# Requests of the harness, which cannot sign: change a setting, so that the broker registers.
UPDATE_BROKER_CONFIG = 25
USER = "spark"
PASSWORD = "12345678"
KEYS: ClientKeywords = {"access_key": USER, "secret_key": PASSWORD}
PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
SETTINGS = {
    "authenticationEnabled": True,
    "authenticationProvider": f"{PROVIDERS}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{PROVIDERS}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": USER, "password": PASSWORD}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": USER, "secretKey": PASSWORD}),
    "authenticationWhitelist": UPDATE_BROKER_CONFIG,
    "enablePropertyFilter": True,
    "brokerFastFailureEnable": False,
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
}


@dataclass(frozen=True)
class JavaCluster:
    namesrv: str

    @property
    def options(self) -> dict[str, str]:
        return {"namesrvAddr": self.namesrv, "accessKey": USER, "secretKey": PASSWORD}

    def create_topic(self, topic: str, *, queues: int) -> None:
        """When this returns the name server knows it."""

        def is_routed() -> bool:
            with suppress(NoRoute):
                return len(admin.topic_queues(topic)) == queues
            return False

        with Client(self.namesrv, **KEYS) as client, client.admin() as admin:
            admin.create_topic(topic, queues=queues)
            wait_until(is_routed, f"the route of {topic}")

    def fill(self, topic: str, count: int, first: int = 0) -> None:
        """When this returns queues and index have it: RocketMQ's broker answers before that."""
        fill(self, topic, count, first, **KEYS)
        self.await_messages(topic, first + count)

    def await_messages(self, topic: str, count: int) -> None:
        def are_there() -> bool:
            return sum(one.count for one in admin.topic_stats(topic).values()) == count

        with Client(self.namesrv, **KEYS) as client, client.admin() as admin:
            wait_until(are_there, f"{count} messages in {topic}")

    def bodies(self, topic: str) -> Counter[int]:
        with Client(self.namesrv, **KEYS) as client, client.admin() as admin:
            return Counter(int(message.body) for queue in admin.topic_queues(topic) for message in admin.read(queue))


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    try:
        tool("java")
        releases.release(releases.CURRENT)
    except ToolMissing as missing:
        unavailable("interop", str(missing))
    folder = tmp_path_factory.mktemp("java-broker")
    certificate, key = pair("server").write(folder, "server")
    files = {"tls.server.mode": "permissive", "tls.test.mode.enable": "false"}
    files |= {"tls.server.certPath": certificate, "tls.server.keyPath": key}
    options = (*releases.QUICK, *(f"-D{name}={value}" for name, value in files.items()))
    with (
        JavaNameServer(folder, options=options).start() as namesrv,
        JavaBroker(folder, namesrv.address, SETTINGS, name="java-a", options=options).start(),
    ):
        yield JavaCluster(namesrv.address)


def read(spark: SparkSession, java: JavaCluster, topic: str, **options: Any) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    which = {} if {"assign", "subscribePattern"} & set(options) else {"subscribe": topic}
    return spark.read.format("cometmq").options(**{**java.options, **which, **texts}).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row["body"])) for row in frame.select("body").collect())


def test_batches_with_filters_and_bounds(spark: SparkSession, java: JavaCluster) -> None:
    topic = "spark_batches"
    java.create_topic(topic, queues=2)
    java.fill(topic, 300)
    time.sleep(0.1)
    java.fill(topic, 100, first=300)
    frame = read(spark, java, topic)
    rows = {int(bytes(row["body"])): row for row in frame.collect()}
    assert sorted(rows) == list(range(400)), "32 messages a pull, joined without holes"
    one = rows[42]
    assert (one["topic"], one["brokerName"], one["tags"], one["keys"]) == (topic, "java-a", "third", "k42")
    assert one["properties"]["n"] == "42"
    assert one["storeTimestamp"] is not None
    assert len({(row["queueId"], row["queueOffset"]) for row in rows.values()}) == 400

    assert numbers(read(spark, java, topic, tags="third || nothing")) == list(range(0, 400, 3))
    assert numbers(read(spark, java, topic, sqlFilter="n BETWEEN 10 AND 19")) == list(range(10, 20))
    moment = int(min(row["storeTimestamp"].timestamp() for number, row in rows.items() if number >= 300) * 1000)
    assert numbers(read(spark, java, topic, startingTimestamp=moment)) == list(range(300, 400))
    assert numbers(read(spark, java, topic, endingTimestamp=moment)) == list(range(300))
    assigned = read(spark, java, topic, assign=json.dumps({topic: {"java-a": [1]}}))
    assert numbers(assigned) == sorted(number for number, row in rows.items() if row["queueId"] == 1)
    with Client(java.namesrv, **KEYS) as client, client.admin() as admin:
        admin.create_group("spark_readers")
        for queue in admin.topic_queues(topic):
            admin.commit_offset("spark_readers", queue, 150)
    at_group = read(spark, java, topic, startingOffsets="group", consumerGroup="spark_readers")
    assert numbers(at_group) == sorted(number for number, row in rows.items() if row["queueOffset"] >= 150)
    with pytest.raises(Exception, match="code 16"):
        read(spark, java, topic, secretKey="guessed!").collect()


def test_a_stream_goes_on_and_its_group_shows_how_far_it_has_come(
    spark: SparkSession, java: JavaCluster, tmp_path: Path
) -> None:
    topic, group = "spark_streams", "spark_streamers"
    java.create_topic(topic, queues=2)
    java.fill(topic, 120)

    def run() -> list[int]:
        source = (
            spark.readStream.format("cometmq")
            .options(**java.options, subscribe=topic, startingOffsets="earliest", consumerGroup=group)
            .option("maxOffsetsPerTrigger", "50")
            .load()
        )
        query = (
            source.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        attach(query, consumerGroup=group, **java.options)
        query.awaitTermination()
        return numbers(spark.read.parquet(str(tmp_path / "out")))

    assert run() == list(range(120))
    java.fill(topic, 40, first=120)
    assert run() == list(range(160))
    deadline_s = time.monotonic() + 30
    with Client(java.namesrv, **KEYS) as client, client.admin() as admin:
        while sum(admin.committed_offsets(group, topic).values()) < 160:
            assert time.monotonic() < deadline_s, admin.committed_offsets(group, topic)
            time.sleep(0.1)


def test_tls_carries_reads_and_writes_and_wants_to_know_whom_it_talks_to(
    spark: SparkSession, java: JavaCluster, tmp_path: Path
) -> None:
    topic = "spark_tls"
    java.create_topic(topic, queues=1)
    trust, stranger = tmp_path / "trust.pem", tmp_path / "stranger.pem"
    trust.write_bytes(authority())
    stranger.write_bytes(authority("stranger"))
    secure = {"tls": "true", "tlsTrust": str(trust)}
    frame = spark.range(10).selectExpr("CAST(id AS STRING) AS body")
    frame.write.format("cometmq").options(**java.options, **secure, topic=topic).mode("append").save()
    java.await_messages(topic, 10)
    assert numbers(read(spark, java, topic, **secure)) == list(range(10))
    with pytest.raises(Exception, match="certificate verify failed"):
        read(spark, java, topic, tls="true", tlsTrust=stranger, retryMs=0).collect()


def failing(frame: DataFrame) -> DataFrame:
    """The same rows, but each task fails after 80 of them on its first try."""
    import pyarrow as pa

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        seen = 0
        for batch in batches:
            for first in range(0, batch.num_rows, 10):
                if seen >= 80 and context.attemptNumber() < 1:
                    raise RuntimeError("as planned")
                yield batch.slice(first, 10)
                seen += 10

    return frame.mapInArrow(pass_on, frame.schema)


@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated", "transactional"])
def test_every_delivery_holds_although_tasks_fail_half_way(
    spark: SparkSession, java: JavaCluster, delivery: str
) -> None:
    topic = f"spark_sink_{delivery}"
    java.create_topic(topic, queues=2)
    # Large rows in small batches: so that they do not wait in a buffer of Spark's until the task has failed.
    frame = spark.range(0, 200, 1, 2).selectExpr("rpad(CAST(id AS STRING), 16384, ' ') AS body", "'red' AS tags")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        options = {**java.options, "topic": topic, "delivery": delivery, "maxInFlight": "5"}
        failing(frame).write.format("cometmq").options(**options).mode("append").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    deadline_s = time.monotonic() + 30
    while set(counts := java.bodies(topic)) != set(range(200)):  # queues are made a moment after the answer
        assert time.monotonic() < deadline_s, f"{len(counts)} of 200 rows have arrived"
        time.sleep(0.1)
    if delivery != "at-least-once":
        assert set(counts.values()) == {1}
    assert numbers(read(spark, java, topic, tags="red")) == sorted(counts.elements())


def test_files_of_rocketmqs_broker_are_found_by_asking_it(java: JavaCluster, topic: str) -> None:
    java.create_topic(topic, queues=1)
    java.fill(topic, 50)
    options = source_options({**java.options, "subscribe": topic, "readMode": "auto"})
    one = Range(Queue(topic, "java-a", 0), 0, 50)
    store = near(options, one)
    assert store is not None
    assert {*store.queues(lambda name: name == topic)} == {(topic, 0)}
    rows = [row for batch in read_messages(options, one, COLUMNS) for row in batch.to_pylist()]
    assert sorted(int(row["body"]) for row in rows) == list(range(50))
    pulled = source_options({**java.options, "subscribe": topic})
    assert rows == [row for batch in read_messages(pulled, one, COLUMNS) for row in batch.to_pylist()]
