"""Checks cometmq.store.store: opening and closing, the verbs, and what is promised by which status."""

import errno
import logging
import random
import struct
from collections import defaultdict
from pathlib import Path

import pytest

from cometmq import settings_table
from cometmq.clock import ManualClock
from cometmq.errors import StoreError
from cometmq.settings import read
from cometmq.store.disk import DiskFull, OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.flush import Callback
from cometmq.store.log.write_flags import FENCED, NOT_READABLE
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.message_id import decode_offset_id, encode_offset_id, offset_id_prefix
from cometmq.wire.record.sysflag import TRANSACTION_PREPARED
from tests.support.logs import message, records
from tests.support.whole_store import ROOT, open_store, queue_bodies, read_queue


@pytest.mark.mission("ST-01")
@pytest.mark.parametrize("reentrant", ["true", "false"])
def test_64_writers_make_one_log_in_order(reentrant: str) -> None:
    """Writers take turns by chance, as connections do; the log is one row of records all the same."""
    texts = {"useReentrantLockWhenPutMessage": reentrant, "mappedFileSizeCommitLog": "262144"}
    options, unknown = read(StoreOptions(root_dir=ROOT), texts)
    assert unknown == {"useReentrantLockWhenPutMessage": reentrant}
    assert settings_table.BROKER["useReentrantLockWhenPutMessage"].state is settings_table.State.WITHOUT_MEANING
    clock = ManualClock()
    store = Store(options, FakeDisk(), clock)
    seed = 20_240_611
    print(f"seed={seed}")
    chance = random.Random(seed)
    writers = [(f"Topic{chance.randrange(5)}", chance.randrange(8)) for _ in range(64)]
    for _ in range(64 * 20):
        topic, queue_id = chance.choice(writers)
        clock._wall_start_ms += chance.choice((-3, 0, 1, 5))
        assert store.put(message(topic, queue_id, chance.randbytes(chance.randrange(600)))).status == PutStatus.OK
    written = records(store.log)
    assert len(written) == 64 * 20
    times = [record.store_timestamp_ms for record in written]
    assert times == sorted(times)
    offsets = defaultdict(list)
    for record in written:
        offsets[record.topic, record.queue_id].append(record.queue_offset)
    assert all(numbers == list(range(len(numbers))) for numbers in offsets.values())
    for (topic, queue_id), numbers in offsets.items():
        assert len(read_queue(store, topic, queue_id)) == len(numbers)


@pytest.mark.mission("ST-04")
def test_a_full_disk_leaves_no_hole_and_a_prepared_record_enters_no_queue() -> None:
    disk = FakeDisk()
    store = open_store(disk, segment_bytes=4096, index_enabled=False)
    for number in range(2):
        assert store.put(message(body=bytes(1500))).queue_offset == number
    disk.full_after(0)
    assert store.put(message(body=bytes(1500))).status == PutStatus.SERVICE_NOT_AVAILABLE
    disk.full_after(None)
    assert store.put(message(body=bytes(1500))).queue_offset == 2
    prepared = store.put(message(sys_flag=TRANSACTION_PREPARED))
    assert (prepared.status, prepared.queue_offset) == (PutStatus.OK, 0)
    assert store.queues.max_offset("TopicA", 0) == 3
    assert store.put(message()).queue_offset == 3
    assert [record.queue_offset for record in read_queue(store, "TopicA")] == [0, 1, 2, 3]


@pytest.mark.mission("ST-05")
def test_message_ids_name_host_and_place_and_lead_back_to_the_message() -> None:
    prefix = offset_id_prefix(bytes((10, 0, 6, 82)), 8123)
    assert encode_offset_id(prefix, 0) == "0A00065200001FBB0000000000000000"
    store = open_store(FakeDisk())
    store.put(message(body=b"zero"))
    batch = store.put_batch(message(body=encode_batch([(0, b"one", b""), (0, b"two", b"")])))
    ids, place = [], batch.physical_offset
    for length in batch.lengths:
        ids.append(encode_offset_id(prefix, place))
        place += length
    joined = ",".join(ids)
    found = [store.lookup.record_at(decode_offset_id(text).physical_offset) for text in joined.split(",")]
    assert [decode_record(record).body for record in found if record is not None] == [b"one", b"two"]


def test_what_was_put_is_there_after_a_clean_stop_and_after_a_kill() -> None:
    disk = FakeDisk()
    store = open_store(disk)
    for number in range(500):
        store.put(message(queue_id=number % 3, body=b"%d" % number))
    killed = open_store(disk.kill())
    assert killed.crashed
    store.close()
    again = open_store(disk)
    assert not again.crashed
    for opened in (killed, again):
        bodies = sorted(int(body) for queue_id in range(3) for body in queue_bodies(opened, "TopicA", queue_id))
        assert bodies == list(range(500))
        assert opened.put(message(queue_id=0)).queue_offset == 167


