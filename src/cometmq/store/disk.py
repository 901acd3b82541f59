"""The only road from the store to the operating system: files, maps, locks, space.

`Disk` and `File` are the seam. `OsDisk` is the real thing; `fakedisk.FakeDisk` keeps everything in memory, fails on
request and shows what a power cut would leave. Both pass tests/store/test_disk_contract.py.

Three properties that the rest of the store builds on:

- A file that is opened with `allocate=True` has all its blocks. A sparse mapping on a full disk answers a store
  to memory with SIGBUS, which ends the process; an allocated one cannot. A full disk shows as `DiskFull` when blocks
  are reserved, never later.
- Opening is lazy: a File without use costs no descriptor and no address space, so a store of a thousand old
  segments opens at once. `map()`, `pread()` and `sync()` open what they need.
- Nobody counts references. A descriptor is closed, and a map is unmapped, when the last Python object that uses it
  is gone: a reader that still holds a slice of a deleted file reads its own bytes to the end, and a thread
  inside `pread()` cannot meet a recycled descriptor.

What differs by system is here and nowhere else: macOS has no posix_fallocate and no fdatasync (zeros are written,
F_FULLFSYNC is used), and only Linux can tell whether pages are in memory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, TypeAlias

from cometmq.errors import StoreError
from cometmq.state_file import OsFiles

PAGE_BYTES = 4096
_LINUX = sys.platform.startswith("linux")

# What a map is: mmap on the real disk, bytearray in the fake; both slice, index and pack alike.
Map: TypeAlias = mmap.mmap | bytearray


class DiskFull(StoreError):
    """No room, or over quota. Reads go on; writing resumes when there is room."""


class File(Protocol):
    """One file of fixed length."""

    path: str
    size: int

    def map(self) -> Map:
        """The whole file as one buffer that can be sliced, indexed and packed into; the same object every time."""

    def sync(self) -> None:
        """Return when every byte written before the call is on the device. OSError: nothing is known any more."""

    def pread(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""

    def pwrite(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, or raise."""

    def next_data(self, offset: int) -> int | None:
        """From where on, at or after `offset`, bytes may differ from zero. None: only zeros follow."""

    def forget(self, offset: int) -> None:
        """Let go of clean pages from here on. Pages of zeros that were only read ahead count as data until then."""

    def allocate(self, offset: int, count: int) -> None:
        """Reserve blocks for a range (DiskFull if there are none). Content stays as it is; the file may grow."""

    def warm(self) -> None:
        """Bring every page of the map into memory without changing a byte."""

    def advise_random(self) -> None:
        """Tell the kernel that reading ahead is no use."""

    def resident(self, offset: int, count: int) -> bool:
        """False if reading the range through the map would wait for the device; True if not, or unknown."""

    def close(self) -> None:
        """Let go. What others still hold stays valid; using the File again opens it again."""


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Names are plain paths; directories are made where a file is created."""

    def open(self, path: str, size: int, *, create: bool, allocate: bool, writable: bool = True) -> File:
        """`create`: make it if missing, `size` bytes of zeros; `allocate` then reserves its blocks, else it is sparse.

        An existing file keeps its length, which must be `size` unless `size` is -1 (take what is there).
        """

    def exists(self, path: str) -> bool: ...

    def list_files(self, directory: str) -> list[str]:
        """Sorted names of plain files; empty for a missing directory."""

    def list_dirs(self, directory: str) -> list[str]:
        """Sorted names of sub-directories; empty for a missing directory."""

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_dirs(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """A missing file is no error."""

    def remove_dir(self, path: str) -> None:
        """The directory and all that is in it; a missing one is no error."""

    def rename(self, old: str, new: str) -> None: ...

    def read_bytes(self, path: str) -> bytes: ...

    def replace_atomically(self, path: str, data: bytes, *, keep_backup: bool = False) -> None:
        """After a crash at any moment `path` has the old bytes or the new ones. The return means: on the device.

        With `keep_backup` the old file, unless it is empty, becomes `path.bak`; then a crash may leave only that.
        """

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this directory survive a power cut."""

    def used_ratio(self, path: str) -> float:
        """0.0 to 1.0: used / (used + usable) of the partition, rounded up to whole percent."""

    def usable_bytes(self, path: str) -> int: ...

    def ram_bytes(self) -> int: ...

    def process_id(self) -> int: ...

    def lock(self, path: str) -> Lock:
        """Exclusive among processes, Java's broker included. StoreError if another one holds it."""


