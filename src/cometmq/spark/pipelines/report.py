"""report: how far groups are behind, and how long messages take, as tables, charts and one page.

    lag         max and min offsets of queues and where groups stand, now; each run adds a sample to TO/lag.jsonl
    latency     from being sent to being stored: born and store times, by topic and minute
    send        what producers wrote into the trace topic: how long a send took, by topic, group and minute
    delivery    from being sent to reaching a consumer, of the traces of both
    consume     how long handlers took

    TO/report.html    everything, in one file that needs nothing else
    TO/report.json    the tables and the figures of the charts
    TO/NAME.svg       each chart

Quantiles are exact (Spark's percentile: between two values it is drawn straight). Reads only; every run makes the files
anew, each at once. What is not traced is not in the last three tables: enable traces in the clients.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import NoRoute
from cometmq.names import DLQ_PREFIX, RETRY_PREFIX, TRACE_TOPIC
from cometmq.spark import charts
from cometmq.spark.live.topics import keeps_books
from cometmq.spark.pipelines.progress import progress, tasks
from cometmq.spark.pipelines.search import moment_ms
from cometmq.spark.pipelines.steps import Summary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cometmq.spark.live.remote import Remote

QUANTILES: Final = (0.5, 0.95, 0.99)
TRACES_DDL: Final = (
    "kind STRING, topic STRING, grp STRING, id STRING, request STRING, timeMs BIGINT, costMs BIGINT, success BOOLEAN"
)
FIGURES: Final = ("count", "p50_ms", "p95_ms", "p99_ms", "max_ms")
HISTORY: Final = "lag.jsonl"
# Lines of one chart; more could not be told apart.
SERIES_MAX: Final = 8
HISTORY_MAX: Final = 10_000


@dataclass(frozen=True)
class Part:
    """One table of the report, and the sentence that says what it is."""

    name: str
    meaning: str
    heads: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def report(
    spark: SparkSession,
    *,
    namesrv: str,
    to: str,
    topics: str | None = None,
    groups: str | None = None,
    since: str | None = None,
    trace_topic: str = TRACE_TOPIC,
    **source: str,
) -> Summary:
    """Of all topics and groups, or those named. `since`: a moment as for search. `source`: options of the source."""
    from cometmq.spark.live.remote import remote
    from cometmq.spark.live.source import source_options

    cluster = remote(source_options({"namesrvAddr": namesrv, "subscribe": "x", **source}))
    names = _names(topics) or [one for one in cluster.topics() if _is_users(one)]
    start_ms = moment_ms(since)
    options = {"namesrvAddr": namesrv, **source}
    with progress("report") as line, tasks(spark, line):
        parts = [*_standings(cluster, names, _names(groups))]
        parts += _latencies(spark, options, names, start_ms)
        parts += _traces(spark, cluster, options, trace_topic, start_ms)
    folder = Path(to)
    drawn = drawings(parts, _sampled(folder / HISTORY, parts[1]))
    _write(folder, parts, drawn)
    lag = sum(row[5] for row in parts[1].rows)
    rows = {part.name: len(part.rows) for part in parts}
    figures = {"topics": len(names), "groups": len({row[1] for row in parts[1].rows}), "lag": lag}
    return Summary("report", {**figures, "charts": len(drawn), "rows": sum(rows.values()), "page": f"{to}/report.html"})


def _names(text: str | None) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()] if text else []


def _is_users(topic: str) -> bool:
    return not keeps_books(topic) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


# Where queues and groups stand


def _standings(cluster: Remote, topics: list[str], groups: list[str]) -> Iterator[Part]:
    from cometmq.client.admin import Admin

    bounds = cluster.bounds(cluster.queues(topics)) if topics else {}
    sums: dict[str, list[int]] = {}
    for queue, one in bounds.items():
        found = sums.setdefault(queue.topic, [0, 0, 0])
        sums[queue.topic] = [found[0] + 1, found[1] + one.last - one.first, found[2] + one.last]
    yield Part(
        "topics", "What is in the queues, and what ever was.", ("topic", "queues", "messages", "ever"),
        [(topic, *figures) for topic, figures in sorted(sums.items())],
    )  # fmt: skip
    admin = Admin(cluster.instance)
    rows: list[tuple[Any, ...]] = []
    for group in groups or cluster.run(admin.groups()):
        for place, lag in cluster.run(admin.group_lag(group)).items():
            if place.topic in topics:
                rows.append((place.topic, group, place.broker_name, place.queue_id, lag.committed, lag.behind, lag.end))
    heads = ("topic", "group", "broker", "queue", "committed", "lag", "max")
    yield Part("lag", "How far each group is behind, now.", heads, sorted(rows))


def _sampled(path: Path, lag: Part) -> list[dict[str, Any]]:
    """All samples so far, with the one of now."""
    sums: dict[str, int] = {}
    for row in lag.rows:
        sums[f"{row[1]} {row[0]}"] = sums.get(f"{row[1]} {row[0]}", 0) + row[5]
    before = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    samples = [*before, {"time_ms": time.time_ns() // 1_000_000, "lag": sums}][-HISTORY_MAX:]
    charts.save(path, "".join(json.dumps(one) + "\n" for one in samples))
    return samples


# Times


def _latencies(spark: SparkSession, options: dict[str, str], topics: list[str], start_ms: int | None) -> list[Part]:
    if not topics:
        return []
    frame = _read(spark, options, ",".join(topics), "topic,bornTimestamp,storeTimestamp", start_ms)
    times = frame.selectExpr(
        "topic",
        "date_trunc('MINUTE', storeTimestamp) AS minute",
        "(unix_micros(storeTimestamp) - unix_micros(bornTimestamp)) / 1000.0D AS ms",
    )
    meaning = "From being sent to being stored."
    return quantiles(times, "latency", meaning, ["topic"])


def _traces(
    spark: SparkSession, cluster: Remote, options: dict[str, str], topic: str, start_ms: int | None
) -> list[Part]:
    try:
        cluster.queues([topic])
    except NoRoute:
        return []
    stated = _read(spark, options, topic, "body", start_ms).mapInArrow(_records, TRACES_DDL).cache()
    try:
        sent = stated.filter("kind = 'Pub' AND success")
        minute = "date_trunc('MINUTE', timestamp_millis(timeMs)) AS minute"
        sends = sent.selectExpr("topic", "grp AS `group`", minute, "CAST(costMs AS DOUBLE) AS ms")
        ids = sent.groupBy("id").agg({"topic": "first", "timeMs": "min"}).toDF("id", "topic", "sentMs")
        reached = stated.filter("kind = 'SubBefore'").drop("topic").join(ids, "id")
        delivery = reached.selectExpr("topic", "grp AS `group`", minute, "CAST(timeMs - sentMs AS DOUBLE) AS ms")
        begun = reached.selectExpr("request", "id", "topic", "grp", "timeMs")
        ended = stated.filter("kind = 'SubAfter'").select("request", "id", "costMs")
        consumed = ended.join(begun, ["request", "id"])
        consume = consumed.selectExpr("topic", "grp AS `group`", minute, "CAST(costMs AS DOUBLE) AS ms")
        by = ["topic", "group"]
        return [
            *quantiles(sends, "send", "How long sends took, as producers saw it.", by),
            *quantiles(delivery, "delivery", "From the begin of the send to the begin of the handler.", by),
            *quantiles(consume, "consume", "How long handlers took.", by),
        ]
    finally:
        stated.unpersist()


def _read(spark: SparkSession, options: dict[str, str], topics: str, columns: str, start_ms: int | None) -> DataFrame:
    start = {"startingOffsets": "earliest"}
    if start_ms is not None:
        start = {"startingTimestamp": str(start_ms), "startingOffsetsByTimestampStrategy": "latest"}
    return spark.read.format("cometmq").options(**options, **start, subscribe=topics, columns=columns).load()


def quantiles(times: DataFrame, name: str, meaning: str, by: Sequence[str]) -> list[Part]:
    """Two tables: in all, and by minute. `times` has the columns of `by`, `minute`, and `ms`."""
    from pyspark.sql import functions as f

    shares = f.array(*[f.lit(one) for one in QUANTILES])
    figures = [f.count("ms"), f.percentile("ms", shares).alias("q"), f.max("ms").alias("most")]
    keys = [*by, "minute"]
    # One pass for both: rows of the first set have no minute.
    rows = times.groupingSets([list(by), keys], *keys).agg(*figures).collect()
    stated = [(*map(_plain, row[: len(keys)]), row[len(keys)], *row["q"], row["most"]) for row in rows]
    at = len(by)
    whole = sorted((*row[:at], *row[at + 1 :]) for row in stated if row[at] is None)
    minutes = sorted(row for row in stated if row[at] is not None)
    return [
        Part(name, meaning, (*by, *FIGURES), whole),
        Part(f"{name} by minute", meaning, (*keys, *FIGURES), minutes),
    ]


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=UTC).isoformat() if isinstance(value, datetime) else value


def _records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records in bodies of trace messages."""
    import pyarrow as pa

    from cometmq.client.admin.trace_records import read_records

    kinds = {"STRING": pa.string(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in (part.split() for part in TRACES_DDL.split(", "))])
    for batch in batches:
        rows = [
            (one.kind, one.topic, one.group, one.id, one.request, one.time_ms, one.cost_ms, one.success)
            for body in batch.column("body").to_pylist()
            for one in read_records(body)
        ]
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# Pictures


