"""A disk in memory that fails on request and remembers what a power cut would leave.

Every file has two states: what was written (`content`) and what the device has (`durable`). `sync()` copies the
first to the second as it was when the call began. Two images can be taken at any moment, each a new FakeDisk:

    kill()        all that was written: the process died, the kernel did not
    crash(seed)   per 4 KiB page that was not synced: kept, dropped, or torn (each 512-byte sector for itself)

Names are durable at once unless the disk is made with `lazy_names=True`; then creations, renames and removals wait
for `sync_dir()`, and a crash keeps a prefix of the waiting ones, as a journal does.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from cometmq.errors import StoreError
from cometmq.store.disk import PAGE_BYTES, DiskFull, lock_refused

SECTOR_BYTES = 512


class _Node:
    __slots__ = ("content", "durable", "modified_ms", "reserved_bytes")

    def __init__(self, content: bytearray, durable: bytes, modified_ms: int) -> None:
        self.content = content
        self.durable = durable
        self.modified_ms = modified_ms
        self.reserved_bytes = 0


# What one operation does to names, all of it or nothing: path and what it now leads to.
_Changes: TypeAlias = list[tuple[str, _Node | None]]


class FakeFile:
    def __init__(self, disk: FakeDisk, path: str, node: _Node, writable: bool) -> None:
        self.path = path
        self.size = len(node.content)
        self._disk = disk
        self._node = node
        self._writable = writable

    def map(self) -> bytearray:
        return self._node.content

    def sync(self) -> None:
        written = bytes(self._node.content)
        self._disk._acts("sync", self.path)
        self._node.durable = written

    def pread(self, offset: int, count: int) -> bytes:
        self._disk._acts("pread", self.path)
        return bytes(self._node.content[offset : offset + count])

    def pwrite(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._disk._acts("pwrite", self.path)
        if not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        end = offset + len(data)
        if end > len(self._node.content):
            self._node.content.extend(bytes(end - len(self._node.content)))
        self._node.content[offset:end] = data
        self._node.modified_ms = self._disk.now_ms()

    def next_data(self, offset: int) -> int | None:
        rest = len(self._node.content) - offset
        zeros = rest - len(self._node.content[offset:].lstrip(b"\0"))
        return offset + zeros if zeros < rest else None

    def forget(self, offset: int) -> None: ...

    def allocate(self, offset: int, count: int) -> None:
        self._disk._acts("allocate", self.path)
        self._disk._reserve(self.path, offset + count - self._node.reserved_bytes)
        self._node.reserved_bytes = max(self._node.reserved_bytes, offset + count)
        missing = offset + count - len(self._node.content)
        if missing > 0:
            self._node.content.extend(bytes(missing))

    def warm(self) -> None:
        self._disk._acts("warm", self.path)

    def advise_random(self) -> None:
        self._disk._acts("advise_random", self.path)

    def resident(self, offset: int, count: int) -> bool:
        return self.path not in self._disk.cold_paths

    def close(self) -> None:
        self._disk._acts("close", self.path)


class _FakeLock:
    def __init__(self, disk: FakeDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk._locked.discard(self._path)


class FakeDisk:
    def __init__(self, *, lazy_names: bool = False, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.calls: Counter[str] = Counter()
        self.now_ms = now_ms
        self.cold_paths: set[str] = set()
        self.space_used_ratio = 0.1
        # Called inside each operation with (operation, path) before it takes effect: to record, stall or move a clock.
        self.on_call: Callable[[str, str], None] = lambda _operation, _path: None
        self._lazy_names = lazy_names
        self._names: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}
        self._names_waiting: list[_Changes] = []
        self._dirs: set[str] = {"/"}
        self._locked: set[str] = set()
        self._failures: dict[tuple[str, int], Exception] = {}
        self._room_bytes: int | None = None

    def fail(self, operation: str, nth: int, error: Exception | None = None) -> None:
        """The nth next call (1 = the next) of `operation` raises; EIO unless told otherwise."""
        error = error or OSError(errno.EIO, os.strerror(errno.EIO))
        self._failures[operation, self.calls[operation] + nth] = error

    def full_after(self, room_bytes: int | None) -> None:
        """Reserve at most this many bytes from now on; None: no limit again."""
        self._room_bytes = room_bytes

    def kill(self) -> FakeDisk:
        return self._image(self._names, lambda node: bytes(node.content))

    def crash(self, seed: int) -> FakeDisk:
        chance = random.Random(seed)  # noqa: S311  a reproducible accident, not a secret
        names = dict(self._durable_names)
        for changes in self._names_waiting[: chance.randint(0, len(self._names_waiting))]:
            _apply(names, changes)
        return self._image(names, lambda node: _after_power_cut(node, chance))

    def open(self, path: str, size: int, *, create: bool, allocate: bool, writable: bool = True) -> FakeFile:
        self._acts("open", path)
        node = self._names.get(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = _Node(bytearray(size), bytes(size), self.now_ms())
            if allocate:
                self._acts("allocate", path)
                self._reserve(path, size)
                node.reserved_bytes = size
            self.make_dirs(os.path.dirname(path))
            self._change([(path, node)])
        elif size not in (-1, len(node.content)):
            raise StoreError(
                f"{path} has {len(node.content)} bytes, expected {size}: restore the file or the size setting"
            )
        return FakeFile(self, path, node, writable)

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._dirs

    def list_files(self, directory: str) -> list[str]:
        return sorted(os.path.basename(path) for path in self._names if os.path.dirname(path) == directory)

    def list_dirs(self, directory: str) -> list[str]:
        return sorted(
            os.path.basename(path) for path in self._dirs if path != "/" and os.path.dirname(path) == directory
        )

    def size(self, path: str) -> int:
        return len(self._node(path).content)

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._node(path).modified_ms = modified_ms

    def make_dirs(self, path: str) -> None:
        while path and path not in self._dirs:
            self._dirs.add(path)
            path = os.path.dirname(path)

    def remove(self, path: str) -> None:
        self._acts("remove", path)
        if path in self._names:
            self._change([(path, None)])

    def remove_dir(self, path: str) -> None:
        inside = path + "/"
        for name in [name for name in self._names if name.startswith(inside)]:
            self.remove(name)
        self._dirs = {name for name in self._dirs if name != path and not name.startswith(inside)}

    def rename(self, old: str, new: str) -> None:
        self._acts("rename", new)
        node = self._node(old)
        self._change([(old, None), (new, node)])

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._node(path).content)

    def replace_atomically(self, path: str, data: bytes, *, keep_backup: bool = False) -> None:
        self._acts("replace", path)
        self.make_dirs(os.path.dirname(path))
        self._change([(path + ".tmp", _Node(bytearray(data), data, self.now_ms()))])
        if keep_backup and path in self._names and self.size(path):
            self.rename(path, path + ".bak")
        self.rename(path + ".tmp", path)
        self.sync_dir(os.path.dirname(path))

    def sync_dir(self, path: str) -> None:
        self._acts("sync_dir", path)
        waiting: list[_Changes] = []
        for changes in self._names_waiting:
            if any(os.path.dirname(name) == path for name, _ in changes):
                _apply(self._durable_names, changes)
            else:
                waiting.append(changes)
        self._names_waiting = waiting

    def used_ratio(self, path: str) -> float:
        return self.space_used_ratio

    def usable_bytes(self, path: str) -> int:
        return 1 << 50 if self._room_bytes is None else self._room_bytes

    def ram_bytes(self) -> int:
        return 1 << 34

    def process_id(self) -> int:
        return 4711

    def lock(self, path: str) -> _FakeLock:
        self._acts("lock", path)
        if path in self._locked:
            raise lock_refused(path)
        self._locked.add(path)
        file = self.open(path, 4, create=True, allocate=False)
        file.pwrite(0, b"lock")
        file.sync()
        return _FakeLock(self, path)

    def _acts(self, operation: str, path: str) -> None:
        self.calls[operation] += 1
        nth = self.calls[operation]
        self.on_call(operation, path)
        error = self._failures.pop((operation, nth), None)
        if error is not None:
            raise error

    def _reserve(self, path: str, count: int) -> None:
        if self._room_bytes is None or count <= 0:
            return
        if count > self._room_bytes:
            raise DiskFull(f"no room for {path}: {os.strerror(errno.ENOSPC)}; free space on its partition")
        self._room_bytes -= count

    def _node(self, path: str) -> _Node:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._names[path]

    def _change(self, changes: _Changes) -> None:
        _apply(self._names, changes)
        if self._lazy_names:
            self._names_waiting.append(changes)
        else:
            _apply(self._durable_names, changes)

    def _image(self, names: dict[str, _Node], bytes_left: Callable[[_Node], bytes]) -> FakeDisk:
        image = FakeDisk(lazy_names=self._lazy_names, now_ms=self.now_ms)
        for path, node in sorted(names.items()):
            left = bytes_left(node)
            image._names[path] = image._durable_names[path] = _Node(bytearray(left), left, node.modified_ms)
        image._dirs = set(self._dirs)
        return image


def _apply(names: dict[str, _Node], changes: _Changes) -> None:
    for path, node in changes:
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node


def _after_power_cut(node: _Node, chance: random.Random) -> bytes:
    durable = node.durable + bytes(len(node.content) - len(node.durable))
    if durable == node.content:
        return durable
    left = bytearray(durable)
    for page in range(0, len(left), PAGE_BYTES):
        new = node.content[page : page + PAGE_BYTES]
        if new == left[page : page + PAGE_BYTES]:
            continue
        fate = chance.choice(("kept", "dropped", "torn"))
        if fate == "kept":
            left[page : page + PAGE_BYTES] = new
        elif fate == "torn":
            for sector in range(0, len(new), SECTOR_BYTES):
                if chance.random() < 0.5:
                    left[page + sector : page + sector + SECTOR_BYTES] = new[sector : sector + SECTOR_BYTES]
    return bytes(left)
