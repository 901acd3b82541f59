"""Data versions: how the owner of a table tells that it has changed.

    counter        +1 with every change
    timestamp      wall time of the last change, of the start before the first
    stateVersion   the store's generation of leaders; 0 without a controller

A name server compares all three with what it has from this broker, a replica with its own copy. Equal means: nothing
to fetch. Reading a table from disk therefore restores its version, and every change makes a new one.
"""

from cometmq.errors import WireError
from cometmq.wire.bodies import DataVersion


def first_version(now_ms: int) -> DataVersion:
    return DataVersion(timestamp=now_ms)


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    return DataVersion(counter=version.counter + 1, timestamp=now_ms)


def read_version(text: str | None) -> DataVersion | None:
    """The version that a caller of a paged request has; None if the text is blank or is none."""
    if text is None or not text.strip():
        return None
    try:
        return DataVersion.decode(text.encode())
    except WireError:
        return None
