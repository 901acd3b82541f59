"""Small files that hold state (settings, tables): replaced whole, never half.

    save     name.tmp  written and synced
             name      renamed to name.bak       the previous version
             name.tmp  renamed to name           then the directory is synced
    load     name, else name.bak

A good copy has its final name or `.bak` at every moment, so a crash leaves the new version or the one before. A file
that does not parse is moved to `name.bad` before anything else is written, so that it never replaces a good `.bak`.
With a file but no good copy, loading fails: to start empty would be to lose what was saved.

The calls block; servers make them in a thread. `Files` is the seam to the operating system: the store's disks, the real
one and the fake one, fit it.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from cometmq.errors import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

PRIVATE_MODE = 0o600


class Files(Protocol):
    def read_bytes(self, path: str) -> bytes:
        """FileNotFoundError if there is none."""

    def rename(self, old: str, new: str) -> None: ...

    def replace_atomically(self, path: str, data: bytes, *, keep_backup: bool = False) -> None:
        """After a crash at any moment `path` has the old bytes or the new ones. The return means: on the device.

        With `keep_backup` the old file, unless it is empty, becomes `path.bak`; then a crash may leave only that.
        """


class OsFiles:
    """With `private`, files that this makes are readable by their owner only."""

    def __init__(self, *, private: bool = False) -> None:
        self._mode = PRIVATE_MODE if private else None

    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def replace_atomically(self, path: str, data: bytes, *, keep_backup: bool = False) -> None:
        directory = os.path.dirname(path)
        os.makedirs(directory, exist_ok=True)
        temporary = path + ".tmp"
        with open(temporary, "wb", opener=self._open) as file:
            if self._mode is not None and os.name != "nt":
                os.fchmod(file.fileno(), self._mode)  # one from before may have been open to others
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if keep_backup and os.path.exists(path) and os.stat(path).st_size > 0:
            self.rename(path, path + ".bak")
        self.rename(temporary, path)
        self.sync_dir(directory)

    def _open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o666 if self._mode is None else self._mode)

    def sync_dir(self, path: str) -> None:
        if os.name == "nt":  # a directory cannot be opened there, and renames are journalled
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


OS_FILES = OsFiles()
PRIVATE_FILES = OsFiles(private=True)


def close_to_others(path: Path) -> None:
    """Take a file with secrets, and its backup, away from group and others, and say so. Raises StoreError."""
    for candidate in (path, Path(f"{path}.bak")):
        try:
            mode = candidate.stat().st_mode & 0o777
            if mode & 0o077 and os.name != "nt":
                candidate.chmod(PRIVATE_MODE)
                log.warning("closed file to others file=%s mode_before=%o mode=%o", candidate, mode, PRIVATE_MODE)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"cannot close {candidate} to others than its owner: {error.strerror or error}") from error


def save(path: Path, content: bytes, files: Files = OS_FILES) -> None:
    """Replace `path` by `content`, on disk when this returns. Raises OSError; the old version then still stands."""
    files.replace_atomically(os.path.abspath(path), content, keep_backup=True)


def load(path: Path, parse: Callable[[bytes], T], files: Files = OS_FILES) -> T | None:
    """The newest version that `parse` accepts, None if there never was one. `parse` raises ValueError for a bad file.

    An empty file counts as absent: `save` never leaves one, a Java process that died in the middle of a rewrite does.
    """
    faults: list[str] = []
    for candidate in (f"{path}", f"{path}.bak"):
        content = _read(candidate, files)
        if not content:
            continue
        try:
            parsed = parse(content)
        except ValueError as error:
            faults.append(f"{candidate}: {error}")
            continue
        if faults:
            _set_aside(path, files)
            log.error("loaded previous version file=%s because=%r", candidate, faults[0])
        return parsed
    if faults:
        raise StoreError(
            f"no good copy of {path} ({'; '.join(faults)}); restore it from a backup, or move it away to start empty"
        )
    return None


def _read(path: str, files: Files) -> bytes:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _set_aside(path: Path, files: Files) -> None:
    try:
        files.rename(f"{path}", f"{path}.bad")
    except OSError as error:
        raise StoreError(f"{path} is damaged and cannot be moved away: {error.strerror or error}") from error
