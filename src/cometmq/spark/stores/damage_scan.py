"""The log of a store scanned for damage, whole columns at a time.

    hop        from record to record by their sizes, some megabytes of them (`hopping`)
    judge      all of them at once: where they lie, lengths that add up, CRC of the body (`zlib`, the one loop)
    doubt      what the columns do not settle (inner batches, delayed messages, long names) is scanned one by one,
               as the store itself does it; so is the first record that is not sound, to say why, and the next one
               is searched behind it

A range begins at the first record in it and ends where its last record ends. What one range did not see because its
first bytes are no record, and what the range before has reached over already, is settled by `join`, which looks at the
edges of all ranges: no damage is reported twice or missed, wherever ranges are cut.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.names import SCHEDULE_TOPIC
from cometmq.spark.decode import Records, Rows, ranges
from cometmq.spark.stores.partitions import LogRange, StoreDirectory, _first_record, is_used
from cometmq.spark.stores.record_starts import Ints, chained
from cometmq.spark.stores.tags import tag_codes
from cometmq.store.disk import OsDisk
from cometmq.store.log.resync import next_record
from cometmq.store.log.segments import Segment
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.properties import PROPERTIES_BYTES_MAX, Property
from cometmq.wire.record.scan import BLANK, OK, scan_record
from cometmq.wire.record.sysflag import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE

BYTES_AT_ONCE: Final = 4 << 20
_INNER: Final = str(Property.INNER_BASE).encode()


class Sound(NamedTuple):
    """Records in which nothing is wrong, as columns. `queued`: it belongs in its queue, where a unit names it.

    `tag_code` is what that unit has behind place and size. In the queues of delayed messages it has their time instead.
    """

    topics: list[str]
    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    place: Ints
    size: Ints
    tag_code: Ints
    queued: npt.NDArray[np.bool_]


class Damaged(NamedTuple):
    """Bytes that are no record."""

    first: int
    last: int
    detail: str


class Edges(NamedTuple):
    """Where a range found its first record, and up to where it has looked: both -1 if no record begins in it."""

    first: int
    last: int


Found: TypeAlias = Sound | Damaged | Edges


def scan_log(store: StoreDirectory, part: LogRange) -> Iterator[Found]:
    """Every record that begins in a range, what is none, and the range's edges at the end."""
    files = store.log_files()
    number = bisect_right([start for start, _, _ in files], part.first) - 1
    start, path, size = files[number]
    segment = Segment(OsDisk().open(path, -1, create=False, allocate=False, writable=False), start)
    try:
        view = segment.view()
        end = min(size, part.last - start)
        first = _first_record(view, start, part.first - start, size, end) if part.first > start else 0
        if first >= end:
            yield Edges(-1, -1)
            return
        position = first
        while position < end:
            places, _ = chained(np.frombuffer(view, np.uint8), position, min(end, position + BYTES_AT_ONCE))
            sound = None
            if len(places):
                sound, position = _judge(view, start, size, places)
            if sound is not None:
                yield sound
                continue
            damaged, position = _look(segment, position, size, is_used(files[number + 1 :]))
            if damaged is not None:
                yield damaged
        yield Edges(start + first, start + position)
    finally:
        segment.close()


def join(store: StoreDirectory, edges: Sequence[Edges], damages: Sequence[Damaged]) -> list[Damaged]:
    """The damages of all ranges, with those between ranges and without those reported twice."""
    files = store.log_files()
    kept: list[Damaged] = []
    for number, (start, path, size) in enumerate(files):
        reached = start
        stated = iter(sorted(one for one in damages if start <= one.first < start + size))
        pending = next(stated, None)
        segment = Segment(OsDisk().open(path, -1, create=False, allocate=False, writable=False), start)
        try:
            inside = sorted(one for one in edges if start <= one.first < start + size)
            for one in [*inside, Edges(start + size, start + size)]:
                if one.first > reached:
                    # Before a record or a file that is used nothing is left unwritten.
                    is_followed = one.first < start + size or is_used(files[number + 1 :])
                    between, _ = _look(segment, reached - start, one.first - start, is_followed)
                    if between is not None:
                        kept.append(Damaged(reached, one.first, between.detail))
                while pending is not None and pending.first < one.last:
                    if pending.first >= reached:
                        kept.append(pending)
                    pending = next(stated, None)
                reached = max(reached, one.last)
        finally:
            segment.close()
    return sorted(kept)


