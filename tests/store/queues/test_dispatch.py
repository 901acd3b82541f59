"""Checks dispatch: both ways, the order of its work, where it stops, damaged places, light queues, delay levels."""

import logging
import random
import time
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.queues.dispatch import KEPT_MAX, Dispatcher, parse_delay_levels
from cometmq.store.results import GetStatus, PutStatus
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.properties import decode_text, encode
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.support.golden import golden_commitlog, golden_messages
from tests.support.logs import message, records
from tests.support.parts import GOLDEN_SIZES, ROOT, Parts, files_below

Notice = tuple[str, int, int, int, int, str]


def damage(disk: FakeDisk, physical_offset: int, segment_bytes: int = 4096, data: bytes = b"\xff" * 8) -> None:
    """Overwrite bytes of the log from the side."""
    start = physical_offset - physical_offset % segment_bytes
    file = disk.open(f"{ROOT}/commitlog/{start:020d}", segment_bytes, create=False, allocate=False)
    file.pwrite(physical_offset - start, data)


@pytest.mark.mission("DI-01")
def test_a_message_is_readable_at_once_and_the_notice_comes_last() -> None:
    order: list[str] = []
    parts = Parts()

    def arrived(*notice: object) -> None:
        found = parts.reading.get("TopicA", 0, 0, 1)
        assert found is not None
        assert found.status == GetStatus.FOUND
        order.append(f"notice index={parts.index.newest_offset}")

    parts.dispatcher.subscribe(arrived)
    parts.put(KEYS="k1")
    assert order == ["notice index=0"]


@pytest.mark.mission("DI-01")
def test_put_then_get_finds_the_message_in_far_less_than_20_ms(tmp_path: Path) -> None:
    parts = Parts(OsDisk(), root_dir=str(tmp_path), segment_bytes=4 << 20, queue_file_bytes=60_000)
    delays: list[float] = []
    for number in range(1000):
        began = time.perf_counter()
        result = parts.put(body=bytes(200), KEYS=f"k{number}")
        found = parts.reading.get("TopicA", 0, result.queue_offset, 1)
        delays.append(time.perf_counter() - began)
        assert found is not None
        assert found.count == 1
    assert sorted(delays)[989] < 0.020


