"""The CRC that a record may carry of itself: its last property, in its last 20 bytes.

    ... "__CRC32#" 0x01 digits:10 0x02                    over all bytes of the record before these 20

It covers what the body CRC does not, so it is written when queue offset, physical offset and store timestamp are
final. The digits run from the least significant to the most: 488466514 is "4156648840".

To write: properties.without() the CRC that came in, `reserve_crc`, write and fill the record, `seal_crc`.
"""

from __future__ import annotations

from typing import Final

from cometmq.wire.hashing import crc31
from cometmq.wire.record.message import Readable, Writable
from cometmq.wire.record.properties import Property, find

CRC_PROPERTY_BYTES: Final = 20

_START: Final = b"__CRC32#\x01"
_PLACEHOLDER: Final = _START + b"0000000000\x02"


def reserve_crc(properties: bytes, in_batch: bool = False) -> bytes:
    """Properties with room for the record's CRC. In a batch, Java adds no separator that was missing."""
    if properties and properties[-1] != 2 and not in_batch:
        return properties + b"\x02" + _PLACEHOLDER
    return properties + _PLACEHOLDER


def seal_crc(buffer: Writable, position: int, record_bytes: int) -> None:
    """Write the CRC of the record at `position` into the room that `reserve_crc` made at its end."""
    covered_end = position + record_bytes - CRC_PROPERTY_BYTES
    with memoryview(buffer) as view, view[position:covered_end] as covered:
        crc = crc31(covered)
    buffer[covered_end : position + record_bytes] = _START + encode_digits(crc) + b"\x02"


def crc_matches(buffer: Readable, position: int, end: int, properties: str) -> bool:
    """Whether the record has a CRC and matches it; `properties` are its own, as text."""
    digits = find(properties, Property.CRC32)
    if digits is None or len(digits) != 10 or not digits.isascii() or not digits.isdigit():
        return False
    return int(digits[::-1]) == crc31(buffer[position : end - CRC_PROPERTY_BYTES])


def encode_digits(crc: int) -> bytes:
    return f"{crc:010d}"[::-1].encode()
