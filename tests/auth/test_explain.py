"""Why a need is allowed or refused, entry by entry."""

from cometmq.auth.acls import read_entries
from cometmq.auth.explain import reasons
from cometmq.auth.policies import Acl, decide
from cometmq.auth.resources import Action, Kind, Need
from cometmq.wire.bodies import AclPolicy, PolicyEntry

PUB = Need(Kind.TOPIC, "abcd", frozenset((Action.PUB,)))


def entries(*rows: tuple[str, str, str], sources: list[str] | None = None) -> Acl:
    wire = [PolicyEntry(actions.split(","), decision, resource, sources) for decision, resource, actions in rows]
    return Acl(read_entries(AclPolicy(wire, "Custom")))


def why(acl: Acl, source: str = "10.1.2.3") -> list[str]:
    return [each.why for each in reasons(acl, PUB, source)]


def test_the_longest_prefix_decides_and_the_others_say_that() -> None:
    acl = entries(("Deny", "Topic:a*", "All"), ("Allow", "Topic:abc*", "Pub"), ("Deny", "Topic:ab*", "Pub"))
    assert why(acl) == ["Topic:abc* is more specific", "decides", "Topic:abc* is more specific"]
    assert decide(acl, PUB, "10.1.2.3").allowed


def test_what_does_not_match_says_what_it_is_about() -> None:
    acl = entries(("Allow", "Topic:other", "Pub"), ("Allow", "Topic:abcd", "Sub"), ("Allow", "Group:abcd", "Pub"))
    assert why(acl) == ["another resource", "another action", "another resource"]


def test_an_entry_for_some_addresses_counts_there_only() -> None:
    acl = entries(("Allow", "Topic:abcd", "Pub"), sources=["192.168.0.0/16"])
    assert why(acl) == ["not from 10.1.2.3"]
    assert why(acl, "") == ["only from some addresses"]
    assert why(acl, "192.168.3.4") == ["decides"]


def test_default_entries_are_not_asked_where_one_of_custom_matches() -> None:
    custom, default = entries(("Deny", "Topic:*", "Pub")), entries(("Allow", "Topic:abcd", "Pub"))
    assert why(Acl(custom.custom, default.custom)) == ["decides", "not asked: an entry of Custom matches"]
    assert why(Acl((), default.custom)) == ["decides"]


def test_on_a_tie_deny_wins() -> None:
    both = Acl((*entries(("Allow", "*", "Pub")).custom, *entries(("Deny", "*", "All")).custom))
    assert why(both) == ["Deny wins over Allow", "decides"]
