"""Queue locks of ordered consumers: which client of a group may consume a queue now.

A lock is held for a limited time after the last request that asked for it (60 s; clients ask every 20 s). It passes to
another client when its holder gives it back or lets it expire. Memory only: a restart frees all.

Times are monotonic milliseconds.
"""

import logging
from collections.abc import Iterable
from typing import Final

from cometmq.wire.bodies import MessageQueue

logger = logging.getLogger(__name__)

LIVE_MS: Final = 60_000


class Lock:
    __slots__ = ("client_id", "renewed_ms")

    def __init__(self, client_id: str, renewed_ms: int) -> None:
        self.client_id: str = client_id
        self.renewed_ms: int = renewed_ms


class QueueLocks:
    def __init__(self, live_ms: int = LIVE_MS) -> None:
        self._live_ms: int = live_ms
        self._locks: dict[str, dict[MessageQueue, Lock]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int) -> list[MessageQueue]:
        """Take or renew; what the client now holds of `queues`."""
        locks = self._locks.setdefault(group, {})
        held = [queue for queue in queues if self._take(locks, group, queue, client_id, now_ms)]
        if not locks:
            del self._locks[group]
        return held

    def _take(
        self, locks: dict[MessageQueue, Lock], group: str, queue: MessageQueue, client_id: str, now_ms: int
    ) -> bool:
        lock = locks.get(queue)
        if lock is not None and lock.client_id == client_id and self._alive(lock, now_ms):
            lock.renewed_ms = now_ms
            return True
        if lock is not None and self._alive(lock, now_ms):
            return False
        previous = lock.client_id if lock is not None else None
        logger.info("lock queue group=%s queue=%s client=%s previous=%s", group, queue, client_id, previous)
        locks[queue] = Lock(client_id, now_ms)
        return True

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give back what the client holds; other queues stay as they are."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                logger.info("unlock queue group=%s queue=%s client=%s", group, queue, client_id)
                del locks[queue]
        if not locks:
            del self._locks[group]

    def any_lock_alive(self, group: str, now_ms: int) -> bool:
        """Whether the group consumes in order: a failed message of such a group is not retried later."""
        locks = self._locks.get(group)
        return locks is not None and any(self._alive(lock, now_ms) for lock in locks.values())

    def held(self) -> int:
        """Locks in the table, of all groups."""
        return sum(map(len, self._locks.values()))

    def expire(self, now_ms: int) -> None:
        """Forget what nobody renewed."""
        for group, locks in list(self._locks.items()):
            for queue in [queue for queue, lock in locks.items() if not self._alive(lock, now_ms)]:
                del locks[queue]
            if not locks:
                del self._locks[group]

    def _alive(self, lock: Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms <= self._live_ms
