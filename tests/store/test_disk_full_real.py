"""A file system without room, under a store with its threads: refusals, no SIGBUS, nothing lost, also after a crash.

tests/support/filling.py is what happens there.
"""

from __future__ import annotations

import json
from pathlib import Path

from cometmq.store.results import PutStatus
from tests.support.small_disk import run_on_small_disk


def test_a_full_disk_refuses_puts_and_loses_nothing_also_when_the_store_crashes_on_it(tmp_path: Path) -> None:
    figures = json.loads(run_on_small_disk(tmp_path, "14m", "-m", "tests.support.filling"))
    assert figures["filled"] > 5000
    assert figures["stored"] >= figures["filled"] + 1000
    typed = {str(PutStatus.SERVICE_NOT_AVAILABLE), str(PutStatus.CREATE_FILE_FAILED)}
    assert str(PutStatus.SERVICE_NOT_AVAILABLE) in figures["refused"]
    assert {*figures["refused"], *figures["refused_later"]} <= typed


CUT_A_SPARSE_SEGMENT = """
import os, sys
from cometmq.store.disk import OsDisk
from cometmq.store.log.segments import Segments
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
    run_on_small_disk(tmp_path, "1m", "-c", CUT_A_SPARSE_SEGMENT)
