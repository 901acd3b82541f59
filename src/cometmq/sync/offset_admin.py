"""The sync twin of `cometmq.client.admin.offsets.OffsetAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Iterable
from datetime import datetime

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.offsets import Place
from cometmq.client.admin.results import Lag, Move, ProgressSpan
from cometmq.client.loop_thread import LoopThread
from cometmq.wire.bodies import MessageQueue


class OffsetAdmin:
    """Part of the administration: `OffsetAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def group_lag(self, group: str, topic: str | None = None, *, owners: bool = False) -> dict[MessageQueue, Lag]:
        """Every queue that a group consumes, of one topic or all; empty if it never committed anything.

        With `owners` every member that is online is asked which queues it has.
        """
        return self._thread.run(self._inner.group_lag(group, topic, owners=owners))

    def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """What every queue of a topic would start from; -1 where nothing is committed. NoRoute."""
        return self._thread.run(self._inner.committed_offsets(group, topic))

    def plan_offsets(
        self, group: str, topic: str, *, to: Place, queues: Iterable[MessageQueue] | None = None
    ) -> list[Move]:
        """Where `reset_offsets` would move the group, clipped to what is there. NoRoute, ConfigError."""
        return self._thread.run(self._inner.plan_offsets(group, topic, to=to, queues=queues))

    def reset_offsets(
        self, group: str, topic: str, *, to: Place, queues: Iterable[MessageQueue] | None = None
    ) -> list[Move]:
        """Move a group: to a time (the first message stored then or later), an offset, 'earliest', 'latest', or an
        offset per queue. Members that are online go on from there by themselves.
        """
        return self._thread.run(self._inner.reset_offsets(group, topic, to=to, queues=queues))

    def clone_offsets(self, source: str, target: str, topic: str | None = None) -> list[Move]:
        """Let one group go on where another is, in one topic or all that the other consumes."""
        return self._thread.run(self._inner.clone_offsets(source, target, topic))

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write one offset as a consumer would; members that are online overwrite it soon."""
        self._thread.run(self._inner.commit_offset(group, queue, offset))

    def progress_spans(self, group: str, topic: str) -> list[ProgressSpan]:
        """How far the group is in time. NoRoute."""
        return self._thread.run(self._inner.progress_spans(group, topic))

    def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that can be read. NoRoute."""
        return self._thread.run(self._inner.topic_queues(topic))

    def earliest_offset(self, queue: MessageQueue) -> int:
        return self._thread.run(self._inner.earliest_offset(queue))

    def latest_offset(self, queue: MessageQueue) -> int:
        """The offset after the last message."""
        return self._thread.run(self._inner.latest_offset(queue))

    def offset_at(self, queue: MessageQueue, at: datetime) -> int:
        """Of the first message that was stored then or later; the end if there is none."""
        return self._thread.run(self._inner.offset_at(queue, at))
