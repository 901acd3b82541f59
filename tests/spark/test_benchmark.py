"""The benchmark of the Spark formats, small: every row is read, and pieces of it add to one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.spark import main
from benchmarks.spark_topics import bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_pieces_without_kafka_add_their_figures_to_one_file(spark: SparkSession, tmp_path: Path) -> None:
    told = ["--messages", "2000", "--bodies", "256", "--rounds", "1", "--keep", str(tmp_path / "keep")]
    file = tmp_path / "figures.json"
    main([*told, "--only", "audit", "--json", str(file)], spark)
    main([*told, "--only", "archive", "--json", str(file)], spark)
    figures = json.loads(file.read_text())
    sinks = {f"cometmq to parquet sink{way}/256" for way in ("", " zstd", " near the store")}
    streams = {"archive/256", "archive zstd/256", "archive pulled/256", *sinks}
    assert figures.keys() == {*streams, "audit/256", "setting"}
    assert {figures[name]["rows"] for name in streams} == {2000}
    assert all(min(figures[name]["in_batches_s"]) > 0 for name in streams)
    assert figures["audit/256"]["log_mb"] == 1


def test_a_part_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "live,dead"])
    assert "there is no part dead" in capsys.readouterr().err


def test_bodies_have_their_size_and_differ() -> None:
    made = list(bodies(500, 256))
    assert {len(one) for one in made} == {256}
    assert len(set(made)) == 500
    json.loads(made[7])
