"""Many stored messages to one Arrow record batch, without a Python loop over them.

A commit log file and the body of a pull answer are made of the same records (`wire.message`). Given the bytes and
where the records start, whole columns are made at a time:

    fixed fields     one gather of the first 88 bytes of every record, seen as big-endian columns
    body, topic,     [s0,e0,s1,e1,...] over the source bytes is a legal Arrow array whose even elements are the
    properties       values: `take` of those copies them in C++, nothing else does
    properties       positions of the separators 1 and 2 in the packed text give keys, values and map offsets
    ids, hosts       through tables, or once per distinct value

Rows whose hosts are IPv6 have their fields 12 or 24 bytes later; a batch with such rows gathers field by field. Inner
batches (one record that holds many messages) and compressed bodies are rare and go through `wire` one by one.

`Records` is where the records lie; `decode` makes the batches. Bytes are checked before they are believed: lengths that
do not add up raise `WireError` with the place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.errors import WireError
from cometmq.spark.columns import COLUMNS, VIEWED, Column, arrow_schema
from cometmq.spark.lake.body_views import filtered, views
from cometmq.spark.stores.record_starts import Bytes, Ints, chained
from cometmq.store.offline.dump import host_text
from cometmq.wire.compression import decompress
from cometmq.wire.record.batch import split_batch
from cometmq.wire.record.layout import (
    BODY_AT,
    BODY_BYTES_AT,
    BORN_HOST_AT,
    FIELDS,
    MAGIC_V1,
    MAGIC_V2,
    PREPARED_TRANSACTION_OFFSET_AT,
    RECONSUME_TIMES_AT,
    RECORD_BYTES_MIN,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    V6_SHIFT,
)
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.message_id import encode_offset_id, offset_id_prefix
from cometmq.wire.record.properties import Property
from cometmq.wire.record.sysflag import BORN_HOST_V6, COMPRESSED, HOSTS_V6, INNER_BATCH, NEEDS_UNWRAP, STORE_HOST_V6

# Arrow's 32-bit offsets reach 2 GiB; a window of the source is kept far below.
WINDOW_BYTES_MAX: Final = 1 << 30
NO_END: Final = (1 << 63) - 1

# The columns of the fixed fields, in the order of the record.
_NAMES: Final = (
    "storeSize",
    "magic",
    "bodyCRC",
    "queueId",
    "flag",
    "queueOffset",
    "commitLogOffset",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyLength",
)
_TYPES: Final = {"i": ">i4", "q": ">i8", "8s": ">u8"}
_HEAD: Final = np.dtype(
    {
        "names": _NAMES,
        "formats": [_TYPES[field.code] for field in FIELDS],
        "offsets": [field.at for field in FIELDS],
        "itemsize": BODY_AT,
    }
)
# Without fields: those would be copied one by one.
_HEAD_BYTES: Final = np.dtype((np.void, BODY_AT))
_SIZE: Final = Struct(">i")
_HEX: Final = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.uint16)


class Records:
    """Records of `data` that begin at `starts`, ascending and without overlap."""

    def __init__(self, data: Any, starts: Ints) -> None:
        self.buffer = pa.py_buffer(data)
        self.octets: Bytes = np.frombuffer(self.buffer, dtype=np.uint8)
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts)


def record_starts(data: Any) -> Ints:
    """Where the records of a run without gaps begin, such as the body of a pull answer."""
    octets = np.frombuffer(data, np.uint8)
    starts, position = chained(octets, 0, len(octets))
    if position < len(octets):
        left = len(octets) - position
        size = _SIZE.unpack_from(data, position)[0] if left >= RECORD_BYTES_MIN else 0
        if RECORD_BYTES_MIN <= size <= left:
            raise WireError(f"the record at byte {position} has no magic number of a message")
        raise WireError(f"record at byte {position} says that it has {size} bytes, {left} are left")
    return starts


def decode(
    records: Records,
    broker_name: str,
    columns: Sequence[Column] = COLUMNS,
    inflate: bool = True,
    tags: frozenset[str] | None = None,
    first: int = -NO_END,
    last: int = NO_END,
) -> Iterator[pa.RecordBatch]:
    """The messages in their order; one batch, unless inner batches or a very wide source cut it.

    Only those with one of `tags`, and with queue offsets in [first, last).
    """
    schema = arrow_schema(columns)
    for piece in _windows(records):
        for rows in Rows(piece).runs():
            if isinstance(rows, Rows):
                arrays = [_column(rows, column, broker_name, inflate) for column in columns]
                batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                keep = _kept(rows, tags, first, last)
                yield batch if keep is None else filtered(batch, keep)
            else:
                run = _unwrapped(rows)
                yield from decode(Records(run, record_starts(run)), broker_name, columns, inflate, tags, first, last)


def _kept(rows: Rows, tags: frozenset[str] | None, first: int, last: int) -> pa.Array | None:
    """Which rows stay; None for all."""
    offsets = rows.fields["queueOffset"]
    inside = (offsets >= first) & ((offsets < last) | (last == NO_END))
    if tags is not None:
        mask = pc.is_in(rows.pairs().value_of(Property.TAGS), pa.array(sorted(tags), pa.string()))
        inside &= mask.to_numpy(zero_copy_only=False)
    return None if inside.all() else pa.array(inside)


def _windows(records: Records) -> Iterator[Records]:
    """Parts whose source bytes span little enough for Arrow's offsets."""
    starts = records.starts
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(starts, starts[first] + WINDOW_BYTES_MAX, side="left"))
        if first == 0 and last == len(starts):
            yield records
            return
        part = Records.__new__(Records)
        part.buffer, part.octets, part.starts = records.buffer, records.octets, starts[first:last]
        yield part
        first = last


