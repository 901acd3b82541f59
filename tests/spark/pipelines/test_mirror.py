"""mirror: the same queues, properties and order in another cluster; loops are cut, offsets translated."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cometmq.cli.pipeline import VERBS, _arguments, _settings
from cometmq.cli.shared.arguments import noun_parser
from cometmq.errors import ConfigError
from cometmq.spark.live.offsets import Positions, Queue
from cometmq.spark.live.remote import remote
from cometmq.spark.live.sink import sink_options
from cometmq.spark.live.source import source_options
from cometmq.spark.pipelines import mirror, translate
from cometmq.spark.pipelines.mirror import Link, _brokers, _Copy
from cometmq.spark.pipelines.mirror_table import Copied, Run, Table, runs_of
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def other() -> Iterator[SyncCluster]:
    with SyncCluster(brokers=2, settings={"brokerFastFailureEnable": False}) as made:
        yield made


def bodies_by_queue(cluster: SyncCluster, topic: str) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for one in sorted(cluster.messages(topic), key=lambda message: message.offset):
        assert one.queue is not None
        found.setdefault((one.queue.broker_name, one.queue.queue_id), []).append(one.body)
    return found


@pytest.mark.spark
def test_a_mirror_has_the_same_queues_and_messages_and_sends_nothing_back(
    spark: SparkSession, cluster: SyncCluster, other: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 200)
    there: dict[str, Any] = {"namesrv": cluster.namesrv, "to_namesrv": other.namesrv, "cluster": "A", "to_cluster": "B"}
    back: dict[str, Any] = {"namesrv": other.namesrv, "to_namesrv": cluster.namesrv, "cluster": "B", "to_cluster": "A"}
    done = mirror(spark, **there, topics=topic, state=str(tmp_path / "ab"), rows_per_batch=150)
    assert (done.figures["rows"], done.figures["cut"]) == (200, 0)
    assert bodies_by_queue(other, topic) == bodies_by_queue(cluster, topic), "the topic was made, with the same queues"
    originals = {one.body: one for one in cluster.messages(topic)}
    for one in other.messages(topic):
        old = originals[one.body]
        assert old.queue is not None
        assert one.properties["CMQ_SRC"] == f"A/{topic}/{old.queue.broker_name}/{old.queue.queue_id}/{old.offset}"
        assert (one.id, one.tag, one.keys, one.properties["n"]) == (old.id, old.tag, old.keys, old.properties["n"])

    with cluster.client() as client, client.producer("late") as producer:
        fresh = producer.send(topic, b"200")
    with other.client() as client, client.producer("elsewhere") as producer:
        producer.send(topic, b"of B")
    returned = mirror(spark, **back, topics=topic, state=str(tmp_path / "ba"))
    assert (returned.figures["rows"], returned.figures["cut"]) == (1, 200)

    # A group that has read half of each queue goes on with the other half, and with what came from elsewhere.
    stands: Positions = {Queue(topic, broker, queue): 25 for broker, queue in bodies_by_queue(cluster, topic)}
    remote(source_options({"namesrvAddr": cluster.namesrv})).commit("readers", stands)
    again = mirror(spark, **there, topics=topic, state=str(tmp_path / "ab"), groups="readers")
    assert (again.figures["rows"], again.figures["cut"], again.figures["group readers"]) == (1, 1, 4)
    told = translate(state=str(tmp_path / "ab"), namesrv=cluster.namesrv, group="readers")
    here = remote(source_options({"namesrvAddr": other.namesrv}))
    assert here.committed("readers", told) == told
    for queue, offset in told.items():
        next_here = bodies_by_queue(other, topic)[queue.broker, queue.number][offset]
        assert next_here == bodies_by_queue(cluster, topic)[queue.broker, queue.number][25]
    assert fresh.id in {one.id for one in other.messages(topic)}


@pytest.mark.spark
def test_clusters_of_one_name_are_refused(
    spark: SparkSession, cluster: SyncCluster, other: SyncCluster, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="both clusters are called DefaultCluster: tell them apart with cluster="):
        mirror(spark, namesrv=cluster.namesrv, to_namesrv=other.namesrv, topics=topic, state=str(tmp_path))


def test_a_task_that_is_repeated_sends_only_what_is_not_there_also_after_brokers_were_killed(
    cluster: SyncCluster, other: SyncCluster, topic: str
) -> None:
    fill(cluster, topic, 160)
    source = {"namesrvAddr": cluster.namesrv, "subscribe": topic}
    link = Link.between(source, {"namesrvAddr": other.namesrv, "maxInFlight": "7"}, "A", "B", None)
    queues = [Queue(topic, broker.name, number) for broker in cluster.brokers for number in range(2)]
    link.make_room(queues)

    def copy(first: int, last: int) -> list[Copied]:
        work = _Copy(link, dict.fromkeys(queues, 0))
        names = ("topic", "brokerName", "queueId", "firstOffset", "lastOffset")
        rows = [dict(zip(names, (*queue, first, last), strict=True)) for queue in queues]
        told = work(iter([pa.RecordBatch.from_pylist([row]) for row in rows]))
        return [Copied.from_json(batch.to_pylist()[0]["stated"]) for batch in told]

    done = copy(0, 30)
    assert [one.runs for one in done] == [(Run(0, 0, 30),)] * 4
    for broker in (*cluster.brokers, *other.brokers):
        broker.restart(kill=True)
    assert copy(0, 30) == done
    assert [one.runs for one in copy(20, 40)] == [(Run(20, 20, 20),)] * 4
    assert bodies_by_queue(other, topic) == bodies_by_queue(cluster, topic)


def test_room_is_made_where_it_lacks_and_a_broker_that_is_away_is_waited_for(
    cluster: SyncCluster, other: SyncCluster, topic: str
) -> None:
    other.create_topic(topic, queues=3)
    link = Link.between(
        {"namesrvAddr": cluster.namesrv}, {"namesrvAddr": other.namesrv, "retryMs": "30000"}, "A", "B", None
    )
    here = remote(sink_options({"namesrvAddr": other.namesrv}))
    away, there = other.brokers
    away.stop()
    outcomes: list[BaseException | None] = []

    def make_room() -> None:
        try:
            link.make_room([Queue(topic, away.name, 2), Queue(topic, there.name, 3)])
            outcomes.append(None)
        except BaseException as error:
            outcomes.append(error)

    making = threading.Thread(target=make_room)
    making.start()
    try:
        until(lambda: Queue(topic, there.name, 3) in here.queues([topic]))
        assert making.is_alive(), "the other queue may be at the broker that is away"
    finally:
        away.start()
        making.join(30)
    assert outcomes == [None]
    counts = Counter(queue.broker for queue in here.queues([topic]))
    assert counts == {away.name: 3, there.name: 4}, "a topic that was there keeps its queues"


def until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


def test_the_table_translates_also_where_messages_were_cut_or_are_not_copied_yet(tmp_path: Path) -> None:
    a, b = Queue("t", "a", 0), Queue("t", "b", 0)
    x = Queue("t", "x", 0)
    table = Table(tmp_path)
    table.publish("q", 0, [Copied(a, x, (Run(100, 40, 10), Run(115, 50, 5)), 5)])
    table.publish("q", 0, [Copied(a, x, (Run(0, 0, 1),), 0)])  # the same batch again changes nothing
    table.publish("q", 1, [Copied(a, x, (Run(120, 60, 2),), 0)])
    for found in (table, Table(tmp_path)):
        places = {
            offset: found.translate({a: offset})[x] for offset in (0, 100, 105, 110, 114, 115, 119, 120, 121, 122)
        }
        assert places == {0: 40, 100: 40, 105: 45, 110: 50, 114: 50, 115: 50, 119: 54, 120: 60, 121: 61, 122: 62}
        assert found.translate({b: 7}) == {}
        assert found.end(a) == 62
    table.publish("q", 2, [Copied(b, x, (Run(0, 70, 3),), 0)])
    assert table.translate({a: 121, b: 2}) == {x: 61}, "the lower one: nothing is skipped"
    assert runs_of([(5, 9), (4, 8), (7, 10), (8, 11)]) == (Run(4, 8, 2), Run(7, 10, 2))


def test_brokers_are_paired_by_name_by_order_or_as_told() -> None:
    assert _brokers(["a", "b"], ["a", "b", "c"], None) == {"a": "a", "b": "b"}
    assert _brokers(["a", "b"], ["x", "y"], None) == {"a": "x", "b": "y"}
    assert _brokers(["a", "b"], ["x"], "a=x,b=x") == {"a": "x", "b": "x"}
    with pytest.raises(ConfigError, match="the target only x: say which goes where"):
        _brokers(["a", "b"], ["x"], None)
    with pytest.raises(ConfigError, match="z is none of x"):
        _brokers(["a"], ["x"], "a=z")


def test_a_file_says_what_is_mirrored(tmp_path: Path) -> None:
    file = tmp_path / "berlin-paris.toml"
    file.write_text(
        'pipeline = "mirror"\nnamesrv = "a:9876"\nto_namesrv = "b:9876"\ntopics = "orders"\nstate = "/state"\n'
        'groups = "billing"\nrows_per_batch = 5000\nonce = false\nto_accessKey = "k"\n'
    )
    options = noun_parser("pipeline", "", VERBS).parse_args(["run", str(file), "interval_s=2.5"])
    name, settings = _settings(options)
    assert name == "mirror"
    arguments = _arguments(name, mirror, settings, options)
    assert (arguments["rows_per_batch"], arguments["once"], arguments["interval_s"]) == (5000, False, 2.5)
    assert (arguments["groups"], arguments["to_accessKey"]) == ("billing", "k")
