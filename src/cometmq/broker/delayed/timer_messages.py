"""Timer messages as messages: what they ask for, how they are kept, and what they become when they are due.

    sent        TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS; the first of them counts
    kept        + TIMER_OUT_MS, REAL_TOPIC, REAL_QID      in the timer topic
    rolled      + TIMER_ROLL_TIMES                        in the timer topic again: its time is too far ahead for one go
    delivered   + TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS      in its real topic

TIMER_OUT_MS is the time of its slot: the wanted time rounded down to the precision, or one step before if it is a
multiple. A slot is due one step after its time, so nothing is early, and nothing later than a step.

TIMER_DEL_UNIQKEY makes a timer message take another one of the same slot back: the one with that unique key. The key
stands alone, or as `topic+key`. A recall handle says where that is: `v1 topic broker time key`, URL-safe Base64.
"""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

from cometmq import names
from cometmq.store.log.append import AppendRequest, copy_to
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property, find, with_property

# TIMER_ENQUEUE_MS of a message that was too late for the wheel.
NEVER_ON_WHEEL: Final = 2**63 - 1
# What is added to the properties of a kept message until it is delivered; it must still fit into a record then.
PROPERTIES_RESERVE_BYTES: Final = 160
RECALL_TAG: Final = "_RECALL_TAG_"

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_HANDLE_PARTS: Final = 5


def asks_for_timer(properties: str) -> bool:
    """One that was delivered by a timer carries its properties still, and asks for nothing."""
    return find(properties, Property.TIMER_OUT_MS) is None and (
        find(properties, Property.TIMER_DELAY_SEC) is not None
        or find(properties, Property.TIMER_DELAY_MS) is not None
        or find(properties, Property.TIMER_DELIVER_MS) is not None
    )


def wanted_ms(properties: str, now_ms: int) -> int:
    """When the message should arrive. ValueError says what is wrong."""
    for name, base_ms, unit_ms in (
        (Property.TIMER_DELAY_SEC, now_ms, 1000),
        (Property.TIMER_DELAY_MS, now_ms, 1),
        (Property.TIMER_DELIVER_MS, 0, 1),
    ):
        text = find(properties, name)
        if text is not None:
            if not _NUMBER.fullmatch(text):
                raise ValueError(f"{name}={text[:40]} is not a whole number")
            return base_ms + int(text) * unit_ms
    raise AssertionError("asks_for_timer comes first")


def slot_ms(time_ms: int, precision_ms: int) -> int:
    return (time_ms - 1) // precision_ms * precision_ms


def keep(request: AppendRequest, out_ms: int) -> None:
    """Turn the message into one for the timer topic."""
    text = with_properties(
        request.properties,
        (Property.TIMER_OUT_MS, str(out_ms)),
        (Property.REAL_TOPIC, request.topic),
        (Property.REAL_QID, str(request.queue_id)),
    )
    request.properties = text
    request.topic = names.TIMER_TOPIC
    request.queue_id = 0


def with_properties(text: str, *pairs: tuple[str, str]) -> str:
    """`text` with these, in place of any of the same names."""
    for name, value in pairs:
        text = with_property(text, name, value)
    return text


class TimerMessage:
    """A kept message. `delete_key`: the one that it takes back; None for most."""

    __slots__ = ("message", "properties", "out_ms", "real_topic", "real_queue_id", "delete_key")

    def __init__(self, message: StoredMessage, properties: str, out_ms: int, topic: str, queue_id: int) -> None:
        self.message = message
        self.properties = properties
        self.out_ms = out_ms
        self.real_topic = topic
        self.real_queue_id = queue_id
        self.delete_key = find(properties, Property.TIMER_DEL_UNIQKEY)

    def is_taken_back(self, keys: set[str]) -> bool:
        if not keys:
            return False
        unique_key = find(self.properties, Property.UNIQ_KEY)
        return unique_key is not None and (unique_key in keys or f"{self.real_topic}+{unique_key}" in keys)

    def delivered(self, enqueued_ms: int, now_ms: int) -> AppendRequest:
        return copy_to(self.message, self.real_topic, self.real_queue_id, self._timed(enqueued_ms, now_ms))

    def rolled(self, enqueued_ms: int, now_ms: int) -> AppendRequest:
        times = find(self.properties, Property.TIMER_ROLL_TIMES) or "0"
        count = int(times) + 1 if _NUMBER.fullmatch(times) else 1
        text = with_properties(self._timed(enqueued_ms, now_ms), (Property.TIMER_ROLL_TIMES, str(count)))
        return copy_to(self.message, names.TIMER_TOPIC, self.message.queue_id, text)

    def _timed(self, enqueued_ms: int, now_ms: int) -> str:
        return with_properties(
            self.properties,
            (Property.TIMER_ENQUEUE_MS, str(enqueued_ms)),
            (Property.TIMER_DEQUEUE_MS, str(now_ms)),
        )


def read(message: StoredMessage) -> TimerMessage | None:
    """None for what is no kept message, or is for a topic where nobody may send to."""
    if message.topic != names.TIMER_TOPIC:
        return None
    text = message.properties.decode("utf-8", "replace")
    out_ms = find(text, Property.TIMER_OUT_MS) or ""
    topic = find(text, Property.REAL_TOPIC) or ""
    queue_id = find(text, Property.REAL_QID) or ""
    if not (_NUMBER.fullmatch(out_ms) and _NUMBER.fullmatch(queue_id) and 0 <= int(queue_id) < 1 << 31):
        return None
    if names.takes_no_sends(topic) or names.topic_fault(topic):
        return None
    return TimerMessage(message, text, int(out_ms), topic, int(queue_id))


class RecallHandle(NamedTuple):
    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.deliver_ms} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """ValueError says what is wrong."""
        try:
            parts = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
        except ValueError:
            raise ValueError("the recall handle is not URL-safe Base64 of a text") from None
        if len(parts) != _HANDLE_PARTS or parts[0] != "v1":
            raise ValueError("the recall handle does not have the form: v1 topic broker time key")
        if not _NUMBER.fullmatch(parts[3]):
            raise ValueError(f"the recall handle has a time that is no number: {parts[3][:40]}")
        return cls(parts[1], parts[2], int(parts[3]), parts[4])


def recall_handle(message: AppendRequest, broker_name: str, unique_key: str) -> str | None:
    """For the answer to a message that was kept; None for others, and for those sent to a retry topic."""
    topic = find(message.properties, Property.REAL_TOPIC)
    out_ms = find(message.properties, Property.TIMER_OUT_MS)
    if topic is None or out_ms is None or topic.startswith(names.RETRY_PREFIX):
        return None
    # Rounded down it is the same slot again.
    return RecallHandle(topic, broker_name, int(out_ms) + 1, unique_key).encode()


def recalling(
    handle: RecallHandle, group: str | None, key_has_topic: bool, now_ms: int, born_host: bytes
) -> AppendRequest:
    """A message that takes another one back, if it reaches the wheel in time."""
    key = f"{handle.topic}+{handle.unique_key}" if key_has_topic else handle.unique_key
    pairs = [
        (Property.TAGS, RECALL_TAG),
        (Property.TIMER_DEL_UNIQKEY, key),
        (Property.UNIQ_KEY, handle.unique_key),
        (Property.TIMER_DELIVER_MS, str(handle.deliver_ms)),
        (Property.BORN_TIMESTAMP, str(now_ms)),
    ]
    if group:
        pairs.append((Property.PGROUP, group))
    text = with_properties("", *pairs)
    return AppendRequest(handle.topic, 0, b"0", text, born_time_ms=now_ms, born_host=born_host)
