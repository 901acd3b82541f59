"""Search: needles are found wherever they are, once each, and files that cannot have them are not read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.lake.archive import Lake
from cometmq.spark.pipelines import archive, search
from cometmq.spark.pipelines.search import Bloom
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_needles_are_found_in_archive_store_and_cluster_and_other_files_are_left_out(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    other = f"{topic}_other"
    cluster.create_topic(other, queues=2)
    fill(cluster, topic, 200)
    fill(cluster, other, 40)
    for name in (topic, other):
        archive(spark, namesrv=cluster.namesrv, topics=name, root=str(tmp_path), checkpoint=str(tmp_path / f"_{name}"))
    files = len(Lake(tmp_path).live_files())
    assert files == 8

    first, hits = search(spark, root=str(tmp_path), topics=topic, key="k17")
    assert [(one.body, one.keys, one.place) for one in hits] == [("17", "k17", "archive")]
    assert (first.figures["files_pruned"], first.figures["pruned_by_manifest"]) == (4, 4)
    again, hits = search(spark, root=str(tmp_path), topics=topic, key="k17")
    assert [one.body for one in hits] == ["17"]
    assert again.figures["pruned_by_keys"] == 3
    assert again.figures["files_read"] == 1

    summary, found = search(spark, root=str(tmp_path), id=hits[0].id)
    assert [(one.topic, one.body) for one in found] == [(topic, "17")]
    assert summary.figures["pruned_by_keys"] == 3
    summary, found = search(spark, root=str(tmp_path), topics=topic, tag="nowhere")
    assert (found, summary.figures["pruned_by_tags"], summary.figures["files_read"]) == ([], 4, 0)
    summary, found = search(spark, root=str(tmp_path), end="2020-01-01")
    assert (found, summary.figures["pruned_by_manifest"]) == ([], files)

    fill(cluster, topic, 1, first=199)
    stores = ",".join(f'"{one.name}": "{one.directory / "store"}"' for one in cluster.brokers)
    summary, found = search(
        spark,
        root=str(tmp_path),
        store="{" + stores + "}",
        live=True,
        namesrv=cluster.namesrv,
        topics=topic,
        text="199",
    )
    old, new = sorted(one.place for one in found)
    assert old == "archive+live+store"
    # A broker that runs writes units of its queues some time later.
    assert new in ("live", "live+store")
    assert {one.body for one in found} == {"199"}


def test_a_filter_never_says_no_to_what_it_has() -> None:
    texts = {f"key-{number}" for number in range(5000)}
    bloom = Bloom.of(texts)
    assert all(bloom.may_have(text) for text in texts)
    wrong = sum(bloom.may_have(f"other-{number}") for number in range(10_000))
    assert wrong < 200


@pytest.mark.spark
def test_a_search_for_nothing_or_nowhere_says_what_to_give(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="say where to search"):
        search(spark, key="a")
    with pytest.raises(ConfigError, match="say what to search for"):
        search(spark, root=str(tmp_path))
    with pytest.raises(ConfigError, match="yesterday is no time"):
        search(spark, root=str(tmp_path), start="yesterday")
