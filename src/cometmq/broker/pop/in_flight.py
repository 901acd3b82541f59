"""What groups that consume by POP have in hand: popped, not acknowledged, not yet given to somebody else.

    committed          in flight                     next
    ────────┼── done ── 7 ── done ── 9 ── 10 ── ──────┼─────────> end of the queue
            └ the first that is not done: progress of the group, where a restart begins

One window for each topic, group and queue. A popped message belongs to who popped it until its time is over; then it
goes to the retry topic of the group, where it is popped again, and counts as done here. So the window moves on however
bad a consumer is, and the committed offset never passes a message that nobody has finished. It lives in memory: after a
restart what was in hand is given out again, at most what lies between committed and next.

Offsets in a window are ascending, since they are popped in order; the first key of the table is the smallest.

Times are wall milliseconds, as they are in the receipts that clients hold.
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from typing import Final, NamedTuple

# Of one queue and group, unless settings say another bound; who has as much in hand gets no more for now.
IN_FLIGHT_MAX: Final = 10_000


class Key(NamedTuple):
    topic: str
    group: str
    queue_id: int


class Flight:
    __slots__ = ("due_ms", "popped_ms")

    def __init__(self, popped_ms: int, due_ms: int) -> None:
        self.popped_ms = popped_ms
        self.due_ms = due_ms


class Window:
    __slots__ = ("committed", "in_flight", "next_offset")

    def __init__(self, offset: int) -> None:
        self.committed: int = offset
        self.next_offset: int = offset
        self.in_flight: dict[int, Flight] = {}

    def is_full(self, in_flight_max: int) -> bool:
        return len(self.in_flight) >= in_flight_max

    def progress(self) -> int:
        """What may be committed now."""
        return next(iter(self.in_flight), self.next_offset)


class PopWindows:
    """`due` has every flight once, and some that are over."""

    def __init__(self) -> None:
        self.table: dict[Key, Window] = {}
        self._due: list[tuple[int, Key, int]] = []

    def popped(self, key: Key, offsets: list[int], next_offset: int, now_ms: int, invisible_ms: int) -> None:
        window = self.table[key]
        due_ms = now_ms + invisible_ms
        for offset in offsets:
            window.in_flight[offset] = Flight(now_ms, due_ms)
            heapq.heappush(self._due, (due_ms, key, offset))
        window.next_offset = next_offset

    def find(self, key: Key, offset: int, popped_ms: int) -> Flight | None:
        """None: it is done, or a later receipt holds."""
        window = self.table.get(key)
        flight = window.in_flight.get(offset) if window is not None else None
        return flight if flight is not None and flight.popped_ms == popped_ms else None

    def prolong(self, key: Key, offset: int, flight: Flight, now_ms: int, invisible_ms: int) -> None:
        flight.popped_ms = now_ms
        flight.due_ms = now_ms + invisible_ms
        heapq.heappush(self._due, (flight.due_ms, key, offset))

    def done(self, key: Key, offset: int) -> None:
        window = self.table.get(key)
        if window is not None:
            window.in_flight.pop(offset, None)

    def overdue(self, now_ms: int, count: int) -> list[tuple[Key, int, Flight]]:
        """Up to `count` whose time is over. They stay in flight until they are `done`; see `again`."""
        found: list[tuple[Key, int, Flight]] = []
        while self._due and self._due[0][0] <= now_ms and len(found) < count:
            due_ms, key, offset = heapq.heappop(self._due)
            window = self.table.get(key)
            flight = window.in_flight.get(offset) if window is not None else None
            if flight is not None and flight.due_ms == due_ms:
                found.append((key, offset, flight))
        return found

    def again(self, key: Key, offset: int, flight: Flight, due_ms: int) -> None:
        """It could not be moved now."""
        flight.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, key, offset))

    def in_hand(self) -> tuple[int, int]:
        """Messages, and windows that have some."""
        counts = [len(window.in_flight) for window in self.table.values()]
        return sum(counts), sum(1 for count in counts if count)

    def keep_only(self, topics: Container[str], groups: Container[str]) -> None:
        """Forget what was deleted."""
        for key in [key for key in self.table if key.topic not in topics or key.group not in groups]:
            del self.table[key]
