"""rebuild: consume queues and index of a store directory, made anew from its log.

    log ranges --scan--> a row per unit --by queue--> consumequeue/TOPIC/QUEUE/...      in parallel
                         and per message --in order--> index/...                        one task, in log order

Units and entries are put by the broker's own code (`store.consumequeue`, `store.index`), so the files are those that a
broker makes. Every try of a task writes into a folder of its own; the driver takes the folders of those that
succeeded, syncs them, and swaps them in:

    STORE/rebuild.building    half-done; removed by the next run
    STORE/rebuild.ready       complete: the swap has begun, and the next run ends it
    STORE/rebuild.old         what was there before, until the swap is done

Killed anywhere and started again it ends with the same bytes. With `to` nothing in the store is touched and the broker
may be running; without, the store must not be in use. Queues of topics that were deleted come back as long as the log
has their messages. Extensions (consumequeue_ext) are not made, units have plain tag codes; nor are light queues.
"""

from __future__ import annotations

import logging
import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError, StoreError
from cometmq.names import SCHEDULE_TOPIC
from cometmq.spark.pipelines.progress import progress, tasks
from cometmq.spark.pipelines.steps import Summary, at
from cometmq.spark.stores.partitions import LogRange, StoreDirectory, _first_record

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cometmq.store.log.segments import Segment
    from cometmq.wire.record.scan import RecordScan

logger = logging.getLogger(__name__)

# `count` is 0 for a plain message, else that of an inner batch; `damage`: no message, `place` cannot be read.
SCAN_DDL: Final = (
    "topic STRING, queueId INT, queueOffset BIGINT, place BIGINT, bytes INT, tagCode BIGINT, storeMs BIGINT, "
    "count INT, inQueue BOOLEAN, inIndex BOOLEAN, damage BOOLEAN, uniqueKey STRING, keys STRING, tag STRING"
)
DONE_DDL: Final = "folder STRING, kind STRING, name STRING, puts BIGINT"
KINDS: Final = ("consumequeue", "batchconsumequeue", "index")
ROWS_PER_BATCH: Final = 32_768


def rebuild(
    spark: SparkSession,
    *,
    store: str,
    to: str | None = None,
    commit_log: str | None = None,
    index: bool = True,
    queue_file_units: int | None = None,
    index_slots: int = 5_000_000,
    index_entries: int = 20_000_000,
    delay_levels: str | None = None,
    partition_mib: int = 64,
) -> Summary:
    """Sizes and `delay_levels` are those of the broker's settings; `queue_file_units` is taken from the files there."""
    from cometmq.store.disk import OsDisk
    from cometmq.store.options import StoreOptions

    directory = StoreDirectory.at(store, "store", commit_log)
    units = queue_file_units or _units_per_file(store) or 300_000
    sizes: dict[str, Any] = {"queue_file_bytes": units * 20, "index_slots": index_slots, "index_entries": index_entries}
    if delay_levels is not None:
        sizes["delay_levels"] = delay_levels
    target = Path(to) if to is not None else Path(store)
    if to is not None and any((target / kind).exists() for kind in KINDS):
        raise ConfigError(f"{to} has queues or an index already: give to= another directory, or remove them")
    target.mkdir(parents=True, exist_ok=True)
    lock = OsDisk().lock(str(Path(store) / "lock")) if to is None else None
    try:
        building, ready = target / "rebuild.building", target / "rebuild.ready"
        if ready.exists():
            logger.info("end the swap of an earlier run store=%s", store)
            _swap(target, ready)
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir()
        _check_index(Path(store), StoreOptions(**sizes), index)
        with progress("rebuild") as line, tasks(spark, line):
            figures = _build(spark, directory, building, sizes, index, partition_mib << 20)
        at("rebuild before ready")
        building.rename(ready)
        _sync(target)
        at("rebuild before swap")
        _swap(target, ready)
    finally:
        if lock is not None:
            lock.release()
    return Summary("rebuild", {**figures, "to": str(target)})


def _units_per_file(store: str) -> int | None:
    """As the queues that are there have it: all files of a store are of one size."""
    for path in sorted(Path(store, "consumequeue").glob("*/*/*")):
        if path.stat().st_size >= 20:
            return path.stat().st_size // 20
    return None


def _check_index(store: Path, options: Any, wanted: bool) -> None:
    """A broker refuses index files of another size than its settings make."""
    from cometmq.store.queues.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES

    expected = HEADER_BYTES + SLOT_BYTES * options.index_slots + ENTRY_BYTES * options.index_entries
    for path in sorted((store / "index").glob("*")) if wanted else ():
        if path.stat().st_size not in (0, expected):
            raise ConfigError(
                f"{path} has {path.stat().st_size} bytes, index_slots={options.index_slots} and "
                f"index_entries={options.index_entries} make {expected}: give the broker's maxHashSlotNum, maxIndexNum"
            )