def _judge(view: memoryview, start: int, size: int, places: Ints) -> tuple[Sound | None, int]:
    """The records up to the first that is not sound, and the place behind them."""
    rows = Rows(Records(view, places), strict=False)
    topics = ranges(rows.buffer, rows.topics_at, rows.topic_ends, pa.binary())
    properties = ranges(rows.buffer, rows.properties_at, rows.properties_ends, pa.binary())
    well = rows.well & (rows.fields["commitLogOffset"] == places + start) & ~_doubtful(rows, topics, properties)
    ends = places + rows.fields["storeSize"]
    crcs = _crcs(view, rows, well)
    well &= (crcs == rows.fields["bodyCRC"]) | (rows.fields["bodyLength"] <= 0)
    tags = tag_codes(properties)
    count = len(places)
    for row in np.flatnonzero(~well).tolist():
        scan = scan_record(view, int(places[row]), size, True)
        if scan.kind != OK or scan.physical_offset != start + int(places[row]):
            count = row
            break
        tags[row] = java_string_hash(scan.property(Property.TAGS) or "")
    if not count:
        return None, int(places[0])
    flags = rows.fields["sysFlag"][:count]
    transaction = flags & TRANSACTION_MASK
    queued = (transaction == TRANSACTION_NONE) | (transaction == TRANSACTION_COMMIT)
    codes = topics.slice(0, count).dictionary_encode()
    sound = Sound(
        [str(name, "utf-8", "replace") for name in codes.dictionary.to_pylist()],
        codes.indices.to_numpy().astype(np.int64),
        rows.fields["queueId"][:count].astype(np.int64),
        rows.fields["queueOffset"][:count].astype(np.int64),
        places[:count] + start,
        rows.fields["storeSize"][:count].astype(np.int64),
        tags[:count],
        queued & (flags & INNER_BATCH == 0),
    )
    return sound, int(ends[count - 1])


def _doubtful(rows: Rows, topics: pa.Array, properties: pa.Array) -> npt.NDArray[np.bool_]:
    """Records that take more than columns to judge: lengths that Java reads as negative, numbers in properties."""
    doubt: npt.NDArray[np.bool_] = (rows.fields["sysFlag"] & INNER_BATCH) != 0
    doubt |= (rows.properties_ends - rows.properties_at > PROPERTIES_BYTES_MAX) | (
        rows.topic_ends - rows.topics_at > 127
    )
    doubt |= rows.properties_ends != rows.starts + rows.fields["storeSize"]
    doubt |= pc.equal(topics, SCHEDULE_TOPIC.encode()).to_numpy(zero_copy_only=False)
    if _INNER in memoryview(properties.buffers()[2]).tobytes():
        doubt |= pc.match_substring(properties, _INNER.decode()).to_numpy(zero_copy_only=False)
    return doubt


def _crcs(view: memoryview, rows: Rows, well: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    crc32 = zlib.crc32
    starts = np.where(well, rows.bodies_at, 0).tolist()
    ends = np.where(well, rows.body_ends, 0).tolist()
    found = [crc32(view[first:last]) for first, last in zip(starts, ends, strict=True)]
    return np.array(found, np.int64) & 0x7FFFFFFF


def _look(segment: Segment, position: int, size: int, is_followed: bool) -> tuple[Damaged | None, int]:
    """One place that is no sound record, seen as the store sees it: what it is, and where to go on."""
    view = segment.view()
    start = segment.start
    scan = scan_record(view, position, size, True)
    if scan.kind == OK and scan.physical_offset == start + position:
        return None, position + scan.size
    if scan.kind == BLANK:
        return None, size
    following = next_record(segment, position, size)
    if following < 0 and not any(view[position : min(size, position + 4096)]) and not is_followed:
        return None, size  # never written
    following = size if following < 0 else following
    detail = scan.reason or f"it says that it lies at {scan.physical_offset}"
    return Damaged(start + position, start + following, detail), following
