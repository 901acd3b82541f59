"""Where the fields of a stored record lie: the one table from which every reader and writer is made.

    at  bytes  field                              at    bytes  field
     0    4    total size                         56      8    store timestamp, ms
     4    4    magic: version 1 or 2              64    8|20   store host
     8    4    body CRC (31 bits)                 72      4    reconsume times
    12    4    queue id                           76      8    prepared transaction offset
    16    4    flag, the application's            84      4    body length B
    20    8    queue offset                       88      B    body
    28    8    physical offset                    88+B   1|2   topic length T: 1 byte in version 1, 2 in version 2
    36    4    system flag                         ..     T    topic
    40    8    born timestamp, ms                  ..     2    properties length P
    48  8|20   born host: address 4|16, port 4     ..     P    properties

Integers are big-endian and signed. A 20-byte (IPv6) host, told by two bits of the system flag, moves what follows
by 12. Version 2 is for topics of more than 127 bytes. A commit log file ends with a blank record: total size (the
rest of the file) and its own magic, then bytes without meaning.

`struct_of` makes the reader or writer of some fields for one of the four kinds of hosts. Code that takes a field or two
out of the bytes, compiled or by columns, uses the places: those are literals, which the compiler folds.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124

TOPIC_BYTES_MAX_V1: Final = 127
TOPIC_BYTES_MAX: Final = 255

# Places in a record between IPv4 hosts.
RECORD_BYTES_AT: Final = 0
MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48
STORE_TIMESTAMP_AT: Final = 56
STORE_HOST_AT: Final = 64
RECONSUME_TIMES_AT: Final = 72
PREPARED_TRANSACTION_OFFSET_AT: Final = 76
BODY_BYTES_AT: Final = 84
BODY_AT: Final = 88

# The byte of the system flag that has the bits for IPv6 hosts.
HOST_BITS_AT: Final = 39
V6_SHIFT: Final = 12

# Total size and magic; a blank record has no more that means anything.
START_BYTES: Final = 8
BLANK_BYTES: Final = START_BYTES
# Without body, topic and properties, but with the lengths of topic and properties.
RECORD_BYTES_MIN: Final = 91


class Field(NamedTuple):
    """`code` is the letter of the struct module."""

    name: str
    at: int
    code: str


FIELDS: Final = (
    Field("record_bytes", RECORD_BYTES_AT, "i"),
    Field("magic", MAGIC_AT, "i"),
    Field("body_crc", BODY_CRC_AT, "i"),
    Field("queue_id", QUEUE_ID_AT, "i"),
    Field("flag", FLAG_AT, "i"),
    Field("queue_offset", QUEUE_OFFSET_AT, "q"),
    Field("physical_offset", PHYSICAL_OFFSET_AT, "q"),
    Field("sys_flag", SYS_FLAG_AT, "i"),
    Field("born_timestamp_ms", BORN_TIMESTAMP_AT, "q"),
    Field("born_host", BORN_HOST_AT, "8s"),
    Field("store_timestamp_ms", STORE_TIMESTAMP_AT, "q"),
    Field("store_host", STORE_HOST_AT, "8s"),
    Field("reconsume_times", RECONSUME_TIMES_AT, "i"),
    Field("prepared_transaction_offset", PREPARED_TRANSACTION_OFFSET_AT, "q"),
    Field("body_bytes", BODY_BYTES_AT, "i"),
)
# A host as its two parts.
HOST_PARTS: Final = (
    Field("born_address", BORN_HOST_AT, "4s"),
    Field("born_port", BORN_HOST_AT + 4, "i"),
    Field("store_address", STORE_HOST_AT, "4s"),
    Field("store_port", STORE_HOST_AT + 4, "i"),
)
_BY_NAME: Final = {field.name: field for field in (*FIELDS, *HOST_PARTS)}
_WIDE: Final = {"8s": "20s", "4s": "16s"}
_BORN_V6: Final = 1
_STORE_V6: Final = 2


def place_of(name: str, hosts_v6: int) -> int:
    """Where a field lies. `hosts_v6` are the two IPv6 bits of the system flag, shifted down: born host, store host."""
    at = _BY_NAME[name].at
    behind_born = V6_SHIFT if hosts_v6 & _BORN_V6 and at > BORN_HOST_AT else 0
    behind_store = V6_SHIFT if hosts_v6 & _STORE_V6 and at > STORE_HOST_AT else 0
    return at + behind_born + behind_store


def struct_of(names: tuple[str, ...], hosts_v6: int = 0) -> Struct:
    """Reads or writes these fields, in the order of the record, from its first byte on."""
    codes = ">"
    end = 0
    for name in names:
        at = place_of(name, hosts_v6)
        code = _code_of(name, hosts_v6)
        codes += f"{at - end}x{code}" if at > end else code
        end = at + Struct(">" + code).size
    return Struct(codes)


def structs_of(names: tuple[str, ...]) -> tuple[Struct, Struct, Struct, Struct]:
    """By the two IPv6 bits: none, born host, store host, both."""
    return struct_of(names, 0), struct_of(names, 1), struct_of(names, 2), struct_of(names, 3)


def _code_of(name: str, hosts_v6: int) -> str:
    code = _BY_NAME[name].code
    is_wide = hosts_v6 & (_BORN_V6 if name.startswith("born") else _STORE_V6)
    return _WIDE.get(code, code) if is_wide else code
