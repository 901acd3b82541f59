"""Checks expiry: the table of hours, ages and disk use line by line, and what follows the log."""

import time
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.retention import MANUAL_ROUNDS
from cometmq.store.log.write_flags import DISK_FULL, QUEUE_DISK_FULL
from cometmq.store.results import GetStatus, PutStatus
from tests.support.logs import message
from tests.support.parts import ROOT, Parts

HOUR_S = 3600


class Partitions(FakeDisk):
    """A disk whose paths lie on partitions of their own."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(now_ms=clock.now_ms)
        self.ratios: dict[str, float] = {}
        self.unmeasurable = False

    def used_ratio(self, path: str) -> float:
        if self.unmeasurable:
            raise OSError("no such partition")
        return self.ratios.get(path, 0.1)


def at_hour(hour: int) -> ManualClock:
    """A clock that shows this hour of local time."""
    local = time.localtime(1_700_000_000)
    midnight = 1_700_000_000 - local.tm_hour * HOUR_S - local.tm_min * 60 - local.tm_sec
    return ManualClock(wall_ms=(midnight + hour * HOUR_S + 60) * 1000)


def filled(clock: ManualClock, segments: int = 15, **options: Any) -> tuple[Parts, Partitions]:
    disk = Partitions(clock)
    parts = Parts(disk, clock, **options)
    while len(parts.segments.segments) < segments:
        parts.put(body=bytes(300))
    parts.flush_log()
    for segment in parts.segments.segments:
        disk.set_modified_ms(segment.file.path, clock.now_ms())
    return parts, disk


@pytest.mark.mission("RT-01")
@pytest.mark.parametrize(
    ("hour", "age_h", "log_ratio", "queue_ratio", "deleted"),
    [
        (4, 73, 0.10, 0.10, 10),  # in the hour, old
        (4, 71, 0.10, 0.10, 0),  # in the hour, young
        (5, 73, 0.10, 0.10, 0),  # out of the hour
        (5, 73, 0.75, 0.10, 0),  # not above 75 %
        (5, 73, 0.76, 0.10, 10),  # above 75 %: by age at any hour
        (5, 71, 0.76, 0.10, 0),
        (5, 73, 0.10, 0.76, 10),  # the partition of the queues counts as well
        (5, 1, 0.85, 0.10, 0),  # not above 85 %
        (5, 1, 0.86, 0.10, 10),  # above 85 %: whatever the age
        (5, 1, 0.10, 0.86, 10),
        (5, 1, 0.91, 0.10, 10),
    ],
)
def test_when_segments_are_deleted(hour: int, age_h: int, log_ratio: float, queue_ratio: float, deleted: int) -> None:
    clock = at_hour(hour)
    parts, disk = filled(clock)
    for segment in parts.segments.segments:
        disk.set_modified_ms(segment.file.path, clock.now_ms() - age_h * HOUR_S * 1000)
    disk.ratios = {f"{ROOT}/commitlog": log_ratio, f"{ROOT}/consumequeue": queue_ratio}
    assert parts.retention.round() == deleted
    assert parts.log.min_offset == deleted * 4096


@pytest.mark.mission("RT-01")
def test_the_last_segment_is_never_deleted() -> None:
    parts, disk = filled(at_hour(5), segments=5)
    disk.ratios = {f"{ROOT}/commitlog": 0.99}
    assert parts.retention.round() == 4
    assert parts.retention.round() == 0
    assert parts.log.min_offset == 4 * 4096


@pytest.mark.mission("RT-01")
def test_deleting_stops_at_the_first_segment_that_is_too_young() -> None:
    clock = at_hour(4)
    parts, disk = filled(clock)
    for number, segment in enumerate(parts.segments.segments):
        age_h = 1 if number == 3 else 100
        disk.set_modified_ms(segment.file.path, clock.now_ms() - age_h * HOUR_S * 1000)
    assert parts.retention.round() == 3


def test_a_segment_that_is_not_flushed_stays_until_it_is() -> None:
    """Otherwise the flush thread would meet a missing file, and take that for a failing disk."""
    clock = at_hour(4)
    parts = Parts(Partitions(clock), clock, file_reserved_hours=0)
    while len(parts.segments.segments) < 5:
        parts.put(body=bytes(300))
    running = parts.segments.flush_steps(0)
    assert parts.retention.round() == 0
    for step in running:
        step.segment.file.sync()
        parts.segments.flushed_to(step)
    assert parts.retention.round() == 4


@pytest.mark.mission("RT-01")
def test_a_segment_that_is_being_read_stays_readable_after_its_deletion() -> None:
    parts, disk = filled(at_hour(5))
    result = parts.reading.get("TopicA", 0, 0, 5)
    assert result is not None
    before = bytes(result.slices[0])
    disk.ratios = {f"{ROOT}/commitlog": 0.86}
    parts.retention.round()
    assert parts.log.min_offset > 0
    assert bytes(result.slices[0]) == before


def test_several_hours_can_be_set() -> None:
    for hour, deletes in ((2, True), (3, False), (14, True)):
        clock = at_hour(hour)
        parts, disk = filled(clock, delete_when="02; 14")
        for segment in parts.segments.segments:
            disk.set_modified_ms(segment.file.path, 0)
        assert (parts.retention.round() > 0) is deletes


def test_an_operator_can_ask_for_it() -> None:
    clock = at_hour(5)
    parts, disk = filled(clock, delete_files_max=1, segments=30)
    for segment in parts.segments.segments:
        disk.set_modified_ms(segment.file.path, 0)
    parts.retention.delete_by_hand()
    assert [parts.retention.round() for _ in range(MANUAL_ROUNDS + 2)] == [1] * MANUAL_ROUNDS + [0, 0]


def test_without_force_only_old_segments_go() -> None:
    parts, disk = filled(at_hour(5), clean_forcibly=False)
    disk.ratios = {f"{ROOT}/commitlog": 0.95}
    assert parts.retention.round() == 0


def test_a_disk_that_cannot_be_measured_deletes_by_age() -> None:
    clock = at_hour(5)
    parts, disk = filled(clock)
    disk.unmeasurable = True
    assert parts.retention.round() == 0
    for segment in parts.segments.segments:
        disk.set_modified_ms(segment.file.path, 0)
    assert parts.retention.round() == 10


def test_limits_are_clamped() -> None:
    parts, disk = filled(at_hour(5), disk_warning_percent=99, disk_clean_forcibly_percent=99)
    disk.ratios = {f"{ROOT}/commitlog": 0.91}
    parts.retention.round()
    assert parts.flags.bits == DISK_FULL
    parts, disk = filled(at_hour(5), disk_warning_percent=1, disk_clean_forcibly_percent=1)
    disk.ratios = {f"{ROOT}/commitlog": 0.30, f"{ROOT}/consumequeue": 0.30}
    assert parts.retention.round() == 0


@pytest.mark.parametrize(("usable_bytes", "deleted"), [(120_000, 10), (10_000_000, 0)])
def test_stores_that_share_a_partition_count_their_share(usable_bytes: int, deleted: int) -> None:
    # A tenth of the partition is used, and half of it is meant for this store, which uses 15 * 4096 bytes and more.
    parts, disk = filled(at_hour(5), replicas_per_disk=2)
    disk.full_after(usable_bytes)
    assert parts.retention.round() == deleted


@pytest.mark.mission("RT-03")
def test_a_full_disk_stops_puts_and_not_gets_until_there_is_room() -> None:
    parts, disk = filled(at_hour(5), clean_forcibly=False)
    for bit, path in ((DISK_FULL, f"{ROOT}/commitlog"), (QUEUE_DISK_FULL, f"{ROOT}/consumequeue")):
        disk.ratios = {path: 0.91}
        parts.retention.round()
        assert parts.flags.bits == bit
        assert parts.log.append(message()).status == PutStatus.SERVICE_NOT_AVAILABLE
        assert max(parts.retention.space.log_ratio, parts.retention.space.queue_ratio) == 0.91
        found = parts.reading.get("TopicA", 0, 0, 5)
        assert found is not None
        assert found.status == GetStatus.FOUND
        disk.ratios = {path: 0.80}
        parts.retention.round()
        assert parts.log.append(message()).status == PutStatus.OK


def test_new_segments_go_to_the_directory_that_has_room() -> None:
    clock = at_hour(5)
    disk = Partitions(clock)
    parts = Parts(disk, clock, commitlog_paths="/a,/b")
    while len(parts.segments.segments) < 4:
        parts.put(body=bytes(300))
    assert (len(disk.list_files("/a")), len(disk.list_files("/b"))) == (2, 2)
    disk.ratios = {"/a": 0.99, "/b": 0.5}
    parts.retention.round()
    assert parts.flags.bits == 0, "the least used one counts"
    while len(parts.segments.segments) < 8:
        parts.put(body=bytes(300))
    assert (len(disk.list_files("/a")), len(disk.list_files("/b"))) == (2, 6)


@pytest.mark.mission("RT-02")
def test_queues_and_index_follow_the_log() -> None:
    parts, disk = filled(at_hour(5), segments=40)
    parts.put("Idle")
    for number in range(200):
        parts.put(queue_id=number % 3, body=bytes(200), KEYS=f"k{number}")
    parts.flush_log()
    parts.queues.write()
    queue_files = len(disk.list_files(f"{ROOT}/consumequeue/TopicA/0"))
    index_files = len(disk.list_files(f"{ROOT}/index"))
    disk.ratios = {f"{ROOT}/commitlog": 0.86}
    while parts.retention.run_now():
        pass
    log_min = parts.log.min_offset
    for queue in parts.queues.all():
        for number in range(queue.min_offset, queue.max_offset):
            assert parts.lookup.physical_offset(queue.topic, queue.queue_id, number) >= log_min
    assert len(disk.list_files(f"{ROOT}/consumequeue/TopicA/0")) < queue_files
    assert len(disk.list_files(f"{ROOT}/index")) < index_files
    idle = parts.queues.queue("Idle", 0)
    assert (idle.min_offset, idle.max_offset) == (1, 1), "its message is gone, its number is not"
    behind = parts.reading.get("TopicA", 0, 0, 5)
    assert behind is not None
    assert behind.status == GetStatus.OFFSET_TOO_SMALL
    going_on = parts.reading.get("TopicA", 0, behind.next_offset, 5)
    assert going_on is not None
    assert going_on.status == GetStatus.FOUND


@pytest.mark.mission("RT-02")
def test_what_expired_stays_expired_after_a_restart() -> None:
    parts, disk = filled(at_hour(5))
    disk.ratios = {f"{ROOT}/commitlog": 0.86}
    parts.retention.run_now()
    first = parts.queues.min_offset("TopicA", 0)
    assert first > 0
    parts.close()
    again = Parts(disk, parts.clock)
    assert again.queues.min_offset("TopicA", 0) == first
    assert again.log.counters.next_offset("TopicA", 0) == parts.log.counters.next_offset("TopicA", 0)


def test_queues_follow_a_few_at_a_time() -> None:
    parts, disk = filled(at_hour(5))
    for number in range(25):
        parts.queues.put(f"topic{number}", 0, number, 1, 0, 1, 0)
    disk.ratios = {f"{ROOT}/commitlog": 0.86}
    parts.retention.round()
    steps = 0
    while parts.retention.follow(queues_max=5):
        steps += 1
    assert steps == 5
    assert not parts.retention.follow()
    assert parts.queues.min_offset("topic24", 0) == 1
