"""One local Spark session for all tests here: starting one takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.java import java_home
from tests.conftest import unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from cometmq.spark import session

    try:
        java_home()
    except ConfigError as error:
        unavailable("spark", str(error))
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        # So that tests see what a task that fails does: it is tried again.
        "spark.task.maxFailures": "4",
    }
    made = session("cometmq-tests", master="local[2,4]", conf=conf)
    yield made
    made.stop()
