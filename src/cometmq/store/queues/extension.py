"""The extension of a consume queue: what does not fit its 20 bytes, mainly the bitmap of SQL filters.

    consumequeue_ext/<topic>/<queue id>/<position, 20 digits>

     0  size of the unit    2      20 + length of the bitmap
     2  tag code            8
    10  store time, ms      8
    18  bitmap length       2
    20  bitmap

The unit in the consume queue then has an address in place of the tag code: the position here minus 2**63. Hashes are
32-bit numbers, so the two cannot be mistaken for each other. A unit lies in one file; where it does not fit, the
number -1 in place of a size ends the file.

An extension that cannot be read costs nothing but work: the filter then lets the message through.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import Final, NamedTuple

from cometmq.store.queues.queue_files import QueueFiles

log = logging.getLogger(__name__)

_HEAD: Final = Struct(">hqqh")
_END_MARK: Final = b"\xff\xff"
_END_BYTES: Final = 4
_UNIT_BYTES_MAX: Final = 32767
_ADDRESS_BASE: Final = -(1 << 63)
ADDRESS_MAX: Final = -(1 << 31) - 1


class ExtUnit(NamedTuple):
    tags_code: int
    store_time_ms: int
    bitmap: bytes


def is_address(tags_code: int) -> bool:
    return tags_code <= ADDRESS_MAX


class ConsumeQueueExt:
    def __init__(self, files: QueueFiles) -> None:
        self.files = files

    def put(self, tags_code: int, store_time_ms: int, bitmap: bytes) -> int:
        """The address of the new unit; the tag code itself if there can be none."""
        size = _HEAD.size + len(bitmap)
        files = self.files
        if size > _UNIT_BYTES_MAX or size + _END_BYTES > files.file_bytes:
            log.warning("left out extension unit directory=%s size=%d", files.directory, size)
            return tags_code
        left = files.file_bytes - files.end % files.file_bytes
        if size + _END_BYTES > left:
            files.append(_END_MARK + bytes(left - len(_END_MARK)))
        address = files.end + _ADDRESS_BASE
        files.append(_HEAD.pack(size, tags_code, store_time_ms, len(bitmap)) + bitmap)
        return address

    def get(self, address: int) -> ExtUnit | None:
        position = address - _ADDRESS_BASE
        if not is_address(address) or not self.files.first <= position < self.files.end:
            return None
        try:
            data = self.files.read(position, _UNIT_BYTES_MAX)
        except OSError:
            return None
        if len(data) < _HEAD.size:
            return None
        size, tags_code, store_time_ms, bitmap_bytes = _HEAD.unpack_from(data)
        if bitmap_bytes < 0 or size != _HEAD.size + bitmap_bytes or size > len(data):
            return None
        return ExtUnit(tags_code, store_time_ms, data[_HEAD.size : size])

    def recover(self, last_address: int) -> None:
        """End behind the unit at `last_address`, the highest that the queue has; not an address: keep nothing."""
        position = last_address - _ADDRESS_BASE
        if not is_address(last_address) or position >= self.files.end:
            if not is_address(last_address):
                self.files.clear()
            return
        unit = self.get(last_address)
        self.files.cut(position + _HEAD.size + (len(unit.bitmap) if unit is not None else 0))

    def delete_expired(self, first_address: int) -> int:
        """Remove files that end below the lowest address in use, never the last one. Returns how many."""
        removed = 0
        files = self.files
        while len(files.starts) > 1 and files.starts[1] + _ADDRESS_BASE <= first_address:
            files.remove_first()
            removed += 1
        return removed
