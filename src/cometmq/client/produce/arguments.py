"""What is wrong with the arguments of a send, said after one of them made composing fail.

Composing does not look at types: most messages are right, and each look would cost all of them.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from cometmq.errors import ConfigError

_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "tag": ((str,), "one text: a message has one tag, a subscription may name several"),
    "keys": ((str, Iterable), "a text, or a list of texts"),
    "properties": ((Mapping,), "a dict of texts"),
    "delay": ((int, float, timedelta), "seconds, or a timedelta"),
    "delay_level": ((int,), "a whole number"),
    "deliver_at": ((datetime,), "a datetime"),
    "ordering_key": ((str, int), "a text or a whole number"),
    "flag": ((int,), "a whole number"),
}


def wrong_argument(given: Mapping[str, Any]) -> ConfigError | None:
    """The first argument of a type that it cannot have; None if each could be right."""
    for name, (kinds, meant) in _KINDS.items():
        value = given.get(name)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            return ConfigError(f"{name} is {value!r}, a {type(value).__name__}: give {meant}")
    return None
