"""A really full disk: a small file system is filled to the last block by a store in a child process.

A store that writes to memory without owning its blocks dies here by SIGBUS, which no fake can show.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20

PROGRAM = r"""
import os, sys
from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.puts import AppendRequest
from cometmq.store.results import GetStatus, PutStatus
from cometmq.store.store import Store

root = sys.argv[1]
options = StoreOptions(
    root_dir=root + "/store", segment_bytes=1 << 20, queue_file_bytes=100_000, index_slots=1000, index_entries=50_000
)

def count(store):
    found = 0
    while True:
        result = store.get("TopicA", 0, found, 32)
        if result.status != GetStatus.FOUND:
            return found
        found += result.count

with open(root + "/filler", "wb") as filler:
    filler.write(bytes(3 << 20))
clock = ManualClock()
store = Store(options, OsDisk(), clock)
stored = 0
refusals = set()
for number in range(15_000):
    clock.advance(0.01)
    result = store.put(AppendRequest("TopicA", 0, bytes(1000), f"KEYS\x01k{number}\x02"))
    if result.status == PutStatus.OK:
        stored += 1
    else:
        refusals.add(result.status)
    if number % 100 == 0:
        store.write_queues()
        store.flush_queues_now()
        store.flush_now()
assert refusals == {PutStatus.SERVICE_NOT_AVAILABLE}, refusals
assert store.failure is None, store.failure
assert count(store) == stored > 5000, (count(store), stored)
os.unlink(root + "/filler")
clock.advance(10)
store.write_queues()
for number in range(1000):
    clock.advance(0.01)
    result = store.put(AppendRequest("TopicA", 0, bytes(1000)))
    assert result.status == PutStatus.OK, result
    assert result.queue_offset == stored + number
store.close()
again = Store(options, OsDisk(), clock)
assert not again.crashed
assert count(again) == stored + 1000
print("stored", stored)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """16 MiB. Mounting takes rights that a developer's machine may not give."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("NOT TESTED: a full file system; mounting one needs root on Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    place = tmp_path / "small"
    place.mkdir()
    if libc.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, b"size=16m") != 0:
        pytest.skip(f"NOT TESTED: a full file system; cannot mount one: {os.strerror(ctypes.get_errno())}")
    yield place
    assert libc.umount(str(place).encode()) == 0


@pytest.mark.mission("MF-02")
def test_a_full_file_system_refuses_puts_kills_nobody_and_is_used_again_when_there_is_room(small_disk: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(small_disk)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr[-3000:]}"
    assert done.stdout.startswith("stored ")
