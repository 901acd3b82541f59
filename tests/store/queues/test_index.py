"""Checks the index: its bytes, chains, file changes, queries, and what is left of it after a crash."""

import struct
from pathlib import Path

import pytest

from cometmq.clock import ManualClock
from cometmq.errors import StoreError
from cometmq.store.disk import DiskFull, OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.write_flags import INDEX_FAILED
from cometmq.store.options import StoreOptions
from cometmq.store.queues.index import TAG, Index
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.properties import decode_text
from cometmq.wire.record.sysflag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.support.golden import StoreName, copy_golden_store, golden_messages, golden_store
from tests.support.parts import GOLDEN_SIZES, ROOT, SMALL, Parts, files_below

EVER = (0, 1 << 60)


def make_index(disk: FakeDisk, clock: ManualClock | None = None, **options: int) -> Index:
    return Index(disk, StoreOptions(**{**SMALL, **options}), clock or ManualClock())


def header(content: bytes) -> tuple[int, ...]:
    return struct.unpack_from(">qqqqii", content)


def entry(content: bytes, slots: int, number: int) -> tuple[int, ...]:
    return struct.unpack_from(">iqii", content, 40 + 4 * slots + 20 * number)


@pytest.mark.mission("DI-11")
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_index_made_from_a_golden_log_is_that_of_the_java_broker(name: StoreName, tmp_path: Path) -> None:
    root = copy_golden_store(name, tmp_path / "store")
    disk = OsDisk()
    ((_, java_bytes),) = files_below(disk, str(root / "index"))
    disk.remove_dir(str(root / "index"))
    Parts(disk, root_dir=str(root), **GOLDEN_SIZES).close()
    ((_, our_bytes),) = files_below(disk, str(root / "index"))
    assert our_bytes == java_bytes


@pytest.mark.mission("DI-11")
def test_a_file_has_420_000_040_bytes_by_default_and_owns_only_what_it_needs(tmp_path: Path) -> None:
    options = StoreOptions(root_dir=str(tmp_path))
    index = Index(OsDisk(), options, ManualClock())
    index.put("TopicA", 0, 1, "unique", "", "")
    (file,) = (tmp_path / "index").iterdir()
    assert file.stat().st_size == 420_000_040
    assert 20_000_000 < file.stat().st_blocks * 512 < 30_000_000
    index.close()


def test_the_golden_key_has_the_hash_of_java() -> None:
    disk = FakeDisk()
    make_index(disk).put("TopicA", 0, 1, "", "k1", "")
    ((_, content),) = files_below(disk, f"{ROOT}/index")
    assert entry(content, 7, 1)[0] == 1903240649


@pytest.mark.mission("DI-10")
def test_unique_key_each_key_and_the_tag_are_indexed_in_this_order() -> None:
    disk = FakeDisk()
    make_index(disk).put("TopicA", 500, 1000, "unique", "k1  k2 ", "TagA")
    ((_, content),) = files_below(disk, f"{ROOT}/index")
    texts = ["TopicA#unique", "TopicA#k1", "TopicA#k2", "TopicA#T#TagA"]
    assert [entry(content, 7, number)[0] for number in range(1, 5)] == [abs(java_string_hash(t)) for t in texts]
    assert header(content) == (1000, 1000, 500, 500, 3, 5)


@pytest.mark.mission("DI-10")
def test_messages_already_there_and_rollbacks_are_left_out_and_the_index_can_be_off() -> None:
    parts = Parts()
    parts.put(KEYS="k1")
    before = dict(files_below(parts.disk, f"{ROOT}/index"))
    parts.dispatcher.position = 0
    parts.dispatcher.run()
    parts.put(sys_flag=TRANSACTION_ROLLBACK, KEYS="k2")
    assert dict(files_below(parts.disk, f"{ROOT}/index")) == before
    parts.put(sys_flag=TRANSACTION_PREPARED, KEYS="k3")
    assert len(parts.lookup.query("TopicA", "k3", 10, *EVER).records) == 1

    off = Parts(index_enabled=False)
    off.put(KEYS="k1", TAGS="T")
    assert not off.disk.exists(f"{ROOT}/index")


def test_a_message_at_offset_0_is_indexed() -> None:
    index = make_index(FakeDisk())
    index.put("TopicA", 0, 1, "unique", "", "")
    assert index.query("TopicA", "unique", 10, *EVER) == [0]


