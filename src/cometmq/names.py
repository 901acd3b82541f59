"""Rules for topic, group and file names: the only road from a wire string to a path.

A peer chooses topic and group names, and some of them become directories. What is allowed in them is exactly

    % | - _ 0-9 A-Z a-z

so a valid name has no separator, no dot, no blank and no control character, and is its own file name byte for byte
(`consumequeue/%RETRY%group/0/...`). `path_part()` is the gate: code that builds a path from a name calls it, and
nothing else in the source joins a peer's text to a path.

The functions ending in `_fault` say what is wrong instead of raising, because the response code for a bad name
depends on the request; None means the name is good.
"""

import re
from pathlib import Path
from typing import Final

from cometmq.errors import StoreError

TOPIC_CHARS_MAX: Final = 127
RETRY_TOPIC_CHARS_MAX: Final = 255
GROUP_CHARS_MAX: Final = 120
SERVER_NAME_CHARS_MAX: Final = 255
# What Linux and macOS allow for one part of a path.
PATH_PART_BYTES_MAX: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
# Of the topics with that prefix the only ones that clients write to: traces, by region.
TRACE_DATA_PREFIX: Final = "rmq_sys_TRACE_DATA_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
# Messages of transactions that are not decided, which of them are, and which nobody decided in time.
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
# Where clients write down what became of messages.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

_ALLOWED: Final = re.compile(r"[%|\-_0-9A-Za-z]+", re.ASCII)
_STRANGE: Final = re.compile(r"[^%|\-_.0-9A-Za-z]", re.ASCII)
_NO_PARTS: Final = ("", ".", "..")
READABLE_CHARS_MAX: Final = 80
PATH_CHARS_MAX: Final = 4096
_SEGMENT: Final = re.compile(r"[0-9]{20}", re.ASCII)

# Producers may not write here: the broker keeps its own books in these topics.
SEND_FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        GIVEN_UP_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_TOPICS: Final = SEND_FORBIDDEN_TOPICS | {
    AUTO_CREATE_TOPIC,
    "BenchmarkTest",
    TRACE_TOPIC,
    "CHECKPOINT_TOPIC",
}


def topic_fault(topic: str) -> str | None:
    """Why `topic` is not a topic name, or None."""
    limit = RETRY_TOPIC_CHARS_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_CHARS_MAX
    return _fault("topic", topic, limit)


def group_fault(group: str) -> str | None:
    """Why `group` is not a consumer or producer group name, or None."""
    return _fault("group", group, GROUP_CHARS_MAX)


def server_name_fault(kind: str, name: str) -> str | None:
    """Why `name` is not the name of a `kind` (broker, cluster, zone, or a topic that a broker registers), or None.

    Wider than the rules for topics, since RocketMQ's default for a broker's name is that of its host, with dots.
    """
    if not name or name.isspace():
        return f"the {kind} name is blank"
    if len(name) > SERVER_NAME_CHARS_MAX:
        return f"the {kind} name has {len(name)} characters, at most {SERVER_NAME_CHARS_MAX} are allowed"
    if "/" in name or "\\" in name or ".." in name or name.startswith(".") or not name.isprintable():
        return f"the {kind} name {name!r} has a slash, a backslash, a control character, two dots, or begins with one"
    return None


def _fault(kind: str, name: str, chars_max: int) -> str | None:
    if not name or name.isspace():
        return f"the {kind} name is blank"
    if len(name) > chars_max:
        return f"the {kind} name has {len(name)} characters, at most {chars_max} are allowed"
    if not _ALLOWED.fullmatch(name):
        return f"the {kind} name {name!r} has characters other than % | - _ 0-9 A-Z a-z"
    return None


def is_system_topic(topic: str) -> bool:
    """Made and used by the servers themselves, on every cluster."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def takes_no_sends(topic: str) -> bool:
    """Only the broker itself writes to this topic: what is in it is believed."""
    if topic in SEND_FORBIDDEN_TOPICS:
        return True
    return topic.startswith(SYSTEM_PREFIX) and not topic.startswith(TRACE_DATA_PREFIX)


def retry_topic(group: str) -> str:
    """Where messages of `group` wait for another try."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where messages of `group` end that failed too often."""
    return DLQ_PREFIX + group


def path_part(name: str) -> str:
    """`name` as one part of a path, unchanged; anything that could leave its directory raises."""
    if len(name) > PATH_PART_BYTES_MAX or not _ALLOWED.fullmatch(name):
        raise StoreError(
            f"name {name[:80]!r} cannot be a directory: 1 to {PATH_PART_BYTES_MAX} characters of % | - _ 0-9 A-Z a-z"
        )
    return name


def readable_part(text: str) -> str:
    """Any text inside the name of a file, for people to recognise it; what else is in the name makes it unique.

    Names of brokers are host names, with dots, and a peer may call itself anything.
    """
    return _STRANGE.sub("_", text[:READABLE_CHARS_MAX])


def place_below(root: Path, path: str) -> Path:
    """A relative path that somebody wrote down, below `root`; anything that could leave it raises."""
    parts = path.split("/")
    if not path or "\0" in path or len(path) > PATH_CHARS_MAX or any(part in _NO_PARTS for part in parts):
        raise StoreError(f"path {path[:80]!r} is not below {root}: it must be relative, without empty parts, . and ..")
    if any(len(part.encode("utf-8", "surrogateescape")) > PATH_PART_BYTES_MAX for part in parts):
        raise StoreError(f"path {path[:80]!r} has a part of more than {PATH_PART_BYTES_MAX} bytes")
    return root.joinpath(*parts)


def segment_name(start_offset: int) -> str:
    """The file that begins at this byte offset of a log or queue."""
    assert 0 <= start_offset < 10**20, f"not an offset: {start_offset}"
    return f"{start_offset:020d}"


def segment_offset(name: str) -> int | None:
    """The start offset that a file name states, or None for a file that is no segment."""
    return int(name) if _SEGMENT.fullmatch(name) else None
