"""The archive: Parquet files that count only when a manifest names them.

    ROOT/data/topic=T/day=2026-01-31/part-QUERY-BATCH-PARTITION-TRY.parquet
    ROOT/manifest/QUERY/0000000007.json      what batch 7 of a query has added; made at once or not at all
    ROOT/manifest/_compacted/ID.json         files that replace others
    ROOT/files.json                          the files that count now, for readers that know nothing of manifests

A batch is published by creating its manifest. If it exists, the batch was done before and what a second run has written
counts for nothing. So a batch is in the archive once, however often it is tried, and a reader never sees half of one.
Files that no manifest names are leftovers of tries that failed; `vacuum` removes them when they are old.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cometmq import names
from cometmq.errors import ConfigError, StoreError
from cometmq.spark.lake.atomic_file import create_whole

VERSION: Final = 1
DATA: Final = "data"
# A batch adds some hundred files, of 300 bytes each in its manifest.
MANIFEST_BYTES_MAX: Final = 64 << 20
COMPACTED: Final = "_compacted"
# What every reader of Parquet knows. What arrives is written fast; what is joined later takes half the room.
CODECS: Final = ("snappy", "zstd", "lz4", "gzip", "none")
CODEC: Final = CODECS[0]
COMPACT_CODEC: Final = "zstd"


@dataclass(frozen=True)
class LakeFile:
    """One Parquet file; `path` is below the root. Offsets are [first, last) of one queue, or -1 after compaction."""

    path: str
    topic: str
    day: str
    rows: int
    bytes: int
    broker: str
    queue: int
    first: int
    last: int
    oldest_ms: int
    newest_ms: int

    @classmethod
    def of(cls, stated: dict[str, Any]) -> LakeFile:
        made = cls(**{name: stated[name] for name in cls.__dataclass_fields__})
        for name, kind in cls.__annotations__.items():
            value = getattr(made, name)
            if not isinstance(value, str if kind == "str" else int) or isinstance(value, bool):
                raise ValueError(f"{name} of a file is {str(value)[:80]!r}")
        return made


@dataclass(frozen=True)
class Manifest:
    query: str
    batch: int
    columns: tuple[str, ...]
    files: tuple[LakeFile, ...]
    replaces: tuple[str, ...] = ()


class Lake:
    def __init__(self, root: str | Path) -> None:
        text = str(root)
        if "://" in text and not text.startswith("file://"):
            raise ConfigError(f"{text}: an archive needs a file system with atomic creation; give a mounted directory")
        self.root = Path(text.removeprefix("file://"))
        self.manifests = self.root / "manifest"

    # Writing

    def is_published(self, query: str, batch: int) -> bool:
        return self._path(query, batch).exists()

    def publish(self, manifest: Manifest, *, listed: bool = True) -> bool:
        """Makes a batch count. False if it did already. `listed`: `files.json` is written anew."""
        path = self._path(manifest.query, manifest.batch)
        for file in manifest.files:
            if not self.place(file.path).is_file():
                raise StoreError(f"{file.path} of batch {manifest.batch} is not in {self.root}")
        made = create_whole(path, _encode(manifest))
        if listed:
            self.write_file_list()
        return made

    def batches(self) -> dict[str, list[int]]:
        """Queries and the batches of each that have a manifest, in order; nothing is opened."""
        found: dict[str, list[int]] = {}
        for path in sorted(self.manifests.glob("*/*.json")):
            if path.parent.name != COMPACTED and path.stem.isdigit():
                found.setdefault(path.parent.name, []).append(int(path.stem))
        return found

    def manifest(self, query: str, batch: int) -> Manifest:
        return self._manifest(self._path(query, batch))

    def forget(self, query: str, batch: int) -> None:
        """Removes a manifest whose files a table names now."""
        self._path(query, batch).unlink(missing_ok=True)

    def _path(self, query: str, batch: int) -> Path:
        return self.manifests / names.path_part(query) / f"{batch:010d}.json"

    def place(self, path: str) -> Path:
        """Where a file of a manifest lies: below `data`, whatever the manifest says."""
        if not path.startswith(f"{DATA}/"):
            raise StoreError(f"path {path[:80]!r} is not below {self.root / DATA}: manifests name files there only")
        return names.place_below(self.root, path)

    def write_file_list(self) -> None:
        files = [file.path for file in self.live_files()]
        fresh = self.root / f".files.{os.getpid()}.{uuid.uuid4().hex}"
        fresh.write_text(json.dumps(files, indent=0) + "\n")
        fresh.replace(self.root / "files.json")

    # Reading

    def all_manifests(self) -> list[Manifest]:
        if not self.manifests.is_dir():
            raise StoreError(f"{self.root} is no archive: there is no {self.manifests}")
        return [self._manifest(path) for path in sorted(self.manifests.glob("*/*.json"))]

    def _manifest(self, path: Path) -> Manifest:
        manifest = _decode(path)
        try:
            for name in (*(file.path for file in manifest.files), *manifest.replaces):
                self.place(name)
        except StoreError as error:
            raise StoreError(f"{path} is no manifest of this archive: {error}") from None
        return manifest

    def live_files(self) -> list[LakeFile]:
        """The files that count, in order of topic, day and queue."""
        manifests = self.all_manifests()
        replaced = {path for manifest in manifests for path in manifest.replaces}
        files = [file for manifest in manifests for file in manifest.files if file.path not in replaced]
        return sorted(files, key=lambda file: (file.topic, file.day, file.broker, file.queue, file.first, file.path))

    def columns(self) -> tuple[str, ...]:
        """Those of the newest manifest: the schema is kept with the data."""
        manifests = self.all_manifests()
        return manifests[-1].columns if manifests else ()

    # Upkeep

    def orphans(self, older_than_s: float = 0.0) -> list[Path]:
        manifests = self.all_manifests()
        known = {file.path for manifest in manifests for file in manifest.files}
        replaced = {path for manifest in manifests for path in manifest.replaces}
        limit = time.time() - older_than_s
        data = sorted((self.root / DATA).glob("**/*.parquet")) if (self.root / DATA).is_dir() else []
        return [
            path
            for path in data
            if ((name := str(path.relative_to(self.root))) not in known or name in replaced)
            and path.stat().st_mtime <= limit
        ]

    def vacuum(self, older_than_s: float = 86_400.0) -> list[Path]:
        """Removes what counts for nothing and is old enough that no running batch can still publish it."""
        gone = self.orphans(older_than_s)
        for path in gone:
            path.unlink(missing_ok=True)
        return gone

    def compact(
        self, bytes_max: int = 128 * 1024 * 1024, files_min: int = 2, codec: str = COMPACT_CODEC
    ) -> list[LakeFile]:
        """Joins the small files of each topic and day, in queue order. Readers see either all old files or the new."""
        check_codec(codec)
        import pyarrow as pa

        groups: dict[tuple[str, str], list[LakeFile]] = {}
        for file in self.live_files():
            if file.bytes < bytes_max:
                groups.setdefault((file.topic, file.day), []).append(file)
        made: list[LakeFile] = []
        for (topic, day), files in groups.items():
            if len(files) < files_min:
                continue
            table = pa.concat_tables([_table(self.place(file.path)) for file in files])
            table = table.sort_by([("brokerName", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")])
            name = f"{os.path.dirname(files[0].path)}/compact-{uuid.uuid4().hex}.parquet"
            write_parquet(table, self.root / name, codec)
            joined = LakeFile(
                name, topic, day, table.num_rows, (self.root / name).stat().st_size, "", -1, -1, -1,
                min(file.oldest_ms for file in files), max(file.newest_ms for file in files),
            )  # fmt: skip
            columns = tuple(table.column_names)
            manifest = Manifest(COMPACTED, 0, columns, (joined,), tuple(file.path for file in files))
            create_whole(self.manifests / COMPACTED / f"{uuid.uuid4().hex}.json", _encode(manifest))
            made.append(joined)
        self.write_file_list()
        return made


def _table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def data_path(topic: str, day: str, name: str) -> str:
    """The path below the root of a file with messages of one topic and day. The names of topics are a broker's word."""
    return f"{DATA}/topic={names.path_part(topic)}/day={day}/{name}"


