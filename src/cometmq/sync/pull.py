"""The sync twin of `cometmq.client.consume.pull.PullConsumer`. Written by scripts/sync_twin.py."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import ClassVar, Generic, TypeVar

from cometmq.client.consume.pull import Batch, Edge
from cometmq.client.consume.pull import PullConsumer as AsyncPullConsumer
from cometmq.client.loop_thread import LoopThread
from cometmq.sync.life import Life
from cometmq.wire.bodies import MessageQueue

T = TypeVar("T")


class PullConsumer(Life, Generic[T]):
    """Made by `Client.pull_consumer()`; to be used with `async with`. Queues are as users name them."""

    BEGIN: ClassVar[Edge] = Edge.BEGIN
    END: ClassVar[Edge] = Edge.END

    def __init__(self, inner: AsyncPullConsumer[T], thread: LoopThread) -> None:
        self._inner: AsyncPullConsumer[T] = inner
        self._thread = thread

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    def start(self) -> None:
        """Join the group. Only once."""
        self._thread.run(self._inner.start())

    def stop(self) -> None:
        """Leave the group. With `auto_commit` everything that was handed out is committed. Idempotent."""
        self._thread.run(self._inner.stop())

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """Queues that are read now."""
        return self._inner.assignment

    def queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of a topic that can be read. NoRoute."""
        return self._thread.run(self._inner.queues(topic))

    def assign(self, queues: Iterable[MessageQueue], tags: str | None = None, *, sql: str | None = None) -> None:
        """Read exactly these from now on; queues that stay keep their place."""
        self._thread.run(self._inner.assign(queues, tags, sql=sql))

    def subscribe(self, topic: str, tags: str | None = None, *, sql: str | None = None) -> None:
        """Read our share of a topic; returns when it is known. NoRoute. May be called for several topics."""
        self._thread.run(self._inner.subscribe(topic, tags, sql=sql))

    def pause(self, *queues: MessageQueue) -> None:
        """Take nothing from these, or from all, until `resume`. Their place is kept."""
        self._thread.call(lambda: self._inner.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        self._thread.call(lambda: self._inner.resume(*queues))

    def poll(self, max_messages: int = 100, timeout: float = 5.0) -> Batch[T]:
        """Messages that are there, from all queues in turn; waits up to `timeout` seconds for the first.

        An empty batch means that nothing came. BrokerError if a broker refuses to give messages, CodecError for a
        message that cannot be decoded: seek past it.
        """
        return self._thread.run(self._inner.poll(max_messages, timeout))

    def position(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue has, or more."""
        return self._thread.call(lambda: self._inner.position(queue))

    def seek(self, queue: MessageQueue, offset: int | Edge | None = None, *, timestamp: datetime | None = None) -> int:
        """Go on at an offset, at BEGIN or END, or at the first message stored at a time or later. Gives the offset.

        ConfigError for an offset that the queue does not have.
        """
        return self._thread.run(self._inner.seek(queue, offset, timestamp=timestamp))

    def commit(self, positions: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets, of a batch or of everything that was handed out. The brokers have them when this returns.

        CometError if one does not take them; those before it are stored.
        """
        self._thread.run(self._inner.commit(positions))

    def committed(self, queue: MessageQueue) -> int | None:
        """What is stored for the group; None if nothing is."""
        return self._thread.run(self._inner.committed(queue))

    def begin_offset(self, queue: MessageQueue) -> int:
        return self._thread.run(self._inner.begin_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """Behind the last message that can be read."""
        return self._thread.run(self._inner.end_offset(queue))

    def lag(self) -> dict[MessageQueue, int]:
        """Messages of every assigned queue that were not handed out yet."""
        return self._thread.run(self._inner.lag())