@pytest.mark.mission("DI-12")
def test_keys_of_one_slot_are_chained_newest_first() -> None:
    disk = FakeDisk()
    index = make_index(disk, index_slots=1)
    for number in range(10):
        index.put("TopicA", number * 100, 1000 + number, "", f"key{number % 2}", "")
    assert index.query("TopicA", "key1", 10, *EVER) == [900, 700, 500, 300, 100]
    ((_, content),) = files_below(disk, f"{ROOT}/index")
    assert [entry(content, 1, number)[3] for number in range(1, 11)] == list(range(10))
    assert header(content)[4:] == (1, 11)


@pytest.mark.mission("DI-12")
def test_the_hash_that_has_no_absolute_value_counts_as_0() -> None:
    # "TopicA#" continued so that the Java hash is -2**31, found by search.
    text = _text_with_hash("TopicA#", -(2**31))
    disk = FakeDisk()
    index = make_index(disk)
    index.put("TopicA", 300, 1, "", text, "")
    ((_, content),) = files_below(disk, f"{ROOT}/index")
    assert entry(content, 7, 1)[0] == 0
    assert index.query("TopicA", text, 10, *EVER) == [300]


def _text_with_hash(prefix: str, wanted: int) -> str:
    """Six characters behind `prefix`: the hash is linear in them, so they follow digit by digit."""
    target = (wanted - java_string_hash(prefix + "\x30" * 6)) % 2**32
    digits = []
    for power in range(5, -1, -1):
        digit, target = divmod(target, 31**power)
        if digit > 50_000:
            digit, target = 50_000, target + (digit - 50_000) * 31**power
        digits.append(chr(0x30 + digit))
    text = "".join(digits)
    assert java_string_hash(prefix + text) == wanted
    return text


@pytest.mark.mission("DI-12")
def test_time_is_kept_in_seconds_since_the_first_entry_and_clipped() -> None:
    disk = FakeDisk()
    index = make_index(disk)
    for time_ms in (10_000, 11_999, 12_000, 5000, 10_000 + (2**31 + 5) * 1000):
        index.put("TopicA", index.newest_offset + 100, time_ms, "", f"k{time_ms}", "")
    ((_, content),) = files_below(disk, f"{ROOT}/index")
    assert [entry(content, 7, number)[2] for number in range(1, 6)] == [0, 1, 2, 0, 2**31 - 1]


@pytest.mark.mission("DI-12")
def test_a_file_takes_one_entry_less_than_its_room_and_the_next_opens_a_second_file() -> None:
    disk = FakeDisk()
    index = make_index(disk, index_slots=500, index_entries=2000)
    for number in range(1999):
        index.put("TopicA", number * 100, 1000 + number, f"key{number}", "", "")
    assert len(disk.list_files(f"{ROOT}/index")) == 1
    index.put("TopicA", 199_900, 9000, "key1999", "", "")
    first, second = (content for _, content in files_below(disk, f"{ROOT}/index"))
    assert header(first)[3:4] + header(first)[5:] == (199_800, 2000)
    # It began with the end of the first file as its begin, so this entry counted from there.
    assert header(second) == (9000, 9000, 199_900, 199_900, 1, 2)
    assert entry(second, 500, 1)[2] == (9000 - 2998) // 1000
    assert [index.query("TopicA", f"key{number}", 10, *EVER) for number in range(2000)] == [
        [number * 100] for number in range(2000)
    ]


def test_the_entries_of_one_message_are_chained_and_timed_like_those_of_many() -> None:
    disk = FakeDisk()
    clock = ManualClock()
    index = make_index(disk, clock, index_slots=1, index_entries=8)
    for number in range(4):  # 7 entries fit; the third message lies in both files
        index.put("TopicA", number * 100, 10_000 + number * 5000, f"unique{number}", "key", "tag")
    first, second = (content for _, content in files_below(disk, f"{ROOT}/index"))
    places = [(0, 0)] * 3 + [(100, 5)] * 3 + [(200, 10)]
    assert [entry(first, 1, number)[1:] for number in range(1, 8)] == [
        (offset, seconds, number) for number, (offset, seconds) in enumerate(places)
    ]
    assert [entry(second, 1, number)[1:] for number in range(1, 6)] == [
        (200, 0, 0), (200, 0, 1), (300, 5, 2), (300, 5, 3), (300, 5, 4),
    ]  # fmt: skip
    assert index.query("TopicA", "key", 10, *EVER) == [300, 200, 100, 0]


