"""The guard of a running broker, at both ports, and how a broker starts with access control."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.auth.signer import Signer
from cometmq.auth.users import User
from cometmq.broker.hosts import FAST_PORT_BELOW
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.errors import CometError
from cometmq.wire.bodies import KVTable
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from tests.net.test_proxy_protocol import V1
from tests.support.access import (
    INNER,
    ROOT,
    SECURED,
    SIGNING,
    add_user,
    allow,
    create_user,
    deny,
    grant,
    password_of,
    signed_peer,
)
from tests.support.brokers import Peer, add_topic, broker_settings, running_broker, send_request, stored
from tests.support.net import RawPeer, until

NO_RIGHT = "User:alice has no permission to access {} from 127.0.0.1, {}"


@pytest.mark.mission("AC-01")
@pytest.mark.parametrize("fast", [False, True])
async def test_who_does_not_sign_or_signs_wrongly_is_refused_at_both_ports(tmp_path: Path, fast: bool) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        add_topic(broker, "T")
        await create_user(root, "off")
        await root.call(Request.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', username="off")
        host, port = broker.address.split(":")
        async with (
            Peer.at(f"{host}:{int(port) - FAST_PORT_BELOW}" if fast else broker.address) as nobody,
            signed_peer(broker, "stranger", fast=fast) as stranger,
            signed_peer(broker, ROOT, "wrong", fast=fast) as liar,
            signed_peer(broker, "off", fast=fast) as disabled,
        ):
            for peer, remark in (
                (nobody, "username cannot be null."),
                (stranger, "check signature failed."),
                (liar, "check signature failed."),
                (disabled, "User:off is disabled."),
            ):
                for command in (send_request("T"), send_request("T", code=Request.SEND_MESSAGE)):
                    refused = await peer.ask(command)
                    assert (refused.code, refused.remark, refused.body, refused.ext) == (16, remark, b"", {})
                unknown = await peer.call(99_999)
                assert unknown.code == 16
        assert (await root.call(99_999)).code == 3
        assert stored(broker, "T") == []


@pytest.mark.mission("AC-01")
async def test_a_refused_one_way_request_is_not_executed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, Peer.of(broker) as nobody, signed_peer(broker) as root:
        add_topic(broker, "T")
        await nobody.send_oneway("T")
        await nobody.call(1)
        assert stored(broker, "T") == []
        assert (await root.send("T")).code == 0


@pytest.mark.mission("AC-01")
async def test_a_change_after_signing_breaks_the_signature(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "T")
        command = send_request("T")
        root = broker.access.users.table[ROOT]
        Signer(root.name, root.password).before("", command)
        command.ext["zone"] = "z"
        refused = await peer.call(command)
        assert (refused.code, refused.remark) == (16, "check signature failed.")


@pytest.mark.mission("AC-02")
async def test_a_user_may_what_its_policies_say_until_they_change(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        for name in ("orders", "bills"):
            add_topic(broker, name)
        await add_user(root, "alice", allow("Topic:orders", "Pub"), deny("Topic:bills", "Pub"))
        async with signed_peer(broker, "alice") as alice:
            assert (await alice.send("orders")).code == 0
            denied = await alice.send("bills")
            assert (denied.code, denied.remark) == (16, NO_RIGHT.format("Topic:bills", "the decision is deny."))
            pulled = await alice.pull("orders", group="g")
            assert pulled.remark == NO_RIGHT.format("Topic:orders", "no matched policies.")
            await grant(root, "alice", allow("Topic:orders", "Sub"), allow("Group:g", "Sub"))
            assert (await alice.pull("orders", group="g")).code in (0, 19)
            assert (await alice.send("orders")).code == 16
            await root.call(Request.AUTH_DELETE_ACL, subject="User:alice")
            assert (await alice.pull("orders", group="g")).code == 16


async def test_without_authorisation_every_user_may_everything_but_make_super_users(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **{**SECURED, "authorizationEnabled": False}) as broker,
        signed_peer(broker) as root,
    ):
        await add_user(root, "alice")
        async with signed_peer(broker, "alice") as alice:
            assert (await alice.call(Request.GET_BROKER_CONFIG)).code == 0
            refused = await create_user(alice, "eve", kind="Super")
            assert (refused.code, refused.remark) == (1, "The super user can only be create by super user")
            assert "eve" not in broker.access.users.table


async def test_whitelisted_codes_are_open(tmp_path: Path) -> None:
    lists = {"authenticationWhitelist": f"{Request.GET_MAX_OFFSET}", "authorizationWhitelist": "26"}
    async with running_broker(tmp_path, **SECURED, **lists) as broker, signed_peer(broker) as root:
        await add_user(root, "alice")
        async with Peer.of(broker) as nobody, signed_peer(broker, "alice") as alice:
            assert (await nobody.call(Request.GET_MAX_OFFSET, topic="T", queueId=0)).code == 0
            assert (await nobody.call(Request.GET_MIN_OFFSET, topic="T", queueId=0)).code == 16
            assert (await alice.call(Request.GET_BROKER_CONFIG)).code == 0
            assert (await alice.call(Request.GET_BROKER_RUNTIME_INFO)).code == 16


async def test_a_broker_without_access_control_asks_nobody_and_makes_no_files(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as nobody:
        add_topic(broker, "T")
        assert broker.server.endpoint.guard is None
        assert (await nobody.send("T")).code == 0
    assert not (tmp_path / "store" / "config" / "users.json").exists()


@pytest.mark.mission("AC-05")
async def test_users_and_policies_are_there_after_a_restart_in_files_of_their_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED, **SIGNING) as broker, signed_peer(broker) as root:
        await add_user(root, "alice", allow("Topic:orders", "Pub", sources=["10.0.0.0/8"]))
        await root.call(Request.AUTH_UPDATE_USER, b'{"password":"another password"}', username=ROOT)
        before = broker.access.users.table, broker.access.acls.table
    config = tmp_path / "store" / "config"
    for name in ("users.json", "acls.json", "users.json.bak"):
        assert stat.S_IMODE((config / name).stat().st_mode) == 0o600
    (config / "users.json").chmod(0o644)
    async with running_broker(tmp_path, **SECURED, **SIGNING) as broker:
        assert (broker.access.users.table, broker.access.acls.table) == before
        assert broker.access.users.table[ROOT].password == "another password"
        assert broker.access.users.table[INNER] == User(INNER, password_of(INNER), is_super=True)
        assert stat.S_IMODE((config / "users.json").stat().st_mode) == 0o600


def half_configured(**texts: object) -> dict[str, object]:
    return {"authenticationEnabled": True, "initAuthenticationUser": SECURED["initAuthenticationUser"], **texts}


@pytest.mark.mission("AC-06")
@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"authenticationEnabled": True, "authorizationEnabled": True}, "initAuthenticationUser"),
        ({"authorizationEnabled": True}, "authenticationEnabled"),
        ({"aclEnable": True}, "aclEnable=true"),
        (half_configured(initAuthenticationUser='{"username":"marker"}'), "initAuthenticationUser"),
        (half_configured(innerClientAuthenticationCredentials="marker"), "innerClientAuthenticationCredentials"),
        (half_configured(authorizationMetadataProvider="x"), "LocalAuthorizationMetadataProvider"),
        (half_configured(authenticationWhitelist="3001"), "3001"),
    ],
)
async def test_a_half_configured_broker_does_not_start(tmp_path: Path, texts: dict[str, Any], named: str) -> None:
    with pytest.raises(CometError, match=named) as caught:
        await Broker(broker_settings(tmp_path, **texts)).start()
    assert "marker" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.mission("AC-06")
async def test_what_is_open_is_said_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "store" / "config" / "users").mkdir(parents=True)
    (tmp_path / "store" / "config" / "users" / "CURRENT").touch()
    texts = {**SECURED, "authorizationEnabled": False, "authenticationWhitelist": "34"}
    with caplog.at_level(logging.WARNING):
        async with running_broker(tmp_path, **texts):
            pass
    for words in ("authorizationEnabled=true", "request code 34", "tls.server.mode=enforcing", "copyUser"):
        assert words in caplog.text


async def test_policies_without_a_user_are_dropped(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, signed_peer(broker) as root:
        await add_user(root, "alice", allow("*", "All"))
        del broker.access.users.table["alice"]
        broker.access.users.put(broker.access.users.table[ROOT])
        await broker.access.saved()
    async with running_broker(tmp_path, **SECURED) as broker:
        assert broker.access.acls.table == {}


@pytest.mark.mission("AC-01")
async def test_wrong_signatures_are_answered_late_and_right_ones_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, **SECURED) as broker, signed_peer(broker) as root:
        async with signed_peer(broker, ROOT, "a guess") as guesser:
            for _ in range(10):
                assert (await guesser.call(1)).code == 16
            late = guesser.call(1)
            await expect_late(late, clock, lambda: broker.server.endpoint.refused.waiting == 1)
        assert (await root.call(Request.GET_BROKER_CONFIG)).code == 0


async def expect_late(answer: Awaitable[Command], clock: ManualClock, is_held: Callable[[], bool]) -> None:
    waiting = asyncio.ensure_future(answer)
    await until(is_held)
    assert not waiting.done()
    clock.advance(2.0)
    assert (await waiting).code == 16


async def test_wrong_signatures_are_counted(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **SECURED) as broker,
        signed_peer(broker) as root,
        signed_peer(broker, "nobody") as nobody,
        signed_peer(broker, ROOT, "not its password") as guesser,
    ):
        for peer in (nobody, guesser):
            assert (await peer.call(Request.GET_BROKER_RUNTIME_INFO)).code == Response.NO_PERMISSION
        figures = KVTable.decode((await root.call(Request.GET_BROKER_RUNTIME_INFO)).body).table
    assert figures["cometmq.wrongSignatures"] == "2"


async def test_the_audit_log_can_have_a_file_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.log"
    async with running_broker(tmp_path, **SECURED, authAuditLogPath=path) as broker, signed_peer(broker) as root:
        await create_user(root, "alice")
        async with Peer.of(broker) as nobody:
            await nobody.call(Request.GET_BROKER_CONFIG)
    text = path.read_text()
    assert "create user user=alice by=root" in text
    assert "refuse request code=26" in text
    assert "create user" not in caplog.text
    with pytest.raises(CometError, match="authAuditLogPath"):
        await Broker(broker_settings(tmp_path, **SECURED, authAuditLogPath=tmp_path)).start()


@pytest.mark.mission("AC-01")
async def test_only_a_trusted_proxy_says_where_a_caller_comes_from(tmp_path: Path) -> None:
    for trusted, code in (("127.0.0.1", 0), ("", 16), ("10.0.0.0/8", 16)):
        texts = {**SECURED, "proxyProtocolTrustedAddresses": trusted}
        async with running_broker(tmp_path, **texts) as broker, signed_peer(broker) as root:
            add_topic(broker, "T")
            await create_user(root, "alice")
            await grant(root, "alice", allow("Topic:T", "Pub", sources=["192.0.2.1"]))
            command = send_request("T")
            Signer("alice", password_of("alice")).before("", command)
            async with RawPeer.connected(broker.port) as peer:
                peer.write(V1)
                assert (await peer.call(command)).code == code, trusted
