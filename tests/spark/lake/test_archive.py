"""Files of an archive count when, and only when, a manifest names them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cometmq.errors import ConfigError, StoreError
from cometmq.spark.lake.archive import Lake, LakeFile, Manifest, live_paths, write_parquet

COLUMNS = ("brokerName", "queueId", "queueOffset")


def add(lake: Lake, name: str, first: int, count: int, topic: str = "T", day: str = "2026-01-01") -> LakeFile:
    path = f"data/topic={topic}/day={day}/{name}.parquet"
    table = pa.table({"brokerName": ["b"] * count, "queueId": [0] * count, "queueOffset": range(first, first + count)})
    write_parquet(table, lake.root / path)
    size = (lake.root / path).stat().st_size
    return LakeFile(path, topic, day, count, size, "b", 0, first, first + count, 1, 2)


def offsets(lake: Lake) -> list[int]:
    found: list[int] = []
    for path in live_paths(lake.root):
        found += pq.read_table(path, partitioning=None).column("queueOffset").to_pylist()
    return found


def test_a_batch_counts_once_however_often_it_is_published(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert lake.publish(Manifest("q", 0, COLUMNS, (add(lake, "one", 0, 10),)))
    assert not lake.publish(Manifest("q", 0, COLUMNS, (add(lake, "two", 0, 10),)))
    assert lake.is_published("q", 0)
    assert offsets(lake) == list(range(10))
    assert json.loads((tmp_path / "files.json").read_text()) == ["data/topic=T/day=2026-01-01/one.parquet"]
    assert [path.name for path in lake.orphans()] == ["two.parquet"]


def test_a_manifest_of_files_that_are_not_there_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    file = add(lake, "one", 0, 1)
    (tmp_path / file.path).unlink()
    with pytest.raises(StoreError, match=r"one\.parquet of batch 3 is not in"):
        lake.publish(Manifest("q", 3, COLUMNS, (file,)))


def test_vacuum_leaves_what_counts_and_what_is_young(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.publish(Manifest("q", 0, COLUMNS, (add(lake, "counts", 0, 5),)))
    for name in ("old", "young"):
        add(lake, name, 0, 5)
    os.utime(tmp_path / "data/topic=T/day=2026-01-01/old.parquet", (0, 0))
    os.utime(tmp_path / "data/topic=T/day=2026-01-01/counts.parquet", (0, 0))
    assert [path.name for path in lake.vacuum(older_than_s=3600)] == ["old.parquet"]
    assert offsets(lake) == list(range(5))


def test_small_files_become_one_and_rows_stay(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for batch in (2, 0, 1):
        lake.publish(Manifest("q", batch, COLUMNS, (add(lake, f"part{batch}", batch * 10, 10),)))
    lake.publish(Manifest("q", 3, COLUMNS, (add(lake, "other", 0, 3, topic="U"),)))
    (made,) = lake.compact()
    assert made.rows == 30
    assert sorted(file.topic for file in lake.live_files()) == ["T", "U"]
    assert offsets(lake) == [*range(30), *range(3)]
    assert len(lake.orphans()) == 3
    assert len(lake.vacuum(older_than_s=0)) == 3
    assert offsets(lake) == [*range(30), *range(3)]
    assert lake.compact() == []


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no archive"):
        Lake(tmp_path).live_files()
    with pytest.raises(ConfigError, match="needs a file system with atomic creation"):
        Lake("s3://bucket/lake")
    broken = tmp_path / "manifest" / "q" / "0000000000.json"
    broken.parent.mkdir(parents=True)
    broken.write_text('{"version": 1}')
    with pytest.raises(StoreError, match=r"0000000000\.json is no manifest"):
        Lake(tmp_path).live_files()
    broken.write_text('{"version": 9}')
    with pytest.raises(StoreError, match="version 9"):
        Lake(tmp_path).live_files()
