"""Entries of users: what is refused before it is sent. At either make: tests/compat/test_client_users.py."""

import pytest

from cometmq.client.admin import AccessEntry
from cometmq.client.admin.access import checked_entry
from cometmq.errors import ConfigError


def test_an_entry_is_brought_into_the_words_of_brokers() -> None:
    given = AccessEntry("topic:orders_*", ("sub", "PUB"), "deny", ("10.0.0.0/8", "::1"), "default")
    assert checked_entry(given) == AccessEntry(
        "Topic:orders_*", ("Pub", "Sub"), "Deny", ("10.0.0.0/8", "::1"), "Default"
    )


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        (AccessEntry("orders", ("Pub",)), "the resource 'orders' is none of Topic:NAME"),
        (AccessEntry("Topic:", ("Pub",)), "the resource 'Topic:' is none of"),
        (AccessEntry("Any:x", ("Pub",)), "the resource 'Any:x' is none of"),
        (AccessEntry("Topic:t,Topic:u", ("Pub",)), "is several: give one at a time"),
        (AccessEntry("Topic:t", ("Pub", "Publish")), "the actions Publish: known are All, Pub, Sub"),
        (AccessEntry("Topic:t", ()), "the actions are missing: known are All"),
        (AccessEntry("Topic:t", ("Pub",), sources=("10.0.0.*",)), "the source '10.0.0.*' is neither an IP address nor"),
        (AccessEntry("Topic:t", ("Pub",), "Maybe"), "the decision is 'Maybe', known are Allow, Deny"),
        (AccessEntry("Topic:t", ("Pub",), policy="Mine"), "the policy is 'Mine', known are Custom, Default"),
    ],
)
def test_what_a_broker_would_drop_in_silence_is_refused(entry: AccessEntry, cause: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_entry(entry)
    assert cause in str(refused.value)
