"""A row of the table that says who serves a request code."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """`function` takes (broker, connection, request); `family` bounds it; `permission` is what the caller needs."""

    function: Callable[..., Any]
    family: str
    permission: str | None = None
