"""Checks consume queues: their bytes, repeats and gaps, where they begin and end, writing and syncing."""

import random
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.disk import DiskFull, OsDisk, OsFile
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.queues.consume_queue import BLANK_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from cometmq.store.queues.consume_queues import UNITS_PENDING_MAX
from cometmq.store.queues.queue_files import FILES_OPEN_MAX, OpenFiles, QueueFiles
from cometmq.store.results import GetStatus
from tests.support.golden import StoreName, copy_golden_store, golden_store
from tests.support.parts import GOLDEN_SIZES, ROOT, Parts, files_below

QUEUE_DIR = f"{ROOT}/consumequeue/TopicA/0"


def make_queue(disk: FakeDisk, file_bytes: int = 200) -> ConsumeQueue:
    return ConsumeQueue("TopicA", 0, QueueFiles(OpenFiles(disk), QUEUE_DIR, file_bytes))


def reopened(disk: FakeDisk, file_bytes: int = 200, trusted_offset: int = 1 << 62) -> ConsumeQueue:
    queue = make_queue(disk, file_bytes)
    queue.files.load()
    queue.recover(trusted_offset)
    return queue


def fill(queue: ConsumeQueue, count: int, first: int = 0, size: int = 100) -> None:
    """Units as dispatch would put them: message n lies at n * size."""
    for number in range(first, first + count):
        assert queue.put(number * size, size, number, number, [])


def units(queue: ConsumeQueue) -> list[tuple[int, int, int] | None]:
    return [queue.unit(number) for number in range(queue.min_offset, queue.max_offset)]


@pytest.mark.mission("DI-05")
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_files_made_from_a_golden_log_are_those_of_the_java_broker(name: StoreName, tmp_path: Path) -> None:
    root = copy_golden_store(name, tmp_path / "store")
    disk = OsDisk()
    java_files = dict(files_below(disk, str(root / "consumequeue")))
    disk.remove_dir(str(root / "consumequeue"))
    Parts(disk, root_dir=str(root), **GOLDEN_SIZES).close()
    assert dict(files_below(disk, str(root / "consumequeue"))) == java_files
    assert len(java_files) == 32


@pytest.mark.mission("DI-05")
def test_a_file_has_300_000_units_by_default_and_is_sparse(tmp_path: Path) -> None:
    parts = Parts(OsDisk(), root_dir=str(tmp_path), queue_file_bytes=6_000_000)
    result = parts.put(TAGS="TagA")
    parts.queues.write()
    file = tmp_path / "consumequeue/TopicA/0/00000000000000000000"
    assert file.stat().st_size == 6_000_000
    assert file.stat().st_blocks * 512 < 100_000
    assert file.read_bytes()[:40] == UNIT.pack(0, result.record_bytes, 2598919) + bytes(20)


def test_the_file_size_is_rounded_up_to_whole_units() -> None:
    parts = Parts(queue_file_bytes=201)
    assert parts.queues.queue("TopicA", 0).files.file_bytes == 220


def test_units_are_found_whether_written_or_not() -> None:
    queue = make_queue(FakeDisk())
    fill(queue, 15)
    queue.files.write()
    fill(queue, 10, first=15)
    assert units(queue) == [(number * 100, 100, number) for number in range(25)]
    assert len(queue.read(8, 100)) == 2 * UNIT_BYTES, "a read ends with its file"
    assert queue.read(25, 1) == b""


@pytest.mark.mission("DI-06")
def test_dispatching_any_part_of_the_log_again_changes_no_byte() -> None:
    parts = Parts()
    for number in range(60):
        parts.put(queue_id=number % 3, body=b"%d" % number, KEYS=f"k{number}", TAGS="T")
    parts.queues.write()
    before = dict(files_below(parts.disk, ROOT))
    for _ in range(20):
        parts.dispatcher.position = random.choice([result.start for result in parts.segments.segments])
        parts.dispatcher.step(random.randrange(5000))
        parts.queues.write()
        assert dict(files_below(parts.disk, ROOT)) == before
    parts.dispatcher.position = 0
    parts.dispatcher.run()
    parts.queues.write()
    assert dict(files_below(parts.disk, ROOT)) == before


@pytest.mark.mission("DI-06")
def test_a_unit_beyond_the_end_is_reported_and_put_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    queue = make_queue(FakeDisk())
    fill(queue, 3)
    assert queue.put(1000, 100, 7, 9, [])
    assert queue.unit(3) == (1000, 100, 7)
    assert "found gap in queue topic=TopicA queue=0 expected=3 found=9" in caplog.text
    assert not queue.put(1100, 100, 7, 2, []), "before the end: ignored"
    assert queue.max_offset == 4


