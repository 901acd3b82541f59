"""Why a need is allowed or refused: what `policies.decide` says, with the part that every entry had in it.

    for each in reasons(acl, need, "10.1.2.3"):
        each.entry, each.policy, each.why         "decides", "another action", "Topic:orders is more specific" ...
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cometmq.auth.policies import Acl, Effect, Entry, PolicyType, decide
from cometmq.auth.resources import Action, Need

DECIDES: Final = "decides"


@dataclass(frozen=True, slots=True)
class Reason:
    entry: Entry
    policy: PolicyType
    why: str

    @property
    def decides(self) -> bool:
        return self.why == DECIDES


def reasons(acl: Acl, need: Need, source: str) -> Iterator[Reason]:
    """All entries of a user, in the order in which they are kept."""
    decision = decide(acl, need, source)
    for policy in PolicyType:
        for entry in acl.entries(policy):
            if entry is decision.entry and policy is decision.policy:
                yield Reason(entry, policy, DECIDES)
            else:
                yield Reason(entry, policy, _why_not(entry, need, source, decision.entry, policy is decision.policy))


def _why_not(entry: Entry, need: Need, source: str, best: Entry | None, is_asked: bool) -> str:
    if not entry.resource.covers(need):
        return "another resource"
    if Action.ALL not in entry.actions and entry.actions.isdisjoint(need.actions):
        return "another action"
    if not entry.matches(need, source):
        return f"not from {source}" if source else "only from some addresses"
    if not is_asked or best is None:
        return "not asked: an entry of Custom matches"
    if entry.rank[:3] == best.rank[:3] and entry.effect is not best.effect:
        return f"{Effect.DENY} wins over {Effect.ALLOW}"
    return f"{best.resource} is more specific"
