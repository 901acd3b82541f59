"""The file `config/timercheck`: how far timer messages are taken in and delivered.

    4096 bytes, big-endian, zeros after the seventh field

     0  read_ms               slots before this time are delivered
     8  log_position          up to here the timer log is on disk
    16  queue_offset          up to here the queue of the timer topic is in the timer log, or delivered
    24  master_queue_offset   the same as the master has it; here it is the master's own
    32  state_version         } data version: how a replica sees that something changed
    40  timestamp_ms          }
    48  counter               }

The first 56 bytes are also what a replica gets when it asks. A missing file reads as zeros. A field moves only after
the sync that it speaks of, so what is written behind it is taken in, or delivered, once more.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from cometmq.errors import WireError
from cometmq.store.disk import Disk, File

TIMERCHECK_BYTES: Final = 4096
_FIELDS: Final = Struct(">7q")
_WITHOUT_VERSION_BYTES: Final = 32


class TimerProgress(NamedTuple):
    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def packed(self) -> bytes:
        return _FIELDS.pack(*self)

    @classmethod
    def unpacked(cls, data: bytes) -> TimerProgress:
        """Old brokers send no version. WireError if even less came."""
        if len(data) < _WITHOUT_VERSION_BYTES:
            raise WireError(f"progress of timers has {len(data)} bytes, at least {_WITHOUT_VERSION_BYTES} are needed")
        return cls(*_FIELDS.unpack(data[: _FIELDS.size].ljust(_FIELDS.size, b"\0")))


class TimerCheck:
    def __init__(self, disk: Disk, path: str) -> None:
        # A Java process that died at its first start leaves an empty file.
        if disk.exists(path) and disk.size(path) == 0:
            disk.remove(path)
        self._file: File = disk.open(path, TIMERCHECK_BYTES, create=True, allocate=True)
        self.saved: TimerProgress = TimerProgress.unpacked(self._file.pread(0, _FIELDS.size))

    def write(self, progress: TimerProgress) -> None:
        """On disk when this returns, in any thread. One write below a sector: old or new, never torn."""
        self._file.pwrite(0, progress.packed())
        self._file.sync()
        self.saved = progress

    def close(self) -> None:
        self._file.close()
