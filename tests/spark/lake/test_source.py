"""The archive pipeline and its format. What becomes of it when processes are killed: test_kills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from cometmq.errors import ConfigError, StoreError
from cometmq.spark.columns import COLUMNS
from cometmq.spark.lake.archive import Lake, live_paths
from cometmq.spark.live.offsets import Queue, Range
from cometmq.spark.pipelines import archive
from cometmq.spark.pipelines.archive import _Write
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def archived(spark: SparkSession, root: Path, topic: str) -> list[int]:
    frame = spark.read.format("cometmq_archive").options(subscribe=topic, columns="body").load(str(root))
    return sorted(int(bytes(row["body"])) for row in frame.collect())


def test_a_task_reads_its_range_from_the_brokers_files_if_told_to(
    cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 300)
    broker = cluster.brokers[0]
    options = {"namesrvAddr": cluster.namesrv, "subscribe": topic, "readMode": "store", "retryMs": "30000"}
    one = Range(Queue(topic, broker.name, 0), 0, 20)
    near = _Write(str(tmp_path), {**options, "storePath": str(broker.directory / "store")}, COLUMNS, "q", 0)
    (file,) = near._files(one)
    far = _Write(str(tmp_path), {**options, "readMode": "remote"}, COLUMNS, "q", 1)
    (same,) = far._files(one)
    read = [pq.read_table(tmp_path / path, partitioning=None) for path in (file.path, same.path)]
    assert read[0].num_rows == 20
    assert read[0].equals(read[1])
    with pytest.raises(StoreError, match="is no store directory"):
        list(_Write(str(tmp_path), {**options, "storePath": str(tmp_path)}, COLUMNS, "q", 2)._files(one))


def test_files_are_in_the_codec_that_was_asked_for(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 100)
    told: dict[str, Any] = {"namesrv": cluster.namesrv, "topics": topic, "root": str(tmp_path)}
    with pytest.raises(ConfigError, match="codec is 'lzo': it must be one of snappy, zstd, lz4, gzip, none"):
        archive(spark, **told, codec="lzo")
    assert archive(spark, **told, codec="gzip").figures["rows"] == 100
    assert codecs(tmp_path) == {"GZIP"}
    fill(cluster, topic, 100, first=100)
    assert archive(spark, **told).figures["rows"] == 100
    assert codecs(tmp_path) == {"GZIP", "SNAPPY"}
    with pytest.raises(ConfigError, match="codec is 'lzo': it must be one of"):
        Lake(tmp_path).compact(codec="lzo")
    assert Lake(tmp_path).compact()
    assert codecs(tmp_path) == {"ZSTD"}
    assert archived(spark, tmp_path, topic) == list(range(200))


def codecs(root: Path) -> set[str]:
    groups = [pq.read_metadata(path).row_group(0) for path in live_paths(root)]
    return {group.column(number).compression for group in groups for number in range(group.num_columns)}


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

    assert sum(pq.read_metadata(path).num_rows for path in live_paths(tmp_path)) == 600