# Building


def _build(
    spark: SparkSession, directory: StoreDirectory, building: Path, sizes: dict[str, Any], index: bool, range_bytes: int
) -> dict[str, Any]:
    ranges = list(directory.log_ranges(range_bytes))
    parallel = max(1, spark.sparkContext.defaultParallelism)
    scan = (
        spark.createDataFrame([(one.first, one.last) for one in ranges] or [(0, 0)], "first BIGINT, last BIGINT")
        .repartition(max(1, min(len(ranges), parallel * 4)))
        .mapInArrow(_Scan(directory, sizes.get("delay_levels")), SCAN_DDL)
        .cache()
    )
    try:
        damages = sorted(row[0] for row in scan.filter("damage").select("place").collect())
        messages = scan.filter("NOT damage")
        done = _written(messages.filter("inQueue"), _PutUnits(str(building), sizes, damages), parallel)
        if index:
            done += _written(messages.filter("inIndex"), _PutKeys(str(building), sizes), 1)
        count = messages.count()
    finally:
        scan.unpersist()
    at("rebuild before gather")
    for row in done:
        wanted = building / row["kind"] / row["name"]
        wanted.parent.mkdir(parents=True, exist_ok=True)
        (Path(row["folder"]) / row["kind"] / row["name"]).rename(wanted)
    for kind in ("consumequeue", *(("index",) if index else ())):
        (building / kind).mkdir(exist_ok=True)
    shutil.rmtree(building / "tries", ignore_errors=True)
    _sync_tree(building)
    queues = [row for row in done if row["kind"] != "index"]
    return {
        "messages": count,
        "queues": len(queues),
        "units": sum(row["puts"] for row in queues),
        "index_files": len(done) - len(queues),
        "damaged_places": len(damages),
        "log_bytes": sum(one.last - one.first for one in ranges),
    }


def _written(rows: DataFrame, put: Any, parts: int) -> list[Any]:
    """Hands rows to `put`, one queue after the other and each in log order; for one part, all in log order."""
    if parts == 1 and isinstance(put, _PutKeys):
        return rows.repartition(1).sortWithinPartitions("place").mapInArrow(put, DONE_DDL).collect()
    ordered = rows.repartition(parts, "topic", "queueId").sortWithinPartitions("topic", "queueId", "place")
    return ordered.mapInArrow(put, DONE_DDL).collect()


class _Scan:
    """What every record of some ranges asks for. Runs in the executors."""

    def __init__(self, directory: StoreDirectory, delay_levels: str | None) -> None:
        self.directory = directory
        self.delay_levels = delay_levels

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from cometmq.store.options import StoreOptions
        from cometmq.store.queues.dispatch import parse_delay_levels

        delays_ms = parse_delay_levels(self.delay_levels or StoreOptions().delay_levels)
        rows: list[tuple[Any, ...]] = []
        for batch in batches:
            for stated in batch.to_pylist():
                if stated["last"] <= stated["first"]:
                    continue
                for row in scan_range(self.directory, LogRange(stated["first"], stated["last"]), delays_ms):
                    rows.append(row)
                    if len(rows) >= ROWS_PER_BATCH:
                        yield _batch(rows)
                        rows = []
        if rows:
            yield _batch(rows)


def scan_range(directory: StoreDirectory, part: LogRange, delays_ms: list[int]) -> Iterator[tuple[Any, ...]]:
    """Rows of SCAN_DDL for the records that begin in a range of the log."""
    from cometmq.store.disk import OsDisk
    from cometmq.store.log.resync import next_record
    from cometmq.store.log.segments import Segment
    from cometmq.wire.record.scan import BLANK, OK, scan_record

    files = directory.log_files()
    number = bisect_right([start for start, _, _ in files], part.first) - 1
    start, path, size = files[number]
    segment = Segment(OsDisk().open(path, -1, create=False, allocate=False, writable=False), start)
    try:
        view = segment.view()
        position = _first_record(view, start, part.first - start, size) if part.first > start else 0
        while position < part.last - start:
            scan = scan_record(view, position, size, False)
            if scan.kind == OK and scan.physical_offset == start + position:
                yield from _asked_for(scan, delays_ms)
                position += scan.size
            elif scan.kind == BLANK:
                return
            else:
                following = next_record(segment, position, size)
                if following < 0 and _is_end(segment, position, size):
                    return
                yield None, -1, -1, start + position, 0, 0, 0, 0, False, False, True, "", "", ""
                position = size if following < 0 else following
    finally:
        segment.close()


def _is_end(segment: Segment, position: int, size: int) -> bool:
    """Whether nothing was written from here on."""
    return not any(segment.file.pread(position, min(4096, size - position)))


