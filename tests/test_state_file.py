"""State files under every way a save can end early, and under damage."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cometmq import state_file
from cometmq.errors import StoreError
from cometmq.store.fake_disk import FakeDisk

PATH = Path("/state/state.json")


def parse(content: bytes) -> Any:
    return json.loads(content)


def test_a_saved_file_is_loaded_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "new directory" / "state.json"
    assert state_file.load(path, parse) is None
    state_file.save(path, b"1")
    state_file.save(path, b"2")
    assert state_file.load(path, parse) == 2
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.json", "state.json.bak"]
    assert (path.parent / "state.json.bak").read_bytes() == b"1"


def versions_after_a_cut_in(save: Callable[[], None], disk: FakeDisk) -> set[Any]:
    """What is loaded after a power cut at any moment of the save, and after one behind it."""
    seen: set[Any] = set()
    moments = 0

    def cut_here(_operation: str, _path: str) -> None:
        nonlocal moments
        moments += 1
        for seed in range(8):
            seen.add(state_file.load(PATH, parse, disk.crash(seed)))

    disk.on_call = cut_here
    save()
    disk.on_call = lambda _operation, _path: None
    assert moments >= 3
    assert {state_file.load(PATH, parse, disk.crash(seed)) for seed in range(20)} == {3}
    return seen


def test_a_power_cut_at_any_moment_of_a_save_leaves_the_new_version_or_the_one_before() -> None:
    disk = FakeDisk(lazy_names=True)
    state_file.save(PATH, b"1", disk)
    state_file.save(PATH, b"2", disk)
    assert versions_after_a_cut_in(partial(state_file.save, PATH, b"3", disk), disk) == {2, 3}


@pytest.mark.parametrize("damaged", [b"{damaged", b""])
def test_a_damaged_file_never_replaces_the_good_copy(damaged: bytes) -> None:
    disk = FakeDisk(lazy_names=True)
    state_file.save(PATH, b"1", disk)
    state_file.save(PATH, b"2", disk)
    disk.replace_atomically(str(PATH), damaged)
    assert state_file.load(PATH, parse, disk) == 1
    assert versions_after_a_cut_in(partial(state_file.save, PATH, b"3", disk), disk) == {1, 3}


def test_a_save_that_fails_leaves_the_version_before() -> None:
    disk = FakeDisk()
    state_file.save(PATH, b"1", disk)
    disk.fail("replace", 1)
    with pytest.raises(OSError, match="Input/output"):
        state_file.save(PATH, b"2", disk)
    assert state_file.load(PATH, parse, disk) == 1


def test_a_relative_path_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state_file.save(Path("state.json"), b"1")
    assert state_file.load(Path("state.json"), parse) == 1


@pytest.mark.parametrize("cut", range(12))
def test_a_torn_file_falls_back_to_the_version_before(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state_file.save(path, b'{"old": 123}')
    state_file.save(path, b'{"new": 456}')
    path.write_bytes(path.read_bytes()[:cut])
    assert state_file.load(path, parse) == {"old": 123}
    state_file.save(path, b'{"next": 7}')
    assert state_file.load(path, parse) == {"next": 7}


def test_a_damaged_file_is_kept_for_whoever_wants_to_look_at_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state_file.save(path, b"1")
    state_file.save(path, b"2")
    path.write_bytes(b"{damaged")
    state_file.load(path, parse)
    assert (tmp_path / "state.json.bad").read_bytes() == b"{damaged"


def test_without_a_good_copy_loading_fails_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"{damaged")
    (tmp_path / "state.json.bak").write_bytes(b"also")
    with pytest.raises(StoreError, match=r"no good copy of .*state\.json.*restore it from a backup"):
        state_file.load(path, parse)
    assert path.read_bytes() == b"{damaged"


def test_an_empty_file_alone_is_an_empty_state(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.touch()
    assert state_file.load(path, parse) is None


def test_a_file_that_cannot_be_read_is_not_taken_for_absent(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.mkdir()
    with pytest.raises(StoreError, match="cannot read"):
        state_file.load(path, parse)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_private_file_and_its_backup_are_their_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    (tmp_path / "users.json.tmp").write_bytes(b"left over, readable by all")
    for content in (b"1", b"2"):
        state_file.save(path, content, state_file.PRIVATE_FILES)
    assert state_file.load(path, parse) == 2
    assert [mode_of(path), mode_of(tmp_path / "users.json.bak")] == [0o600, 0o600]


def test_a_private_file_that_was_open_to_others_is_closed_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users.json"
    state_file.save(path, b"1")
    path.chmod(0o644)
    state_file.close_to_others(path)
    assert mode_of(path) == 0o600
    assert "mode_before=644" in caplog.text
    caplog.clear()
    state_file.close_to_others(path)
    state_file.close_to_others(tmp_path / "missing.json")
    assert caplog.text == ""