def test_tables_by_topic_share_one_text_for_it() -> None:
    """With ten thousand topics, a copy in each table is memory that no cache of the processor holds."""
    disk = FakeDisk()
    store = open_store(disk)
    for number in range(3):
        store.put(message(topic=f"Topic{number}"))
    store.close()
    again = open_store(disk)
    for number in range(3):
        again.put(message(topic=f"Topic{number}"))
    for opened in (store, again):
        counted = {topic: topic for topic in opened.log.counters.topics}
        assert len(counted) == 3
        assert all(counted[topic] is topic for topic in opened.queues.topics)


def test_the_lock_is_taken_before_anything_is_read() -> None:
    disk = FakeDisk()
    store = open_store(disk)
    touched: list[str] = []
    disk.on_call = lambda operation, path: touched.append(f"{operation} {path}")
    with pytest.raises(StoreError, match="another broker uses this store directory"):
        open_store(disk)
    assert touched == [f"lock {ROOT}/lock"]
    store.close()
    open_store(disk).close()


def test_a_store_that_cannot_be_loaded_gives_the_lock_back() -> None:
    disk = FakeDisk()
    disk.open(f"{ROOT}/commitlog/notes.txt", 3, create=True, allocate=False)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"notes\.txt is not a store file"):
            open_store(disk)


def test_abort_is_there_while_the_store_is_open_and_holds_the_process_id() -> None:
    disk = FakeDisk()
    store = open_store(disk)
    assert disk.read_bytes(f"{ROOT}/abort") == b"4711"
    store.put(message())
    store.close()
    assert not disk.exists(f"{ROOT}/abort")
    store.close()


@pytest.mark.parametrize("bit", [2, 16, FENCED])
def test_a_store_that_takes_no_messages_keeps_its_abort_file(bit: int) -> None:
    disk = FakeDisk()
    store = open_store(disk)
    store.flags.set(bit)
    store.close()
    assert disk.exists(f"{ROOT}/abort")
    assert open_store(disk).crashed


def test_a_closed_store_refuses_puts_and_gets() -> None:
    store = open_store(FakeDisk())
    store.put(message())
    store.close()
    assert store.put(message()).status == PutStatus.SERVICE_NOT_AVAILABLE
    assert store.get("TopicA", 0, 0, 32) is None


def test_a_store_that_is_not_readable_still_takes_messages() -> None:
    store = open_store(FakeDisk())
    store.flags.set(NOT_READABLE)
    assert store.put(message()).status == PutStatus.OK
    assert store.get("TopicA", 0, 0, 32) is None


def test_a_replica_takes_no_messages_of_producers() -> None:
    store = open_store(FakeDisk(), broker_role="SLAVE")
    refused = store.put(message())
    assert (refused.status, "send to its master" in refused.remark) == (PutStatus.SERVICE_NOT_AVAILABLE, True)
    store.log.append_raw(0, b"")
    assert open_store(FakeDisk(), broker_role="SLAVE", duplication_enabled=True).put(message()).status == 0


def test_limits_can_be_changed_while_running() -> None:
    store = open_store(FakeDisk(), message_bytes_max=100)
    assert store.put(message(body=bytes(101))).status == PutStatus.MESSAGE_ILLEGAL
    changed, _ = read(store.options, {"maxMessageSize": "101"})
    store.change(changed)
    assert store.put(message(body=bytes(101))).status == PutStatus.OK
    ignored, _ = read(store.options, {"maxMessageSize": "9"})
    store.change(ignored)
    assert store.put(message(body=bytes(101))).status == PutStatus.OK


def test_a_full_disk_stops_puts_reads_go_on_and_writing_resumes() -> None:
    disk = FakeDisk()
    store = open_store(disk, segment_bytes=4096)
    while store.put(message(body=b"fine" * 200)).status == PutStatus.OK:
        if len(store.segments.segments) == 3:
            disk.full_after(0)
    count = len(queue_bodies(store, "TopicA"))
    assert count >= 8
    store.close()
    assert not disk.exists(f"{ROOT}/abort")
    disk.full_after(100_000)
    store = open_store(disk, segment_bytes=4096)
    assert len(queue_bodies(store, "TopicA")) == count
    assert store.put(message(body=b"fine" * 200)).queue_offset == count


