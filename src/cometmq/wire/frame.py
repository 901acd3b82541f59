"""Cutting a byte stream into commands.

Feed whatever the socket gave, get the commands that became complete:

    splitter = FrameSplitter()
    for command in splitter.feed(chunk): ...

Whole frames inside one chunk are decoded where they lie; only a frame that spans chunks is collected, so memory
follows the bytes that arrived and never the length that a peer announced. Large chunks are kept as they came, and a
body is joined from them once; small ones are gathered, so that a peer that drips costs no more than its bytes.

The first malformed frame is final: the stream has no way to find the next one. Commands before it in the same chunk
are still returned, `broken` then says what is wrong, and a `feed` that has nothing to return raises it as `WireError`,
as does every later one.
"""

from typing import Final

from cometmq.errors import WireError
from cometmq.wire.command import HEADER_BYTES_MAX, Command, decode
from cometmq.wire.integers import COMPILED, u32_at

FRAME_BYTES_MAX: Final = 16_777_216
# From this on a chunk is kept by itself.
_CHUNK_BYTES_LARGE: Final = 16_384


class FrameSplitter:
    """One per connection."""

    __slots__ = (
        "_frame_bytes_max", "_header_bytes_max", "_chunks", "_pending", "_pending_bytes", "_needed_bytes", "broken",
    )  # fmt: skip

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_BYTES_MAX) -> None:
        self._frame_bytes_max: int = frame_bytes_max
        self._header_bytes_max: int = header_bytes_max
        # What there is of a frame that is not complete: large chunks, and behind them what is gathered.
        self._chunks: list[bytes] = []
        self._pending: bytearray = bytearray()
        self._pending_bytes: int = 0
        self._needed_bytes: int = 0
        self.broken: str | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return self._pending_bytes

    def feed(self, data: bytes) -> list[Command]:
        """The commands that `data` completed, in order."""
        if self.broken is not None:
            raise WireError(f"stream is already broken: {self.broken}")
        commands: list[Command] = []
        try:
            if self._pending_bytes:
                self._hold(data)
                if self._pending_bytes < self._needed_bytes:
                    return []
                data = self._completed(commands)
            self._split(data, commands)
        except WireError as error:
            self.broken = str(error)
            if not commands:
                raise
        return commands

    def _split(self, data: bytes, commands: list[Command]) -> None:
        position = 0
        size = len(data)
        while size - position >= 4:
            length = u32_at(data, position) if COMPILED else int.from_bytes(data[position : position + 4], "big")
            if length + 4 > self._frame_bytes_max or length < 4:
                raise WireError(
                    f"frame length word is {length:#010x}, a frame has 4 to {self._frame_bytes_max - 4} bytes after it"
                )
            end = position + 4 + length
            if end > size:
                self._keep(data, position, 4 + length)
                return
            commands.append(decode(data, position + 4, end, self._header_bytes_max))
            position = end
        if position < size:
            self._keep(data, position, 4)

    def _keep(self, data: bytes, position: int, needed_bytes: int) -> None:
        self._needed_bytes = needed_bytes
        self._hold(data[position:])

    def _hold(self, data: bytes) -> None:
        self._pending_bytes += len(data)
        if len(data) < _CHUNK_BYTES_LARGE:
            self._pending += data
        else:
            self._end_gathering()
            self._chunks.append(data)

    def _end_gathering(self) -> None:
        if self._pending:
            self._chunks.append(bytes(self._pending))
            self._pending = bytearray()

    def _completed(self, commands: list[Command]) -> bytes:
        """Take the frame that is held, if its head is in the first chunk; what is to be split yet."""
        self._end_gathering()
        chunks = self._chunks
        needed_bytes = self._needed_bytes
        left = self._pending_bytes - needed_bytes
        self._chunks = []
        self._pending_bytes = 0
        first = chunks[0]
        if len(chunks) == 1 or len(first) < 8:
            return b"".join(chunks)
        body_start = 8 + int.from_bytes(first[5:8], "big")
        if body_start > len(first) or body_start > needed_bytes:
            return b"".join(chunks)
        command = decode(first, 4, body_start, self._header_bytes_max)
        last = chunks[-1]
        inside = len(last) - left
        command.body = b"".join((memoryview(first)[body_start:], *chunks[1:-1], memoryview(last)[:inside]))
        commands.append(command)
        return last[inside:]
