"""Where records begin that lie one behind the other, found for many at once.

    octets     .. size DAA3 20A7 ..... DAA3 .... size DAA3 20A7 ......... size DAA3 20A7
    marks         ^                    no            ^                       ^
    chain         |-------- size ------------------->|-------- size -------->|

A record says how long it is, so the next one can only be found through it: one step after the other, 0.3 to 0.4 us each
in Python. Instead every place is marked that has a magic number at +4, and a length that can be; where each mark's
length leads to the next mark, nearly always, the whole run of them is taken. A mark inside a body is passed over,
since no length leads to it. The places are those that single steps would find, at 0.1 us for a record of 450 bytes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cometmq.wire.message import MAGIC_V1, MAGIC_V2

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

RECORD_BYTES_MIN: Final = 91
# What is looked through at once stays in the processor's cache.
BLOCK_BYTES: Final = 1 << 20
_INTEGER: Final = np.dtype(">i4")
_MAGIC_BYTE: Final = MAGIC_V1 >> 24 & 0xFF


def chained(octets: Bytes, first: int, end: int) -> tuple[Ints, int]:
    """Records that begin in [first, end), each where the one before ends, and the place behind the last of them.

    That place is `end` or beyond, or it has no record with a known magic number that fits into `octets`.
    """
    found: list[Ints] = []
    position = first
    while position < end:
        before = position
        part, position = _chained_in_block(octets, position, min(end, position + BLOCK_BYTES))
        found.append(part)
        if position == before:
            break
    return (np.concatenate(found) if found else np.empty(0, np.int64)), position


def _chained_in_block(octets: Bytes, position: int, end: int) -> tuple[Ints, int]:
    marks, following = _marks(octets, position, end)
    # Where a mark's length does not lead to the next mark; behind the last one anything may come.
    breaks = np.append(np.flatnonzero(following[:-1] != marks[1:]), len(marks) - 1)
    taken: list[Ints] = []
    row = int(np.searchsorted(marks, position))
    while row < len(marks) and int(marks[row]) == position:
        last = int(breaks[np.searchsorted(breaks, row)])
        taken.append(marks[row : last + 1])
        position = int(following[last])
        row = last + 1 + int(np.searchsorted(marks[last + 1 :], position))
    return (np.concatenate(taken) if taken else marks[:0]), position


def _marks(octets: Bytes, first: int, end: int) -> tuple[Ints, Ints]:
    """Places in [first, end) that look like the start of a record, and where each says that it ends."""
    end = min(end, len(octets) - RECORD_BYTES_MIN + 1)
    if first >= end:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    marks = np.flatnonzero(octets[first + 4 : end + 4] == _MAGIC_BYTE) + first
    anywhere: npt.NDArray[np.int32] = np.ndarray((len(octets) - 3,), _INTEGER, octets, 0, (1,))
    magic = anywhere[marks + 4]
    marks = marks[(magic == MAGIC_V1) | (magic == MAGIC_V2)]
    lengths = anywhere[marks].astype(np.int64)
    fits = (lengths >= RECORD_BYTES_MIN) & (lengths <= len(octets) - marks)
    return marks[fits], (marks + lengths)[fits]
