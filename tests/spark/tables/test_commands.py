"""`cometmq lake`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.cli.main import main
from cometmq.testing import SyncCluster
from tests.support.jsonbodies import send_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Kept:
    """The session of all tests: no command stops it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spark, name)

    def stop(self) -> None:
        pass


def test_a_topic_is_made_a_table_filled_looked_at_and_kept_up(
    spark: SparkSession,
    cluster: SyncCluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COMETMQ_LAKE_CATALOG", f"sql:{tmp_path / 'catalog.db'}")
    monkeypatch.setattr("cometmq.spark.session", lambda *_, **__: Kept(spark))

    def lake(*arguments: str, at: bool = True) -> Any:
        where = ["--namesrv", cluster.namesrv] if at else []
        code = main([*arguments, "-o", "json", *where])
        told = capsys.readouterr()
        assert code == 0, told.err
        return json.loads(told.out)

    assert lake("lake", "create", topic) == {"topic": topic, "table": f"mq.{topic}", "made": True}
    assert lake("lake", "create", topic)["made"] is False
    assert main(["topic", "describe", topic, "-o", "json", "--namesrv", cluster.namesrv]) == 0
    assert '"cometmq.lake": "iceberg"' in capsys.readouterr().out
    send_json(cluster, topic, [{"id": number, "price": number / 2} for number in range(40)])
    (stated,) = lake("lake", "status")
    assert (stated["rows"], stated["behind"], stated["committed_s"]) == (0, 40, None)
    assert lake("lake", "run", "--once", "--rows-per-batch", "10", "--commit-every", "0")["rows"] == 40
    (stated,) = lake("lake", "status")
    assert (stated["rows"], stated["behind"]) == (40, 0)
    assert "queueOffset" in [one["column"] for one in lake("lake", "schema", topic, at=False)]
    planned = {one["column"]: one["type"] for one in lake("lake", "schema", topic, "--from-messages", at=False)}
    assert planned == {"id": "BIGINT", "price": "DOUBLE", "(messages)": "40"}
    assert lake("lake", "compact", at=False) == []
    (made,) = lake("lake", "compact", "--today", at=False)
    assert made["rows"] == 40
    (gone,) = lake("lake", "expire", "--keep", "0", "--strays", "0", at=False)
    assert gone["files"] > made["files"]


@pytest.mark.parametrize(
    ("catalog", "text"),
    [
        (None, "no catalog is given: use --catalog"),
        ("rest:http://127.0.0.1:1", "needs --warehouse"),
        ("odd:x", "needs --warehouse"),
    ],
)
def test_a_place_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], catalog: str | None, text: str
) -> None:
    monkeypatch.delenv("COMETMQ_LAKE_CATALOG", raising=False)
    monkeypatch.delenv("COMETMQ_LAKE_WAREHOUSE", raising=False)
    assert main(["lake", "compact", *(["--catalog", catalog] if catalog else [])]) != 0
    assert text in capsys.readouterr().err


def test_passwords_of_catalogs_and_warehouses_elsewhere_are_not_shown_or_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lake", "compact", "--catalog", "sql:x", "--warehouse", "s3://bucket/lake"]) != 0
    assert "files are written to a file system only" in capsys.readouterr().err
    catalog = "odd://me:secret@host/db"
    assert main(["lake", "compact", "--catalog", catalog, "--warehouse", str(tmp_path)]) != 0
    told = capsys.readouterr().err
    assert "odd://***@host/db is none of sql:FILE" in told
    assert "secret" not in told
