"""Named points at which tests stop or kill what runs. Nothing looks at them unless COMETMQ_FAULTS names a directory.

    DIR/plan      "in write@2": the second time that any process comes to that point
    DIR/count     one byte for each time
    DIR/struck    made then, with the point and the number of the process, which waits
    DIR/go        whoever watches has done its worst: it may go on, if it still can

The points of one batch, in order; archive, sink and mirror come to all of them:

    offsets logged    its offsets are in Spark's log, nothing else is
    before read       a task is about to read a range
    in read           a task has got some of a range, and there is more
    in write          a task has written some: a file, or a window of sends
    written           all tasks are done; the batch does not count yet
    committed         it counts: manifest, table or ledger has it; Spark has not noted that it is done
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

WAIT_S: Final = 120.0


def at(point: str) -> None:
    """A named point of a job."""
    folder = os.environ.get("COMETMQ_FAULTS")
    if folder is not None:
        _come_to(point, Path(folder))


def _come_to(point: str, folder: Path) -> None:
    try:
        name, _, count = (folder / "plan").read_text().partition("@")
    except FileNotFoundError:
        return
    if name != point:
        return
    file = os.open(folder / "count", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, b"x")
        if os.lseek(file, 0, os.SEEK_CUR) != int(count or 1):
            return
    finally:
        os.close(file)
    fresh = folder / "struck.new"
    fresh.write_text(f"{point} {os.getpid()}")
    fresh.rename(folder / "struck")
    give_up_s = time.monotonic() + WAIT_S
    while not (folder / "go").exists() and time.monotonic() < give_up_s:
        time.sleep(0.01)
