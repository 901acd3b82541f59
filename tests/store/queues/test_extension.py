"""Checks the extension of consume queues: units, addresses, file ends, and life without it."""

import pytest

from cometmq.store.fake_disk import FakeDisk
from cometmq.store.queues.extension import ConsumeQueueExt, ExtUnit, is_address
from cometmq.store.queues.queue_files import OpenFiles, QueueFiles
from cometmq.store.results import GetStatus
from cometmq.wire.hashing import java_string_hash
from tests.support.parts import ROOT, Parts

EXT_DIR = f"{ROOT}/consumequeue_ext/TopicA/0"


def make_ext(disk: FakeDisk, file_bytes: int = 100) -> ConsumeQueueExt:
    return ConsumeQueueExt(QueueFiles(OpenFiles(disk), EXT_DIR, file_bytes))


def test_a_unit_has_the_bytes_of_rocketmq() -> None:
    disk = FakeDisk()
    ext = make_ext(disk)
    address = ext.put(-7, 0x1122334455667788, b"\x01\x02\x03")
    ext.files.write()
    assert address == -(2**63)
    assert disk.read_bytes(f"{EXT_DIR}/{0:020d}")[:23] == (
        b"\x00\x17" + b"\xff" * 7 + b"\xf9" + bytes.fromhex("1122334455667788") + b"\x00\x03\x01\x02\x03"
    )


def test_a_unit_that_does_not_fit_goes_to_the_next_file() -> None:
    disk = FakeDisk()
    ext = make_ext(disk)
    addresses = [ext.put(number, number, bytes([number] * 20)) for number in range(7)]
    ext.files.write()
    # 40 bytes each, and 4 must stay free: two in a file.
    assert [address + 2**63 for address in addresses] == [0, 40, 100, 140, 200, 240, 300]
    assert disk.read_bytes(f"{EXT_DIR}/{0:020d}")[80:] == b"\xff\xff" + bytes(18)
    assert [ext.get(address) for address in addresses] == [ExtUnit(n, n, bytes([n] * 20)) for n in range(7)]


def test_addresses_and_hashes_cannot_be_mistaken() -> None:
    assert not is_address(-(2**31))
    assert is_address(-(2**31) - 1)
    assert is_address(-(2**63))


@pytest.mark.parametrize("address", [0, 5, -(2**63) + 1, -(2**63) + 1000])
def test_an_address_without_unit_finds_nothing(address: int) -> None:
    ext = make_ext(FakeDisk())
    ext.put(1, 2, b"bitmap")
    assert ext.get(address) is None


def test_what_no_unit_can_hold_leaves_the_tag_code_alone() -> None:
    ext = make_ext(FakeDisk(), file_bytes=1 << 20)
    assert ext.put(77, 1, bytes(32767)) == 77


def put_some(parts: Parts, count: int = 30) -> None:
    for number in range(count):
        parts.clock.advance(1)
        parts.put(body=b"%d" % number, TAGS=f"tag{number % 3}")


@pytest.mark.mission("DI-13")
def test_a_reader_with_a_filter_gets_the_same_messages_with_and_without_extension() -> None:
    wanted = java_string_hash("tag1")
    found: list[list[int]] = []
    for enabled in (False, True):
        parts = Parts(queue_ext_enabled=enabled, queue_file_bytes=2000)
        put_some(parts)
        seen: list[ExtUnit] = []

        def matches(tags_code: int | None, unit: ExtUnit | None, seen: list[ExtUnit] = seen) -> bool:
            if unit is not None:
                seen.append(unit)
            return tags_code is None or tags_code == wanted

        result = parts.reading.get("TopicA", 0, 0, 32, unit_filter=matches)
        assert result is not None
        found.append(result.queue_offsets)
        assert len(seen) == (30 if enabled else 0)
        if enabled:
            assert seen[1] == ExtUnit(wanted, parts.clock.now_ms() - 28_000, b"")
    assert found[0] == found[1] == list(range(1, 30, 3))


@pytest.mark.mission("DI-13")
@pytest.mark.parametrize("kept_bytes", [0, 1, 25, 256, 300, 511])
def test_messages_still_arrive_when_the_extension_is_cut_short(kept_bytes: int) -> None:
    disk = FakeDisk()
    parts = Parts(disk, queue_ext_enabled=True, queue_file_bytes=2000)
    put_some(parts)
    parts.close()
    for start in range(0, 1024, 256):
        path = f"{EXT_DIR}/{start:020d}"
        if disk.exists(path):
            keep = max(0, min(256, kept_bytes - start))
            disk.open(path, 256, create=False, allocate=False).pwrite(keep, bytes(256 - keep))
    again = Parts(disk, queue_ext_enabled=True, queue_file_bytes=2000)
    result = again.reading.get("TopicA", 0, 0, 32, unit_filter=lambda code, _unit: code is None)
    assert result is not None
    assert result.status == GetStatus.FOUND
    unreadable = result.count
    result = again.reading.get("TopicA", 0, 0, 32, unit_filter=lambda code, _unit: code is not None)
    assert result is not None
    assert unreadable + result.count == 30


@pytest.mark.parametrize("crashed", [False, True])
def test_the_extension_comes_back_with_its_queue(crashed: bool) -> None:
    disk = FakeDisk()
    parts = Parts(disk, queue_ext_enabled=True, queue_file_bytes=2000)
    put_some(parts)
    parts.queues.write()
    if not crashed:
        parts.close()
    again = Parts(disk.kill(), queue_ext_enabled=True, queue_file_bytes=2000)
    again.put(TAGS="tag1")
    codes: list[int | None] = []

    def note(code: int | None, _unit: ExtUnit | None) -> bool:
        codes.append(code)
        return False

    again.reading.get("TopicA", 0, 0, 40, unit_filter=note)
    assert codes == [java_string_hash(f"tag{number % 3}") for number in range(30)] + [java_string_hash("tag1")]


def test_old_extension_files_go_with_the_queue_files() -> None:
    disk = FakeDisk()
    parts = Parts(disk, queue_ext_enabled=True, queue_file_bytes=2000)
    put_some(parts)
    parts.queues.write()
    assert len(disk.list_files(EXT_DIR)) == 3
    queue = parts.queues.queue("TopicA", 0)
    unit = queue.unit(25)
    assert unit is not None
    parts.queues.delete_expired(unit[0])
    assert disk.list_files(EXT_DIR) == [f"{512:020d}"]
