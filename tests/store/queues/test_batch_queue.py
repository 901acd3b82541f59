"""Checks batch queues: units, search by number, recovery, and the topic type that decides between the two kinds."""

import pytest

from cometmq.errors import StoreError
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.queues.batch_queue import BATCH_UNIT_BYTES
from cometmq.store.results import GetStatus
from cometmq.wire.record.sysflag import INNER_BATCH, NEEDS_UNWRAP
from tests.support.parts import ROOT, Parts, files_below

FLAGS = INNER_BATCH | NEEDS_UNWRAP


def batch_parts(disk: FakeDisk | None = None) -> Parts:
    return Parts(disk, batch_topics=("Batches",))


def put_batches(parts: Parts, counts: list[int]) -> None:
    for count in counts:
        parts.clock.advance(1)
        parts.put("Batches", 0, b"%d inside" % count, FLAGS, INNER_NUM=str(count), TAGS="TagA")


@pytest.mark.mission("ST-08")
def test_a_batch_is_one_record_and_one_unit_of_46_bytes() -> None:
    parts = batch_parts()
    put_batches(parts, [3, 5])
    parts.queues.write()
    content = parts.disk.read_bytes(f"{ROOT}/batchconsumequeue/Batches/0/{0:020d}")
    records = parts.read_all("Batches", 0)
    assert [record.body for record in records] == [b"3 inside", b"5 inside"]
    expected = b""
    for record, base, count in zip(records, (0, 3), (3, 5), strict=True):
        expected += record.physical_offset.to_bytes(8, "big") + record.record_bytes.to_bytes(4, "big")
        expected += (2598919).to_bytes(8, "big") + record.store_timestamp_ms.to_bytes(8, "big")
        expected += base.to_bytes(8, "big") + count.to_bytes(2, "big") + b"\xff\xff\xff\xff" + bytes(4)
    assert content == expected + bytes(460 - 2 * BATCH_UNIT_BYTES)
    assert not parts.disk.exists(f"{ROOT}/consumequeue/Batches")


def test_a_number_is_found_in_the_batch_that_has_it() -> None:
    parts = batch_parts()
    counts = [3, 1, 7, 2, 30, 1, 1, 4, 5, 6, 1, 9, 2]
    put_batches(parts, counts)
    bases = [sum(counts[:index]) for index in range(len(counts))]
    for number in range(sum(counts)):
        result = parts.reading.get("Batches", 0, number, 1)
        assert result is not None
        index = max(index for index, base in enumerate(bases) if base <= number)
        assert (result.status, result.queue_offsets) == (GetStatus.FOUND, [bases[index]])
        assert (result.count, result.next_offset) == (counts[index], bases[index] + counts[index])
    end = parts.reading.get("Batches", 0, sum(counts), 1)
    assert end is not None
    assert end.status == GetStatus.OFFSET_OVERFLOW_ONE


def test_batches_are_found_by_time() -> None:
    parts = batch_parts()
    put_batches(parts, [3, 1, 7])
    start_ms = parts.clock.now_ms() - 2000
    expected = {-5: 0, 0: 0, 1: 3, 1000: 3, 1001: 4, 9999: 4}
    assert {ms: parts.lookup.offset_by_time("Batches", 0, start_ms + ms) for ms in expected} == expected


@pytest.mark.parametrize("crashed", [False, True])
def test_batch_queues_come_back_as_they_were(crashed: bool) -> None:
    disk = FakeDisk()
    parts = batch_parts(disk)
    put_batches(parts, [2] * 25)
    parts.queues.write()
    before = dict(files_below(disk, f"{ROOT}/batchconsumequeue"))
    if not crashed:
        parts.close()
    again = batch_parts(disk.kill())
    assert again.queues.max_offset("Batches", 0) == 50
    assert again.log.counters.next_offset("Batches", 0) == 50
    assert dict(files_below(again.disk, f"{ROOT}/batchconsumequeue")) == before
    assert len(again.bodies("Batches")) == 25


def test_a_queue_deleted_with_its_directory_is_rebuilt_without_knowing_the_topic_type() -> None:
    disk = FakeDisk()
    parts = batch_parts(disk)
    put_batches(parts, [2] * 25)
    parts.close()
    before = dict(files_below(disk, f"{ROOT}/batchconsumequeue"))
    disk.remove_dir(f"{ROOT}/batchconsumequeue")
    again = Parts(disk)
    again.queues.write()
    assert dict(files_below(disk, f"{ROOT}/batchconsumequeue")) == before


def test_a_cut_drops_the_units_behind_it() -> None:
    parts = batch_parts()
    put_batches(parts, [2] * 25)
    queue = parts.queues.batch_topics["Batches"][0]
    place = queue.read(30, 1)[0].physical_offset
    queue.cut(place)
    assert (queue.max_offset, queue.files.end) == (30, 15 * BATCH_UNIT_BYTES)
    assert queue.max_physical < place


def test_a_plain_message_of_a_batch_topic_is_reported_and_in_no_queue(caplog: pytest.LogCaptureFixture) -> None:
    parts = batch_parts()
    parts.put("Batches", 0, b"plain")
    assert parts.queues.find("Batches", 0) is None
    assert "left out plain message of a batch topic topic=Batches" in caplog.text


def test_a_directory_that_does_not_agree_with_the_topic_type_is_refused() -> None:
    disk = FakeDisk()
    parts = batch_parts(disk)
    put_batches(parts, [2])
    parts.put("Plain")
    parts.close()
    with pytest.raises(StoreError, match="batchconsumequeue/Batches exists, but the topic's type is not BatchCQ"):
        Parts(disk.kill(), batch_topics=("Others",))
    with pytest.raises(StoreError, match="consumequeue/Plain exists, but the topic's type is BatchCQ"):
        Parts(disk.kill(), batch_topics=("Batches", "Plain"))


def test_files_wholly_before_the_log_are_removed() -> None:
    parts = batch_parts()
    put_batches(parts, [2] * 60)
    parts.queues.write()
    queue = parts.queues.batch_topics["Batches"][0]
    log_min = queue.read(50, 1)[0].physical_offset
    parts.queues.delete_expired(log_min)
    assert queue.min_offset == 50
    assert queue.files.starts[0] == 920
    assert parts.disk.list_files(f"{ROOT}/batchconsumequeue/Batches/0")[0] == f"{920:020d}"
