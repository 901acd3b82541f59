"""Columns of a table, and those that its JSON bodies could have."""

from __future__ import annotations

from typing import Any

from cometmq.spark.bodies import Profile
from cometmq.spark.tables.catalog import Place
from cometmq.spark.tables.table import chosen_tables, tables_at


def columns_of(place: Place, topic: str) -> list[dict[str, Any]]:
    with tables_at(place) as (_, tables):
        (table,) = chosen_tables(tables, [topic], place).values()
        return [
            {"column": field.name, "type": str(field.field_type), "note": field.doc or ""}
            for field in table.schema().fields
        ]


def plan(place: Place, topic: str, messages_max: int) -> list[dict[str, Any]]:
    """What the bodies of a table's newest messages have, by top-level field; nothing is changed."""
    profile = Profile()
    with tables_at(place) as (_, tables):
        (table,) = chosen_tables(tables, [topic], place).values()
        left = messages_max
        tasks = sorted(table.scan().plan_files(), key=lambda one: one.file.file_path)
        for task in sorted(tasks, key=lambda one: str(one.file.partition), reverse=True):
            if left <= 0:
                break
            bodies = _bodies(table.io, task.file.file_path, left)
            left -= len(bodies)
            for body in bodies:
                profile.add_body(body)
    told = profile.schema()
    rows = [
        {
            "column": field["path"],
            "type": field["type"],
            "note": "several types" if field["conflict"] else f"null in {field['null_rate']:.0%}",
        }
        for field in told["fields"]
        if "." not in field["path"] and "[]" not in field["path"]
    ]
    total = {"column": "(messages)", "type": str(told["messages"]), "note": f"{told['bad']} others are no JSON"}
    return [*rows, total]


def _bodies(io: Any, path: str, count: int) -> list[bytes]:
    import pyarrow.parquet as pq

    found: list[bytes] = []
    with io.new_input(path).open() as stream:
        for batch in pq.ParquetFile(stream).iter_batches(columns=["body"]):
            found += batch.column(0).to_pylist()[: count - len(found)]
            if len(found) >= count:
                break
    return found