def check_codec(codec: str) -> None:
    if codec not in CODECS:
        raise ConfigError(f"codec is {codec!r}: it must be one of {', '.join(CODECS)}")


def write_parquet(table: Any, path: Path, codec: str = CODEC) -> None:
    import pyarrow.parquet as pq

    from cometmq.spark.lake.parquet_writer import parquet_options, sync

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **parquet_options(table.column_names, codec))
    sync(path)


def _encode(manifest: Manifest) -> bytes:
    tree = {
        "version": VERSION,
        "query": manifest.query,
        "batch": manifest.batch,
        "columns": list(manifest.columns),
        "files": [asdict(file) for file in manifest.files],
        "replaces": list(manifest.replaces),
    }
    return json.dumps(tree, indent=1).encode() + b"\n"


def _decode(path: Path) -> Manifest:
    size = path.stat().st_size
    if size > MANIFEST_BYTES_MAX:
        raise StoreError(f"{path} is no manifest: it has {size} bytes, at most {MANIFEST_BYTES_MAX} are read")
    try:
        tree = json.loads(path.read_bytes())
        if tree["version"] != VERSION:
            raise StoreError(f"{path} is of version {tree['version']}, this program reads {VERSION}: use a newer one")
        files = tuple(map(LakeFile.of, tree["files"]))
        columns, replaces = tuple(tree["columns"]), tuple(tree["replaces"])
        if not all(isinstance(text, str) for text in (tree["query"], *columns, *replaces)):
            raise ValueError("a name in it is not text")
        return Manifest(tree["query"], int(tree["batch"]), columns, files, replaces)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is no manifest: {str(error)[:200] or type(error).__name__}") from None


def live_paths(root: str | Path) -> list[str]:
    """Paths of the files that count, for readers such as pandas or DuckDB."""
    lake = Lake(root)
    return [str(lake.place(file.path)) for file in lake.live_files()]


def total(files: Iterable[LakeFile]) -> tuple[int, int]:
    """Rows and bytes."""
    rows = size = 0
    for file in files:
        rows += file.rows
        size += file.bytes
    return rows, size
