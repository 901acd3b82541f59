"""dedupe: what was sent twice arrives once, in a topic and in an archive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.pipelines import dedupe
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def send_again(cluster: SyncCluster, topic: str, numbers: list[int]) -> None:
    """Copies with the same id, as a producer sends them that got no answer."""
    with cluster.client() as client, client.producer("again") as producer:
        known = {int(one.body): one for one in cluster.messages(topic)}
        for number in numbers:
            producer.send_record(topic, b"%d" % number, known[number].properties)


def test_duplicates_within_the_time_go_and_later_ones_pass_and_are_counted(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    to = f"{topic}_once"
    cluster.create_topic(to, queues=2)
    fill(cluster, topic, 60)
    send_again(cluster, topic, [3, 7, 7])
    options: dict[str, Any] = {"namesrv": cluster.namesrv, "topics": topic, "to": to, "within": "1 millisecond"}
    options |= {"checkpoint": str(tmp_path / "checkpoint")}
    first = dedupe(spark, **options)
    assert {key: first.figures[key] for key in ("read", "rows", "dropped", "late")} == {
        "read": 63,
        "rows": 60,
        "dropped": 3,
        "late": 0,
    }
    fill(cluster, topic, 1, first=60)  # time passes when a batch comes
    dedupe(spark, **options, count_late=False)
    send_again(cluster, topic, [3])
    late = dedupe(spark, **options)
    assert (late.figures["rows"], late.figures["dropped"], late.figures["late"]) == (1, 0, 1)
    assert Counter(int(one.body) for one in cluster.messages(to)) == Counter([*range(61), 3])


def test_an_archive_without_duplicates_of_a_key(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 40)
    options: dict[str, Any] = {"namesrv": cluster.namesrv, "topics": topic, "root": str(tmp_path / "lake")}
    options |= {"key": "nullif(properties['n'] % 10, 9)", "checkpoint": str(tmp_path / "checkpoint")}
    done = dedupe(spark, **options)
    assert (done.figures["read"], done.figures["rows"], done.figures["late"]) == (40, 13, 0)
    fill(cluster, topic, 10, first=40)
    again = dedupe(spark, **options)
    assert (again.figures["read"], again.figures["rows"], again.figures["late"]) == (10, 1, 0)
    frame = spark.read.format("cometmq_archive").load(str(tmp_path / "lake"))
    found = Counter(int(bytes(row["body"])) % 10 for row in frame.collect())
    assert found == Counter({**dict.fromkeys(range(9), 1), 9: 5}), "a row without key is no duplicate"


def test_one_target_must_be_named(spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of to=TOPIC and root=DIRECTORY"):
        dedupe(spark, namesrv=cluster.namesrv, topics=topic, checkpoint=str(tmp_path))
