"""A replica has the users and policies of its master, if both know the servers' user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.broker.access.copies import Copies
from cometmq.broker.server import Broker
from cometmq.errors import RequestError
from cometmq.wire.bodies import AclInfo, AclPolicy, UserInfo
from cometmq.wire.bodies.base import encode_list
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply, request
from tests.support.access import INNER, ROOT, SECURED, SIGNING, add_user, allow, deny, password_of, signed_peer
from tests.support.brokers import Peer, running_broker
from tests.support.net import until

REPLICA: dict[str, object] = {"brokerRole": "SLAVE", "brokerId": 1, **SECURED, **SIGNING}


@asynccontextmanager
async def replica_of(master: Broker, directory: Path, **texts: object) -> AsyncIterator[Broker]:
    ha = f"127.0.0.1:{master.port + 1}"
    async with running_broker(directory, **{**REPLICA, "haMasterAddress": ha, **texts}) as broker:
        broker.rooms.replicas.table_sync.follow(master.address)
        yield broker


@pytest.mark.mission("AC-08")
async def test_a_replica_takes_over_users_and_policies_and_keeps_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", **SECURED, **SIGNING) as master, signed_peer(master) as root:
        await add_user(root, "alice", allow("Topic:orders", "Pub", sources=["127.0.0.0/8"]), deny("Topic:b*", "All"))
        await root.call(Request.AUTH_UPDATE_USER, b'{"password":"another password"}', username=ROOT)
        async with replica_of(master, tmp_path / "r") as copy:
            await until(lambda: "alice" in copy.access.acls.table)
            assert copy.access.users.table == master.access.users.table
            assert copy.access.acls.table == master.access.acls.table
            async with signed_peer(copy, "alice") as alice:
                assert (await alice.call(99_999)).code == 3
    async with running_broker(tmp_path / "r", **REPLICA) as copy:
        assert copy.access.users.table["alice"].password == password_of("alice")
        assert "alice" in copy.access.acls.table


@pytest.mark.mission("AC-08")
async def test_a_replica_with_other_credentials_gets_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", **SECURED, **SIGNING) as master, signed_peer(master) as root:
        await root.send("TopicA")
        stranger = '{"accessKey":"strangers","secretKey":"password of strangers"}'
        async with replica_of(master, tmp_path / "r", innerClientAuthenticationCredentials=stranger) as copy:
            await until(lambda: copy.rooms.replicas.table_sync.rounds)
            assert copy.access.users.table.keys() == {ROOT, "strangers"}
            assert copy.tables.offsets.data_version != master.tables.offsets.data_version


@pytest.mark.parametrize("texts", [{}, {**SECURED, "authorizationEnabled": False}])
async def test_a_master_that_shows_no_passwords_takes_none_away(tmp_path: Path, texts: dict[str, object]) -> None:
    async with running_broker(tmp_path / "m", **texts) as master, replica_of(master, tmp_path / "r") as copy:
        await until(lambda: copy.rooms.replicas.table_sync.rounds)
        assert copy.access.users.table.keys() == {ROOT, INNER}


async def test_who_does_not_sign_does_not_ask(tmp_path: Path) -> None:
    for texts in ({}, SECURED, SIGNING):
        async with running_broker(tmp_path / f"{len(texts)}", **texts) as broker:
            assert Copies(broker.access, broker.rooms.replicas.table_sync.call).parts() == []


async def test_what_is_not_understood_takes_all_rights_of_its_user(tmp_path: Path) -> None:
    infos = [
        AclInfo(subject="User:a", policies=[AclPolicy(entries=[allow("*", "All"), deny("Topic:t", "Fly")])]),
        AclInfo(subject="User:b", policies=[AclPolicy(entries=[allow("Topic:t", "Pub")])]),
    ]

    async def ask(_: str, code: int) -> Command:
        return reply(request(code), body=encode_list(infos))

    async with running_broker(tmp_path, **SECURED, **SIGNING) as broker:
        copies = Copies(broker.access, ask)
        await copies.policies("master")
        assert broker.access.acls.table.keys() == {"b"}
        changes = broker.access.acls.changes
        await copies.policies("master")
        assert broker.access.acls.changes == changes


async def test_an_empty_list_of_users_takes_none_away(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED, **SIGNING) as broker, Peer.of(broker):
        for infos in ([], [UserInfo(username="a", password="")]):

            async def ask(_: str, code: int, infos: list[UserInfo] = infos) -> Command:
                return reply(request(code), body=encode_list(infos) if infos else b"")

            with pytest.raises(RequestError, match="innerClientAuthenticationCredentials"):
                await Copies(broker.access, ask).users("master")
        assert ROOT in broker.access.users.table
