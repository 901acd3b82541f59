"""A Python program on a file system of a few megabytes, mounted in a name space of its own: nothing is left behind.

A user without rights gets one where the kernel allows that; elsewhere the test is skipped and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
TIMEOUT_S = 180
MOUNT = 'mount -t tmpfs -o size="$2" none "$1" && shift 2 && exec "$@"'


def run_on_small_disk(mount: Path, size: str, *program: str) -> str:
    """What `python PROGRAM... MOUNT` prints, where `mount` holds `size`, such as 16m; it has to end well."""
    source = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO / "src"), str(REPO)]))
    done = subprocess.run(
        [*_private_mounts(), "sh", "-c", MOUNT, "sh", str(mount), size, sys.executable, *program, str(mount)],
        env={**os.environ, "PYTHONPATH": source},
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr[-4000:]}"
    assert not list(mount.iterdir()), "the mount is gone with its name space"
    return done.stdout


def _private_mounts() -> list[str]:
    """The start of a command that may mount what nobody else sees."""
    unshare = shutil.which("unshare")
    for flags in ("-m", "-Urm"):
        if unshare is not None:
            command = [unshare, flags]
            probe = [*command, "sh", "-c", "mount -t tmpfs none /mnt"]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return command
    pytest.skip("NOT TESTED: a full file system; nobody may mount one here (it takes Linux, and root or unshare -Ur)")