def test_of_many_queues_each_round_writes_those_that_wait_longest() -> None:
    disk = FakeDisk()
    store = open_store(disk)
    store.queues.round_queues_min = 3
    for turn in range(2):
        for number in range(40):
            store.put(message(f"Topic{number}", body=b"%d" % turn))
    written = [len(disk.list_dirs(f"{ROOT}/consumequeue"))]
    for _ in range(10):
        store.write_queues(thorough=False)
        written.append(len(disk.list_dirs(f"{ROOT}/consumequeue")))
        assert store.queues.pending == 80 - 2 * written[-1]
        assert [queue_bodies(store, f"Topic{number}") for number in (0, 39)] == [[b"0", b"1"]] * 2
    assert written == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    store.put(message("Topic7"))
    store.put(message("Topic8"))
    store.write_queues(thorough=False)
    assert store.queues.pending == 0


def test_queue_units_wait_in_memory_while_the_disk_is_full(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk()
    store = open_store(disk)
    store.put(message())
    disk.fail("pwrite", 1, DiskFull("no room"))
    store.write_queues()
    assert store.put(message()).status == PutStatus.SERVICE_NOT_AVAILABLE
    assert queue_bodies(store, "TopicA") == [b"hello"]
    store.write_queues()
    assert store.put(message()).status == PutStatus.OK
    assert "kept queue units in memory" in caplog.text


def test_after_a_crash_a_store_opens_on_a_full_disk_and_takes_messages_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is no room for what recovery makes again: queue units, index."""
    clock = ManualClock()
    store = open_store(FakeDisk(now_ms=clock.now_ms), clock)
    for number in range(150):
        assert store.put(message(body=b"%d" % number, properties=f"KEYS\x01k{number}\x02")).status == PutStatus.OK
    assert isinstance(store.disk, FakeDisk)
    image = store.disk.kill()
    image.full_after(0)

    def no_room(operation: str, path: str) -> None:
        if operation == "pwrite" and "/consumequeue/" in path:
            raise DiskFull("no room")

    image.on_call = no_room
    again = open_store(image, clock)
    assert queue_bodies(again, "TopicA") == [b"%d" % number for number in range(150)]
    assert again.put(message()).status == PutStatus.SERVICE_NOT_AVAILABLE
    assert "kept queue units in memory" in caplog.text
    image.full_after(None)
    image.on_call = lambda _operation, _path: None
    again.write_queues()
    clock.advance(1)
    again.dispatch_now()
    assert again.put(message(body=b"more")).queue_offset == 150
    assert all(again.lookup.query("TopicA", f"k{number}", 10, 0, 1 << 60).records for number in range(150))
    again.close()
    assert not image.exists(f"{ROOT}/abort")


def test_the_real_disk_gives_the_same_store(tmp_path: Path) -> None:
    disk = OsDisk()
    store = open_store(disk, root=str(tmp_path))
    for number in range(300):
        store.put(message(body=b"%d" % number * 50))
    store.close()
    again = open_store(disk, root=str(tmp_path))
    assert len(queue_bodies(again, "TopicA")) == 300
    assert struct.unpack(">q", (tmp_path / "checkpoint").read_bytes()[:8])[0] > 0
    again.close()


# Promises


class Replica:
    """A replica that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Callback]] = []

    def wait(self, end_offset: int, callback: Callback) -> None:
        self.waiting.append((end_offset, callback))

    def answer(self, status: int) -> None:
        while self.waiting:
            self.waiting.pop(0)[1](status)


def put_and_wait(store: Store, told: list[int], wait: bool = True) -> bool:
    request = message(wait=wait)
    result = store.put(request)
    assert result.status == PutStatus.OK
    return store.put_waiting(request, result, told.append)


def test_with_async_flush_and_no_replica_nobody_waits() -> None:
    told: list[int] = []
    assert put_and_wait(open_store(FakeDisk()), told) is False
    assert told == []


def test_with_sync_flush_ok_comes_after_the_sync_and_the_message_is_visible_then() -> None:
    store = open_store(FakeDisk(), flush_disk_type="SYNC_FLUSH")
    told: list[int] = []
    assert put_and_wait(store, told)
    assert (told, queue_bodies(store, "TopicA")) == ([], [])
    seen: list[int] = []
    store.subscribe(arrived=lambda *notice: seen.append(len(told)))
    store.flush_now()
    assert told == [PutStatus.OK]
    assert seen == [0], "consumers are told first"
    assert queue_bodies(store, "TopicA") == [b"hello"]


