"""Header blocks of HTTP/2 (HPACK, RFC 7541), read by a server that wants a few names only.

    1xxxxxxx              field `x` of the tables: 61 fixed ones, then those that were added, the newest first
    01xxxxxx name value   a field that is added; x is the name's index, 0: it is spelled out
    0000xxxx, 0001xxxx    a field that is not added
    001xxxxx              the table of added fields has at most x bytes from now on

Text is a length with a bit for Huffman, then bytes. We announce a table of 0 bytes; until the peer has acknowledged
that (`drop_table`), 4,096 are in force. A value that is neither wanted nor added is skipped by its length.

Nothing is written here: answers have constant blocks (session.py).
"""

from typing import Final

from cometmq.errors import WireError
from cometmq.wire.http2 import huffman

TABLE_BYTES: Final = 4_096
ENTRY_BYTES: Final = 32
FIELDS_MAX: Final = 256
INTEGER_MAX: Final = 1 << 21
# Values that come with every call; others are read anew.
KEPT_MAX: Final = 512
KEPT_BYTES_MAX: Final = 256

STATIC: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""),
    (b"max-forwards", b""), (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""),
    (b"referer", b""), (b"refresh", b""), (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""),
    (b"strict-transport-security", b""), (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""),
    (b"via", b""), (b"www-authenticate", b""),
)  # fmt: skip
STATIC_COUNT: Final = 61


class HeaderDecoder:
    """`wanted`: names whose values are given back."""

    __slots__ = ("_wanted", "_added", "_added_bytes", "_bytes_max", "_limit", "_kept", "_data", "_position")

    def __init__(self, wanted: frozenset[bytes]) -> None:
        self._wanted: frozenset[bytes] = wanted
        self._added: list[tuple[bytes, bytes]] = []
        self._added_bytes: int = 0
        self._bytes_max: int = TABLE_BYTES
        self._limit: int = TABLE_BYTES
        self._kept: dict[bytes, bytes] = {}
        self._data: bytes = b""
        self._position: int = 0

    def drop_table(self) -> None:
        """The peer knows that there is none."""
        self._limit = 0
        self._resize(0)

    def decode(self, block: bytes) -> dict[str, str]:
        """Raises WireError. A wanted name that comes twice has its last value."""
        self._data = block
        self._position = 0
        found: dict[str, str] = {}
        end = len(block)
        fields = 0
        while self._position < end:
            first = block[self._position]
            name: bytes
            value: bytes
            fields += 1
            if fields > FIELDS_MAX:
                raise WireError(f"over {FIELDS_MAX} fields in a header block")
            if first & 0x80:
                name, value = self._entry(self._integer(7))
                if name in self._wanted:
                    found[name.decode("ascii")] = value.decode("utf-8", "replace")
                continue
            if first & 0xE0 == 0x20:
                size = self._integer(5)
                if size > self._limit:
                    raise WireError(f"a header table of {size} bytes, at most {self._limit} are allowed")
                self._resize(size)
                continue
            is_added = first & 0x40 != 0
            index = self._integer(6 if is_added else 4)
            if index:
                name = self._entry(index)[0]
            else:
                name = self._text(True)
            if is_added and self._bytes_max:
                value = self._text(False)
                self._add(name, value)
                if name in self._wanted:
                    found[name.decode("ascii")] = value.decode("utf-8", "replace")
            elif name in self._wanted:
                found[name.decode("ascii")] = self._text(True).decode("utf-8", "replace")
            else:
                self._skip()
        return found

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if 0 < index <= STATIC_COUNT:
            return STATIC[index - 1]
        place = index - STATIC_COUNT - 1
        if index == 0 or place >= len(self._added):
            raise WireError(f"header field {index} is in no table")
        return self._added[place]

    def _integer(self, bits: int) -> int:
        mask = (1 << bits) - 1
        data = self._data
        value = data[self._position] & mask
        self._position += 1
        if value < mask:
            return value
        shift = 0
        while True:
            if self._position >= len(data):
                raise WireError("a header block ends within a number")
            byte = data[self._position]
            self._position += 1
            value += (byte & 0x7F) << shift
            if value > INTEGER_MAX:
                raise WireError("a number of a header block is too large")
            if not byte & 0x80:
                return value
            shift += 7
            if shift > 28:
                raise WireError("a number of a header block is too long")

    def _piece(self) -> bytes:
        """The next text as it is written; `_is_huffman` of its first byte was seen by the caller."""
        size = self._integer(7)
        start = self._position
        end = start + size
        if end > len(self._data):
            raise WireError(f"a header text of {size} bytes does not fit its block")
        self._position = end
        return self._data[start:end]

    def _text(self, keep: bool) -> bytes:
        if self._position >= len(self._data):
            raise WireError("a header block ends within a field")
        is_huffman = self._data[self._position] & 0x80 != 0
        piece = self._piece()
        if not is_huffman:
            return piece
        text = self._kept.get(piece)
        if text is None:
            text = huffman.decode(piece)
            if keep and len(piece) <= KEPT_BYTES_MAX:
                if len(self._kept) >= KEPT_MAX:
                    self._kept.clear()
                self._kept[piece] = text
        return text

    def _skip(self) -> None:
        if self._position >= len(self._data):
            raise WireError("a header block ends within a field")
        size = self._integer(7)
        self._position += size
        if self._position > len(self._data):
            raise WireError(f"a header text of {size} bytes does not fit its block")

    def _add(self, name: bytes, value: bytes) -> None:
        self._added.insert(0, (name, value))
        self._added_bytes += len(name) + len(value) + ENTRY_BYTES
        self._evict()

    def _resize(self, size_bytes: int) -> None:
        self._bytes_max = size_bytes
        self._evict()

    def _evict(self) -> None:
        while self._added and self._added_bytes > self._bytes_max:
            name, value = self._added.pop()
            self._added_bytes -= len(name) + len(value) + ENTRY_BYTES
