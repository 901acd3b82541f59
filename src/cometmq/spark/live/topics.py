"""Which topics a pattern means: what people send, not the books that servers and the sink keep in topics of their own.

A topic of that kind is read by naming it in `subscribe` or `assign`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from cometmq.errors import ConfigError
from cometmq.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

_OF_GROUPS: Final = (RETRY_PREFIX, DLQ_PREFIX, "%LMQ%")
OWN_PREFIX: Final = "cometmq_spark_"
LEDGER_TOPIC: Final = f"{OWN_PREFIX}ledger"


def keeps_books(topic: str) -> bool:
    return is_system_topic(topic) or topic.startswith(OWN_PREFIX)


def matching(pattern: str) -> Callable[[str], bool]:
    """Whether a topic's whole name matches the option subscribePattern, and holds messages of people.

    Retries, dead letters and light queues (%RETRY%group) are meant only by a pattern that has their prefix.
    """
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise ConfigError(f"option subscribePattern={pattern} is no regular expression: {error}") from None
    unnamed = tuple(prefix for prefix in _OF_GROUPS if prefix not in pattern)
    return lambda topic: matches(topic) is not None and not keeps_books(topic) and not topic.startswith(unnamed)
