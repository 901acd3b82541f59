"""A really full disk: a small file system is filled to the last block by a store in a child process.

A store that writes to memory without owning its blocks dies here by SIGBUS, which no fake can show.
"""

from pathlib import Path

import pytest

from tests.support.small_disk import run_on_small_disk

PROGRAM = r"""
import os, sys
from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.log.append import AppendRequest
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


# Nothing is set by hand: the store asks the file system, which is nearly full, while its segments have their blocks.
NEARLY_FULL = r"""
import os, sys
from cometmq.clock import ManualClock
from cometmq.store.disk import OsDisk
from cometmq.store.options import StoreOptions
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import GetStatus, PutStatus
from cometmq.store.store import Store

root = sys.argv[1]
options = StoreOptions(
    root_dir=root + "/store", segment_bytes=1 << 20, queue_file_bytes=100_000, index_enabled=False,
    clean_forcibly=False, disk_warning_percent=90,
)
store = Store(options, OsDisk(), ManualClock())

def put():
    return store.put(AppendRequest("TopicA", 0, bytes(1000)))

assert put().status == PutStatus.OK
store.retention.round()
assert put().status == PutStatus.OK
used = os.statvfs(root)
with open(root + "/filler", "wb") as filler:
    filler.write(bytes(used.f_bfree * used.f_frsize - (used.f_blocks * used.f_frsize >> 4)))
store.retention.round()
refused = put()
assert refused.status == PutStatus.SERVICE_NOT_AVAILABLE, refused
assert "disk full" in refused.remark, refused
assert store.get("TopicA", 0, 0, 32).status == GetStatus.FOUND
os.unlink(root + "/filler")
store.retention.round()
assert put().queue_offset == 2
store.close()
print("done")
"""


@pytest.mark.mission("MF-02")
def test_a_full_file_system_refuses_puts_kills_nobody_and_is_used_again_when_there_is_room(tmp_path: Path) -> None:
    assert run_on_small_disk(tmp_path, "16m", "-c", PROGRAM).startswith("stored ")


@pytest.mark.mission("RT-03")
def test_a_nearly_full_file_system_stops_puts_and_not_gets_until_there_is_room(tmp_path: Path) -> None:
    assert run_on_small_disk(tmp_path, "16m", "-c", NEARLY_FULL) == "done\n"
