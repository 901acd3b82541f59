"""The archive pipeline and its format: each message once, also when its processes are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.spark.lake import Lake, live_paths
from cometmq.spark.pipelines import archive
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


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


DRIVER = """
import sys
from cometmq.spark import session
from cometmq.spark.pipelines import archive
spark = session("archive", master="local[2,4]", conf={"spark.driver.memory": "1g"})
archive(spark, namesrv=sys.argv[1], topics=sys.argv[2], root=sys.argv[3], rows_per_batch=100)
"""
POINTS = ["archive before publish@2"]
if os.environ.get("COMETMQ_SOAK"):
    POINTS += ["archive after publish@1", "archive task after write@3"]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_an_archive_that_was_killed_has_each_message_once(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path, point: str
) -> None:
    fill(cluster, topic, 300)
    lake = tmp_path / "lake"
    command = [sys.executable, "-c", DRIVER, cluster.namesrv, topic, str(lake)]
    counter = tmp_path / "counter"
    fault = {"COMETMQ_FAULT": point, "COMETMQ_FAULT_COUNTER": str(counter), "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(command, env=os.environ | fault, capture_output=True, text=True, timeout=300, check=False)
    # A killed task is tried again by Spark; a killed driver is not.
    assert (ran.returncode == 0) == ("task" in point), ran.stderr[-2000:]
    assert counter.exists()
    archive(spark, namesrv=cluster.namesrv, topics=topic, root=str(lake))
    assert archived(spark, lake, topic) == list(range(300))
    if "after publish" not in point:
        assert Lake(lake).orphans()
