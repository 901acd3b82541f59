"""Files that are there as a whole or not at all, and only once."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def create_whole(path: Path, content: bytes) -> bool:
    """The whole file at once; False if it is there already. On disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with open(fresh, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True
