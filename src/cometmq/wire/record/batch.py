"""The body of a batch send: its messages as the producer packs them.

    total size:4  magic 0:4  CRC 0:4  flag:4  body length B:4  body:B  properties length P:2  properties:P   ...

Topic, queue and hosts are those of the request; the broker makes a record of each member. A member is a plain
tuple (flag, body, properties), with properties in their text form.

The total size is checked although RocketMQ ignores it: a producer that cuts a properties length of over 32767 to
16 bits would otherwise have the rest of its batch stored as garbage.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeAlias

from cometmq.errors import WireError
from cometmq.wire.record.properties import PROPERTIES_BYTES_MAX

BatchMember: TypeAlias = tuple[int, bytes, bytes]

BATCH_COUNT_MAX: Final = 65_536

_HEAD: Final = Struct(">iiiii")
_PROPERTIES_LENGTH: Final = Struct(">h")
_MEMBER_BYTES_MIN: Final = 22


def encode_batch(members: Iterable[BatchMember]) -> bytes:
    return b"".join([_encode_member(*member) for member in members])


def _encode_member(flag: int, body: bytes, properties: bytes) -> bytes:
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise WireError(f"batch member has {len(properties)} bytes of properties, limit {PROPERTIES_BYTES_MAX}")
    if not -0x80000000 <= flag <= 0x7FFFFFFF:
        raise WireError(f"batch member has flag {flag}, which does not fit 32 bits")
    size = _MEMBER_BYTES_MIN + len(body) + len(properties)
    head = _HEAD.pack(size, 0, 0, flag, len(body))
    return b"".join((head, body, _PROPERTIES_LENGTH.pack(len(properties)), properties))


def split_batch(data: bytes, count_max: int = BATCH_COUNT_MAX) -> list[BatchMember]:
    """The members in order; WireError if there are over `count_max` or the bytes are no whole batch."""
    members: list[BatchMember] = []
    position = 0
    while position < len(data):
        if len(members) == count_max:
            raise WireError(f"batch holds over {count_max} messages: send smaller batches")
        position = _split_member(data, position, members)
    return members


def _split_member(data: bytes, position: int, members: list[BatchMember]) -> int:
    """Append the member at `position`; returns where it ends."""
    left = len(data) - position
    if left < _MEMBER_BYTES_MIN:
        raise _bad(members, position, f"{left} bytes are left, at least {_MEMBER_BYTES_MIN} are needed")
    size, _, _, flag, body_bytes = _HEAD.unpack_from(data, position)
    body_at = position + 20
    properties_at = body_at + body_bytes + 2
    if body_bytes < 0 or properties_at > len(data):
        raise _bad(members, position, f"body of {body_bytes} bytes, {left} bytes are left")
    (properties_bytes,) = _PROPERTIES_LENGTH.unpack_from(data, properties_at - 2)
    end: int = properties_at + properties_bytes
    if properties_bytes < 0 or end > len(data):
        raise _bad(members, position, f"properties of {properties_bytes} bytes, {left} bytes are left")
    if size != end - position:
        raise _bad(members, position, f"total size is {size}, the fields make {end - position}")
    members.append((flag, data[body_at : properties_at - 2], data[properties_at:end]))
    return end


def _bad(members: list[BatchMember], position: int, why: str) -> WireError:
    return WireError(f"batch member {len(members)} at byte {position} is malformed: {why}")