class Rows:
    """Fixed fields of some records, and where their variable ones lie.

    What does not add up is a WireError. With `strict=False` it is noted in `well` instead, and the variable fields of
    such a row are empty; starts and sizes must then be known to fit.
    """

    def __init__(self, records: Records, strict: bool = True) -> None:
        self.buffer = records.buffer
        self.octets = records.octets
        self.starts = records.starts
        self.strict = strict
        self.well: npt.NDArray[np.bool_] = np.ones(len(records.starts), np.bool_)
        if len(self.starts) and int(self.starts[-1]) + RECORD_BYTES_MIN > len(self.octets):
            raise WireError(f"the record at byte {int(self.starts[-1])} is cut short")
        self.fields = self._fixed_fields()
        self._find_variable_fields()
        self._pairs: _Pairs | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def _fixed_fields(self) -> dict[str, npt.NDArray[Any]]:
        # Heads at every byte, of which those at `starts` are copied: five times as fast as a gather byte by byte.
        anywhere = max(0, len(self.octets) - BODY_AT + 1)
        heads = np.ndarray((anywhere,), _HEAD_BYTES, self.octets, 0, (1,))[self.starts].view(_HEAD)
        fields = {name: heads[name].astype(heads[name].dtype.newbyteorder("=")) for name in _HEAD.names or ()}
        self.is_v6 = bool((fields["sysFlag"] & HOSTS_V6).any())
        self.bodies_at = self.starts + BODY_AT
        if self.is_v6:
            self._move_fields(fields)
        return fields

    def _move_fields(self, fields: dict[str, npt.NDArray[Any]]) -> None:
        flags = fields["sysFlag"]
        born = np.where(flags & BORN_HOST_V6, V6_SHIFT, 0)
        at = self.starts + born
        fields["storeTimestamp"] = self._integers(at + STORE_TIMESTAMP_AT, 8)
        self.store_hosts_at = at + STORE_HOST_AT
        at = at + np.where(flags & STORE_HOST_V6, V6_SHIFT, 0)
        at = self._inside(at, at + BODY_AT <= len(self.octets), "is cut short")
        fields["reconsumeTimes"] = self._integers(at + RECONSUME_TIMES_AT, 4).astype(np.int32)
        fields["preparedTransactionOffset"] = self._integers(at + PREPARED_TRANSACTION_OFFSET_AT, 8)
        fields["bodyLength"] = self._integers(at + BODY_BYTES_AT, 4).astype(np.int32)
        self.bodies_at = at + BODY_AT

    def _integers(self, at: Ints, width: int) -> Ints:
        found = self.octets[at[:, None] + np.arange(width)].view(f">i{width}")
        return np.asarray(found.reshape(-1), np.int64)

    def _find_variable_fields(self) -> None:
        ends = self.starts + self.fields["storeSize"]
        magic = self.fields["magic"]
        self._check((magic == MAGIC_V1) | (magic == MAGIC_V2), "has no magic number of a message")
        self._check(ends <= len(self.octets), "is cut short")
        self._check(np.append(ends[:-1] <= self.starts[1:], [True] * min(1, len(ends))), "runs into the next one")
        length = self.fields["bodyLength"]
        body_ends = self.bodies_at + length
        fits = (length >= 0) & (body_ends + 3 <= ends)
        self.body_ends = self._inside(body_ends, fits, "has a body that does not fit")
        wide = magic == MAGIC_V2
        topic_length = self.octets[self.body_ends].astype(np.int64)
        if wide.any():
            topic_length = np.where(wide, (topic_length << 8) | self.octets[self.body_ends + 1], topic_length)
        self.topics_at = self.body_ends + np.where(wide, 2, 1)
        topic_ends = self.topics_at + topic_length
        self.topic_ends = self._inside(topic_ends, topic_ends + 2 <= ends, "has a topic that does not fit")
        self.properties_at = self.topic_ends + 2
        high = self.octets[self.topic_ends].astype(np.int64)
        properties_ends = self.properties_at + ((high << 8) | self.octets[self.topic_ends + 1])
        self.properties_ends = self._inside(properties_ends, properties_ends <= ends, "has properties that do not fit")
        if not self.well.all():
            for name in ("bodies_at", "body_ends", "topics_at", "topic_ends", "properties_at", "properties_ends"):
                setattr(self, name, np.where(self.well, getattr(self, name), self.starts))

    def _check(self, well: npt.NDArray[np.bool_], why: str) -> None:
        if not well.all():
            if self.strict:
                raise WireError(f"the record at byte {int(self.starts[int(np.argmin(well))])} {why}")
            self.well &= well

    def _inside(self, places: Ints, well: npt.NDArray[np.bool_], why: str) -> Ints:
        """Places that may be looked at: those of rows that are not well become the row's start."""
        self._check(well, why)
        return places if self.strict else np.where(well, places, self.starts)

    def runs(self) -> Iterator[Rows | memoryview]:
        """Plain records in runs; records that hold many messages one by one, as their bytes."""
        inner = np.flatnonzero(self.fields["sysFlag"] & INNER_BATCH)
        if not len(inner):
            if len(self):
                yield self
            return
        first = 0
        for row in inner.tolist():
            if row > first:
                yield self._part(first, row)
            start = int(self.starts[row])
            yield memoryview(self.buffer)[start : start + int(self.fields["storeSize"][row])]
            first = row + 1
        if first < len(self):
            yield self._part(first, len(self))

    def _part(self, first: int, last: int) -> Rows:
        records = Records.__new__(Records)
        records.buffer, records.octets, records.starts = self.buffer, self.octets, self.starts[first:last]
        return Rows(records)

    def pairs(self) -> _Pairs:
        if self._pairs is None:
            self._pairs = _Pairs(ranges(self.buffer, self.properties_at, self.properties_ends, pa.binary()))
        return self._pairs


