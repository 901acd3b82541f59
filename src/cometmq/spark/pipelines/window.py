"""window: aggregates of a topic by time and group, as messages of another topic.

    window(spark, topic="orders", to="sales", schema="schema.json", size="1 minute", group="city",
           aggregates="sum(price) AS total", checkpoint="/state/sales", ...)

    {"window_start": "2026-03-01T12:00:00.000Z", "window_end": "...", "city": "Kiel", "total": 71.5, "version": 12}
     key 2026-03-01T12:00:00Z/Kiel; properties CMQ_WINDOW, CMQ_GROUP, CMQ_VERSION

`version` is the number of messages that were counted: it grows with every update of a window, and a window that is
computed again from the same messages has the same. Versions of one key are sent in one queue, in order; who reads keeps
the highest. What is sent again after a crash has the same window, group and version: with delivery=deduplicated it is
left out by the sink, with at-least-once by whoever reads.

    mode=append   each window once, when the watermark has passed its end
    mode=update   each window whenever it has changed, at most once a micro-batch

Messages that come after the watermark has passed their window are left out. Windows that are not finished are kept in
the checkpoint: killed in the middle of one and started again, the sums are those of a batch over all messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError
from cometmq.names import topic_fault
from cometmq.spark.bodies import read_schema
from cometmq.spark.parsed import COLUMNS, fields_of
from cometmq.spark.pipelines.progress import follow, progress
from cometmq.spark.pipelines.steps import Summary, at, connection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MODES: Final = ("append", "update")
WINDOW: Final = "CMQ_WINDOW"
GROUP: Final = "CMQ_GROUP"
VERSION: Final = "CMQ_VERSION"


def window(
    spark: SparkSession,
    *,
    namesrv: str,
    topic: str,
    to: str,
    checkpoint: str,
    size: str,
    slide: str | None = None,
    watermark: str = "0 seconds",
    time: str = "_message.bornTimestamp",
    group: str | None = None,
    aggregates: str | None = None,
    schema: str | None = None,
    where: str | None = None,
    mode: str = "append",
    delivery: str = "at-least-once",
    strict: bool = True,
    once: bool = True,
    interval_s: float = 5.0,
    starting: str = "earliest",
    **sink: str,
) -> Summary:
    """`time`, `where`, `group` and `aggregates` are SQL over the fields of bodies and `_message`.

    `group` and `aggregates` are lists, each item a column or "expression AS name". Bodies that do not fit the schema
    end the job; with strict=false they are not counted. `sink`: further options of the sink;
    those about the cluster (keys, TLS) are the source's, too.
    """
    if (fault := topic_fault(to)) is not None:
        raise ConfigError(fault)
    if mode not in MODES:
        raise ConfigError(f"mode={mode} is none of {', '.join(MODES)}")
    schemas = read_schema(schema) if schema else {}
    if schema and topic not in schemas:
        raise ConfigError(f"{schema} has no schema of {topic}; `cometmq pipeline run schema topics={topic}` adds it")
    options = {**connection(sink), "namesrvAddr": namesrv, "subscribe": topic, "columns": COLUMNS}
    options["startingOffsets"] = starting
    frame = spark.readStream.format("cometmq").options(**options).load()
    fields = fields_of(frame, schemas[topic]["ddl"] if schema else None, strict=strict)
    counted = summed(
        fields.filter(where) if where else fields,
        time=time, watermark=watermark, size=size, slide=slide, group=items(group), aggregates=items(aggregates),
    )  # fmt: skip
    sending = _Send({"namesrvAddr": namesrv, "topic": to, "delivery": delivery, **sink}, names_of(items(group)))
    writer = counted.writeStream.outputMode(mode).option("checkpointLocation", checkpoint).foreachBatch(sending)
    timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
    query = timed.start()
    with progress("window") as line:
        try:
            follow(query, line)
        finally:
            query.stop()
    late = sum(int(state.numRowsDroppedByWatermark) for state in _states(query))
    return Summary("window", {"rows_read": line.rows, "late": late, "windows_sent": sending.rows, "to": to})


def _states(query: Any) -> list[Any]:
    return [state for one in query.recentProgress for state in one.stateOperators]


def items(text: str | None) -> list[str]:
    """The parts of a list of SQL expressions: at commas that are not inside brackets or quotes."""
    found, depth, quote, part = [], 0, "", ""
    for letter in text or "":
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(part.strip())
            part = ""
            continue
        part += letter
    return [one for one in [*found, part.strip()] if one]


def names_of(expressions: list[str]) -> list[str]:
    """What the columns are called: what follows AS, else the column itself."""
    found = []
    for text in expressions:
        before, _, name = text.rpartition(" ")
        named = name if before.upper().endswith(" AS") else text.rpartition(".")[2]
        name = named.strip("`")
        if not name.isidentifier():
            raise ConfigError(f"{text} has no name: write it as {text} AS name")
        found.append(name)
    return found


def summed(
    fields: DataFrame,
    *,
    time: str,
    watermark: str,
    size: str,
    slide: str | None,
    group: list[str],
    aggregates: list[str],
) -> DataFrame:
    """One row for each window and group, with `_window` and `_version`. For batches and streams."""
    from pyspark.sql import functions as f

    named = list(zip(group, names_of(group), strict=True))
    grouped = [f.expr(_bare(text)).alias(f"_group_{number}") for number, (text, _) in enumerate(named)]
    timed = fields.select("*", f.expr(time).cast("timestamp").alias("_time"), *grouped).filter("_time IS NOT NULL")
    by: list[Column] = [f.window("_time", size, slide).alias("_window")]
    by += [f.col(f"_group_{number}").alias(name) for number, (_, name) in enumerate(named)]
    values = [f.expr(_bare(text)).alias(name) for text, name in zip(aggregates, names_of(aggregates), strict=True)]
    return timed.withWatermark("_time", watermark).groupBy(*by).agg(f.count(f.lit(1)).alias("_version"), *values)


def _bare(text: str) -> str:
    """The expression without its name."""
    before, _, _ = text.rpartition(" ")
    return before[:-3].strip() if before.upper().endswith(" AS") else text


def rows_of(counted: DataFrame, group: list[str]) -> DataFrame:
    """Windows as rows for the sink."""
    from pyspark.sql import functions as f

    form = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
    start, end = f.date_format("_window.start", form), f.date_format("_window.end", form)
    groups = [f.coalesce(f.col(name).cast("string"), f.lit("null")) for name in group]
    key = f.concat_ws("/", start, *groups)
    others = [f.col(name) for name in counted.columns if name not in ("_window", "_version")]
    version = f.col("_version")
    body = f.struct(start.alias("window_start"), end.alias("window_end"), *others, version.alias("version"))
    stated = {WINDOW: start, VERSION: version, **({GROUP: f.concat_ws("/", *groups)} if groups else {})}
    pairs = [one for name, value in stated.items() for one in (f.lit(name), value.cast("string"))]
    return counted.select(
        f.to_json(body, {"ignoreNullFields": "false"}).alias("body"),
        # Keys of a message are separated by spaces.
        f.regexp_replace(key, r"\s", "_").alias("keys"),
        key.alias("shardingKey"),
        f.create_map(*pairs).alias("properties"),
        f.concat_ws("#", key, version.cast("string")).alias("rowId"),
    )


class _Send:
    """What is done with the windows of each micro-batch, in the driver."""

    def __init__(self, options: dict[str, str], group: list[str]) -> None:
        self.options = options
        self.group = group
        self.rows = 0

    def __call__(self, counted: DataFrame, batch: int) -> None:
        context: Any = counted.sparkSession.sparkContext
        query = str(context.getLocalProperty("sql.streaming.queryId"))
        rows = rows_of(counted, self.group).persist()
        try:
            self.rows += rows.count()
            at("window before send")
            once = {"jobId": f"{query}-{batch}", "rowId": "rowId"}
            options = {**self.options, **(once if self.options["delivery"] != "at-least-once" else {})}
            # State may be cut into hundreds of parts; a task of the sink, with its connections, for each is too much.
            few = rows.coalesce(context.defaultParallelism)
            sent = few if "rowId" in options else few.drop("rowId")
            sent.write.format("cometmq").options(**options).mode("append").save()
            at("window after send")
        finally:
            rows.unpersist()
