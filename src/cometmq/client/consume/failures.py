"""What is written down about a message that failed: in its properties, and in one line of the log."""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from cometmq.client.consume.outcomes import DEAD_LETTER, LABELS, NO_RESULT, TIMEOUT, Reject, Retry, Verdict
from cometmq.client.consume.send_back import RETRIES_MAX
from cometmq.log_lines import one_line
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property

logger = logging.getLogger(__name__)

KEYS_CHARS_MAX: Final = 80


class Cause(NamedTuple):
    text: str
    kind: str


EXPIRED: Final = Cause("it was in its handler for longer than consume_timeout", LABELS[TIMEOUT])


def cause_of(verdict: Verdict) -> Cause:
    """The exception of the handler; for a Retry or Reject without a reason, the exception that led to it."""
    error = verdict.error
    if isinstance(error, Retry) or (isinstance(error, Reject) and not error.reason):
        error = error.__cause__ or error.__context__ or error
    if error is not None:
        return Cause(str(error) or type(error).__name__, type(error).__name__)
    if verdict.label == TIMEOUT:
        return EXPIRED
    if verdict.label == NO_RESULT:
        return Cause("the handler returned no Outcome", LABELS[NO_RESULT])
    return Cause("no reason given", LABELS[verdict.label])


def log_failed(group: str, message: StoredMessage, delay_level: int, retries_max: int | None, cause: Cause) -> None:
    """One line for each message that will come again, or has died."""
    properties = wire_properties.decode(message.properties)
    most = RETRIES_MAX if retries_max is None else retries_max
    dies = delay_level == DEAD_LETTER or message.reconsume_times >= most
    logger.warning(
        "%s message group=%s topic=%s id=%s keys=%s queue=%d offset=%d try=%d of %d type=%s cause=%s",
        "bury" if dies else "retry", group, message.topic, *_names(properties), message.queue_id,
        message.queue_offset, message.reconsume_times + 1, most + 1, cause.kind, one_line(cause.text, 500),
    )  # fmt: skip


def _names(properties: Mapping[str, str]) -> tuple[str, str]:
    return properties.get(Property.UNIQ_KEY, "-"), one_line(properties.get(Property.KEYS, "-"), KEYS_CHARS_MAX)
