"""Parquet files of the archive while they are written.

    rows come in batches -> held until there are about 64 MiB -> one row group

So a task holds that much and no more, however long its range is. What repeats (topic, hosts, tags, names of properties)
is written with a dictionary, the rest as it is: Parquet would try one on bodies and ids too, and give it up after a
megabyte. Bodies and properties have no minimum and maximum, which nobody asks for and which take a comparison for each.
"""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cometmq.spark.lake.archive import CODEC
from cometmq.spark.lake.body_views import bytes_of, filtered

GROUP_BYTES: Final = 64 * 1024 * 1024
_REPEATING: Final = (
    "topic", "brokerName", "queueId", "tags", "flag", "sysFlag", "bornHost", "storeHost", "reconsumeTimes",
    "preparedTransactionOffset", "properties.key_value.key",
)  # fmt: skip
_WITHOUT_STATISTICS: Final = ("body", "properties")
_DAY_US: Final = 86_400_000_000
_I64_MAX: Final = (1 << 63) - 1
_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY: Final = (date.min - _EPOCH).days
_LAST_DAY: Final = (date.max - _EPOCH).days
UNKNOWN_DAY: Final = "0000-00-00"


def parquet_options(names: list[str], codec: str = CODEC) -> dict[str, Any]:
    """How pyarrow writes a file with these columns."""
    return {
        "compression": codec,
        "use_dictionary": [name for name in _REPEATING if name.split(".")[0] in names],
        "write_statistics": [name for name in names if name not in _WITHOUT_STATISTICS],
        # Else a reader would get views because the writer had them.
        "store_schema": False,
    }


def sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def begin_sync(path: Path) -> None:
    """What was written so far is on its way to the disk while the next rows are made, and then leaves the cache, which
    a broker on this machine needs for its log."""
    if hasattr(os, "posix_fadvise"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def by_day(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """The rows of each day, by storeTimestamp. All of them are of one day but for one batch a day."""
    if not batch.num_rows:
        return []
    times = batch.column("storeTimestamp").view(pa.int64())
    ends = pc.min_max(times).as_py()
    found = []
    # One after the other only where they are close: times are a peer's word, and far ones leave much between them.
    numbers = range(ends["min"] // _DAY_US, ends["max"] // _DAY_US + 1)
    for number in numbers if len(numbers) <= batch.num_rows else np.unique(times.to_numpy() // _DAY_US).tolist():
        first = number * _DAY_US
        inside = batch
        if ends["min"] < first or ends["max"] >= first + _DAY_US:
            last = min(first + _DAY_US - 1, _I64_MAX)
            begin = max(first, -_I64_MAX - 1)
            inside = filtered(batch, pc.and_(pc.greater_equal(times, begin), pc.less_equal(times, last)))
        if inside.num_rows:
            found.append((_day_text(number), inside))
    return found


def _day_text(number: int) -> str:
    """Days of years that have four digits by their date, all others together."""
    if not _FIRST_DAY <= number <= _LAST_DAY:
        return UNKNOWN_DAY
    return (_EPOCH + timedelta(days=number)).isoformat()


class DayFile:
    """One file in writing. `oldest_us` and `newest_us` are the store times of its rows."""

    def __init__(self, path: Path, names: list[str], codec: str = CODEC) -> None:
        self.path = path
        self.rows = 0
        self.oldest_us = 1 << 62
        self.newest_us = 0
        self._names = names
        self._codec = codec
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        ends = pc.min_max(batch.column("storeTimestamp").view(pa.int64())).as_py()
        self.oldest_us = min(self.oldest_us, ends["min"])
        self.newest_us = max(self.newest_us, ends["max"])
        self.rows += batch.num_rows
        self._held.append(batch.select(self._names))
        self._held_bytes += bytes_of(batch)
        if self._held_bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> int:
        """Writes the rest; the file is on disk when this returns. Its bytes."""
        self._write()
        assert self._writer is not None
        self._writer.close()
        sync(self.path)
        return self.path.stat().st_size

    def _write(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self.path, table.schema, **parquet_options(self._names, self._codec))
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._held, self._held_bytes = [], 0
        begin_sync(self.path)
