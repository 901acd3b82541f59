"""Bodies that are not copied are the same as copies, in memory and in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.spark.lake.body_views import bytes_of, filtered, views

BODIES = st.lists(st.binary(max_size=40), max_size=20)
BETWEEN = st.binary(min_size=3, max_size=9)


def lying(bodies: list[bytes], gap: bytes) -> tuple[pa.Buffer, list[int], list[int]]:
    """Bodies as they lie in a log, with something between them."""
    source, starts, ends = b"head", [], []
    for body in bodies:
        starts.append(len(source))
        source += body
        ends.append(len(source))
        source += gap
    return pa.py_buffer(source), starts, ends


def made(bodies: list[bytes], gap: bytes = b"...") -> pa.Array:
    buffer, starts, ends = lying(bodies, gap)
    return views(buffer, np.array(starts, np.int64), np.array(ends, np.int64))


@given(BODIES, BETWEEN)
def test_views_are_the_bodies(bodies: list[bytes], gap: bytes) -> None:
    found = made(bodies, gap)
    found.validate(full=True)
    assert found.to_pylist() == bodies
    assert found.cast(pa.binary()).to_pylist() == bodies


@given(st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=20))
def test_filtered_has_the_rows_of_the_mask(rows: list[tuple[bytes, bool]]) -> None:
    numbers = pa.array(range(len(rows)), pa.int64())
    batch = pa.RecordBatch.from_arrays([numbers, made([body for body, _ in rows])], names=["number", "body"])
    kept = filtered(batch, pa.array([keep for _, keep in rows], pa.bool_()))
    assert kept.schema == batch.schema
    wanted = [{"number": number, "body": body} for number, (body, keep) in enumerate(rows) if keep]
    assert kept.to_pylist() == wanted


@given(BODIES, st.integers(0, 20))
def test_bytes_are_those_of_the_bodies_and_not_of_what_lies_between(bodies: list[bytes], first: int) -> None:
    numbers = pa.array(range(len(bodies)), pa.int64())
    batch = pa.RecordBatch.from_arrays([numbers, made(bodies, b"." * 1000)], names=["number", "body"])
    assert bytes_of(batch) == sum(map(len, bodies)) + 8 * len(bodies)
    rest = batch.slice(first)
    assert bytes_of(rest) == sum(map(len, bodies[first:])) + 8 * len(bodies[first:])


@pytest.mark.parametrize("codec", ["snappy", "zstd", "none"])
def test_files_have_plain_bytes(tmp_path: Path, codec: str) -> None:
    bodies = [b"", b"short", b"exactly 12 b", b"thirteen byte", b"long" * 1000]
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"body": made(bodies)}), path, compression=codec, store_schema=False)
    table = pq.read_table(path)
    assert table.schema.field("body").type == pa.binary()
    assert table.column("body").to_pylist() == bodies