def _asked_for(scan: RecordScan, delays_ms: list[int]) -> Iterator[tuple[Any, ...]]:
    """The unit and the index entries of one record, as `store.dispatch` decides."""
    from cometmq.wire.hashing import java_string_hash
    from cometmq.wire.record.properties import Property
    from cometmq.wire.record.sysflag import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK, enters_consume_queue

    tag = scan.property(Property.TAGS) or ""
    code = java_string_hash(tag) if tag else 0
    level = _number(scan.property(Property.DELAY)) if scan.topic == SCHEDULE_TOPIC else -1
    if level > 0:
        code = scan.store_timestamp_ms + delays_ms[min(level, len(delays_ms)) - 1]
    queued = enters_consume_queue(scan.sys_flag)
    count, offset = 0, scan.queue_offset
    if scan.sys_flag & INNER_BATCH:
        count, offset = _number(scan.property(Property.INNER_NUM)), _number(scan.property(Property.INNER_BASE))
        queued = queued and count > 0 and offset >= 0
    indexed = scan.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    yield (
        scan.topic, scan.queue_id, offset, scan.physical_offset, scan.size, code, scan.store_timestamp_ms, count,
        queued, indexed, False, scan.property(Property.UNIQ_KEY) or "", scan.property(Property.KEYS) or "", tag,
    )  # fmt: skip


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else -1


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_()}
    fields = [part.split() for part in SCAN_DDL.split(", ")]
    arrays = [pa.array(column, kinds[kind]) for column, (_, kind) in zip(zip(*rows, strict=True), fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])


class _Put:
    """One try of a task: puts rows into files of its own, and returns which there are."""

    def __init__(self, building: str, sizes: dict[str, Any]) -> None:
        self.building = building
        self.sizes = sizes

    def _folder(self) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return os.path.join(self.building, "tries", f"{context.stageId()}-{context.taskAttemptId()}")


class _PutUnits(_Put):
    def __init__(self, building: str, sizes: dict[str, Any], damages: list[int]) -> None:
        super().__init__(building, sizes)
        self.damages = damages

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from cometmq.store.disk import OsDisk
        from cometmq.store.options import StoreOptions
        from cometmq.store.queues.batch_queue import BatchQueue
        from cometmq.store.queues.consume_queues import ConsumeQueues

        folder = self._folder()
        queues = ConsumeQueues(OsDisk(), StoreOptions(root_dir=folder, **self.sizes))
        queues.damages = list(self.damages)
        names = ("topic", "queueId", "place", "bytes", "tagCode", "storeMs", "queueOffset", "count")
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in names]
            for topic, queue, place, size, code, time_ms, offset, count in zip(*columns, strict=True):
                if count:
                    queues.put_batch(topic, queue, place, size, code, time_ms, offset, count)
                else:
                    queues.put(topic, queue, place, size, code, time_ms, offset)
        queues.begin_flush().sync()
        done = [
            (
                folder,
                "batchconsumequeue" if isinstance(queue, BatchQueue) else "consumequeue",
                os.path.join(queue.topic, str(queue.queue_id)),
                queue.max_offset - queue.min_offset,
            )
            for queue in queues.all()
        ]
        queues.close()
        yield from _rows_of(done)


class _PutKeys(_Put):
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from cometmq.store.disk import OsDisk
        from cometmq.store.options import StoreOptions
        from cometmq.store.queues.index import Index

        folder = self._folder()
        clock = _StoreClock()
        index = Index(OsDisk(), StoreOptions(root_dir=folder, **self.sizes), clock)
        index.headers_later = True
        names = ("topic", "place", "storeMs", "uniqueKey", "keys", "tag")
        for batch in batches:
            for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                clock.time_ms = row[2]
                index.put(*row)
        index.write_headers()
        index.flush_now()
        done = [(folder, "index", os.path.basename(file.file.path), file.count) for file in index.files]
        index.close()
        yield from _rows_of(done)


class _StoreClock:
    """Files of the index are named by time: by that of their first message, so that every run gives the same names."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000

    def call_later(self, delay_s: float, callback: Any) -> Any:
        raise AssertionError("nothing is put off while an index is rebuilt")


def _rows_of(done: list[tuple[str, str, str, int]]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if done:
        columns = list(zip(*done, strict=True))
        types = (pa.string(), pa.string(), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["folder", "kind", "name", "puts"])


# Swapping


def _swap(target: Path, ready: Path) -> None:
    """Puts what is ready in the place of what is there. Done in any number of tries."""
    old = target / "rebuild.old"
    old.mkdir(exist_ok=True)
    for kind in KINDS:
        if not (ready / kind).exists():
            continue
        if (target / kind).exists():
            if (old / kind).exists():
                raise StoreError(f"{old / kind} is in the way of a swap: look what it is, and remove it")
            (target / kind).rename(old / kind)
        at("rebuild in swap")
        (ready / kind).rename(target / kind)
    _sync(target)
    shutil.rmtree(old)
    shutil.rmtree(ready)
    _sync(target)


def _sync_tree(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        _sync(Path(folder))


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
