"""Lake topics from a cluster to Iceberg tables: each message once, whatever is run how often."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import ConfigError, StoreError
from cometmq.spark.columns import NAMES
from cometmq.spark.lake.archive import Lake
from cometmq.spark.tables.catalog import CatalogAway, Place, opened
from cometmq.spark.tables.run import Commits, run
from cometmq.spark.tables.status import status
from cometmq.spark.tables.table import create, tables_at
from cometmq.spark.tables.upkeep import compact, expire
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def lake_of(folder: Path, *topics: str) -> Place:
    place = Place.of(f"sql:{folder / 'catalog.db'}", None)
    with opened(place) as catalog:
        for topic in topics:
            assert create(catalog, topic)
    return place


def rows_of(place: Place, topic: str) -> list[dict[str, Any]]:
    with tables_at(place) as (_, tables):
        return list(tables[topic].scan().to_arrow().to_pylist())


def numbers(place: Place, topic: str) -> list[int]:
    return sorted(int(row["body"]) for row in rows_of(place, topic))


@pytest.mark.mission("LK-01")
def test_a_topic_becomes_a_table_that_grows_by_what_is_new(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    place = lake_of(tmp_path, topic)
    fill(cluster, topic, 300)
    told: dict[str, Any] = {"place": place, "namesrv": cluster.namesrv, "rows_per_batch": 100, "commit_every_s": 0}
    done = run(spark, **told)
    assert (done.figures["rows"], done.figures["commits"]) == (300, 3)
    assert run(spark, **told).figures["rows"] == 0
    fill(cluster, topic, 50, first=300)
    assert run(spark, **told).figures["rows"] == 50
    rows = rows_of(place, topic)
    assert list(rows[0]) == list(NAMES)
    assert sorted(int(row["body"]) for row in rows) == list(range(350))
    places = Counter((row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows)
    assert set(places.values()) == {1}
    (stated,) = status(place, [], {"namesrvAddr": cluster.namesrv})
    assert (stated["rows"], stated["behind"], stated["behind_s"], stated["waiting"]) == (350, 0, 0.0, 0)


def test_batches_of_several_topics_are_committed_together_and_each_to_its_table(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    other = f"{topic}_2"
    cluster.create_topic(other, queues=2)
    place = lake_of(tmp_path, topic)
    fill(cluster, topic, 120)
    fill(cluster, other, 80)
    told: dict[str, Any] = {"place": place, "namesrv": cluster.namesrv, "rows_per_batch": 30, "commit_every_s": 3600}
    done = run(spark, **told)
    assert (done.figures["rows"], done.figures["commits"]) == (120, 1)
    assert sum(map(len, Lake(place.root).batches().values())) == 1, "manifests that tables have are forgotten"
    with opened(place) as catalog:
        assert create(catalog, other)
        assert not create(catalog, other)
    (_, stated) = status(place, [], {"namesrvAddr": cluster.namesrv})
    assert (stated["rows"], stated["behind"]) == (0, 80)
    assert run(spark, **told).figures["rows"] == 80
    assert numbers(place, topic) == list(range(120))
    assert numbers(place, other) == list(range(80))


def test_without_its_checkpoint_a_run_begins_where_the_tables_end(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    place = lake_of(tmp_path, topic)
    fill(cluster, topic, 100)
    assert run(spark, place=place, namesrv=cluster.namesrv).figures["rows"] == 100
    shutil.rmtree(place.root / "checkpoint")
    fill(cluster, topic, 20, first=100)
    assert run(spark, place=place, namesrv=cluster.namesrv).figures["rows"] == 20
    assert numbers(place, topic) == list(range(120))


def test_batches_wait_while_the_catalog_is_away(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    place = lake_of(tmp_path, topic)
    fill(cluster, topic, 60)
    written = Commits.if_due

    def cut(commits: Commits) -> None:
        """The catalog's file is no database from the first batch on."""
        file = tmp_path / "catalog.db"
        if not (tmp_path / "kept").exists():
            file.rename(tmp_path / "kept")
            file.write_bytes(b"x" * 4096)
        written(commits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Commits, "if_due", cut)
        with pytest.raises(CatalogAway, match=r"catalog sql:.*file is not a database"):
            run(spark, place=place, namesrv=cluster.namesrv, rows_per_batch=20, commit_every_s=0)
    (tmp_path / "kept").replace(tmp_path / "catalog.db")
    (stated,) = status(place, [], {"namesrvAddr": cluster.namesrv})
    assert (stated["rows"], stated["waiting"]) == (0, 3)
    assert run(spark, place=place, namesrv=cluster.namesrv).figures["rows"] == 60
    assert numbers(place, topic) == list(range(60))


@pytest.mark.mission("LK-03")
def test_small_files_become_one_and_expired_ones_leave_the_disk(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    place = lake_of(tmp_path, topic)
    fill(cluster, topic, 400)
    run(spark, place=place, namesrv=cluster.namesrv, rows_per_batch=40, commit_every_s=0)
    before = status(place, [], {"namesrvAddr": cluster.namesrv})[0]
    assert before["files"] >= 20
    assert compact(place) == [], "today is not over"
    (made,) = compact(place, today=True)
    assert (made.files, made.rows) == (before["files"], 400)
    with tables_at(place) as (_, tables):
        old = tables[topic].snapshots()[-2]
        assert len(tables[topic].scan(snapshot_id=old.snapshot_id).to_arrow()) == 400, "a reader of before goes on"
    assert numbers(place, topic) == list(range(400))
    expire(place, keep_s=0, stray_s=0)
    after = status(place, [], {"namesrvAddr": cluster.namesrv})[0]
    assert (after["files"], after["rows"], after["snapshots"]) == (1, 400, 1)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert numbers(place, topic) == list(range(400))
    fill(cluster, topic, 10, first=400)
    assert run(spark, place=place, namesrv=cluster.namesrv).figures["rows"] == 10
    assert numbers(place, topic) == list(range(410))


def test_what_would_double_or_cut_a_table_is_refused(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    place = lake_of(tmp_path, topic)
    with pytest.raises(ConfigError, match="lake run takes no tags"):
        run(spark, place=place, namesrv=cluster.namesrv, tags="third")
    with pytest.raises(ConfigError, match=r"has no table of none; it has those of topics .*cometmq lake create none"):
        run(spark, place=place, namesrv=cluster.namesrv, topics=["none"])
    with place.locked(), pytest.raises(StoreError, match="lock is held: another lake run"):
        run(spark, place=place, namesrv=cluster.namesrv)
