"""search: where is the message with this key, tag, id, time or text? In archive, stores and the live cluster at once.

    archive   files are left out before they are read: by topic and time (manifest), by key and id (a filter beside the
              archive), by tag (statistics in the file's own footer)
    store     the queues of the topics
    live      the topics at the cluster, from the offset of the starting time on

The archive knows nothing of keys at first. Whoever searches by key reads a file's keys once and leaves a Bloom filter
of its keys and ids in ROOT/search/; from then on files without the key are not opened. Each row that is read is
compared for good, so filters only save work: a wrong hit of one costs a read, and a missing one too.

Hits come back, not messages: tasks filter while they read. One message that is in several places is one hit. Reads
only, except for the filters (`remember=false` leaves none).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError
from cometmq.names import place_below
from cometmq.spark.columns import chosen
from cometmq.spark.lake.archive import Lake
from cometmq.spark.pipelines.progress import progress, tasks
from cometmq.spark.pipelines.steps import Summary, only_connection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NAMES: Final = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "offsetMsgId", "tags", "keys", "storeTimestamp", "body",
)  # fmt: skip
HITS_DDL: Final = (
    "place STRING, topic STRING, broker STRING, queue INT, offset BIGINT, id STRING, tag STRING, keys STRING, "
    "storeMs BIGINT, body BINARY, pruned STRING"
)
BODY_BYTES_SHOWN: Final = 200
BITS_PER_KEY: Final = 12
PROBES: Final = 8
FILTERS: Final = "search"


@dataclass(frozen=True)
class Wanted:
    """What is looked for; None: anything. Travels to the executors."""

    key: str | None = None
    tag: str | None = None
    id: str | None = None
    text: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    limit: int = 100

    def mask(self, batch: pa.RecordBatch) -> Any:
        """Which rows match."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        keep = pa.array(np.ones(batch.num_rows, bool))
        tests = []
        if self.key is not None:
            spaced = pc.binary_join_element_wise(" ", batch.column("keys"), " ", "")
            tests.append(pc.match_substring(spaced, f" {self.key} "))
        if self.tag is not None:
            tests.append(pc.equal(batch.column("tags"), self.tag))
        if self.id is not None:
            tests.append(
                pc.or_(pc.equal(batch.column("msgId"), self.id), pc.equal(batch.column("offsetMsgId"), self.id))
            )
        if self.text is not None:
            tests.append(pc.match_substring(batch.column("body"), self.text.encode()))
        if self.start_ms is not None or self.end_ms is not None:
            times = batch.column("storeTimestamp").cast(pa.int64())
            tests.append(pc.greater_equal(times, (self.start_ms or 0) * 1000))
            tests.append(pc.less(times, self.end_ms * 1000 if self.end_ms is not None else 1 << 62))
        for one in tests:
            keep = pc.and_(keep, pc.fill_null(one, False))
        return keep

    @property
    def probes(self) -> list[str]:
        """What a filter of keys and ids must have for a file to be worth reading."""
        return [text for text in (self.key, self.id) if text is not None]


@dataclass(frozen=True)
class Hit:
    place: str
    topic: str
    broker: str
    queue: int
    offset: int
    id: str
    tag: str | None
    keys: str | None
    stored: str
    body: str


def search(
    spark: SparkSession,
    *,
    root: str | None = None,
    store: str | None = None,
    live: bool = False,
    namesrv: str | None = None,
    topics: str | None = None,
    key: str | None = None,
    tag: str | None = None,
    id: str | None = None,
    text: str | None = None,
    start: str | None = None,
    end: str | None = None,
    limit: int = 100,
    remember: bool = True,
    **source: str,
) -> tuple[Summary, list[Hit]]:
    """`start` and `end` (not included): 2026-03-01, 2026-03-01T12:00 (UTC), or ms since 1970; by store time. `source`:
    further options of the cluster (keys, TLS)."""
    given = only_connection("search", source)
    wanted = Wanted(key, tag, id, text, moment_ms(start), moment_ms(end), limit)
    if not (root or store or live):
        raise ConfigError("say where to search: root=ARCHIVE, store=DIRECTORY, live=true, or several of them")
    if wanted == Wanted(limit=limit):
        raise ConfigError("say what to search for: key=, tag=, id=, text=, start=, end=, or several of them")
    names = [name.strip() for name in topics.split(",")] if topics else []
    figures: dict[str, Any] = {}
    frames: list[DataFrame] = []
    if root:
        frames.append(_archive(spark, Lake(root), names, wanted, figures, remember))
    if store:
        frames.append(_store(spark, store, names, wanted))
    if live:
        frames.append(_live(spark, namesrv, names, wanted, given))
    with progress("search") as line, tasks(spark, line):
        rows = [row for frame in frames for row in frame.collect()]
    pruned = [row["pruned"] for row in rows if row["pruned"] is not None]
    for kind in ("keys", "tags"):
        figures |= {f"pruned_by_{kind}": pruned.count(kind)} if root else {}
    if root:
        figures["files_pruned"] = figures["pruned_by_manifest"] + len(pruned)
        figures["files_read"] = figures["files"] - figures["files_pruned"]
    hits = _merged([row for row in rows if row["pruned"] is None])[:limit]
    return Summary("search", {"hits": len(hits), **figures}), hits


