"""The place of a group in RocketMQ's filter bitmaps: three of 112 bits, by a hash of `group#topic`.

    low half of murmur3_128(group#topic), seed 0 = h2 (32 bits) h1 (32 bits)
    bit i = h1 + i * h2 as a Java int, its complement if negative, modulo 112          i = 1, 2, 3

This broker makes no such bitmaps (docs/decisions/0016-no-bloom-filters.md), but a RocketMQ broker reads a table of
filters only if every entry names its bits.
"""

from __future__ import annotations

from typing import Final

BITS: Final = 112
HASHES: Final = 3

_MASK: Final = 2**64 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def bit_positions(group: str, topic: str) -> list[int]:
    low = murmur3_low(f"{group}#{topic}".encode())
    first, second = low & 0xFFFFFFFF, low >> 32
    positions: list[int] = []
    for number in range(1, HASHES + 1):
        mixed = (first + number * second) & 0xFFFFFFFF
        positions.append((mixed ^ 0xFFFFFFFF if mixed >> 31 else mixed) % BITS)
    return positions


def murmur3_low(data: bytes) -> int:
    """The first 64 bits of the 128-bit MurmurHash3 for 64-bit machines, seed 0."""
    one = two = 0
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        one ^= _mix(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        one = ((_rotate(one, 27) + two) * 5 + 0x52DCE729) & _MASK
        two ^= _mix(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        two = ((_rotate(two, 31) + one) * 5 + 0x38495AB5) & _MASK
    two ^= _mix(int.from_bytes(data[whole + 8 :], "little"), _C2, 33, _C1)
    one ^= _mix(int.from_bytes(data[whole : whole + 8], "little"), _C1, 31, _C2)
    one ^= len(data)
    two ^= len(data)
    one = (one + two) & _MASK
    two = (two + one) & _MASK
    return (_finish(one) + _finish(two)) & _MASK


def _mix(part: int, before: int, turn: int, after: int) -> int:
    return (_rotate((part * before) & _MASK, turn) * after) & _MASK


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _finish(value: int) -> int:
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return value ^ (value >> 33)
