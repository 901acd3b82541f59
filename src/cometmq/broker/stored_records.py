"""Records by their place in the log, which may be anywhere and of any age: a thread brings their pages into memory."""

import asyncio
from struct import Struct
from typing import Final

from cometmq.errors import RequestError
from cometmq.store.store import Store
from cometmq.wire.codes import Response

# No record is larger.
RECORD_BYTES_MAX: Final = 15 << 20
# Most are smaller.
FIRST_READ_BYTES: Final = 64 << 10

_SIZE: Final = Struct(">i")


async def record_at(store: Store, offset: int) -> bytes:
    """The whole record that starts there; RequestError if none does."""
    await asyncio.to_thread(load_records, store, [offset])
    record = store.lookup.record_at(offset)
    if record is None:
        raise RequestError(
            Response.SYSTEM_ERROR,
            f"no message starts at physical offset {offset}: it was deleted, or the offset is not one of this broker",
        )
    return bytes(record)


def load_records(store: Store, offsets: list[int]) -> None:
    """For a thread: read what the loop is going to touch."""
    for offset in offsets:
        segment = store.segments.find(offset)
        if segment is None:
            continue
        position = offset - segment.start
        try:
            head = segment.file.pread(position, min(FIRST_READ_BYTES, segment.size - position))
            size = _SIZE.unpack_from(head)[0] if len(head) >= _SIZE.size else 0
            if size > len(head):
                # An offset that does not hit a record gives any number.
                end = min(size, segment.size - position, RECORD_BYTES_MAX)
                segment.file.pread(position + len(head), end - len(head))
        except OSError:
            continue  # deleted meanwhile; whoever looks next finds nothing
