"""A store directory seen from outside: which ranges there are, and the messages of one.

    consumequeue/TOPIC/QUEUE/FILE   20-byte units: log offset:8, record size:4, tag code:8; a unit of zeros is unused
    commitlog/FILE                  records; the name is the log offset of its first byte

Units are read as one numpy array. A range of them is read log file by log file; within a file offsets ascend, so the
map is walked forward only. At the front of a queue units that point below the first log file are expired and left out,
and so are those that RocketMQ writes before the first one of a queue (offset 0, size 2^31 - 1). Every other unit must
name a whole record of its size, whatever bytes it has: else it is a fault, and planning never loses it.
"""

from __future__ import annotations

import logging
import mmap
import os
import stat
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cometmq.errors import StoreError, WireError
from cometmq.names import segment_offset
from cometmq.spark.decode import Records, decode
from cometmq.spark.runtime.gc_freeze import settle
from cometmq.spark.stores.record_starts import Ints
from cometmq.store.queues.consume_queues import LMQ_PREFIX
from cometmq.wire.record.layout import (
    BODY_AT,
    BODY_BYTES_AT,
    BODY_CRC_AT,
    HOST_BITS_AT,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
)
from cometmq.wire.record.sysflag import HOSTS_V6

if TYPE_CHECKING:
    import pyarrow as pa

    from cometmq.spark.stores.source import Reading

logger = logging.getLogger(__name__)

UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])
# What RocketMQ writes in front of the first unit when a queue begins in the middle of a file.
BLANK_SIZE: Final = 0x7FFFFFFF
# No file of a queue or of the log is as large; RocketMQ's are at most 2 GiB, for the same reason.
QUEUE_FILE_BYTES_MAX: Final = (1 << 31) - 1
_LAST_PLACE: Final = (1 << 62) - 1
_START: Final = Struct(">ii")
_PLACE: Final = Struct(">q")
# Of a record: its size, its kind, its queue and its number in it.
_HEAD: Final = np.dtype(
    {
        "names": ["size", "magic", "queue", "number"],
        "formats": [">i4", ">i4", ">i4", ">i8"],
        "offsets": [0, 4, 12, 20],
        "itemsize": 28,
    }
)
_MEND: Final = "rebuild the queue, read with split=log, or set badRecords=skip"
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_BLOCK_BYTES: Final = 1 << 20
_BLOCK_UNITS: Final = 1 << 14
# Stretches of the log that are weighed to make shares alike.
_GRID_MAX: Final = 1 << 14
_ZEROS: Final = bytes(_BLOCK_BYTES + 8)
_MARKS: Final = tuple(_START.pack(0, magic)[4:7] for magic in _MAGICS)


@dataclass(frozen=True)
class QueueRange:
    """Messages [first, last) of one queue."""

    topic: str
    queue_id: int
    first: int
    last: int


@dataclass(frozen=True)
class LogRange:
    """Records that begin in [first, last) of the log."""

    first: int
    last: int


class Named(NamedTuple):
    """Where units say that their records lie, how long these are, and of which queue and number: -1 for light queues,
    whose records have the numbers of other queues."""

    places: Ints
    lengths: Ints
    queues: Ints
    numbers: Ints

    def of(self, which: npt.NDArray[np.bool_] | slice | Ints) -> Named:
        return Named(*[column[which] for column in self])

    @classmethod
    def all(cls, parts: Sequence[Named]) -> Named:
        """In the order of the log."""
        whole = cls(*map(np.concatenate, zip(*parts, strict=True)))
        places = whole.places
        return whole.of(np.argsort(places, kind="stable")) if (places[1:] < places[:-1]).any() else whole


