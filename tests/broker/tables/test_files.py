"""The files of all tables: which were missing, who is told of a write, and the other file of light queues."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.broker.tables.files import LIGHT_OFFSETS, OFFSETS, TableFiles
from cometmq.clock import ManualClock
from cometmq.errors import StoreError


class Text:
    """A table."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.changes = 0

    def restore(self, content: bytes) -> None:
        self.text = content.decode()

    def snapshot(self) -> Callable[[], bytes]:
        return self.text.encode

    def change(self, text: str) -> None:
        self.text = text
        self.changes += 1


def files_in(folder: Path) -> TableFiles:
    return TableFiles(folder, ManualClock())


async def test_what_was_missing_is_known_and_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("kept")
    files, there, missing = files_in(tmp_path), Text(), Text("made")
    assert (files.load("a", there), files.load("b", missing)) == (True, False)
    assert (there.text, files.missing) == ("kept", {"b"})
    files.save_changed_soon()
    await files.settle_all()
    assert (tmp_path / "b").read_text() == "made"


async def test_subscribers_are_told_of_a_write_and_of_one_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    files, table = files_in(folder), Text()
    saved: list[int] = []
    failed: list[StoreError] = []
    files.subscribe("a", saved.append, failed.append)
    files.load("a", table)
    table.change("one")
    await files.settle("a")
    assert (saved, failed) == ([1], [])
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    table.change("two")
    with pytest.raises(StoreError, match="cannot save"):
        await files.settle("a")
    assert (saved, len(failed)) == ([1], 1)
    await files.settle_all()


async def test_what_is_not_loaded_yet_is_not_saved(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.save_soon("a")
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("there", "read", "missing"),
    [
        ([OFFSETS], OFFSETS, set[str]()),
        ([LIGHT_OFFSETS], LIGHT_OFFSETS, set[str]()),
        ([OFFSETS, LIGHT_OFFSETS], LIGHT_OFFSETS, set[str]()),
        ([], "", {OFFSETS}),
    ],
)
async def test_the_file_of_light_queues_counts_more_and_is_the_one_that_is_written(
    tmp_path: Path, there: list[str], read: str, missing: set[str]
) -> None:
    for name in there:
        (tmp_path / name).write_text(name)
    files, table = files_in(tmp_path), Text()
    files.load(OFFSETS, table)
    files.load(OFFSETS, table, LIGHT_OFFSETS)
    assert (table.text, files.missing, files.path(OFFSETS).name) == (read, missing, LIGHT_OFFSETS)
    table.change("new")
    await files.settle(OFFSETS)
    assert (tmp_path / LIGHT_OFFSETS).read_text() == "new"
