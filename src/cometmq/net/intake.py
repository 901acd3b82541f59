"""What one socket gives, turned into commands.

    accepted:  [ PROXY header ]  0x16 -> TLS session -> frames
                                 else -------------> frames
    dialled:   TLS session, if the client uses TLS -> frames

No I/O: bytes go in, commands come out, and a TLS session keeps what it has to say for the connection to write. The
pace of an incomplete frame is judged from what is held, at moments that the sweep chooses, so receiving needs no clock.
"""

from cometmq.errors import WireError
from cometmq.net.opening import TLS_FIRST_BYTE, Opening
from cometmq.net.proxy_protocol import ProxyHeader
from cometmq.net.tls import ServerTls, TlsSession
from cometmq.wire.command import ANSWER_HEADER_BYTES_MAX, HEADER_BYTES_MAX, Command
from cometmq.wire.frame import FrameSplitter


class Intake:
    """`ready` once frames can follow; `partial_bytes` are those held of an incomplete frame."""

    __slots__ = (
        "ready", "tls", "header", "frames", "partial_bytes",
        "_frame_bytes_max", "_header_bytes_max", "_gate", "_opening", "_splitter", "_since_s", "_since_frames",
    )  # fmt: skip

    def __init__(self, frame_bytes_max: int, accepted: bool, gate: ServerTls | None, tls: TlsSession | None) -> None:
        self.ready: bool = not accepted and tls is None
        self.tls: TlsSession | None = tls
        self.header: ProxyHeader | None = None
        self.frames: int = 0
        self.partial_bytes: int = 0
        self._frame_bytes_max: int = frame_bytes_max
        # Long headers are answers to what we have asked.
        self._header_bytes_max: int = HEADER_BYTES_MAX if accepted else ANSWER_HEADER_BYTES_MAX
        self._gate: ServerTls | None = gate
        self._opening: Opening | None = None
        self._splitter: FrameSplitter | None = None
        self._since_s: float = -1.0
        self._since_frames: int = 0

    def feed(self, data: bytes) -> list[Command]:
        """The commands that became complete. Raises WireError, once: nothing that follows has a meaning."""
        if not self.ready or self.tls is not None:
            data = self.unwrap(data)
            if not data:
                return []
        splitter = self._splitter
        if splitter is None:
            splitter = FrameSplitter(self._frame_bytes_max, self._header_bytes_max)
            self._splitter = splitter
        commands = splitter.feed(data)
        self.frames += len(commands)
        self.partial_bytes = splitter.pending_bytes
        return commands

    @property
    def broken(self) -> str | None:
        """What was wrong behind the commands that `feed` returned last."""
        return self._splitter.broken if self._splitter is not None else None

    def unwrap(self, data: bytes) -> bytes:
        """What lies inside PROXY header and TLS; nothing while more is needed. For whoever reads no frames, too."""
        tls = self.tls
        if tls is None:
            if self._opening is None:
                self._opening = Opening()
            data = self._opening.feed(data)
            if not data:
                return b""
            self.header = self._opening.header
            tls = self._admit(data[0] == TLS_FIRST_BYTE)
            self.tls = tls
            self._opening = None
        if tls is None:
            self.ready = True
            return data
        plain: bytes = tls.feed(data)
        self.ready = tls.ready
        return plain

    def _admit(self, secure: bool) -> TlsSession | None:
        if self._gate is not None:
            return self._gate.admit(secure)
        if secure:
            raise WireError("TLS connection, but TLS is not set up")
        return None

    def cost(self, now_s: float) -> float:
        """Bytes held of an incomplete frame, times the seconds they have been held."""
        return self.partial_bytes * (now_s - self._since_s + 1 if self._since_s >= 0 else 1)

    def is_too_slow(self, now_s: float, grace_s: float, bytes_per_s_min: int) -> bool:
        """Whether the frame that is arriving has averaged too little since it was first seen incomplete."""
        if self.partial_bytes == 0:
            self._since_s = -1.0
            return False
        if self._since_s < 0 or self.frames != self._since_frames:
            self._since_s = now_s
            self._since_frames = self.frames
            return False
        age_s = now_s - self._since_s
        return age_s >= grace_s and self.partial_bytes < age_s * bytes_per_s_min

    def forgive(self) -> None:
        """We were the ones who did not read: the pace is judged anew."""
        self._since_s = -1.0

    def drop(self) -> None:
        """Let go of what is held; nothing more will be fed."""
        self._opening = None
        self._splitter = None
        self.partial_bytes = 0
