"""Namespaces of the first kind: names on the wire are `namespace%name`.

    orders           -> ns%orders
    %RETRY%billing   -> %RETRY%ns%billing        the prefixes of retry and dead letter topics stay in front
    TBW102           -> TBW102                   system topics and groups belong to everybody

What users see has no namespace. A name that is wrapped already is left alone.
"""

from collections.abc import Callable
from typing import Final

from cometmq.errors import ConfigError
from cometmq.names import DLQ_PREFIX, RETRY_PREFIX, group_fault, is_system_topic, topic_fault

SEPARATOR: Final = "%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def wrap(namespace: str | None, name: str) -> str:
    if not namespace or is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX):
        return name
    prefix, bare = _split_prefix(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def wire_topic(namespace: str | None, topic: str) -> str:
    """The name on the wire. ConfigError if no topic can have it."""
    return _checked(wrap(namespace, topic), topic_fault)


def wire_group(namespace: str | None, group: str) -> str:
    """The name on the wire. ConfigError if no group can have it."""
    return _checked(wrap(namespace, group), group_fault)


def _checked(name: str, find_fault: Callable[[str], str | None]) -> str:
    fault = find_fault(name)
    if fault is not None:
        raise ConfigError(fault)
    return name


def strip(namespace: str | None, name: str) -> str:
    if not namespace:
        return name
    prefix, bare = _split_prefix(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
