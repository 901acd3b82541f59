"""Cuts what a master sends at the ends of records, so that a replica's log always ends with a whole one.

    pieces    | record | rec|ord | record | blank ........... |
    passed on | record |    | record | record | blank .. as it comes

The start of a record is held back until its rest is there. A replica that lost power with half a record on its disk
could not tell it from a damaged one; and whoever takes over begins with a log that needs no cut.

A blank record is as long as the rest of its segment and all zeros, so it passes as it comes. So does what looks like no
record at all, up to the end of the segment: a replica has the bytes of its master, whatever they are.

Segments of both must have the same length. If they do not, a blank record ends elsewhere or a record does not fit,
and nothing of it is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from cometmq.errors import StoreError
from cometmq.wire.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2

_START: Final = Struct(">ii")
_START_BYTES: Final = _START.size
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
# A record that claims to be longer than any broker takes is not waited for.
HELD_BYTES_MAX: Final = 64 << 20


class WholeRecords:
    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes: int = segment_bytes
        # The start of a record, where it lies, and how much of it must be there before something can be said.
        self._held: bytearray = bytearray()
        self._held_at: int = 0
        self._wanted: int = 0
        # Up to this offset everything passes.
        self._through: int = 0

    def feed(self, offset: int, piece: memoryview) -> Iterator[tuple[int, bytes | memoryview]]:
        """(offset, bytes) to append, in order; `piece` follows on what was fed before."""
        while len(piece):
            if self._held:
                count = min(len(piece), self._wanted - len(self._held))
                self._held += piece[:count]
                if len(self._held) == self._wanted and self._is_decided():
                    yield self._held_at, bytes(self._held)
                    self._held.clear()
            else:
                count = min(len(piece), self._through - offset) if offset < self._through else 0
                count = count or self._measure(offset, piece)
                if count:
                    yield offset, piece[:count]
                elif offset >= self._through:
                    self._held += piece
                    self._held_at = offset
                    self._wanted = max(_START_BYTES, len(piece))
                    if len(piece) >= _START_BYTES:
                        self._is_decided()
                    return
            offset += count
            piece = piece[count:]

    def _is_decided(self) -> bool:
        """Whether what is held may pass, now that as much of it as was wanted is there."""
        size = self._size(self._held_at, self._held, 0)
        self._wanted = max(size, len(self._held))
        return self._wanted == len(self._held)

    def _measure(self, offset: int, piece: memoryview) -> int:
        """How many bytes of `piece` are whole records. `_size` for many: inlined, this takes half the time."""
        unpack = _START.unpack_from
        room = self._segment_bytes - offset % self._segment_bytes
        end = len(piece)
        at = 0
        while at + _START_BYTES <= end:
            size, magic = unpack(piece, at)
            if magic not in _MAGICS or not _START_BYTES < size <= min(room - at, HELD_BYTES_MAX):
                self._pass(offset + at, size, magic)
                break
            if at + size > end:
                break
            at += size
        return at

    def _size(self, offset: int, data: bytearray | memoryview, at: int) -> int:
        """Of the record that starts there; 0 if everything up to the end of its segment is to pass."""
        size: int
        size, magic = _START.unpack_from(data, at)
        room = self._segment_bytes - offset % self._segment_bytes
        if magic in _MAGICS and _START_BYTES < size <= min(room, HELD_BYTES_MAX):
            return size
        self._pass(offset, size, magic)
        return 0

    def _pass(self, offset: int, size: int, magic: int) -> None:
        """Let everything pass from here to the end of the segment."""
        room = self._segment_bytes - offset % self._segment_bytes
        if (magic == MAGIC_BLANK and size != room) or (magic in _MAGICS and size > room):
            raise StoreError(
                f"the record of {size} bytes at offset {offset} does not fit where its segment has {room} left: "
                f"mappedFileSizeCommitLog={self._segment_bytes} is not the master's; set it and empty this store"
            )
        self._through = offset + room
