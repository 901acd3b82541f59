"""Checks recovery: where it begins, what it cuts, what it leaves, and that everything agrees afterwards."""

import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import StoreError
from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutStatus
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.support.golden import StoreName, copy_golden_store, golden_messages, golden_store
from tests.support.parts import GOLDEN_SIZES, ROOT, Parts, files_below

# What the Java broker has after it opened these directories itself.
GOLDEN_ENDS: dict[StoreName, int] = {"clean": 164_304, "crash": 157_152}
EVER = (0, 1 << 60)


def filled(disk: FakeDisk | None = None, count: int = 120, **options: Any) -> Parts:
    """Messages of three queues over several segments, a second apart."""
    parts = Parts(disk, **options)
    for number in range(count):
        parts.clock.advance(1)
        parts.put(queue_id=number % 3, body=bytes(100) + b"%d" % number, KEYS=f"k{number}", TAGS=f"t{number % 4}")
    return parts


def state(parts: Parts) -> dict[str, Any]:
    """All that recovery has to bring back."""
    parts.queues.write()
    index = [content for _, content in files_below(parts.disk, f"{ROOT}/index")]
    return {
        "end": parts.log.max_offset,
        "queues": dict(files_below(parts.disk, f"{ROOT}/consumequeue")),
        "index": index,
        "counters": {
            (topic, queue_id): parts.log.counters.next_offset(topic, queue_id)
            for topic, queue_id, _ in parts.queues.next_offsets()
        },
    }


def flip(disk: FakeDisk | OsDisk, path: str, at: int) -> None:
    file = disk.open(path, -1, create=False, allocate=False)
    file.pwrite(at, bytes([file.pread(at, 1)[0] ^ 0x40]))


# Golden stores


@pytest.mark.mission("RC-06", "RC-07", "RC-01")
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_a_golden_store_ends_as_it_does_in_java(name: StoreName, tmp_path: Path) -> None:
    root = copy_golden_store(name, tmp_path / "store")
    parts = Parts(OsDisk(), root_dir=str(root), **GOLDEN_SIZES)
    assert parts.crashed == (name == "crash")
    assert parts.recovered.end == parts.log.max_offset == GOLDEN_ENDS[name]
    lengths: dict[tuple[str, int], int] = defaultdict(int)
    for message in golden_messages(name):
        lengths[message["topic"], message["queueId"]] += 1
        assert message["properties"]["MAX_OFFSET"] == str(parts.queues.max_offset(message["topic"], message["queueId"]))
    for (topic, queue_id), length in lengths.items():
        assert len(parts.read_all(topic, queue_id)) == length
    assert sum(lengths.values()) == 311


@pytest.mark.mission("RC-08")
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_queues_and_index_of_a_golden_store_are_rebuilt_byte_for_byte(name: StoreName, tmp_path: Path) -> None:
    root = copy_golden_store(name, tmp_path / "store")
    disk = OsDisk()
    for folder in ("consumequeue", "index"):
        disk.remove_dir(str(root / folder))
    Parts(disk, root_dir=str(root), **GOLDEN_SIZES).close()
    source = golden_store(name)
    for folder in ("consumequeue", "index"):
        ours = [content for _, content in files_below(disk, str(root / folder))]
        javas = [content for _, content in files_below(disk, str(source / folder))]
        assert ours == javas


# Where it begins


@pytest.mark.mission("RC-06")
@pytest.mark.parametrize("count", [1, 2, 12, 25])
def test_after_a_clean_stop_only_the_last_segment_is_read(count: int) -> None:
    parts = filled(count=0)
    while len(parts.segments.segments) < count:
        parts.put(body=bytes(100), KEYS="k")
    parts.close()
    again = Parts(parts.disk, parts.clock)
    assert again.recovered.scanned_from >= (count - 10) * 4096
    assert again.recovered.scanned_from == (count - 1) * 4096
    assert state(again) == state(parts)


@pytest.mark.mission("RC-06")
@pytest.mark.parametrize("crashed", [False, True])
def test_the_limit_of_segments_loses_no_message(crashed: bool) -> None:
    parts = filled()
    assert len(parts.segments.segments) > 5
    parts.close()
    disk = parts.killed()
    disk.remove_dir(f"{ROOT}/consumequeue")
    again = Parts(disk, parts.clock, crashed=crashed, recover_segments_max=2)
    assert again.recovered.scanned_from == 0
    assert state(again)["queues"] == state(parts)["queues"]


