"""Small files that hold state (settings, tables): replaced whole, never half.

    save     name.tmp  written and synced
             name      renamed to name.bak       the previous version
             name.tmp  renamed to name           then the directory is synced
    load     name, else name.bak

A good copy has its final name or `.bak` at every moment, so a crash leaves the new version or the one before. A file
that does not parse is moved to `name.bad` before anything else is written, so that it never replaces a good `.bak`.
With a file but no good copy, loading fails: to start empty would be to lose what was saved.

The calls block; servers make them in a thread.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cometmq.errors import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")


def save(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, on disk when this returns. Raises OSError; the old version then still stands."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path, ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if path.exists() and path.stat().st_size > 0:  # an empty one must not take the place of a good `.bak`
        path.replace(_beside(path, ".bak"))
    temporary.replace(path)
    _sync_directory(path.parent)


def load(path: Path, parse: Callable[[bytes], T]) -> T | None:
    """The newest version that `parse` accepts, None if there never was one. `parse` raises ValueError for a bad file.

    An empty file counts as absent: `save` never leaves one, a Java process that died in the middle of a rewrite does.
    """
    faults: list[str] = []
    for candidate in (path, _beside(path, ".bak")):
        content = _read(candidate)
        if not content:
            continue
        try:
            parsed = parse(content)
        except ValueError as error:
            faults.append(f"{candidate}: {error}")
            continue
        if faults:
            _set_aside(path)
            log.error("loaded previous version file=%s because=%r", candidate, faults[0])
        return parsed
    if faults:
        raise StoreError(
            f"no good copy of {path} ({'; '.join(faults)}); restore it from a backup, or move it away to start empty"
        )
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _set_aside(path: Path) -> None:
    try:
        path.replace(_beside(path, ".bad"))
    except OSError as error:
        raise StoreError(f"{path} is damaged and cannot be moved away: {error.strerror or error}") from error


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":  # a directory cannot be opened there, and renames are journalled
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
