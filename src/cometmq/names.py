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
from typing import Final

from cometmq.errors import StoreError

TOPIC_CHARS_MAX: Final = 127
RETRY_TOPIC_CHARS_MAX: Final = 255
GROUP_CHARS_MAX: Final = 120
# What Linux and macOS allow for one part of a path.
PATH_PART_BYTES_MAX: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"

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


def segment_name(start_offset: int) -> str:
    """The file that begins at this byte offset of a log or queue."""
    assert 0 <= start_offset < 10**20, f"not an offset: {start_offset}"
    return f"{start_offset:020d}"


def segment_offset(name: str) -> int | None:
    """The start offset that a file name states, or None for a file that is no segment."""
    return int(name) if _SEGMENT.fullmatch(name) else None
