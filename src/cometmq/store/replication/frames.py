"""The bytes on a replication connection. There is no greeting; either side speaks when it has something to say.

    replica -> master   | offset i64 |                                 "I have the log up to here"
    master -> replica   | offset i64 | length i32 | length bytes |     raw bytes of the log from `offset` on;
                                                                       length 0: nothing new, I am alive

A frame lies within one segment of the master and may cut a record anywhere. Both directions may arrive in any pieces;
of several reports that arrive together the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from cometmq.errors import WireError

REPORT: Final = Struct(">q")
HEADER: Final = Struct(">qi")
REPORT_BYTES: Final = REPORT.size
HEADER_BYTES: Final = HEADER.size


class Reports:
    """Pieces of what a replica sends -> its reports."""

    def __init__(self) -> None:
        self._rest: bytes = b""

    def feed(self, data: bytes) -> int | None:
        """The last whole report, if there is one. WireError: it is no offset."""
        data = self._rest + data
        end = len(data) // REPORT_BYTES * REPORT_BYTES
        self._rest = data[end:]
        if not end:
            return None
        offset: int = REPORT.unpack_from(data, end - REPORT_BYTES)[0]
        if offset < 0:
            raise WireError(f"a replica reports offset {offset}, which is below 0")
        return offset


class Frames:
    """Pieces of what a master sends -> (offset, bytes) as they arrive; a heartbeat has no bytes.

    A frame is not gathered: its bytes are handed on piece by piece, so its length costs no memory.
    """

    def __init__(self, bytes_max: int) -> None:
        # Of the frame under way, or the last one: its length, what comes next, how much of it is still to come.
        self.length: int = 0
        self.offset: int = 0
        self.left: int = 0
        self._bytes_max: int = bytes_max
        self._header: bytearray = bytearray()

    def feed(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """WireError: a header that cannot be one. Slices of `data` are valid until it is."""
        at = 0
        while at < len(data):
            if not self.left:
                missing = HEADER_BYTES - len(self._header)
                self._header += data[at : at + missing]
                at += missing
                if len(self._header) < HEADER_BYTES:
                    return
                self._begin()
                if not self.left:
                    yield self.offset, data[:0]
                continue
            piece = data[at : at + self.left]
            offset = self.offset
            at += len(piece)
            self.skip(len(piece))
            yield offset, piece

    @property
    def header_bytes_left(self) -> int:
        """How much of the next header is still to come."""
        return HEADER_BYTES - len(self._header)

    def skip(self, count: int) -> None:
        """So many bytes of the frame under way were taken; `feed` goes on behind them."""
        self.offset += count
        self.left -= count

    def _begin(self) -> None:
        self.offset, self.length = HEADER.unpack(self._header)
        self.left = self.length
        self._header.clear()
        if self.offset < 0 or not 0 <= self.left <= self._bytes_max:
            raise WireError(
                f"a frame of {self.left} bytes at offset {self.offset}: a frame has 0 to {self._bytes_max} bytes "
                "(mappedFileSizeCommitLog of this replica)"
            )
