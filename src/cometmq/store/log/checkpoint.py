"""The file `checkpoint`: up to where each part of the store is known to be on disk.

    4096 bytes, big-endian, zeros after the sixth field

     0  physic_time_ms           store time up to which the commit log is flushed
     8  logics_time_ms           store time of a message up to which the consume queues are flushed
    16  index_time_ms            end of the last index file that became full and was flushed
    24  master_flushed_offset    the master's flushed offset, as a replica knows it
    32  confirm_offset           start of the last valid record, or what the replicas confirmed
    40  logics_physical_offset   where the message of field 8 starts in the log

A missing file reads as zeros. An old value only makes recovery start earlier; a value ahead of the data would make
it start too late, so a field moves only after the sync that it speaks of.
"""

from __future__ import annotations

import struct

from cometmq.store.disk import Disk, File

CHECKPOINT_BYTES = 4096
_FIELDS = struct.Struct(">6q")


class Checkpoint:
    def __init__(self, disk: Disk, path: str) -> None:
        self._file: File = disk.open(path, CHECKPOINT_BYTES, create=True, allocate=True)
        fields: tuple[int, ...] = _FIELDS.unpack(self._file.pread(0, _FIELDS.size))
        self.physic_time_ms = fields[0]
        self.logics_time_ms = fields[1]
        self.index_time_ms = fields[2]
        self.master_flushed_offset = fields[3]
        self.confirm_offset = fields[4]
        self.logics_physical_offset = fields[5]
        self._written = self.packed()

    def packed(self) -> bytes:
        return _FIELDS.pack(
            self.physic_time_ms,
            self.logics_time_ms,
            self.index_time_ms,
            self.master_flushed_offset,
            self.confirm_offset,
            self.logics_physical_offset,
        )

    @property
    def dirty(self) -> bool:
        return self.packed() != self._written

    def write(self, packed: bytes) -> None:
        """Write and sync what `packed()` gave, in any thread. One write below a sector: old or new, never torn."""
        self._file.pwrite(0, packed)
        self._file.sync()
        self._written = packed

    def flush(self) -> None:
        if self.dirty:
            self.write(self.packed())

    @property
    def min_time_ms(self) -> int:
        return max(0, min(self.physic_time_ms, self.logics_time_ms) - 3000)

    def close(self) -> None:
        self._file.close()