def test_numbers_that_were_lost_to_damage_get_a_copy_of_the_unit_behind() -> None:
    queue = make_queue(FakeDisk())
    fill(queue, 3)
    assert queue.put(600, 100, 6, 6, [350])
    assert units(queue)[2:] == [(200, 100, 2), (600, 100, 6), (600, 100, 6), (600, 100, 6), (600, 100, 6)]
    assert queue.max_offset == 7


def test_a_message_number_0_starts_the_queue_again() -> None:
    disk = FakeDisk()
    queue = make_queue(disk)
    fill(queue, 25)
    queue.files.write()
    assert queue.put(2500, 100, 1, 0, [])
    queue.files.write()
    assert units(queue) == [(2500, 100, 1)]
    assert disk.list_files(QUEUE_DIR) == ["00000000000000000000"]


@pytest.mark.mission("DI-07")
def test_a_queue_that_begins_at_1000_has_blanks_before_it_and_answers_so() -> None:
    parts = Parts(queue_file_bytes=30_000)
    parts.log.counters.set_next_offset("TopicA", 0, 1000)
    parts.put(body=b"first")
    result = parts.reading.get("TopicA", 0, 1000, 32)
    assert result is not None
    assert (result.status, result.count, result.min_offset) == (GetStatus.FOUND, 1, 1000)
    too_small = parts.reading.get("TopicA", 0, 0, 32)
    assert too_small is not None
    assert (too_small.status, too_small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 1000)
    parts.close()
    content = parts.disk.read_bytes(f"{QUEUE_DIR}/00000000000000000000")
    assert content[: 1000 * 20] == UNIT.pack(0, BLANK_SIZE, 0) * 1000
    again = Parts(parts.disk, parts.clock, queue_file_bytes=30_000)
    assert (again.queues.min_offset("TopicA", 0), again.queues.max_offset("TopicA", 0)) == (1000, 1001)
    assert again.bodies() == [b"first"]


def test_blanks_without_a_unit_behind_them_are_not_there() -> None:
    disk = FakeDisk()
    queue = make_queue(disk)
    queue._begin_at(35 * UNIT_BYTES)
    queue.files.write()
    again = reopened(disk)
    assert again.is_empty
    assert again.max_physical == -1
    assert again.put(3500, 100, 1, 35, [])
    assert (again.min_offset, again.max_offset) == (35, 36)


@pytest.mark.mission("RC-05")
def test_a_queue_cut_at_any_byte_ends_with_its_last_whole_unit() -> None:
    disk = FakeDisk()
    queue = make_queue(disk)
    for number in range(25):
        # No zero bytes where it counts, so that every byte that is missing shows.
        queue.put(0x0101010101010101 + number * 100, 0x01010101, -1, number, [])
    queue.files.write()
    whole = b"".join(content for _, content in sorted(files_below(disk, QUEUE_DIR)))
    for cut_at in range(25 * UNIT_BYTES):
        content = whole[:cut_at] + bytes(600 - cut_at)
        image = FakeDisk()
        for start in range(0, 600, 200):
            image.open(f"{QUEUE_DIR}/{start:020d}", 200, create=True, allocate=False).pwrite(
                0, content[start : start + 200]
            )
        again = reopened(image)
        # Offset and one byte of the size are enough to look whole; the log tells, see the next test.
        expected = (cut_at + 11) // UNIT_BYTES
        assert again.max_offset == expected, f"cut at {cut_at}"
        again.put(1 << 62, 1, 1, expected, [])
        again.files.write()
        left = b"".join(content for _, content in sorted(files_below(image, QUEUE_DIR)))
        assert left[expected * 20 + 20 :].strip(b"\0") == b"", "behind the end there are zeros"


@pytest.mark.mission("RC-05")
def test_a_whole_store_with_a_queue_cut_at_any_byte_has_every_message_again() -> None:
    parts = Parts()
    for number in range(18):
        parts.put(body=b"%d" % number, TAGS=f"tag{number}")
    parts.put(queue_id=1, body=b"other")
    expected = parts.bodies()
    parts.close()
    whole = dict(files_below(parts.disk, f"{ROOT}/consumequeue/TopicA/0"))
    last = max(whole)
    for cut_at in range(8 * UNIT_BYTES):
        image = parts.disk.kill() if isinstance(parts.disk, FakeDisk) else FakeDisk()
        image.open(last, 200, create=False, allocate=False).pwrite(cut_at, bytes(200 - cut_at))
        again = Parts(image, parts.clock)
        assert again.bodies() == expected
        again.queues.write()
        assert dict(files_below(image, f"{ROOT}/consumequeue/TopicA/0")) == whole


