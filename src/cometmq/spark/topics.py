"""Which topics a pattern means: what people send, not the books that servers and the sink keep in topics of their own.

A topic of that kind is read by naming it in `subscribe` or `assign`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from cometmq.errors import ConfigError
from cometmq.names import is_system_topic

OWN_PREFIX: Final = "cometmq_spark_"
LEDGER_TOPIC: Final = f"{OWN_PREFIX}ledger"


def keeps_books(topic: str) -> bool:
    return is_system_topic(topic) or topic.startswith(OWN_PREFIX)


def matching(pattern: str) -> Callable[[str], bool]:
    """Whether a topic's whole name matches the option subscribePattern, and holds messages of people."""
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise ConfigError(f"option subscribePattern={pattern} is no regular expression: {error}") from None
    return lambda topic: matches(topic) is not None and not keeps_books(topic)