@pytest.mark.mission("RC-07")
def test_after_a_crash_the_limit_does_not_hold_for_queues_that_were_never_flushed() -> None:
    """Any page of theirs may be gone; tests/crash/test_power_cut.py finds such images."""
    parts = filled()
    parts.queues.write()
    again = Parts(parts.killed(), parts.clock, recover_segments_max=2)
    assert parts.checkpoint.logics_physical_offset == 0
    assert again.recovered.scanned_from == 0
    assert state(again)["queues"] == state(parts)["queues"]


@pytest.mark.mission("RC-07")
@pytest.mark.parametrize("rule", ["5.5", "5.3", "none"])
def test_both_start_rules_end_in_the_same_messages(rule: str) -> None:
    parts = filled(count=60)
    parts.flush()
    flushed = list(files_below(parts.disk, f"{ROOT}/consumequeue"))
    middle = parts.log.max_offset
    for number in range(60, 120):
        parts.clock.advance(1)
        parts.put(queue_id=number % 3, body=bytes(100) + b"%d" % number, KEYS=f"k{number}", TAGS=f"t{number % 4}")
    if rule != "5.5":
        parts.checkpoint.logics_physical_offset = 0
    if rule == "none":
        parts.checkpoint.logics_time_ms = 0
    parts.checkpoint.flush()
    # The queues lost what was not flushed.
    disk = parts.killed()
    disk.remove_dir(f"{ROOT}/consumequeue")
    for path, content in flushed:
        disk.open(path, 200, create=True, allocate=False).pwrite(0, content)
    again = Parts(disk, parts.clock)
    begins_at = again.recovered.scanned_from
    assert begins_at <= middle
    assert (begins_at == 0) == (rule == "none")
    assert state(again)["queues"] == state(parts)["queues"]
    assert again.bodies(queue_id=1) == [bytes(100) + b"%d" % number for number in range(1, 120, 3)]


@pytest.mark.mission("RC-09")
@pytest.mark.parametrize("crashed", [False, True])
def test_numbers_go_on_without_gap_or_repeat(crashed: bool) -> None:
    parts = filled()
    if not crashed:
        parts.close()
    again = Parts(parts.killed(), parts.clock)
    for number in range(120, 150):
        result = again.put(queue_id=number % 3, body=bytes(100) + b"%d" % number)
        assert result.queue_offset == number // 3
    for queue_id in range(3):
        read = again.read_all("TopicA", queue_id)
        assert [message.queue_offset for message in read] == list(range(50))
        assert [message.body[100:] for message in read] == [b"%d" % n for n in range(queue_id, 150, 3)]
    assert again.dispatcher.position == again.log.max_offset


@pytest.mark.mission("RC-09")
@pytest.mark.parametrize("crashed", [False, True])
def test_recovering_twice_gives_the_same(crashed: bool) -> None:
    parts = filled()
    if not crashed:
        parts.close()
    once = Parts(parts.killed(), parts.clock, crashed=crashed)
    first = state(once)
    twice = Parts(once.killed(), parts.clock, crashed=crashed)
    assert state(twice) == first
    assert first["end"] == parts.log.max_offset


# What it cuts


@pytest.mark.mission("RC-07")
@pytest.mark.parametrize("crashed", [False, True])
def test_a_log_cut_at_any_byte_of_its_last_records_keeps_exactly_the_whole_ones(crashed: bool) -> None:
    parts = filled(count=20, segment_bytes=16_384)
    parts.close()
    offsets = [message.physical_offset for queue in range(3) for message in parts.read_all("TopicA", queue)]
    last = parts.segments.segments[-1]
    tail = sorted(offsets)[-3:]
    for cut_at in range(tail[0], parts.log.max_offset + 1):
        disk = parts.killed()
        disk.open(last.file.path, -1, create=False, allocate=False).pwrite(
            cut_at - last.start, bytes(last.end - cut_at)
        )
        again = Parts(disk, parts.clock, crashed=crashed, segment_bytes=16_384)
        ends = [*tail, parts.log.max_offset]
        expected_end = max(end for end in ends if end <= cut_at)
        assert again.log.max_offset == expected_end, f"cut at {cut_at}"
        found = [message.physical_offset for queue in range(3) for message in again.read_all("TopicA", queue)]
        assert sorted(found) == sorted(offset for offset in offsets if offset < expected_end)
        assert again.put(body=b"next").physical_offset == expected_end


