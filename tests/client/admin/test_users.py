"""Users and policies through the administration: what is refused before it is sent, and how members are compared.

One broker of either make: tests/compat/test_client_users.py.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq import Client
from cometmq.broker.server import Broker
from cometmq.client.admin import AccessEntry, Admin
from cometmq.client.admin.users import checked_entry
from cometmq.errors import AccessDenied, ConfigError
from tests.broker.access.test_copies import replica_of
from tests.nameserver.support import nameserver
from tests.support.access import ROOT, SECURED, SIGNING, password_of
from tests.support.brokers import running_broker
from tests.support.net import until


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


# A master and a replica


@asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[tuple[str, Broker, Broker]]:
    """The address of a name server that knows both."""
    async with nameserver(directory) as names:
        own = {"brokerName": "broker-a", "namesrvAddr": names.address}
        async with (
            running_broker(directory / "m", **{**SECURED, **SIGNING, **own}) as master,
            replica_of(master, directory / "r", **own) as replica,
        ):
            async with administrator(names.address) as admin:
                assert len(await admin.brokers()) == 2
            yield names.address, master, replica


@asynccontextmanager
async def administrator(namesrv: str, user: str = ROOT, password: str | None = None) -> AsyncIterator[Admin]:
    async with (
        Client(namesrv, access_key=user, secret_key=password or password_of(user)) as client,
        client.admin() as admin,
    ):
        yield admin


@pytest.mark.mission("AC-18")
async def test_a_change_is_on_the_replica_too_whoever_is_first(tmp_path: Path) -> None:
    async with pair(tmp_path) as (namesrv, master, replica), administrator(namesrv) as admin:
        made = await admin.create_user("alice", "alice-secret")
        assert (made.brokers, made.differs) == (("broker-a", "broker-a slave 1"), ())
        await admin.grant("alice", AccessEntry("Topic:orders", ("Pub",)))
        changed = await admin.alter_user("alice", password="second-secret", overlap_s=60, is_enabled=False)
        assert (changed.is_enabled, changed.differs) == (False, ())
        for broker in (master, replica):
            alice = broker.access.users.table["alice"]
            assert (alice.password, alice.previous, alice.is_enabled) == ("second-secret", "alice-secret", False)
            assert [str(entry.resource) for entry in broker.access.acls.of("alice").custom] == ["Topic:orders"]
        await admin.revoke("alice", "Topic:orders")
        assert await admin.delete_user("alice") == ["broker-a"]
        await until(lambda: "alice" not in replica.access.users.table)
        assert replica.access.acls.table == {}


async def test_who_changes_its_own_password_goes_on_with_the_new_one(tmp_path: Path) -> None:
    async with pair(tmp_path) as (namesrv, _, replica):
        async with administrator(namesrv) as admin:
            changed = await admin.alter_user(ROOT, password="changed-secret")
            assert changed.brokers[0] == "broker-a"
            await until(lambda: replica.access.users.table[ROOT].password == "changed-secret")
            assert [user.name for user in await admin.users() if not user.differs]
        async with administrator(namesrv) as old:
            with pytest.raises(AccessDenied):
                await old.users()


@pytest.mark.mission("AC-18")
async def test_a_replica_that_is_stopped_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair(tmp_path) as (namesrv, _, replica), administrator(namesrv) as admin:
        await replica.server.stop(0)  # without a word to the name server
        made = await admin.create_user("bob", "bob-secret")
        assert made.brokers == ("broker-a",)
        assert (await admin.describe_access("bob")).entries == ()
        assert "leave out slave=broker-a slave 1" in caplog.text
