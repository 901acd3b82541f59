"""Windows: sums by time and group, late messages, and restarts in the middle of one."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.bodies import Profile, write_schema
from cometmq.spark.pipelines import window
from cometmq.spark.pipelines.window import GROUP, VERSION, WINDOW, items, names_of
from cometmq.testing import SyncCluster
from tests.support.jsonbodies import send_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def event(second: int, city: str | None, price: float) -> dict[str, Any]:
    return {"at": (NOON + timedelta(seconds=second)).isoformat(), "city": city, "price": price}


def expected(events: list[dict[str, Any]]) -> dict[tuple[str, str | None], tuple[int, float]]:
    """Count and sum for each minute and city, as plain Python adds them up."""
    found: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    for one in events:
        minute = datetime.fromisoformat(one["at"]).replace(second=0)
        found[minute.strftime("%Y-%m-%dT%H:%M:%S.000Z"), one["city"]].append(one["price"])
    return {key: (len(prices), sum(prices)) for key, prices in found.items()}


def received(cluster: SyncCluster, topic: str) -> list[dict[str, Any]]:
    return [json.loads(one.body) for one in sorted(cluster.messages(topic), key=lambda one: one.offset)]


def newest(rows: list[dict[str, Any]]) -> dict[tuple[str, str | None], tuple[int, float]]:
    best: dict[tuple[str, str | None], dict[str, Any]] = {}
    for row in rows:
        key = (row["window_start"], row["city"])
        if key not in best or row["version"] > best[key]["version"]:
            best[key] = row
    return {key: (row["version"], row["total"]) for key, row in best.items()}


FIRST = [event(second, ("Kiel", "Ulm", None)[second % 3], second / 2) for second in range(0, 100, 5)]
SECOND = [event(second, ("Kiel", "Ulm")[second % 2], 1.5) for second in range(90, 200, 7)]


@pytest.fixture
def settings(cluster: SyncCluster, topic: str, tmp_path: Path) -> dict[str, Any]:
    cluster.create_topic(f"{topic}_sums", queues=2)
    profile = Profile()
    for one in FIRST:
        profile.add_body(json.dumps(one).encode())
    write_schema(tmp_path / "schema.json", {topic: profile.schema()})
    return {
        "namesrv": cluster.namesrv,
        "topic": topic,
        "to": f"{topic}_sums",
        "schema": str(tmp_path / "schema.json"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "size": "1 minute",
        "watermark": "30 seconds",
        "time": "to_timestamp(at)",
        "group": "city",
        "aggregates": "sum(price) AS total",
    }


@pytest.mark.spark
def test_updates_of_windows_cut_by_restarts_end_at_the_sums_of_a_batch_and_come_once(
    spark: SparkSession, cluster: SyncCluster, topic: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(point: str) -> None:
        if point == "window after send":
            raise RuntimeError("killed")

    settings |= {"mode": "update", "delivery": "deduplicated"}
    send_json(cluster, topic, FIRST)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["cometmq.spark.pipelines.window"], "at", killed)
        with pytest.raises(Exception, match="killed"):
            window(spark, **settings)
    assert newest(received(cluster, f"{topic}_sums")) == expected(FIRST)
    window(spark, **settings)
    assert len(received(cluster, f"{topic}_sums")) == len(expected(FIRST))
    send_json(cluster, topic, SECOND)
    summary = window(spark, **settings)
    assert summary.figures["rows_read"] == len(SECOND)
    rows = received(cluster, f"{topic}_sums")
    assert newest(rows) == expected(FIRST + SECOND)
    named = [(row["window_start"], row["city"], row["version"]) for row in rows]
    assert len(set(named)) == len(named)
    for one in cluster.messages(f"{topic}_sums"):
        row = json.loads(one.body)
        assert one.properties[WINDOW] == row["window_start"]
        assert one.properties[VERSION] == str(row["version"])
        assert one.properties[GROUP] == (row["city"] or "null")
        assert one.keys == (f"{row['window_start']}/{row['city'] or 'null'}",)


@pytest.mark.spark
def test_appended_windows_come_once_when_they_are_over_and_late_messages_are_left_out(
    spark: SparkSession, cluster: SyncCluster, topic: str, settings: dict[str, Any]
) -> None:
    send_json(cluster, topic, FIRST)
    window(spark, mode="append", **settings)
    # The newest message is of 12:01:35, so the watermark is at 12:01:05 and the first minute is over.
    over = {key: value for key, value in expected(FIRST).items() if "12:00:00" in key[0]}
    assert newest(received(cluster, f"{topic}_sums")) == over
    send_json(cluster, topic, [event(10, "Kiel", 1000.0), *SECOND])
    summary = window(spark, mode="append", **settings)
    assert summary.figures["late"] == 1
    rows = received(cluster, f"{topic}_sums")
    whole = expected(FIRST + SECOND)
    assert newest(rows) == {
        key: value for key, value in whole.items() if "12:03:00" not in key[0] and "12:02" not in key[0]
    }
    assert len(rows) == len(newest(rows))


def test_lists_of_expressions_are_cut_at_their_own_commas() -> None:
    assert items("a, concat(b, ',') AS c,`d,e` AS f") == ["a", "concat(b, ',') AS c", "`d,e` AS f"]
    assert items(None) == []
    assert names_of(["a", "_message.tags", "sum(x) AS total"]) == ["a", "tags", "total"]
    with pytest.raises(ConfigError, match=r"sum\(x\) has no name: write it as sum\(x\) AS name"):
        names_of(["sum(x)"])


@pytest.mark.spark
def test_what_is_wrong_with_a_window_is_said_at_once(spark: SparkSession, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="mode=complete is none of append, update"):
        window(spark, **(settings | {"mode": "complete"}))
    with pytest.raises(ConfigError, match="has no schema of nothing"):
        window(spark, **(settings | {"topic": "nothing"}))