def test_recovery_looks_further_back_when_older_files_were_not_on_disk() -> None:
    disk = FakeDisk()
    queue = make_queue(disk)
    fill(queue, 60)
    queue.files.write()
    disk.open(f"{QUEUE_DIR}/{200:020d}", 200, create=False, allocate=False).pwrite(60, bytes(20))
    assert reopened(disk).max_offset == 60, "the last three files are fine"
    assert reopened(disk, trusted_offset=900).max_offset == 13


def test_units_out_of_log_order_end_the_queue() -> None:
    disk = FakeDisk()
    queue = make_queue(disk)
    fill(queue, 5)
    queue.files.append(UNIT.pack(150, 100, 0))
    queue.files.write()
    assert reopened(disk).max_offset == 5


def test_nothing_is_left_behind_a_cut() -> None:
    disk = FakeDisk()
    queue = make_queue(disk)
    fill(queue, 35)
    queue.files.write()
    queue.cut(1250)
    assert (queue.max_offset, queue.max_physical) == (13, 1300)
    assert disk.list_files(QUEUE_DIR) == [f"{0:020d}", f"{200:020d}"]
    assert disk.read_bytes(f"{QUEUE_DIR}/{200:020d}")[60:] == bytes(140)
    fill(queue, 1, first=13)
    assert units(queue)[-1] == (1300, 100, 13)


