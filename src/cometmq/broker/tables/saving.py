"""Tables of the broker and their files: read at the start, written behind the loop's back.

    state.changes      goes up with every change
    Saver.poke()       begins to write if there is something newer than the file, unless a write is under way
    Saver.settle()     waits until all changes made so far are on disk
    on_saved           is given `changes` as the file has it, after each write; `on_failed` why one failed

The loop only takes a snapshot; encoding and writing happen in a thread. Changes during a write are written by one more
write after it, however many they are. A write that fails is tried again every few seconds, and by whoever settles.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from cometmq import state_file
from cometmq.clock import Clock, Timer
from cometmq.errors import StoreError, WireError
from cometmq.state_file import OS_FILES, Files

logger = logging.getLogger(__name__)

RETRY_S: Final = 5.0


class Saved(Protocol):
    """A table with a file. `restore` replaces its content, WireError if the bytes are not such a table."""

    @property
    def changes(self) -> int: ...

    def snapshot(self) -> Callable[[], bytes]:
        """The content of the file, as a function that another thread may run."""

    def restore(self, content: bytes) -> None: ...


def load(state: Saved, path: Path, files: Files = OS_FILES) -> bool:
    """Fill `state` from its file; False if there is none. StoreError if there is no good copy."""

    def parse(content: bytes) -> bool:
        try:
            state.restore(content)
        except WireError as error:
            raise ValueError(str(error)) from error
        return True

    return state_file.load(path, parse, files) is not None


class Saver:
    """Keeps the file of one table up to date. `written` counts the writes."""

    def __init__(
        self,
        state: Saved,
        path: Path,
        clock: Clock,
        *,
        is_new: bool = False,
        files: Files = OS_FILES,
        on_saved: Callable[[int], object] | None = None,
        on_failed: Callable[[StoreError], object] | None = None,
    ) -> None:
        self.path = path
        self.written = 0
        self._on_saved = on_saved or _ignore
        self._on_failed = on_failed or _ignore
        self._state = state
        self._clock = clock
        self._files = files
        # A file that is not there is written even if there is nothing to say: from then on its absence means a loss.
        self._saved_changes = -1 if is_new else state.changes
        self._writing: asyncio.Task[StoreError | None] | None = None
        self._retry: Timer | None = None

    @property
    def behind(self) -> bool:
        return self._saved_changes != self._state.changes

    @property
    def writing(self) -> bool:
        return self._writing is not None

    def poke(self) -> None:
        if not self.writing and self.behind:
            self._writing = asyncio.get_running_loop().create_task(self._write_until_even())

    async def settle(self) -> None:
        """Raises StoreError if the file cannot be written; the change then stays in memory and is tried again."""
        wanted = self._state.changes
        while self._saved_changes < wanted:
            self.poke()
            assert self._writing is not None
            failure = await asyncio.shield(self._writing)
            if failure is not None:
                raise failure

    def close(self) -> None:
        """Write what is still missing, now and in this thread. Nothing may be under way: `settle` comes first."""
        assert not self.writing, f"a write of {self.path} is under way"
        self._stop_retry()
        if self.behind:
            changes = self._state.changes
            self._write(self._state.snapshot())
            self._saved_changes = changes

    async def _write_until_even(self) -> StoreError | None:
        self._stop_retry()
        try:
            while self.behind:
                changes = self._state.changes
                await asyncio.to_thread(self._write, self._state.snapshot())
                self._saved_changes = changes
                self._on_saved(changes)
        except StoreError as error:
            logger.error("fail save file=%s error=%s", self.path, error)
            self._retry = self._clock.call_later(RETRY_S, self.poke)
            self._on_failed(error)
            return error
        finally:
            self._writing = None
        return None

    def _write(self, encode: Callable[[], bytes]) -> None:
        try:
            state_file.save(self.path, encode(), self._files)
        except OSError as error:
            raise StoreError(f"cannot save {self.path}: {error.strerror or error}") from error
        self.written += 1

    def _stop_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


def _ignore(_: object) -> None: ...