def drawings(parts: Sequence[Part], samples: Sequence[dict[str, Any]]) -> dict[str, charts.Chart]:
    """The charts by the names of their files."""
    by_name = {part.name: part for part in parts}
    drawn: dict[str, charts.Chart] = {}
    newest = samples[-1]["lag"] if samples else {}
    worst = sorted(newest, key=lambda name: -newest[name])
    if worst:
        drawn["lag"] = charts.bars("Lag by group and topic", worst, {"lag": [newest[name] for name in worst]})
    if len(samples) > 1:
        drawn["lag-history"] = charts.lines(
            "Lag over time",
            {
                name: [(_moment(one["time_ms"]), one["lag"][name]) for one in samples if name in one["lag"]]
                for name in worst[:SERIES_MAX]
            },
            y_label="messages",
        )
    for name, title in (
        ("latency", "Sent to stored, 99 of 100 within"),
        ("send", "Sends, 99 of 100 within"),
        ("delivery", "Sent to handler, 99 of 100 within"),
        ("consume", "Handlers, 99 of 100 within"),
    ):
        part = by_name.get(f"{name} by minute")
        if part is not None and part.rows:
            drawn[name] = charts.lines(title, _series(part), y_label="ms")
    return drawn


def _series(part: Part) -> dict[str, list[tuple[datetime, float]]]:
    """The 0.99 quantile by minute, of what has the most messages."""
    minute, count, p99 = (part.heads.index(name) for name in ("minute", "count", "p99_ms"))
    found: dict[str, list[tuple[datetime, float]]] = {}
    weights: dict[str, int] = {}
    for row in part.rows:
        name = " ".join(str(one) for one in row[:minute])
        found.setdefault(name, []).append((datetime.fromisoformat(row[minute]), row[p99]))
        weights[name] = weights.get(name, 0) + row[count]
    kept = sorted(found, key=lambda name: (-weights[name], name))[:SERIES_MAX]
    return {name: found[name] for name in kept}


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _write(folder: Path, parts: Sequence[Part], drawn: dict[str, charts.Chart]) -> None:
    for name, chart in drawn.items():
        charts.save(folder / f"{name}.svg", chart.svg())
    tables = {part.name: [dict(zip(part.heads, row, strict=True)) for row in part.rows] for part in parts}
    points = {
        name: {key: [[_plain(x), y] for x, y in line] for key, line in chart.series.items()}
        for name, chart in drawn.items()
    }
    charts.save(folder / "report.json", json.dumps({"tables": tables, "charts": points}, indent=1) + "\n")
    content: list[charts.Chart | charts.Table | str] = [f"Made {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC."]
    content += list(drawn.values())
    for part in parts:
        if not part.name.endswith("by minute"):
            content += [f"{part.name}: {part.meaning}", charts.table(part.heads, part.rows)]
    charts.save(folder / "report.html", charts.page("CometMQ report", content))
