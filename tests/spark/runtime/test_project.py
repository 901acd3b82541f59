"""`cometmq pipeline init`: the project that it writes runs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest

from cometmq.cli.main import main
from cometmq.errors import ConfigError
from cometmq.spark.runtime.java import java_home
from cometmq.testing import SyncCluster
from tests.conftest import unavailable
from tests.spark.conftest import fill
from tests.support.length import SOAK

pytestmark = pytest.mark.spark



def run(project: Path) -> str:
    # A run lasts some seconds: the second compiler of the JVM would only cost.
    env = os.environ | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    command = [str(project / "run.sh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


def table(project: Path, name: str) -> list[dict[str, object]]:
    found = pyarrow.parquet.ParquetDataset(str(project / "warehouse" / name)).read()
    return list(found.to_pylist())


def numbers(project: Path) -> list[int]:
    return sorted(int(bytes(row["body"])) for row in table(project, "messages"))  # type: ignore[call-overload]


def test_a_project_reads_a_topic_into_tables_and_writes_a_topic(
    cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    try:
        java_home()
    except ConfigError as error:
        unavailable("spark", str(error))
    fill(cluster, topic, 30)
    target = f"{topic}_seen"
    cluster.create_topic(target, queues=1)
    project = tmp_path / "project"
    arguments = [str(project), "--topic", topic, "--target", target, "--namesrv", cluster.namesrv]
    assert main(["pipeline", "init", *arguments]) == 0
    run(project)
    assert numbers(project) == list(range(30))
    assert {row["tags"]: row["count"] for row in table(project, "messages_by_tag")} == {"third": 10, "other": 20}
    assert {row["tags"] for row in table(project, "latest_by_tag")} == {"third", "other"}
    seen = Counter(json.loads(message.body)["keys"] for message in cluster.messages(target))
    assert seen == Counter(f"k{number}" for number in range(30))
    assert (project / "storage" / "metastore_db").is_dir(), "the catalog is not where a second run finds it"
    if not SOAK:  # a run takes 40 s of processor time
        return
    fill(cluster, topic, 12, first=30)
    run(project)  # the second run reads what is new
    assert numbers(project) == list(range(42))
    assert len(cluster.messages(target)) == 42


def test_a_project_is_written_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "orders"
    assert main(["pipeline", "init", str(project), "-o", "json"]) == 0
    told = [Path(row["file"]) for row in json.loads(capsys.readouterr().out)]
    assert all(path.exists() for path in told)
    assert (project / "run.sh").stat().st_mode & stat.S_IXUSR
    compile((project / "transformations" / "messages.py").read_text(), "messages.py", "exec")
    assert main(["pipeline", "init", str(project)]) != 0
    assert "is not empty: name a new directory" in capsys.readouterr().err
    assert main(["pipeline", "init", str(tmp_path / "wrong"), "--topic", "no such topic!"]) != 0
    assert not (tmp_path / "wrong").exists()
