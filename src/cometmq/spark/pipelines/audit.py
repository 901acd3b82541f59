"""audit: is a store what it should be? Reads only; damage never stops it.

    log        records whole, with their CRC, lying where they say; between them nothing that is none
    queues     every message of the log that belongs in a queue has its unit, with its place, size and tag code
               (delayed messages: a time; a unit with an extension: an address); no unit without its message

The log is scanned range by range in the executors (`scanning`), each message against its unit right there. What comes
back is findings, and per range and queue the runs of offsets that were met: a unit that no run covers has no message.
A finding is a row: kind, topic, queue, offset in the queue, place in the log, bytes, detail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cometmq.names import SCHEDULE_TOPIC
from cometmq.spark.pipelines.steps import Summary
from cometmq.spark.stores.partitions import LogRange, StoreDirectory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cometmq.spark.stores.damage_scan import Sound
    from cometmq.spark.stores.record_starts import Ints

ROWS_DDL: Final = (
    "kind STRING, topic STRING, queueId INT, queueOffset BIGINT, commitLogOffset BIGINT, bytes BIGINT, detail STRING"
)
DAMAGED: Final = "damaged log"
# Rows that are no findings: offsets of a queue that were met (`bytes` many), and what a range has looked at.
RUN: Final = "run"
EDGES: Final = "edges"


class Queue(NamedTuple):
    """A queue, and the units [first, last) that it has."""

    topic: str
    number: int
    first: int
    last: int


@dataclass(frozen=True)
class Finding:
    kind: str
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    commit_log_offset: int | None
    bytes: int | None
    detail: str


# A finding, a run or edges, as a row in the order of ROWS_DDL.
Row = tuple[str, str | None, int | None, int | None, int | None, int | None, str | None]


def audit(spark: SparkSession, *, store: str, partition_mib: int = 64) -> tuple[Summary, list[Finding]]:
    """Looks through one store directory."""
    directory = StoreDirectory.at(store, "store")
    ranges = list(directory.log_ranges(partition_mib << 20))
    tasks = max(1, spark.sparkContext.defaultParallelism) * 4
    queues = {name: Queue(*name, *directory.unit_bounds(*name)) for name in directory.queues(lambda topic: True)}
    scan = spark.range(0, len(ranges), 1, max(1, min(len(ranges), tasks)))
    rows: dict[str, list[Any]] = {RUN: [], EDGES: [], DAMAGED: []}
    for row in scan.mapInArrow(_Scan(directory, ranges, queues), ROWS_DDL).collect():
        rows.setdefault(row.kind, []).append(row)
    messages, findings = _damages(directory, rows.pop(EDGES), rows.pop(DAMAGED))
    findings += _without_message(directory, queues, rows.pop(RUN))
    findings += [Finding(*row) for kind in rows.values() for row in kind]
    findings.sort(key=lambda one: [(item is not None, item) for item in astuple(one)])
    figures: dict[str, Any] = {"messages": messages, "log_bytes": sum(one.last - one.first for one in ranges)}
    figures |= {"queues": len(queues), "findings": len(findings)}
    return Summary("audit", figures), findings


def _damages(directory: StoreDirectory, edges: list[Any], damaged: list[Any]) -> tuple[int, list[Finding]]:
    """How many messages there are, and what of the log is none."""
    from cometmq.spark.stores.damage_scan import Damaged, Edges, join

    looked_at = [Edges(row.commitLogOffset, row.commitLogOffset + row.bytes) for row in edges]
    seen = [Damaged(row.commitLogOffset, row.commitLogOffset + row.bytes, row.detail) for row in damaged]
    joined = join(directory, looked_at, seen)
    findings = [Finding(DAMAGED, None, None, None, one.first, one.last - one.first, one.detail) for one in joined]
    return sum(row.queueOffset for row in edges), findings


def _without_message(directory: StoreDirectory, queues: dict[tuple[str, int], Queue], runs: list[Any]) -> list[Finding]:
    met: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in runs:
        met.setdefault((row.topic, row.queueId), []).append((row.queueOffset, row.queueOffset + row.bytes))
    found = []
    for name, queue in queues.items():
        for first, last in _gaps(queue.first, queue.last, sorted(met.get(name, []))):
            for number, unit in enumerate(directory.unit_slice(*name, first, last)):
                detail = f"unit: {int(unit['offset'])}"
                found.append(Finding("unit without message", *name, first + number, None, None, detail))
    return found


def _gaps(first: int, last: int, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What of [first, last) no run covers. Runs are in order, and may overlap."""
    reached = first
    for low, high in runs:
        if low > reached:
            yield reached, min(low, last)
        reached = max(reached, high)
        if reached >= last:
            return
    if reached < last:
        yield reached, last


