"""Which messages lie in a topic more than once? A Spark job that lists them by the id that their producer gave.

A producer that got no answer sends a message again, and both may be stored: two places, one id. What consumers then do
about it is in docs/duplicates.md; this finds out how often it happens.

    python examples/spark_duplicates.py orders --since 2026-01-31T00:00:00+00:00 --until 2026-02-01T00:00:00+00:00
"""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMESRV = os.environ.get("COMETMQ_NAMESRV", "127.0.0.1:9876")


def duplicates(
    spark: SparkSession, namesrv: str, topic: str, since: datetime | None = None, until: datetime | None = None
) -> DataFrame:
    """Rows of msgId, copies, places; `since` and `until` bound the time at which messages were stored."""
    messages = (
        spark.read.format("cometmq")
        .option("namesrvAddr", namesrv)
        .option("subscribe", topic)
        .option("columns", "msgId,brokerName,queueId,queueOffset,storeTimestamp")
        .load()
    )
    if since is not None:
        messages = messages.filter(messages.storeTimestamp >= since)
    if until is not None:
        messages = messages.filter(messages.storeTimestamp < until)
    place = "concat_ws(' ', brokerName, queueId, queueOffset)"
    return (
        messages.selectExpr("msgId", f"{place} AS place")
        .groupBy("msgId")
        .agg({"place": "collect_list"})
        .selectExpr("msgId", "size(`collect_list(place)`) AS copies", "sort_array(`collect_list(place)`) AS places")
        .filter("copies > 1")
    )


def main() -> None:
    from cometmq.spark import session

    parser = argparse.ArgumentParser(description="List messages that a topic has more than once.")
    parser.add_argument("topic")
    parser.add_argument("--since", type=datetime.fromisoformat)
    parser.add_argument("--until", type=datetime.fromisoformat)
    options = parser.parse_args()
    spark = session()
    duplicates(spark, NAMESRV, options.topic, options.since, options.until).show(truncate=False)


if __name__ == "__main__":
    main()
