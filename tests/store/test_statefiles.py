"""Checks cometmq.store.statefiles: a table is the old one or the new one, or the broker does not start."""

import pytest

from cometmq.errors import StoreError
from cometmq.store.disk import OsDisk
from cometmq.store.fakedisk import FakeDisk
from cometmq.store.statefiles import StateFiles
from tests.support.golden import golden_store

DIRECTORY = "/store/config"
NAME = "topics.json"
PATH = f"{DIRECTORY}/{NAME}"


def put(disk: FakeDisk, path: str, content: bytes) -> None:
    disk.replace_atomically(path, content)


def test_there_is_nothing_before_the_first_save() -> None:
    assert StateFiles(FakeDisk(), DIRECTORY).load(NAME) is None


def test_what_was_saved_is_loaded_and_the_version_before_is_kept() -> None:
    disk = FakeDisk()
    files = StateFiles(disk, DIRECTORY)
    files.save(NAME, b'{"a":1}')
    files.save(NAME, b'{"a":2}')
    assert files.load(NAME) == {"a": 2}
    assert disk.read_bytes(PATH + ".bak") == b'{"a":1}'


def test_java_tables_with_bare_number_keys_are_read() -> None:
    files = StateFiles(OsDisk(), str(golden_store("clean") / "config"))
    offsets = files.load("delayOffset.json")
    assert {int(level) for level in offsets["offsetTable"]} >= {1, 2, 3}


@pytest.mark.parametrize("bad", [b"{", b"\0" * 50, b'{"a":', b"\xff\xfe", b" "])
def test_a_bad_file_gives_way_to_its_backup_and_never_becomes_the_backup(bad: bytes) -> None:
    disk = FakeDisk()
    files = StateFiles(disk, DIRECTORY)
    put(disk, PATH, bad)
    put(disk, PATH + ".bak", b'{"a":1}')
    assert files.load(NAME) == {"a": 1}
    assert disk.read_bytes(PATH + ".bad") == bad
    files.save(NAME, b'{"a":2}')
    assert disk.read_bytes(PATH + ".bak") == b'{"a":1}'
    assert files.load(NAME) == {"a": 2}


def test_between_the_two_renames_only_the_backup_is_there() -> None:
    disk = FakeDisk()
    put(disk, PATH + ".bak", b'{"a":1}')
    assert StateFiles(disk, DIRECTORY).load(NAME) == {"a": 1}


@pytest.mark.parametrize(("content", "backup"), [(b"{", None), (None, b"{"), (b"{", b"}")])
def test_without_a_good_copy_loading_fails(content: bytes | None, backup: bytes | None) -> None:
    disk = FakeDisk()
    if content is not None:
        put(disk, PATH, content)
    if backup is not None:
        put(disk, PATH + ".bak", backup)
    with pytest.raises(StoreError, match=r"no good copy of topics\.json .* restore one of them"):
        StateFiles(disk, DIRECTORY).load(NAME)


def test_a_copy_that_the_decoder_rejects_is_no_good_copy() -> None:
    disk = FakeDisk()
    files = StateFiles(disk, DIRECTORY)
    files.save(NAME, b"good")
    files.save(NAME, b"other")

    def decode(data: bytes) -> str:
        if data != b"good":
            raise ValueError(f"not good: {data!r}")
        return data.decode()

    assert files.load_as(NAME, decode) == "good"


def test_a_power_cut_at_any_moment_leaves_the_old_or_the_new_table() -> None:
    disk = FakeDisk(lazy_names=True)
    files = StateFiles(disk, DIRECTORY)
    files.save(NAME, b'{"version":1}')
    seen: set[int] = set()
    moments = 0

    def cut_here(_operation: str, _path: str) -> None:
        nonlocal moments
        moments += 1
        for seed in range(8):
            seen.add(StateFiles(disk.crash(seed), DIRECTORY).load(NAME)["version"])

    disk.on_call = cut_here
    files.save(NAME, b'{"version":2}')
    assert moments >= 3
    assert seen == {1, 2}
    assert {StateFiles(disk.crash(seed), DIRECTORY).load(NAME)["version"] for seed in range(20)} == {2}


def test_a_save_that_fails_leaves_the_old_table() -> None:
    disk = FakeDisk()
    files = StateFiles(disk, DIRECTORY)
    files.save(NAME, b'{"a":1}')
    disk.fail("replace", 1)
    with pytest.raises(OSError, match="Input/output"):
        files.save(NAME, b'{"a":2}')
    assert files.load(NAME) == {"a": 1}