@pytest.mark.mission("RC-08")
@pytest.mark.parametrize("crashed", [False, True])
def test_what_is_deleted_of_queues_and_index_is_rebuilt(crashed: bool) -> None:
    parts = filled()
    parts.close()
    expected = state(parts)
    disk = parts.killed()
    disk.remove_dir(f"{ROOT}/consumequeue")
    disk.remove_dir(f"{ROOT}/index")
    again = Parts(disk, parts.clock, crashed=crashed)
    assert state(again) == expected


ODD_PROPERTIES = (
    "",
    "UNIQ_KEY\x01u{0}\x02",
    "UNIQ_KEY\x01u{0}\x02KEYS\x01k{0}\x02TAGS\x01t\x02WAIT\x01true\x02",
    "WAIT\x01true\x02TAGS\x01t\x02KEYS\x01k{0}\x02UNIQ_KEY\x01u{0}",
    "UNIQ_KEY\x01u{0}\x02KEYS\x01k{0} l{0} m\x02TAGS\x01t\x02",
    "KEYS\x01k{0}\x02KEYS\x01l{0}\x02TAGS\x01\x02",
    "KEYS\x01ä{0}\x02TAGS\x01ö\x02UNIQ_KEY\x01u{0}\x02",
    "note\x01ü\x02KEYS\x01k{0}\x02TAGS\x01t{0}\x02UNIQ_KEY\x01u{0}\x02no pair",
)


