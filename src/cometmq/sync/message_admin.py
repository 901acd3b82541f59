"""The sync twin of `cometmq.client.admin.messages.MessageAdmin`. Written by scripts/sync_twin.py."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from cometmq.client.admin import Admin as AsyncAdmin
from cometmq.client.admin.messages import FOUND_MAX
from cometmq.client.admin.trace_records import TraceRecord
from cometmq.client.loop_thread import LoopThread
from cometmq.client.messages import Message, SendReceipt
from cometmq.wire.bodies import MessageQueue


class MessageAdmin:
    """Part of the administration: `MessageAdmin`."""

    def __init__(self, inner: AsyncAdmin, thread: LoopThread) -> None:
        self._inner: AsyncAdmin = inner
        self._thread = thread

    def message(self, message_id: str, topic: str | None = None) -> Message[bytes]:
        """By offset id, or by id if the topic is given. NotFound.

        Ids of both kinds have 32 digits, so any of them can be read as address and position. Only brokers that the
        name server knows are asked. The one with the address that an offset id names is asked first; others may have
        had that address, and a record keeps it.
        """
        return self._thread.run(self._inner.message(message_id, topic))

    def find_message(self, message_id: str) -> Message[bytes]:
        """By an id of either kind, whatever its topic: every topic's index is asked, so that this takes a while in a
        large cluster. NotFound.
        """
        return self._thread.run(self._inner.find_message(message_id))

    def of_id(self, topic: str, message_id: str) -> list[Message[bytes]]:
        """All messages of a topic with this id: one that is tried again keeps it. Empty if there is none."""
        return self._thread.run(self._inner.of_id(topic, message_id))

    def find(
        self,
        topic: str,
        *,
        key: str,
        begin: datetime | None = None,
        end: datetime | None = None,
        max_messages: int = FOUND_MAX,
    ) -> list[Message[bytes]]:
        """Messages that carry a key, oldest first. NoRoute; empty if there is none."""
        return self._thread.run(self._inner.find(topic, key=key, begin=begin, end=end, max_messages=max_messages))

    def find_by_time(self, topic: str, begin: datetime, end: datetime | None = None) -> Iterator[Message[bytes]]:
        """Messages of a topic that were stored from `begin` to before `end`, queue by queue. NoRoute."""
        return self._thread.iterate(self._inner.find_by_time(topic, begin, end))

    def read(self, queue: MessageQueue, begin: int = 0, end: int | None = None) -> Iterator[Message[bytes]]:
        """Messages of one queue by offset, to `end` or to what is its end now. Changes no offsets."""
        return self._thread.iterate(self._inner.read(queue, begin, end))

    def resend(
        self, message: Message[Any], topic: str | None = None, *, marks: Mapping[str, str] | None = None
    ) -> SendReceipt:
        """A new message like this one: same body, tag, keys and application properties, to its own topic or another.
        `marks` are further properties.

        A dead letter and a message that waits for another try go to the topic they were sent to.
        """
        return self._thread.run(self._inner.resend(message, topic, marks=marks))

    def trace(
        self, message_id: str, *, trace_topic: str = "RMQ_SYS_TRACE_TOPIC", max_messages: int = FOUND_MAX
    ) -> list[TraceRecord]:
        """What producers and consumers wrote down about a message, by its id, in the order of time.

        Empty if nobody did: tracing is off unless a client switches it on. NoRoute if no broker keeps traces.
        """
        return self._thread.run(self._inner.trace(message_id, trace_topic=trace_topic, max_messages=max_messages))
