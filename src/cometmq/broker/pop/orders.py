"""Pops in order: at most one batch of a queue is out, and it comes again where it is until it is done.

    committed  batch                     end
    ───────────┼ 7 done, 8, 9 done, 10 ──┼──────>     blocked while 8 or 10 is invisible, for whoever asks

    asked by the same attempt    the same batch again, counted once: its answer was lost
    acknowledged                 progress goes to the first that is not done
    time is over                 all from the first not done on comes again, from the queue itself and no retry topic
    prolonged                    this one is visible later; when the batch was popped stays, so its receipts do, too

One batch for each topic, group and queue. How often a message was given out is counted for each (`orderCountInfo`).
It lives in memory: after a restart the batch is given out again from the committed offset, in order, counted anew.

Times are wall milliseconds, as they are in the receipts that clients hold.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from cometmq.broker.pop.in_flight import Key

# In receipts, instead of the number of a revive queue.
ORDERED_REVIVE_ID: Final = 999


class Batch:
    """`counts`: how often each was given out before; 0 is left out. `done`, `visible_ms`: by offset, too."""

    __slots__ = ("attempt_id", "counts", "done", "invisible_ms", "offsets", "popped_ms", "visible_ms")

    def __init__(self, attempt_id: str | None, offsets: list[int], popped_ms: int, invisible_ms: int) -> None:
        self.attempt_id = attempt_id
        self.offsets = offsets
        self.popped_ms = popped_ms
        self.invisible_ms = invisible_ms
        self.counts: dict[int, int] = {}
        self.done: set[int] = set()
        self.visible_ms: dict[int, int] = {}

    def blocks(self, now_ms: int, attempt_id: str | None) -> bool:
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            return False
        until_ms = self.popped_ms + self.invisible_ms
        return any(
            now_ms < self.visible_ms.get(offset, until_ms) for offset in self.offsets if offset not in self.done
        )

    def progress(self) -> int:
        """The first that is not done; behind the last if all are."""
        return next((offset for offset in self.offsets if offset not in self.done), self.offsets[-1] + 1)


class Batches:
    def __init__(self) -> None:
        self.table: dict[Key, Batch] = {}

    def blocks(self, key: Key, now_ms: int, attempt_id: str | None = None) -> bool:
        batch = self.table.get(key)
        return batch is not None and batch.blocks(now_ms, attempt_id)

    def popped(self, key: Key, attempt_id: str | None, offsets: list[int], now_ms: int, invisible_ms: int) -> Batch:
        old = self.table.get(key)
        batch = self.table[key] = Batch(attempt_id, offsets, now_ms, invisible_ms)
        if old is None:
            return batch
        if attempt_id is not None and old.attempt_id == attempt_id:
            batch.counts = old.counts
        else:
            batch.counts = {offset: old.counts.get(offset, 0) + 1 for offset in offsets if offset in old.offsets}
        return batch

    def find(self, key: Key, offset: int, popped_ms: int) -> Batch | None:
        """None: a later pop holds, or it is not of this batch."""
        batch = self.table.get(key)
        if batch is None or batch.popped_ms != popped_ms or offset not in batch.offsets:
            return None
        return batch

    def keep_at(self, key: Key, committed: int) -> None:
        """A batch that does not begin its rest where the group is, is void: somebody has moved the group."""
        batch = self.table.get(key)
        if batch is not None and batch.progress() != committed:
            del self.table[key]

    def keep_only(self, topics: Container[str], groups: Container[str]) -> None:
        """Forget what was deleted."""
        for key in [key for key in self.table if key.topic not in topics or key.group not in groups]:
            del self.table[key]
