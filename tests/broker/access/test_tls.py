"""TLS on the ports of a broker, and on what it dials."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from cometmq.auth.signer import Signer
from cometmq.broker.hosts import FAST_PORT_BELOW
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.errors import CometError, ConfigError
from cometmq.net.tls import WATCH_S, ClientTls, client_context
from cometmq.wire.codes import Request
from cometmq.wire.command import request
from tests.nameserver.support import nameserver
from tests.support.access import ROOT, SECURED, password_of, signed_peer
from tests.support.brokers import add_topic, broker_settings, running_broker, send_request, until_routed
from tests.support.certificates import authority, pair
from tests.support.net import RawPeer


def files(folder: Path, name: str = "server") -> dict[str, object]:
    certificate, key = pair(name).write(folder, "server")
    (folder / "trust.pem").write_bytes(authority())
    return {"tls.server.certPath": certificate, "tls.server.keyPath": key}


def secure(tls: ClientTls) -> dict[str, Any]:
    return {"ssl": client_context(tls), "server_hostname": "localhost"}


async def is_served(port: int, **options: Any) -> bool:
    try:
        async with RawPeer.connected(port, **options) as peer:
            return (await peer.call(send_request("T"))).code == 0
    except (AssertionError, ConnectionError, ssl.SSLError):
        return False


@pytest.mark.mission("AC-09")
@pytest.mark.parametrize(
    ("mode", "plain", "tls"), [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)]
)
async def test_the_mode_holds_at_both_ports(tmp_path: Path, mode: str, plain: bool, tls: bool) -> None:
    texts = {**files(tmp_path), "tls.server.mode": mode, "tls.enable": False}
    async with running_broker(tmp_path, **texts) as broker:
        add_topic(broker, "T")
        for port in (broker.port, broker.port - FAST_PORT_BELOW):
            assert await is_served(port) is plain
            assert await is_served(port, **secure(ClientTls(trust_path=str(tmp_path / "trust.pem")))) is tls


@pytest.mark.mission("AC-09")
@pytest.mark.parametrize(("need", "none", "foreign"), [("none", True, True), ("optional", True, False),
                                                       ("require", False, False)])  # fmt: skip
async def test_client_certificates_are_asked_for_and_verified(
    tmp_path: Path, need: str, none: bool, foreign: bool
) -> None:
    trust = str(tmp_path / "trust.pem")
    texts = {**files(tmp_path), "tls.server.mode": "enforcing", "tls.server.need.client.auth": need,
             "tls.server.trustCertPath": trust}  # fmt: skip
    async with running_broker(tmp_path, **texts) as broker:
        add_topic(broker, "T")
        for name, signed_by, served in (
            ("", "", none),
            ("client", "authority", True),
            ("client", "another authority", foreign),
        ):
            certificate, key = pair(name, signed_by).write(tmp_path, "client") if name else (None, None)
            shown = ClientTls(trust_path=trust, certificate_path=certificate, key_path=key)
            assert await is_served(broker.port, **secure(shown)) is served, (name, signed_by)


@pytest.mark.mission("AC-09")
async def test_a_new_certificate_serves_the_next_connection_and_open_ones_live_on(tmp_path: Path) -> None:
    clock = ManualClock()
    texts = {**files(tmp_path), "tls.server.mode": "enforcing"}
    async with running_broker(tmp_path, clock, **texts) as broker:
        add_topic(broker, "T")
        options = secure(ClientTls(trust_path=str(tmp_path / "trust.pem")))
        async with RawPeer.connected(broker.port, **options) as before:
            first = before.writer.get_extra_info("ssl_object").getpeercert(True)
            files(tmp_path, "another server")
            clock.advance(WATCH_S)
            async with RawPeer.connected(broker.port, **options) as after:
                assert after.writer.get_extra_info("ssl_object").getpeercert(True) != first
            assert (await before.call(send_request("T"))).code == 0


@pytest.mark.mission("AC-09")
@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({}, "TLS is enforced"),
        ({"tls.server.certPath": "/nowhere.pem", "tls.server.keyPath": "/nowhere.key"}, "/nowhere.pem"),
    ],
)
async def test_enforcing_without_a_certificate_does_not_start(
    tmp_path: Path, texts: dict[str, object], named: str
) -> None:
    with pytest.raises(CometError, match=named):
        await Broker(broker_settings(tmp_path, **{"tls.server.mode": "enforcing"}, **texts)).start()


@pytest.mark.mission("AC-09")
async def test_a_broker_registers_with_an_enforcing_name_server_that_it_trusts(tmp_path: Path) -> None:
    own = files(tmp_path)
    texts = {key.replace(".", "_"): str(value) for key, value in own.items()}
    trust = str(tmp_path / "trust.pem")
    async with nameserver(tmp_path, tls_server_mode="enforcing", **texts) as names:
        outgoing = {"namesrvAddr": names.address, "tls.enable": True, "tls.client.trustCertPath": trust}
        async with (
            running_broker(tmp_path, **outgoing) as broker,
            RawPeer.connected(names.port, **secure(ClientTls(trust_path=trust))) as peer,
        ):
            add_topic(broker, "T")
            assert (await until_routed(peer, "T")).broker_datas[0].broker_name == "broker-a"


async def test_one_that_enforces_dials_with_tls_unless_told_otherwise(tmp_path: Path) -> None:
    own = {**files(tmp_path), "tls.server.mode": "enforcing"}
    for texts, expected in (({}, True), ({"tls.enable": False}, False)):
        seen: list[bytes] = []

        async def first_byte(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes] = seen
        ) -> None:
            seen.append(await reader.read(1))
            writer.close()

        listener = await asyncio.start_server(first_byte, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with running_broker(tmp_path, **own, **texts) as broker:
            with pytest.raises(CometError):
                await broker.rooms.replicas.client.call(f"127.0.0.1:{port}", send_request("T"), 5)
        assert (seen == [b"\x16"]) is expected
        listener.close()


async def test_signatures_and_tls_go_together(tmp_path: Path) -> None:
    texts = {**files(tmp_path), "tls.server.mode": "enforcing", "tls.enable": False, **SECURED}
    async with running_broker(tmp_path, **texts) as broker:
        add_topic(broker, "T")
        options = secure(ClientTls(trust_path=str(tmp_path / "trust.pem")))
        async with RawPeer.connected(broker.port, **options) as unsigned, signed_peer(broker) as plain:
            assert (await unsigned.call(send_request("T"))).code == 16
            with pytest.raises(CometError):
                await plain.send("T")


async def test_the_audit_log_names_the_certificate_of_who_changed_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trust = str(tmp_path / "trust.pem")
    texts = {**files(tmp_path), "tls.server.need.client.auth": "optional", "tls.server.trustCertPath": trust, **SECURED}
    async with running_broker(tmp_path, **texts) as broker:
        certificate, key = pair("operator").write(tmp_path, "operator")
        shown = ClientTls(trust_path=trust, certificate_path=certificate, key_path=key)
        making = request(Request.AUTH_CREATE_USER, {"username": "alice"}, b'{"password":"12345678"}')
        Signer(ROOT, password_of(ROOT)).before("", making)
        with caplog.at_level(logging.INFO):
            async with RawPeer.connected(broker.port, **secure(shown)) as peer:
                assert (await peer.call(making)).code == 0
    assert "certificate=commonName=operator" in caplog.text


async def test_tls_settings_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    own = files(tmp_path)
    file = tmp_path / "tls.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in own.items()) + "tls.server.mode=disabled\n")
    texts = {"tls.config.file": file, "tls.server.mode": "enforcing", "tls.server.certPath": "/elsewhere"}
    async with running_broker(tmp_path, **texts) as broker:
        add_topic(broker, "T")
        assert await is_served(broker.port, **secure(ClientTls(trust_path=str(tmp_path / "trust.pem"))))
    with pytest.raises(ConfigError, match=r"tls\.config\.file=/nowhere"):
        broker_settings(tmp_path, **{"tls.config.file": "/nowhere"})
