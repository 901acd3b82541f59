"""Write JSON as Java's fastjson does: compact, bean members in alphabetical order, no nulls.

What decides the form of a map is the type of its keys, as in Java:

    {"T": 1}                       str keys are quoted
    {0: "10.0.0.1:10911"}          int keys are bare numbers
    {MessageQueue(...): 5}         a struct, or an `ObjectKey` that was read, is written as an object

Maps keep the order they have. Sets are sorted. Floats always have a fraction, bytes become Base64. Null members of
maps and structs are left out; null elements of lists stay, because leaving them out would move the others.

    dumps(value)                   the form of the wire
    dumps(value, standard=True)    for readers that know only standard JSON: int keys quoted, map keys sorted,
                                   nothing but ASCII, and `/` as `\\/`
    dumps_pretty(value)            the form of config files: one member a line, indented by tabs
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from typing import Any, Final

import msgspec

from cometmq.wire.fastjson.reader import ObjectKey

_encode: Final = msgspec.json.Encoder().encode
_NOT_ASCII: Final = re.compile("[\x7f-\U0010ffff]")
# wire name as written, attribute; by class, in the order of the wire names
_members_by_class: Final[dict[type, tuple[tuple[bytes, str], ...]]] = {}


def dumps(value: Any, *, standard: bool = False) -> bytes:
    parts: list[bytes] = []
    _write(value, parts, b"", standard)
    written = b"".join(parts)
    return _ascii(written) if standard else written


def dumps_pretty(value: Any) -> bytes:
    parts: list[bytes] = []
    _write(value, parts, b"\n", False)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes], line: bytes, standard: bool) -> None:
    """`line` is what starts a line at this depth, the line feed and the tabs; nothing in the compact forms."""
    if isinstance(value, (dict, msgspec.Struct)):
        if not line and getattr(value, "STANDARD_FORM", False):
            parts.append(_encode(value))
            return
        inner = line and line + b"\t"
        before = b"{" + inner
        for name, member in _members(value, standard):
            parts.append(before + name + b":")
            _write(member, parts, inner, standard)
            before = b"," + inner
        parts.append(b"{}" if before.startswith(b"{") else line + b"}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = line and line + b"\t"
        before = b"[" + inner
        for element in sorted(value) if isinstance(value, (set, frozenset)) else value:
            parts.append(before)
            _write(element, parts, inner, standard)
            before = b"," + inner
        parts.append(b"[]" if before.startswith(b"[") else line + b"]")
    else:
        parts.append(_scalar(value))


def _members(value: Any, standard: bool) -> list[tuple[bytes, Any]]:
    """Written name and value of every member that is not null."""
    if isinstance(value, dict):
        keys = sorted(value) if standard else value
        return [(_key(key, standard), value[key]) for key in keys if value[key] is not None]
    names = _members_by_class.get(type(value)) or _work_out_members(type(value))
    return [(name, member) for name, attribute in names if (member := getattr(value, attribute)) is not None]


def _work_out_members(struct: type[msgspec.Struct]) -> tuple[tuple[bytes, str], ...]:
    by_wire_name = sorted(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    members = tuple((_encode(wire_name), attribute) for wire_name, attribute in by_wire_name)
    _members_by_class[struct] = members
    return members


def _key(key: Any, standard: bool) -> bytes:
    if isinstance(key, str):
        return _encode(key)
    if isinstance(key, int):
        return b'"%d"' % key if standard else b"%d" % key
    parts: list[bytes] = []
    _write(key.members() if isinstance(key, ObjectKey) else key, parts, b"", standard)
    return b"".join(parts)


def _scalar(value: Any) -> bytes:
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, (bytes, bytearray)):
        return b'"' + b64encode(value) + b'"'
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    return _encode(value)


def _float(value: float) -> bytes:
    assert math.isfinite(value), f"{value} has no JSON form"
    mantissa, _, exponent = repr(value).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}".encode() if exponent else mantissa.encode()


def _ascii(written: bytes) -> bytes:
    """Outside of strings there is neither a slash nor anything but ASCII, so the finished text can be treated."""
    return _NOT_ASCII.sub(_escape, written.decode().replace("/", "\\/")).encode()


def _escape(character: re.Match[str]) -> str:
    units = character.group().encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
