"""Small files joined, old snapshots expired, and what nothing names removed from disk.

    compact    small files of a day that is over -> files of up to 512 MiB, by queue and offset, swapped in one commit
    expire     snapshots older than `keep`, then files that neither a snapshot nor a waiting batch names, a day old

A reader sees the files of one snapshot, so all rows once, before and after a swap; those files stay on disk until the
snapshot is expired. Killed between writing and swapping, the joined file is a stray.
"""

from __future__ import annotations

import logging
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cometmq.errors import StoreError
from cometmq.spark.kill_points import at
from cometmq.spark.lake.archive import COMPACT_CODEC, Lake, data_path, write_parquet
from cometmq.spark.tables.catalog import Place, file_uri, first_line
from cometmq.spark.tables.commits import covered
from cometmq.spark.tables.table import TRIES_MAX, chosen_tables, once, tables_at

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

logger = logging.getLogger(__name__)

KEEP_S: Final = 7 * 86_400.0
STRAY_S: Final = 86_400.0
# Files of at least this are left alone.
LARGE_BYTES: Final = 128 << 20
JOINED_BYTES_MAX: Final = 512 << 20
FILES_MIN: Final = 2


@dataclass(frozen=True)
class Joined:
    topic: str
    day: str
    files: int
    into: int
    rows: int


def upkeep(place: Place, *, keep_s: float = KEEP_S) -> None:
    """What `run` does from time to time. What goes wrong is for the next time."""
    try:
        for one in compact(place):
            logger.info("compact topic=%s day=%s files=%d rows=%d", one.topic, one.day, one.files, one.rows)
        for topic, gone in expire(place, keep_s=keep_s).items():
            logger.info("expire topic=%s snapshots=%d files=%d", topic, *gone)
    except StoreError as error:
        logger.warning("cannot keep tables up: %s", error)


def compact(place: Place, topics: Iterable[str] = (), *, today: bool = False) -> list[Joined]:
    """Joins small files of days that are over, and of today if `today`."""
    lake = Lake(place.root)
    end = date.max if today else datetime.now(UTC).date()
    found: list[Joined] = []
    with tables_at(place) as (_, tables):
        for topic, table in chosen_tables(tables, topics, place).items():
            for day, files in _groups(table, end):
                found += _join(lake, table, topic, day, files)
    return found


def _groups(table: Table, end: date) -> Iterator[tuple[str, list[DataFile]]]:
    """Small files of one day, as many as make one large one."""
    days: dict[str, list[DataFile]] = {}
    for task in table.scan().plan_files():
        if task.delete_files:
            continue  # another engine has deleted rows in it, and joins it itself
        number = task.file.partition[0] if len(task.file.partition) else None
        if number is None or task.file.file_size_in_bytes >= LARGE_BYTES:
            continue
        day = number if isinstance(number, date) else date.fromordinal(date(1970, 1, 1).toordinal() + int(number))
        if day < end:
            days.setdefault(day.isoformat(), []).append(task.file)
    for day_text, files in sorted(days.items()):
        group: list[DataFile] = []
        size = 0
        for file in sorted(files, key=lambda one: one.file_path):
            if group and size + file.file_size_in_bytes > JOINED_BYTES_MAX:
                yield day_text, group
                group, size = [], 0
            group.append(file)
            size += file.file_size_in_bytes
        yield day_text, group


def _join(lake: Lake, table: Table, topic: str, day: str, files: list[DataFile]) -> list[Joined]:
    if len(files) < FILES_MIN:
        return []
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = [local_path(file.file_path) for file in files]
    try:
        rows = pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"files of {day} in the table of {topic} cannot be joined: {error}") from error
    rows = rows.sort_by([("brokerName", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")])
    path = lake.place(data_path(topic, day, f"joined-{uuid.uuid4().hex}.parquet"))
    write_parquet(rows, path, COMPACT_CODEC)
    at("joined")
    _swap(table, files, path)
    at("swapped")
    return [Joined(topic, day, len(files), 1, rows.num_rows)]


def _swap(table: Table, files: list[DataFile], path: Path) -> None:
    from pyiceberg.exceptions import CommitFailedException, ValidationException
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    for left in reversed(range(TRIES_MAX)):
        try:
            with once(table).transaction() as change, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                entry = parquet_file_to_data_file(table.io, table.metadata, file_uri(path))
                with change.update_snapshot({"cometmq.joined": str(len(files))}).overwrite() as swap:
                    for file in files:
                        swap.delete_data_file(file)
                    swap.append_data_file(entry)
            break
        except CommitFailedException:
            if not left:
                raise
            table.refresh()
        except ValidationException as error:
            path.unlink(missing_ok=True)
            name = ".".join(table.name())
            raise StoreError(f"files of {name} were replaced meanwhile: {first_line(error)}") from error
    table.refresh()


def expire(
    place: Place, topics: Iterable[str] = (), *, keep_s: float = KEEP_S, stray_s: float = STRAY_S
) -> dict[str, tuple[int, int]]:
    """Snapshots that were expired and files that were removed, by topic."""
    lake = Lake(place.root)
    found: dict[str, tuple[int, int]] = {}
    # The last one of a query stays after its commit, so that Spark may repeat it.
    manifests = [lake.manifest(query, batch) for query, batches in lake.batches().items() for batch in batches]
    with tables_at(place) as (_, tables):
        for topic, table in chosen_tables(tables, topics, place).items():
            before = len(table.snapshots())
            limit = datetime.fromtimestamp(time.time() - keep_s, UTC)
            if any(one.timestamp_ms < limit.timestamp() * 1000 for one in table.snapshots()[:-1]):
                table.maintenance.expire_snapshots().older_than(limit).commit()
                table.refresh()
            at("expired")
            waiting = [one for one in manifests if not covered(one, {topic: table.properties})]
            known = {str(lake.place(file.path)) for one in waiting for file in one.files} | set(named_files(table))
            folders = [lake.place(data_path(topic, "x", "x")).parents[1], Path(local_path(table.location()))]
            gone = _remove(folders, known, stray_s)
            found[topic] = before - len(table.snapshots()), gone
    return found


def named_files(table: Table) -> Iterator[str]:
    """Local paths of all that the table's snapshots and its log of metadata name."""
    yield local_path(table.metadata_location)
    yield from (local_path(entry.metadata_file) for entry in table.metadata.metadata_log)
    seen: set[str] = set()
    for snapshot in table.snapshots():
        yield local_path(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield local_path(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield local_path(entry.data_file.file_path)


def _remove(folders: Iterable[Path], known: set[str], stray_s: float) -> int:
    limit = time.time() - stray_s
    gone = 0
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".parquet", ".avro", ".json") and str(path) not in known and path.is_file():
                try:
                    if path.stat().st_mtime <= limit:
                        path.unlink()
                        gone += 1
                except FileNotFoundError:
                    continue
    return gone


def local_path(uri: Any) -> str:
    """Of a file: URI or a plain path; StoreError for what lies elsewhere."""
    text = str(uri)
    if text.startswith("/"):
        return text
    parts = urlsplit(text)
    if parts.scheme != "file":
        raise StoreError(f"{text[:200]} is not on a file system of this machine")
    return parts.path
