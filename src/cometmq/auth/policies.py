"""Policies: which entry decides about a need.

    1. entries of the Custom policy that match; without any, those of the Default policy; without any, refused
    2. the most specific of them decides: a kind before *, a literal name before a prefix before all names, the longer
       of two prefixes; on a tie Deny before Allow

An entry matches a need if its resource covers the need's, it has All or one of the actions that the need accepts, and
the caller's address is in one of its sources (no sources: from everywhere).
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from cometmq.auth.resources import Action, Kind, Need, Pattern, Resource
from cometmq.auth.sources import Block, is_in, parse_address


class Effect(enum.StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True)
class Entry:
    resource: Resource
    actions: frozenset[Action]
    effect: Effect
    sources: tuple[Block, ...] = ()
    # As the operator wrote them; `sources` is what they mean.
    source_texts: tuple[str, ...] = ()

    def matches(self, need: Need, source: str) -> bool:
        if not self.resource.covers(need):
            return False
        if Action.ALL not in self.actions and self.actions.isdisjoint(need.actions):
            return False
        if not self.sources:
            return True
        address = parse_address(source)
        return address is not None and any(is_in(block, address) for block in self.sources)

    @property
    def rank(self) -> tuple[bool, Pattern, int, bool]:
        resource = self.resource
        length = len(resource.name) if resource.pattern is Pattern.PREFIX else 0
        return (resource.kind is not Kind.ANY, resource.pattern, length, self.effect is Effect.DENY)


@dataclass(frozen=True, slots=True)
class Acl:
    """All entries of one user."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def entries(self, policy: PolicyType) -> tuple[Entry, ...]:
        return self.custom if policy is PolicyType.CUSTOM else self.default


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one need, and by which entry; `entry` is None where none matched."""

    need: Need
    entry: Entry | None = None
    policy: PolicyType = PolicyType.CUSTOM

    @property
    def allowed(self) -> bool:
        return self.entry is not None and self.entry.effect is Effect.ALLOW

    @property
    def cause(self) -> str:
        if self.entry is None:
            return "no matched policies."
        return "the decision is deny." if self.entry.effect is Effect.DENY else "the decision is allow."


def decide(acl: Acl, need: Need, source: str) -> Decision:
    for policy in PolicyType:
        best = _best(acl.entries(policy), need, source)
        if best is not None:
            return Decision(need, best, policy)
    return Decision(need)


def _best(entries: Iterable[Entry], need: Need, source: str) -> Entry | None:
    matching = [entry for entry in entries if entry.matches(need, source)]
    return max(matching, key=lambda entry: entry.rank, default=None)
