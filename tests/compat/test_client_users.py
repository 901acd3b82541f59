"""Our administration of users and policies at RocketMQ's broker and at ours: one test for both makes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from cometmq import Client
from cometmq.client.admin import AccessEntry, Admin
from cometmq.errors import AccessDenied, BrokerError, ConfigError, NotFound
from tests.compat.conftest import Cluster
from tests.compat.harness.servers import MAKES

pytestmark = pytest.mark.interop

ROOT: Final = ("root", "root-secret")
PROVIDERS: Final = "org.apache.rocketmq.auth"
# Java brokers are poked by request 25 until they have registered.
JAVA: Final = {"authenticationWhitelist": "25"}
SECURED: Final = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationMetadataProvider": f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}


class Secured:
    def __init__(self, namesrv: str, make: str) -> None:
        self.namesrv = namesrv
        self.make = make

    @asynccontextmanager
    async def admin(self, user: str, secret: str) -> AsyncIterator[Admin]:
        async with (
            Client(self.namesrv, access_key=user, secret_key=secret, call_timeout=20.0) as client,
            client.admin(timeout_s=20.0) as admin,
        ):
            yield admin


@pytest.fixture(scope="module", params=list(MAKES))
def secured(request: pytest.FixtureRequest, jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory: Path = tmp_path_factory.mktemp("secured")
    make = MAKES[request.param]
    with (
        make.name_server(directory).start() as names,
        make.broker(directory, names.address, {**SECURED, **(JAVA if make.name == "java" else {})}).start(),
    ):
        yield Secured(names.address, make.name)


@pytest.mark.mission("AC-18")
async def test_a_user_is_created_altered_and_deleted(secured: Secured) -> None:
    async with secured.admin(*ROOT) as admin:
        made = await admin.create_user("alice", "alice-secret")
        assert (made.name, made.is_super, made.is_enabled, made.brokers, made.differs) == (
            "alice", False, True, ("broker-a",), ()
        )  # fmt: skip
        with pytest.raises(ConfigError, match="user alice exists on broker-a"):
            await admin.create_user("alice", "another-secret")
        assert [user.name for user in await admin.users("ali")] == ["alice"]
        altered = await admin.alter_user("alice", password="changed-secret", is_super=True, is_enabled=False)
        assert (altered.is_super, altered.is_enabled) == (True, False)
        assert await admin.delete_user("alice") == ["broker-a"]
        assert [user.name for user in await admin.users()] == ["root"]
        for missing in (admin.describe_user, admin.delete_user, admin.alter_user, admin.describe_access):
            with pytest.raises(NotFound, match="cometmq user create alice"):
                await missing("alice")


@pytest.mark.mission("AC-18")
async def test_grants_add_up_and_are_taken_away(secured: Secured) -> None:
    async with secured.admin(*ROOT) as admin:
        await admin.create_user("bob", "bob-secret")
        (change,) = await admin.grant("bob", AccessEntry("topic:orders_*", ("pub",)))
        assert change.before is None
        assert change.after == AccessEntry("Topic:orders_*", ("Pub",))
        await admin.grant("bob", AccessEntry("Topic:orders_*", ("Sub",)))
        assert await admin.grant("bob", AccessEntry("Topic:orders_*", ("Sub",))) == []
        await admin.grant("bob", AccessEntry("Group:billing", ("Sub",), sources=("10.0.0.0/8",)))
        await admin.grant("bob", AccessEntry("*", ("All",), "Deny", policy="Default"))
        access = await admin.describe_access("bob")
        assert set(access.entries) == {
            AccessEntry("Topic:orders_*", ("Pub", "Sub")),
            AccessEntry("Group:billing", ("Sub",), sources=("10.0.0.0/8",)),
            AccessEntry("*", ("All",), "Deny", policy="Default"),
        }
        assert [(it.user, [entry.resource for entry in it.entries]) for it in await admin.accesses("bo", "Topic")] == [
            ("bob", ["Topic:orders_*"])
        ]
        (change,) = await admin.revoke("bob", "Topic:orders_*", ("Pub",))
        assert change.after == AccessEntry("Topic:orders_*", ("Sub",))
        with pytest.raises(ConfigError, match="has All"):
            await admin.revoke("bob", "*", ("Pub",), policy="Default")
        await admin.revoke("bob", "Topic:orders_*", ("Sub",))
        await admin.revoke("bob", "Group:billing")
        assert [it.policy for it in (await admin.describe_access("bob")).entries] == ["Default"]
        await admin.revoke("bob")
        assert (await admin.describe_access("bob")).entries == ()
        with pytest.raises(NotFound, match="nothing granted"):
            await admin.revoke("bob")
        await admin.delete_user("bob")


@pytest.mark.mission("AC-18")
async def test_what_was_granted_decides_at_once(secured: Secured) -> None:
    async with secured.admin(*ROOT) as admin:
        await admin.create_user("carol", "carol-secret")
        await admin.create_topic("secured")
        async with (
            Client(secured.namesrv, access_key="carol", secret_key="carol-secret") as client,
            client.producer("pg", retries=0) as producer,
        ):
            with pytest.raises(AccessDenied) as refused:
                await producer.send("secured", b"x")
            assert refused.value.actions == ("Pub",)
            await admin.grant("carol", AccessEntry("Topic:secured", ("Pub",)))
            await producer.send("secured", b"x")
            await admin.grant("carol", AccessEntry("Topic:secured", ("Pub",), "Deny"))
            with pytest.raises(AccessDenied, match="acl explain carol Pub Topic:secured"):
                await producer.send("secured", b"x")
        await admin.delete_user("carol")


@pytest.mark.mission("AC-18")
async def test_a_password_may_overlap_where_the_broker_can(secured: Secured) -> None:
    async with secured.admin(*ROOT) as admin:
        await admin.create_user("dora", "first-secret")
        if secured.make == "java":
            with pytest.raises(ConfigError, match="RocketMQ's and keeps one password"):
                await admin.alter_user("dora", password="second-secret", overlap_s=60)
            still_good = ["first-secret"]
        else:
            await admin.alter_user("dora", password="second-secret", overlap_s=60)
            still_good = ["first-secret", "second-secret"]
        for password in still_good:
            async with secured.admin("dora", password) as own:
                with pytest.raises(AccessDenied) as denied:
                    await own.users()
                assert (denied.value.user, denied.value.actions) == ("dora", ("Get",))
                assert denied.value.resource == "Cluster:compat"
        await admin.delete_user("dora")


@pytest.mark.mission("AC-18")
async def test_a_java_broker_that_keeps_no_users_is_named_as_such(java_cluster: Cluster) -> None:
    async with Client(java_cluster.namesrv.address, call_timeout=20.0) as client, client.admin(timeout_s=20.0) as admin:
        for asked in (admin.users(), admin.accesses(), admin.create_user("alice", "alice-secret")):
            with pytest.raises(BrokerError, match="RocketMQ's brokers keep users only with"):
                await asked