@pytest.mark.parametrize("sys_flag", [0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
def test_whatever_properties_messages_have_the_same_is_built_from_them_again(sys_flag: int) -> None:
    """A compiled recovery finds keys and tags in bytes; what was built at first was built from the texts."""
    parts = Parts(index_entries=2000)
    for number in range(40):
        form = ODD_PROPERTIES[number * 3 % len(ODD_PROPERTIES)]
        request = AppendRequest(f"T{number % 2}", number % 3, b"body", form.format(number), sys_flag=sys_flag)
        result = parts.log.append(request)
        assert result.status == PutStatus.OK
        parts.dispatcher.appended(request, result)
    expected = state(parts)
    assert len(expected["index"]) == (0 if sys_flag == TRANSACTION_ROLLBACK else 1)
    again = Parts(parts.killed(), parts.clock, index_entries=2000)
    assert again.recovered.records == 40
    assert state(again) == expected


@pytest.mark.mission("RC-08")
@pytest.mark.parametrize("crashed", [False, True])
def test_a_queue_ahead_of_the_log_is_cut_to_it(crashed: bool) -> None:
    parts = filled()
    parts.close()
    disk = parts.killed()
    last = parts.segments.segments[-1]
    disk.remove(last.file.path)
    again = Parts(disk, parts.clock, crashed=crashed)
    # The segment before it ends with a blank record, which is no longer needed.
    assert again.log.max_offset <= last.start
    for queue in again.queues.all():
        assert queue.max_physical <= again.log.max_offset
        assert queue.max_offset == again.log.counters.next_offset(queue.topic, queue.queue_id)
    kept = sorted(message.physical_offset for queue in range(3) for message in again.read_all("TopicA", queue))
    assert kept == [offset for offset in sorted(_offsets(parts)) if offset < last.start]
    assert not again.index.query("TopicA", "k119", 10, *EVER)


def _offsets(parts: Parts) -> list[int]:
    return [message.physical_offset for queue in range(3) for message in parts.read_all("TopicA", queue)]


def test_segments_made_ahead_are_removed() -> None:
    parts = filled(count=10)
    parts.segments.prepare_now()
    disk = parts.killed()
    assert len(disk.list_files(f"{ROOT}/commitlog")) == 3
    again = Parts(disk, parts.clock)
    assert len(disk.list_files(f"{ROOT}/commitlog")) == 1
    assert again.log.max_offset == parts.log.max_offset


def test_a_log_without_files_empties_queues_and_index() -> None:
    parts = filled()
    parts.close()
    disk = parts.killed()
    disk.remove_dir(f"{ROOT}/commitlog")
    again = Parts(disk, parts.clock)
    assert again.put().queue_offset == 0
    assert list(again.queues.topics) == ["TopicA"]
    assert not again.index.query("TopicA", "k5", 10, *EVER)


def test_what_was_cut_does_not_come_back_when_the_log_has_grown_up_to_it() -> None:
    """Two crashes: the first tears a record in the middle of what was not flushed, the second follows soon."""
    parts = filled(count=20, segment_bytes=16_384)
    offsets = sorted(_offsets(parts))
    disk = parts.killed()
    path = parts.segments.segments[-1].file.path
    torn = max(number for number in range(20) if offsets[number] <= 3584)
    disk.open(path, -1, create=False, allocate=False).pwrite(3584, bytes(512))
    again = Parts(disk, parts.clock, segment_bytes=16_384)
    assert again.log.max_offset == offsets[torn]
    # Records of the same length: behind them the old ones would be in step again.
    for number in range(torn, 19):
        again.put(body=bytes(100) + b"%d" % number, queue_id=number % 3, KEYS=f"k{number}", TAGS=f"t{number % 4}")
    third = Parts(again.killed(), parts.clock, segment_bytes=16_384)
    assert third.log.max_offset == again.log.max_offset == offsets[19]
    assert sum(len(third.bodies(queue_id=queue)) for queue in range(3)) == 19


def test_a_topic_that_was_deleted_and_made_again_is_rebuilt_from_its_second_life() -> None:
    parts = Parts()
    for number in range(30):
        parts.put(body=b"old%d" % number)
    parts.queues.delete_topic("TopicA")
    parts.log.counters.drop_topic("TopicA")
    for number in range(5):
        parts.put(body=b"new%d" % number)
    again = Parts(parts.killed(), parts.clock)
    assert again.bodies() == [b"new%d" % number for number in range(5)]
    assert again.put().queue_offset == 5


# What it leaves


@pytest.mark.mission("RC-10")
@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("at", [4, 28, 40, 60, 87, 130])
def test_damage_in_a_segment_before_the_last_stays_and_all_else_is_readable(
    crashed: bool, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    parts = filled()
    parts.close()
    disk = parts.killed()
    disk.remove_dir(f"{ROOT}/consumequeue")
    victim = parts.read_all("TopicA", 0)[3]
    path = f"{ROOT}/commitlog/{0:020d}"
    flip(disk, path, victim.physical_offset + at)
    before = disk.read_bytes(path)
    again = Parts(disk, parts.clock, crashed=crashed)
    assert disk.read_bytes(path) == before
    assert again.log.max_offset == parts.log.max_offset
    expected = {bytes(100) + b"%d" % number for number in range(120)}
    found = {body for queue in range(3) for body in again.bodies(queue_id=queue)}
    if at in (40, 60):
        assert found == expected, "a changed time is not damage that could be noticed"
        return
    assert found == expected - {victim.body}
    alarms = [record.getMessage() for record in caplog.records if "found damage" in record.getMessage()]
    assert len(alarms) == 1
    assert f"offset={victim.physical_offset} end={victim.physical_offset + victim.record_bytes}" in alarms[0]
    assert again.put(queue_id=0).queue_offset == 40
    for queue in range(3):
        for number in range(40):
            got = again.reading.get("TopicA", queue, number, 1)
            assert got is not None
            expected_number = number + (queue == 0 and number == 3)
            assert decode_record(got.slices[0]).queue_offset == expected_number


@pytest.mark.mission("RC-10")
def test_damage_in_the_last_segment_stays_if_what_follows_was_flushed() -> None:
    parts = filled(count=20, segment_bytes=16_384)
    parts.close()
    offsets = sorted(_offsets(parts))
    for crashed in (False, True):
        disk = parts.killed()
        path = parts.segments.segments[-1].file.path
        flip(disk, path, offsets[10] + 100)
        before = disk.read_bytes(path)
        again = Parts(disk, parts.clock, crashed=crashed, segment_bytes=16_384)
        assert again.log.max_offset == parts.log.max_offset
        assert disk.read_bytes(path) == before
        assert [damage.start for damage in again.recovered.damages] == [offsets[10]]


def test_the_last_record_of_a_log_is_cut_if_it_is_damaged_even_after_a_clean_stop() -> None:
    parts = filled(count=20, segment_bytes=16_384)
    parts.close()
    offsets = sorted(_offsets(parts))
    disk = parts.killed()
    flip(disk, parts.segments.segments[-1].file.path, offsets[-1] + 100)
    assert Parts(disk, parts.clock, segment_bytes=16_384).log.max_offset == offsets[-1]


def test_a_lost_blank_record_before_a_used_segment_is_damage() -> None:
    parts = filled()
    parts.close()
    messages = [message for queue in range(3) for message in parts.read_all("TopicA", queue)]
    blank_at = max(m.physical_offset + m.record_bytes for m in messages if m.physical_offset < 4096)
    disk = parts.killed()
    disk.remove_dir(f"{ROOT}/consumequeue")
    disk.open(f"{ROOT}/commitlog/{0:020d}", -1, create=False, allocate=False).pwrite(blank_at, bytes(8))
    again = Parts(disk, parts.clock)
    assert [damage[:2] for damage in again.recovered.damages] == [(blank_at, 4096)]
    assert sorted(_offsets(again)) == sorted(_offsets(parts))


# What it refuses


@pytest.mark.mission("RC-01", "RC-02")
@pytest.mark.parametrize(
    ("path", "size"),
    [
        (f"commitlog/{0:020d}", 4095),
        ("commitlog/readme", 10),
        (f"consumequeue/TopicA/0/{0:020d}", 199),
        ("consumequeue/TopicA/0/x", 200),
        ("index/x", 10),
        ("index/20300101000000000", 10),
        ("checkpoint", 4000),
    ],
)
def test_a_broken_part_refuses_the_start_with_a_line_that_names_it(path: str, size: int) -> None:
    parts = filled()
    parts.close()
    disk = parts.killed()
    disk.remove(f"{ROOT}/{path}")
    disk.open(f"{ROOT}/{path}", size, create=True, allocate=False)
    with pytest.raises(StoreError) as refused:
        Parts(disk, parts.clock)
    assert f"{ROOT}/{path}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_segment_that_was_not_flushed_is_scanned_even_if_the_queues_were() -> None:
    """Queues may be synced further than the log: what they point to must be looked at all the same."""
    parts = filled()
    parts.queues.flush_now(parts.checkpoint)
    parts.checkpoint.flush()
    assert parts.checkpoint.logics_physical_offset > parts.segments.segments[-1].start
    assert parts.checkpoint.physic_time_ms == 0
    disk = parts.killed()
    disk.open(f"{ROOT}/commitlog/{4096:020d}", -1, create=False, allocate=False).pwrite(512, bytes(512))
    again = Parts(disk, parts.clock)
    assert again.recovered.scanned_from == 0
    assert 4096 <= again.log.max_offset < 4096 + 1024
    assert all(queue.max_physical <= again.log.max_offset for queue in again.queues.all())


def test_a_deleted_topic_does_not_come_back_with_a_clean_start() -> None:
    parts = filled()
    parts.put("Deleted", body=b"gone")
    parts.queues.delete_topic("Deleted")
    parts.put(body=b"last")
    parts.close()
    again = Parts(parts.killed(), parts.clock)
    again.queues.write()
    assert list(again.queues.topics) == ["TopicA"]
    assert not again.disk.exists(f"{ROOT}/consumequeue/Deleted")


def test_a_queue_that_lost_more_than_the_last_segment_gets_it_back() -> None:
    parts = filled()
    parts.close()
    expected = state(parts)
    disk = parts.killed()
    files = [path for path, _ in files_below(disk, f"{ROOT}/consumequeue/TopicA/1")]
    for path in files[2:]:
        disk.remove(path)
    disk.open(files[1], -1, create=False, allocate=False).pwrite(50, bytes(150))
    again = Parts(disk, parts.clock)
    assert again.recovered.scanned_from < parts.segments.segments[-1].start
    assert state(again) == expected


def test_keys_of_more_segments_than_the_limit_are_found_again_after_a_crash() -> None:
    parts = filled(index_entries=1000)
    parts.flush()
    assert len(parts.segments.segments) > 5
    again = Parts(parts.killed(), parts.clock, index_entries=1000, recover_segments_max=1)
    assert again.recovered.scanned_from > 0
    assert all(again.index.query("TopicA", f"k{number}", 10, *EVER) for number in range(120))


def test_no_member_of_a_batch_that_failed_half_way_comes_to_life_after_a_kill() -> None:
    parts = Parts()
    before = parts.put(body=b"before")
    # Two members get the last numbers that there are, the third cannot have one.
    parts.log.counters.set_next_offset("TopicA", 1, 2**63 - 2)
    request = AppendRequest("TopicA", 1, encode_batch([(0, b"member", b"")] * 4))
    assert parts.log.append_batch(request).status == PutStatus.MESSAGE_ILLEGAL
    assert b"member" not in bytes(parts.segments.segments[0].view())
    again = Parts(parts.killed())
    assert again.recovered.end == before.end_offset
    assert again.recovered.records == 1
    assert again.bodies("TopicA", 0) == [b"before"]
    assert again.bodies("TopicA", 1) == []
