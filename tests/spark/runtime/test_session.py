"""What a session brings along: the package for executors, and modules that Spark finds by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import cometmq.spark
from cometmq.errors import ConfigError
from cometmq.spark.runtime.session import FORMATS, packed_package, session
from cometmq.spark.runtime.workers import worker_python, workers_of_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import cometmq.spark.live.source, cometmq.spark.live.sink, cometmq.spark.live.reading
import cometmq.spark.stores.source, cometmq.spark.lake.source
import cometmq, pyspark_cometmq, pyspark_cometmq_store, pyspark_cometmq_archive
print(cometmq.__file__)
print(*(module.DefaultSource.name() for module in (pyspark_cometmq, pyspark_cometmq_store, pyspark_cometmq_archive)))
"""


def test_executors_can_import_all_formats_from_what_is_sent_to_them() -> None:
    package = packed_package()
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    place, names = done.stdout.splitlines()
    assert place.startswith(str(package)), "the package in the zip file was not used"
    assert names.split() == list(FORMATS)


def test_workers_are_of_this_python_and_import_what_is_installed(spark: SparkSession) -> None:
    def told(_: int) -> tuple[str, str]:
        return sys.executable, str(pyspark.__file__)

    found = spark.sparkContext.parallelize([0], 1).map(told).collect()
    assert found == [(sys.executable, pyspark.__file__)]
    assert spark.sparkContext.pythonExec == worker_python()
    # Programs that are started from here do not see it.
    assert "PYSPARK_PYTHON" not in os.environ


def test_the_launcher_takes_only_the_zips_of_this_pyspark_off_the_path(tmp_path: Path) -> None:
    lib = Path(pyspark.__file__).parent / "python" / "lib"
    mine = tmp_path / "a dir * with $signs"
    mine.mkdir()
    (mine / "found_there.py").write_text("")
    path = [str(one) for one in sorted(lib.glob("*.zip"))] + [str(mine), "/other/pyspark.zip"]
    assert len(path) >= 4
    program = "import sys, found_there, pyspark; print(*sys.path, *sys.argv[1:], pyspark.__file__, sep='\\n')"
    command = [worker_python(), "-c", program, "an argument; with * signs"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True, cwd="/")
    said = done.stdout.splitlines()
    assert said[1:3] == path[-2:]
    assert said[-2:] == ["an argument; with * signs", pyspark.__file__]
    assert not [one for one in said if one.startswith(str(lib))]


def test_what_somebody_has_said_of_workers_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/another-python")
    with workers_of_this_python():
        assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/another-python"
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/another-python"


@pytest.mark.parametrize("why", ["not executable", "in a zip file"])
def test_without_a_launcher_workers_are_of_this_python_all_the_same(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "not executable":
        monkeypatch.setattr("os.access", lambda path, mode: False)
    else:
        monkeypatch.setattr("cometmq.spark.runtime.workers._directory_of", lambda package: None)
    assert worker_python() == sys.executable


def test_without_spark_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError, match=r"Spark is not installed: pip install 'cometmq\[spark\]'"):
        session()


def test_the_public_names_are_there_and_no_others() -> None:
    assert {name: callable(getattr(cometmq.spark, name)) for name in cometmq.spark.__all__} == {
        "attach": True,
        "register": True,
        "session": True,
    }
    with pytest.raises(AttributeError, match="no attribute sessio"):
        cometmq.spark.__getattr__("sessio")
