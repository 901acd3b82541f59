"""Cutting a byte stream into commands.

Feed whatever the socket gave, get the commands that became complete:

    splitter = FrameSplitter()
    for command in splitter.feed(chunk): ...

Whole frames inside one chunk are decoded where they lie; only a frame that spans chunks is collected, so memory
follows the bytes that arrived and never the length that a peer announced. The first malformed frame is final: the
stream has no way to find the next one. Commands before it in the same chunk are still returned, `broken` then says
what is wrong, and a `feed` that has nothing to return raises it as `WireError`, as does every later one.
"""

from typing import Final

from cometmq.errors import WireError
from cometmq.wire.command import Command, decode
from cometmq.wire.integers import COMPILED, u32_at

FRAME_BYTES_MAX: Final = 16_777_216


class FrameSplitter:
    """One per connection."""

    __slots__ = ("_frame_bytes_max", "_pending", "_needed_bytes", "broken")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max: int = frame_bytes_max
        self._pending: bytearray = bytearray()
        self._needed_bytes: int = 0
        self.broken: str | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Command]:
        """The commands that `data` completed, in order."""
        if self.broken is not None:
            raise WireError(f"stream is already broken: {self.broken}")
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed_bytes:
                return []
            data = bytes(self._pending)
            self._pending = bytearray()
        commands: list[Command] = []
        try:
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
            commands.append(decode(data, position + 4, end))
            position = end
        if position < size:
            self._keep(data, position, 4)

    def _keep(self, data: bytes, position: int, needed_bytes: int) -> None:
        self._pending = bytearray(data[position:])
        self._needed_bytes = needed_bytes