@pytest.mark.mission("DI-12")
def test_three_failed_creations_stop_writes() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    disk.full_after(8000)
    for nth in (2, 3, 4):
        disk.fail("open", nth, DiskFull("no room"))
    parts.put(KEYS="k1")
    assert parts.dispatcher.position == 0, "waits and tries again"
    parts.dispatcher.step()
    assert parts.dispatcher.position == 0, "not before a second has passed"
    for expected in (False, True):
        assert parts.flags.writable
        parts.clock.advance(1)
        parts.dispatcher.step()
        assert (parts.dispatcher.position > 0) is expected
    assert parts.flags.bits == INDEX_FAILED
    assert parts.bodies() == [b"hello"], "the queue goes on without the index"


def test_when_there_is_room_again_the_index_catches_up_and_writes_go_on() -> None:
    parts = Parts(FakeDisk(), segment_bytes=1 << 16)
    parts.put(KEYS="k0")
    assert isinstance(parts.disk, FakeDisk)
    parts.disk.full_after(0)
    for number in range(1, 25):
        parts.put(KEYS=f"k{number}")
    assert parts.index.query("TopicA", "k19", 10, *EVER) == [], "the second file found no room"
    for _ in range(3):
        parts.clock.advance(1)
        parts.dispatcher.step()
    assert parts.flags.bits == INDEX_FAILED
    assert len(parts.bodies()) == 25, "the queue went on"
    parts.disk.full_after(None)
    parts.dispatcher.step()
    assert parts.flags.bits == INDEX_FAILED, "not before a second has passed"
    parts.clock.advance(1)
    parts.dispatcher.step()
    assert parts.flags.writable
    for number, record in enumerate(parts.read_all("TopicA", 0)):
        assert parts.index.query("TopicA", f"k{number}", 10, *EVER) == [record.physical_offset]
    assert parts.dispatcher.behind_bytes == 0


def test_an_index_that_fails_for_another_reason_stays_off() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    for nth in (2, 3, 4):
        disk.fail("open", nth, OSError(5, "Input/output error"))
    parts.put(KEYS="k1")
    for _ in range(5):
        parts.clock.advance(1)
        parts.dispatcher.step()
    assert parts.flags.bits == INDEX_FAILED


def test_a_creation_that_succeeds_later_loses_no_key() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    disk.fail("open", 2, DiskFull("no room"))
    parts.put(KEYS="k1")
    parts.put(KEYS="k2")
    parts.clock.advance(1)
    parts.dispatcher.step()
    assert parts.flags.writable
    assert [len(parts.lookup.query("TopicA", key, 10, *EVER).records) for key in ("k1", "k2")] == [1, 1]


def test_a_full_disk_while_entries_are_reserved_is_an_error_and_not_a_crash() -> None:
    disk = FakeDisk()
    index = make_index(disk, index_slots=500, index_entries=2_000_000)
    index.put("TopicA", 0, 1, "key", "", "")
    disk.full_after(0)
    with pytest.raises(DiskFull):
        put_numbers(index, 400_000)
    assert 100_000 < index.newest_offset < 300_000


def put_numbers(index: Index, count: int) -> None:
    for number in range(1, count):
        index.put("TopicA", number, 1, "key", "", "")


# Queries


def test_a_query_respects_time_number_and_topic() -> None:
    index = make_index(FakeDisk(), index_entries=5)
    for number in range(20):
        index.put("TopicA", number * 100, 10_000 + number * 1000, "", "key", "")
    index.put("TopicB", 5000, 40_000, "", "key", "")
    assert index.query("TopicA", "key", 100, *EVER) == [number * 100 for number in range(19, -1, -1)]
    assert index.query("TopicA", "key", 3, *EVER) == [1900, 1800, 1700]
    assert index.query("TopicA", "key", 100, 12_000, 15_000) == [500, 400, 300, 200]
    assert index.query("TopicA", "other", 100, *EVER) == []
    assert index.query("TopicA", "key", 100, 50_000, 60_000) == []