def moment_ms(text: str | None) -> int | None:
    if text is None:
        return None
    if text.strip().isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text} is no time: give 2026-03-01, 2026-03-01T12:00, or ms since 1970") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _merged(rows: list[Any]) -> list[Hit]:
    """Oldest first; what was found in several places is reported once, with all of them."""
    found: dict[tuple[Any, ...], Hit] = {}
    for row in sorted(rows, key=lambda one: (one["storeMs"], one["topic"], one["queue"], one["offset"], one["place"])):
        identity = (row["topic"], row["broker"], row["queue"], row["offset"], row["id"])
        if identity in found:
            places = found[identity].place.split("+")
            if row["place"] not in places:
                found[identity] = replace(found[identity], place="+".join([*places, row["place"]]))
            continue
        stored = datetime.fromtimestamp(row["storeMs"] / 1000, UTC).isoformat(timespec="milliseconds")
        body = bytes(row["body"]).decode("utf-8", "replace")
        found[identity] = Hit(
            row["place"], row["topic"], row["broker"], row["queue"], row["offset"], row["id"], row["tag"], row["keys"],
            stored, body,
        )  # fmt: skip
    return list(found.values())


# Where it is searched


def _archive(
    spark: SparkSession, lake: Lake, topics: list[str], wanted: Wanted, figures: dict[str, Any], remember: bool
) -> DataFrame:
    files = lake.live_files()
    kept = [
        file.path
        for file in files
        if (not topics or file.topic in topics)
        and (wanted.start_ms is None or file.newest_ms >= wanted.start_ms)
        and (wanted.end_ms is None or file.oldest_ms < wanted.end_ms)
    ]
    figures |= {"files": len(files), "pruned_by_manifest": len(files) - len(kept)}
    if remember:
        _forget_replaced(lake, {file.path for file in files})
    rows = [(path,) for path in kept]
    parts = max(1, min(len(rows), spark.sparkContext.defaultParallelism * 4))
    frame = spark.createDataFrame(rows, "path STRING").repartition(parts)
    return frame.mapInArrow(_InFiles(str(lake.root), wanted, remember), HITS_DDL)


def _store(spark: SparkSession, store: str, topics: list[str], wanted: Wanted) -> DataFrame:
    from cometmq.spark.options import Options
    from cometmq.spark.stores.source import ALIASES, OPTIONS, directories

    stores = directories(Options({"paths": store}, OPTIONS, ALIASES))
    rows = [
        (number, part.topic, part.queue_id, part.first, part.last)
        for number, one in enumerate(stores)
        for share in one.queue_shares(lambda topic: not topics or topic in topics, 64 << 20)
        for part in share
    ]
    ddl = "number INT, topic STRING, queue INT, first BIGINT, last BIGINT"
    parts = max(1, min(len(rows), spark.sparkContext.defaultParallelism * 4))
    return spark.createDataFrame(rows, ddl).repartition(parts).mapInArrow(_InStores(stores, wanted), HITS_DDL)


def _live(
    spark: SparkSession, namesrv: str | None, topics: list[str], wanted: Wanted, source: dict[str, str]
) -> DataFrame:
    if not namesrv or not topics:
        raise ConfigError("live=true needs namesrv=HOST:PORT and topics=...")
    options = {**source, "namesrvAddr": namesrv, "subscribe": ",".join(topics), "startingOffsets": "earliest"}
    if wanted.start_ms is not None:
        options |= {"startingTimestamp": str(wanted.start_ms), "startingOffsetsByTimestampStrategy": "latest"}
        options.pop("startingOffsets")
    if wanted.tag is not None:
        options["tags"] = wanted.tag
    ranges = spark.read.format("cometmq").options(**options, emit="ranges").load()
    return ranges.mapInArrow(_InQueues(options, wanted), HITS_DDL)