def ranges(buffer: pa.Buffer, starts: Ints, ends: Ints, kind: pa.DataType) -> pa.Array:
    """The bytes [start, end) of every row as an Arrow array. Ranges ascend and do not overlap."""
    count = len(starts)
    if not count:
        return pa.array([], kind)
    base = int(starts[0])
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts - base
    offsets[1::2] = ends - base
    source = buffer.slice(base, int(ends[-1]) - base)
    both = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(offsets), source])
    return both.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))


class _Pairs:
    """Where names and values of all properties of a batch lie, in one row after the other."""

    def __init__(self, texts: pa.Array) -> None:
        _, offsets, data = texts.buffers()
        rows: Ints = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
        packed: Bytes = np.frombuffer(data, np.uint8)[rows[0] : rows[-1]] if data else np.empty(0, np.uint8)
        rows = rows - rows[0]
        packed, rows = self._closed(packed, rows)
        ends = np.flatnonzero(packed == 2)
        starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
        ones = np.flatnonzero(packed == 1)
        if len(ones) == len(ends) and bool((ones > starts).all() and (ones < ends - 1).all()):
            middles = ones  # one in each pair, as nearly always
        else:
            middles = np.append(ones, len(packed))[np.searchsorted(ones, starts)]
            # As RocketMQ reads it: the first 1 splits, a pair without one or with an empty side is none.
            well = (middles < ends - 1) & (middles > starts)
            starts, middles, ends = starts[well], middles[well], ends[well]
        self._packed = packed
        self._starts, self._middles, self._ends = starts, middles, ends
        # Which pairs belong to which row.
        self._offsets: Ints = np.searchsorted(ends, rows)

    @staticmethod
    def _closed(packed: Bytes, rows: Ints) -> tuple[Bytes, Ints]:
        """Some versions leave the last separator of a row out: it is put back."""
        ends = rows[1:][rows[1:] > rows[:-1]]
        at = ends[packed[ends - 1] != 2]
        if not len(at):
            return packed, rows
        packed = np.insert(packed, at, 2)
        return packed, rows + np.searchsorted(at, rows, side="right")

    def maps(self) -> pa.Array:
        buffer = pa.py_buffer(self._packed)
        names = ranges(buffer, self._starts, self._middles, pa.string())
        values = ranges(buffer, self._middles + 1, self._ends, pa.string())
        return pa.MapArray.from_arrays(pa.array(self._offsets.astype(np.int32)), names, values)

    def value_of(self, name: str) -> pa.Array:
        """The last value of that name in each row, or null."""
        pairs = self._named(name.encode())
        values = ranges(pa.py_buffer(self._packed), self._middles[pairs] + 1, self._ends[pairs], pa.string())
        rows = np.searchsorted(self._offsets, pairs, side="right") - 1
        count = len(self._offsets) - 1
        if len(rows) == count and bool((rows == np.arange(count)).all()):
            return values  # one in each row: nothing to put in order
        found = np.full(count, -1, np.int64)
        found[rows] = np.arange(len(pairs))
        return values.take(pa.array(found, mask=found < 0))

    def _named(self, name: bytes) -> Ints:
        """The pairs of that name; up to eight letters at a time, looked at only where those before are right."""
        pairs: Ints = np.flatnonzero(self._middles - self._starts == len(name))
        at = 0
        while at < len(name) and len(pairs):
            width = 1 << min(3, (len(name) - at).bit_length() - 1)
            # Whole numbers at every byte, wherever a name may begin: faster than letter by letter.
            anywhere = np.ndarray((len(self._packed) - width + 1,), f"<u{width}", self._packed, 0, (1,))
            wanted = int.from_bytes(name[at : at + width], "little")
            pairs = pairs[anywhere[self._starts[pairs] + at] == wanted]
            at += width
        return pairs


