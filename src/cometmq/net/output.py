"""What is to be written to one socket.

Parts are collected and leave in one write: all answers of a chunk of input together, everything else once per turn of
the event loop. Large bodies stay parts of their own and are not copied.

When the transport holds more than its high mark the output is `blocked` until the peer has read enough. How much it
takes meanwhile tells a slow reader from a stopped one.
"""

from typing import Any, Final

from cometmq.net.kernel import unacknowledged_bytes
from cometmq.net.tls import TlsSession

# Up to this, joining the parts is cheaper than handing them over one by one.
JOIN_BYTES_MAX: Final = 262_144


class Output:
    """Nothing leaves before `is_open`; after `close` nothing is taken."""

    __slots__ = (
        "tls", "is_open", "parts", "size_bytes", "written_bytes", "blocked",
        "_transport", "_blocked_since_s", "_blocked_delivered_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tls: TlsSession | None = None
        self.is_open: bool = False
        self.parts: list[bytes] = []
        self.size_bytes: int = 0
        self.written_bytes: int = 0
        self.blocked: bool = False
        self._transport: Any = None
        self._blocked_since_s: float = 0.0
        self._blocked_delivered_bytes: int = 0

    def attach(self, transport: Any, high_bytes: int) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=high_bytes)

    def put(self, part: bytes) -> None:
        self.parts.append(part)
        self.size_bytes += len(part)

    def flush(self) -> int:
        """Hand over what was put; returns how many bytes."""
        parts = self.parts
        if not parts or not self.is_open:
            return 0
        size_bytes = self.size_bytes
        self.parts = []
        self.size_bytes = 0
        if self.tls is not None:
            self.tls.write(b"".join(parts))
            self.write(self.tls.take())
        elif len(parts) == 1:
            self.write(parts[0])
        elif size_bytes <= JOIN_BYTES_MAX:
            self.write(b"".join(parts))
        else:
            self.written_bytes += size_bytes
            self._transport.writelines(parts)
        return size_bytes

    def write(self, data: bytes) -> None:
        """Past all that was put: for what a TLS session says on its own account."""
        if data and self._transport is not None:
            self.written_bytes += len(data)
            self._transport.write(data)

    def close(self) -> None:
        self.is_open = False
        self.parts = []
        self.size_bytes = 0

    def detach(self) -> None:
        self.close()
        self._transport = None
        self.blocked = False

    # A peer that does not read

    def block(self, now_s: float) -> None:
        self.blocked = True
        self._blocked_since_s = now_s
        self._blocked_delivered_bytes = self._delivered_bytes()

    @property
    def blocked_bytes(self) -> int:
        """What waits here while the output is blocked."""
        if not self.blocked or self._transport is None:
            return 0
        size_bytes: int = self._transport.get_write_buffer_size()
        return size_bytes

    def cost(self, now_s: float) -> float:
        """Bytes that wait, times the seconds since they had to."""
        return self.blocked_bytes * (now_s - self._blocked_since_s + 1)

    def is_too_slow(self, now_s: float, grace_s: float, bytes_per_s_min: int) -> bool:
        """Whether a blocked peer has taken too little since it blocked."""
        if not self.blocked:
            return False
        age_s = now_s - self._blocked_since_s
        taken_bytes = self._delivered_bytes() - self._blocked_delivered_bytes
        return age_s >= grace_s and taken_bytes < age_s * bytes_per_s_min

    def _delivered_bytes(self) -> int:
        if self._transport is None:
            return self.written_bytes
        size_bytes: int = self._transport.get_write_buffer_size()
        return self.written_bytes - size_bytes - unacknowledged_bytes(self._transport)
