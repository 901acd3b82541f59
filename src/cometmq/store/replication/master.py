"""A master's replicas as one value: who is connected, who waits for them, and what a put is told.

Times go in as arguments. Whoever owns the sockets calls `received()` with what came, writes what `Link.output()` says
whenever the log has grown or `Link.due_s()` has come, and calls `expire()` when the first deadline has passed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from cometmq.store.log.flush import Callback
from cometmq.store.replication.links import Link, LinkOptions, SentLog, replicated_offset
from cometmq.store.replication.quorum import QuorumOptions, copies_needed
from cometmq.store.replication.waiters import Waiters
from cometmq.store.results import PutStatus


class MasterOptions(LinkOptions, QuorumOptions, Protocol):
    slave_timeout_ms: int


class Master:
    def __init__(self, log: SentLog, options: MasterOptions) -> None:
        self.links: list[Link] = []
        self.waiters = Waiters()
        self._alive: Callable[[], int] | None = None
        self._log = log
        self._options = options
        self._offset_of = partial(replicated_offset, self.links)

    # Connections

    def count_alive(self, alive: Callable[[], int]) -> None:
        """Replicas act as masters; `alive`: how many brokers of this name are alive, this one included."""
        self._alive = alive

    def connect(self, name: str, now_s: float) -> Link:
        link = Link(name, self._log, self._options, now_s)
        self.links.append(link)
        return link

    def disconnect(self, link: Link) -> None:
        self.links.remove(link)

    def received(self, link: Link, data: bytes, now_s: float) -> None:
        """WireError: close this connection; nothing that it said counts."""
        is_new = link.next_offset < 0
        if link.received(data, now_s):
            if is_new and link.first_offset > 0:
                self.waiters.strand(link.first_offset)
            self.waiters.replicated(self._offset_of)

    def in_sync(self) -> int:
        """How many replicas keep up."""
        count = 0
        for link in self.links:
            if link.in_sync():
                count += 1
        return count

    # Puts

    def available(self) -> int:
        """How many copies of a message there would be if every replica that keeps up took it."""
        copies = self.in_sync() + 1
        return copies if self._alive is None else min(copies, self._alive())

    def copies(self) -> tuple[int, int]:
        """How many a message needs, and how many there would be."""
        available = self.available()
        return copies_needed(self._options, self._alive is not None, available), available

    def shortage(self) -> str:
        """Why no message may be stored now; "" if one may. Only where replicas act as masters."""
        if self._alive is None:
            return ""
        available = self.available()
        copies = copies_needed(self._options, True, available)
        if copies <= available:
            return ""
        return (
            f"{copies} copies are needed and {available} can be made, the master's own included: start replicas, or "
            "set inSyncReplicas or enableAutoInSyncReplicas"
        )

    def wait(self, end_offset: int, callback: Callback, now_s: float) -> None:
        """Tell `callback` when enough replicas have the log up to here, or what became of it instead."""
        available = self.available()
        copies = copies_needed(self._options, self._alive is not None, available)
        if copies <= 1:
            callback(PutStatus.OK)
        elif copies > available:
            callback(PutStatus.SLAVE_NOT_AVAILABLE)
        else:
            self.waiters.wait(end_offset, copies - 1, now_s + self._options.slave_timeout_ms / 1000, callback)

    def expire(self, now_s: float) -> None:
        self.waiters.expire(now_s)