def test_tags_are_found_as_tags_and_not_as_keys() -> None:
    index = make_index(FakeDisk())
    index.put("TopicA", 100, 1000, "", "T#k", "TagA")
    assert index.query("TopicA", "TagA", 10, *EVER, TAG) == [100]
    assert index.query("TopicA", "TagA", 10, *EVER) == []


def test_each_of_many_tags_of_a_topic_is_found() -> None:
    """The hash of the first is kept apart from those of others, of which only some are kept."""
    index = make_index(FakeDisk())
    tags = [f"Tag{number % 120}" for number in range(240)]
    for number, tag in enumerate(tags):
        index.put("TopicA", 100 + number, 1000, "", "", tag)
    for tag in set(tags):
        expected = [100 + number for number, other in enumerate(tags) if other == tag]
        assert sorted(index.query("TopicA", tag, 10, *EVER, TAG)) == expected, tag


def test_a_chain_that_leads_forward_ends() -> None:
    disk = FakeDisk()
    index = make_index(disk, index_slots=1)
    for number in range(5):
        index.put("TopicA", number * 100, 1000, "", "key", "")
    path, _ = next(files_below(disk, f"{ROOT}/index"))
    disk.open(path, -1, create=False, allocate=False).pwrite(40 + 4 + 20 * 3 + 16, (5).to_bytes(4, "big"))
    assert index.query("TopicA", "key", 100, *EVER) == [400, 300, 200]


