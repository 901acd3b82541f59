"""Resources and actions: what a policy speaks of, and what a request needs.

    Topic:orders        that topic                 Topic:*      every topic
    Topic:orders_*      every topic with that      *            everything
                        prefix

A resource text is cut at its first star. `Group:` and `Cluster:` work alike; `Namespace:` is accepted and matches
nothing, because no request asks for a namespace.
"""

import enum
from dataclasses import dataclass
from typing import Final


class Kind(enum.StrEnum):
    ANY = "*"
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"


class Action(enum.StrEnum):
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


_KINDS: Final = {kind.lower(): kind for kind in Kind if kind is not Kind.ANY}
_ACTIONS: Final = {action.lower(): action for action in Action}


class Pattern(enum.IntEnum):
    """How a resource names what it means; the higher one decides where several entries match."""

    ANY = 0
    PREFIX = 1
    LITERAL = 2


@dataclass(frozen=True, slots=True)
class Resource:
    kind: Kind
    pattern: Pattern
    name: str = ""

    def __str__(self) -> str:
        if self.kind is Kind.ANY:
            return "*"
        return f"{self.kind}:{self.name}{'' if self.pattern is Pattern.LITERAL else '*'}"

    def covers(self, need: "Need") -> bool:
        if self.kind is Kind.ANY:
            return True
        if self.kind is not need.kind:
            return False
        if self.pattern is Pattern.ANY:
            return True
        if need.name is None:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == need.name
        return need.name.startswith(self.name)


@dataclass(frozen=True, slots=True)
class Need:
    """One of the `actions` on one resource; without a name on every resource of the kind."""

    kind: Kind
    name: str | None
    actions: frozenset[Action]

    @property
    def resource(self) -> str:
        return f"{self.kind}:{'*' if self.name is None else self.name}"

    def __str__(self) -> str:
        return f"{self.resource} {'/'.join(sorted(self.actions))}"


def parse_resource(text: str) -> Resource | None:
    """None for a text that names no kind that policies may speak of."""
    text = text.strip()
    if text == "*":
        return Resource(Kind.ANY, Pattern.ANY)
    word, colon, name = text.partition(":")
    kind = _KINDS.get(word.strip().lower())
    if kind is None or not colon:
        return None
    if name == "*":
        return Resource(kind, Pattern.ANY)
    if name.endswith("*"):
        prefix = name.partition("*")[0]
        return Resource(kind, Pattern.PREFIX if prefix else Pattern.ANY, prefix)
    return Resource(kind, Pattern.LITERAL, name)


def parse_action(text: str) -> Action | None:
    return _ACTIONS.get(text.strip().lower())
