"""Namespaces of the first kind: names on the wire are `namespace%name`.

    orders           -> ns%orders
    %RETRY%billing   -> %RETRY%ns%billing        the prefixes of retry and dead letter topics stay in front
    TBW102           -> TBW102                   system topics and groups belong to everybody

What users see has no namespace. A name that is wrapped already is left alone.
"""

from typing import Final

from cometmq.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

SEPARATOR: Final = "%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def wrap(namespace: str | None, name: str) -> str:
    if not namespace or is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX):
        return name
    prefix, bare = _split_prefix(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


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