def _column(rows: Rows, column: Column, broker_name: str, inflate: bool) -> pa.Array:
    fields = rows.fields
    name = column.name
    if name == "topic":
        return ranges(rows.buffer, rows.topics_at, rows.topic_ends, pa.string())
    if name == "brokerName":
        return pa.array([broker_name]).take(pa.array(np.zeros(len(rows), np.int32)))
    if name == "body":
        return _bodies(rows, inflate, column.sql_type == VIEWED)
    if name == "properties":
        return rows.pairs().maps()
    if name == "tags":
        return rows.pairs().value_of(Property.TAGS)
    if name == "keys":
        return rows.pairs().value_of(Property.KEYS)
    if name == "msgId":
        given = rows.pairs().value_of(Property.UNIQ_KEY)
        return pc.coalesce(given, _offset_ids(rows)) if given.null_count else given
    if name == "offsetMsgId":
        return _offset_ids(rows)
    if name in ("bornTimestamp", "storeTimestamp"):
        return pa.array(fields[name] * 1000).view(pa.timestamp("us", tz="UTC"))
    if name in ("bornHost", "storeHost"):
        return _hosts(rows, name)
    if name == "sysFlag" and inflate:
        return pa.array(fields[name] & ~COMPRESSED)
    return pa.array(fields[name])


