"""A row of a table that says who serves a request code.

Each room has tables of its own. A handler takes the context of its room, which has what the room's handlers need and
nothing else; `bound` joins a table with its context, and what comes of it is what a dispatcher takes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from cometmq.net.connection import Connection
from cometmq.net.dispatch import Answer, Handler
from cometmq.wire.command import Command

C = TypeVar("C")


class Entry(NamedTuple, Generic[C]):
    """`function` takes (context, connection, request); `family` bounds it."""

    function: Callable[[C, Connection, Command], Answer]
    family: str


Table: TypeAlias = Mapping[int, Entry[C]]


class Served(NamedTuple):
    handler: Handler
    family: str


def bound(table: Table[C], context: C) -> dict[int, Served]:
    return {code: Served(partial(entry.function, context), entry.family) for code, entry in table.items()}


def merged(*tables: Mapping[int, Served]) -> dict[int, Served]:
    """All of them; no code may be in two."""
    found: dict[int, Served] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        assert not twice, f"codes that are served twice: {sorted(twice)}"
        found.update(table)
    return found