class _In:
    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted

    def _hits(self, place: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """At most as many as are wanted, of each range that is read."""
        left = self.wanted.limit
        for batch in batches:
            found = batch.filter(self.wanted.mask(batch))[:left]
            if found.num_rows:
                yield _hit_batch(place, found)
                left -= found.num_rows
                if not left:
                    return


class _InFiles(_In):
    def __init__(self, root: str, wanted: Wanted, remember: bool) -> None:
        super().__init__(wanted)
        self.root = root
        self.remember = remember

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                yield from self._file(path)

    def _file(self, path: str) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        known = _read_filter(self.root, path)
        if known is not None and not all(known.may_have(text) for text in self.wanted.probes):
            yield _pruned("keys")
            return
        with pq.ParquetFile(Lake(self.root).place(path)) as file:
            groups = [number for number in range(file.num_row_groups) if self._may_match(file.metadata, number)]
            if not groups:
                yield _pruned("tags")
                return
            missing = {"keys", "msgId", *NAMES} - set(file.schema_arrow.names)
            if missing:
                raise ConfigError(f"{path} was archived without {', '.join(sorted(missing))}: it cannot be searched")
            if known is None and self.wanted.probes and self.remember:
                _write_filter(self.root, path, file)
            yield from self._hits("archive", file.iter_batches(8192, row_groups=groups, columns=list(NAMES)))

    def _may_match(self, metadata: Any, number: int) -> bool:
        """By the smallest and the greatest tag of a row group."""
        if self.wanted.tag is None:
            return True
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema == "tags" and column.statistics is not None and column.statistics.has_min_max:
                return bool(column.statistics.min <= self.wanted.tag <= column.statistics.max)
        return True


class _InStores(_In):
    def __init__(self, stores: Any, wanted: Wanted) -> None:
        super().__init__(wanted)
        self.stores = stores

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from cometmq.spark.stores.partitions import QueueRange
        from cometmq.spark.stores.source import Reading

        reading = Reading(tuple(chosen(NAMES)), True, True, False, 8192, 16 << 20)
        for batch in batches:
            for row in batch.to_pylist():
                part = QueueRange(row["topic"], row["queue"], row["first"], row["last"])
                yield from self._hits("store", self.stores[row["number"]].read(part, reading))


class _InQueues(_In):
    def __init__(self, options: dict[str, str], wanted: Wanted) -> None:
        super().__init__(wanted)
        self.options = options

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from cometmq.spark.live.offsets import Queue, Range
        from cometmq.spark.live.reading import read_range
        from cometmq.spark.live.remote import remote
        from cometmq.spark.live.source import pull_options, source_options

        options = source_options(self.options)
        for batch in batches:
            for row in batch.to_pylist():
                queue = Queue(row["topic"], row["brokerName"], row["queueId"])
                one = Range(queue, row["firstOffset"], row["lastOffset"])
                yield from self._hits(
                    "live", read_range(remote(options), one, pull_options(options, tuple(chosen(NAMES))))
                )


def _hit_batch(place: str, found: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    count = found.num_rows
    arrays = [
        pa.array([place] * count), found.column("topic"), found.column("brokerName"), found.column("queueId"),
        found.column("queueOffset"), found.column("msgId"), found.column("tags"), found.column("keys"),
        pc.divide(found.column("storeTimestamp").cast(pa.int64()), 1000),
        pc.binary_slice(found.column("body"), 0, BODY_BYTES_SHOWN), pa.nulls(count, pa.string()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=_hit_schema())


def _pruned(kind: str) -> pa.RecordBatch:
    import pyarrow as pa

    row = dict.fromkeys(_hit_schema().names) | {"pruned": kind}
    return pa.RecordBatch.from_pylist([row], schema=_hit_schema())


def _hit_schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BINARY": pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in (part.split() for part in HITS_DDL.split(", "))])


# Filters of keys and ids


class Bloom:
    """Says of a text whether it may be in a set: never wrongly no, one time in some hundred wrongly yes."""

    def __init__(self, bits: bytearray) -> None:
        self.bits = bits

    @classmethod
    def of(cls, texts: set[str]) -> Bloom:
        made = cls(bytearray(max(8, -(-len(texts) * BITS_PER_KEY // 8))))
        for text in texts:
            for place in made._places(text):
                made.bits[place >> 3] |= 1 << (place & 7)
        return made

    def may_have(self, text: str) -> bool:
        return all(self.bits[place >> 3] >> (place & 7) & 1 for place in self._places(text))

    def _places(self, text: str) -> list[int]:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        first, step = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big") | 1
        size = len(self.bits) * 8
        return [(first + number * step) % size for number in range(PROBES)]


def _filter_path(root: str, path: str) -> Path:
    return place_below(Path(root) / FILTERS, f"{path}.keys")


def _read_filter(root: str, path: str) -> Bloom | None:
    try:
        return Bloom(bytearray(_filter_path(root, path).read_bytes()))
    except FileNotFoundError:
        return None


def _write_filter(root: str, path: str, file: Any) -> None:
    """All keys and ids of a file. Made at once or not at all."""
    texts: set[str] = set()
    for batch in file.iter_batches(8192, columns=["keys", "msgId", "offsetMsgId"]):
        texts.update(key for keys in batch.column("keys").to_pylist() if keys for key in keys.split())
        texts.update(text for name in ("msgId", "offsetMsgId") for text in batch.column(name).to_pylist() if text)
    target = _filter_path(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    fresh.write_bytes(Bloom.of(texts).bits)
    fresh.replace(target)


def _forget_replaced(lake: Lake, living: set[str]) -> None:
    """Filters of files that were compacted away."""
    folder = lake.root / FILTERS
    for path in sorted(folder.rglob("*.keys")) if folder.is_dir() else ():
        if str(path.relative_to(folder)).removesuffix(".keys") not in living:
            path.unlink(missing_ok=True)
