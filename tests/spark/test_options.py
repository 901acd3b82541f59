"""Options of the formats that no other test here speaks of, each where it makes a difference."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from cometmq.errors import CometError, ConfigError
from cometmq.names import SCHEDULE_TOPIC, is_system_topic
from cometmq.spark import attach
from cometmq.spark.lake.archive import Lake, LakeFile, Manifest, write_parquet
from cometmq.spark.lake.source import ArchiveReader
from cometmq.spark.live.offsets import Positions, Queue, from_dict
from cometmq.spark.live.reading import DataLoss
from cometmq.spark.live.remote import close_all, remote
from cometmq.spark.live.sink import BatchWriter, Task
from cometmq.spark.live.source import CometReader, source_options
from cometmq.spark.live.starting import is_wanted, queues_of
from cometmq.spark.live.stream import CometStreamReader
from cometmq.spark.live.topics import LEDGER_TOPIC
from cometmq.spark.options import Options
from cometmq.spark.stores.source import OPTIONS as STORE_OPTIONS
from cometmq.spark.stores.source import StoreReader, wanted_topics
from cometmq.testing import SyncCluster
from tests.nameserver.support import nameserver
from tests.spark.conftest import fill
from tests.spark.live.test_source import numbers
from tests.support.certificates import authority, pair
from tests.support.golden import golden_messages, golden_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ALL = ReadAllAvailable()


def load(spark: SparkSession, cluster: SyncCluster, **options: Any) -> DataFrame:
    texts = {name: str(value) for name, value in {"namesrvAddr": cluster.namesrv, **options}.items()}
    return spark.read.format("cometmq").options(**texts).load()


def write(frame: DataFrame, cluster: SyncCluster, **options: Any) -> None:
    texts = {name: str(value) for name, value in {"namesrvAddr": cluster.namesrv, **options}.items()}
    frame.write.format("cometmq").options(**texts).mode("append").save()


def tree(positions: Positions) -> str:
    found: dict[str, Any] = {}
    for queue, offset in positions.items():
        found.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.number)] = offset
    return json.dumps(found)


def queues(cluster: SyncCluster, topic: str) -> list[Queue]:
    return [Queue(topic, broker.name, number) for broker in cluster.brokers for number in range(2)]


# Whom it talks to


async def test_tls_is_verified_unless_an_option_says_otherwise_and_rocketmqs_names_are_taken(tmp_path: Path) -> None:
    certificate, key = pair("server", hosts=("mq.example",)).write(tmp_path, "server")
    (tmp_path / "ca.pem").write_bytes(authority())
    trust = str(tmp_path / "ca.pem")
    files = {"tls_server_mode": "enforcing", "tls_server_certPath": certificate, "tls_server_keyPath": key}
    good: list[dict[str, str]] = [
        {"tls": "true", "tlsTrust": trust, "tlsName": "mq.example"},
        {"tls.enable": "true", "tls.client.trustCertPath": trust, "tls.client.serverName": "mq.example"},
        {"tls": "true", "tlsVerify": "false"},
        {"tls.enable": "true", "tls.client.authServer": "false"},
    ]
    bad = {
        "the certificate of the server's authority as trust_path": {"tls": "true"},
        "127.0.0.1 in its subjectAltName": {"tls": "true", "tlsTrust": trust},
    }

    async with nameserver(tmp_path, **files) as names:

        def topics(given: dict[str, str]) -> list[str]:
            options = source_options({"namesrvAddr": names.address, "subscribe": "T", "retryMs": "0", **given})
            return remote(options).topics()

        for given in good:
            assert isinstance(await asyncio.to_thread(topics, given), list)
        for cause, given in bad.items():
            with pytest.raises(CometError, match=cause):
                await asyncio.to_thread(topics, given)


# Which queues, and from where to where


def test_a_pattern_reads_the_topics_that_match_and_the_old_name_of_an_option_is_taken(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    for number in range(2):
        cluster.create_topic(f"{topic}_{number}", queues=1)
        fill(cluster, f"{topic}_{number}", 10, first=10 * number)
    frame = spark.read.format("cometmq").options(nameServer=cluster.namesrv, subscribePattern=f"{topic}_[0-9]").load()
    assert numbers(frame) == list(range(20))


def test_a_pattern_leaves_out_the_topics_of_servers_and_of_the_sink(cluster: SyncCluster, topic: str) -> None:
    cluster.create_topic(LEDGER_TOPIC, queues=1)
    cluster.create_topic("%DLQ%of_some_group", queues=1)
    cluster.create_topic("%RETRY%of_some_group", queues=1)
    every = source_options({"namesrvAddr": cluster.namesrv, "subscribePattern": ".*"})
    matched = {queue.topic for queue in queues_of(every, remote(every))}
    assert topic in matched
    assert not {name for name in matched if is_system_topic(name) or name == LEDGER_TOPIC}
    servers = {broker.name for broker in cluster.brokers} | {"DefaultCluster", "DefaultCluster_REPLY_TOPIC"}
    assert not {name for name in matched if name.startswith("%") or name in servers}
    assert not is_wanted(every, Queue(LEDGER_TOPIC, "broker-0", 0))
    named = source_options({"namesrvAddr": cluster.namesrv, "subscribe": LEDGER_TOPIC})
    assert {queue.topic for queue in queues_of(named, remote(named))} == {LEDGER_TOPIC}
    letters = source_options({"namesrvAddr": cluster.namesrv, "subscribePattern": "%DLQ%of_some.*"})
    assert {queue.topic for queue in queues_of(letters, remote(letters))} == {"%DLQ%of_some_group"}
    of_store = wanted_topics(Options({"subscribePattern": ".*"}, STORE_OPTIONS))
    assert [of_store(name) for name in (topic, LEDGER_TOPIC, SCHEDULE_TOPIC, "%LMQ%x")] == [True, False, False, False]


def test_offsets_may_be_the_groups_or_marks(spark: SparkSession, cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 80)
    group = f"{topic}_group"
    with cluster.client() as client, client.admin() as admin:
        admin.create_group(group)
        for queue in admin.topic_queues(topic):
            admin.commit_offset(group, queue, 15)
    assert load(spark, cluster, subscribe=topic, startingOffsets="group", consumerGroup=group).count() == 20
    first, second, third, fourth = queues(cluster, topic)
    marks = tree({first: -2, second: -1, third: -3, fourth: 18})
    rows = load(spark, cluster, subscribe=topic, startingOffsets=marks, consumerGroup=group).collect()
    read = Counter(Queue(topic, row["brokerName"], row["queueId"]) for row in rows)
    assert read == {first: 20, third: 5, fourth: 2}
    with pytest.raises(Exception, match="consumerGroup is missing: the group whose position"):
        load(spark, cluster, subscribe=topic, startingOffsets="group").collect()


def test_times_may_differ_by_queue_and_a_time_that_is_too_young_has_a_strategy(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 40)
    time.sleep(0.05)
    fill(cluster, topic, 40, first=40)
    rows = load(spark, cluster, subscribe=topic).collect()
    young = [row["storeTimestamp"].timestamp() * 1000 for row in rows if int(bytes(row["body"])) >= 40]
    middle, future = int(min(young)), int(time.time() * 1000) + 3_600_000
    first, *others = queues(cluster, topic)
    times = tree({first: middle, **dict.fromkeys(others, 0)})
    assert load(spark, cluster, subscribe=topic, startingOffsetsByTimestamp=times).count() == 70
    assert load(spark, cluster, subscribe=topic, endingOffsetsByTimestamp=times).count() == 10
    options = {"subscribe": topic, "startingTimestamp": future}
    assert load(spark, cluster, **options, startingOffsetsByTimestampStrategy="latest").count() == 0
    assert load(spark, cluster, **options, startingOffsetsByTimestampStrategy="earliest").count() == 80


def test_a_loss_is_an_error_or_a_gap(spark: SparkSession, cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 40)
    first, *others = queues(cluster, topic)
    beyond = tree({first: 500, **dict.fromkeys(others, 0)})
    wanted = rf"{first}: offsets 500 to 500 were wanted, the queue has 0 to 10 .*failOnDataLoss=false"
    with pytest.raises(Exception, match=wanted):
        load(spark, cluster, subscribe=topic, startingOffsets=beyond).collect()
    assert load(spark, cluster, subscribe=topic, startingOffsets=beyond, failOnDataLoss=False).count() == 30


@pytest.mark.parametrize("kind", [CometReader, StoreReader, ArchiveReader])
def test_where_there_is_nothing_spark_asks_for_nothing_in_particular(kind: Any) -> None:
    assert list(kind({}, ()).read(InputPartition(None))) == []


# How it is read


def test_pulls_may_be_small_few_and_impatient(spark: SparkSession, cluster: SyncCluster, topic: str) -> None:
    fill(cluster, topic, 200)
    options = {"pullBatchSize": 7, "pullMaxBytes": 300, "pullConcurrency": 1, "pullTimeoutMs": 20_000, "retryMs": 1000}
    small = load(spark, cluster, subscribe=topic, batchBytes=1000, **options)
    assert numbers(small) == list(range(200))


def test_columns_are_those_that_are_asked_for_in_their_order(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 10)
    assert load(spark, cluster, subscribe=topic, columns="body,queueOffset").columns == ["body", "queueOffset"]
    given = spark.read.format("cometmq").schema("keys STRING, body BINARY")
    frame = given.options(namesrvAddr=cluster.namesrv, subscribe=topic).load()
    assert {(row[0], bytes(row[1])) for row in frame.collect()} == {(f"k{n}", b"%d" % n) for n in range(10)}


def test_bodies_are_inflated_unless_told_otherwise(spark: SparkSession, cluster: SyncCluster, topic: str) -> None:
    body = b"x" * 20_000
    with cluster.client() as client, client.producer("pg") as producer:
        producer.send(topic, body)
    (plain,) = load(spark, cluster, subscribe=topic).collect()
    (packed,) = load(spark, cluster, subscribe=topic, decompress=False).collect()
    assert bytes(plain["body"]) == body
    assert len(packed["body"]) < 1000
    assert (plain["sysFlag"] & 1, packed["sysFlag"] & 1) == (0, 1)


def test_a_live_queue_may_be_read_from_the_brokers_files(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 200)
    paths = {broker.name: str(broker.directory / "store") for broker in cluster.brokers}
    options = {"subscribe": topic, "readMode": "store", "storePath": json.dumps(paths), "batchRows": 30}
    near = load(spark, cluster, **options)
    assert sorted(map(str, near.collect())) == sorted(map(str, load(spark, cluster, subscribe=topic).collect()))
    some = load(spark, cluster, **options, tags="third", columns="body", maxRecordsPerPartition=20)
    assert numbers(some) == list(range(0, 200, 3))
    half = json.dumps({cluster.brokers[0].name: paths[cluster.brokers[0].name], cluster.brokers[1].name: str(tmp_path)})
    assert load(spark, cluster, subscribe=topic, readMode="auto", storePath=half).count() == 200
    wrong = json.dumps(dict(zip(paths, reversed(paths.values()), strict=True)))
    fill(cluster, topic, 1)
    for more, said in (
        ({"storePath": half}, "is no store directory"),
        ({"storePath": "{}"}, "storePath has no directory of broker"),
        ({"sqlFilter": "n = 1"}, "readMode=store cannot have sqlFilter"),
        ({"storePath": wrong, "retryMs": "0"}, r"has offsets 0 to 5\d, 0 to 5\d are wanted: is it the store"),
    ):
        with pytest.raises(Exception, match=said):
            load(spark, cluster, **{**options, **more}).collect()


def test_a_namespace_is_part_of_every_name_and_of_none_that_is_shown(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    cluster.create_topic(f"tenant%{topic}", queues=1)
    write(spark.createDataFrame([("1",)], "body STRING"), cluster, topic=topic, namespace="tenant")
    assert cluster.messages(topic) == []
    (row,) = load(spark, cluster, subscribe=topic, namespace="tenant").collect()
    assert (row["topic"], bytes(row["body"])) == (topic, b"1")


def test_half_a_pair_of_keys_is_refused(spark: SparkSession, cluster: SyncCluster, topic: str) -> None:
    with pytest.raises(Exception, match="accessKey and secretKey belong together"):
        load(spark, cluster, subscribe=topic, accessKey="ak").collect()


# Streams: what the driver's side of one answers


@pytest.fixture
def reader(cluster: SyncCluster, topic: str) -> Iterator[Any]:
    def make(**options: Any) -> CometStreamReader:
        texts = {"namesrvAddr": cluster.namesrv, "subscribe": topic, "startingOffsets": "earliest", "offsetPollMs": "0"}
        return CometStreamReader({**texts, **{name: str(value) for name, value in options.items()}}, ("body",))

    yield make
    close_all()


def total(offsets: dict[str, Any]) -> int:
    return sum(from_dict(offsets).values())


def test_a_batch_takes_so_many_rows_or_bytes(cluster: SyncCluster, topic: str, reader: Any) -> None:
    fill(cluster, topic, 400)
    one = reader(maxBytesPerTrigger=20_000)
    limit = one.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)
    taken = total(one.latestOffset(one.initialOffset(), limit))
    assert 40 <= taken <= 200, "records of some 200 bytes"
    one = reader(maxOffsetsPerTrigger=100)
    assert isinstance(one.getDefaultReadLimit(), ReadMaxRows)
    assert total(one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())) == 100
    with pytest.raises(ConfigError, match="one of maxOffsetsPerTrigger and maxBytesPerTrigger"):
        reader(maxBytesPerTrigger=1, maxOffsetsPerTrigger=1).getDefaultReadLimit()


def test_a_limited_batch_takes_no_more_of_a_queue_that_has_just_appeared(
    cluster: SyncCluster, topic: str, reader: Any
) -> None:
    one = reader(metadataTtlMs=0)
    start = one.initialOffset()
    cluster.create_topic(topic, queues=3)
    fill(cluster, topic, 60)
    begin = from_dict(one.latestOffset(start, ALL))
    end = from_dict(one.latestOffset(start, ReadMaxRows(12)))
    assert len(begin) == 6
    assert end == dict.fromkeys(begin, 2)
    parts = one.partitions(start, one.latestOffset(start, ReadMaxRows(12)))
    ranges = [piece for part in parts for piece in part.ranges]
    assert [(piece.first, piece.last) for piece in ranges] == [(0, 2)] * 6


def test_a_batch_waits_for_so_many_but_not_for_ever(cluster: SyncCluster, topic: str, reader: Any) -> None:
    one = reader(minOffsetsPerTrigger=50, maxTriggerDelay="1h")
    start = one.latestOffset(one.initialOffset(), ALL)
    fill(cluster, topic, 40)
    assert one.latestOffset(start, ALL) == start, "forty are too few"
    one.given["maxTriggerDelay"] = "0ms"
    assert total(one.latestOffset(start, ALL)) == 40, "it has waited long enough"
    one.given["maxTriggerDelay"] = "1h"
    fill(cluster, topic, 10)
    assert total(one.latestOffset(start, ALL)) == 50
    with pytest.raises(ConfigError, match="maxTriggerDelay=soon is no duration"):
        reader(minOffsetsPerTrigger=500, maxTriggerDelay="soon").latestOffset(start, ALL)


def test_offsets_and_queues_are_asked_for_as_often_as_told(cluster: SyncCluster, topic: str, reader: Any) -> None:
    slow, quick = reader(offsetPollMs=3_600_000), reader(metadataTtlMs=0)
    start = slow.initialOffset()
    assert slow.latestOffset(start, ALL) == quick.latestOffset(start, ALL) == start
    cluster.create_topic(topic, queues=3)
    fill(cluster, topic, 60)
    assert slow.latestOffset(start, ALL) == start
    assert len(from_dict(quick.latestOffset(start, ALL))) == 6
    lazy = reader()
    assert lazy.reportLatestOffset() == quick.reportLatestOffset()


def test_the_latest_is_pinned_with_the_group(cluster: SyncCluster, topic: str, reader: Any) -> None:
    fill(cluster, topic, 20)
    options = {"startingOffsets": "latest", "consumerGroup": f"{topic}_group"}
    start = reader(**options).initialOffset()
    fill(cluster, topic, 20)
    assert reader(**options).initialOffset() == start
    assert total(start) == 20
    with pytest.raises(ConfigError, match="initialOffsetStore=group needs consumerGroup"):
        reader(startingOffsets="latest", initialOffsetStore="group").initialOffset()


def test_a_topic_that_is_deleted_or_made_anew_is_a_loss(cluster: SyncCluster, topic: str, reader: Any) -> None:
    fill(cluster, topic, 40)
    one, mild = reader(metadataTtlMs=0), reader(metadataTtlMs=0, failOnDataLoss=False)
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    assert mild.latestOffset(start, ALL) == end
    with cluster.client() as client, client.admin() as admin:
        admin.delete_topic(topic)
    with pytest.raises(DataLoss, match="not there any more, what was not read is lost; set failOnDataLoss=false"):
        one.latestOffset(end, ALL)
    with pytest.raises(DataLoss, match="not there any more"):
        one.partitions(start, end)
    assert mild.latestOffset(end, ALL) == end
    assert mild.partitions(start, end) == []
    cluster.create_topic(topic, queues=2)
    fill(cluster, topic, 8)
    now = reader(failOnDataLoss=False)
    now.prepareForTriggerAvailableNow()
    back = now.latestOffset(end, ALL)
    assert total(back) == 8
    ranges = [piece for part in now.partitions(end, back) for piece in part.ranges]
    assert [(piece.first, piece.last) for piece in ranges] == [(0, 2)] * 4, "from its first message on"
    strict = reader()
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=r"the query stands at 10, the queue ends at 2: it was made anew"):
        strict.latestOffset(end, ALL)


def test_a_broker_that_is_away_is_no_loss(reader: Any) -> None:
    with SyncCluster(brokers=2) as pair_of_brokers:
        pair_of_brokers.create_topic("t", queues=2)
        fill(pair_of_brokers, "t", 40)
        options = {"namesrvAddr": pair_of_brokers.namesrv, "subscribe": "t", "metadataTtlMs": 0}
        one = reader(**options)
        start = one.initialOffset()
        half = one.latestOffset(start, ReadMaxRows(20))
        pair_of_brokers.brokers[1].stop()
        with pair_of_brokers.client() as client, client.producer("pg") as producer:
            for _ in range(4):
                producer.send("t", b"1")
        away = one.latestOffset(half, ALL)
        stays = {queue: at for queue, at in from_dict(half).items() if queue.broker == "broker-b"}
        assert {queue: from_dict(away)[queue] for queue in stays} == dict.fromkeys(stays, 10), "as it was last seen"
        assert total(away) == 44, "the other broker goes on"
        again = reader(**options)  # a driver that is started anew meanwhile
        assert {queue: from_dict(again.latestOffset(half, ALL))[queue] for queue in stays} == stays
        pair_of_brokers.brokers[1].start()
        assert again.latestOffset(half, ALL) == away
        assert sum(len(piece) for part in again.partitions(half, away) for piece in part.ranges) == 24


# Progress of a group


def test_a_group_shows_where_a_query_stands_after_its_last_batch(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 60)
    options = {"namesrvAddr": cluster.namesrv, "subscribe": topic, "startingOffsets": "earliest"}

    def run(name: str, **more: str) -> Any:
        source = spark.readStream.format("cometmq").options(maxOffsetsPerTrigger="40", **options, **more).load()
        writer = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / name))
        return writer.trigger(availableNow=True).start()

    def stands(group: str) -> int:
        with cluster.client() as client, client.admin() as admin:
            return sum(offset for offset in admin.committed_offsets(group, topic).values() if offset > 0)

    quiet = run("quiet", consumerGroup=f"{topic}_quiet", groupCommit="none")
    watched = run("watched", consumerGroup=f"{topic}_watched")
    listener = attach(watched, namesrvAddr=cluster.namesrv, consumerGroup=f"{topic}_watched")
    for query in (watched, quiet):
        query.awaitTermination()
    deadline_s = time.monotonic() + 30
    while stands(f"{topic}_watched") < 60:
        assert time.monotonic() < deadline_s, stands(f"{topic}_watched")
        time.sleep(0.1)
    assert stands(f"{topic}_quiet") == 0
    assert listener.group == f"{topic}_watched"
    with pytest.raises(ConfigError, match="namesrvAddr is missing"):
        attach(watched, consumerGroup="g")


# The sink


def test_columns_that_mean_nothing_are_ignored_or_become_properties(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    frame = spark.createDataFrame([("1", "blue", 7)], "body STRING, colour STRING, size INT")
    write(frame, cluster, topic=topic, extraColumns="properties", producerGroup="painters")
    write(frame, cluster, topic=topic, extraColumns="ignore", sendTimeoutMs=20_000, sendRetries=1)
    told = {message.properties.get("colour"): message.properties.get("size") for message in cluster.messages(topic)}
    assert told == {None: None, "blue": "7"}


def test_a_message_that_is_too_large_fails_or_is_dropped_or_goes_elsewhere(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    cluster.create_topic(f"{topic}_rest", queues=1)
    frame = spark.createDataFrame([("small",), ("x" * (5 << 20),)], "body STRING").coalesce(1)
    with pytest.raises(Exception, match="max_message_bytes is 4194304"):
        write(frame, cluster, topic=topic)
    write(frame, cluster, topic=topic, oversize="drop")
    write(frame, cluster, topic=topic, oversize=f"dlq:{topic}_rest")
    assert {message.body for message in cluster.messages(topic)} == {b"small"}
    (rest,) = cluster.messages(f"{topic}_rest")
    assert rest.body == b"x" * 1024
    with pytest.raises(Exception, match="oversize=burn is none of"):
        write(frame, cluster, topic=topic, oversize="burn")


def test_equal_keys_go_to_one_queue_with_hash(spark: SparkSession, cluster: SyncCluster, topic: str) -> None:
    frame = spark.createDataFrame([(str(n), f"key{n % 5}") for n in range(50)], "body STRING, keys STRING")
    write(frame, cluster, topic=topic, partitioner="hash")
    places: dict[Any, set[Any]] = {}
    for message in cluster.messages(topic):
        places.setdefault(message.keys, set()).add(message.queue)
    assert len(places) == 5
    assert all(len(where) == 1 for where in places.values())
    with pytest.raises(Exception, match="partitioner=hash needs a column shardingKey or keys"):
        write(frame.select("body"), cluster, topic=topic, partitioner="hash")


def test_one_process_delivers_in_every_way(cluster: SyncCluster, topic: str) -> None:
    batch = pa.record_batch({"body": ["1", "2"]})
    for number, delivery in enumerate(("transactional", "deduplicated", "at-least-once")):
        options = {"namesrvAddr": cluster.namesrv, "topic": topic, "delivery": delivery, "jobId": f"{topic}{number}"}
        writer = BatchWriter(options, ("body",))
        writer.commit([writer._write(iter([batch]), Task(options["jobId"], 0, 0, 0))])
    close_all()
    assert Counter(message.body for message in cluster.messages(topic)) == {b"1": 3, b"2": 3}


def test_rows_may_become_visible_later_and_a_topic_is_never_overwritten(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    frame = spark.createDataFrame([("1", 5), ("2", None)], "body STRING, delayLevel INT")
    write(frame, cluster, topic=topic)
    assert [message.body for message in cluster.messages(topic)] == [b"2"]
    later = frame.selectExpr("body", "current_timestamp() + INTERVAL 1 HOUR AS deliverTimestamp")
    write(later, cluster, topic=topic)
    assert [message.body for message in cluster.messages(topic)] == [b"2"]
    with pytest.raises(Exception, match=r'cannot be overwritten: use .mode\("append"\)'):
        frame.write.format("cometmq").options(namesrvAddr=cluster.namesrv, topic=topic).mode("overwrite").save()


# Stores and archives


def test_a_store_may_be_named_and_its_log_may_lie_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    store = golden_store("clean")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "consumequeue").symlink_to(store / "consumequeue")
    topics = sorted({message["topic"] for message in golden_messages("clean")})
    frame = (
        spark.read.format("cometmq_store")
        .options(brokerName="elsewhere", commitLog=str(store / "commitlog"), decompress="false")
        .option("subscribePattern", "|".join(topics))
        .load(str(tmp_path / "half"))
    )
    rows = frame.collect()
    assert len(rows) == len(golden_messages("clean"))
    assert {row["brokerName"] for row in rows} == {"elsewhere"}
    assert {row["topic"] for row in rows} == set(topics)
    packed = [row for row in rows if row["sysFlag"] & 1]
    assert packed, "the recorded store has compressed messages"


def test_an_archive_is_read_by_topic_and_day_and_leaves_the_other_files_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    files = []
    for number, (name, day) in enumerate(itertools.product(("red", "blue"), ("2026-01-01", "2026-01-02"))):
        rows = [{"topic": name, "queueOffset": 10 * number + row} for row in range(10)]
        path = Path("data") / f"topic={name}" / f"day={day}" / "part.parquet"
        write_parquet(pa.Table.from_pylist(rows), tmp_path / path)
        size = (tmp_path / path).stat().st_size
        files.append(LakeFile(str(path), name, day, 10, size, "b", 0, 10 * number, 10 * number + 10, 1, 2))
    lake.publish(Manifest("q", 0, ("topic", "queueOffset"), tuple(files)))

    def tens(**options: str) -> set[int]:
        frame = spark.read.format("cometmq_archive").options(**options).load(str(tmp_path))
        assert frame.columns == ["topic", "queueOffset"]
        found = [row["queueOffset"] for row in frame.collect()]
        assert len(found) == len(set(found))
        return {offset // 10 for offset in found}

    assert tens(batchRows="3") == {0, 1, 2, 3}
    assert tens(subscribe="blue") == {2, 3}
    assert tens(subscribePattern="r.*", startingDay="2026-01-02") == {1}
    assert tens(endingDay="2026-01-02") == {0, 2}
    assert tens(startingDay="2026-01-03") == set()
    cut = spark.read.format("cometmq_archive").options(bytesPerPartition="1", filterPushdown="true").load(str(tmp_path))
    assert cut.rdd.getNumPartitions() == 4
    blue = cut.filter("topic = 'blue'")
    assert (blue.rdd.getNumPartitions(), blue.count()) == (2, 20)
