"""Why the last try of a message failed, as properties of the message that is retried or dead.

    FAILURE_CAUSE      what the handler said: the text of its exception, the reason of a Reject
    FAILURE_TYPE       the type of the exception, or how the handler ended: "timeout", "failed"
    FAILURE_CONSUMER   the client id of the consumer
    FAILURE_FIRST_MS   when it failed first
    FAILURE_LAST_MS    when it failed last

How often it failed is the record's own count of tries. A consumer sends the first three with CONSUMER_SEND_MSG_BACK, in
fields that RocketMQ's brokers do not know and pass over. Texts are cut and thinned here, whoever sent them.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from cometmq.wire.record.properties import Property

CAUSE_CHARS_MAX: Final = 500
TYPE_CHARS_MAX: Final = 120
CONSUMER_CHARS_MAX: Final = 255

FAILURE_NAMES: Final = frozenset(
    {
        Property.FAILURE_CAUSE,
        Property.FAILURE_TYPE,
        Property.FAILURE_CONSUMER,
        Property.FAILURE_FIRST_MS,
        Property.FAILURE_LAST_MS,
    }
)


class Failure(NamedTuple):
    """Of a message that came back. Times are milliseconds since 1970."""

    cause: str
    kind: str
    consumer: str
    first_ms: int
    last_ms: int


def mark(properties: dict[str, str], cause: str, kind: str, consumer: str, now_ms: int) -> None:
    """Write down a failure; the time of the first one stays."""
    properties[Property.FAILURE_CAUSE] = _text(cause, CAUSE_CHARS_MAX)
    properties[Property.FAILURE_TYPE] = _text(kind, TYPE_CHARS_MAX)
    properties[Property.FAILURE_CONSUMER] = _text(consumer, CONSUMER_CHARS_MAX)
    properties.setdefault(Property.FAILURE_FIRST_MS, str(now_ms))
    properties[Property.FAILURE_LAST_MS] = str(now_ms)


def unmark(properties: dict[str, str]) -> None:
    for name in FAILURE_NAMES:
        properties.pop(name, None)


def read(properties: Mapping[str, str]) -> Failure | None:
    """None if nothing is written down."""
    kind = properties.get(Property.FAILURE_TYPE)
    if kind is None:
        return None
    return Failure(
        properties.get(Property.FAILURE_CAUSE, ""),
        kind,
        properties.get(Property.FAILURE_CONSUMER, ""),
        _number(properties.get(Property.FAILURE_FIRST_MS)),
        _number(properties.get(Property.FAILURE_LAST_MS)),
    )


def _text(text: str, chars_max: int) -> str:
    """On one line, without what separates properties; lone surrogates cannot be stored."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * chars_max])
    shown = " ".join(shown.split()) or "-"  # an empty value could not be read back
    return shown if len(shown) <= chars_max else shown[: chars_max - 1] + "…"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else 0
