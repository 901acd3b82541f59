"""One HTTP/2 connection of a gRPC server, without I/O: bytes go in, calls come out, and what is to be written.

    a call      HEADERS [CONTINUATION]  DATA ...   the last one with END_STREAM
    its answer  HEADERS  DATA ...  HEADERS with grpc-status and END_STREAM
    a message   compressed:1 (0) length:4 bytes, across DATA frames as it likes

`feed` gives events: (MESSAGE, stream, bytes), (ENDED, stream, b"") when the client has said all, (RESET, stream, b"")
when it has given the call up. What must be written is collected in `out`.

Every stream that the peer opens, every byte that it makes us hold, and how many frames without work it may send between
two `calm`s has a bound below. Crossing one, like anything malformed, raises Http2Error: GOAWAY with its code, and the
end. What is wrong with one call only is answered by trailers.

It has no clock, and does not know what a call is about. Answers are uncompressed; compressed messages are refused.
"""

from collections import deque
from struct import Struct
from typing import Final

from cometmq.errors import WireError
from cometmq.wire.http2.frames import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENDED,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_BYTES_MAX,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEAD,
    HEADERS,
    INTERNAL,
    MESSAGE,
    NO_ERROR,
    OK,
    PADDED,
    PING,
    PREFACE,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RESET,
    RESOURCE_EXHAUSTED,
    RESPONSE,
    RST_STREAM,
    SETTINGS,
    TRAILERS,
    UNIMPLEMENTED,
    WINDOW_UPDATE,
    Http2Error,
    frame,
    message_length,
    refusal,
    unpadded,
)
from cometmq.wire.http2.hpack import HeaderDecoder

STREAMS_MAX: Final = 1_024
RECEIVE_WINDOW: Final = 1 << 20
FIRST_WINDOW: Final = 65_535
WINDOW_MAX: Final = (1 << 31) - 1
STREAM_ID_MAX: Final = (1 << 31) - 1
HEADER_LIST_BYTES: Final = 8_192
HEADER_BLOCK_BYTES_MAX: Final = 16_384
CONTINUATIONS_MAX: Final = 8
# All parts of messages that one connection makes us hold.
PARTIAL_BYTES_MAX: Final = 64 << 20
GOAWAY_TEXT_CHARS_MAX: Final = 200
# Between two calls of `calm`, a second apart.
RESETS_MAX: Final = 1_000
# grpc-go, grpc-core and grpc-java measure a path that brings them data by PINGs, one after the other: on one machine
# thousands a second.
PINGS_MAX: Final = 20_000
SETTINGS_MAX: Final = 20
EMPTY_MAX: Final = 1_000
CONTROL_MAX: Final = 50_000

_PREFIX: Final = Struct(">BI")
_WORD: Final = Struct(">I")
_WORDS: Final = Struct(">II")
_SETTING: Final = Struct(">HI")

Event = tuple[int, "Stream", bytes]


class Stream:
    """A call. `owner` is whatever the server remembers about it."""

    __slots__ = (
        "id", "headers", "owner", "message", "ended", "answered", "closed", "window", "out", "trailers",
        "_part", "_part_bytes", "_received", "_credit", "_sent",
    )  # fmt: skip

    def __init__(self, stream_id: int, headers: dict[str, str], window: int) -> None:
        self.id: int = stream_id
        self.headers: dict[str, str] = headers
        self.owner: object = None
        self.message: bytes | None = None  # for whoever waits for the end of a call with one message
        self.ended: bool = False
        self.answered: bool = False  # the answer has begun
        self.closed: bool = False
        self.window: int = window
        self.out: deque[bytes] | None = None
        self.trailers: bytes | None = None
        self._part: bytearray | None = None
        self._part_bytes: int = 0
        self._received: int = RECEIVE_WINDOW
        self._credit: int = 0
        self._sent: int = 0  # of the first piece of `out`


