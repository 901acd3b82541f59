"""The archive pipeline and its format. What becomes of it when processes are killed: test_kills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.spark.lake import live_paths
from cometmq.spark.pipelines import archive
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def archived(spark: SparkSession, root: Path, topic: str) -> list[int]:
    frame = spark.read.format("cometmq_archive").options(subscribe=topic, columns="body").load(str(root))
    return sorted(int(bytes(row["body"])) for row in frame.collect())


def test_an_archive_grows_by_what_is_new_and_reads_as_the_topic_does(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 500)
    done = archive(spark, namesrv=cluster.namesrv, topics=topic, root=str(tmp_path), rows_per_batch=200)
    assert (done.figures["rows"], done.figures["topics"]) == (500, 1)
    assert len(list((tmp_path / "manifest").glob("*/*.json"))) == 3
    assert archived(spark, tmp_path, topic) == list(range(500))
    fill(cluster, topic, 100, first=500)
    assert archive(spark, namesrv=cluster.namesrv, topics=topic, root=str(tmp_path)).figures["rows"] == 100
    assert archived(spark, tmp_path, topic) == list(range(600))

    from_lake = spark.read.format("cometmq_archive").load(str(tmp_path))
    live = spark.read.format("cometmq").options(namesrvAddr=cluster.namesrv, subscribe=topic).load()
    assert from_lake.columns == live.columns
    key = ["brokerName", "queueId", "queueOffset"]
    assert from_lake.orderBy(*key).collect() == live.orderBy(*key).collect()

    import pyarrow.parquet as pq

    assert sum(pq.read_metadata(path).num_rows for path in live_paths(tmp_path)) == 600
