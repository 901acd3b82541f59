"""The fake's own promises: what a crash image may and may not contain. Crash tests are worth what these are."""

import pytest

from cometmq.store.disk import PAGE_BYTES, DiskFull
from cometmq.store.fake_disk import SECTOR_BYTES, FakeDisk


def read(disk: FakeDisk, path: str) -> bytes:
    return disk.read_bytes(path)


def test_synced_bytes_survive_every_crash_and_unsynced_ones_only_some() -> None:
    disk = FakeDisk()
    file = disk.open("/log", 4 * PAGE_BYTES, create=True, allocate=True)
    view = memoryview(file.map())
    view[:PAGE_BYTES] = b"a" * PAGE_BYTES
    file.sync()
    view[PAGE_BYTES:] = b"b" * (3 * PAGE_BYTES)
    seen = set()
    for seed in range(60):
        left = read(disk.crash(seed), "/log")
        assert left[:PAGE_BYTES] == b"a" * PAGE_BYTES
        for page in range(1, 4):
            sectors = left[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
            kinds = {sectors[at : at + SECTOR_BYTES] for at in range(0, PAGE_BYTES, SECTOR_BYTES)}
            assert kinds <= {b"b" * SECTOR_BYTES, bytes(SECTOR_BYTES)}
            seen.add("torn" if len(kinds) == 2 else kinds.pop()[:1])
    assert seen == {"torn", b"b", b"\0"}


def test_a_crash_is_decided_by_its_seed_and_leaves_the_disk_alone() -> None:
    disk = FakeDisk()
    memoryview(disk.open("/log", 64 * PAGE_BYTES, create=True, allocate=True).map())[:] = b"x" * (64 * PAGE_BYTES)
    images = [read(disk.crash(seed), "/log") for seed in (1, 1, 2)]
    assert images[0] == images[1] != images[2]
    assert read(disk, "/log") == b"x" * (64 * PAGE_BYTES)
    assert read(disk.kill(), "/log") == read(disk, "/log")


def test_a_sync_covers_what_was_there_when_it_began() -> None:
    disk = FakeDisk()
    file = disk.open("/log", PAGE_BYTES, create=True, allocate=True)
    view = memoryview(file.map())
    view[0] = 1

    def write_meanwhile(operation: str, _path: str) -> None:
        if operation == "sync":
            view[1] = 1

    disk.on_call = write_meanwhile
    file.sync()
    lefts = {read(disk.crash(seed), "/log")[:2] for seed in range(40)}
    assert lefts == {b"\1\0", b"\1\1"}


def test_a_failed_sync_makes_nothing_durable() -> None:
    disk = FakeDisk()
    file = disk.open("/log", PAGE_BYTES, create=True, allocate=True)
    memoryview(file.map())[0] = 1
    disk.fail("sync", 1)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    assert b"\0" in {read(disk.crash(seed), "/log")[:1] for seed in range(40)}


def test_with_lazy_names_only_a_synced_directory_keeps_its_names() -> None:
    disk = FakeDisk(lazy_names=True)
    disk.open("/d/a", 1, create=True, allocate=True)
    disk.sync_dir("/d")
    disk.open("/d/b", 1, create=True, allocate=True)
    disk.rename("/d/a", "/d/c")
    listings = {tuple(disk.crash(seed).list_files("/d")) for seed in range(60)}
    assert ("a",) in listings
    assert ("b", "c") in listings
    disk.sync_dir("/d")
    assert {tuple(disk.crash(seed).list_files("/d")) for seed in range(60)} == {("b", "c")}


def test_a_full_disk_refuses_blocks_until_there_is_room() -> None:
    disk = FakeDisk()
    disk.full_after(100)
    disk.open("/a", 60, create=True, allocate=True)
    with pytest.raises(DiskFull, match="no room for /b"):
        disk.open("/b", 60, create=True, allocate=True)
    assert not disk.exists("/b")
    disk.open("/sparse", 60, create=True, allocate=False)
    disk.full_after(None)
    disk.open("/b", 60, create=True, allocate=True)
