"""Frames of HTTP/2 and what gRPC puts into them: numbers, and how they are written.

    length:3 type:1 flags:1 stream:4 payload:length

Header blocks of answers are constant: `:status 200`, `content-type application/grpc`, then `grpc-status`.
"""

from struct import Struct
from typing import Final

from cometmq.errors import WireError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
PADDED: Final = 8
HAS_PRIORITY: Final = 32

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
FLOW_CONTROL_ERROR: Final = 3
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

# Of gRPC.
OK: Final = 0
CANCELLED: Final = 1
INVALID_ARGUMENT: Final = 3
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

MESSAGE: Final = 0
ENDED: Final = 1
RESET: Final = 2

FRAME_BYTES_MAX: Final = 16_384

HEAD: Final = Struct(">HBBBI")
# :status 200, content-type application/grpc
RESPONSE: Final = b"\x88\x0f\x10\x10application/grpc"
TRAILERS: Final = b"\x00\x0bgrpc-status\x010"
_SAFE: Final = frozenset(range(0x20, 0x7F)) - {0x25}


class Http2Error(WireError):
    """The connection is at its end; `code` is that of GOAWAY."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code: int = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def message_length(payload: bytes) -> int:
    return payload[1] << 24 | payload[2] << 16 | payload[3] << 8 | payload[4]


def unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise Http2Error(PROTOCOL_ERROR, "a frame has more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def refusal(status: int, text: str) -> bytes:
    number = str(status).encode()
    parts = [b"\x00\x0bgrpc-status", bytes((len(number),)), number]
    if text:
        message = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in text[:300].encode()).encode()
        parts += [b"\x00\x0cgrpc-message", _text_length(len(message)), message]
    return b"".join(parts)


def _text_length(size: int) -> bytes:
    if size < 127:
        return bytes((size,))
    rest = size - 127
    found = bytearray((127,))
    while rest >= 128:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)
