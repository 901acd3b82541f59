"""What the harness makes once per checkout: fetched jars, compiled programs. All below the git-ignored build/.

    build/<name>/        the product, with `stamp`: hash of the files it was made from
    build/compat.lock    held while one is made or checked, so that two test runs at once make it once
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).parents[3]
SOURCES = REPO / "tests" / "compat"
BUILD = REPO / "build"
MAKE_TIMEOUT_S = 900


class ToolMissing(Exception):
    """A program or a download cannot be had on this machine; the message says which and what to do."""


def tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    inside = Path(home, "bin", name) if home else None
    found = str(inside) if inside is not None and inside.exists() else shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is not installed (or not on PATH); see docs/compat.md for what the tests use")
    return found


def once(name: str, inputs: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Directory build/<name>, filled by make(directory) unless it was made from the same inputs before."""
    target = BUILD / name
    stamp = target / "stamp"
    wanted = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(inputs))).hexdigest()
    with _locked():
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            make(target)
            stamp.write_text(wanted)
    return target


def run_tool(name: str, *args: object, cwd: Path) -> None:
    """Run a build tool; its failure (no network, for one) means that what it makes cannot be had."""
    command = [tool(name), *map(str, args)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=MAKE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ToolMissing(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


@contextmanager
def _locked() -> Iterator[None]:
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "compat.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
