"""A remoting command: one request or response, between bytes and values.

A frame is

    length:4  word:4  header:H  body:length-4-H        word = serialize type << 24 | H

and the header has two forms. Type 0 is a JSON object (`fastjson/header.py`). Type 1, "ROCKETMQ", is binary:

    code:2 language:1 version:2 opaque:4 flag:4  R:4 remark:R  E:4 ext fields:E        (`ext_fields.py`)

Integers are big-endian and signed. A response repeats its request's opaque and form and has flag bit 0 set;
bit 1 marks a one-way request. Values of ext fields are always text. An empty text cannot be told from an absent
one in the binary form, so both count as absent there.

This module is compiled; it knows frames without their length word (`frame.py` cuts those) and does no I/O.
"""

from struct import Struct
from typing import Final

import msgspec

from cometmq.errors import WireError
from cometmq.wire.codes import LANGUAGE_CODES, LANGUAGE_NAMES, POP_CODE_BY_LOW_16_BITS
from cometmq.wire.ext_fields import decode_ext, encode_ext, text_at
from cometmq.wire.fastjson.header import LANGUAGE_UNKNOWN, read_json_header
from cometmq.wire.integers import COMPILED, u32_at

JSON: Final = 0
ROCKETMQ: Final = 1

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

OUR_LANGUAGE: Final = 0
OUR_VERSION: Final = 513
# Who signed, and how: in no log and no error.
SIGNED_WITH: Final = ("AccessKey", "Signature", "SecurityToken")

HEADER_BYTES_MAX: Final = 1 << 20
# Of an answer: the largest batch, 65,536 messages, comes back with an id for each, of 57 bytes under IPv6.
ANSWER_HEADER_BYTES_MAX: Final = 4 << 20

_LANGUAGE_MEMBERS: Final = {code: b'"language":"%b",' % name.encode() for code, name in LANGUAGE_NAMES.items()}

_FIXED: Final = Struct(">hBhiiiI")
_HEAD: Final = Struct(">iIhBhiii")
_WORDS: Final = Struct(">II")
_VALUE: Final = Struct(">I")


class Command:
    """One request or response. `ext` is never None; an absent remark is."""

    __slots__ = ("code", "language", "version", "opaque", "flag", "remark", "ext", "body", "form")

    def __init__(
        self,
        code: int,
        language: int,
        version: int,
        opaque: int,
        flag: int,
        remark: str | None,
        ext: dict[str, str],
        body: bytes,
        form: int,
    ) -> None:
        self.code: int = code
        self.language: int = language
        self.version: int = version
        self.opaque: int = opaque
        self.flag: int = flag
        self.remark: str | None = remark
        self.ext: dict[str, str] = ext
        self.body: bytes = body
        self.form: int = form

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way request" if self.is_oneway else "request"
        shown = {name: value for name, value in self.ext.items() if name not in SIGNED_WITH}
        return f"<{kind} code={self.code} opaque={self.opaque} ext={shown!r} body={len(self.body)}B>"


def request(
    code: int,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    opaque: int = 0,
    oneway: bool = False,
    remark: str | None = None,
    form: int = JSON,
    language: int = OUR_LANGUAGE,
) -> Command:
    """A new request; whoever sends it sets the opaque."""
    flag = FLAG_ONEWAY if oneway else 0
    return Command(code, language, OUR_VERSION, opaque, flag, remark, ext or {}, body, form)


