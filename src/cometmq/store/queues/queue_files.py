"""The files of one queue: a row of equal, sparse files whose newest bytes are still in memory.

    |<- first file ->|<- ... ->|<------ last file ------>|
    first                      .       written       end .
                               .          |   tail    |  .      zeros up to the end of the file

Positions count from the queue's very first byte, deleted files included; a file is named by the position of its first
byte. Bytes are appended to `tail` and reach the files in batches (`write()`), so a queue costs one system call for
hundreds of units and holds no descriptor and no map: a store may have ten thousand queues. What a crash takes
from the tail is rebuilt from the commit log.

Behind `end` a file has nothing but zeros, also after `cut()`: a unit left there would look alive once the queue
has grown up to it.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from cometmq.errors import StoreError
from cometmq.names import segment_name, segment_offset
from cometmq.store.disk import Disk, File

log = logging.getLogger(__name__)

FILES_OPEN_MAX: Final = 256
_ZEROS: Final = bytes(32 << 10)


class OpenFiles:
    """The files that were used last stay open, at most FILES_OPEN_MAX of all queues together."""

    def __init__(self, disk: Disk) -> None:
        self.disk: Disk = disk
        self._files: dict[str, File] = {}

    def get(self, path: str) -> File:
        """A file that exists. FileNotFoundError if it does not."""
        file = self._files.pop(path, None)
        if file is None:
            file = self.disk.open(path, -1, create=False, allocate=False)
        return self._keep(path, file)

    def create(self, path: str, size: int) -> File:
        return self._keep(path, self.disk.open(path, size, create=True, allocate=False))

    def _keep(self, path: str, file: File) -> File:
        self._files[path] = file
        if len(self._files) > FILES_OPEN_MAX:
            oldest = next(iter(self._files))
            self._files.pop(oldest).close()
        return file

    def remove(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.close()
        self.disk.remove(path)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class QueueFiles:
    __slots__ = ("directory", "file_bytes", "starts", "end", "written", "unsynced_from", "named", "tail", "open_files")

    def __init__(self, open_files: OpenFiles, directory: str, file_bytes: int) -> None:
        self.open_files: OpenFiles = open_files
        self.directory: str = directory
        self.file_bytes: int = file_bytes
        self.starts: list[int] = []
        self.end: int = 0
        self.written: int = 0
        # Where the bytes begin that a power cut may take; -1: there are none.
        self.unsynced_from: int = -1
        # False: files were made or removed, and a power cut may undo that.
        self.named: bool = True
        self.tail: bytearray = bytearray()

    @property
    def first(self) -> int:
        """The position of the first byte that is still there."""
        return self.starts[0] if self.starts else self.written - self.written % self.file_bytes

    def file_start(self, position: int) -> int:
        return position - position % self.file_bytes

    def path(self, start: int) -> str:
        return os.path.join(self.directory, segment_name(start))

    # Growing

    def append(self, data: bytes) -> None:
        self.tail += data
        self.end += len(data)

    def begin_at(self, position: int) -> None:
        """An empty row starts here: nothing before this position will ever be there."""
        assert self.first == self.end, f"{self.directory} is not empty: {self.first} to {self.end}"
        self.clear()
        self.end = self.written = position

    def write(self) -> None:
        """Hand the tail to the kernel. DiskFull or OSError: the rest of it stays in memory, try again later."""
        while self.tail:
            start = self.file_start(self.written)
            count = min(len(self.tail), start + self.file_bytes - self.written)
            self._file_for_writing(start).pwrite(self.written - start, self.tail[:count])
            if self.unsynced_from < 0:
                self.unsynced_from = self.written
            self.written += count
            del self.tail[:count]

    def _file_for_writing(self, start: int) -> File:
        if self.starts and self.starts[-1] == start:
            return self.open_files.get(self.path(start))
        file = self.open_files.create(self.path(start), self.file_bytes)
        self.starts.append(start)
        self.named = False
        return file

    # Reading

    def read(self, position: int, count: int) -> bytes:
        """What there is from `position` on, at most `count` bytes and not beyond its file.

        FileNotFoundError if the file is gone.
        """
        start = self.file_start(position)
        stop = min(position + count, self.end, start + self.file_bytes)
        if position >= stop:
            return b""
        if position >= self.written:
            return bytes(self.tail[position - self.written : stop - self.written])
        data = self.open_files.get(self.path(start)).pread(position - start, min(stop, self.written) - position)
        if stop > self.written:
            data += self.tail[: stop - self.written]
        return data

    # Loading, cutting, removing

    def load(self) -> None:
        """Take what is in the directory, every file as full; recovery finds the real end.

        StoreError for a file of another length or name.
        """
        names = self.open_files.disk.list_files(self.directory)
        for name in names:
            path = os.path.join(self.directory, name)
            start = segment_offset(name)
            length = self.open_files.disk.size(path)
            if length == 0 and name == names[-1]:
                log.warning("removed empty queue file path=%s", path)
                self.open_files.remove(path)
                continue
            if start is None or start % self.file_bytes:
                raise StoreError(f"{path} is no queue file (20 digits, a multiple of {self.file_bytes}): move it away")
            if length != self.file_bytes:
                raise StoreError(
                    f"{path} has {length} bytes, but the file size is set to {self.file_bytes}: "
                    "set it to the size that this store was made with, or restore the file"
                )
            self.starts.append(start)
        self._drop_before_gap()
        self.end = self.written = self.starts[-1] + self.file_bytes if self.starts else 0

    def _drop_before_gap(self) -> None:
        """Positions are found by arithmetic, so what lies before a missing file cannot be reached any more."""
        for index in range(len(self.starts) - 1, 0, -1):
            if self.starts[index] - self.starts[index - 1] != self.file_bytes:
                log.error("found gap in queue directory=%s before=%d", self.directory, self.starts[index])
                del self.starts[:index]
                return

    def cut(self, position: int) -> None:
        """Make `position` the end; all that follows becomes zeros or goes away."""
        if position >= self.written:
            del self.tail[position - self.written :]
            self.end = position
            return
        self.tail.clear()
        while self.starts and self.starts[-1] >= position and len(self.starts) > 1:
            self.open_files.remove(self.path(self.starts.pop()))
            self.named = False
        changed = bool(self.starts) and self._zero_from(position)
        self.end = self.written = position
        if self.unsynced_from > position or (changed and self.unsynced_from < 0):
            self.unsynced_from = position

    def _zero_from(self, position: int) -> bool:
        """True if there was something else."""
        changed = False
        start = self.starts[-1]
        file = self.open_files.get(self.path(start))
        at = file.next_data(max(0, position - start))
        while at is not None:
            # A block at a time, compared as a whole: at every start this looks at the last file of every queue.
            block = file.pread(at, len(_ZEROS))
            zeros = _ZEROS if len(block) == len(_ZEROS) else bytes(len(block))
            if block != zeros:
                file.pwrite(at, zeros)
                changed = True
            at = file.next_data(at + len(block)) if block else None
        return changed

    def remove_first(self) -> None:
        self.open_files.remove(self.path(self.starts.pop(0)))

    def clear(self) -> None:
        """Remove all files; the next byte has position 0 unless `begin_at()` says otherwise."""
        while self.starts:
            self.open_files.remove(self.path(self.starts.pop()))
            self.named = False
        self.tail.clear()
        self.end = self.written = 0
        self.unsynced_from = -1

    @property
    def unsynced_bytes(self) -> int:
        return 0 if self.unsynced_from < 0 else self.written - self.unsynced_from

    def take_unsynced(self) -> list[str]:
        """The files that a power cut could spoil; from now on they count as synced."""
        if self.unsynced_from < 0:
            return []
        begin = self.file_start(self.unsynced_from)
        self.unsynced_from = -1
        return [self.path(start) for start in self.starts if start >= begin]
