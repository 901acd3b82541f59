"""What a master has asked the store for without knowing what became of it, and what therefore counts meanwhile.

    asks      resize      from now on the old S and the new one have to agree to a commit, until the document changes
              hand over   from now on nothing is committed, until the document changes and the lead is still here
    learns    a version of the document: a change that was asked for on an older one can not come true any more

An answer that was lost changes nothing of this: only a newer version does. No I/O, no clock.
"""

from __future__ import annotations

from typing import TypeAlias

from cometmq.failover import member
from cometmq.failover.document import Document

Ruler: TypeAlias = tuple[frozenset[int], int]


class Tenure:
    """One broker's lead in one epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._resize: tuple[int, Ruler] | None = None
        self._handed_at: int = 0
        self._rulers: list[Ruler] = []

    @property
    def pending(self) -> Ruler | None:
        return None if self._resize is None else self._resize[1]

    @property
    def is_frozen(self) -> bool:
        """The lead may be somebody else's already."""
        return self._handed_at > 0

    def asks(self, kind: str, version: int, after: Document) -> None:
        """Before the change is sent to the store."""
        if kind == member.RESIZE:
            self._resize = (version, _ruler(after))
        elif kind == member.HAND_OVER:
            self._handed_at = version

    def learns(self, document: Document, version: int) -> None:
        if document.epoch != self.epoch:
            return
        if self._resize is not None and version > self._resize[0]:
            self._resize = None
        if version > self._handed_at:
            self._handed_at = 0
        self._rulers = [_ruler(document)]

    @property
    def rulers(self) -> list[Ruler]:
        """(S, k): a commit needs all of these."""
        return self._rulers if self._resize is None else [*self._rulers, self._resize[1]]


def _ruler(document: Document) -> Ruler:
    return frozenset(document.in_sync), document.copies
