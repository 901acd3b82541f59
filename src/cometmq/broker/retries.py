"""Where a message goes that its consumer could not handle.

Two roads lead to another try, and they count differently, as in RocketMQ:

    sent back (request 36)          dead letter if times >= limit, or if the consumer says level < 0
    sent to %RETRY%group (10, 310)  dead letter if times >  limit, or if the group holds queue locks

A group that holds locks consumes in order and has already retried in place; what it sends is given up for good.

    times         0     1     2     3   ...   15    16 = the usual limit
    sent back    10 s  30 s  1 min 2 min ...  2 h   %DLQ%group

The waiting time is a delay level, 3 + times. The original topic travels in RETRY_TOPIC, the id of the first copy in
ORIGIN_MESSAGE_ID.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cometmq import names
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.codes import Version
from cometmq.wire.record.properties import Property

FIRST_DELAY_LEVEL: Final = 3
DEAD_LETTER_QUEUES: Final = 1
# The value of DELAY in a dead letter that its consumer sent itself: no level, so no delay.
NO_DELAY: Final = "-1"


@dataclass(frozen=True, slots=True)
class Destination:
    """`queues`: what the topic is made with, and below which the queue is drawn. Level 0 is no delay."""

    topic: str
    queues: int
    delay_level: int
    is_dead_letter: bool


def group_of(retry_topic: str) -> str:
    """The group behind %RETRY%group, or behind the form of POP with the topic after a `+`."""
    rest = retry_topic.removeprefix(names.RETRY_PREFIX)
    parts = rest.split("+")
    return parts[0] if len(parts) == 2 else rest


def limit_of(group: SubscriptionGroupConfig, client_version: int, wish: int | None) -> int:
    """How often a message may be retried: the group's number, unless the client has its own."""
    if wish is not None and client_version >= Version.V3_4_9:
        return wish
    return group.retry_max_times


def sent_to_retry_topic(group: str, times: int, limit: int, holds_locks: bool) -> Destination | None:
    """For a message that a consumer sends to its retry topic; None lets it go there."""
    if times > limit or holds_locks:
        return dead_letter(group)
    return None


def sent_back(group: str, queues: int, times: int, limit: int, delay_level: int) -> Destination:
    """For a message that a consumer gives back. `delay_level` is its wish: 0 leaves it to the broker."""
    if times >= limit or delay_level < 0:
        return dead_letter(group)
    return Destination(names.retry_topic(group), queues, delay_level or FIRST_DELAY_LEVEL + times, False)


def dead_letter(group: str) -> Destination:
    return Destination(names.dlq_topic(group), DEAD_LETTER_QUEUES, 0, True)


def sent_back_properties(
    properties: Mapping[str, str], topic: str, message_id: str, delay_level: int
) -> dict[str, str]:
    """The properties of the copy; `topic` and `message_id` (the offset id) are those of the stored message."""
    copied = dict(properties)
    copied.setdefault(Property.RETRY_TOPIC, topic)
    copied[Property.WAIT] = "false"
    copied[Property.DELAY] = str(delay_level)
    if not copied.get(Property.ORIGIN_MESSAGE_ID, "").strip():
        copied[Property.ORIGIN_MESSAGE_ID] = message_id
    return copied