class Session:
    """`partial_bytes`: held of messages that are not complete; `pending_bytes`: what waits for the peer's windows."""

    __slots__ = (
        "streams", "out", "partial_bytes", "pending_bytes", "message_bytes_max", "last_id", "leaving",
        "_decoder", "_rest", "_greeted", "_window", "_first_window", "_frame_bytes", "_received", "_credit",
        "_blocked", "_block", "_block_stream", "_block_flags", "_continuations", "_is_acked",
        "_resets", "_pings", "_settings", "_empty", "_control",
    )  # fmt: skip

    def __init__(self, wanted: frozenset[bytes], message_bytes_max: int) -> None:
        self.streams: dict[int, Stream] = {}
        self.out: list[bytes] = []
        self.partial_bytes: int = 0
        self.pending_bytes: int = 0
        self.message_bytes_max: int = message_bytes_max
        self.last_id: int = 0
        self.leaving: bool = False
        self._decoder: HeaderDecoder = HeaderDecoder(wanted)
        self._rest: bytes = b""
        self._greeted: bool = False
        self._window: int = FIRST_WINDOW
        self._first_window: int = FIRST_WINDOW
        self._frame_bytes: int = FRAME_BYTES_MAX
        self._received: int = RECEIVE_WINDOW
        self._credit: int = 0
        self._blocked: dict[int, Stream] = {}
        self._block: bytearray | None = None
        self._block_stream: int = 0
        self._block_flags: int = 0
        self._continuations: int = 0
        self._is_acked: bool = False
        self._resets: int = 0
        self._pings: int = 0
        self._settings: int = 0
        self._empty: int = 0
        self._control: int = 0
        settings = b"".join(
            [
                _SETTING.pack(1, 0),  # HEADER_TABLE_SIZE
                _SETTING.pack(3, STREAMS_MAX),
                _SETTING.pack(4, RECEIVE_WINDOW),
                _SETTING.pack(6, HEADER_LIST_BYTES),
            ]
        )
        self.out.append(frame(SETTINGS, 0, 0, settings))
        self.out.append(frame(WINDOW_UPDATE, 0, 0, _WORD.pack(RECEIVE_WINDOW - FIRST_WINDOW)))

    def take(self) -> bytes:
        """What must be written now."""
        out = self.out
        if not out:
            return b""
        self.out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def calm(self) -> None:
        """Called once a second: counts of frames that do no work begin anew."""
        self._resets = self._pings = self._settings = self._empty = self._control = 0

    # Reading

    def feed(self, data: bytes) -> list[Event]:
        """Raises Http2Error, once: nothing that follows has a meaning."""
        if self._rest:
            data = self._rest + data
        position = 0
        if not self._greeted:
            size = min(len(data), len(PREFACE))
            if data[:size] != PREFACE[:size]:
                raise Http2Error(PROTOCOL_ERROR, "this is not HTTP/2: the port serves gRPC")
            if size < len(PREFACE):
                self._rest = data
                return []
            self._greeted = True
            position = size
        events: list[Event] = []
        end = len(data)
        while end - position >= 9:
            length = data[position] << 16 | data[position + 1] << 8 | data[position + 2]
            if length > FRAME_BYTES_MAX:
                raise Http2Error(FRAME_SIZE_ERROR, f"frame of {length} bytes, at most {FRAME_BYTES_MAX} are allowed")
            start = position + 9
            if start + length > end:
                break
            stream_id = (
                (data[position + 5] & 0x7F) << 24
                | data[position + 6] << 16
                | data[position + 7] << 8
                | data[position + 8]
            )
            self._take_frame(data[position + 3], data[position + 4], stream_id, data[start : start + length], events)
            position = start + length
        self._rest = data[position:] if position < end else b""
        return events

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if self._block is not None and (kind != CONTINUATION or stream_id != self._block_stream):
            raise Http2Error(PROTOCOL_ERROR, "a header block is interrupted")
        if kind == DATA:
            self._data(flags, stream_id, payload, events)
        elif kind == HEADERS:
            self._headers(flags, stream_id, payload, events)
        elif kind == CONTINUATION:
            self._continue(flags, payload, events)
        else:
            self._control += 1
            if self._control > CONTROL_MAX:
                raise Http2Error(ENHANCE_YOUR_CALM, f"over {CONTROL_MAX} control frames in a second")
            if kind == WINDOW_UPDATE:
                self._window_update(stream_id, payload)
            elif kind == RST_STREAM:
                self._reset(stream_id, payload, events)
            elif kind == SETTINGS:
                self._take_settings(flags, stream_id, payload)
            elif kind == PING:
                self._ping(flags, stream_id, payload)
            elif kind == GOAWAY:
                self.leaving = True
            elif kind == PUSH_PROMISE:
                raise Http2Error(PROTOCOL_ERROR, "a client must not push")
            # PRIORITY and what is not known is passed over.

    def _data(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        size = len(payload)
        if stream_id == 0 or stream_id > self.last_id:
            raise Http2Error(PROTOCOL_ERROR, f"DATA for stream {stream_id}, which is not open")
        self._received -= size
        if self._received < 0:
            raise Http2Error(FLOW_CONTROL_ERROR, "DATA beyond the window of the connection")
        self._credit += size
        if self._credit >= RECEIVE_WINDOW // 2:
            self.out.append(frame(WINDOW_UPDATE, 0, 0, _WORD.pack(self._credit)))
            self._received += self._credit
            self._credit = 0
        stream = self.streams.get(stream_id)
        if size == 0 and not flags & END_STREAM:
            self._empty += 1
            if self._empty > EMPTY_MAX:
                raise Http2Error(ENHANCE_YOUR_CALM, f"over {EMPTY_MAX} empty DATA frames in a second")
        if stream is None or stream.ended:
            return  # of a call that is answered, given up or refused
        stream._received -= size
        if stream._received < 0:
            raise Http2Error(FLOW_CONTROL_ERROR, f"DATA beyond the window of stream {stream_id}")
        if flags & PADDED:
            payload = unpadded(payload)
        if payload:
            self._parts(stream, payload, events)
        if stream.closed:
            return
        if flags & END_STREAM:
            stream.ended = True
            if stream._part is not None:
                self.refuse(stream, INTERNAL, "the call ends within a message")
            else:
                events.append((ENDED, stream, b""))
            return
        stream._credit += size
        if stream._credit >= RECEIVE_WINDOW // 4:
            self.out.append(frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(stream._credit)))
            stream._received += stream._credit
            stream._credit = 0

    def _parts(self, stream: Stream, payload: bytes, events: list[Event]) -> None:
        """Cut messages. Nearly always the payload is exactly one."""
        if stream._part is None:
            size = len(payload)
            if size >= 5 and payload[0] == 0 and message_length(payload) == size - 5 <= self.message_bytes_max:
                events.append((MESSAGE, stream, payload[5:]))
                return
            stream._part = bytearray()
            stream._part_bytes = -1
        part = stream._part
        part += payload
        self.partial_bytes += len(payload)
        if self.partial_bytes > PARTIAL_BYTES_MAX:
            raise Http2Error(ENHANCE_YOUR_CALM, f"over {PARTIAL_BYTES_MAX} bytes of messages that are not complete")
        start = 0
        while True:
            if stream._part_bytes < 0:
                if len(part) - start < 5:
                    break
                if part[start] != 0:
                    self.refuse(stream, UNIMPLEMENTED, "compressed messages are not taken: use identity")
                    return
                stream._part_bytes = int.from_bytes(part[start + 1 : start + 5], "big")
                if stream._part_bytes > self.message_bytes_max:
                    text = f"a message of {stream._part_bytes} bytes, at most {self.message_bytes_max} are allowed"
                    self.refuse(stream, RESOURCE_EXHAUSTED, text)
                    return
            end = start + 5 + stream._part_bytes
            if len(part) < end:
                break
            events.append((MESSAGE, stream, bytes(part[start + 5 : end])))
            stream._part_bytes = -1
            start = end
        self.partial_bytes -= start
        if start == len(part):
            stream._part = None
        elif start:
            del part[:start]

    def _headers(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if stream_id == 0 or not stream_id & 1:
            raise Http2Error(PROTOCOL_ERROR, f"HEADERS for stream {stream_id}")
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise Http2Error(FRAME_SIZE_ERROR, "HEADERS end within their priority")
            payload = payload[5:]
        if flags & END_HEADERS:
            self._open(flags, stream_id, payload, events)
            return
        self._block = bytearray(payload)
        self._block_stream = stream_id
        self._block_flags = flags
        self._continuations = 0

    def _continue(self, flags: int, payload: bytes, events: list[Event]) -> None:
        block = self._block
        if block is None:
            raise Http2Error(PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._continuations += 1
        if self._continuations > CONTINUATIONS_MAX or len(block) + len(payload) > HEADER_BLOCK_BYTES_MAX:
            raise Http2Error(
                ENHANCE_YOUR_CALM,
                f"a header block of over {CONTINUATIONS_MAX} CONTINUATIONs or {HEADER_BLOCK_BYTES_MAX} bytes",
            )
        block += payload
        if flags & END_HEADERS:
            self._block = None
            self._open(self._block_flags, self._block_stream, bytes(block), events)

    def _open(self, flags: int, stream_id: int, block: bytes, events: list[Event]) -> None:
        try:
            headers = self._decoder.decode(block)
        except WireError as error:
            raise Http2Error(COMPRESSION_ERROR, str(error)) from None
        if stream_id <= self.last_id:
            stream = self.streams.get(stream_id)  # trailers, or of a call that is over
            if stream is not None and not stream.ended:
                if not flags & END_STREAM:
                    raise Http2Error(PROTOCOL_ERROR, "trailers that are not the end")
                stream.ended = True
                events.append((ENDED, stream, b""))
            return
        self.last_id = stream_id
        if len(self.streams) >= STREAMS_MAX:
            self._count_reset()  # who ignores the bound gets nothing done, and is gone soon
            self.out.append(frame(RST_STREAM, 0, stream_id, _WORD.pack(REFUSED_STREAM)))
            return
        stream = Stream(stream_id, headers, self._first_window)
        self.streams[stream_id] = stream
        if not headers.get("content-type", "").startswith("application/grpc"):
            self.refuse(stream, UNIMPLEMENTED, "the port serves gRPC: content-type is not application/grpc")
        elif flags & END_STREAM:
            stream.ended = True
            events.append((ENDED, stream, b""))

    def _reset(self, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4 or stream_id == 0 or stream_id > self.last_id:
            raise Http2Error(PROTOCOL_ERROR, "RST_STREAM of a stream that is not open")
        self._count_reset()
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._close(stream)
            events.append((RESET, stream, b""))

    def _count_reset(self) -> None:
        self._resets += 1
        if self._resets > RESETS_MAX:
            raise Http2Error(ENHANCE_YOUR_CALM, f"over {RESETS_MAX} calls given up or refused in a second")

    def _take_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id != 0 or len(payload) % 6:
            raise Http2Error(FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes for stream {stream_id}")
        if flags & ACK:
            if not self._is_acked:
                self._is_acked = True
                self._decoder.drop_table()
            return
        self._settings += 1
        if self._settings > SETTINGS_MAX:
            raise Http2Error(ENHANCE_YOUR_CALM, f"over {SETTINGS_MAX} SETTINGS in a second")
        for start in range(0, len(payload), 6):
            key = payload[start] << 8 | payload[start + 1]
            value = int.from_bytes(payload[start + 2 : start + 6], "big")
            if key == 4:
                if value > WINDOW_MAX:
                    raise Http2Error(FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value}")
                change = value - self._first_window
                self._first_window = value
                for stream in self.streams.values():
                    stream.window += change
                    if stream.window > WINDOW_MAX:
                        raise Http2Error(FLOW_CONTROL_ERROR, "the window of a stream is over 2^31-1")
            elif key == 5:
                if not FRAME_BYTES_MAX <= value < 1 << 24:
                    raise Http2Error(PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
                self._frame_bytes = value
        self.out.append(frame(SETTINGS, ACK, 0, b""))
        self._pump()

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id != 0 or len(payload) != 8:
            raise Http2Error(FRAME_SIZE_ERROR, "PING is not 8 bytes of the connection")
        if flags & ACK:
            return
        self._pings += 1
        if self._pings > PINGS_MAX:
            raise Http2Error(ENHANCE_YOUR_CALM, f"over {PINGS_MAX} PINGs in a second")
        self.out.append(frame(PING, ACK, 0, payload))

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(FRAME_SIZE_ERROR, "WINDOW_UPDATE is not 4 bytes")
        added = int.from_bytes(payload, "big") & WINDOW_MAX
        if added == 0:
            raise Http2Error(PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        if stream_id == 0:
            self._window += added
            if self._window > WINDOW_MAX:
                raise Http2Error(FLOW_CONTROL_ERROR, "the window of the connection is over 2^31-1")
        else:
            stream = self.streams.get(stream_id)
            if stream is None:
                return
            stream.window += added
            if stream.window > WINDOW_MAX:
                raise Http2Error(FLOW_CONTROL_ERROR, f"the window of stream {stream_id} is over 2^31-1")
        if self._blocked:
            self._pump()

    # Answering

    def answer(self, stream: Stream, message: bytes) -> None:
        """The whole answer of a call with one message."""
        if stream.closed:
            return
        size = len(message) + 5
        stream_id = stream.id
        if size <= FRAME_BYTES_MAX and size <= self._window and size <= stream.window and not stream.answered:
            self._window -= size
            self.out.append(
                b"".join(
                    (
                        HEAD.pack(0, len(RESPONSE), HEADERS, END_HEADERS, stream_id),
                        RESPONSE,
                        HEAD.pack(size >> 8, size & 0xFF, DATA, 0, stream_id),
                        _PREFIX.pack(0, size - 5),
                        message,
                        HEAD.pack(0, len(TRAILERS), HEADERS, END_HEADERS | END_STREAM, stream_id),
                        TRAILERS,
                    )
                )
            )
            self._over(stream)
            return
        self.send(stream, message)
        self.finish(stream)

    def send(self, stream: Stream, message: bytes) -> None:
        """One message of an answer."""
        if stream.closed or stream.trailers is not None:
            return
        if not stream.answered:
            stream.answered = True
            self.out.append(frame(HEADERS, END_HEADERS, stream.id, RESPONSE))
        out = stream.out
        if out is None:
            out = stream.out = deque()
        out.append(_PREFIX.pack(0, len(message)) + message)
        self.pending_bytes += len(message) + 5
        self._blocked[stream.id] = stream
        self._push(stream)

    def finish(self, stream: Stream, status: int = OK, text: str = "") -> None:
        """The end of an answer. Before any message: trailers only."""
        if stream.closed or stream.trailers is not None:
            return
        trailers = TRAILERS if status == OK else refusal(status, text)
        if not stream.answered:
            stream.answered = True
            trailers = RESPONSE + trailers
        stream.trailers = trailers
        self._push(stream)

    def refuse(self, stream: Stream, status: int, text: str) -> None:
        self.finish(stream, status, text)

    def is_blocked(self, stream: Stream) -> bool:
        """Whether something of its answer waits for a window."""
        return bool(stream.out)

    def _pump(self) -> None:
        for stream in list(self._blocked.values()):
            if self._window <= 0:
                return
            self._push(stream)

    def _push(self, stream: Stream) -> None:
        """Write as much as the windows allow."""
        out = stream.out
        while out:
            piece = out[0]
            start = stream._sent
            size = min(len(piece) - start, self._window, stream.window, self._frame_bytes)
            if size <= 0:
                return
            if start + size == len(piece):
                out.popleft()
                stream._sent = 0
            else:
                stream._sent = start + size
            if size < len(piece):
                piece = piece[start : start + size]
            self._window -= size
            stream.window -= size
            self.pending_bytes -= size
            self.out.append(HEAD.pack(size >> 8, size & 0xFF, DATA, 0, stream.id))
            self.out.append(piece)
        self._blocked.pop(stream.id, None)
        if stream.trailers is not None:
            self.out.append(frame(HEADERS, END_HEADERS | END_STREAM, stream.id, stream.trailers))
            self._over(stream)

    def _over(self, stream: Stream) -> None:
        """Our side has said all; a client that has not is told that nobody listens."""
        if not stream.ended:
            self.out.append(frame(RST_STREAM, 0, stream.id, _WORD.pack(NO_ERROR)))
        self._close(stream)

    def _close(self, stream: Stream) -> None:
        stream.closed = True
        if stream.out:
            for piece in stream.out:
                self.pending_bytes -= len(piece)
            self.pending_bytes += stream._sent
            stream.out = None
            stream._sent = 0
        if stream._part is not None:
            self.partial_bytes -= len(stream._part)
            stream._part = None
        self._blocked.pop(stream.id, None)
        self.streams.pop(stream.id, None)

    def drop(self) -> None:
        """Nobody is there any more: nothing is held."""
        for stream in list(self.streams.values()):
            self._close(stream)
        self.out.clear()

    def go_away(self, code: int, text: str = "") -> None:
        """With no error first for calls to come; then, or at once with an error, for good."""
        last = self.last_id if code else STREAM_ID_MAX
        self.out.append(frame(GOAWAY, 0, 0, _WORDS.pack(last, code) + text[:GOAWAY_TEXT_CHARS_MAX].encode()))
