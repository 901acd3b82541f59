"""PROXY headers: read, refused, and what a connection makes of them."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import WireError
from cometmq.net.client import Client
from cometmq.net.opening import Opening
from cometmq.net.proxy_protocol import SIGNATURE, V1_BYTES_MAX, read_header
from cometmq.net.tls import ClientTls, TlsSession, TlsSettings, client_context
from cometmq.wire.command import encode, request
from tests.net.test_tls import server_files
from tests.support.net import ECHO, RawPeer, asked, serving, until

Run = Callable[..., Any]

V1 = b"PROXY TCP4 192.0.2.1 192.0.2.9 56324 10911\r\n"


def field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + len(value).to_bytes(2, "big") + value


def v2(command: int = 1, family: int = 0x11, addresses: bytes | None = None, fields: bytes = b"") -> bytes:
    if addresses is None:
        addresses = bytes([192, 0, 2, 1, 192, 0, 2, 9]) + (56324).to_bytes(2, "big") + (10911).to_bytes(2, "big")
    rest = addresses + fields
    return SIGNATURE + bytes([0x20 | command, family]) + len(rest).to_bytes(2, "big") + rest


V2_IPV6 = v2(family=0x21, addresses=bytes(15) + b"\x01" + bytes(15) + b"\x02" + b"\x01\x00\x02\x00")


@pytest.mark.parametrize(
    ("data", "source", "destination"),
    [
        (V1, ("192.0.2.1", 56324), ("192.0.2.9", 10911)),
        (b"PROXY TCP6 ::1 2001:db8::2 1 2\r\n", ("::1", 1), ("2001:db8::2", 2)),
        (b"PROXY UNKNOWN\r\n", None, None),
        (b"PROXY UNKNOWN what ever this is\r\n", None, None),
        (v2(), ("192.0.2.1", 56324), ("192.0.2.9", 10911)),
        (V2_IPV6, ("::1", 256), ("::2", 512)),
        (v2(command=0), None, None),
        (v2(family=0x31, addresses=bytes(216)), None, None),
        (v2(family=0x00, addresses=b""), None, None),
    ],
)
def test_a_header_is_read_only_when_it_is_whole(
    data: bytes, source: tuple[str, int] | None, destination: tuple[str, int] | None
) -> None:
    for end in range(12, len(data)):
        assert read_header(data[:end]) is None
    header = read_header(data + b"frames follow")
    assert header is not None
    assert (header.size_bytes, header.source, header.destination) == (len(data), source, destination)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 56324\r\n", "not understood"),
        (b"PROXY TCP9 192.0.2.1 192.0.2.9 1 2\r\n", "not understood"),
        (b"PROXYTCP4 192.0.2.1 192.0.2.9 1 2 3\r\n", "not understood"),
        (b"PROXY TCP4 192.0.2.300 192.0.2.9 1 2\r\n", "bad address"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 1 70000\r\n", "bad address"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 1 -2\r\n", "bad address"),
        (b"PROXY " + b"x" * V1_BYTES_MAX, "does not end within"),
        (SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12), "version 1 command 1"),
        (SIGNATURE + b"\x22\x11\x00\x0c" + bytes(12), "version 2 command 2"),
        (v2(addresses=bytes(11)), "no room for its addresses"),
        (v2(fields=b"\x01\x00\x05abc"), "runs over the header"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(data: bytes, cause: str) -> None:
    with pytest.raises(WireError, match=cause):
        read_header(data)


def test_fields_with_ascii_values_are_kept_and_others_not() -> None:
    fields = field(0xEA, b"vpc-123") + field(0x01, b"\xff\xfe") + field(0x02, b"host.example") + field(0x04, b"")
    header = read_header(v2(fields=fields))
    assert header is not None
    assert header.attributes() == {
        "proxy_protocol_addr": "192.0.2.1",
        "proxy_protocol_port": "56324",
        "proxy_protocol_server_addr": "192.0.2.9",
        "proxy_protocol_server_port": "10911",
        "proxy_protocol_tlv_0xea": "vpc-123",
        "proxy_protocol_tlv_0x02": "host.example",
        "proxy_protocol_tlv_0x04": "",
    }


@pytest.mark.parametrize("data", [V1, v2(), V2_IPV6, b""], ids=["v1", "v2", "v2 IPv6", "none"])
def test_an_opening_fed_byte_by_byte_gives_what_follows(data: bytes) -> None:
    frame = encode(asked(ECHO))
    opening = Opening()
    out = b"".join(opening.feed(bytes([byte])) for byte in data + frame[:12])
    assert out == frame[:12]
    assert (opening.header is not None) == bool(data)


@pytest.mark.parametrize("header", [V1, v2(fields=field(0xEA, b"vpc-123"))], ids=["v1", "v2"])
@pytest.mark.parametrize("step", [1, 1000])
def test_the_header_names_the_peer_and_the_socket_keeps_its_own_address(run_on: Run, header: bytes, step: int) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            stream = header + encode(asked(ECHO, 3))
            for start in range(0, len(stream), step):
                peer.write(stream[start : start + step])
                await asyncio.sleep(0)
            assert (await peer.receive()).opaque == 3
            connection = server.connections[0]
            assert connection.peer_text == "192.0.2.1:56324"
            assert connection.peer == ("127.0.0.1", peer.local_port)
            assert connection.attributes["proxy_protocol_addr"] == "192.0.2.1"
            assert connection.attributes["proxy_protocol_server_port"] == "10911"

    run_on(main())


def test_without_a_header_the_peer_is_the_socket(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            await peer.call(asked(ECHO))
            connection = server.connections[0]
            assert connection.peer_text == f"127.0.0.1:{peer.local_port}"
            assert connection.local == ("127.0.0.1", server.port)
            assert connection.attributes == {}

    run_on(main())


def test_a_bad_header_closes_the_connection(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            peer.write(b"PROXY TCP4 nonsense\r\n" + encode(asked(ECHO)))
            assert await peer.is_cut()
            await until(lambda: not server.connections)

    run_on(main())


def test_tls_behind_a_header_is_recognised(run_on: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tls=TlsSettings("enforcing", **server_files(tmp_path))) as server:
            async with RawPeer.connected(server.port) as peer:
                session = TlsSession(client_context(ClientTls(verify=False)), server_side=False)
                session.feed(b"")
                peer.write(V1 + session.take())
                while not session.ready:
                    session.feed(await peer.reader.read(65536))
                    peer.write(session.take())
                session.write(encode(asked(ECHO, 9)))
                peer.write(session.take())
                plain = b""
                while not plain:
                    plain = session.feed(await peer.reader.read(65536))
                assert b'"opaque":9' in plain
                assert server.connections[0].peer_text == "192.0.2.1:56324"
            client = Client(tls=ClientTls(verify=False))
            assert (await client.call(f"127.0.0.1:{server.port}", request(ECHO), 5)).code == 0
            await client.stop()

    run_on(main())


def test_a_session_that_was_closed_by_its_peer_says_so(tmp_path: Path) -> None:
    files = server_files(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate_path"], files["key_path"])
    server, client = TlsSession(context, True), TlsSession(client_context(ClientTls(verify=False)), False)
    client.feed(b"")
    while not (server.ready and client.ready):
        server.feed(client.take())
        client.feed(server.take())
    client.write(b"x" * 100_000)
    assert server.feed(client.take()) == b"x" * 100_000
    client.close()
    assert server.feed(client.take()) == b""
    assert server.closed
