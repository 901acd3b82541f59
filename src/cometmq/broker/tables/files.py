"""The files of all tables: which there are, which were missing at the start, who is told when one was written.

A table is known by the name of its file. Reading and writing one file is saving.py's.
"""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from cometmq.broker.tables.saving import Saved, Saver, load
from cometmq.clock import Clock
from cometmq.errors import CometError, StoreError

logger = logging.getLogger(__name__)

TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
OFFSETS: Final = "consumerOffset.json"
LIGHT_OFFSETS: Final = "lmqConsumerOffset.json"
FILTERS: Final = "consumerFilter.json"
REQUEST_MODES: Final = "messageRequestMode.json"
DELAYS: Final = "delayOffset.json"
HALF_COUNTS: Final = "transactionMetrics"
TIMER_COUNTS: Final = "timermetrics"

OnSaved = Callable[[int], object]
OnFailed = Callable[[StoreError], object]


class TableFiles:
    """`missing`: files that were not there at the start. What was not loaded is not saved either."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.missing: set[str] = set()
        self._folder = folder
        self._clock = clock
        self._savers: dict[str, Saver] = {}
        self._on_saved: dict[str, list[OnSaved]] = {}
        self._on_failed: dict[str, list[OnFailed]] = {}

    def load(self, name: str, state: Saved, file: str = "") -> bool:
        """Fill a table from its file, and keep that up to date from now on. False if there was none.

        `file`: the table is also read from, and then kept in, a file that is not called as it is.
        """
        path = self._folder / (file or name)
        is_new = not load(state, path)
        if is_new and not file:
            self.missing.add(name)
        elif not is_new:
            self.missing.discard(name)
        on_saved, on_failed = partial(self._saved, name), partial(self._failed, name)
        self._savers[name] = Saver(state, path, self._clock, is_new=is_new, on_saved=on_saved, on_failed=on_failed)
        return not is_new

    def subscribe(self, name: str, on_saved: OnSaved, on_failed: OnFailed) -> None:
        """`on_saved` is given `changes` as the file has it, after each write; `on_failed` why one failed."""
        self._on_saved.setdefault(name, []).append(on_saved)
        self._on_failed.setdefault(name, []).append(on_failed)

    def _saved(self, name: str, changes: int) -> None:
        for told in self._on_saved.get(name, ()):
            told(changes)

    def _failed(self, name: str, error: StoreError) -> None:
        for told in self._on_failed.get(name, ()):
            told(error)

    def path(self, name: str) -> Path:
        return self._savers[name].path

    def is_saving(self, name: str) -> bool:
        return self._savers[name].writing

    def save_soon(self, name: str) -> None:
        """If it has changed. What was not loaded yet is left alone."""
        if name in self._savers:
            self._savers[name].poke()

    def save_changed_soon(self) -> None:
        for saver in self._savers.values():
            saver.poke()

    async def settle(self, *names: str) -> None:
        """Return when the changes made so far are in their files. StoreError if they cannot be saved."""
        for name in names:
            await self._savers[name].settle()

    async def settle_all(self) -> None:
        """The same for all, as far as it is possible."""
        for saver in self._savers.values():
            try:
                await saver.settle()
            except CometError as error:
                logger.error("fail save file=%s error=%s", saver.path, error)
