"""A cut of a real store: durable, kept aside, and finished by the next start when a crash interrupts it."""

from collections.abc import Callable
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.replication.sets import cut as cutting
from cometmq.store.replication.sets.promises import SetMemory
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from tests.support.logs import message, records
from tests.support.whole_store import ROOT, open_store, queue_bodies

OPTIONS: dict[str, Any] = {"controller_mode": True, "segment_bytes": 4096, "queue_file_bytes": 400}


def a_store(disk: FakeDisk, count: int) -> tuple[Store, SetMemory, list[int]]:
    """A master with so many messages, all of them flushed; none is committed."""
    store = open_store(disk, ManualClock(), **OPTIONS)
    memory = SetMemory(ROOT, disk)
    memory.lead(1, 0)
    store.lead()
    ends = []
    for number in range(count):
        result = store.put(message(body=b"%d" % number + bytes(200)))
        assert result.status == PutStatus.OK
        ends.append(result.end_offset)
    store.flush_now()
    return store, memory, ends


def numbers(store: Store) -> list[int]:
    return [int(each.body.rstrip(b"\0")) for each in records(store.log)]


def test_what_is_cut_is_gone_from_log_and_queues_and_lies_in_a_file() -> None:
    disk = FakeDisk()
    store, memory, ends = a_store(disk, 40)
    while store.count_all():
        pass
    tail = disk.read_bytes(store.segments.segments[-1].file.path)
    cutting.cut(store, memory, ends[9])
    assert numbers(store) == list(range(10))
    assert store.log.flushed_offset == store.log.max_offset == ends[9]
    store.commit(ends[9])
    assert [int(body.rstrip(b"\0")) for body in queue_bodies(store, "TopicA")] == list(range(10))
    kept = disk.read_bytes(f"{ROOT}/diverged/1-{ends[9]}.log")
    assert len(kept) >= ends[-1] - ends[9]
    assert tail[:100] in kept


def test_numbers_go_on_where_the_cut_log_ends() -> None:
    store, memory, ends = a_store(FakeDisk(), 12)
    while store.count_all():
        pass
    cutting.cut(store, memory, ends[4])
    store.follow()
    while store.count_all():
        pass
    store.lead()
    assert store.put(message(body=b"next")).queue_offset == 5


@pytest.mark.parametrize("at", range(3, 30))
def test_queues_go_on_behind_a_cut_that_took_files_of_the_index(at: int) -> None:
    """Found by 300 faults: dispatch went back to where the index ended, one byte before a record, and stood there."""
    store = open_store(FakeDisk(), ManualClock(), **OPTIONS, index_entries=5, index_slots=5)
    memory = SetMemory(ROOT, store.disk)
    memory.lead(1, 0)
    store.lead()
    ends = [store.put(message(body=b"%d" % each, properties=f"UNIQ_KEY\x01{each}")).end_offset for each in range(30)]
    store.flush_now()
    while store.count_all():
        pass
    cutting.cut(store, memory, ends[at])
    while store.count_all():
        pass
    assert store.dispatcher.position == ends[at]
    store.lead()
    assert store.put(message(body=b"next", properties="UNIQ_KEY\x01next")).queue_offset == at + 1
    while store.count_all():
        pass
    store.commit(store.log.max_offset)
    assert store.queue_bounds("TopicA", 0) == (0, at + 2)


def test_a_second_cut_before_dispatch_is_back_takes_from_the_queues_too() -> None:
    store = open_store(FakeDisk(), ManualClock(), **OPTIONS, index_entries=5, index_slots=5)
    memory = SetMemory(ROOT, store.disk)
    memory.lead(1, 0)
    store.lead()
    ends = [store.put(message(body=b"%d" % each, properties=f"UNIQ_KEY\x01{each}")).end_offset for each in range(30)]
    store.flush_now()
    while store.count_all():
        pass
    cutting.cut(store, memory, ends[27])
    assert store.dispatcher.position <= ends[26], "dispatch went back for the index"
    cutting.cut(store, memory, ends[26])
    while store.count_all():
        pass
    store.lead()
    assert store.put(message(body=b"next", properties="UNIQ_KEY\x01next")).queue_offset == 27


def test_what_is_not_committed_is_not_read_after_a_start_and_is_once_it_is() -> None:
    disk = FakeDisk()
    store, _, ends = a_store(disk, 6)
    store.commit(ends[2])
    assert len(queue_bodies(store, "TopicA")) == 3
    again = open_store(disk.kill(), ManualClock(), **OPTIONS)
    assert again.get("TopicA", 0, 0, 32) is None, "recovery put all of them into the queue"
    again.commit(ends[2])
    assert again.get("TopicA", 0, 0, 32) is None
    again.commit(ends[5])
    assert len(queue_bodies(again, "TopicA")) == 6


def image_at(step: int, disk: FakeDisk, act: Callable[[], None]) -> FakeDisk | None:
    """What a power cut before the operation of this number leaves; None if there are not so many."""
    images: list[FakeDisk] = []
    calls = iter(range(1 << 20))

    def note(_operation: str, _path: str) -> None:
        if next(calls) == step:
            images.append(disk.crash(step))

    disk.on_call = note
    act()
    disk.on_call = lambda _operation, _path: None
    return images[0] if images else None


@pytest.mark.parametrize("at", [0, 4])
def test_a_crash_at_any_write_of_a_cut_leaves_a_log_that_is_cut_by_the_next_start(at: int) -> None:
    """Each operation on the disk once as the last one before the power goes."""
    seen = 0
    step = 0
    while True:
        disk = FakeDisk(lazy_names=True)
        store, memory, ends = a_store(disk, 40)
        end = ends[at] if at else 0
        image = image_at(step, disk, lambda: cutting.cut(store, memory, end))  # noqa: B023 - called at once
        if image is None:
            break
        image._locked.clear()
        found = SetMemory(ROOT, image)
        again = open_store(image, ManualClock(), **OPTIONS)
        begun = found.kept.cutting >= 0
        cutting.resume(again, found)
        if begun:
            seen += 1
            assert numbers(again) == list(range(at + 1 if at else 0)), f"step {step}"
        else:
            assert numbers(again) in (list(range(40)), list(range(at + 1 if at else 0)))
        assert found.kept.cutting == -1
        step += 1
    assert seen > 3, "hardly a step lies between the beginning of a cut and its end"
