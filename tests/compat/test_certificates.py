"""Certificates of `cometmq tls` at RocketMQ's servers, and its client with them at ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq import Client, ClientTls
from cometmq.cli.shared import certificates
from cometmq.errors import CometError
from tests.compat.harness.java import QUICK
from tests.compat.harness.servers import JavaNameServer

pytestmark = pytest.mark.interop


@pytest.mark.mission("AC-20")
async def test_a_java_server_takes_the_pairs_and_asks_for_a_clients(jars: None, tmp_path: Path) -> None:
    authority = certificates.make_authority("ours")
    pairs = {
        "ca": authority,
        "server": certificates.make_server(authority, "server", ["127.0.0.1"], 10),
        "client": certificates.make_client(authority, "client", 10),
    }
    for name, pair in pairs.items():
        (tmp_path / f"{name}.pem").write_bytes(pair.certificate)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    settings = {
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": tmp_path / "server.pem",
        "tls.server.keyPath": tmp_path / "server.key",
        "tls.server.trustCertPath": tmp_path / "ca.pem",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
    }
    options = [option for option in QUICK if not option.startswith("-Dtls.")]
    options += [f"-D{key}={value}" for key, value in settings.items()]
    ours = ClientTls(
        trust_path=str(tmp_path / "ca.pem"),
        certificate_path=str(tmp_path / "client.pem"),
        key_path=str(tmp_path / "client.key"),
    )
    with JavaNameServer(tmp_path, options=options).start() as names:
        async with Client(names.address, tls=ours) as client, client.admin() as admin:
            assert "listenPort" in (await admin.name_server_config())[names.address]
        for stranger in (None, ClientTls(trust_path=str(tmp_path / "ca.pem"))):
            async with Client(names.address, tls=stranger) as client, client.admin() as admin:
                with pytest.raises(CometError):
                    await admin.brokers()
