"""Queue locks of ordered consumers: which client of a group may consume a queue now.

A lock is held for a limited time after the last request that asked for it (60 s; clients ask every 20 s). It passes to
another client when its holder gives it back, leaves the group in good order, or lets it expire. A client whose
connection closed keeps its locks until they expire: it may still be handling messages. Memory only: a restart frees
all.

    unlock ──> leave ──> a late lock            a client that stops may still have a request for a lock under way, and
                                                nobody would ever give that lock back: it is refused until the client
                                                joins again

Times are monotonic milliseconds.
"""

import logging
from collections.abc import Iterable
from typing import Final

from cometmq.clock import SystemClock
from cometmq.rate_limited_log import ThinnedLog
from cometmq.wire.bodies import MessageQueue

logger = logging.getLogger(__name__)

LIVE_MS: Final = 60_000
# Clients that left less than the life of a lock ago; the oldest are forgotten first.
LEFT_MAX: Final = 10_000
# Of all groups; a lock is no more than a claim, and a client may claim what does not exist.
LOCKS_MAX: Final = 100_000


class Lock:
    __slots__ = ("client_id", "renewed_ms")

    def __init__(self, client_id: str, renewed_ms: int) -> None:
        self.client_id: str = client_id
        self.renewed_ms: int = renewed_ms


class QueueLocks:
    def __init__(self, live_ms: int = LIVE_MS) -> None:
        self._live_ms: int = live_ms
        self._locks: dict[str, dict[MessageQueue, Lock]] = {}
        # (group, client) -> when it left
        self._left: dict[tuple[str, str], int] = {}
        self._count: int = 0
        self._changed: int = 0
        self._log_full = ThinnedLog(logger, SystemClock())

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int) -> list[MessageQueue]:
        """Take or renew; what the client now holds of `queues`."""
        if (group, client_id) in self._left:
            logger.info("refuse lock group=%s client=%s reason=left the group", group, client_id)
            return []
        locks = self._locks.setdefault(group, {})
        before = len(locks)
        held = [queue for queue in queues if self._take(locks, queue, client_id, now_ms)]
        if self._changed:
            logger.info("lock queues group=%s client=%s changed=%d held=%d first=%s", group, client_id, self._changed,
                        len(held), held[0])  # fmt: skip
            self._changed = 0
        self._count += len(locks) - before
        if not locks:
            del self._locks[group]
        return held

    def _take(self, locks: dict[MessageQueue, Lock], queue: MessageQueue, client_id: str, now_ms: int) -> bool:
        lock = locks.get(queue)
        if lock is not None and lock.client_id == client_id and self._alive(lock, now_ms):
            lock.renewed_ms = now_ms
            return True
        if lock is not None and self._alive(lock, now_ms):
            return False
        if lock is None and self._count + self._changed >= LOCKS_MAX:
            self._log_full.warning("refuse lock queue=%s client=%s locked=%d", queue, client_id, self._count)
            return False
        self._changed += 1
        locks[queue] = Lock(client_id, now_ms)
        return True

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give back what the client holds; other queues stay as they are."""
        locks = self._locks.get(group)
        if locks is None:
            return
        before = len(locks)
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        if len(locks) < before:
            logger.info("unlock queues group=%s client=%s count=%d", group, client_id, before - len(locks))
            self._count -= before - len(locks)
        if not locks:
            del self._locks[group]

    def leave(self, group: str, client_id: str, now_ms: int) -> None:
        """The client has left the group and will consume no more: its queues are free."""
        self.unlock(group, list(self._locks.get(group, ())), client_id)
        while len(self._left) >= LEFT_MAX:
            del self._left[next(iter(self._left))]
        self._left[group, client_id] = now_ms

    def join(self, group: str, client_id: str) -> None:
        """The client is a member of the group (again)."""
        if self._left:
            self._left.pop((group, client_id), None)

    def any_lock_alive(self, group: str, now_ms: int) -> bool:
        """Whether the group consumes in order: a failed message of such a group is not retried later."""
        locks = self._locks.get(group)
        return locks is not None and any(self._alive(lock, now_ms) for lock in locks.values())

    def held(self) -> int:
        """Locks in the table, of all groups."""
        return sum(map(len, self._locks.values()))

    def expire(self, now_ms: int) -> None:
        """Forget what nobody renewed, and clients that left long ago."""
        for key in [key for key, left_ms in self._left.items() if now_ms - left_ms > self._live_ms]:
            del self._left[key]
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if not self._alive(lock, now_ms)]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._locks[group]

    def _alive(self, lock: Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms <= self._live_ms
