"""The sync twin of `cometmq.client.admin.browsing.BrowsingAdmin`. Written by scripts/sync_twin.py."""

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.browsing import Page, StoredCopy
from cometmq.client.admin.messages import READ_COUNT
from cometmq.client.loop_thread import LoopThread
from cometmq.wire.bodies import MessageQueue


class BrowsingAdmin:
    """Part of the administration: `BrowsingAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def read_page(self, queue: MessageQueue, begin: int, count: int = READ_COUNT, *, tag: str | None = None) -> Page:
        """Messages from an offset on, as many as the broker gives at once and at most `count`.

        With `tag` the broker leaves out the others. At the end of the queue the page is empty and `next_offset` is
        `begin` or the end. NoRoute, BrokerError.
        """
        return self._thread.run(self._inner.read_page(queue, begin, count, tag=tag))

    def oldest_stored_ms(self, queue: MessageQueue) -> int:
        """When the first message that is still there was stored; 0 if the queue is empty."""
        return self._thread.run(self._inner.oldest_stored_ms(queue))

    def copies(self, topic: str, *, key: str, by_id: bool = False, max_messages: int = 64) -> list[StoredCopy]:
        """What the index finds for a key, or with `by_id` for the id that a producer gave. NoRoute."""
        return self._thread.run(self._inner.copies(topic, key=key, by_id=by_id, max_messages=max_messages))

    def copy_at(self, offset_id: str) -> StoredCopy:
        """The record that an offset id names. NotFound, ConfigError if it is not an offset id."""
        return self._thread.run(self._inner.copy_at(offset_id))
