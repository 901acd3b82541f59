"""Users through the administration, at a master and its replica. At either make: tests/compat/test_client_users.py."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq import Client
from cometmq.broker.server import Broker
from cometmq.client.admin import AccessEntry, Admin
from cometmq.errors import AccessDenied
from tests.broker.access.test_copies import replica_of
from tests.nameserver.support import nameserver
from tests.support.access import ROOT, SECURED, SIGNING, password_of
from tests.support.brokers import running_broker
from tests.support.net import until


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
