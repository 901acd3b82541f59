"""The client's side of HTTP/2 for tests, without I/O: what it writes, and the frames that it reads."""

from dataclasses import dataclass, field

from cometmq.wire.http2 import frames as h2
from cometmq.wire.http2.frames import PREFACE
from cometmq.wire.http2.session import Session

PATH = "/apache.rocketmq.v2.MessagingService/"
WANTED = frozenset((b":path", b"content-type", b"grpc-timeout", b"x-mq-client-id"))


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


def header_block(headers: dict[str, str]) -> bytes:
    """Every field spelled out, none added to a table."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers.items())


def _text(text: str) -> bytes:
    raw = text.encode()
    if len(raw) < 127:
        return bytes((len(raw),)) + raw
    rest, size = len(raw) - 127, bytearray((127,))
    while rest >= 128:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes(size) + bytes((rest,)) + raw


def prefixed(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4, "big") + message


def call_headers(rpc: str, **more: str) -> dict[str, str]:
    fields = {":method": "POST", ":scheme": "http", ":path": PATH + rpc, "te": "trailers",
              "content-type": "application/grpc", "x-mq-client-id": "c1"}  # fmt: skip
    return fields | {name.replace("_", "-"): value for name, value in more.items()}


def call(stream_id: int, rpc: str, message: bytes = b"", **more: str) -> bytes:
    """A whole call with one message, cut into frames as it must be."""
    parts = [frame(h2.HEADERS, h2.END_HEADERS, stream_id, header_block(call_headers(rpc, **more)))]
    data = prefixed(message)
    for start in range(0, len(data), h2.FRAME_BYTES_MAX):
        piece = data[start : start + h2.FRAME_BYTES_MAX]
        flags = h2.END_STREAM if start + len(piece) == len(data) else 0
        parts.append(frame(h2.DATA, flags, stream_id, piece))
    return b"".join(parts)


GREETING = PREFACE + frame(h2.SETTINGS, 0, 0) + frame(h2.SETTINGS, h2.ACK, 0)


@dataclass
class Frames:
    """What a server has written, cut into (kind, flags, stream, payload)."""

    rest: bytes = b""
    all: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    def feed(self, data: bytes) -> list[tuple[int, int, int, bytes]]:
        self.rest += data
        found = []
        while len(self.rest) >= 9:
            size = int.from_bytes(self.rest[:3], "big")
            if len(self.rest) < 9 + size:
                break
            head = self.rest
            found.append((head[3], head[4], int.from_bytes(head[5:9], "big"), head[9 : 9 + size]))
            self.rest = self.rest[9 + size :]
        self.all += found
        return found

    def data(self, stream_id: int) -> bytes:
        return b"".join(payload for kind, _, of, payload in self.all if kind == h2.DATA and of == stream_id)

    def messages(self, stream_id: int) -> list[bytes]:
        data, found = self.data(stream_id), []
        while len(data) >= 5:
            size = int.from_bytes(data[1:5], "big")
            if len(data) < 5 + size:
                break
            found.append(data[5 : 5 + size])
            data = data[5 + size :]
        return found

    def trailers(self, stream_id: int) -> bytes | None:
        for kind, flags, of, payload in self.all:
            if kind == h2.HEADERS and of == stream_id and flags & h2.END_STREAM:
                return payload
        return None

    def has(self, kind: int) -> bool:
        return any(it[0] == kind for it in self.all)


def new_session(message_bytes_max: int = 4 << 20) -> Session:
    return Session(WANTED, message_bytes_max)
