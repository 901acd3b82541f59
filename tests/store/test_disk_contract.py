"""One contract, two disks: what the store relies on holds for the real disk and for the fake one alike."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.disk import Disk, OsDisk
from cometmq.store.fake_disk import FakeDisk


@pytest.fixture(params=["os", "fake"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    """A disk and an empty directory on it."""
    if request.param == "os":
        yield OsDisk(), str(tmp_path)
    else:
        yield FakeDisk(), "/store"


def test_a_created_file_is_zeros_of_the_asked_length_and_makes_its_directories(place: tuple[Disk, str]) -> None:
    disk, root = place
    for name, allocate in (("sparse", False), ("owned", True)):
        file = disk.open(f"{root}/a/b/{name}", 10_000, create=True, allocate=allocate)
        assert (file.size, file.path, file.pread(0, 20_000)) == (10_000, f"{root}/a/b/{name}", bytes(10_000))
    assert disk.list_dirs(root) == ["a"]
    assert disk.list_files(f"{root}/a/b") == ["owned", "sparse"]
    assert disk.list_files(f"{root}/missing") == disk.list_dirs(f"{root}/missing") == []


def test_map_pread_and_pwrite_show_the_same_bytes(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", 8192, create=True, allocate=True)
    view = memoryview(file.map())
    view[100:103] = b"abc"
    file.pwrite(103, b"def")
    assert file.pread(99, 8) == b"\0abcdef\0"
    assert bytes(view[100:106]) == b"abcdef"
    again = disk.open(f"{root}/f", 8192, create=True, allocate=True)
    assert again.pread(100, 6) == b"abcdef"
    assert again.pread(8190, 100) == b"\0\0"
    assert file.map() is file.map()


def test_reserving_more_keeps_what_is_there(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", 100, create=True, allocate=False)
    file.pwrite(0, b"content")
    file.allocate(0, 100)
    assert file.pread(0, 8) == b"content\0"


def test_opening_a_file_of_another_length_names_both_lengths(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.open(f"{root}/f", 100, create=True, allocate=False)
    with pytest.raises(StoreError, match="has 100 bytes, expected 200"):
        disk.open(f"{root}/f", 200, create=True, allocate=False)
    assert disk.open(f"{root}/f", -1, create=False, allocate=False).size == 100


def test_a_missing_file_is_not_created_unasked(place: tuple[Disk, str]) -> None:
    disk, root = place
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/f", 100, create=False, allocate=False)
    with pytest.raises(FileNotFoundError):
        disk.size(f"{root}/f")
    disk.remove(f"{root}/f")
    disk.remove_dir(f"{root}/d")


def test_a_removed_file_stays_readable_for_who_holds_a_slice(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", 4096, create=True, allocate=True)
    memoryview(file.map())[:5] = b"alive"
    held = memoryview(file.map())[:5]
    file.close()
    disk.remove(f"{root}/f")
    disk.open(f"{root}/f", 4096, create=True, allocate=True).pwrite(0, b"other")
    assert bytes(held) == b"alive"


def test_a_closed_file_opens_again_when_it_is_used(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", 4096, create=True, allocate=True)
    file.pwrite(0, b"x")
    file.close()
    file.close()
    assert file.pread(0, 1) == b"x"
    file.sync()


def test_replacing_keeps_the_previous_content_as_backup(place: tuple[Disk, str]) -> None:
    disk, root = place
    path = f"{root}/config/topics.json"
    disk.replace_atomically(path, b"one", keep_backup=True)
    assert disk.list_files(f"{root}/config") == ["topics.json"]
    disk.replace_atomically(path, b"two", keep_backup=True)
    disk.replace_atomically(path, b"three!", keep_backup=True)
    assert (disk.read_bytes(path), disk.read_bytes(path + ".bak")) == (b"three!", b"two")
    disk.replace_atomically(path, b"four")
    assert (disk.read_bytes(path), disk.read_bytes(path + ".bak")) == (b"four", b"two")
    assert disk.list_files(f"{root}/config") == ["topics.json", "topics.json.bak"]


def test_an_empty_file_does_not_take_the_place_of_the_backup(place: tuple[Disk, str]) -> None:
    disk, root = place
    path = f"{root}/config/topics.json"
    disk.replace_atomically(path + ".bak", b"good")
    disk.replace_atomically(path, b"")
    disk.replace_atomically(path, b"new", keep_backup=True)
    assert (disk.read_bytes(path), disk.read_bytes(path + ".bak")) == (b"new", b"good")


def test_rename_and_remove_change_the_listing(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.open(f"{root}/d/a", 1, create=True, allocate=False)
    disk.open(f"{root}/d/e/b", 1, create=True, allocate=False)
    disk.rename(f"{root}/d/a", f"{root}/d/c")
    assert (disk.list_files(f"{root}/d"), disk.list_dirs(f"{root}/d")) == (["c"], ["e"])
    assert disk.exists(f"{root}/d/c")
    assert disk.exists(f"{root}/d/e")
    assert not disk.exists(f"{root}/d/a")
    disk.remove_dir(f"{root}/d")
    assert not disk.exists(f"{root}/d")
    assert not disk.exists(f"{root}/d/e/b")


def test_next_data_finds_what_was_written_and_nothing_behind_it(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", 1 << 20, create=True, allocate=False)
    assert file.next_data(0) is None
    file.pwrite(600_000, b"x")
    found = file.next_data(0)
    assert found is not None
    assert 600_000 - 65_536 <= found <= 600_000
    assert file.next_data(600_000) == 600_000
    assert file.next_data(700_000) is None
    assert file.next_data(1 << 20) is None


def test_a_lock_excludes_others_until_it_is_released(place: tuple[Disk, str]) -> None:
    disk, root = place
    held = disk.lock(f"{root}/lock")
    with pytest.raises(StoreError, match="another broker uses this store directory"):
        disk.lock(f"{root}/lock")
    if not isinstance(disk, FakeDisk):
        assert "another broker uses" in _lock_in_another_process(f"{root}/lock")
    held.release()
    assert disk.read_bytes(f"{root}/lock") == b"lock"
    disk.lock(f"{root}/lock").release()
    if not isinstance(disk, FakeDisk):
        assert _lock_in_another_process(f"{root}/lock") == ""


def _lock_in_another_process(path: str) -> str:
    """Record locks belong to a process, so only another one can be refused."""
    program = "import sys; from cometmq.store.disk import OsDisk; OsDisk().lock(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    return done.stderr


def test_ratios_and_sizes_are_plausible(place: tuple[Disk, str]) -> None:
    disk, root = place
    assert 0.0 <= disk.used_ratio(f"{root}/not/yet/made") <= 1.0
    assert disk.usable_bytes(root) > 0
    assert disk.ram_bytes() > 1 << 20
    disk.open(f"{root}/f", 1, create=True, allocate=False)
    assert disk.modified_ms(f"{root}/f") >= 0
    disk.sync_dir(root)


def test_warming_and_advice_change_no_byte(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", 3 * 4096, create=True, allocate=True)
    file.pwrite(4000, bytes(range(200)))
    before = file.pread(0, file.size)
    file.warm()
    file.advise_random()
    assert file.pread(0, file.size) == before
    assert file.resident(0, file.size)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_the_real_disk_owns_every_block_of_an_allocated_file(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.open(f"{tmp_path}/owned", 1 << 20, create=True, allocate=True)
    disk.open(f"{tmp_path}/sparse", 1 << 20, create=True, allocate=False)
    assert os.stat(tmp_path / "owned").st_blocks * 512 >= 1 << 20
    assert os.stat(tmp_path / "sparse").st_blocks * 512 < 1 << 20
    disk.open(f"{tmp_path}/sparse", -1, create=False, allocate=False).allocate(0, 1 << 20)
    assert os.stat(tmp_path / "sparse").st_blocks * 512 >= 1 << 20


def test_no_descriptor_is_left_when_files_are_closed(tmp_path: Path) -> None:
    disk = OsDisk()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for number in range(20):
        file = disk.open(f"{tmp_path}/{number}", 4096, create=True, allocate=True)
        view = memoryview(file.map())
        view[0] = number
        file.sync()
        file.close()
        assert view[0] == number
        del view
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_write_error_on_the_fake_is_the_error_that_was_asked_for() -> None:
    disk = FakeDisk()
    file = disk.open("/f", 10, create=True, allocate=True)
    disk.fail("sync", 2, OSError(errno.EIO, "broken"))
    file.sync()
    with pytest.raises(OSError, match="broken"):
        file.sync()
    file.sync()
    assert disk.calls["sync"] == 3
