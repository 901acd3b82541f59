"""dlq: dead letters by cause, and back to their topics, each once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.client.options import StartFrom
from cometmq.errors import ConfigError
from cometmq.spark.pipelines import dlq
from cometmq.testing import SyncCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CAUSES = ["no stock"] * 6 + ["bad card"] * 3


def bury(cluster: SyncCluster, topic: str, group: str) -> None:
    """Messages that say why they will fail, and one that does not; a consumer gives all of them up."""
    with cluster.client() as client, client.producer("orders") as producer:
        for number, cause in enumerate(CAUSES):
            producer.send(topic, b"order %d" % number, tag="t", keys=[f"k{number}"], properties={"error": cause})
        producer.send(topic, b"\xff\xfe")
        with client.consumer(group, topic, auto_ack=False, start=StartFrom.FIRST) as consumer:
            for _ in range(10):
                message = consumer.receive(30)
                assert message is not None
                message.dead_letter("not text" if message.body == b"\xff\xfe" else None)


def test_dead_letters_are_told_by_cause_and_go_back_once(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    group = f"g{topic[-20:]}"
    bury(cluster, topic, group)
    options: dict[str, Any] = {"namesrv": cluster.namesrv, "groups": group}
    summary, rows = dlq(spark, **options)
    assert (summary.figures["letters"], summary.figures["groups"]) == (10, 1)
    assert {key: count for key, count in summary.figures.items() if key.startswith("cause")} == {
        "cause no stock": 6,
        "cause bad card": 3,
        "cause Reject: not text": 1,
    }
    ids = {one.id for one in cluster.messages(topic)} | {one.offset_id for one in cluster.messages(topic)}
    assert len(rows) == 10
    for row in rows:
        assert (row.group, row.origin_topic) == (group, topic)
        assert row.origin_id in ids
        assert row.age_s >= 0
    assert {row.sample for row in rows} == {f"order {number}" for number in range(9)} | {"0xFFFE"}
    assert len(cluster.messages(topic)) == 10, "to look changes nothing"

    ledger = tmp_path / "ledger"
    options |= {"replay": True, "to": "origin", "ledger": str(ledger)}
    summary, _ = dlq(spark, where="cause = 'bad card'", **options)
    assert summary.figures["sent"] == 3
    fresh = [one for one in cluster.messages(topic) if "CMQ_DLQ" in one.properties]
    assert {(one.body, one.tag, one.keys) for one in fresh} == {
        (b"order %d" % number, "t", (f"k{number}",)) for number in (6, 7, 8)
    }
    assert {one.properties["CMQ_DLQ"] for one in fresh} == {
        f"{group}/{row.place}" for row in rows if row.cause == "bad card"
    }
    assert dlq(spark, where="cause = 'bad card'", **options)[0].figures["sent"] == 0

    # As if the next replay had been killed when all was sent but not noted.
    assert dlq(spark, where="tags = 't'", **options)[0].figures["sent"] == 6
    plans = sorted(ledger.glob("*.plan.json"))
    assert [len(json.loads(path.read_text())["letters"]) for path in plans] == [3, 6]
    (ledger / "00000002.done.json").unlink()
    assert dlq(spark, where="false", **options)[0].figures["sent"] == 6
    assert Counter(one.body for one in cluster.messages(topic)) == Counter(
        {b"order %d" % number: 2 for number in range(9)} | {b"\xff\xfe": 1}
    )


def test_a_group_gets_its_dead_letters_once_more_and_nobody_else_does(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    group = f"h{topic[-20:]}"
    bury(cluster, topic, group)
    stated: dict[str, Any] = {"namesrv": cluster.namesrv, "groups": group, "ledger": str(tmp_path / "ledger")}
    assert dlq(spark, where="cause = 'bad card'", replay=True, **stated)[0].figures["sent"] == 3
    assert dlq(spark, where="cause = 'bad card'", replay=True, **stated)[0].figures["sent"] == 0
    assert len(cluster.messages(topic)) == 10
    ids = {one.body: one.id for one in cluster.messages(topic)}
    with cluster.client() as client, client.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        again = [consumer.receive(30) for _ in range(3)]
    assert {(one.topic, one.body, one.id, one.keys, one.tag) for one in again if one is not None} == {
        (topic, b"order %d" % number, ids[b"order %d" % number], (f"k{number}",), "t") for number in (6, 7, 8)
    }


def test_a_replay_without_ledger_is_refused_and_no_dead_letters_are_none(
    spark: SparkSession, cluster: SyncCluster
) -> None:
    with pytest.raises(ConfigError, match="replay=true needs ledger=DIRECTORY"):
        dlq(spark, namesrv=cluster.namesrv, replay=True)
