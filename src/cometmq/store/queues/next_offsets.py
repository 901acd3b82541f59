"""Queue offsets: the number that the next message of each queue gets.

A number is read before an append and raised after its success, both in one go on the store's thread, so queues are
numbered 0, 1, 2, ... without holes. The table lives in memory; recovery rebuilds it from the consume queues.

Two kinds of message take numbers in their own way, and carry them as properties:

    inner batch    one record for INNER_NUM messages of a BatchCQ topic; INNER_BASE is the number of the first
    light queues   INNER_MULTI_DISPATCH names queues (`%LMQ%a,%LMQ%b`) that get the message too;
                   INNER_MULTI_QUEUE_OFFSET has its number in each of them
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from cometmq.store.log.append import AppendRequest
from cometmq.wire.record.message import encode_topic
from cometmq.wire.record.properties import Property, find, with_property, without
from cometmq.wire.record.sysflag import INNER_BATCH

LIGHT_PREFIX: Final = "%LMQ%"
INNER_COUNT_MAX: Final = 32_767
NO_NAMES: Final[list[str]] = []

_TOPIC_BYTES_MAX: Final = 127
_RETRY_TOPIC_BYTES_MAX: Final = 255
_LIGHT_EXCLUDED: Final = ("%RETRY%", "%DLQ%", "rmq_sys_")
_LIGHT_EXCLUDED_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"


class QueueEnd:
    """Compiled, it has the number in itself. A number in a dict is one more object, another for every message, and with
    ten thousand queues each is a place in memory that no cache holds."""

    __slots__ = ("next_offset",)

    def __init__(self, next_offset: int) -> None:
        self.next_offset: int = next_offset


class TopicQueues:
    """`field` is the topic as a record has it, b"" if no record can; `ends` goes by queue id."""

    __slots__ = ("ends", "field")

    def __init__(self, field: bytes) -> None:
        self.field: bytes = field
        self.ends: dict[int, QueueEnd] = {}

    def next_offset(self, queue_id: int) -> int:
        end = self.ends.get(queue_id)
        return 0 if end is None else end.next_offset

    def set_next_offset(self, queue_id: int, next_offset: int) -> None:
        end = self.ends.get(queue_id)
        if end is None:
            self.ends[queue_id] = QueueEnd(next_offset)
        else:
            end.next_offset = next_offset


class QueueCounters:
    def __init__(self, version_by_topic_length: bool, light_queues_numbered: bool, light_queues_max: int) -> None:
        """`light_queues_max` below 0: no limit."""
        self.topics: dict[str, TopicQueues] = {}
        self.light_queues = 0
        # Whether a topic is of type BatchCQ; the broker's topic table knows.
        self.is_batch_topic: Callable[[str], bool] = _no_topic
        self._version = 0 if version_by_topic_length else 1
        self._light_queues_numbered = light_queues_numbered
        self._light_queues_max = light_queues_max

    def next_offset(self, topic: str, queue_id: int) -> int:
        queues = self.topics.get(topic)
        return queues.next_offset(queue_id) if queues is not None else 0

    def set_next_offset(self, topic: str, queue_id: int, next_offset: int) -> None:
        queues = self.topics.get(topic)
        if queues is None:
            queues = self._add(topic)
        queues.set_next_offset(queue_id, next_offset)

    def drop_topic(self, topic: str) -> None:
        """Numbering of this topic starts at 0 again."""
        if self.topics.pop(topic, None) is not None and topic.startswith(LIGHT_PREFIX):
            self.light_queues -= 1

    def clear(self) -> None:
        self.topics.clear()
        self.light_queues = 0

    def topic_fault(self, topic: str) -> str:
        """Why no record can have this topic; "" if it can, and then it has counters."""
        queues = self.topics.get(topic)
        if queues is None or not queues.field:
            fault = self._length_fault(topic)
            if fault:
                return fault
            self._add(topic)
        return ""

    def _add(self, topic: str) -> TopicQueues:
        if topic not in self.topics and topic.startswith(LIGHT_PREFIX):
            self.light_queues += 1
        field = b"" if self._length_fault(topic) else encode_topic(topic, self._version)
        queues = self.topics[sys.intern(topic)] = TopicQueues(field)
        return queues

    def _length_fault(self, topic: str) -> str:
        try:
            length = len(topic.encode())
        except UnicodeEncodeError:
            return "the topic holds a lone surrogate: not UTF-8"
        long_allowed = self._version == 0 and topic.startswith("%RETRY%")
        limit = _RETRY_TOPIC_BYTES_MAX if long_allowed else _TOPIC_BYTES_MAX
        return "" if 0 < length <= limit else f"the topic has {length} bytes, the limit is {limit}"

    # Inner batches

    def inner_fault(self, request: AppendRequest) -> str:
        """Whether batch flag, batch property and topic type disagree, and how."""
        count = find(request.properties, Property.INNER_NUM)
        if not request.sys_flag & INNER_BATCH:
            return "" if count is None else "INNER_NUM is set, but the system flag says no inner batch"
        if not self.is_batch_topic(request.topic):
            return f"an inner batch needs a topic with queue.type=BatchCQ, {request.topic} has another"
        if count is not None and not (count.isascii() and count.isdigit() and 0 < int(count) <= INNER_COUNT_MAX):
            return f"INNER_NUM is {count[:20]!r}, not a number from 1 to {INNER_COUNT_MAX}"
        return ""

    def number_inner_batch(self, request: AppendRequest, queue_offset: int) -> int:
        """Note the base offset in the properties; returns how many offsets the batch takes."""
        request.properties = with_property(request.properties, Property.INNER_BASE, str(queue_offset))
        return int(find(request.properties, Property.INNER_NUM) or 1)

    # Light queues

    def light_names(self, request: AppendRequest) -> list[str]:
        """The further queues that the message goes to."""
        if not self._light_queues_numbered:
            return NO_NAMES
        topic = request.topic
        names = find(request.properties, Property.INNER_MULTI_DISPATCH)
        if names is None or topic.startswith(_LIGHT_EXCLUDED) or topic == _LIGHT_EXCLUDED_TOPIC:
            return NO_NAMES
        return names.split(",")

    def quota_fault(self, names: list[str]) -> str:
        """Existing light queues stay writable; a new one must find room."""
        if self._light_queues_max < 0 or self.light_queues < self._light_queues_max:
            return ""
        new = [name for name in names if name.startswith(LIGHT_PREFIX) and name not in self.topics]
        if not new:
            return ""
        return f"there are {self.light_queues} light queues, maxLmqConsumeQueueNum={self._light_queues_max}"

    def number_light_queues(self, request: AppendRequest, names: list[str]) -> None:
        # A name without the prefix gets an empty number, as in RocketMQ.
        offsets = [str(self.next_offset(name, 0)) if name.startswith(LIGHT_PREFIX) else "" for name in names]
        properties = without(request.properties, Property.WAIT)
        request.properties = with_property(properties, Property.INNER_MULTI_QUEUE_OFFSET, ",".join(offsets))

    def raise_light_queues(self, names: list[str]) -> None:
        for name in names:
            if name.startswith(LIGHT_PREFIX):
                self.set_next_offset(name, 0, self.next_offset(name, 0) + 1)


def _no_topic(_topic: str) -> bool:
    return False
