"""Places inside a stored record, for code that needs one field and not the whole message."""

from __future__ import annotations

from struct import Struct
from typing import Final

from cometmq.wire.record.layout import BODY_BYTES_AT, HOST_BITS_AT, MAGIC_V1, V6_SHIFT
from cometmq.wire.record.sysflag import BORN_HOST_V6, STORE_HOST_V6

_START: Final = Struct(">ii")
_I32: Final = Struct(">i")
_I16: Final = Struct(">h")


def properties_at(view: memoryview, position: int, size: int) -> int:
    """Where the properties begin in the record at `position`; its end if the lengths inside make no sense."""
    end = position + size
    flags = view[position + HOST_BITS_AT]
    at = position + BODY_BYTES_AT
    if flags & BORN_HOST_V6:
        at += V6_SHIFT
    if flags & STORE_HOST_V6:
        at += V6_SHIFT
    if at + 4 > end:
        return end
    body_bytes: int = _I32.unpack_from(view, at)[0]
    at += 4 + body_bytes
    if body_bytes < 0 or at > end - 3:
        return end
    topic_bytes: int
    if _START.unpack_from(view, position)[1] == MAGIC_V1:
        topic_bytes = view[at]
        at += 1
    else:
        topic_bytes = _I16.unpack_from(view, at)[0]
        at += 2
    at += topic_bytes + 2
    return at if topic_bytes >= 0 and at <= end else end
