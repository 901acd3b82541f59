"""Bodies that are not copied: an Arrow view array has length and place of each, in the bytes that were read.

    view      length:4, first letters:4, buffer:4 (0), place:4     or     length:4, up to 12 letters

A file that is written at once from them spares a copy of every body, and the memory for it; a log file that is mapped
stays mapped while a view of it is there. Arrow cannot filter views yet, so `filtered` does; and it counts what they
refer to in full, gaps too, so `bytes_of` does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from cometmq.spark.stores.record_starts import Ints

# Older ones cannot write views into Parquet files.
CAN_VIEW: Final = int(pa.__version__.split(".")[0]) >= 21
_VIEW: Final = np.dtype([("length", "<i4"), ("letters", "<u4"), ("buffer", "<i4"), ("place", "<i4")])
_SHORT: Final = 12


def views(buffer: pa.Buffer, starts: Ints, ends: Ints) -> pa.Array:
    """The bytes [start, end) of every row, where they are. Ranges ascend, and lie within 2 GiB."""
    if not len(starts):
        return pa.array([], pa.binary_view())
    base, end = int(starts[0]), int(ends[-1])
    made = np.zeros(len(starts), _VIEW)
    made["length"] = ends - starts
    made["place"] = starts - base
    octets = np.frombuffer(buffer, np.uint8)
    anywhere: npt.NDArray[np.uint32] = np.ndarray((len(octets) - 3,), "<u4", octets, 0, (1,))
    # The last three bytes begin none: what is there is short.
    made["letters"] = anywhere[np.minimum(starts, len(anywhere) - 1)]
    for row in np.flatnonzero(made["length"] <= _SHORT).tolist():
        text = bytes(octets[int(starts[row]) : int(ends[row])])
        made[row : row + 1] = np.frombuffer(len(text).to_bytes(4, "little") + text.ljust(_SHORT, b"\0"), _VIEW)
    source = buffer.slice(base, end - base)
    return pa.Array.from_buffers(pa.binary_view(), len(starts), [None, pa.py_buffer(made), source])


def filtered(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """The rows whose mask is true. Views become copies, and views of those."""
    viewed = [field.name for field in batch.schema if field.type == pa.binary_view()]
    plain = batch
    for name in viewed:
        plain = plain.set_column(batch.schema.get_field_index(name), name, batch.column(name).cast(pa.binary()))
    kept = plain.filter(mask)
    for name in viewed:
        kept = kept.set_column(batch.schema.get_field_index(name), name, kept.column(name).cast(pa.binary_view()))
    return kept


def bytes_of(batch: pa.RecordBatch) -> int:
    """Bytes of all values; of views their lengths."""
    return sum(_lengths(column) if column.type == pa.binary_view() else column.nbytes for column in batch.columns)


def _lengths(column: Any) -> int:
    made = np.frombuffer(column.buffers()[1], _VIEW, len(column), column.offset * _VIEW.itemsize)
    return int(made["length"].sum(dtype=np.int64))