def reply(
    to: Command,
    code: int = 0,
    remark: str | None = None,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """The answer to a request: its opaque and form, our language and version."""
    return Command(
        code, OUR_LANGUAGE, OUR_VERSION, to.opaque, FLAG_RESPONSE, remark, ext if ext is not None else {}, body, to.form
    )


def decode(data: bytes, start: int, end: int, header_bytes_max: int = HEADER_BYTES_MAX) -> Command:
    """Read the command in `data[start:end]`, a frame without its length word."""
    if end - start < 4:
        raise WireError(f"frame of {end - start} bytes has no header word")
    word = u32_at(data, start) if COMPILED else int.from_bytes(data[start : start + 4], "big")
    form = word >> 24
    header_bytes = word & 0xFFFFFF
    body_start = start + 4 + header_bytes
    if body_start > end:
        raise WireError(f"header of {header_bytes} bytes does not fit a frame of {end - start} bytes")
    if header_bytes > header_bytes_max:
        raise WireError(f"header of {header_bytes} bytes, the limit is {header_bytes_max}")
    if form == JSON:
        return _decode_json(data, start + 4, body_start, end)
    if form == ROCKETMQ:
        return _decode_binary(data, start + 4, body_start, end)
    raise WireError(f"serialize type {form} is neither 0 (JSON) nor 1 (ROCKETMQ)")


def _decode_json(data: bytes, start: int, body_start: int, end: int) -> Command:
    header = read_json_header(data[start:body_start])
    ext: dict[str, str] | None = header.extFields
    return Command(
        header.code,
        LANGUAGE_CODES.get(header.language, LANGUAGE_UNKNOWN),
        header.version,
        header.opaque,
        header.flag,
        header.remark,
        ext if ext is not None else {},
        data[body_start:end],
        JSON,
    )


def _decode_binary(data: bytes, start: int, body_start: int, end: int) -> Command:
    if body_start - start < 21:
        raise WireError(f"binary header of {body_start - start} bytes, at least 21 are needed")
    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark_bytes: int
    ext_bytes: int
    code, language, version, opaque, flag, remark_bytes, ext_bytes = _FIXED.unpack_from(data, start)
    position = start + 21
    remark: str | None = None
    if remark_bytes != 0:
        position -= 4
        if remark_bytes < 0 or position + remark_bytes + 4 > body_start:
            raise WireError(f"remark of {remark_bytes} bytes does not fit a header of {body_start - start} bytes")
        remark = text_at(data, position, position + remark_bytes)
        position += remark_bytes + 4
        ext_bytes = int.from_bytes(data[position - 4 : position], "big")
    if position + ext_bytes > body_start:
        raise WireError(f"ext section of {ext_bytes} bytes does not fit a header of {body_start - start} bytes")
    ext = decode_ext(data, position, position + ext_bytes) if ext_bytes else {}
    if not flag & FLAG_RESPONSE:
        code = POP_CODE_BY_LOW_16_BITS.get(code, code)
    return Command(code, language, version, opaque, flag, remark, ext, data[body_start:end], ROCKETMQ)


def encode(command: Command) -> bytes:
    """The whole frame, length word included."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_bytes: int) -> bytes:
    """All of the frame but its body, for bodies that are written on their own."""
    if command.form == JSON:
        return _encode_json(command, body_bytes)
    return _encode_binary(command, body_bytes)


def _check_header(command: Command, header_bytes: int) -> None:
    limit = ANSWER_HEADER_BYTES_MAX if command.flag & FLAG_RESPONSE else HEADER_BYTES_MAX
    if header_bytes > limit:
        raise WireError(f"header of {header_bytes} bytes, the limit is {limit}")


def _encode_json(command: Command, body_bytes: int) -> bytes:
    ext = b'"extFields":%b,' % msgspec.json.encode(command.ext) if command.ext else b""
    remark = b'"remark":%b,' % msgspec.json.encode(command.remark) if command.remark is not None else b""
    language = _LANGUAGE_MEMBERS.get(command.language, b"")
    header = b'{"code":%d,%b"flag":%d,%b"opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        ext,
        command.flag,
        language,
        command.opaque,
        remark,
        command.version,
    )
    header_bytes = len(header)
    _check_header(command, header_bytes)
    return _WORDS.pack(4 + header_bytes + body_bytes, header_bytes) + header


def _encode_binary(command: Command, body_bytes: int) -> bytes:
    remark = command.remark.encode() if command.remark else b""
    ext = encode_ext(command.ext)
    header_bytes = 21 + len(remark) + len(ext)
    _check_header(command, header_bytes)
    code = command.code & 0xFFFF
    head = _HEAD.pack(
        4 + header_bytes + body_bytes,
        ROCKETMQ << 24 | header_bytes,
        code - 0x10000 if code > 0x7FFF else code,
        command.language & 0xFF,
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((head, remark, _VALUE.pack(len(ext)), ext))
