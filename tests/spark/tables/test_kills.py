"""A driver killed between any two steps of a batch, or of the upkeep: no row missing, none twice.

The points of a batch that archive, sink and mirror share are in tests/spark/test_kills.py; here are the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq.spark.tables.run import run
from cometmq.spark.tables.upkeep import compact, expire
from cometmq.testing import SyncCluster
from tests.compat.harness.servers import python_path
from tests.spark.conftest import fill
from tests.spark.tables.test_run import lake_of, numbers
from tests.support.length import SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
# Three batches of two tables: each comes to "in commit" twice.
POINTS = ("written@2", "manifest@1", "in commit@1", "in commit@3", "committed@1", "committed@3")
PATIENCE_S = 240.0


def die(point: str, folder: Path, *job: str) -> None:
    """Runs the job until it is at the point, and kills it there with all that it started."""
    faults = folder / "faults"
    faults.mkdir()
    (faults / "plan").write_text(point)
    env = os.environ | {"COMETMQ_FAULTS": str(faults), "PYTHONPATH": f"{ROOT}:{python_path()}"}
    command = [sys.executable, "-m", "tests.spark.tables.victim", *job]
    with (faults / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            give_up_s = time.monotonic() + PATIENCE_S
            while not (faults / "struck").exists() and process.poll() is None and time.monotonic() < give_up_s:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            assert (faults / "struck").exists(), (faults / "log").read_text()[-2000:]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.mission("LK-02")
@pytest.mark.repeated
@pytest.mark.parametrize("point", POINTS if SOAK else ("in commit@1", "committed@1"))
def test_a_driver_killed_around_a_commit_loses_and_doubles_nothing(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path, point: str
) -> None:
    other = f"{topic}_2"
    cluster.create_topic(other, queues=2)
    place = lake_of(tmp_path, topic, other)
    fill(cluster, topic, 30)
    fill(cluster, other, 30)
    die(point, tmp_path, "run", str(tmp_path), cluster.namesrv)
    run(spark, place=place, namesrv=cluster.namesrv)
    assert numbers(place, topic) == list(range(30))
    assert numbers(place, other) == list(range(30))


@pytest.mark.mission("LK-02")
def test_upkeep_killed_at_any_point_leaves_all_rows_once(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    place = lake_of(tmp_path, topic)
    for number, (job, point) in enumerate((("compact", "joined"), ("compact", "swapped"), ("expire", "expired"))):
        fill(cluster, topic, 20, first=20 * number)
        run(spark, place=place, namesrv=cluster.namesrv, rows_per_batch=10, commit_every_s=0)
        folder = tmp_path / point
        folder.mkdir()
        die(f"{point}@1", folder, job, str(tmp_path))
        assert numbers(place, topic) == list(range(20 * (number + 1)))
    compact(place, today=True)
    expire(place, keep_s=0, stray_s=0)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert numbers(place, topic) == list(range(60))
