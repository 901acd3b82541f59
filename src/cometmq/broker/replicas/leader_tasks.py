"""What one broker of a replica group does for all of it: delays, timers, open transactions, popped messages.

    start    the master at its start; a replica when it has to act as the master
    stop     with the broker; when the master is back

What it is, and when, is for the rooms to say: each gives its `Rounds`. Here they are started and stopped together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cometmq.broker.periodic import Rounds

THREADS_LOOK_S: Final = 0.005


class LeaderTasks:
    """`is_on`: this broker is the one that does it. `stop_sending`: ends what is on its way to other brokers."""

    def __init__(self, stop_sending: Callable[[], Awaitable[None]]) -> None:
        self.is_on: bool = False
        self._rounds: list[Rounds] = []
        self._stop_sending = stop_sending
        self._is_open: bool = False

    def add(self, *rounds: Rounds) -> None:
        """Before `open`; they are opened, started and closed in this order."""
        self._rounds += rounds

    def open(self) -> None:
        """As the store and the tables are now. StoreError or OSError: they cannot be read."""
        for rounds in self._rounds:
            rounds.open()
        self._is_open = True

    def start(self) -> None:
        if not self._is_open:
            self.open()
        self.is_on = True
        for rounds in self._rounds:
            rounds.start()

    def resume(self) -> None:
        """A message that somebody tries to put has got to its place."""
        if self.is_on:
            for rounds in self._rounds:
                rounds.resume()

    def pause(self) -> None:
        """Nothing by the clock any more."""
        for rounds in self._rounds:
            rounds.pause()
        self.is_on = False

    def finish(self) -> None:
        for rounds in self._rounds:
            rounds.finish()

    @property
    def is_writing(self) -> bool:
        return any(rounds.is_writing for rounds in self._rounds)

    def close(self) -> None:
        for rounds in self._rounds:
            rounds.close()
        self._is_open = False

    async def stop(self) -> None:
        """Another broker does it from now on."""
        self.pause()
        await self._stop_sending()
        self.finish()
        while self.is_writing:  # noqa: ASYNC110 - threads end it, not tasks
            await asyncio.sleep(THREADS_LOOK_S)
        self.close()
