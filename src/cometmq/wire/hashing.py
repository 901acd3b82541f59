"""The two checks that files and frames carry: Java's string hash and the 31-bit CRC.

The string hash selects tags (consume queue), index slots and queues, so it must agree with Java to the bit:

    h = 0; for every UTF-16 unit c: h = 31 * h + c     modulo 2**32, read as a signed 32-bit number

The CRC is zlib's CRC-32 without its top bit, which makes it a non-negative Java int.
"""

from __future__ import annotations

from operator import mul
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from mypy_extensions import i64

_COMPILED: Final = not __file__.endswith(".py")
_UNITS_MAX: Final = 256
# 31**255, ..., 31**1, 31**0 modulo 2**32: the weights of the units of a text, from its first to its last.
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(_UNITS_MAX - 1, -1, -1))


def java_string_hash(text: str) -> int:
    """What `text.hashCode()` gives in Java: -2**31 to 2**31 - 1."""
    return hash_on(0, text)


def hash_on(seed: int, text: str) -> int:
    """Java's hash of a text whose first part has the hash `seed`, and whose rest is `text`."""
    if not _COMPILED and len(text) <= _UNITS_MAX // 2:
        return _hash_by_powers(seed, text)
    # The i64 and the index are for the compiled form: 0.12 us for a unique id of 56 characters, against
    # 2.1 us with a plain int and 0.4 us with `for character in text`.
    value: i64 = seed & 0xFFFFFFFF
    for index in range(len(text)):
        unit: i64 = ord(text[index])
        if unit > 0xFFFF:
            value = 31 * value + (0xD7C0 + (unit >> 10))
            unit = 0xDC00 | (unit & 0x3FF)
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - ((value & 0x80000000) << 1)


def _hash_by_powers(seed: int, text: str) -> int:
    """The same without a loop in Python: interpreted, 1.5 us for 32 characters against 3.2 us."""
    if not text:
        return seed
    units: bytes | memoryview
    if text.isascii():
        units = text.encode()
    else:
        units = memoryview(text.encode("utf-16", "surrogatepass")[2:]).cast("H")
    powers = _POWERS[_UNITS_MAX - len(units) :]
    value: int = sum(map(mul, units, powers), seed * 31 * powers[0]) & 0xFFFFFFFF
    return value - ((value & 0x80000000) << 1)


def crc31(data: bytes | bytearray | memoryview) -> int:
    return crc32(data) & 0x7FFFFFFF
