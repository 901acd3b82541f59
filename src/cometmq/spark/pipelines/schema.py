"""schema: what the JSON bodies of topics look like, and how that has changed.

Every task makes a profile of the bodies that it reads (`spark.bodies`); the driver adds them up. Written is a schema
file, which the pipelines sql and window read bodies by: types, disagreements, shares of nulls, examples.

    drift   between the file that is there and the new one, and, with by_day=true, from each day to the next

Reads topics, archives or stores; changes nothing but the file, which is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError
from cometmq.spark.bodies import Drift, Profile, drift, read_schema, write_schema
from cometmq.spark.pipelines.messages import messages
from cometmq.spark.pipelines.progress import progress, tasks
from cometmq.spark.pipelines.steps import Summary, only_connection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PROFILES_DDL: Final = "topic STRING, day STRING, profile STRING"


def schema(
    spark: SparkSession,
    *,
    topics: str,
    out: str,
    namesrv: str | None = None,
    root: str | None = None,
    store: str | None = None,
    sample: float = 1.0,
    by_day: bool = False,
    **source: str,
) -> tuple[Summary, list[Drift]]:
    """`out` is the schema file; topics that it has and `topics` does not name stay. `sample`: share of messages.
    `source`: further options of the cluster (keys, TLS)."""
    if not 0 < sample <= 1:
        raise ConfigError(f"sample={sample}: give a share above 0, and 1 at most")
    given = only_connection("schema", source)
    columns = "topic,storeTimestamp,body"
    frame = messages(spark, topics=topics, columns=columns, namesrv=namesrv, root=root, store=store, **given)
    if sample < 1:
        frame = frame.sample(fraction=sample, seed=1)
    with progress("schema") as line, tasks(spark, line):
        rows = frame.mapInArrow(_profiles, PROFILES_DDL).collect()
    days: dict[str, dict[str, Profile]] = {}
    for row in rows:
        days.setdefault(row["topic"], {}).setdefault(row["day"], Profile()).add(Profile.from_json(row["profile"]))
    before = read_schema(out) if Path(out).exists() else {}
    found: dict[str, Any] = {}
    changes: list[Drift] = []
    left_out = 0
    for topic, by in sorted(days.items()):
        whole = Profile()
        for day in sorted(by):
            whole.add(by[day])
        found[topic] = whole.schema()
        left_out += whole.left_out
        if by_day:
            schemas = [(day, by[day].schema()) for day in sorted(by)]
            for (_, was), (day, now) in pairwise(schemas):
                changes += drift(topic, day, was, now)
        if topic in before:
            changes += drift(topic, "file", before[topic], found[topic])
    write_schema(Path(out), before | found)
    figures: dict[str, Any] = {"topics": len(found), "messages": sum(one["messages"] for one in found.values())}
    figures |= {"bad": sum(one["bad"] for one in found.values())}
    figures |= {"fields": sum(len(one["fields"]) for one in found.values())}
    figures |= {"conflicts": sum(field["conflict"] for one in found.values() for field in one["fields"])}
    figures |= {"fields_left_out": left_out, "changes": len(changes), "out": out}
    return Summary("schema", figures), changes


def _profiles(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One profile for each topic and day among the messages of a task."""
    import pyarrow as pa
    import pyarrow.compute as pc

    made: dict[tuple[str, str], Profile] = {}
    for batch in batches:
        days = pc.strftime(batch.column("storeTimestamp"), format="%Y-%m-%d").to_pylist()
        for topic, day, body in zip(
            batch.column("topic").to_pylist(), days, batch.column("body").to_pylist(), strict=True
        ):
            made.setdefault((topic, day), Profile()).add_body(body)
    rows = [{"topic": topic, "day": day, "profile": one.to_json()} for (topic, day), one in made.items()]
    if rows:
        fields = pa.schema([("topic", pa.string()), ("day", pa.string()), ("profile", pa.string())])
        yield pa.RecordBatch.from_pylist(rows, schema=fields)