class _Scan:
    """Ranges, by their number, to rows; runs in the executors."""

    def __init__(self, directory: StoreDirectory, ranges: list[LogRange], queues: dict[tuple[str, int], Queue]) -> None:
        self.directory = directory
        self.ranges = ranges
        self.queues = queues

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = _schema()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                columns = zip(*self._rows(self.ranges[number]), strict=True)
                arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _rows(self, part: LogRange) -> Iterator[Row]:
        from cometmq.spark.stores.damage_scan import Damaged, Edges, Sound, scan_log

        messages = 0
        edges = Edges(-1, -1)
        for found in scan_log(self.directory, part):
            if isinstance(found, Sound):
                messages += len(found.place)
                yield from self._against_units(found)
            elif isinstance(found, Damaged):
                yield DAMAGED, None, None, None, found.first, found.last - found.first, found.detail
            else:
                edges = found
        yield EDGES, None, None, messages, edges.first, edges.last - edges.first, None

    def _against_units(self, sound: Sound) -> Iterator[Row]:
        import numpy as np

        rows = np.flatnonzero(sound.queued)
        keys = sound.topic[rows] << 32 | sound.queue_id[rows] & 0xFFFFFFFF
        order = np.argsort(keys, kind="stable")
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for part in np.split(rows[order], cuts) if len(rows) else ():
            name = (sound.topics[int(sound.topic[part[0]])], int(sound.queue_id[part[0]]))
            tags = sound.tag_code[part]
            yield from self._one_queue(name, sound.queue_offset[part], sound.place[part], sound.size[part], tags)

    def _one_queue(self, name: tuple[str, int], offsets: Ints, places: Ints, sizes: Ints, tags: Ints) -> Iterator[Row]:
        import numpy as np

        from cometmq.store.queues.extension import ADDRESS_MAX

        queue = self.queues.get(name, Queue(*name, 0, 0))
        inside = (offsets >= queue.first) & (offsets < queue.last)
        for row in np.flatnonzero(~inside).tolist():
            yield "missing unit", *name, int(offsets[row]), int(places[row]), int(sizes[row]), "unit: none"
        if not inside.any():
            return
        offsets, places, sizes, tags = offsets[inside], places[inside], sizes[inside], tags[inside]
        low = int(offsets.min())
        units = self.directory.unit_slice(*name, low, int(offsets.max()) + 1)[offsets - low]
        elsewhere, sized = units["offset"] != places, units["size"] != sizes
        tagged = (units["tag"] != tags) & (units["tag"] > ADDRESS_MAX) & (name[0] != SCHEDULE_TOPIC)
        for row in np.flatnonzero(elsewhere | sized | tagged).tolist():
            kind, detail = "unit with a wrong tag code", f"unit: {int(units['tag'][row])}, tag: {int(tags[row])}"
            if elsewhere[row] or sized[row]:
                kind = "unit points elsewhere" if elsewhere[row] else "unit with a wrong size"
                detail = f"unit: {int(units['offset'][row])}"
            yield kind, *name, int(offsets[row]), int(places[row]), int(sizes[row]), detail
        for run in np.split(np.sort(offsets), np.flatnonzero(np.diff(np.sort(offsets)) > 1) + 1):
            yield RUN, *name, int(run[0]), None, int(run[-1]) + 1 - int(run[0]), None


def _schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64()}
    return pa.schema([(name, kinds[kind]) for name, kind in (part.split() for part in ROWS_DDL.split(", "))])
