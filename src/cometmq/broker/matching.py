"""How a read asks whether a message is wanted: by the entry of its queue, by the record itself."""

from collections.abc import Callable

from cometmq.broker.sql import Properties
from cometmq.wire.record.properties import TextProperties

TagMatch = Callable[[int], bool]
PropertyMatch = Callable[[Properties], bool]


def tag_passes(matches: TagMatch, tag_code: int | None, _extension: object) -> bool:
    """An entry whose extension cannot be read has no code; the client decides about it."""
    return tag_code is None or matches(tag_code)


def record_passes(wants: PropertyMatch, properties: bytes) -> bool:
    return wants(TextProperties(properties.decode("utf-8", "replace")))
