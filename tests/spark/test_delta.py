"""Delta Lake instead of the archive: Spark's own sink, each message once.

There is no Delta Lake for the Spark that the other tests run on, so this one brings the Spark that there is one for:

    build/spark-4.2/     pyspark of delta/requirements.txt alone, put before the installed one on the path
    build/java/delta/    the two JARs of delta/pom.xml

and runs a program of its own with them. That Spark is another 450 MB to fetch and unpack, hence only in the long form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.runtime.java import java_home
from cometmq.testing import SyncCluster
from tests.compat.harness.build import MAKE_TIMEOUT_S, ToolMissing, once, run_tool
from tests.conftest import unavailable
from tests.spark.conftest import fill

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
POM = Path(__file__).parent / "delta" / "pom.xml"
REQUIREMENTS = POM.with_name("requirements.txt")

# Reads what is new into the table, then the whole table as a batch.
PROGRAM = """
import json, sys
from cometmq.spark import session

jars, namesrv, topic, folder = sys.argv[1:]
conf = {
    "spark.jars": jars,
    "spark.driver.memory": "1g",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
spark = session("delta", master="local[2]", conf=conf)
read = {"namesrvAddr": namesrv, "subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
messages = spark.readStream.format("cometmq").options(**read).load()
stream = messages.writeStream.format("delta").option("checkpointLocation", folder + "/checkpoint")
query = stream.trigger(availableNow=True).start(folder + "/table")
query.awaitTermination()
table = spark.read.format("delta").load(folder + "/table")
rows = table.select("brokerName", "queueId", "queueOffset", "tags", "body").collect()
told = {
    "spark": spark.version,
    "batches": [progress.batchId for progress in query.recentProgress],
    "rows": [[*row[:4], bytes(row[4]).decode()] for row in rows],
}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def delta() -> tuple[Path, str]:
    """The directory with Spark 4.2, and the JARs."""
    try:
        java_home()
        spark = once("spark-4.2", [REQUIREMENTS], install)
        jars = once("java/delta", [POM], fetch) / "lib"
    except (ConfigError, ToolMissing) as error:
        unavailable("spark", str(error))
    return spark, ",".join(str(path) for path in sorted(jars.glob("*.jar")))


def test_a_delta_table_has_each_message_once_after_restarts_and_a_repeated_batch(
    cluster: SyncCluster, topic: str, tmp_path: Path, delta: tuple[Path, str]
) -> None:
    fill(cluster, topic, 100)
    first = run(delta, cluster, topic, tmp_path)
    assert first["spark"].startswith("4.2.")
    assert first["batches"][:2] == [0, 1]
    assert sorted(first["rows"]) == wanted(cluster, topic)
    # As if the driver had died when the table had the last batch and the checkpoint had not noted it.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    assert last == 1
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    fill(cluster, topic, 50, first=100)
    second = run(delta, cluster, topic, tmp_path)
    assert second["batches"][:2] == [1, 2], "the last batch was repeated"
    assert sorted(second["rows"]) == wanted(cluster, topic)
    assert len(second["rows"]) == 150


def run(delta: tuple[Path, str], cluster: SyncCluster, topic: str, folder: Path) -> dict[str, Any]:
    spark, jars = delta
    command = [sys.executable, "-c", PROGRAM, jars, cluster.namesrv, topic, str(folder)]
    env = os.environ | {"PYTHONPATH": f"{spark}:{ROOT / 'src'}", "PYSPARK_PYTHON": sys.executable}
    env.pop("SPARK_HOME", None)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


def wanted(cluster: SyncCluster, topic: str) -> list[list[object]]:
    return sorted(
        [one.queue.broker_name, one.queue.queue_id, one.offset, one.tag, one.body.decode()]
        for one in cluster.messages(topic)
        if one.queue is not None
    )


def install(target: Path) -> None:
    """What it needs beside itself is installed with the Spark of the other tests."""
    told = ["install", "--quiet", "--no-deps", "--no-compile", "--target", str(target), "--requirement", REQUIREMENTS]
    command = [sys.executable, "-m", "pip", *map(str, told)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ToolMissing(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")


def fetch(target: Path) -> None:
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}/lib"]
    run_tool("mvn", "-B", "-q", "-f", POM, *goal, cwd=target)
