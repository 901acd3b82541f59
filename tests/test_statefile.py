"""State files under every way a save can end early, and under damage."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cometmq import statefile
from cometmq.errors import StoreError


def parse(content: bytes) -> Any:
    return json.loads(content)


class PowerCut(BaseException):
    """Raised in place of a system call: everything after it never happens."""


def save_until(step: int, path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save, but the `step`-th call among fsync and rename never happens."""
    with monkeypatch.context() as patched:
        fail_at(step, patched)
        with pytest.raises(PowerCut):
            statefile.save(path, content)


def fail_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    fsync, replace = os.fsync, Path.replace

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise PowerCut

    def counted_fsync(descriptor: int) -> None:
        count()
        fsync(descriptor)

    def counted_replace(path: Path, target: Path) -> Path:
        count()
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", counted_fsync)
    monkeypatch.setattr(Path, "replace", counted_replace)


def test_a_saved_file_is_loaded_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "new directory" / "state.json"
    assert statefile.load(path, parse) is None
    statefile.save(path, b"1")
    statefile.save(path, b"2")
    assert statefile.load(path, parse) == 2
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.json", "state.json.bak"]
    assert (path.parent / "state.json.bak").read_bytes() == b"1"


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_save_that_is_cut_at_any_step_leaves_the_new_version_or_the_one_before(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    statefile.save(path, b"1")
    statefile.save(path, b"2")
    save_until(step, path, b"3", monkeypatch)
    assert statefile.load(path, parse) in (2, 3)
    statefile.save(path, b"4")
    assert statefile.load(path, parse) == 4


@pytest.mark.parametrize("cut", range(12))
def test_a_torn_file_falls_back_to_the_version_before(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    statefile.save(path, b'{"old": 123}')
    statefile.save(path, b'{"new": 456}')
    path.write_bytes(path.read_bytes()[:cut])
    assert statefile.load(path, parse) == {"old": 123}
    statefile.save(path, b'{"next": 7}')
    assert statefile.load(path, parse) == {"next": 7}


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("damaged", [b"{damaged", b""])
def test_a_damaged_file_never_replaces_the_good_copy(
    damaged: bytes, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    statefile.save(path, b"1")
    statefile.save(path, b"2")
    path.write_bytes(damaged)
    assert statefile.load(path, parse) == 1
    save_until(step, path, b"3", monkeypatch)
    assert statefile.load(path, parse) in (1, 3)


def test_a_damaged_file_is_kept_for_whoever_wants_to_look_at_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    statefile.save(path, b"1")
    statefile.save(path, b"2")
    path.write_bytes(b"{damaged")
    statefile.load(path, parse)
    assert (tmp_path / "state.json.bad").read_bytes() == b"{damaged"


def test_without_a_good_copy_loading_fails_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"{damaged")
    (tmp_path / "state.json.bak").write_bytes(b"also")
    with pytest.raises(StoreError, match=r"no good copy of .*state\.json.*restore it from a backup"):
        statefile.load(path, parse)
    assert path.read_bytes() == b"{damaged"


def test_an_empty_file_alone_is_an_empty_state(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.touch()
    assert statefile.load(path, parse) is None


def test_a_file_that_cannot_be_read_is_not_taken_for_absent(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.mkdir()
    with pytest.raises(StoreError, match="cannot read"):
        statefile.load(path, parse)
