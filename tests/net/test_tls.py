"""TLS on the same port: who is let in, who proves what, and files that change while the server runs."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.config import ServerConfig
from cometmq.errors import CometError, ConfigError, ConnectFailed
from cometmq.net.client import Client
from cometmq.net.limits import Limits
from cometmq.net.server import Server
from cometmq.net.tls import WATCH_S, ClientTls, TlsSettings, client_context
from cometmq.wire.command import request
from tests.net.test_connection import Events
from tests.support.certificates import authority, pair
from tests.support.net import ECHO, RawPeer, asked, echo_dispatcher, serving, until

Run = Callable[..., Any]


def server_files(folder: Path, name: str = "server") -> dict[str, str]:
    certificate, key = pair(name).write(folder, "server")
    return {"certificate_path": certificate, "key_path": key}


def trust_file(folder: Path, name: str = "authority") -> str:
    path = folder / f"{name}-trust.pem"
    path.write_bytes(authority(name))
    return str(path)


async def is_served(port: int, secure: bool) -> bool:
    """Whether a peer of this kind gets an answer; False if it is closed."""
    options: dict[str, Any] = {"ssl": client_context(ClientTls(verify=False)), "server_hostname": ""} if secure else {}
    try:
        async with RawPeer.connected(port, **options) as peer:
            return (await peer.call(asked(ECHO))).code == 0
    except (AssertionError, ConnectionError, ssl.SSLError):
        return False


# The table of the decision record: mode, whether there is a certificate, plain served, TLS served.
MATRIX = [
    ("disabled", True, True, False),
    ("permissive", True, True, True),
    ("permissive", False, True, False),
    ("enforcing", True, False, True),
    ("no such mode", True, True, True),
]


@pytest.mark.mission("RM-15")
@pytest.mark.parametrize(("mode", "with_files", "plain", "secure"), MATRIX)
def test_mode_and_first_byte_decide(
    run_on: Run,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    with_files: bool,
    plain: bool,
    secure: bool,
) -> None:
    async def main() -> None:
        settings = TlsSettings(mode, **(server_files(tmp_path) if with_files else {}))
        async with serving(tls=settings) as server:
            for _ in range(2):
                assert await is_served(server.port, secure=False) is plain
                assert await is_served(server.port, secure=True) is secure

    run_on(main())
    refusals = [record.message for record in caplog.records if "close connection" in record.message]
    assert bool(refusals) == (not plain or not secure)
    if mode == "disabled":
        assert "TLS is disabled" in refusals[0]


@pytest.mark.mission("RM-15")
def test_without_any_tls_settings_plain_is_served_and_tls_closed(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            assert await is_served(server.port, secure=False)
            assert not await is_served(server.port, secure=True)

    run_on(main())


@pytest.mark.mission("RM-15")
def test_a_context_that_cannot_be_built_is_logged_if_permissive_and_final_if_enforcing(
    run_on: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "server.pem").write_text("no certificate")
    files = {"certificate_path": str(tmp_path / "server.pem"), "key_path": str(tmp_path / "missing.key")}

    async def main() -> None:
        async with serving(tls=TlsSettings("permissive", **files)) as server:
            assert await is_served(server.port, secure=False)
            assert not await is_served(server.port, secure=True)
        with pytest.raises(CometError, match=r"TLS is enforced.*missing\.key"):
            await Server(echo_dispatcher(), tls=TlsSettings("enforcing", **files)).start("127.0.0.1", 0)

    with caplog.at_level(logging.WARNING, "cometmq.net.tls"):
        run_on(main())
    assert len([record for record in caplog.records if "skip tls mode=permissive" in record.message]) == 1


def test_client_and_server_talk_tls_with_large_bodies_both_ways(run_on: Run, tmp_path: Path) -> None:
    async def main() -> None:
        trust = trust_file(tmp_path)
        async with serving(tls=TlsSettings("enforcing", **server_files(tmp_path))) as server:
            events = Events()
            client = Client(tls=ClientTls(verify=True, trust_path=trust), events=events)
            address = f"127.0.0.1:{server.port}"
            for size in (0, 100, 3_000_000):
                assert len((await client.call(address, request(ECHO, body=bytes(size)), 5)).body) == size
            answers = await asyncio.gather(
                *(client.call(address, request(ECHO, body=bytes(50_000)), 5) for _ in range(50))
            )
            assert all(answer.body == bytes(50_000) for answer in answers)
            back = asyncio.ensure_future(server.connections[0].call(request(4242), 5))
            assert (await back).code == 3
            await client.stop()
            assert events.seen == ["connect", "close"]

    run_on(main())


def test_a_client_that_verifies_refuses_a_stranger(run_on: Run, tmp_path: Path) -> None:
    async def main() -> None:
        stranger = trust_file(tmp_path, "another authority")
        events = Events()
        async with serving(tls=TlsSettings("enforcing", **server_files(tmp_path))) as server:
            client = Client(tls=ClientTls(verify=True, trust_path=stranger), events=events)
            with pytest.raises(ConnectFailed, match="certificate verify failed"):
                await client.call(f"127.0.0.1:{server.port}", request(ECHO), 5)
            await client.stop()
        assert events.seen == [], "a connection that never was has no events"

    run_on(main())


@pytest.mark.parametrize(
    ("client_auth", "shows", "served"),
    [
        ("none", None, True),
        ("optional", None, True),
        ("optional", "authority", True),
        ("optional", "another authority", False),
        ("require", None, False),
        ("require", "authority", True),
    ],
)
def test_the_server_checks_the_certificate_of_its_client(
    run_on: Run, tmp_path: Path, client_auth: str, shows: str | None, served: bool
) -> None:
    async def main() -> None:
        settings = TlsSettings(
            "enforcing", trust_path=trust_file(tmp_path), client_auth=client_auth, **server_files(tmp_path)
        )
        certificate, key = pair("client", shows).write(tmp_path, "client") if shows else (None, None)
        async with serving(tls=settings) as server:
            client = Client(tls=ClientTls(verify=False, certificate_path=certificate, key_path=key))
            try:
                answered = (await client.call(f"127.0.0.1:{server.port}", request(ECHO), 5)).code == 0
            except CometError:
                answered = False
            assert answered is served
            await client.stop()

    run_on(main())


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        (TlsSettings("enforcing"), "certificate and key paths"),
        (TlsSettings("enforcing", client_auth="perhaps"), "client auth is 'perhaps'"),
        (TlsSettings("enforcing", client_auth="require"), "needs a trust file"),
        (TlsSettings("enforcing", "a", "b"), "certificate a with key b"),
    ],
)
def test_a_setting_at_fault_is_named(run_on: Run, settings: TlsSettings, cause: str) -> None:
    async def main() -> None:
        with pytest.raises(CometError, match=cause):
            await Server(echo_dispatcher(), tls=settings).start("127.0.0.1", 0)

    run_on(main())


# What a client takes. Safe is what nobody had to set.
TAKEN = [
    ({}, ("127.0.0.1",), "unable to get local issuer certificate"),
    ({"verify": False}, ("elsewhere.example",), ""),
    ({"trust": "authority"}, ("127.0.0.1",), ""),
    ({"trust": "authority"}, ("localhost",), "IP address mismatch"),
    ({"trust": "authority"}, ("elsewhere.example", "10.0.0.1"), "IP address mismatch"),
    ({"trust": "authority"}, (), "IP address mismatch"),
    ({"trust": "authority", "check_name": False}, ("elsewhere.example",), ""),
    ({"trust": "authority", "server_name": "mq.example"}, ("mq.example",), ""),
    ({"trust": "authority", "server_name": "a.mq.example"}, ("*.mq.example",), ""),
    ({"trust": "authority", "server_name": "mq.example"}, ("127.0.0.1", "localhost"), "Hostname mismatch"),
    ({"trust": "authority", "server_name": "10.0.0.1"}, ("10.0.0.1",), ""),
    ({"trust": "another authority", "check_name": False}, ("127.0.0.1",), "unable to get local issuer certificate"),
]


@pytest.mark.mission("RM-15")
@pytest.mark.parametrize(("given", "hosts", "refusal"), TAKEN)
def test_a_client_takes_only_a_server_that_proves_its_name(
    run_on: Run, tmp_path: Path, given: dict[str, Any], hosts: tuple[str, ...], refusal: str
) -> None:
    """Dialled is 127.0.0.1, as the addresses that a name server gives out are."""

    async def main() -> None:
        settings = dict(given)
        if trust := settings.pop("trust", None):
            settings["trust_path"] = trust_file(tmp_path, trust)
        certificate, key = pair("server", hosts=hosts).write(tmp_path, "server")
        async with serving(tls=TlsSettings("enforcing", certificate, key)) as server:
            client = Client(tls=ClientTls(**settings))
            address = f"127.0.0.1:{server.port}"
            try:
                if not refusal:
                    assert (await client.call(address, request(ECHO), 5)).code == 0
                    return
                with pytest.raises(ConnectFailed, match=refusal) as caught:
                    await client.call(address, request(ECHO), 5)
            finally:
                await client.stop()
            assert address in str(caught.value)
            fix = "server_name" if "mismatch" in refusal else "trust_path"
            assert fix in str(caught.value)
            assert ("check_name=False" if "mismatch" in refusal else "verify=False") in str(caught.value)

    run_on(main())


def test_the_host_name_that_is_dialled_is_the_one_that_is_compared(run_on: Run, tmp_path: Path) -> None:
    async def main() -> None:
        trust = trust_file(tmp_path)
        for hosts, served in ((("localhost",), True), (("127.0.0.1",), False)):
            certificate, key = pair("server", hosts=hosts).write(tmp_path, "server")
            async with serving(tls=TlsSettings("enforcing", certificate, key)) as server:
                client = Client(tls=ClientTls(trust_path=trust))
                dialled = client.call(f"localhost:{server.port}", request(ECHO), 5)
                if served:
                    assert (await dialled).code == 0
                else:
                    with pytest.raises(ConnectFailed, match="localhost in its subjectAltName"):
                        await dialled
                await client.stop()

    run_on(main())


def test_the_authorities_of_the_system_are_trusted_where_no_file_is_given(
    run_on: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(tls=TlsSettings("enforcing", **server_files(tmp_path))) as server:
            client = Client(tls=ClientTls())
            assert (await client.call(f"127.0.0.1:{server.port}", request(ECHO), 5)).code == 0
            await client.stop()

    monkeypatch.setenv("SSL_CERT_FILE", trust_file(tmp_path))
    run_on(main())


def test_a_server_that_speaks_no_tls_is_named_as_such(run_on: Run) -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"220 some other protocol\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = Client(tls=ClientTls(verify=False))
        with pytest.raises(ConnectFailed, match="does not speak TLS"):
            await client.call(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", request(ECHO), 5)
        await client.stop()
        server.close()
        await server.wait_closed()

    run_on(main())


def test_rocketmqs_names_are_taken_and_leave_out_nothing_that_is_safe() -> None:
    assert ClientTls.of({}) is None
    assert ClientTls.of({"tls.enable": "false", "tls.client.authServer": "true"}) is None
    assert ClientTls.of({"tls.enable": "true"}) == ClientTls(verify=True, check_name=True)
    assert ClientTls.of({"tls.enable": "TRUE", "tls.client.authServer": "false"}) == ClientTls(verify=False)
    whole = {
        "tls.enable": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": "ca.pem",
        "tls.client.certPath": "c.pem", "tls.client.keyPath": "c.key", "tls.client.keyPassword": "pw",
        "tls.client.checkName": "true", "tls.client.serverName": "mq.example",
    }  # fmt: skip
    assert ClientTls.of(whole) == ClientTls(True, "ca.pem", "c.pem", "c.key", "pw", True, "mq.example")
    with pytest.raises(CometError, match=r"tls.client.authServer is 'maybe': it is true or false"):
        ClientTls.of({"tls.enable": "true", "tls.client.authServer": "maybe"})


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        (ClientTls(trust_path="nowhere"), "trust file nowhere does not load"),
        (ClientTls(certificate_path="c.pem"), "belong together"),
        (ClientTls(verify=False, server_name="mq"), "no name is compared"),
        (ClientTls(check_name=False, server_name="mq"), "no name is compared"),
    ],
)
def test_a_setting_of_a_client_at_fault_is_named(settings: ClientTls, cause: str) -> None:
    with pytest.raises(CometError, match=cause):
        Client(tls=settings)


def test_a_client_that_verifies_nothing_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "cometmq.net.tls"):
        client_context(ClientTls(check_name=True))
        assert not caplog.records
        client_context(ClientTls(verify=False))
    assert ["skip verification" in record.message for record in caplog.records] == [True]


def test_a_password_may_be_in_a_file_that_the_setting_names(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("marker\n")
    named = f"@{tmp_path}/password"
    config = ServerConfig(tls_key_password=named, tls_mode="enforcing", tls_outgoing_key_password=named)
    outgoing = ClientTls.of_server(config)
    assert outgoing is not None
    assert TlsSettings.of(config).key_password == outgoing.key_password == "marker"
    with pytest.raises(ConfigError, match=r"tls.client.keyPassword: cannot read"):
        ClientTls.of({"tls.enable": "true", "tls.client.keyPassword": f"@{tmp_path}/none"})


def test_secrets_are_not_in_the_text_of_settings() -> None:
    assert "secret" not in repr(TlsSettings(key_password="secret"))
    assert "secret" not in repr(ClientTls(key_password="secret"))


def replace(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)


def certificate_of(port: int) -> bytes:
    """What the server shows to a new connection, read with blocking calls outside of the loop."""
    context = client_context(ClientTls(verify=False))
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secure:
        shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return shown


@pytest.mark.mission("NS-12")
def test_a_replaced_pair_is_shown_to_new_connections_and_a_key_alone_changes_nothing(
    run_on: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = pair("old"), pair("new")
    old_der, new_der = (ssl.PEM_cert_to_DER_cert(each.certificate.decode()) for each in (old, new))

    async def main() -> None:
        clock = ManualClock()
        certificate, key = old.write(tmp_path, "server")
        settings = TlsSettings("permissive", certificate, key)
        async with serving(tls=settings, clock=clock) as server:
            options: dict[str, Any] = {"ssl": client_context(ClientTls(verify=False)), "server_hostname": ""}
            async with RawPeer.connected(server.port, **options) as living:
                assert await asyncio.to_thread(certificate_of, server.port) == old_der

                replace(key, new.key)
                clock.advance(10 * WATCH_S)
                assert "tls context" not in caplog.text, "it is not even tried"
                assert await asyncio.to_thread(certificate_of, server.port) == old_der

                replace(certificate, new.certificate)
                clock.advance(WATCH_S)
                assert await asyncio.to_thread(certificate_of, server.port) == new_der
                assert (await living.call(asked(ECHO))).code == 0
                assert living.writer.get_extra_info("ssl_object").getpeercert(True) == old_der

    run_on(main())


@pytest.mark.mission("NS-12")
def test_a_changed_trust_file_alone_reloads(run_on: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        trust = tmp_path / "trust.pem"
        trust.write_bytes(authority("another authority"))
        settings = TlsSettings("enforcing", trust_path=str(trust), client_auth="require", **server_files(tmp_path))
        certificate, key = pair("client").write(tmp_path, "client")
        async with serving(tls=settings, clock=clock) as server:
            client = Client(tls=ClientTls(verify=False, certificate_path=certificate, key_path=key))
            address = f"127.0.0.1:{server.port}"
            with pytest.raises(CometError):
                await client.call(address, request(ECHO), 5)
            trust.write_bytes(authority())
            clock.advance(WATCH_S)
            assert (await client.call(address, request(ECHO), 5)).code == 0
            await client.stop()

    run_on(main())


@pytest.mark.mission("NS-12")
def test_a_pair_that_does_not_load_leaves_the_old_one_in_use(
    run_on: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = pair("old"), pair("new")
    new_der = ssl.PEM_cert_to_DER_cert(new.certificate.decode())

    async def main() -> None:
        clock = ManualClock()
        certificate, key = old.write(tmp_path, "server")
        async with serving(tls=TlsSettings("enforcing", certificate, key), clock=clock) as server:
            replace(certificate, new.certificate)
            replace(key, new.key[:40])
            clock.advance(WATCH_S)
            assert await asyncio.to_thread(certificate_of, server.port) != new_der
            os.unlink(certificate)
            clock.advance(WATCH_S)
            assert await asyncio.to_thread(certificate_of, server.port) != new_der
            new.write(tmp_path, "server")
            clock.advance(WATCH_S)
            assert await asyncio.to_thread(certificate_of, server.port) == new_der

    with caplog.at_level(logging.INFO, "cometmq.net.tls"):
        run_on(main())
    lines = [record.message.split(" cause")[0].split(" files")[0] for record in caplog.records]
    assert [line for line in lines if "tls" in line and "listen" not in line] == ["keep tls context", "reload tls"]


def test_a_handshake_that_does_not_get_on_is_cut(run_on: Run, tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        settings = TlsSettings("permissive", **server_files(tmp_path))
        async with (
            serving(tls=settings, clock=clock, limits=Limits(opening_s=10)) as server,
            RawPeer.connected(server.port) as slow,
            RawPeer.connected(server.port) as slower,
            RawPeer.connected(server.port) as silent,
        ):
            slow.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00")
            slower.write(b"\x16")
            await until(lambda: sum(c._opening_since_s >= 0 for c in server.connections) == 2)
            clock.advance(9)
            assert len(server.connections) == 3
            clock.advance(3)
            assert await slow.is_cut()
            assert await slower.is_cut()
            assert (await silent.call(asked(ECHO))).code == 0, "who sent nothing has time until idle_s"

    run_on(main())


def test_garbage_inside_tls_closes_the_connection(run_on: Run, tmp_path: Path) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"ssl": client_context(ClientTls(verify=False)), "server_hostname": ""}
        async with serving(tls=TlsSettings("permissive", **server_files(tmp_path))) as server:
            async with RawPeer.connected(server.port, **options) as peer:
                peer.write(b"\xff" * 100)
                assert await peer.is_cut()
            async with RawPeer.connected(server.port) as peer:
                peer.write(b"\x16\x03\x01\x00\x05hello and more that is no hello")
                await peer.reader.read()
            await until(lambda: not server.connections)

    run_on(main())
