"""The story among the examples, which `make demo` runs: what it counts is what happened."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.testing import SyncCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]


def example() -> Any:
    spec = importlib.util.spec_from_file_location("orders_story", ROOT / "examples" / "orders_story.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_orders_go_to_the_lake_the_chart_and_back_each_once(
    spark: SparkSession, cluster: SyncCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = example().story(spark, cluster.namesrv, tmp_path, 600, seed=3)
    assert told["kept"] == [600, 0]
    assert sum(told["counts"].values()) == 600
    assert told["replayed"] == (told["counts"]["returned"],) * 2
    assert told["counts"]["paid"] > told["counts"]["sent"] > told["counts"]["returned"] > 0
    page = told["chart"].read_text()
    assert page.count("<svg") == 2
    assert f"{told['counts']['returned']}" in page
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["queue", "lake", "chart", "replay", "page"]
    assert lines[-1].endswith("orders.html")


def test_make_demo_runs_the_story() -> None:
    assert "examples/orders_story.py --folder" in (ROOT / "Makefile").read_text()