@pytest.mark.mission("DI-01")
def test_what_is_dispatched_from_the_golden_log_is_what_java_read(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for start, content in golden_commitlog("clean"):
        (tmp_path / "commitlog" / f"{start:020d}").write_bytes(content)
    notices: dict[tuple[str, int, int], Notice] = {}

    def arrived(*notice: object) -> None:
        topic, queue_id, next_offset = notice[:3]
        notices[topic, queue_id, next_offset] = notice  # type: ignore[index, assignment]

    parts = Parts(OsDisk(), root_dir=str(tmp_path), crashed=True, **GOLDEN_SIZES)
    dispatcher = Dispatcher(parts.log, parts.queues, parts.index, parts.options, parts.clock)
    dispatcher.subscribe(arrived)
    dispatcher.run()
    checked = 0
    for golden in golden_messages("clean"):
        notice = notices[golden["topic"], golden["queueId"], golden["queueOffset"] + 1]
        properties = decode_text(notice[5])
        assert notice[3] == (java_string_hash(properties["TAGS"]) if "TAGS" in properties else 0)
        assert notice[4] == golden["storeTimestamp"]
        client_added = {"MIN_OFFSET", "MAX_OFFSET"}
        assert properties == {name: text for name, text in golden["properties"].items() if name not in client_added}
        assert (
            parts.lookup.physical_offset(golden["topic"], golden["queueId"], golden["queueOffset"])
            == (golden["commitLogOffset"])
        )
        checked += 1
    assert checked == 311


@pytest.mark.parametrize("seed", range(3))
def test_the_quick_way_and_the_reading_way_build_the_same_files(seed: int) -> None:
    quick, reading = Parts(), Parts()
    for number in range(200):
        flag = (0, 0, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)[(number + seed) % 5]
        fields = {"KEYS": f"k{number} all", "TAGS": f"t{number % 7}", "UNIQ_KEY": f"u{number}"}
        for parts in (quick, reading):
            if parts is reading:
                parts.dispatcher.position, position = 1 << 60, parts.dispatcher.position
            parts.put(f"Topic{number % 3}", number % 2, bytes(number), flag, **fields)
            if parts is reading:
                parts.dispatcher.position = position
    reading.dispatcher.run()
    for parts in (quick, reading):
        assert parts.dispatcher.position == parts.log.max_offset
        parts.queues.write()
    assert dict(files_below(quick.disk, ROOT)) == dict(files_below(reading.disk, ROOT))


def test_batches_are_dispatched_record_by_record() -> None:
    notices: list[tuple[object, ...]] = []
    parts = Parts(on_arrival=lambda *notice: notices.append(notice))
    parts.put_batch("TopicA", 3, [b"one", b"two", b"three"])
    assert parts.bodies(queue_id=3) == [b"one", b"two", b"three"]
    assert [notice[:3] for notice in notices] == [("TopicA", 3, 1), ("TopicA", 3, 2), ("TopicA", 3, 3)]


def test_prepared_and_rolled_back_messages_are_in_no_queue_and_wake_nobody() -> None:
    notices: list[tuple[object, ...]] = []
    parts = Parts(on_arrival=lambda *notice: notices.append(notice))
    parts.put(body=b"half", sys_flag=TRANSACTION_PREPARED)
    parts.put(body=b"gone", sys_flag=TRANSACTION_ROLLBACK)
    parts.put(body=b"done", sys_flag=TRANSACTION_COMMIT)
    assert parts.bodies() == [b"done"]
    assert [notice[2] for notice in notices] == [1]


@pytest.mark.mission("DI-02")
def test_dispatch_jumps_to_the_start_of_the_log_when_that_has_moved(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    for number in range(100):
        parts.log.append(message(body=b"%d" % number))
    assert parts.dispatcher.behind_bytes == parts.log.confirm_offset == parts.log.max_offset
    parts.segments.remove(parts.segments.segments[0])
    parts.dispatcher.run()
    assert "moved dispatch to the start of the log from=0 to=4096" in caplog.text
    assert parts.dispatcher.behind_bytes == 0
    first = parts.read_all("TopicA", 0)[0]
    assert first.physical_offset == 4096
    assert parts.queues.min_offset("TopicA", 0) == first.queue_offset > 0


@pytest.mark.mission("DI-04")
def test_under_sync_flush_nothing_is_visible_before_it_is_on_disk() -> None:
    disk = FakeDisk()
    parts = Parts(disk, flush_disk_type="SYNC_FLUSH")
    parts.put(body=b"one")
    assert parts.log.max_offset > 0
    assert parts.queues.find("TopicA", 0) is None
    disk.fail("sync", 1)
    with pytest.raises(OSError, match="Input/output"):
        parts.segments.flush(0)
    parts.dispatcher.run()
    assert parts.queues.find("TopicA", 0) is None
    parts.segments.flush(0)
    parts.dispatcher.run()
    assert parts.bodies() == [b"one"]


@pytest.mark.parametrize("seed", range(3))
def test_records_that_wait_for_the_disk_are_built_like_those_that_do_not(seed: int) -> None:
    chance = random.Random(seed)
    at_once = Parts(index_entries=400)
    waiting = Parts(index_entries=400, flush_disk_type="SYNC_FLUSH")
    for number in range(300 if seed else KEPT_MAX + 300):
        flag = chance.choice((0, 0, 0, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK))
        fields = {"KEYS": f"k{number}", "TAGS": f"t{number % 7}", "UNIQ_KEY": f"u{number}"}
        count = chance.choice((0, 0, 0, 0, 3))
        for parts in (at_once, waiting):
            if count:
                parts.put_batch(f"Topic{number % 3}", number % 2, [b"%d" % member for member in range(count)])
            else:
                parts.put(f"Topic{number % 3}", number % 2, bytes(number % 90), flag, **fields)
        if chance.random() < 0.1 and number > KEPT_MAX * (1 - seed):
            waiting.segments.flush(0)
            waiting.dispatcher.step(chance.choice((1, 200, 1 << 20)))
    waiting.segments.flush(0)
    waiting.dispatcher.run()
    for parts in (at_once, waiting):
        assert parts.dispatcher.position == parts.log.max_offset
        parts.queues.write()
    assert dict(files_below(at_once.disk, ROOT)) == dict(files_below(waiting.disk, ROOT)), f"seed={seed}"


def test_what_waits_for_the_disk_is_not_read_again() -> None:
    disk = FakeDisk()
    parts = Parts(disk, flush_disk_type="SYNC_FLUSH")
    first = parts.put(KEYS="one")
    parts.put(KEYS="two")
    damage(disk, first.physical_offset)
    parts.segments.flush(0)
    parts.dispatcher.run()
    assert parts.dispatcher.damages == []
    assert parts.queues.max_offset("TopicA", 0) == 2
    assert parts.index.query("TopicA", "one", 9, 0, 1 << 60) == [first.physical_offset]


def test_dispatch_stops_at_the_confirmed_offset_and_goes_on_from_there() -> None:
    parts = Parts(duplication_enabled=True)
    first = parts.put(body=b"one")
    parts.put(body=b"two")
    parts.dispatcher.run()
    assert parts.queues.find("TopicA", 0) is None
    parts.log.confirmed_offset = first.end_offset + 5
    parts.dispatcher.run()
    assert parts.bodies() == [b"one"]
    parts.log.confirmed_offset = parts.log.max_offset
    parts.dispatcher.run()
    assert parts.bodies() == [b"one", b"two"]


def test_dispatch_beyond_the_confirmed_offset_when_it_is_allowed() -> None:
    parts = Parts(duplication_enabled=True, read_uncommitted=True)
    parts.put(body=b"one")
    assert parts.bodies() == [b"one"]


# Damage


@pytest.mark.mission("DI-03")
def test_a_damaged_record_is_reported_once_and_all_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    disk = FakeDisk()
    parts = Parts(disk)
    results = [parts.log.append(message(queue_id=number % 2, body=b"%d" % number)) for number in range(100)]
    damage(disk, results[10].physical_offset)
    parts.dispatcher.run()
    parts.dispatcher.position = 0
    parts.dispatcher.run()
    alarms = [record.getMessage() for record in caplog.records if "found damage" in record.getMessage()]
    assert len(alarms) == 1
    assert f"offset={results[10].physical_offset} end={results[11].physical_offset}" in alarms[0]
    served = parts.bodies(queue_id=0) + parts.bodies(queue_id=1)
    assert set(served) == {b"%d" % number for number in range(100) if number != 10}
    # Numbers and units stay together: 12 has number 6, also where number 5 is lost.
    sixth = parts.reading.get("TopicA", 0, 6, 1)
    assert sixth is not None
    assert decode_record(sixth.slices[0]).body == b"12"


@pytest.mark.mission("DI-03")
def test_a_record_with_a_wrong_length_is_skipped_by_its_size() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    results = [parts.log.append(message(body=b"%d" % number, properties="KEYS\x01k1\x02")) for number in range(10)]
    # The length of the properties, so that the parts do not add up.
    damage(disk, results[3].end_offset - 10, data=b"\x00\x02")
    parts.dispatcher.run()
    assert [part[:2] for part in parts.dispatcher.damages] == [(results[3].physical_offset, results[4].physical_offset)]
    assert [body for body in parts.bodies() if body != b"4"] == [b"%d" % n for n in range(10) if n not in (3, 4)]


def test_damage_up_to_the_end_of_a_segment_leads_to_the_next() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    for number in range(100):
        parts.log.append(message(body=b"%d" % number))
    found = records(parts.log)
    cut_at = [record.physical_offset for record in found if record.physical_offset < 4096][-3]
    damage(disk, cut_at, data=b"\xff" * (4096 - cut_at))
    parts.dispatcher.run()
    expected = [record.body for record in found if not cut_at <= record.physical_offset < 4096]
    assert sorted(set(parts.bodies())) == sorted(expected)


@pytest.mark.mission("DI-03")
def test_a_replica_waits_for_the_rest_of_a_record() -> None:
    master = Parts()
    for number in range(3):
        master.put(body=b"%d" % number)
    bytes_sent = bytes(master.segments.segments[0].view()[: master.log.max_offset])
    replica = Parts(broker_role="SLAVE")
    for cut_at in (10, 150, 200, len(bytes_sent)):
        at = replica.log.max_offset
        replica.log.append_raw(at, bytes_sent[at:cut_at])
        replica.dispatcher.run()
        assert not replica.dispatcher.damages
        ends = [record.physical_offset + record.record_bytes for record in records(master.log)]
        assert replica.dispatcher.position == max([end for end in ends if end <= cut_at], default=0)
    assert replica.bodies() == [b"0", b"1", b"2"]


@pytest.mark.mission("DI-08")
def test_a_replica_tells_of_arrivals_too() -> None:
    master = Parts()
    master.put(TAGS="TagA")
    notices: list[tuple[object, ...]] = []
    replica = Parts(on_arrival=lambda *notice: notices.append(notice), broker_role="SLAVE")
    replica.log.append_raw(0, bytes(master.segments.segments[0].view()[: master.log.max_offset]))
    replica.dispatcher.step()
    assert notices == [("TopicA", 0, 1, 2598919, master.clock.now_ms(), "TAGS\x01TagA\x02")]


def test_a_topic_that_cannot_be_a_directory_is_reported_and_passed_over() -> None:
    parts = Parts()
    parts.log.append(message("../evil"))
    parts.put("TopicA", body=b"good")
    assert "../evil" in parts.dispatcher.damages[0].reason
    assert parts.bodies() == [b"good"]
    parts.queues.write()
    assert all(path.startswith(ROOT) for path, _ in files_below(parts.disk, "/"))


# Light queues


@pytest.mark.mission("DI-09")
def test_a_message_for_three_light_queues_is_in_each_and_wakes_each() -> None:
    notices: list[tuple[object, ...]] = []
    parts = Parts(on_arrival=lambda *notice: notices.append(notice), lmq_enabled=True, multi_dispatch_enabled=True)
    parts.put(queue_id=2, body=b"one", INNER_MULTI_DISPATCH="%LMQ%a")
    parts.put(queue_id=2, body=b"two", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b,%LMQ%c")
    assert [parts.bodies(f"%LMQ%{name}") for name in "abc"] == [[b"one", b"two"], [b"two"], [b"two"]]
    assert [notice[:3] for notice in notices[2:]] == [
        ("TopicA", 2, 2),
        ("%LMQ%a", 0, 2),
        ("%LMQ%b", 0, 1),
        ("%LMQ%c", 0, 1),
    ]
    assert parts.queues.lmq_count == 3
    again = Parts(parts.killed(), lmq_enabled=True, multi_dispatch_enabled=True)
    assert again.bodies("%LMQ%a") == [b"one", b"two"]
    assert again.log.counters.next_offset("%LMQ%a", 0) == 2


@pytest.mark.mission("DI-09")
def test_names_and_offsets_of_different_number_reach_no_light_queue() -> None:
    parts = Parts(multi_dispatch_enabled=True)
    parts.put(INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b,%LMQ%c", INNER_MULTI_QUEUE_OFFSET="0,0")
    assert list(parts.queues.topics) == ["TopicA"]


@pytest.mark.parametrize("topic", ["%RETRY%group", "%DLQ%group", "rmq_sys_topic", "SCHEDULE_TOPIC_XXXX"])
def test_some_topics_reach_no_light_queue(topic: str) -> None:
    parts = Parts(multi_dispatch_enabled=True)
    parts.put(topic, INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="0")
    assert list(parts.queues.topics) == [topic]


def test_a_light_queue_with_a_bad_name_or_number_is_left_out() -> None:
    parts = Parts(multi_dispatch_enabled=True, lmq_enabled=False)
    parts.put(INNER_MULTI_DISPATCH="%LMQ%a/b,%LMQ%.,%LMQ%c", INNER_MULTI_QUEUE_OFFSET="0,0,x")
    assert list(parts.queues.topics) == ["TopicA"]


# Delay levels


@pytest.mark.parametrize(("level", "delay_ms"), [("1", 1000), ("5", 60_000), ("18", 7_200_000), ("99", 7_200_000)])
def test_in_a_delay_queue_the_tag_code_is_the_time_of_delivery(level: str, delay_ms: int) -> None:
    parts = Parts()
    result = parts.put("SCHEDULE_TOPIC_XXXX", 0, DELAY=level, TAGS="TagA")
    unit = parts.queues.queue("SCHEDULE_TOPIC_XXXX", 0).unit(0)
    assert unit is not None
    assert unit[2] == result.store_time_ms + delay_ms


@pytest.mark.parametrize("level", ["0", "-1", "x"])
def test_without_a_level_the_tag_code_stays(level: str) -> None:
    parts = Parts()
    parts.put("SCHEDULE_TOPIC_XXXX", 0, DELAY=level, TAGS="TagA")
    unit = parts.queues.queue("SCHEDULE_TOPIC_XXXX", 0).unit(0)
    assert unit is not None
    assert unit[2] == 2598919


def test_delay_levels_are_read_and_refused() -> None:
    assert parse_delay_levels("1s 2m 3h 4d") == [1000, 120_000, 10_800_000, 345_600_000]
    with pytest.raises(StoreError, match="messageDelayLevel has '5x'"):
        parse_delay_levels("1s 5x")


def test_the_log_refuses_what_dispatch_could_not_place(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    assert isinstance(parts.log, CommitLog)
    assert parts.log.append(message("")).status == PutStatus.MESSAGE_ILLEGAL


def test_a_batch_of_one_is_known_by_the_properties_of_its_member() -> None:
    """The request has properties of its own; they are not those of the record."""
    parts = Parts()
    member = (0, b"only", encode({"KEYS": "k1", "TAGS": "TagA"}))
    request = AppendRequest("TopicA", 0, encode_batch([member]), encode({"KEYS": "other", "TAGS": "Other"}).decode())
    result = parts.log.append_batch(request)
    parts.dispatcher.appended(request, result)
    (found,) = parts.lookup.query("TopicA", "k1", 8, 0, 1 << 60).records
    assert decode_record(found).body == b"only"
    assert parts.lookup.query("TopicA", "other", 8, 0, 1 << 60).records == []
    queue = parts.queues.queue("TopicA", 0)
    assert queue.unit(0) == (0, result.record_bytes, java_string_hash("TagA"))
