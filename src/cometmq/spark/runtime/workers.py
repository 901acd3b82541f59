"""The Python that a local Spark starts for its workers: the one that runs here, with its own pyspark.

Left to itself Spark starts whatever `python3` the path has, and puts a zip file with pyspark's sources before all that
is installed. Python keeps nothing of what it compiles from a zip file: every stream begins with half a second of that,
and the first query of a session with two. The same modules lie compiled where the zip file comes from. So workers
begin through a launcher that takes the zip files off their path.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cometmq.spark.runtime.launchers import launcher

_LAUNCHER: Final = """#!/bin/sh
# Takes the zip files of pyspark off the path: what is in them is installed.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        {zips}/*.zip) ;;
        *) kept="$kept$entry:" ;;
    esac
done
unset IFS
PYTHONPATH="$kept"{site}
export PYTHONPATH
exec {python} "$@"
"""


@contextmanager
def workers_of_this_python() -> Iterator[None]:
    """While Spark starts, `PYSPARK_PYTHON` is the launcher, unless somebody has set it.

    Not afterwards: whoever looks for programs beside that Python would not find them beside a launcher.
    """
    if "PYSPARK_PYTHON" in os.environ:
        yield
        return
    os.environ["PYSPARK_PYTHON"] = worker_python()
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]


def worker_python() -> str:
    """The launcher, or this Python where there can be none."""
    packages = [_directory_of(name) for name in ("pyspark", "py4j")]
    if sys.platform == "win32" or packages[0] is None or packages[0] != packages[1]:
        return sys.executable
    text = _LAUNCHER.format(
        zips=shlex.quote(str(packages[0] / "pyspark" / "python" / "lib")),
        site=shlex.quote(str(packages[0])),
        python=shlex.quote(sys.executable),
    )
    program = launcher("python", f"python-{zlib.crc32(text.encode()):08x}", text)
    # Nothing is executable where the temporary directory is mounted so.
    return str(program) if os.access(program, os.X_OK) else sys.executable


def _directory_of(package: str) -> Path | None:
    """Where a package is installed; None if it is not in a directory."""
    found = importlib.util.find_spec(package)
    place = Path(found.origin).parent.parent if found is not None and found.origin else None
    return place if place is not None and place.is_dir() else None
