"""Tag codes of many messages at once: what the units of their queues must have.

    ... 02 T A G S 01 v a l u e 02 ...      properties of all rows, packed one after the other
              ^ at        ^ value_at    ^ value_end

A name begins its row or follows a 02. As in `wire.properties`, an empty value does not count and the last of several
does. Each distinct tag is hashed once; 0 is the code of a message without a tag.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from cometmq.spark.decode import ranges
from cometmq.spark.stores.record_starts import Bytes, Ints
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.properties import Property

_NAME: Final = str(Property.TAGS).encode()
_WORD: Final = int.from_bytes(_NAME, "little")


def tag_codes(texts: pa.Array) -> Ints:
    """`texts`: the properties of each row as bytes, without nulls."""
    codes: Ints = np.zeros(len(texts), np.int64)
    _, offsets, data = texts.buffers()
    if data is None or data.size < len(_NAME) + 1:
        return codes
    bounds: Ints = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    packed: Bytes = np.frombuffer(data, np.uint8)
    at = _names_at(packed)
    row = np.searchsorted(bounds, at, side="right") - 1
    inside = (at >= bounds[0]) & (at + len(_NAME) < bounds[np.minimum(row + 1, len(texts))])
    inside &= (at == bounds[row]) | (packed[at - 1] == 2)
    at, row = at[inside], row[inside]
    value_at = at + len(_NAME) + 1
    closes = np.append(np.flatnonzero(packed == 2), len(packed))
    value_end = np.minimum(closes[np.searchsorted(closes, value_at)], bounds[row + 1])
    there = value_end > value_at
    values = ranges(data, value_at[there], value_end[there], pa.binary()).dictionary_encode()
    hashes = [java_string_hash(str(value, "utf-8", "replace")) for value in values.dictionary.to_pylist()]
    codes[row[there]] = np.array(hashes, np.int64)[values.indices.to_numpy()]
    return codes


def _names_at(packed: Bytes) -> Ints:
    """Where `TAGS` stands before a 01. Few bytes are a 01: five times as fast as a look at every four bytes."""
    ones = np.flatnonzero(packed == 1)
    before = ones[ones >= len(_NAME)] - len(_NAME)
    words = np.ndarray((len(packed) - len(_NAME),), "<u4", packed, 0, (1,))
    found: Ints = before[words[before] == _WORD]
    return found
