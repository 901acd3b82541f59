"""A name server that asks who is there: servers change things, users look, nobody else."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from cometmq.auth.signer import Signer
from cometmq.auth.users import User, Users
from cometmq.errors import ConfigError
from cometmq.nameserver import handlers
from cometmq.nameserver.access import CHANGES, READS
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, request
from tests.nameserver.support import nameserver
from tests.support.access import SIGNING
from tests.support.brokers import add_topic, running_broker, until_routed
from tests.support.net import RawPeer

SECURED = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"password of root"}',
    **{key: str(value) for key, value in SIGNING.items()},
}


def write_users(path: Path, users: Iterable[User]) -> None:
    table = Users()
    for user in users:
        table.put(user)
    path.write_bytes(table.snapshot()())


class SignedPeer(RawPeer):
    name = "alice"

    def send(self, command: Command) -> None:
        Signer(self.name, f"password of {self.name}").before("", command)
        super().send(command)


class Servers(SignedPeer):
    name = "servers"


@pytest.mark.mission("AC-13")
async def test_users_look_servers_change_and_nobody_else_does_either(tmp_path: Path) -> None:
    write_users(tmp_path / "users.json", [User("alice", "password of alice")])
    async with (
        nameserver(tmp_path, **SECURED) as names,
        RawPeer.connected(names.port) as nobody,
        SignedPeer.connected(names.port) as alice,
        Servers.connected(names.port) as servers,
    ):
        assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600
        for code in (*handlers.HANDLERS, Request.GET_ROUTEINFO_BY_TOPIC, 99_999):
            refused = await nobody.call(request(code, {"topic": "T"}))
            assert (refused.code, refused.remark, refused.body) == (16, "username cannot be null.", b""), code
        put = {"namespace": "n", "key": "k", "value": "v"}
        refused = await alice.call(request(Request.PUT_KV_CONFIG, dict(put)))
        assert (refused.code, "User:alice has no permission" in (refused.remark or "")) == (16, True)
        assert (await alice.call(request(Request.GET_BROKER_CLUSTER_INFO))).code == 0
        assert (await alice.call(request(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))).code == 17
        assert (await servers.call(request(Request.PUT_KV_CONFIG, dict(put)))).code == 0
        assert (await alice.call(request(Request.GET_KV_CONFIG, {"namespace": "n", "key": "k"}))).ext["value"] == "v"


@pytest.mark.mission("AC-13")
async def test_brokers_register_with_their_credentials_only(tmp_path: Path) -> None:
    async with nameserver(tmp_path, **SECURED, authenticationWhitelist="105") as names:
        where = {"namesrvAddr": names.address}
        async with RawPeer.connected(names.port) as peer:
            async with running_broker(tmp_path / "a", **where, **SIGNING) as broker:
                add_topic(broker, "T")
                assert (await until_routed(peer, "T")).broker_datas[0].broker_name == "broker-a"
            async with running_broker(tmp_path / "b", **where) as stranger:
                add_topic(stranger, "U")
                await stranger.rooms.settled()
                assert (await peer.call(request(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "U"}))).code == 17


@pytest.mark.mission("AC-06")
async def test_without_a_user_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        async with nameserver(tmp_path, authenticationEnabled="true"):
            pass


def test_every_request_is_a_change_or_a_look() -> None:
    assert handlers.HANDLERS.keys() <= CHANGES | READS
    assert not CHANGES & READS