@pytest.mark.mission("ST-09")
def test_disk_and_replica_are_waited_for_at_the_same_time() -> None:
    """Disk 100 ms, replica 100 ms: answered after 100 ms, not 200."""
    clock = ManualClock()
    store = open_store(FakeDisk(), clock, flush_disk_type="SYNC_FLUSH")
    replica = Replica()
    store.promise_copies(replica.wait)
    answered_at: list[tuple[float, int]] = []
    request = message()
    result = store.put(request)
    assert store.put_waiting(request, result, lambda status: answered_at.append((clock.monotonic(), status)))
    work = store.flusher.begin()
    assert work is not None
    assert [end for end, _ in replica.waiting] == [result.end_offset]
    work.run()
    clock.call_later(0.1, lambda: store.flusher.finish(work))
    clock.call_later(0.1, lambda: replica.answer(PutStatus.OK))
    clock.advance(0.2)
    assert answered_at == [(0.1, PutStatus.OK)]


@pytest.mark.mission("ST-09")
@pytest.mark.parametrize(
    ("flush_in_time", "replica_status", "expected"),
    [
        (True, PutStatus.OK, PutStatus.OK),
        (False, PutStatus.OK, PutStatus.FLUSH_DISK_TIMEOUT),
        (True, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT),
        (False, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_a_late_replica_wins_over_a_late_disk(flush_in_time: bool, replica_status: int, expected: int) -> None:
    clock = ManualClock()
    store = open_store(FakeDisk(), clock, flush_disk_type="SYNC_FLUSH")
    replica = Replica()
    store.promise_copies(replica.wait)
    told: list[int] = []
    put_and_wait(store, told)
    if flush_in_time:
        store.flush_now()
    clock.advance(5)
    assert told == []
    replica.answer(replica_status)
    assert told == [expected]


def test_with_async_flush_only_the_replica_is_waited_for() -> None:
    store = open_store(FakeDisk())
    replica = Replica()
    store.promise_copies(replica.wait)
    told: list[int] = []
    assert put_and_wait(store, told)
    replica.answer(PutStatus.OK)
    assert told == [PutStatus.OK]


def test_wait_false_waits_for_neither_disk_nor_replica() -> None:
    store = open_store(FakeDisk(), flush_disk_type="SYNC_FLUSH")
    replica = Replica()
    store.promise_copies(replica.wait)
    woken: list[int] = []
    store.drive(wake_flush=lambda: woken.append(1))
    told: list[int] = []
    assert put_and_wait(store, told, wait=False) is False
    assert (told, replica.waiting, woken) == ([], [], [1])


# The first failed sync is final


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_failed_sync_makes_the_store_read_only(flush_disk_type: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk()
    store = open_store(disk, flush_disk_type=flush_disk_type)
    alarms: list[OSError] = []
    store.subscribe(failed=alarms.append)
    store.put(message(body=b"before"))
    store.flush_now()
    store.put(message(body=b"hit"))
    disk.fail("sync", 1, OSError(errno.EIO, "Input/output error"))
    with caplog.at_level(logging.CRITICAL):
        store.flush_now()
    assert store.put(message()).status == PutStatus.SERVICE_NOT_AVAILABLE
    assert queue_bodies(store, "TopicA")[0] == b"before"
    assert (store.failure, alarms) == (alarms[0], [alarms[0]])
    assert "made store read-only" in caplog.text
    syncs = disk.calls["sync"]
    store.close()
    assert disk.calls["sync"] == syncs, "nothing is tried again, not even at the end"
    assert disk.exists(f"{ROOT}/abort")


def test_a_failed_sync_of_a_queue_is_final_too() -> None:
    disk = FakeDisk()
    store = open_store(disk)
    store.put(message())
    disk.fail("sync", 1)
    store.flush_queues_now()
    assert store.put(message()).status == PutStatus.SERVICE_NOT_AVAILABLE
    assert store.failure is not None


def test_a_write_that_the_device_fails_is_the_last_and_says_why() -> None:
    """Not only a sync: pages ahead of a put are touched by a write, and large records are written at once."""
    for body in (b"small", bytes(100_000)):
        disk = FakeDisk()
        store = open_store(disk, segment_bytes=1 << 22)
        assert store.put(message(body=b"first")).status == PutStatus.OK

        def broken(operation: str, path: str) -> None:
            if operation == "pwrite" and "/commitlog/" in path:
                raise OSError(5, "Input/output error")

        disk.on_call = broken
        results = [store.put(message(body=body)) for _ in range(2000 if len(body) < 100 else 1)]
        refused = [result for result in results if result.status != PutStatus.OK]
        assert refused
        assert {result.status for result in refused} == {PutStatus.SERVICE_NOT_AVAILABLE}
        assert all("Input/output error" in result.remark for result in refused)
        assert isinstance(store.failure, OSError)
        assert queue_bodies(store, "TopicA")[0] == b"first"
