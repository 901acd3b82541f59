"""Old messages that the broker itself reads: their pages are loaded by a thread before the loop touches them.

Delayed messages and halves may be as old as the log; a page that is not in memory would stop everybody for as long as
the disk takes. Whoever walks over them asks `ColdPages` first, and goes on when told.

A search by time does not know where it will look. It is run, and run again after each page that it lacked.

What was loaded is not asked for again until the walk or search is over: whatever the kernel says then, it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from cometmq.store.disk import File
from cometmq.store.queues.lookup import ColdPage
from cometmq.wire.command import Command

T = TypeVar("T")

# Physical offset and size of a record.
Place: TypeAlias = tuple[int, int]
Range: TypeAlias = tuple[File, int, int]
Act: TypeAlias = Callable[[], object]
# Asked by a walk, which has a name, before it touches these places: True if they are being read, and it must wait.
IsCold: TypeAlias = Callable[[str, list[Place]], bool]


def all_warm(_walk: str, _places: list[Place]) -> bool:
    """For those who may wait for the disk."""
    return False


class ColdPages:
    """`cold_range`: what to read before a record is touched; `load` reads ranges in a thread, then calls back."""

    def __init__(
        self, cold_range: Callable[[int, int], Range | None], load: Callable[[list[Range], Callable[[], None]], None]
    ) -> None:
        self._cold_range = cold_range
        self._load = load
        self._loading: set[str] = set()
        self._loaded: dict[str, set[Place]] = {}

    def wanted(self, walk: str, places: list[Place], then: Act) -> bool:
        """True: touch none of these yet, `then` is called when they are in memory. `walk` names who goes there."""
        if walk in self._loading:
            return True
        loaded = self._loaded.get(walk, ())
        ranges: list[Range] = []
        for place in places:
            file_range = None if place in loaded else self._cold_range(*place)
            if file_range is not None:
                ranges.append(file_range)
        if not ranges:
            return False
        self._loading.add(walk)
        self._load(ranges, partial(self._done, walk, set(places), then))
        return True

    def _done(self, walk: str, places: set[Place], then: Act) -> None:
        self._loading.discard(walk)
        self._loaded[walk] = places
        then()


class PageStore(Protocol):
    """Of the store."""

    def load_ranges(self, ranges: list[Range], /) -> None:
        """Waits for the device: for a thread."""


def searched(store: PageStore, search: Callable[[set[int]], Command]) -> Command | Awaitable[Command]:
    """The answer at once if all that the search looks at is in memory; else later, with its pages read by a thread.

    `search` is given the places that were loaded, and must change nothing before it is done with searching.
    """
    try:
        return search(set())
    except ColdPage:
        return when_loaded(store, search)


async def when_loaded(store: PageStore, search: Callable[[set[int]], T]) -> T:
    """What the search gives, with its pages read by a thread."""
    loaded: set[int] = set()
    while True:
        try:
            return search(loaded)
        except ColdPage as cold:
            await asyncio.to_thread(store.load_ranges, [cold.range])
            loaded.add(cold.physical_offset)
