"""sql: from topics to a topic by a SQL text.

    SELECT id, price * 1.19 AS gross, 'gross' AS tags FROM orders WHERE price > 10

Each topic is a view of its name (`topics="orders"`; characters that SQL does not like become `_`; `o=orders` names the
view o). Its columns are the fields of the bodies by the schema file, and `_message` with topic, keys, tags and times;
without a schema for the topic there is `body`, as text. Topics in `lookups` are read as a whole, to join with.

Of the result, columns that the sink knows (body, tags, keys, properties, shardingKey, delayLevel, ...) mean what they
mean there; if there is no `body`, all others make it, as a JSON object.

    once=true       what is new since the last run of this checkpoint, then ends; false: goes on until it is stopped
    batch=true      everything that the topics have, as one table: aggregates and ORDER BY are of all of it

A body that does not fit its schema goes to `bad_to` with the reason as property CMQ_ERROR and its place as CMQ_SOURCE;
without `bad_to` it ends the job. An error of the SQL itself (division by zero, a bad CAST) ends the job too: it is not
a message's fault; `try_cast` and `try_divide` give NULL instead.

Killed and started again, a stream goes on from its checkpoint, a batch of the same `run` with the offsets that its
first try has noted there. What is repeated is sent twice with delivery=at-least-once, and not with deduplicated, as
long as rows come in the same order: filters, projections, joins with small lookups; batches are sorted for it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.errors import ConfigError
from cometmq.names import place_below, topic_fault
from cometmq.spark.bodies import quoted, read_schema
from cometmq.spark.live.rows import SINK_COLUMNS
from cometmq.spark.parsed import COLUMNS, fields_of, unfit_of
from cometmq.spark.pipelines.progress import ProgressLine, progress, tasks
from cometmq.spark.pipelines.steps import Summary, at, connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# In how many parts a batch is sent: the same in every try, or what was sent would not be recognised.
PARTS: Final = 4


def sql(
    spark: SparkSession,
    *,
    namesrv: str,
    topics: str,
    sql: str,
    checkpoint: str,
    to: str | None = None,
    schema: str | None = None,
    lookups: str | None = None,
    bad_to: str | None = None,
    batch: bool = False,
    once: bool = True,
    interval_s: float = 1.0,
    starting: str = "earliest",
    delivery: str = "at-least-once",
    run: str = "sql",
    **sink: str,
) -> Summary:
    """`sql` is the text, or the name of a file that ends in .sql. `sink`: further options of the sink;
    those about the cluster (keys, TLS) are the sources', too."""
    for topic in (to, bad_to):
        if topic is not None and (fault := topic_fault(topic)) is not None:
            raise ConfigError(fault)
    text = Path(sql).read_text() if sql.endswith(".sql") else sql
    schemas = {topic: one["ddl"] for topic, one in read_schema(schema).items()} if schema else {}
    target = {"namesrvAddr": namesrv, "delivery": delivery, **({"topic": to} if to else {}), **sink}
    source = {**connection(sink), "namesrvAddr": namesrv}
    job = _Job(spark, source, view_names(topics), view_names(lookups or ""), schemas, starting)
    try:
        if batch:
            return job.run_batch(text, target, bad_to, Path(checkpoint), run)
        return job.run_stream(text, target, bad_to, Path(checkpoint), interval_s=None if once else interval_s)
    finally:
        for name in job.views:
            spark.catalog.dropTempView(name)


def view_names(topics: str) -> dict[str, str]:
    """Topic by the name of its view."""
    found: dict[str, str] = {}
    for part in (one.strip() for one in topics.split(",") if one.strip()):
        name, equals, topic = part.partition("=")
        view = name if equals else re.sub(r"[^A-Za-z0-9_]", "_", part)
        if view in found:
            raise ConfigError(f"two topics would be the view {view}: name one of them, as in {view}2={topic or part}")
        found[view] = topic.strip() if equals else part
    return found


