"""A start that dies at every single disk operation, by kill or by power cut, and the start after it.

Whatever the first start had done by then, the second ends with the same messages, queues, index and numbers as one that
was not disturbed.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.store import Store
from tests.support.logs import message
from tests.support.parts import files_below
from tests.support.whole_store import ROOT, open_store, read_queue

SIZES: dict[str, Any] = {"segment_bytes": 4096, "queue_file_bytes": 200, "index_slots": 5, "index_entries": 12}


class Died(Exception):
    """The process ends here."""


def crashed_disk(clock: ManualClock) -> FakeDisk:
    """Part of it flushed, a torn tail, queues and index behind, and segments made ahead."""
    disk = FakeDisk(now_ms=clock.now_ms)
    store = open_store(disk, clock, **SIZES)
    for number in range(60):
        clock.advance(1)
        properties = f"KEYS\x01k{number}\x02TAGS\x01t\x02"
        store.put(message(queue_id=number % 2, body=b"%03d" % number * 40, properties=properties))
        if number == 25:
            store.flush_now()
            store.flush_queues_now()
    store.write_queues()
    store.allocate_now()
    last = store.segments.segments[-1]
    image = disk.kill()
    torn_at = last.wrote - last.wrote % 512 - 512
    image.open(last.file.path, -1, create=False, allocate=False).pwrite(torn_at, bytes(512))
    return image


def cleanly_stopped_disk(clock: ManualClock) -> FakeDisk:
    """A clean stop, but one queue lost its tail since then."""
    disk = FakeDisk(now_ms=clock.now_ms)
    store = open_store(disk, clock, **SIZES)
    for number in range(60):
        clock.advance(1)
        store.put(message(queue_id=number % 2, body=b"%03d" % number * 40, properties=f"KEYS\x01k{number}\x02"))
    store.close()
    path, _ = max(files_below(disk, f"{ROOT}/consumequeue/TopicA/0"))
    disk.open(path, -1, create=False, allocate=False).pwrite(25, bytes(175))
    return disk


def outcome(store: Store) -> dict[str, Any]:
    store.write_queues()
    index = [content for _, content in files_below(store.disk, f"{ROOT}/index")]
    return {
        "bodies": [[m.body for m in read_queue(store, "TopicA", queue)] for queue in range(2)],
        "end": store.log.max_offset,
        "numbers": [store.log.counters.next_offset("TopicA", queue) for queue in range(2)],
        "queues": dict(files_below(store.disk, f"{ROOT}/consumequeue")),
        "index": index,
    }


def dies_at(disk: FakeDisk, operation_number: int, clock: ManualClock) -> bool:
    """Open a store that dies at this operation. False: it was open before that."""
    left = operation_number

    def count(_operation: str, _path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Died

    disk.on_call = count
    with contextlib.suppress(Died):
        open_store(disk, clock, **SIZES)
    disk.on_call = lambda _operation, _path: None
    return left <= 0


@pytest.mark.mission("RC-09")
@pytest.mark.parametrize("make", [crashed_disk, cleanly_stopped_disk])
@pytest.mark.parametrize("power", [False, True])
def test_a_start_that_dies_at_any_operation_is_made_good_by_the_next(
    make: Callable[[ManualClock], FakeDisk], power: bool
) -> None:
    clock = ManualClock()
    disk = make(clock)
    expected = outcome(open_store(disk.kill(), clock, **SIZES))
    assert sum(map(len, expected["bodies"])) >= 50
    operation = 1
    while True:
        image = disk.kill()
        if not dies_at(image, operation, clock):
            break
        left = image.crash(operation) if power else image.kill()
        # And once more, a bit later.
        dies_at(left, operation + 3, clock)
        again = left.crash(operation + 1) if power else left.kill()
        assert outcome(open_store(again, clock, **SIZES)) == expected, f"died at operation {operation}"
        operation += 1
    assert operation > 30, "there were enough operations to die at"
