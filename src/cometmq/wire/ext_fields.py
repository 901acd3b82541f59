"""The ext fields of a binary header, between bytes and a dict.

    { key length:2 key value length:4 value }*       integers are big-endian

A field without key or value counts as absent. Read one by one, the 13 fields of a send took an interpreted broker
7.3 us, though a producer repeats 11 of them. So a send is cut into runs of whole fields,

    a b c d | e f | g=<13 digits> | h | i=<properties> | j k m n
    group,    queue  born time           the message's     constant
    topic                                own

and a run that was seen before is looked up by its bytes: 2.1 us. A run enters the table only when it parses to its
last byte, so bytes inside a value that look like the next field find nothing there: then the cut is no cut, and the
fields are read one by one. Those of every other request always are.

This module is compiled.
"""

import sys
from struct import Struct
from typing import Final

from cometmq.errors import WireError
from cometmq.wire.fastjson.header import EXT_FIELDS_MAX

NAME_BYTES_MAX: Final = 0x7FFF

# Runs of whole fields by their bytes: 5 MB for ten thousand topics, 18 MB at most, if a hostile peer fills the table.
RUNS_MAX: Final = 12_000
RUN_BYTES_MAX: Final = 256
RUN_FIELDS_MAX: Final = 8
_runs: Final[dict[bytes, dict[str, str]]] = {}

_SEND: Final = b"\x00\x01a\x00\x00\x00"
_QUEUE: Final = b"\x00\x01e\x00\x00\x00"
_BORN: Final = b"\x00\x01g\x00\x00\x00\x0d"
_PROPERTIES: Final = b"\x00\x01i\x00"

# A field of an answer as text: what precedes the last byte of the length of its value, and that byte.
_HEADS_MAX: Final = 1_024
_SHORT_MAX: Final = 127
_heads: Final[dict[str, str]] = {}
_LENGTHS: Final = {length: chr(length) for length in range(1, _SHORT_MAX + 1)}

_KEY: Final = Struct(">H")
_VALUE: Final = Struct(">I")


def decode_ext(data: bytes, position: int, end: int) -> dict[str, str]:
    """The fields in `data[position:end]`."""
    if data.startswith(_SEND, position):
        ext = _decode_send(data, position, end)
        if ext is not None:
            return ext
    return _decode_fields(data, position, end)


def _decode_send(data: bytes, position: int, end: int) -> dict[str, str] | None:
    """None: it is not as a producer of RocketMQ writes it."""
    queue_at = data.find(_QUEUE, position, end)
    born_at = data.find(_BORN, queue_at, end)
    properties_at = data.find(_PROPERTIES, born_at + 20, end)
    if queue_at < 0 or born_at < 0 or properties_at < 0:
        return None
    value_at = properties_at + 7
    value_end = value_at + int.from_bytes(data[properties_at + 3 : value_at], "big")
    if value_at == value_end or value_end > end:
        return None
    runs = _runs
    try:
        head = runs[data[position:queue_at]]
        queue = runs[data[queue_at:born_at]]
        middle = runs[data[born_at + 20 : properties_at]]
        rest = runs[data[value_end:end]]
        born = data[born_at + 7 : born_at + 20].decode()
        return {**head, **queue, "g": born, **middle, "i": data[value_at:value_end].decode(), **rest}
    except KeyError:
        for fields in (data[position:queue_at], data[queue_at:born_at], data[born_at + 20 : properties_at]):
            _add_run(fields)
        _add_run(data[value_end:end])
        return None
    except UnicodeDecodeError:
        return None


def _add_run(fields: bytes) -> None:
    """For the next send that has it; this one is read field by field."""
    if fields in _runs or len(fields) > RUN_BYTES_MAX:
        return
    try:
        # One object for a value that many runs have, and for a topic in all tables that go by it: with ten thousand
        # topics each further one is memory that no cache holds.
        run = {name: sys.intern(value) for name, value in _decode_fields(fields, 0, len(fields)).items()}
    except WireError:
        return
    if len(run) > RUN_FIELDS_MAX:
        return
    if len(_runs) >= RUNS_MAX:
        _runs.clear()
    _runs[fields] = run


def _decode_fields(data: bytes, position: int, end: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while position < end:
        value_word = position + 2 + (data[position] << 8 | data[position + 1] if position + 2 <= end else 0)
        value_start = value_word + 4
        if value_start > end:
            raise WireError(f"ext key at byte {position} runs over the ext section, which ends at {end}")
        value_end = value_start + int.from_bytes(data[value_word:value_start], "big")
        if value_end > end:
            raise WireError(f"ext value at byte {value_start} runs over the ext section, which ends at {end}")
        if value_end > value_start and value_word > position + 2:
            ext[text_at(data, position + 2, value_word)] = text_at(data, value_start, value_end)
            if len(ext) > EXT_FIELDS_MAX:
                raise WireError(f"header has over {EXT_FIELDS_MAX} ext fields")
        position = value_end
    return ext


def text_at(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise WireError(f"text at byte {start} is not UTF-8") from None


def encode_ext(fields: dict[str, str]) -> bytes:
    """Short ASCII values under names that were used before make one text, lengths included: a third of the time."""
    try:
        text = "".join([_heads[name] + _LENGTHS[len(value)] + value for name, value in fields.items()])
    except KeyError:
        return _encode_fields(fields)
    return text.encode() if text.isascii() else _encode_fields(fields)


def _encode_fields(fields: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, text in fields.items():
        if not name or not text:
            continue
        key = name.encode()
        value = text.encode()
        if len(key) > NAME_BYTES_MAX:
            raise WireError(f"ext field name of {len(key)} bytes, the limit is {NAME_BYTES_MAX}")
        if name not in _heads and len(key) <= _SHORT_MAX and len(_heads) < _HEADS_MAX:
            _heads[name] = f"\x00{chr(len(key))}{name}\x00\x00\x00"
        parts.append(_KEY.pack(len(key)))
        parts.append(key)
        parts.append(_VALUE.pack(len(value)))
        parts.append(value)
    return b"".join(parts)
