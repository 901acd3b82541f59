"""A file system without room, under a store with its threads: refusals, no SIGBUS, nothing lost, also after a crash.

The small file system is mounted in a name space of its own, so nothing is left behind whatever happens; a user without
rights gets one where the kernel allows that. tests/support/filling.py is what happens there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.store.results import PutStatus

REPO = Path(__file__).parents[2]
MOUNT = 'mount -t tmpfs -o size=14m none "$1" && exec "$2" -m tests.support.filling "$1"'


def test_a_full_disk_refuses_puts_and_loses_nothing_also_when_the_store_crashes_on_it(tmp_path: Path) -> None:
    apart = private_mounts()
    source = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO / "src"), str(REPO)]))
    done = subprocess.run(
        [*apart, "sh", "-c", MOUNT, "sh", str(tmp_path), sys.executable],
        env={**os.environ, "PYTHONPATH": source},
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr[-4000:]}"
    figures = json.loads(done.stdout)
    assert figures["filled"] > 5000
    assert figures["stored"] >= figures["filled"] + 1000
    typed = {str(PutStatus.SERVICE_NOT_AVAILABLE), str(PutStatus.CREATE_FILE_FAILED)}
    assert str(PutStatus.SERVICE_NOT_AVAILABLE) in figures["refused"]
    assert {*figures["refused"], *figures["refused_later"]} <= typed
    assert not list(tmp_path.iterdir()), "the mount is gone with its name space"


CUT_A_SPARSE_SEGMENT = """
import os, sys
from cometmq.store.disk import OsDisk
from cometmq.store.segments import Segments
directory = sys.argv[1] + "/commitlog"
os.mkdir(directory)
path = directory + "/" + "0" * 20
with open(path, "wb") as file:
    for at in (0, 8192, 40_960):
        file.seek(at)
        file.write(bytes([7]) * 100)
    file.truncate(1 << 20)
with open(sys.argv[1] + "/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
segments = Segments(OsDisk(), [directory], 1 << 20)
segments.load()
segments.cut(50)
assert open(path, "rb").read().rstrip(bytes(1)) == bytes([7]) * 50
"""


def test_cutting_the_tail_of_a_segment_that_java_left_sparse_needs_no_room(tmp_path: Path) -> None:
    run = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    source = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO / "src")]))
    done = subprocess.run(
        [*private_mounts(), "sh", "-c", run, "sh", str(tmp_path), sys.executable, CUT_A_SPARSE_SEGMENT],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr[-4000:]}"


def private_mounts() -> list[str]:
    """The start of a command that may mount what nobody else sees."""
    unshare = shutil.which("unshare")
    for flags in ("-m", "-Urm"):
        if unshare is not None:
            command = [unshare, flags]
            probe = [*command, "sh", "-c", "mount -t tmpfs none /mnt"]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                return command
    pytest.skip("NOT TESTED: a full file system; nobody may mount one here (it takes Linux, and root or unshare -Ur)")