class _Job:
    def __init__(
        self,
        spark: SparkSession,
        source: dict[str, str],
        topics: dict[str, str],
        lookups: dict[str, str],
        schemas: dict[str, str],
        starting: str,
    ) -> None:
        if not topics:
            raise ConfigError("topics= names no topic")
        self.spark = spark
        self.source = {**source, "columns": COLUMNS}
        self.topics = topics
        self.lookups = lookups
        self.schemas = schemas
        self.starting = starting
        self.views: list[str] = []

    # As a stream

    def run_stream(
        self, text: str, target: dict[str, str], bad_to: str | None, checkpoint: Path, interval_s: float | None
    ) -> Summary:
        frames = {
            view: self.spark.readStream.format("cometmq")
            .options(**self.source, subscribe=topic, startingOffsets=self.starting)
            .load()
            for view, topic in self.topics.items()
        }
        result = packed(self._queried(text, frames, bad_to))
        side = {**target, "topic": str(bad_to)}
        queries: list[StreamingQuery] = []
        with progress("sql") as line:
            try:
                queries.append(self._started(result, target, checkpoint / "rows", interval_s))
                for view, unfit in self._unfit(frames).items() if bad_to else ():
                    queries.append(self._started(unfit, side, checkpoint / f"bad-{view}", interval_s))
                rows = _watched(queries, line)
            finally:
                for query in queries:
                    query.stop()
        return Summary("sql", {"rows_read": rows, "to": target.get("topic", ""), "bad_to": bad_to or ""})

    def _started(
        self, frame: DataFrame, options: dict[str, str], checkpoint: Path, interval_s: float | None
    ) -> StreamingQuery:
        writer = frame.writeStream.format("cometmq").options(**options).option("checkpointLocation", str(checkpoint))
        timed = writer.trigger(availableNow=True) if interval_s is None else None
        return (timed or writer.trigger(processingTime=f"{interval_s} seconds")).start()

    # As one batch

    def run_batch(self, text: str, target: dict[str, str], bad_to: str | None, checkpoint: Path, run: str) -> Summary:
        plan = self._planned(place_below(checkpoint, f"{run}.json"))
        frames = {
            view: self.spark.read.format("cometmq").options(**self.source, subscribe=topic, **plan[topic]).load()
            for view, topic in self.topics.items()
        }
        with progress("sql") as line, tasks(self.spark, line):
            result = packed(self._queried(text, frames, bad_to))
            at("sql before send")
            rows = _send(result, {**target, "jobId": f"sql-{run}"})
            bad = 0
            for view, unfit in self._unfit(frames).items() if bad_to else ():
                bad += _send(unfit, {**target, "topic": str(bad_to), "jobId": f"sql-{run}-bad-{view}"})
        return Summary("sql", {"rows": rows, "to": target.get("topic", ""), "bad": bad, "bad_to": bad_to or ""})

    def _planned(self, path: Path) -> dict[str, dict[str, str]]:
        """Which offsets of which topic: as the first try of this run found them."""
        from cometmq.spark.live.offsets import to_dict
        from cometmq.spark.live.remote import remote
        from cometmq.spark.live.source import source_options
        from cometmq.spark.live.starting import ending, queues_of, starting

        if not path.exists():
            plan: dict[str, dict[str, str]] = {}
            for topic in sorted(set(self.topics.values())):
                options = source_options({**self.source, "subscribe": topic, "startingOffsets": self.starting})
                cluster = remote(options)
                queues = queues_of(options, cluster)
                first = starting(options, cluster, queues, streaming=False)
                last = ending(options, cluster, queues)
                plan[topic] = {
                    "startingOffsets": json.dumps(to_dict(first)),
                    "endingOffsets": json.dumps(to_dict(last)),
                }
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(plan))
            fresh.replace(path)
        stated: dict[str, dict[str, str]] = json.loads(path.read_text())
        if missing := set(self.topics.values()) - set(stated):
            raise ConfigError(
                f"{path} is the plan of a run without {', '.join(sorted(missing))}: give run= another name"
            )
        return stated

    # Both

    def _queried(self, text: str, frames: dict[str, DataFrame], bad_to: str | None) -> DataFrame:
        """The result of the SQL text over views of these frames."""
        for view, frame in frames.items():
            self._add_view(view, frame, self.schemas.get(self.topics[view]), strict=bad_to is None)
        for view, topic in self.lookups.items():
            frame = self.spark.read.format("cometmq").options(**self.source, subscribe=topic).load()
            self._add_view(view, frame, self.schemas.get(topic), strict=False)
        return self.spark.sql(text)

    def _add_view(self, view: str, frame: DataFrame, ddl: str | None, *, strict: bool) -> None:
        fields_of(frame, ddl, strict=strict).createOrReplaceTempView(view)
        self.views.append(view)

    def _unfit(self, frames: dict[str, DataFrame]) -> dict[str, DataFrame]:
        found = {view: unfit_of(frame, self.schemas.get(self.topics[view])) for view, frame in frames.items()}
        return {view: frame for view, frame in found.items() if frame is not None}


def _watched(queries: list[StreamingQuery], line: ProgressLine) -> int:
    """Waits until all have ended; what ends one of them by an error is raised. Returns rows that the first has read."""
    rows: dict[int, int] = {}
    while True:
        ended = not any(query.isActive for query in queries)
        for query in queries:
            query.awaitTermination(1)
        rows |= {int(one["batchId"]): int(one["numInputRows"]) for one in queries[0].recentProgress}
        line(rows=sum(rows.values()))
        if ended:
            return sum(rows.values())


def packed(result: DataFrame) -> DataFrame:
    """Rows for the sink: what it does not know becomes the body."""
    from pyspark.sql import functions as f

    known = {name.lower() for name in SINK_COLUMNS}
    names = result.columns
    if "body" in (name.lower() for name in names):
        return result
    others = [f.col(quoted(name)) for name in names if name.lower() not in known]
    if not others:
        raise ConfigError(f"the result has the columns {', '.join(names)}: none of them can be a body")
    kept = [f.col(quoted(name)) for name in names if name.lower() in known]
    return result.select(f.to_json(f.struct(*others)).alias("body"), *kept)


def _send(frame: DataFrame, options: dict[str, str]) -> int:
    """Sends in an order that is the same in every try. Returns how many rows."""
    from pyspark.sql import functions as f

    columns = [f.col(name) for name in frame.columns if name.lower() != "properties"]
    ordered = frame.repartition(PARTS, *columns).sortWithinPartitions(*columns).cache()
    try:
        ordered.write.format("cometmq").options(**options).mode("append").save()
        return ordered.count()
    finally:
        ordered.unpersist()
