"""Old messages that the broker itself reads: their pages are loaded by a thread before the loop touches them.

Delayed messages and halves may be as old as the log; a page that is not in memory would stop everybody for as long as
the disk takes. Whoever walks over them asks here first, and goes on when told.

What was loaded is not asked for again until the walk is past it: whatever the kernel says then, it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from cometmq.store.disk import File

# Physical offset and size of a record.
Place: TypeAlias = tuple[int, int]
Range: TypeAlias = tuple[File, int, int]
Act: TypeAlias = Callable[[], object]


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
