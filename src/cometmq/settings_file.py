"""A server's settings file, which people write: changed line by line, never written anew.

    broker.conf                      only the lines of changed keys are other ones; comments and order stay
    broker.conf.20261119T213000      what it was before that change; the newest `BACKUPS_MAX` are kept

The calls block; servers make them in a thread.
"""

import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from cometmq.state_file import OS_FILES, PRIVATE_FILES

BACKUPS_MAX: Final = 10
_DATE: Final = "%Y%m%dT%H%M%S"


def change(path: Path, edit: Callable[[bytes], bytes], now: datetime, *, private: bool) -> None:
    """`edit` gives the new content for the old. `private`: there are secrets in it, so the file and its backups are for
    their owner alone. Raises OSError."""
    files = PRIVATE_FILES if private else OS_FILES
    path = path.resolve()  # a link stays a link
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        before = b""
    after = edit(before)
    if after == before:
        return
    backup = Path(f"{path}.{now.strftime(_DATE)}")
    if before and not backup.exists():  # of two changes in one second the older content is kept
        files.replace_atomically(str(backup), before)
    files.replace_atomically(str(path), after)
    for old in backups(path)[:-BACKUPS_MAX]:
        with contextlib.suppress(OSError):
            old.unlink()


def backups(path: Path) -> list[Path]:
    """Oldest first."""
    return sorted(one for one in path.parent.glob(f"{path.name}.*") if _is_date(one.name.removeprefix(f"{path.name}.")))


def _is_date(text: str) -> bool:
    try:
        datetime.strptime(text, _DATE)  # noqa: DTZ007 - only its form is asked
    except ValueError:
        return False
    return True
