"""dlq: what lies in dead-letter topics and why, and back to where it came from, each message once.

    table      one row a dead letter: group, origin topic, original id, how often it was tried, cause, age, sample of
               its body; `where` is a SQL condition on these and on the columns of a message
    replay     rows that the condition takes go to the group's retry topic, under their old ids; with to=origin to
               their origin topics, as new messages for every group. CMQ_DLQ = group/broker/queue/offset marks them

CometMQ's consumers write down why a message failed (wire/record/failure.py). Others do not: then `cause` names a
property in which the message itself says it.

The ledger of replays is a directory:

    LEDGER/00000003.plan.json     which letters the third replay sends; made before the first is sent
    LEDGER/00000003.done.json     made when all were

A letter is in one plan at most, so a second run sends nothing. A plan without its end was killed: the next run sends
what of it is missing, recognised by marks in the origin topic, and then plans anew. Reading changes nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError, StoreError
from cometmq.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic
from cometmq.spark.lake.atomic_file import create_whole
from cometmq.spark.live.remote import remote
from cometmq.spark.pipelines.progress import ProgressLine, progress, tasks
from cometmq.spark.pipelines.steps import Summary, at, connection
from cometmq.wire.record.properties import Property

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_CAUSE: Final = "none given"
SAMPLE_LENGTH: Final = 200
CAUSES_MAX: Final = 10
PLACES: Final = ("group", "origin")
_PLACE: Final = ("group", "brokerName", "queueId", "queueOffset")


@dataclass(frozen=True)
class DeadLetter:
    group: str
    place: str
    origin_topic: str
    origin_id: str
    tries: int
    cause: str
    age_s: int
    sample: str


def dlq(
    spark: SparkSession,
    *,
    namesrv: str,
    groups: str | None = None,
    where: str | None = None,
    cause: str = "error",
    rows_max: int = 100,
    replay: bool = False,
    to: str = "group",
    ledger: str | None = None,
    **source: str,
) -> tuple[Summary, list[DeadLetter]]:
    """Dead letters of these groups, or of all; at most `rows_max` are listed, all are counted.

    With `replay` those that `where` takes are sent back; `ledger` is the directory that remembers them.
    """
    if to not in PLACES:
        raise ConfigError(f"to={to} is none of {', '.join(PLACES)}")
    if replay and ledger is None:
        raise ConfigError("replay=true needs ledger=DIRECTORY, where it is noted what was sent")
    options = {"namesrvAddr": namesrv, **source}
    wanted = _topics(options, groups)
    if not wanted:
        return Summary("dlq", {"letters": 0, "groups": 0}), []
    table = letters(spark, options, wanted, cause)
    chosen = table.filter(where) if where else table
    with progress("dlq") as line, tasks(spark, line):
        figures, rows = _triage(chosen, rows_max)
        if replay:
            assert ledger is not None
            figures["sent"] = Replays(Path(ledger), options, line, to).run(chosen, table)
    return Summary("dlq", figures), rows


def _topics(options: dict[str, str], groups: str | None) -> list[str]:
    from cometmq.spark.live.source import source_options

    if groups:
        return [dlq_topic(group.strip()) for group in groups.split(",")]
    return [topic for topic in remote(source_options(options)).topics() if topic.startswith(DLQ_PREFIX)]


def letters(spark: SparkSession, options: dict[str, str], topics: list[str], cause: str = "error") -> DataFrame:
    """The table of dead letters: its own columns, then those of a message."""
    from pyspark.sql import functions as f

    frame = spark.read.format("cometmq").options(**options, subscribe=",".join(topics)).load()
    properties = f.col("properties")
    text = f.col("body").cast("string")
    sample = f.when(f.is_valid_utf8(text), f.left(text, f.lit(SAMPLE_LENGTH))).otherwise(
        f.concat(f.lit("0x"), f.left(f.hex("body"), f.lit(SAMPLE_LENGTH)))
    )
    return frame.select(
        f.substring("topic", len(DLQ_PREFIX) + 1, 255).alias("group"),
        f.coalesce(properties[Property.DLQ_ORIGIN_TOPIC], properties[Property.RETRY_TOPIC]).alias("originTopic"),
        f.coalesce(
            properties[Property.DLQ_ORIGIN_MESSAGE_ID], properties[Property.ORIGIN_MESSAGE_ID], f.col("msgId")
        ).alias("originId"),
        f.coalesce(
            properties[cause],
            f.concat(properties[Property.FAILURE_TYPE], f.lit(": "), properties[Property.FAILURE_CAUSE]),
            f.lit(NO_CAUSE),
        ).alias("cause"),
        (f.unix_timestamp(f.current_timestamp()) - f.unix_timestamp("storeTimestamp")).alias("ageS"),
        sample.alias("sample"),
        *(name for name in frame.columns if name != "topic"),
    )


def _triage(chosen: DataFrame, rows_max: int) -> tuple[dict[str, Any], list[DeadLetter]]:
    from pyspark.sql import functions as f

    counts = chosen.groupBy("cause").agg(
        f.count("*").alias("rows"), f.collect_set("group").alias("groups"), f.max("ageS").alias("oldest")
    )
    causes = sorted(counts.collect(), key=lambda row: (-row["rows"], row["cause"]))
    figures: dict[str, Any] = {
        "letters": sum(row["rows"] for row in causes),
        "groups": len({group for row in causes for group in row["groups"]}),
        "oldest_s": max((row["oldest"] for row in causes), default=0),
    }
    figures |= {f"cause {row['cause']}": row["rows"] for row in causes[:CAUSES_MAX]}
    listed = chosen.orderBy(*_PLACE).limit(rows_max).collect()
    return figures, [_letter(row) for row in listed]


def _letter(row: Any) -> DeadLetter:
    place = f"{row['brokerName']}/{row['queueId']}/{row['queueOffset']}"
    origin = (str(row["originTopic"]), str(row["originId"]))
    return DeadLetter(row["group"], place, *origin, row["reconsumeTimes"], row["cause"], row["ageS"], row["sample"])


class Replays:
    """The ledger, and what is sent by it."""

    def __init__(self, folder: Path, options: dict[str, str], line: ProgressLine, to: str) -> None:
        self.folder = folder
        self.to = to
        self.options = options
        self.line = line

    def run(self, chosen: DataFrame, table: DataFrame) -> int:
        """Ends what was begun, then sends what is new. How many letters this run has seen through."""
        sent = 0
        for number, plan in self._plans():
            if not self._path(number, "done").exists():
                sent += self._send(number, plan, table)
        known = {tuple(place) for _, plan in self._plans() for place in plan["letters"]}
        fresh = [list(row) for row in chosen.select(*_PLACE).orderBy(*_PLACE).collect() if tuple(row) not in known]
        if fresh:
            number = 1 + max((number for number, _ in self._plans()), default=0)
            plan = {"job": f"dlq-{uuid.uuid4().hex}", "to": self.to, "letters": fresh}
            if not create_whole(self._path(number, "plan"), json.dumps(plan).encode()):
                raise StoreError(f"another replay works with {self.folder}: run it again when that has ended")
            sent += self._send(number, plan, table)
        return sent

    def _plans(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for path in sorted(self.folder.glob("*.plan.json")):
            yield int(path.name.split(".")[0]), json.loads(path.read_text())

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:08d}.{kind}.json"

    def _send(self, number: int, plan: dict[str, Any], table: DataFrame) -> int:
        from pyspark.sql import functions as f

        spark = table.sparkSession
        places = spark.createDataFrame(
            [tuple(place) for place in plan["letters"]],
            "`group` STRING, brokerName STRING, queueId INT, queueOffset BIGINT",
        )
        place = f.concat_ws("/", *(f.col(name).cast("string") for name in _PLACE))
        properties = f.map_filter("properties", lambda key, _: ~key.isin("CMQ_DLQ", Property.RETRY_TOPIC))
        target = f.col("originTopic")
        if plan.get("to", "origin") == "group":
            origin = f.create_map(f.lit(Property.RETRY_TOPIC), target)
            properties = f.when(target.isNotNull(), f.map_concat(properties, origin)).otherwise(properties)
            target = f.concat(f.lit(RETRY_PREFIX), "group")
        rows = table.join(places, list(_PLACE), "left_semi").select(
            "body", "tags", "keys", "flag", target.alias("target"), place.alias("place"),
            f.map_concat(properties, f.create_map(f.lit("CMQ_DLQ"), place)).alias("properties"),
        )  # fmt: skip
        topics = sorted(row[0] for row in rows.select("target").distinct().collect() if row[0])
        at("dlq before send")
        for topic in topics:
            sink = {**connection(self.options), "topic": topic, "delivery": "deduplicated", "rowId": "place"}
            part = rows.filter(f.col("target") == topic).drop("target")
            part.write.format("cometmq").options(**sink, jobId=f"{plan['job']}-{topic}").mode("append").save()
        at("dlq after send")
        create_whole(self._path(number, "done"), json.dumps({"letters": len(plan["letters"])}).encode())
        self.line.add(len(plan["letters"]))
        return len(plan["letters"])
