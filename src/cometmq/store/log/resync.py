"""Damaged places of the commit log: how to find the next record behind one.

Records do not mark where they begin, so behind a place that cannot be read the next record is searched by its magic.
A candidate counts only if it says itself that it lies where it was found, adds up, and matches its CRC; bytes of a body
that look like a record do not pass, for a copied record says where it lay before.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from cometmq.store.disk import PAGE_BYTES
from cometmq.store.log.segments import Segment
from cometmq.wire.record.layout import MAGIC_AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from cometmq.wire.record.scan import OK, scan_record

_MAGICS: Final = tuple((magic & 0xFFFFFFFF).to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
_SIZE: Final = Struct(">i")
_BLOCK_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_BLOCK_BYTES)


class Damage(NamedTuple):
    """Bytes of the log that are no record, from `start` to `end` (physical offsets), and what is wrong at `start`."""

    start: int
    end: int
    reason: str


def next_record(segment: Segment, position: int, limit: int) -> int:
    """The first position behind `position` where a record or the blank at the end lies; -1 if there is none."""
    view = segment.view()
    at = position + 1
    # What was never written is passed over as a hole, unless reading ahead has filled it with pages of zeros.
    segment.file.forget(at - at % PAGE_BYTES)
    while at + MAGIC_AT < limit:
        data_at = segment.file.next_data(at)
        if data_at is None:
            break
        at = max(at, data_at - MAGIC_AT)
        # Not through the map: a fault for every page of zeros behind the end would take five times as long.
        block = segment.file.pread(at, min(_BLOCK_BYTES, limit - at))
        candidates = _candidates(block)
        for found in candidates:
            if at + found - MAGIC_AT > position and _is_record(segment, view, at + found - MAGIC_AT, limit):
                return at + found - MAGIC_AT
        # Blocks overlap, so that a magic on their border is not missed.
        at += max(1, len(block) - 3)
        if not candidates:
            # From the start of its page on, or that page would count as data.
            segment.file.forget(at - at % PAGE_BYTES)
        if len(block) < 4:
            break
    return -1


def _candidates(block: bytes) -> list[int]:
    found: list[int] = []
    # Compiled, a slice of all would be a copy.
    if block == (_ZEROS if len(block) == len(_ZEROS) else bytes(len(block))):
        return found
    for magic in _MAGICS:
        at = block.find(magic)
        while at >= 0:
            found.append(at)
            at = block.find(magic, at + 1)
    return sorted(found)


def _is_record(segment: Segment, view: memoryview, position: int, limit: int) -> bool:
    if bytes(view[position + MAGIC_AT : position + MAGIC_AT + 4]) == _MAGICS[2]:
        (size,) = _SIZE.unpack_from(view, position)
        return bool(size == segment.size - position)
    scan = scan_record(view, position, limit, True)
    return scan.kind == OK and scan.physical_offset == segment.start + position