def _bodies(rows: Rows, inflate: bool, as_views: bool) -> pa.Array:
    flags = rows.fields["sysFlag"]
    packed = np.flatnonzero(flags & COMPRESSED) if inflate else ()
    if as_views and not len(packed):
        return views(rows.buffer, rows.bodies_at, rows.body_ends)
    bodies = ranges(rows.buffer, rows.bodies_at, rows.body_ends, pa.binary())
    if not len(packed):
        return bodies
    values = bodies.to_pylist()
    for row in packed:
        values[row] = decompress(values[row], int(flags[row]))
    return pa.array(values, pa.binary_view() if as_views else pa.binary())


def _offset_ids(rows: Rows) -> pa.Array:
    if rows.is_v6:
        return pa.array([_offset_id(rows, row) for row in range(len(rows))], pa.string())
    halves = np.empty((len(rows), 2), ">u8")
    halves[:, 0] = rows.fields["storeHost"]
    halves[:, 1] = rows.fields["commitLogOffset"].view(np.uint64)
    text = _HEX[halves.view(np.uint8)]
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * 32
    return pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _offset_id(rows: Rows, row: int) -> str:
    address, port = _host(rows, row, "storeHost")
    return encode_offset_id(offset_id_prefix(address, port), int(rows.fields["commitLogOffset"][row]))


def _hosts(rows: Rows, name: str) -> pa.Array:
    if rows.is_v6:
        return pa.array([_host_text(_host(rows, row, name)) for row in range(len(rows))], pa.string())
    distinct, places = np.unique(rows.fields[name], return_inverse=True)
    texts = []
    for value in distinct.tolist():
        packed = value.to_bytes(8, "big")
        texts.append(_host_text((packed[:4], int.from_bytes(packed[4:], "big", signed=True))))
    return pa.array(texts, pa.string()).take(pa.array(places.reshape(-1)))


def _host_text(host: tuple[bytes, int]) -> str:
    return host_text(host).lstrip("/")


def _host(rows: Rows, row: int, name: str) -> tuple[bytes, int]:
    born = name == "bornHost"
    wide = int(rows.fields["sysFlag"][row]) & (BORN_HOST_V6 if born else STORE_HOST_V6)
    at = int(rows.starts[row]) + BORN_HOST_AT if born else int(rows.store_hosts_at[row])
    width = 16 if wide else 4
    packed = bytes(rows.octets[at : at + width + 4])
    return packed[:width], int.from_bytes(packed[width:], "big", signed=True)


def _unwrapped(record: memoryview) -> bytes:
    """The messages inside one record as records: each has its own body, flag and properties, the rest is shared."""
    outer = decode_record(record, 0, len(record), check_crc=False)
    body = decompress(outer.body, outer.sys_flag) if outer.sys_flag & COMPRESSED else outer.body
    flags = outer.sys_flag & ~(INNER_BATCH | NEEDS_UNWRAP | COMPRESSED)
    run = bytearray()
    for number, (flag, inner_body, properties) in enumerate(split_batch(body)):
        outer.flag, outer.body, outer.properties = flag, inner_body, properties
        outer.sys_flag, outer.queue_offset = flags, outer.queue_offset + (1 if number else 0)
        run += outer.encode()
    return bytes(run)