class _Descriptor:
    """Closes when nobody refers to it any more, so a thread inside a call keeps its number valid."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class OsFile:
    """Every method holds the descriptor in a local name while it uses the number: see _Descriptor."""

    def __init__(self, path: str, size: int, writable: bool) -> None:
        self.path = path
        self.size = size
        self._writable = writable
        self._descriptor: _Descriptor | None = None
        self._map: mmap.mmap | None = None
        self._map_address = 0

    def _open(self) -> _Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            flags = os.O_RDWR if self._writable else os.O_RDONLY
            descriptor = self._descriptor = _Descriptor(os.open(self.path, flags | os.O_CLOEXEC))
        return descriptor

    def map(self) -> mmap.mmap:
        mapped = self._map
        if mapped is None:
            access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
            descriptor = self._open()
            mapped = self._map = mmap.mmap(descriptor.number, self.size, access=access)
            if self._writable:
                self._map_address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        return mapped

    def sync(self) -> None:
        descriptor = self._open()
        if _LINUX:
            os.fdatasync(descriptor.number)
            return
        if self._map is not None and self._writable:
            self._map.flush()
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(descriptor.number, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor.number)

    def pread(self, offset: int, count: int) -> bytes:
        descriptor = self._open()
        return os.pread(descriptor.number, count, offset)

    def pwrite(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        descriptor = self._open()
        rest = memoryview(data)
        while len(rest):
            with _FullDisk(self.path):
                wrote = os.pwrite(descriptor.number, rest, offset)
            offset += wrote
            rest = rest[wrote:]

    def next_data(self, offset: int) -> int | None:
        if offset >= self.size:
            return None
        if not hasattr(os, "SEEK_DATA"):
            return offset
        descriptor = self._open()
        try:
            return os.lseek(descriptor.number, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def forget(self, offset: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._open().number, offset, 0, os.POSIX_FADV_DONTNEED)

    def allocate(self, offset: int, count: int) -> None:
        descriptor = self._open()
        with _FullDisk(self.path):
            _reserve(descriptor.number, offset, count)

    def warm(self) -> None:
        view = self.map()
        for offset in range(0, self.size, PAGE_BYTES):
            view[offset] = view[offset]

    def advise_random(self) -> None:
        if hasattr(mmap, "MADV_RANDOM"):
            self.map().madvise(mmap.MADV_RANDOM)

    def resident(self, offset: int, count: int) -> bool:
        if _mincore is None or self._map is None or self._map_address == 0:
            return True
        page = mmap.PAGESIZE
        first = offset // page * page
        pages = (offset + count - first + page - 1) // page
        flags = bytearray(pages)
        pointer = (ctypes.c_char * pages).from_buffer(flags)
        if _mincore(self._map_address + first, offset + count - first, pointer) != 0:
            return True
        return flags.count(1) == pages or all(flag & 1 for flag in flags)

    def close(self) -> None:
        self._map = None
        self._map_address = 0
        self._descriptor = None


class OsLock:
    """A POSIX record lock on byte 0, which is what the Java broker takes: the two exclude each other.

    Such a lock belongs to the process, and is lost when the process closes any descriptor of that file. So nobody
    else here may open it, and a second lock within the process is refused by name before the file is touched.
    """

    _held: ClassVar[set[str]] = set()

    def __init__(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._name = os.path.realpath(path)
        if self._name in self._held:
            raise lock_refused(path)
        self._descriptor: _Descriptor | None = _Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        try:
            fcntl.lockf(self._descriptor.number, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            self._descriptor = None
            raise lock_refused(path) from error
        self._held.add(self._name)
        os.pwrite(self._descriptor.number, b"lock", 0)
        os.fsync(self._descriptor.number)

    def release(self) -> None:
        self._held.discard(self._name)
        self._descriptor = None


def lock_refused(path: str) -> StoreError:
    return StoreError(
        f"cannot lock {path}: another broker uses this store directory; stop it or change storePathRootDir"
    )


class OsDisk(OsFiles):
    def open(self, path: str, size: int, *, create: bool, allocate: bool, writable: bool = True) -> OsFile:
        if create and not os.path.exists(path):
            return self._create(path, size, allocate)
        length = os.stat(path).st_size
        if size not in (-1, length):
            raise StoreError(f"{path} has {length} bytes, expected {size}: restore the file or the size setting")
        return OsFile(path, length, writable)

    def _create(self, path: str, size: int, allocate: bool) -> OsFile:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = OsFile(path, size, writable=True)
        descriptor = _Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        file._descriptor = descriptor
        try:
            # Length first: whenever the process dies in between, the file has its final length and is all zeros.
            with _FullDisk(path):
                os.ftruncate(descriptor.number, size)
                if allocate and size:
                    _reserve(descriptor.number, 0, size)
        except BaseException:
            os.unlink(path)
            raise
        return file

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_files(self, directory: str) -> list[str]:
        return _names(directory, lambda entry: entry.is_file())

    def list_dirs(self, directory: str) -> list[str]:
        return _names(directory, lambda entry: entry.is_dir())

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_dir(self, path: str) -> None:
        if not os.path.isdir(path):
            return
        for name in self.list_dirs(path):
            self.remove_dir(os.path.join(path, name))
        for name in self.list_files(path):
            self.remove(os.path.join(path, name))
        os.rmdir(path)

    def replace_atomically(self, path: str, data: bytes, *, keep_backup: bool = False) -> None:
        with _FullDisk(path):
            super().replace_atomically(path, data, keep_backup=keep_backup)

    def used_ratio(self, path: str) -> float:
        space = os.statvfs(_existing(path))
        used = space.f_blocks - space.f_bfree
        known = used + space.f_bavail
        return -(-used * 100 // known) / 100 if known else 1.0

    def usable_bytes(self, path: str) -> int:
        space = os.statvfs(_existing(path))
        return space.f_bavail * space.f_frsize

    def ram_bytes(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def process_id(self) -> int:
        return os.getpid()

    def lock(self, path: str) -> OsLock:
        return OsLock(path)


class _FullDisk:
    """Turns "no space" and "over quota" into DiskFull; other errors pass."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"no room for {self.path}: {error.strerror}; free space on its partition") from error


def _reserve(descriptor: int, offset: int, count: int) -> None:
    if _LINUX:
        os.posix_fallocate(descriptor, offset, count)
        return
    # Rewriting what is there (zeros beyond the end) is the portable way to own the blocks.
    end = offset + count
    while offset < end:
        part = os.pread(descriptor, min(1 << 20, end - offset), offset) or bytes(min(1 << 20, end - offset))
        offset += os.pwrite(descriptor, part, offset)


def _names(directory: str, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if wanted(entry))
    except FileNotFoundError:
        return []


def _existing(path: str) -> str:
    """The path or its nearest parent that exists: a partition can be asked about before the store is made."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    return path


def _load_mincore() -> Callable[[int, int, object], int] | None:
    if not _LINUX:
        return None
    # PyDLL keeps the interpreter lock: the call takes under a microsecond, letting go and taking it back costs more.
    function = ctypes.PyDLL(None).mincore
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function


_mincore = _load_mincore()
