"""Writing tables behind the loop's back: coalescing, failure and retry, closing."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.broker.tables.saving import RETRY_S, Saver, load
from cometmq.clock import ManualClock
from cometmq.errors import StoreError, WireError
from tests.support.aio import run


class Number:
    """The smallest table there is. `gate` stops the writing thread while it is clear."""

    def __init__(self) -> None:
        self.value = 0
        self.changes = 0
        self.gate = threading.Event()
        self.gate.set()

    def change(self, value: int) -> None:
        self.value = value
        self.changes += 1

    def snapshot(self) -> Callable[[], bytes]:
        value = self.value

        def encode() -> bytes:
            assert self.gate.wait(20)
            return str(value).encode()

        return encode

    def restore(self, content: bytes) -> None:
        if not content.isdigit():
            raise WireError("not a number")
        self.value = int(content)


def test_a_change_is_written_and_read_back(tmp_path: Path) -> None:
    async def main() -> None:
        number = Number()
        saver = Saver(number, tmp_path / "n", ManualClock())
        number.change(42)
        saver.poke()
        await saver.settle()
        assert not saver.behind

    run(main())
    again = Number()
    assert load(again, tmp_path / "n")
    assert again.value == 42
    assert not load(Number(), tmp_path / "absent")


def test_without_a_change_nothing_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        saver = Saver(Number(), tmp_path / "n", ManualClock())
        saver.poke()
        await saver.settle()
        saver.close()
        assert saver.written == 0

    run(main())
    assert not (tmp_path / "n").exists()


def test_changes_during_a_write_are_one_more_write(tmp_path: Path) -> None:
    async def main() -> None:
        number = Number()
        saver = Saver(number, tmp_path / "n", ManualClock())
        number.gate.clear()
        number.change(1)
        saver.poke()
        await asyncio.sleep(0)  # the write has its snapshot
        for value in range(2, 100):
            number.change(value)
            saver.poke()
        number.gate.set()
        await saver.settle()
        assert saver.written == 2

    run(main())
    assert (tmp_path / "n").read_bytes() == b"99"


async def test_settling_waits_for_the_disk(tmp_path: Path) -> None:
    number = Number()
    saver = Saver(number, tmp_path / "n", ManualClock())
    number.gate.clear()
    number.change(5)
    settling = asyncio.create_task(saver.settle())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not settling.done()
    number.gate.set()
    await settling
    assert (tmp_path / "n").read_bytes() == b"5"


async def test_a_failed_write_is_told_and_tried_again(tmp_path: Path) -> None:
    number, clock = Number(), ManualClock()
    blocked = tmp_path / "config"
    blocked.write_bytes(b"a file where a directory is needed")
    saver = Saver(number, blocked / "n", clock)
    number.change(7)
    with pytest.raises(StoreError, match="cannot save"):
        await saver.settle()
    assert saver.written == 0

    blocked.unlink()
    await saver.settle()
    assert (blocked / "n").read_bytes() == b"7"


def test_a_retry_needs_nobody_to_ask_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        number, clock = Number(), ManualClock()
        blocked = tmp_path / "config"
        blocked.write_bytes(b"")
        saver = Saver(number, blocked / "n", clock)
        number.change(7)
        with pytest.raises(StoreError):
            await saver.settle()
        blocked.unlink()

        clock.advance(RETRY_S)
        assert saver.writing, "the timer began a write"
        await saver.settle()

    run(main())
    assert (tmp_path / "config" / "n").read_bytes() == b"7"


def test_closing_writes_what_is_missing(tmp_path: Path) -> None:
    number = Number()
    saver = Saver(number, tmp_path / "n", ManualClock())
    number.change(9)
    saver.close()

    assert (tmp_path / "n").read_bytes() == b"9"
    assert not saver.behind


def test_a_bad_file_falls_back_to_the_version_before(tmp_path: Path) -> None:
    (tmp_path / "n").write_bytes(b"nonsense")
    (tmp_path / "n.bak").write_bytes(b"41")
    number = Number()

    assert load(number, tmp_path / "n")
    assert number.value == 41
