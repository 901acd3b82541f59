"""What a session brings along: the package for executors, and modules that Spark finds by itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import cometmq.spark
from cometmq.errors import ConfigError
from cometmq.spark.sessions import FORMATS, packed_package, session

PROGRAM = """
import cometmq.spark.source, cometmq.spark.sink, cometmq.spark.storefiles, cometmq.spark.archive, cometmq.spark.reading
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
