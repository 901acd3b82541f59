"""Reports: lag as brokers tell it, quantiles of known times, charts whose figures are those of the tables."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cometmq import Client
from cometmq.client.traces import FIELD_END, RECORD_END
from cometmq.spark.pipelines import report
from cometmq.testing import SyncCluster
from tests.spark.conftest import fill
from tests.support.jsonbodies import send_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MINUTE_MS = 29_000_000 * 60_000


def record(*fields: object) -> str:
    return FIELD_END.join(str(field) for field in fields) + RECORD_END


def traces() -> list[bytes]:
    """100 sends of 1 to 100 ms in one minute, a slow one in the next; handlers begin 7 ms later and take twice that."""
    bodies = []
    for number in range(101):
        cost = 5000 if number == 100 else number + 1
        sent_ms = MINUTE_MS + (60_000 if number == 100 else number)
        pub = record(
            "Pub", sent_ms, "R", "makers", "orders", f"id{number}", "null", "null", "h:1", 9, cost, 0, "o", "true"
        )
        before = record("SubBefore", sent_ms + 7, "R", "eaters", f"r{number}", f"id{number}", 0, "null")
        after = record("SubAfter", f"r{number}", f"id{number}", cost * 2, "true", "null", 0)
        bodies += [pub.encode(), (before + after).encode()]
    return bodies


def test_a_report_tells_lag_and_the_quantiles_of_known_traces(
    spark: SparkSession, cluster: SyncCluster, topic: str, tmp_path: Path
) -> None:
    fill(cluster, topic, 80)
    cluster.create_topic(f"{topic}_traces", queues=2)
    send_json(cluster, f"{topic}_traces", traces(), raw=True)
    asyncio.run(_consumed(cluster.namesrv, topic, f"{topic}_group"))

    settings = {"namesrv": cluster.namesrv, "to": str(tmp_path), "topics": topic, "groups": f"{topic}_group"}
    summary = report(spark, trace_topic=f"{topic}_traces", **settings)
    told = json.loads((tmp_path / "report.json").read_text())
    tables = told["tables"]

    assert tables["topics"] == [{"topic": topic, "queues": 4, "messages": 80, "ever": 80}]
    assert [row["lag"] for row in tables["lag"]] == [15, 15, 15, 15]
    assert summary.figures["lag"] == 60
    assert told["charts"]["lag"] == {"lag": [[f"{topic}_group {topic}", 60]]}

    (latency,) = tables["latency"]
    assert latency["count"] == 80
    assert 0 <= latency["p50_ms"] <= latency["p95_ms"] <= latency["p99_ms"] <= latency["max_ms"]

    first, second = tables["send by minute"]
    assert (first["topic"], first["group"], first["count"]) == ("orders", "makers", 100)
    assert [first[name] for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")] == pytest.approx(
        [50.5, 95.05, 99.01, 100]
    )
    assert [second[name] for name in ("count", "p50_ms", "p99_ms")] == [1, 5000, 5000]
    (whole,) = tables["send"]
    assert [whole[name] for name in ("count", "p50_ms", "p95_ms", "max_ms")] == pytest.approx([101, 51, 96, 5000])
    assert [row["p99_ms"] for row in tables["delivery by minute"]] == [7, 7]
    first, second = tables["consume by minute"]
    assert (first["group"], first["topic"]) == ("eaters", "orders")
    assert [first[name] for name in ("p50_ms", "p95_ms", "p99_ms")] == pytest.approx([101, 190.1, 198.02])
    assert [y for _, y in told["charts"]["send"]["orders makers"]] == pytest.approx([99.01, 5000])

    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == summary.figures["charts"] == 5
    assert re.search(r"(src|href)=", page) is None
    assert {path.name for path in tmp_path.glob("*.svg")} == {f"{name}.svg" for name in told["charts"]}

    report(spark, trace_topic="there_is_no_such_topic", **settings)
    history = json.loads((tmp_path / "report.json").read_text())["charts"]["lag-history"]
    assert [y for _, y in history[f"{topic}_group {topic}"]] == [60, 60]


async def _consumed(namesrv: str, topic: str, group: str) -> None:
    """A group that has read five messages of every queue."""
    async with Client(namesrv) as client, client.admin() as admin:
        await admin.create_group(group)
        for queue in await admin.topic_queues(topic):
            await admin.commit_offset(group, queue, 5)
