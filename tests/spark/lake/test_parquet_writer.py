"""Files of the archive in writing: rows go to their day, groups are bounded, and what is read is what was given."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cometmq.spark.columns import COLUMNS, arrow_schema, viewed
from cometmq.spark.lake import parquet_writer
from cometmq.spark.lake.parquet_writer import DayFile, by_day

DAY_US = 86_400_000_000
SOME = [column for column in COLUMNS if column.name in ("topic", "body", "storeTimestamp", "queueOffset")]
SCHEMA = arrow_schema(SOME)
SCHEMAS = pytest.mark.parametrize("schema", [SCHEMA, arrow_schema(viewed(SOME))], ids=["own bodies", "views of bodies"])


def batch(times_us: list[int], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = {
        "topic": pa.array(["orders"] * len(times_us)),
        "queueOffset": pa.array(range(len(times_us)), pa.int64()),
        "body": pa.array([b"%d" % time for time in times_us], schema.field("body").type),
        "storeTimestamp": pa.array(times_us, pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def test_rows_of_one_day_are_not_copied() -> None:
    one = batch([5, 6, 7])
    ((day, part),) = by_day(one)
    assert day == "1970-01-01"
    assert part is one
    assert by_day(batch([])) == []


@SCHEMAS
def test_rows_around_midnight_go_to_their_days_in_order(schema: pa.Schema) -> None:
    times = [DAY_US - 1, DAY_US, 3 * DAY_US, DAY_US - 2, DAY_US + 1]
    found = {day: part.column("queueOffset").to_pylist() for day, part in by_day(batch(times, schema))}
    assert {part.schema for _, part in by_day(batch(times, schema))} == {schema}
    assert found == {"1970-01-01": [0, 3], "1970-01-02": [1, 4], "1970-01-04": [2]}


@SCHEMAS
def test_a_file_is_written_in_groups_as_rows_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: pa.Schema
) -> None:
    monkeypatch.setattr(parquet_writer, "GROUP_BYTES", 1000)
    file = DayFile(tmp_path / "deep" / "one.parquet", ["queueOffset", "body"])
    given = [batch(list(range(first, first + 20)), schema) for first in (100, 40, 900)]
    for one in given:
        file.add(one)
    size = file.close()
    assert size == file.path.stat().st_size
    assert (file.rows, file.oldest_us, file.newest_us) == (60, 40, 919)
    read = pq.ParquetFile(file.path)
    assert read.metadata.num_row_groups > 1
    bodies = [body for one in given for body in one.column("body").to_pylist()]
    assert read.read().column("body").to_pylist() == bodies
    assert read.schema_arrow == pa.schema([("queueOffset", pa.int64()), ("body", pa.binary())])


def test_only_what_repeats_has_a_dictionary_and_bodies_have_no_statistics(tmp_path: Path) -> None:
    file = DayFile(tmp_path / "one.parquet", SCHEMA.names)
    file.add(batch(list(range(100))))
    file.close()
    group = pq.ParquetFile(file.path).metadata.row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert columns["topic"].has_dictionary_page
    assert not columns["body"].has_dictionary_page
    assert not columns["body"].is_stats_set
    assert columns["queueOffset"].statistics.max == 99