@pytest.mark.mission("DI-10")
def test_every_golden_key_finds_its_messages(tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    parts = Parts(OsDisk(), root_dir=str(root), **GOLDEN_SIZES)
    searched = 0
    for message in golden_messages("clean"):
        properties = message["properties"]
        keys = [properties["UNIQ_KEY"], *properties.get("KEYS", "").split(" ")]
        for key in filter(None, keys):
            result = parts.lookup.query(message["topic"], key, 64, *EVER)
            offsets = [int.from_bytes(record[28:36], "big") for record in result.records]
            assert message["commitLogOffset"] in offsets
            searched += 1
    assert searched > 800


# Life and death of files


@pytest.mark.mission("RC-04")
def test_after_a_crash_the_newest_file_is_replaced_and_every_key_is_found_again(tmp_path: Path) -> None:
    root = copy_golden_store("crash", tmp_path / "store")
    before = [file.name for file in (golden_store("crash") / "index").iterdir()]
    parts = Parts(OsDisk(), root_dir=str(root), **GOLDEN_SIZES)
    after = [file.name for file in (root / "index").iterdir()]
    assert len(after) == 1
    assert after != before
    for message in golden_messages("crash"):
        found = parts.index.query(message["topic"], message["properties"]["UNIQ_KEY"], 64, *EVER)
        assert message["commitLogOffset"] in found


@pytest.mark.mission("RC-04")
def test_after_a_clean_stop_the_file_is_kept(tmp_path: Path) -> None:
    root = copy_golden_store("clean", tmp_path / "store")
    before = dict(files_below(OsDisk(), str(root / "index")))
    Parts(OsDisk(), root_dir=str(root), **GOLDEN_SIZES).close()
    assert dict(files_below(OsDisk(), str(root / "index"))) == before


def test_full_files_that_were_synced_survive_a_crash() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    for number in range(50):
        parts.clock.advance(1)
        parts.put(KEYS=f"k{number}")
    parts.flush()
    kept = disk.list_files(f"{ROOT}/index")[:-1]
    assert len(kept) == 2
    again = Parts(disk.crash(1), parts.clock)
    assert again.disk.list_files(f"{ROOT}/index")[:-1] == kept
    assert all(again.index.query("TopicA", f"k{number}", 10, *EVER) for number in range(50))


def test_a_full_file_is_not_called_safe_before_the_log_is_flushed_as_far() -> None:
    parts = Parts()
    for number in range(50):
        parts.clock.advance(1)
        parts.put(KEYS=f"k{number}")
    assert len(parts.index.to_sync()) == 2
    for file in parts.index.to_sync():
        file.sync()
        file.synced = True
    assert parts.index.safe_time_ms(0) == 0
    first, second, _ = parts.index.files
    assert parts.index.safe_time_ms(first.end_offset) == 0
    assert parts.index.safe_time_ms(first.end_offset + 1) == first.end_time_ms
    assert parts.index.safe_time_ms(parts.log.max_offset) == second.end_time_ms


def test_an_index_ahead_of_the_log_is_rebuilt() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    results = [parts.put(body=bytes(100), KEYS=f"k{number}") for number in range(50)]
    parts.close()
    last = parts.segments.segments[-1]
    disk.open(last.file.path, 4096, create=False, allocate=False).pwrite(
        results[45].physical_offset - last.start, bytes(last.end - results[45].physical_offset)
    )
    again = Parts(disk, parts.clock)
    assert again.recovered.end == results[45].physical_offset
    for number in range(50):
        assert bool(again.index.query("TopicA", f"k{number}", 10, *EVER)) is (number < 45)
    again.put(KEYS="k45")
    assert again.index.query("TopicA", "k45", 10, *EVER) == [results[45].physical_offset]


def test_a_file_of_another_size_is_refused_with_both_sizes() -> None:
    parts = Parts()
    parts.put(KEYS="k")
    parts.close()
    with pytest.raises(StoreError, match=r"has 468 bytes, but maxHashSlotNum 8 .* make 472"):
        Parts(parts.disk, index_slots=8)


def test_files_that_only_know_deleted_messages_go_but_never_the_last() -> None:
    parts = Parts()
    for number in range(100):
        parts.put(KEYS=f"k{number}")
    first, second = parts.index.files[:2]
    assert parts.index.delete_expired(first.end_offset) == 0
    assert parts.index.delete_expired(second.end_offset + 1) == 2
    assert parts.index.delete_expired(1 << 60) == 3
    assert len(parts.disk.list_files(f"{ROOT}/index")) == len(parts.index.files) == 1


def test_properties_of_the_dispatched_message_are_those_of_the_record() -> None:
    seen: list[str] = []
    parts = Parts(on_arrival=lambda *notice: seen.append(str(notice[5])))
    parts.put(KEYS="k1", TAGS="TagA")
    assert decode_text(seen[0]) == {"KEYS": "k1", "TAGS": "TagA"}


@pytest.mark.parametrize("messages", range(20, 39))
def test_a_message_whose_keys_lie_in_two_files_keeps_them_all_when_the_second_is_lost(messages: int) -> None:
    disk = FakeDisk()
    parts = Parts(disk, segment_bytes=1 << 16)
    for number in range(messages):
        parts.clock.advance(1)
        parts.put(KEYS=f"a{number} b{number}", TAGS=f"t{number}")
    parts.flush()
    again = Parts(disk.kill(), parts.clock, segment_bytes=1 << 16)
    for number, record in enumerate(again.read_all("TopicA", 0)):
        offsets = [record.physical_offset]
        assert again.index.query("TopicA", f"a{number}", 10, *EVER) == offsets
        assert again.index.query("TopicA", f"b{number}", 10, *EVER) == offsets
        assert again.index.query("TopicA", f"t{number}", 10, *EVER, TAG) == offsets


def test_a_file_that_begins_in_the_last_ms_of_a_full_one_is_not_taken_for_safe() -> None:
    disk = FakeDisk()
    parts = Parts(disk)
    for number in range(25):
        parts.put(KEYS=f"k{number}")
    parts.flush()
    assert [file.is_full for file in parts.index.files] == [True, False]
    assert parts.checkpoint.index_time_ms == parts.index.files[-1].end_time_ms
    full, spoilt = disk.list_files(f"{ROOT}/index")
    image = disk.kill()
    image.open(f"{ROOT}/index/{spoilt}", -1, create=False, allocate=False).pwrite(40, bytes(28))
    again = Parts(image, parts.clock)
    assert all(again.index.query("TopicA", f"k{number}", 10, *EVER) for number in range(25))
    assert full in image.list_files(f"{ROOT}/index")


def test_keys_that_found_no_room_are_put_later_and_only_those() -> None:
    disk = FakeDisk()
    index = make_index(disk, index_entries=3)
    index.put("TopicA", 100, 1000, "", "x", "")
    disk.full_after(0)
    with pytest.raises(DiskFull):
        index.put("TopicA", 200, 1000, "", "y z", "")
    disk.full_after(None)
    index.put("TopicA", 200, 1000, "", "y z", "")
    assert [index.query("TopicA", key, 10, *EVER) for key in "xyz"] == [[100], [200], [200]]
    assert index.newest_offset == 200
