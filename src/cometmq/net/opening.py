"""The first bytes of an accepted connection.

    [ PROXY header ]  then  0x16 ...            TLS
                            anything else       remoting frames

Twelve bytes are awaited before anything is decided, as RocketMQ does; every frame, every TLS hello and every PROXY
header is longer. There is no ambiguity: a frame that begins like one of the others would be over 200 MB long.
"""

from cometmq.net.proxy_protocol import ProxyHeader, announces_header, read_header

DECISION_BYTES = 12
TLS_FIRST_BYTE = 0x16


class Opening:
    """Collects bytes until it is clear what follows. `header` is the PROXY header, if there was one."""

    __slots__ = ("_held", "header")

    def __init__(self) -> None:
        self._held = b""
        self.header: ProxyHeader | None = None

    def feed(self, data: bytes) -> bytes:
        """What follows the PROXY header, at least one byte of it; nothing while more is needed."""
        self._held += data
        if self.header is None and len(self._held) < DECISION_BYTES:
            return b""
        if self.header is None and announces_header(self._held):
            self.header = read_header(self._held)
            if self.header is None:
                return b""
            self._held = self._held[self.header.size_bytes :]
        rest, self._held = self._held, b""
        return rest
