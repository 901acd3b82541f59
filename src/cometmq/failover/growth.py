"""A topic comes to more sets and no group skips what is sent there before it looks: the next step, as a value.

    set        ""  ── Make ──> "r" ── Begin for each group ── Wait ── Begin for new ones ── Open ──> "rw"
    routes         clients see the new queues, nobody writes              messages come

A group that has no offset in a queue starts where it likes when it first looks, maybe behind what was sent before: so
none is without one. Whoever read the topic before `Make` was seen gets offset 0 by `Begin`; who comes later than a
route's age after it sees the empty queues at once. That is what the wait is for.

What was done shows in permissions and offsets, so that an interrupted command goes on. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Make:
    """With permission r."""

    name: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Offset 0 in all queues of the set."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Wait:
    """As long as routes may be old, twice."""


@dataclass(frozen=True, slots=True)
class Open:
    """Permission rw."""

    name: str


Step: TypeAlias = Make | Begin | Wait | Open


def next_step(
    wanted: Sequence[str],
    permissions: Mapping[str, str],
    groups: Collection[str],
    begun: Collection[tuple[str, str]],
    *,
    has_waited: bool,
) -> Step | None:
    """`permissions` of the sets that have the topic, `begun`: (group, set) that have offsets; None: it is done."""
    for name in wanted:
        if name not in permissions:
            return Make(name)
    closed = [name for name in wanted if "w" not in permissions[name]]
    for name in closed:
        for group in sorted(groups):
            if (group, name) not in begun:
                return Begin(group, name)
    if closed and not has_waited:
        return Wait()
    return Open(closed[0]) if closed else None
