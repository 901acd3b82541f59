"""Policies: the recorded decisions, and address patterns."""

from typing import Any

import pytest

from cometmq.auth.policies import Acl, Effect, Entry, decide
from cometmq.auth.resources import Kind, Need, parse_action, parse_resource
from cometmq.auth.sources import is_in, parse_address, parse_block
from tests.support.auth_vectors import vectors

# Where CometMQ compares addresses as numbers and RocketMQ as text.
DIFFERENT_SOURCES = {("0:0:0:0:0:0:0:1", "::1"): True}


def entries(rows: list[dict[str, Any]] | None) -> tuple[Entry, ...]:
    return tuple(entry(row) for row in rows or ())


def entry(row: dict[str, Any]) -> Entry:
    resource = parse_resource(row["resource"])
    if row["resource"].startswith("Any:"):  # what RocketMQ takes for everything; CometMQ refuses to store it
        resource = parse_resource("*")
    assert resource is not None
    actions = [parse_action(word) for word in row["actions"]]
    blocks = [parse_block(text) for text in row.get("sourceIps") or ()]
    return Entry(
        resource,
        frozenset(action for action in actions if action is not None),
        Effect(row["decision"]),
        tuple(block for block in blocks if block is not None),
    )


@pytest.mark.mission("AC-02")
@pytest.mark.parametrize("vector", vectors("decision"))
def test_a_recorded_decision_is_made_again(vector: dict[str, Any]) -> None:
    kind, _, name = vector["resource"].partition(":")
    actions = frozenset(action for word in vector["actions"] if (action := parse_action(word)))
    need = Need(Kind(kind), name, actions)
    decision = decide(Acl(entries(vector["custom"]), entries(vector["default"])), need, vector["source_ip"])
    if decision.allowed:
        outcome = "allow"
    else:
        source = vector["source_ip"]
        outcome = f"User:u has no permission to access {need.resource} from {source}, {decision.cause}"
    assert outcome == vector["outcome"]


@pytest.mark.parametrize("vector", vectors("source"), ids=lambda vector: f"{vector['ip']} in {vector['pattern']}")
def test_an_address_is_in_a_recorded_pattern_or_not(vector: dict[str, Any]) -> None:
    block = parse_block(vector["pattern"])
    assert (block is not None) is vector["pattern_accepted"]
    if block is None:
        return
    address = parse_address(vector["ip"])
    assert address is not None
    expected = DIFFERENT_SOURCES.get((vector["ip"], vector["pattern"]), vector["matches"])
    assert is_in(block, address) is expected


@pytest.mark.parametrize(
    ("text", "address", "matches"),
    [
        ("::ffff:10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "::ffff:10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("::/1", "10.1.2.3", False),
        ("fe80::/10", "fe80::1%eth0", True),
    ],
)
def test_families_are_kept_apart_and_mapped_addresses_are_ipv4(text: str, address: str, matches: bool) -> None:
    block, parsed = parse_block(text), parse_address(address)
    assert block is not None
    assert parsed is not None
    assert is_in(block, parsed) is matches


@pytest.mark.parametrize("text", ["host/24", "host", "10.0.0.1-5", "fe80::1%eth0", "1" * 100])
def test_host_names_ranges_and_zones_are_no_sources(text: str) -> None:
    assert parse_block(text) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("topic:a", "Topic:a"), ("GROUP:g*", "Group:g*"), ("Cluster:*", "Cluster:*"), ("*", "*"),
        ("Topic:x*y*", "Topic:x*"), ("Topic:x*y", "Topic:x*y"), ("Namespace:n", "Namespace:n"),
        ("Any:x", None), ("Unknown:x", None), ("Topic", None), ("", None), ("garbage", None),
    ],
)  # fmt: skip
def test_a_resource_is_read_and_shown(text: str, shown: str | None) -> None:
    resource = parse_resource(text)
    assert (None if resource is None else str(resource)) == shown
