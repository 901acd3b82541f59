"""How much memory this process uses, where the system tells (Linux): read from /proc/self/statm.

`own_bytes` leaves out pages of files: mapped segments of the log are resident while there is room, and go when
somebody else needs it.
"""

import os
from pathlib import Path
from typing import Final

STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int | None:
    pages = _pages()
    return pages[1] * os.sysconf("SC_PAGESIZE") if pages is not None else None


def own_bytes() -> int | None:
    pages = _pages()
    return (pages[1] - pages[2]) * os.sysconf("SC_PAGESIZE") if pages is not None else None


def _pages() -> list[int] | None:
    """Size, resident, shared with files, ..."""
    try:
        return [int(word) for word in STATM.read_text(encoding="ascii").split()]
    except OSError:
        return None
