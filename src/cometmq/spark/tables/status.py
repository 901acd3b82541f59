"""How tables stand: what is in them, and how far they are behind their topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cometmq.spark.columns import chosen
from cometmq.spark.lake.archive import Lake, Manifest
from cometmq.spark.live.offsets import Range
from cometmq.spark.live.remote import remote
from cometmq.spark.live.source import read_messages, source_options
from cometmq.spark.live.starting import queues_of
from cometmq.spark.tables.catalog import Place
from cometmq.spark.tables.commits import committed, done_batches
from cometmq.spark.tables.table import chosen_tables, tables_at

if TYPE_CHECKING:
    from pyiceberg.table import Table


def status(place: Place, topics: Iterable[str], connection: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row a table; `behind` and `behind_s` are messages of the brokers that it lacks, and the age of the oldest."""
    with tables_at(place) as (_, tables):
        wanted = chosen_tables(tables, topics, place)
        lake = Lake(place.root)
        there = [lake.manifest(query, batch) for query, known in lake.batches().items() for batch in known]
        return [_row(topic, table, there) | _behind(topic, table, connection) for topic, table in wanted.items()]


def _row(topic: str, table: Table, there: list[Manifest]) -> dict[str, Any]:
    snapshot = table.current_snapshot()
    totals = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    done = done_batches(table.properties)
    return {
        "topic": topic,
        "table": ".".join(table.name()),
        "rows": int(totals.get("total-records", 0)),
        "files": int(totals.get("total-data-files", 0)),
        "bytes": int(totals.get("total-files-size", 0)),
        "snapshots": len(table.snapshots()),
        "committed_s": round(time.time() - snapshot.timestamp_ms / 1000, 1) if snapshot is not None else None,
        "waiting": sum(
            one.batch > done.get(one.query, -1) and any(file.topic == topic for file in one.files) for one in there
        ),
    }


def _behind(topic: str, table: Table, connection: Mapping[str, str]) -> dict[str, Any]:
    options = source_options({**connection, "subscribe": topic})
    cluster = remote(options)
    ends = committed(table.properties)
    missing = []
    for queue, there in cluster.bounds(queues_of(options, cluster)).items():
        first = max(ends.get(queue, there.first), there.first)
        if first < there.last:
            missing.append(Range(queue, first, there.last))
    columns = tuple(chosen(["storeTimestamp"]))
    oldest = [
        value.timestamp()
        for one in missing
        for batch in read_messages(options, Range(one.queue, one.first, one.first + 1), columns)
        for value in batch.column(0).to_pylist()
    ]
    age_s = max(0.0, time.time() - min(oldest)) if oldest else 0.0
    return {"behind": sum(map(len, missing)), "behind_s": round(age_s, 1)}
