"""The Spark job among the examples that lists duplicates by the id that producers give."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq import SendReceipt
from cometmq.testing import SyncCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "spark_duplicates.py"


@pytest.fixture
def cluster() -> Iterator[SyncCluster]:
    """Of its own: this test moves the clock, and the clock of the shared one stays where it is."""
    with SyncCluster(brokers=2) as made:
        yield made


def example() -> Any:
    spec = importlib.util.spec_from_file_location("spark_duplicates", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def place(receipt: SendReceipt) -> str:
    return f"{receipt.queue.broker_name} {receipt.queue.queue_id} {receipt.offset}"


@pytest.mark.mission("AD-01")
def test_a_job_lists_messages_that_are_there_more_than_once_in_a_range(
    spark: SparkSession, cluster: SyncCluster, topic: str
) -> None:
    with cluster.client() as client, client.producer("pg") as producer, client.admin() as admin:
        receipts = [producer.send(topic, b"%d" % number) for number in range(30)]
        originals = {message.id: message for queue in admin.topic_queues(topic) for message in admin.read(queue)}
        middle = cluster.now()
        cluster.advance(60)
        wanted: dict[str, list[str]] = {}
        for number in (3, 7, 7):  # sent again by a producer that got no answer
            receipt = receipts[number]
            copy = producer.send_record(topic, b"%d" % number, originals[receipt.id].properties)
            wanted.setdefault(receipt.id, [place(receipt)]).append(place(copy))
    duplicates = example().duplicates
    found = {row["msgId"]: row for row in duplicates(spark, cluster.namesrv, topic).collect()}
    assert {id: list(row["places"]) for id, row in found.items()} == {id: sorted(it) for id, it in wanted.items()}
    assert sorted(row["copies"] for row in found.values()) == [2, 3]
    end = middle + timedelta(days=1)
    later = duplicates(spark, cluster.namesrv, topic, since=middle, until=end).collect()
    assert [row["copies"] for row in later] == [2], "of the three copies one is older"
