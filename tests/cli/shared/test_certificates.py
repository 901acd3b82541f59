"""Certificates that are made here: what they are good for, by OpenSSL's own judgement."""

import ssl
from pathlib import Path

import pytest

from cometmq.cli.shared import certificates
from cometmq.cli.shared.certificates import Pair
from cometmq.errors import ConfigError


def files(folder: Path, name: str, pair: Pair) -> tuple[str, str]:
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(pair.certificate)
    paths[1].write_bytes(pair.key)
    return str(paths[0]), str(paths[1])


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Both ends over memory; raises what a client or a server would."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def contexts(folder: Path, server: Pair, client: Pair, authority: Pair) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """As strict as OpenSSL can be; both show a certificate."""
    ca, _ = files(folder, "ca", authority)
    listening, dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    listening.verify_mode = ssl.CERT_REQUIRED
    for context, name, pair in ((listening, "server", server), (dialling, "client", client)):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(ca)
        context.load_cert_chain(*files(folder, name, pair))
    return listening, dialling


@pytest.mark.mission("AC-20")
def test_both_sides_take_each_other_by_every_name(tmp_path: Path) -> None:
    authority = certificates.make_authority("ours")
    server = certificates.make_server(authority, "server", ["mq.example.com", "*.mq.example", "10.0.0.5", "::1"], 10)
    client = certificates.make_client(authority, "client", 10)
    for host in ("mq.example.com", "a.mq.example", "10.0.0.5", "::1"):
        handshake(*contexts(tmp_path, server, client, authority), host)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|match"):
        handshake(*contexts(tmp_path, server, client, authority), "10.0.0.6")
    handshake(*contexts(tmp_path, server, server, authority), "10.0.0.5")  # a server dials another one


@pytest.mark.mission("AC-20")
def test_a_clients_pair_is_none_for_a_server_and_strangers_are_refused(tmp_path: Path) -> None:
    authority = certificates.make_authority("ours")
    server = certificates.make_server(authority, "server", ["localhost"], 10)
    client = certificates.make_client(authority, "client", 10)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*contexts(tmp_path, client, client, authority), "localhost")
    stranger = certificates.make_client(certificates.make_authority("ours"), "client", 10)
    with pytest.raises(ssl.SSLError):
        handshake(*contexts(tmp_path, server, stranger, authority), "localhost")


@pytest.mark.mission("AC-20")
@pytest.mark.parametrize(
    ("hosts", "days", "cause"),
    [
        (["bad host"], 10, "neither an IP address nor a host name"),
        (["x" * 300], 10, "neither an IP address nor a host name"),
        ([], 10, "0 hosts are given"),
        (["a"] * 101, 10, "101 hosts are given"),
        (["a"], 0, "for 0 days"),
        (["a"], 3651, "for 3651 days"),
    ],
)
def test_what_cannot_be_is_refused(hosts: list[str], days: int, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        certificates.make_server(certificates.make_authority("ours"), "server", hosts, days)


@pytest.mark.mission("AC-20")
def test_files_that_are_no_authority_are_refused_without_their_content() -> None:
    authority, other = certificates.make_authority("ours"), certificates.make_authority("other")
    for broken in (
        Pair(b"marker", authority.key),
        Pair(authority.certificate, b"marker"),
        Pair(authority.certificate, other.key),
    ):
        with pytest.raises(ConfigError) as refused:
            certificates.make_client(broken, "client", 10)
        assert "marker" not in str(refused.value)
    assert "PRIVATE" not in repr(authority)
