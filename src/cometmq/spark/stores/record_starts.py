"""Where records begin that lie one behind the other.

    octets     size DAA3 20A7 .......... size DAA3 20A7 ............... size DAA3 20A7
    chain      |-------- size ---------->|---------- size ------------->|

A record says how long it is, so the next one can only be found through it: one step after the other. The steps look at
nothing but lengths, 0.1 us each; magic numbers are looked at for all of them together afterwards, and the chain ends
before the first that is wrong. (Marking every place that has a magic number takes as long for 450 bytes, and two and
a half times as long for 1 KiB.)
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from cometmq.wire.record.layout import MAGIC_AT, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_SIZE: Final = Struct(">i")
_INTEGER: Final = np.dtype(">i4")


def chained(octets: Bytes, first: int, end: int) -> tuple[Ints, int]:
    """Records that begin in [first, end), each where the one before ends, and the place behind the last of them.

    That place is `end` or beyond, or it has no record with a known magic number that fits into `octets`.
    """
    places = _steps(octets, first, min(end, len(octets) - RECORD_BYTES_MIN + 1))
    starts = np.array(places[:-1], np.int64)
    if len(starts):
        anywhere: npt.NDArray[np.int32] = np.ndarray((len(octets) - 3,), _INTEGER, octets, 0, (1,))
        magic = anywhere[starts + MAGIC_AT]
        wrong = np.flatnonzero((magic != MAGIC_V1) & (magic != MAGIC_V2))
        count = int(wrong[0]) if len(wrong) else len(starts)
        if count == len(starts) and places[-1] > len(octets):
            count -= 1  # all before the last end where another begins
        starts, places = starts[:count], places[: count + 1]
    return starts, places[-1]


def _steps(octets: Bytes, first: int, end: int) -> list[int]:
    """Places from length to length, and at last the one that is `end` or beyond or has no length that can be."""
    data = octets.data
    unpack = _SIZE.unpack_from
    places = [first]
    add = places.append
    position = first
    while position < end:
        (size,) = unpack(data, position)
        if size < RECORD_BYTES_MIN:
            break
        position += size
        add(position)
    return places
