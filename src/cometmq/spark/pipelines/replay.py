"""replay: messages of an archive back to a topic, each once.

What is to be sent is settled by the first run of a name: the list of files is kept beside the archive, so that a run
that was killed goes on with the same rows in the same order, and one that was finished sends nothing again. Bodies,
tags, keys and the application's properties are kept; rows of one queue of the archive stay in order if the target has
`by="queue"`, where they are sent with the queue as sharding key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cometmq.errors import ConfigError
from cometmq.names import place_below, topic_fault
from cometmq.spark.lake.archive import Lake
from cometmq.spark.pipelines.progress import progress, tasks
from cometmq.spark.pipelines.steps import Summary, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(
    spark: SparkSession,
    *,
    root: str,
    namesrv: str,
    to: str,
    run: str,
    topics: str | None = None,
    starting_day: str | None = None,
    ending_day: str | None = None,
    where: str | None = None,
    by: str = "any",
    **sink: str,
) -> Summary:
    """`run` names this replay. `where` is a SQL condition on the columns of a message. `sink`: options of the sink."""
    fault = topic_fault(to)
    if fault is not None:
        raise ConfigError(fault)
    if by not in ("any", "queue"):
        raise ConfigError(f"by={by} is none of any, queue")
    paths, parts = _planned(Lake(root), run, topics, starting_day, ending_day, spark.sparkContext.defaultParallelism)
    if not paths:
        return Summary("replay", {"rows": 0, "to": to, "run": run})
    from pyspark.sql import functions as f

    frame = spark.read.parquet(*paths)
    if where:
        frame = frame.filter(where)
    order = ["topic", "brokerName", "queueId", "queueOffset"]
    columns = ["body", "tags", "keys", "properties", "flag"]
    if by == "queue":
        place = f.concat_ws("/", "topic", "brokerName", f.col("queueId").cast("string"))
        frame = frame.withColumn("shardingKey", place)
        columns.append("shardingKey")
    # One order for every run: what was sent is recognised by its place in it.
    frame = frame.repartition(parts, *order[:3]).sortWithinPartitions(*order)
    at("replay before send")
    rows = frame.select(columns)
    options = {"namesrvAddr": namesrv, "topic": to, "delivery": "deduplicated", "jobId": f"replay-{run}", **sink}
    with progress("replay") as line, tasks(spark, line):
        rows.write.format("cometmq").options(**options).mode("append").save()
        at("replay after send")
        count = rows.count()
    return Summary("replay", {"rows": count, "to": to, "run": run, "files": len(paths)})


def _planned(
    lake: Lake, run: str, topics: str | None, first: str | None, last: str | None, parts: int
) -> tuple[list[str], int]:
    """The files of this replay, and in how many parts they are sent: as its first run found them."""
    plan = place_below(lake.root / "_replay", f"{run}.json")
    if not plan.exists():
        wanted = set(topics.split(",")) if topics else None
        found = [
            file.path
            for file in lake.live_files()
            if (wanted is None or file.topic in wanted) and (first or "") <= file.day < (last or "9")
        ]
        plan.parent.mkdir(parents=True, exist_ok=True)
        fresh = plan.with_suffix(".new")
        fresh.write_text(json.dumps({"files": found, "parts": parts}))
        fresh.replace(plan)
    stated = json.loads(plan.read_text())
    return [str(lake.place(path)) for path in stated["files"]], int(stated["parts"])