@dataclass(frozen=True)
class StoreDirectory:
    root: str
    broker_name: str
    log_directory: str

    @classmethod
    def at(cls, root: str, broker_name: str, log_directory: str | None = None) -> StoreDirectory:
        log = log_directory or os.path.join(root, "commitlog")
        if not os.path.isdir(log):
            raise StoreError(f"{root} is no store directory: there is no {log}")
        return cls(root, broker_name, log)

    # Planning

    def log_files(self) -> list[tuple[int, str, int]]:
        """(log offset of the first byte, path, bytes), in order."""
        found = []
        for name in os.listdir(self.log_directory):
            start = segment_offset(name)
            if start is not None:
                path = os.path.join(self.log_directory, name)
                size = file_bytes(path)
                if start + size > _LAST_PLACE:
                    raise StoreError(f"{path} would lie at {start} of the log, the last place is {_LAST_PLACE}")
                if size:
                    found.append((start, path, size))
        return sorted(found)

    def log_bounds(self) -> tuple[int, int]:
        """Places from the first to behind the last byte of the log."""
        files = self.log_files()
        return (files[0][0], files[-1][0] + files[-1][2]) if files else (_LAST_PLACE, _LAST_PLACE)

    def queues(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
        root = os.path.join(self.root, "consumequeue")
        for topic in sorted(os.listdir(root)) if os.path.isdir(root) else ():
            if wanted(topic):
                numbers = [int(name) for name in os.listdir(os.path.join(root, topic)) if is_number(name)]
                yield from ((topic, number) for number in sorted(numbers))

    def units(self, topic: str, queue_id: int) -> tuple[int, npt.NDArray[Any]]:
        """Number of the first unit that names a message of the log, and all units from there on."""
        expected = None
        for base, path, count in self._unit_files(topic, queue_id):
            if expected is not None and base != expected:
                raise StoreError(f"a file is missing before {path}: rebuild the queue, or read with split=log")
            expected = base + count
        first, last = self.unit_bounds(topic, queue_id)
        return first, self.unit_slice(topic, queue_id, first, last)

    def unit_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """[first, last) of what `units` has, seen from both ends: what lies between is not read, or may be missing."""
        files = self._unit_files(topic, queue_id)
        low, _ = self.log_bounds()
        last = 0
        for base, block in _unit_blocks(files, backwards=True):
            used = np.flatnonzero((block["size"] != 0) | (block["offset"] != 0))
            if len(used):
                last = base + int(used[-1]) + 1
                break
        for base, block in _unit_blocks(files):
            expired = (block["offset"] >= 0) & (block["offset"] < low) & (block["size"] > 0)
            blank = (block["offset"] == 0) & (block["size"] == BLANK_SIZE)
            if not (expired | blank).all():
                return min(last, base + int(np.argmin(expired | blank))), last
        return last, last

    def _unit_files(self, topic: str, queue_id: int) -> list[tuple[int, str, int]]:
        """(number of the first unit, path, units), in order."""
        folder = os.path.join(self.root, "consumequeue", topic, str(queue_id))
        found = []
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            start = segment_offset(name)
            if start is not None:
                path = os.path.join(folder, name)
                size = file_bytes(path)
                if size > QUEUE_FILE_BYTES_MAX or start > _LAST_PLACE:
                    raise StoreError(
                        f"{path} is no file of a queue: it has {size} bytes from {start} on, at most "
                        f"{QUEUE_FILE_BYTES_MAX} bytes are read"
                    )
                found.append((start // UNIT.itemsize, path, size // UNIT.itemsize))
        return sorted(found)

    def unit_slice(self, topic: str, queue_id: int, first: int, last: int) -> npt.NDArray[Any]:
        """Units [first, last) of a queue; fewer where its files end, zeros where one is missing."""
        found = np.zeros(max(0, last - first), UNIT)
        end = first
        for base, path, count in self._unit_files(topic, queue_id):
            low, high = max(first, base), min(last, base + count)
            if low < high:
                found[low - first : high - first] = np.fromfile(
                    path, UNIT, high - low, offset=(low - base) * UNIT.itemsize
                )
                end = high
        return found[: end - first]

    def record(self, topic: str, queue_id: int, number: int) -> bytes:
        """The bytes that one unit names; fewer, or none, where unit or log do not reach."""
        for unit in self.unit_slice(topic, queue_id, number, number + 1):
            offset, size = int(unit["offset"]), int(unit["size"])
            for start, path, length in self.log_files():
                if start <= offset < start + length and size > 0:
                    with open(path, "rb") as file:
                        file.seek(offset - start)
                        return file.read(size)
        return b""

    def queue_shares(self, wanted: Callable[[str], bool], bytes_max: int) -> Iterator[tuple[QueueRange, ...]]:
        """What queues name, in shares of about `bytes_max`: of each queue the messages of one stretch of the log, whose
        pages are then at hand for all of them.
        """
        queues = list(self.queues(wanted))
        grid = self._grid(queues, bytes_max)
        low, high = self.log_bounds()
        firsts, cuts, weights = [], [], np.zeros(len(grid) - 1, np.int64)
        for topic, queue_id in queues:
            first, units = self.units(topic, queue_id)
            # A unit that names no place of the log, or is missing, goes with the one before it: none is left out.
            inside = (units["offset"] >= low) & (units["offset"] < high) & (units["size"] > 0)
            inside &= units["size"] != BLANK_SIZE
            at = np.searchsorted(np.maximum.accumulate(np.where(inside, units["offset"], 0).astype(np.int64)), grid)
            at[0], at[-1] = 0, len(units)
            sizes = np.where(inside, units["size"], 0).astype(np.int64)
            weights += np.diff(np.append(0, np.cumsum(sizes))[at])
            firsts.append(first)
            cuts.append(at)
        total = np.cumsum(weights)
        pieces = max(1, -(-int(total[-1]) // bytes_max))
        ends = np.searchsorted(total, np.arange(1, pieces) * (int(total[-1]) / pieces)) + 1
        for begin, end in pairwise(sorted({0, *ends.tolist(), len(weights)})):
            share = [
                QueueRange(*queue, first + int(at[begin]), first + int(at[end]))
                for queue, first, at in zip(queues, firsts, cuts, strict=True)
                if at[begin] < at[end]
            ]
            if share:
                yield tuple(share)

    def _grid(self, queues: list[tuple[str, int]], bytes_max: int) -> Ints:
        """Places in the log from before the first to behind the last message, close enough for shares of that size."""
        ends = [place for queue in queues for place in self._ends_in_log(*queue)]
        low, high = min(ends, default=0), max(ends, default=0)
        count = min(_GRID_MAX, 8 * (-(-(high - low) // bytes_max) + 1))
        return np.unique(np.linspace(low, high + 1, count + 1).astype(np.int64))

    def _ends_in_log(self, topic: str, queue_id: int) -> list[int]:
        """Where the first and the last message of a queue lie; nothing of an empty one."""
        first, last = self.unit_bounds(topic, queue_id)
        low, high = self.log_bounds()
        numbers = (first, last - 1) if first < last else ()
        places = [int(self.unit_slice(topic, queue_id, one, one + 1)["offset"][0]) for one in numbers]
        return [place for place in places if low <= place < high]

    def log_ranges(self, bytes_max: int) -> Iterator[LogRange]:
        for start, _, size in self.log_files():
            for low in range(0, size, bytes_max):
                yield LogRange(start + low, start + min(size, low + bytes_max))

    # Reading

    def read(self, part: QueueRange | LogRange, reading: Reading) -> Iterator[pa.RecordBatch]:
        return self.read_queues((part,), reading) if isinstance(part, QueueRange) else self._read_log(part, reading)

    def read_queues(self, parts: Sequence[QueueRange], reading: Reading) -> Iterator[pa.RecordBatch]:
        """What these ranges name, in the order of the log: so each page of it is touched once, one after the other,
        and the messages of a queue stay in their order.
        """
        settle()
        whole = Named.all([self._units_of(part, reading) for part in parts])
        files = self.log_files()
        starts = [start for start, _, _ in files]
        holders = np.searchsorted(starts, whole.places, side="right") - 1
        for holder in np.unique(holders).tolist():
            if holder < 0:
                self._check_gone(int(whole.places.min()), reading)
                continue
            start, path, size = files[holder]
            named = whole.of(holders == holder)
            named = named._replace(places=named.places - start)
            inside = (named.lengths >= RECORD_BYTES_MIN) & (named.lengths <= size - named.places)
            self._refuse(start, named.of(~inside), "is outside of its files", reading)
            with _Mapped(path) as data:
                for some in _rounds(named.of(inside)):
                    for low, high in _cuts(some.lengths, reading):
                        places = self._checked(data, start, some.of(slice(low, high)), reading)
                        yield from self._decode(data, start, places, reading)

    def _checked(self, data: memoryview, start: int, named: Named, reading: Reading) -> Ints:
        """The places of records that are what their units say. What is no record at all is for `_decode` to tell."""
        heads = np.ndarray((len(data) - _HEAD.itemsize + 1,), _HEAD, np.frombuffer(data, np.uint8), 0, (1,))
        found = heads[named.places]
        other = (named.numbers >= 0) & ((found["number"] != named.numbers) | (found["queue"] != named.queues))
        other |= found["size"] != named.lengths
        other &= np.isin(found["magic"], _MAGICS)
        if other.any():
            self._refuse(start, named.of(other), "is a record of another size, queue or number", reading)
        places: Ints = named.places[~other]
        return places

    def _refuse(self, start: int, named: Named, why: str, reading: Reading) -> None:
        """Units that name what is not theirs."""
        if not len(named.places):
            return
        text = f"{int(named.lengths[0])} bytes at {start + int(named.places[0])} of the log"
        if not reading.skip_bad:
            raise StoreError(f"a unit of a queue of {self.root} names {text}, which {why}: {_MEND}")
        logger.warning("skip units store=%s count=%d first=%r cause=%r", self.root, len(named.places), text, why)

    def _units_of(self, part: QueueRange, reading: Reading) -> Named:
        """What the queue has of the range: units that name messages."""
        first = self.unit_bounds(part.topic, part.queue_id)[0]
        units = self.unit_slice(part.topic, part.queue_id, max(first, part.first), part.last)
        if part.first < first or len(units) < part.last - max(first, part.first) or not (units["size"] > 0).all():
            # All of the queue: that names what is missing, and knows where units end.
            first, units = self.units(part.topic, part.queue_id)
            units = units[max(0, part.first - first) : max(0, part.last - first)]
        if part.first < first and not reading.skip_bad:
            raise StoreError(
                f"{part.topic} queue {part.queue_id} of {self.root} begins at {first} now, {part.first} was planned: "
                "its oldest files were deleted meanwhile; read again, or set badRecords=skip"
            )
        begin = max(first, part.first)
        if len(units) < part.last - begin and not reading.skip_bad:
            raise StoreError(
                f"{part.topic} queue {part.queue_id} of {self.root} ends at {begin + len(units)} now, {part.last} was "
                f"planned: {_MEND}"
            )
        empty = (units["size"] <= 0) | (units["size"] == BLANK_SIZE) | (units["offset"] < 0)
        if empty.any():
            number = begin + int(np.argmax(empty))
            if not reading.skip_bad:
                raise StoreError(
                    f"unit {number} of {part.topic} queue {part.queue_id} of {self.root} is empty or names no record "
                    f"({units[int(np.argmax(empty))].tolist()}), and others behind it do: {_MEND}"
                )
            logger.warning(
                "skip units store=%s topic=%s queue=%d count=%d first=%d",
                self.root, part.topic, part.queue_id, int(empty.sum()), number,
            )  # fmt: skip
        light = np.full(len(units), -1)
        numbers = light if part.topic.startswith(LMQ_PREFIX) else begin + np.arange(len(units))
        queues = np.full(len(units), part.queue_id)
        return Named(units["offset"].astype(np.int64), units["size"].astype(np.int64), queues, numbers).of(~empty)

    def _read_log(self, part: LogRange, reading: Reading) -> Iterator[pa.RecordBatch]:
        settle()
        files = self.log_files()
        number = bisect_right([start for start, _, _ in files], part.first) - 1
        if number < 0:
            self._check_gone(part.first, reading)
            return
        start, path, size = files[number]
        with _Mapped(path) as data:
            end = min(size, part.last - start)
            for places in _walk(data, start, part.first - start, end, size, reading):
                yield from self._decode(data, start, places, reading)

    def _check_gone(self, place: int, reading: Reading) -> None:
        if not reading.skip_bad:
            raise StoreError(
                f"the log of {self.root} begins after {place} now: its oldest files were deleted meanwhile; "
                "read again, or set badRecords=skip"
            )

    def _decode(
        self, data: memoryview, start: int, places: npt.NDArray[np.int64], reading: Reading
    ) -> Iterator[pa.RecordBatch]:
        try:
            if reading.check_crc:
                _check_crcs(data, places)
            yield from decode(Records(data, places), self.broker_name, reading.columns, reading.inflate)
        except WireError as error:
            if not reading.skip_bad:
                raise StoreError(
                    f"{self.log_directory}, file {start:020d}: {error}; check the store, or set badRecords=skip"
                ) from None
            yield from self._decode_well(data, places, reading)

    def _decode_well(
        self, data: memoryview, places: npt.NDArray[np.int64], reading: Reading
    ) -> Iterator[pa.RecordBatch]:
        """One record after the other, without those that cannot be read."""
        for number in range(len(places)):
            one = places[number : number + 1]
            try:
                if reading.check_crc:
                    _check_crcs(data, one)
                batches = list(decode(Records(data, one), self.broker_name, reading.columns, reading.inflate))
            except WireError as error:
                logger.warning("skip units store=%s count=1 cause=%r", self.root, str(error))
                continue
            yield from batches


def _unit_blocks(files: list[tuple[int, str, int]], backwards: bool = False) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Units of the files block by block, each with the number of its first one."""
    step = -1 if backwards else 1
    for base, path, count in files[::step]:
        for low in range(0, count, _BLOCK_UNITS)[::step]:
            yield base + low, np.fromfile(path, UNIT, min(_BLOCK_UNITS, count - low), offset=low * UNIT.itemsize)


class _Mapped:
    """A file mapped to read, as a view that Arrow may go on holding after the map is left."""

    # By path, file and size, while `mapped_once`.
    kept: ClassVar[dict[tuple[str, int, int], mmap.mmap] | None] = None

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            key = path, stat.st_ino, stat.st_size
            found = self.kept.get(key) if self.kept is not None else None
            self._map = found or mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self.kept is not None:
            self.kept[key] = self._map

    def __enter__(self) -> memoryview:
        return memoryview(self._map)

    def __exit__(self, *_: object) -> None:
        # Arrow columns that were sliced, not copied, may still refer to it: the map goes with the last of them.
        pass


@contextmanager
def mapped_once() -> Iterator[None]:
    """Log files that are read inside stay mapped to the end: the queues of a broker lie in the same pages, between one
    another, and to map those takes a tenth of a read. A file that is deleted meanwhile keeps its place on the disk
    until then.
    """
    before = _Mapped.kept
    _Mapped.kept = {} if before is None else before
    try:
        yield
    finally:
        _Mapped.kept = before


def _rounds(named: Named) -> Iterator[Named]:
    """Ascending places, each once; then those that are named again, as by light queues, which share records."""
    while len(named.places):
        again = np.append(False, named.places[1:] == named.places[:-1])
        yield named.of(~again)
        named = named.of(again)


def _cuts(lengths: npt.NDArray[np.int64], reading: Reading) -> Iterator[tuple[int, int]]:
    """Batches of at most `rows_max` rows and about `bytes_max` bytes."""
    total = np.cumsum(lengths)
    low = 0
    while low < len(lengths):
        before = int(total[low - 1]) if low else 0
        high = int(np.searchsorted(total, before + reading.bytes_max, side="right"))
        high = min(len(lengths), low + reading.rows_max, max(low + 1, high))
        yield low, high
        low = high


def _walk(
    data: memoryview, start: int, low: int, high: int, size: int, reading: Reading
) -> Iterator[npt.NDArray[np.int64]]:
    """Places of the records that begin in [low, high), in batches; from record to record by their sizes."""
    position = _first_record(data, start, low, size) if low else 0
    found: list[int] = []
    taken = 0
    while position < high:
        length, magic = _START.unpack_from(data, position) if position + 8 <= size else (0, 0)
        if magic == MAGIC_BLANK or not any(data[position : min(size, position + 4096)]):
            break
        whole = magic in _MAGICS and RECORD_BYTES_MIN <= length <= size - position
        if not whole or _PLACE.unpack_from(data, position + PHYSICAL_OFFSET_AT)[0] != start + position:
            following = _first_record(data, start, position + 1, size)
            if following >= size and not whole:
                break  # the half record at the end of a store that is in use or crashed
            if not reading.skip_bad:
                raise StoreError(
                    f"no record from {start + position} to {start + min(following, size)} of the log: "
                    "check the store, or set badRecords=skip"
                )
            position = following
            continue
        found.append(position)
        taken += length
        position += length
        if len(found) >= reading.rows_max or taken >= reading.bytes_max:
            yield np.array(found, np.int64)
            found, taken = [], 0
    if found:
        yield np.array(found, np.int64)


def _first_record(data: memoryview, start: int, low: int, size: int, high: int | None = None) -> int:
    """Where the first record at or after `low` begins: it has a magic number, and says itself where it lies.

    `size` if there is none before `high`.
    """
    block = _BLOCK_BYTES
    at = low
    while at < (size if high is None else high):
        end = min(size, at + block + 8)
        piece = bytes(data[at:end])
        # What was made ahead of need is zeros, and much of it: comparing is ten times as fast as searching.
        place = 0 if piece != _ZEROS[: len(piece)] else len(piece)
        while True:
            hits = [hit for mark in set(_MARKS) if (hit := piece.find(mark, place)) >= 0]
            if not hits:
                break
            hit = min(hits)
            position = at + hit - MAGIC_AT
            if position >= low and position + RECORD_BYTES_MIN <= size:
                magic = _START.unpack_from(data, position)[1]
                if magic in _MAGICS and _PLACE.unpack_from(data, position + PHYSICAL_OFFSET_AT)[0] == start + position:
                    return position
                if magic == MAGIC_BLANK:
                    return size
            place = hit + 1
        at += block
    return size


def _check_crcs(data: memoryview, places: npt.NDArray[np.int64]) -> None:
    """WireError for the first body that is not what was stored. Bodies of IPv6 records lie later: `decode` knows."""
    from cometmq.wire.record.message import decode_record

    for place in places.tolist():
        length = _START.unpack_from(data, place)[0]
        if data[place + HOST_BITS_AT] & HOSTS_V6:
            decode_record(data, place, place + length)
            continue
        body_bytes = _START.unpack_from(data, place + BODY_BYTES_AT)[0]
        crc = _START.unpack_from(data, place + BODY_CRC_AT)[0]
        if crc and zlib.crc32(data[place + BODY_AT : place + BODY_AT + body_bytes]) & 0x7FFFFFFF != crc:
            raise WireError(f"the record at byte {place} has a body that does not match its CRC")


def file_bytes(path: str) -> int:
    """The size of a file. Reading a pipe would wait for ever, and a directory has nothing to read."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is no file: take it out of the store")
    return found.st_size


def is_number(name: str) -> bool:
    """Whether a directory is that of a queue: its number as Java writes it."""
    return name.isascii() and name.isdigit() and name == str(int(name[:10])) and int(name) < 1 << 31


def is_used(files: list[tuple[int, str, int]]) -> bool:
    """Whether one of these files begins with a record: a broker makes the next ones ahead of need."""
    for _, path, _ in files:
        with open(path, "rb") as file:
            if _START.unpack(file.read(8).ljust(8, b"\0"))[1] in _MAGICS:
                return True
    return False