def test_a_missing_file_in_the_middle_hides_what_is_before_it(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk()
    queue = make_queue(disk)
    fill(queue, 35)
    queue.files.write()
    disk.remove(f"{QUEUE_DIR}/{200:020d}")
    again = reopened(disk)
    assert (again.min_offset, again.max_offset) == (20, 35)
    assert "found gap in queue" in caplog.text


@pytest.mark.mission("RC-02")
def test_a_file_of_another_size_is_refused_with_name_and_sizes() -> None:
    parts = Parts()
    parts.put()
    parts.close()
    with pytest.raises(StoreError, match=r"TopicA/0/0{20} has 200 bytes, but the file size is set to 400"):
        Parts(parts.disk, queue_file_bytes=400)


@pytest.mark.mission("RC-02")
def test_an_empty_last_file_is_removed_and_foreign_directories_are_left_out() -> None:
    parts = Parts()
    parts.put()
    parts.close()
    disk = parts.disk
    disk.open(f"{QUEUE_DIR}/{200:020d}", 0, create=True, allocate=False)
    disk.open(f"{ROOT}/consumequeue/TopicA/x/{0:020d}", 10, create=True, allocate=False)
    disk.open(f"{ROOT}/consumequeue/not.a.topic/0/{0:020d}", 10, create=True, allocate=False)
    again = Parts(disk)
    assert again.bodies() == [b"hello"]
    assert disk.list_files(QUEUE_DIR) == [f"{0:020d}"]
    assert list(again.queues.topics) == ["TopicA"]
    assert list(again.queues.topics["TopicA"]) == [0]


def test_a_full_disk_keeps_the_units_in_memory_until_there_is_room() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    parts.put(body=b"one")
    parts.put(queue_id=1, body=b"two")
    disk.fail("pwrite", 1, DiskFull("no room"))
    with pytest.raises(DiskFull):
        parts.queues.write()
    assert parts.bodies() == [b"one"]
    parts.queues.write()
    assert Parts(disk.kill()).bodies(queue_id=1) == [b"two"]


def test_units_do_not_pile_up_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk()
    parts = Parts(disk, queue_file_bytes=6_000_000)
    for number in range(UNITS_PENDING_MAX):
        parts.queues.put("TopicA", 0, number * 100, 100, 0, 1, number)
    assert parts.queues.pending == 0
    assert parts.queues.queue("TopicA", 0).files.written == UNITS_PENDING_MAX * UNIT_BYTES


@pytest.mark.mission("RC-03")
def test_the_checkpoint_never_speaks_of_units_that_a_power_cut_could_take() -> None:
    disk = FakeDisk(lazy_names=True)
    parts = Parts(disk)
    order: list[tuple[str, str]] = []
    disk.on_call = lambda operation, path: order.append((operation, path))
    parts.clock.advance(1)
    parts.put(body=b"one")
    second = parts.put(body=b"two")
    flush = parts.queues.begin_flush()
    parts.put(body=b"three")
    assert parts.checkpoint.logics_physical_offset == 0, "nothing is published before the sync"
    flush.sync()
    parts.queues.finish_flush(flush, parts.checkpoint)
    assert parts.checkpoint.logics_physical_offset == second.physical_offset
    assert parts.checkpoint.logics_time_ms == second.store_time_ms
    synced = [path for operation, path in order if operation == "sync"]
    assert synced == [f"{QUEUE_DIR}/{0:020d}"]
    assert ("sync_dir", QUEUE_DIR) in order
    # Only what was synced is there after the cut.
    left = disk.crash(0).read_bytes(f"{QUEUE_DIR}/{0:020d}")
    assert len(left.rstrip(b"\0")) <= 3 * UNIT_BYTES
    assert left[:UNIT_BYTES] != bytes(UNIT_BYTES)


@pytest.mark.mission("RC-03")
def test_a_flush_without_new_units_leaves_the_checkpoint_as_it_is() -> None:
    parts = Parts()
    parts.put(body=b"one")
    last = parts.put(body=b"two")
    parts.close()
    again = Parts(parts.disk)
    again.queues.flush_now(again.checkpoint)
    assert again.checkpoint.logics_physical_offset == last.physical_offset
    assert again.checkpoint.logics_time_ms == last.store_time_ms


def test_a_failed_sync_is_not_taken_for_success() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    parts.put()
    flush = parts.queues.begin_flush()
    disk.fail("sync", 1)
    with pytest.raises(OSError, match="Input/output"):
        flush.sync()
    assert parts.checkpoint.logics_physical_offset == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_flush_of_very_many_queues_syncs_them_all_or_fails(fails: bool) -> None:
    disk = FakeDisk(lazy_names=True)
    parts = Parts(disk, segment_bytes=1 << 20)
    for number in range(200):
        parts.put(topic=f"Topic{number}")
    parts.flush_log()
    flush = parts.queues.begin_flush()
    if fails:
        disk.fail("sync", 150)
        with pytest.raises(OSError, match="Input/output"):
            flush.sync()
        return
    flush.sync()
    left = disk.crash(7)
    kept = [left.read_bytes(f"{ROOT}/consumequeue/Topic{number}/0/{0:020d}")[:8] for number in range(200)]
    assert kept == sorted(kept)
    assert len(set(kept)) == 200


def test_a_file_that_goes_between_its_opening_and_its_sync_is_no_failure(tmp_path: Path) -> None:
    class Vanishing(OsDisk):
        def open(self, path: str, size: int, *, create: bool, allocate: bool, writable: bool = True) -> OsFile:
            file = super().open(path, size, create=create, allocate=allocate, writable=writable)
            if not create:
                self.remove_dir(str(tmp_path / "consumequeue"))
            return file

    parts = Parts(OsDisk(), root_dir=str(tmp_path))
    parts.put()
    flush = parts.queues.begin_flush()
    assert flush.paths
    assert flush.directories
    flush.disk = Vanishing()
    flush.sync()
    assert not (tmp_path / "consumequeue").exists()


def test_a_deleted_topic_leaves_no_file_and_comes_not_back_with_the_next_write() -> None:
    parts = Parts()
    parts.put(body=b"one")
    parts.queues.write()
    parts.put(body=b"two")
    parts.queues.delete_topic("TopicA")
    parts.queues.write()
    assert not parts.disk.exists(f"{ROOT}/consumequeue/TopicA")
    assert parts.queues.find("TopicA", 0) is None


def test_ten_thousand_queues_hold_few_descriptors(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    parts = Parts(OsDisk(), root_dir=str(tmp_path), queue_file_bytes=200)
    for number in range(2000):
        parts.queues.put(f"topic{number}", 0, number * 100, 100, 0, 1, 0)
    parts.queues.write()
    for number in range(2000):
        assert parts.queues.queue(f"topic{number}", 0).unit(0) == (number * 100, 100, 0)
    assert len(list(Path("/proc/self/fd").iterdir())) - before < FILES_OPEN_MAX + 100


def test_golden_queues_recover_to_their_last_unit(tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    parts = Parts(OsDisk(), root_dir=str(root), **GOLDEN_SIZES)
    for queue in parts.queues.all():
        folder = golden_store("clean") / "consumequeue" / queue.topic / str(queue.queue_id)
        content = (folder / f"{0:020d}").read_bytes()
        assert queue.max_offset == sum(size > 0 for _, size, _ in UNIT.iter_unpack(content))


def test_a_clean_start_has_nothing_to_sync_and_writes_nothing() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    for number in range(50):
        parts.put(f"topic{number}")
    parts.close()
    written: list[str] = []
    disk.on_call = lambda operation, path: written.append(path) if operation == "pwrite" else None
    again = Parts(disk)
    flush = again.queues.begin_flush()
    assert (flush.paths, flush.directories) == ([], set())
    assert set(written) <= {f"{ROOT}/checkpoint"}
