"""The port of replicas: who may copy the log."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from cometmq.broker.hosts import ha_port_of
from cometmq.broker.server import Broker
from cometmq.errors import CometError, ConfigError
from cometmq.store.replication import looking
from tests.support.access import SECURED, signed_peer
from tests.support.brokers import Peer, add_topic, broker_settings, running_broker
from tests.support.certificates import authority, pair
from tests.support.net import until

FROM_START = struct.pack(">q", 0)


def port_of(broker: Broker) -> int:
    return ha_port_of(broker.store.options, broker.port)


@pytest.mark.mission("AC-12")
@pytest.mark.parametrize(("allowed", "served"), [("", True), ("127.0.0.0/8, ::1", True), ("10.0.0.1", False)])
async def test_only_listed_addresses_may_copy_the_log(tmp_path: Path, allowed: str, served: bool) -> None:
    async with running_broker(tmp_path, **SECURED, haAllowedAddresses=allowed) as broker, signed_peer(broker) as root:
        add_topic(broker, "T")
        await root.send("T", b"secret")
        received = await copied(port_of(broker))
        assert (b"secret" in received) is served
        assert served or received == b""


async def test_a_replica_of_a_listed_address_follows(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", haAllowedAddresses="127.0.0.1") as master:
        texts = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{port_of(master)}"}
        async with running_broker(tmp_path / "r", **texts) as copy:
            async with signed_peer(master) as peer:
                await peer.send("T", b"copied")
            await until(lambda: copy.store.log.max_offset == master.store.log.max_offset > 0)


async def test_an_open_port_is_warned_of_and_a_bad_list_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with running_broker(tmp_path, **SECURED):
            pass
    assert "set haAllowedAddresses" in caplog.text
    with pytest.raises(ConfigError, match=r"haAllowedAddresses.*host.example"):
        await Broker(broker_settings(tmp_path, haAllowedAddresses="host.example")).start()


# TLS


def files(folder: Path, authority_name: str = "authority") -> dict[str, object]:
    certificate, key = pair("server", authority_name).write(folder, "server")
    (folder / "trust.pem").write_bytes(authority())
    return {"tls.server.certPath": certificate, "tls.server.keyPath": key}


def trusting(folder: Path) -> dict[str, object]:
    return {"tls.enable": True, "tls.client.trustCertPath": folder / "trust.pem"}


def replica_of(master: Broker, **texts: object) -> dict[str, object]:
    return {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{port_of(master)}", **texts}


class Line:
    """Between a replica and its master: sees the bytes that go to the master first, and keeps those that come."""

    def __init__(self, port: int) -> None:
        self.first = b""
        self.came = bytearray()
        self._target = port

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)

        async def down() -> None:
            while data := await there.read(1 << 16):
                self.came += data
                writer.write(data)
            writer.close()

        answering = asyncio.ensure_future(down())
        while data := await reader.read(1 << 16):
            self.first = self.first or data[:1]
            back.write(data)
        back.close()
        await answering


@pytest.mark.mission("AC-12")
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_replicas_of_this_make_copy_the_log_over_tls(tmp_path: Path, mode: str) -> None:
    own = files(tmp_path)
    async with running_broker(tmp_path / "m", **own, **{"tls.ha.mode": mode}) as master:
        line = Line(port_of(master))
        async with line.open() as port, Peer.of(master) as peer:
            texts = replica_of(master, haMasterAddress=f"127.0.0.1:{port}", **trusting(tmp_path))
            async with running_broker(tmp_path / "r", **texts, **{"tls.ha.mode": mode}) as copy:
                for number in range(20):
                    assert (await peer.send("T", b"secret" * 1000 + b"%d" % number)).code == 0
                await until(lambda: copy.store.log.max_offset == master.store.log.max_offset > 100_000)
                assert line.first == b"\x16"
                assert b"secret" not in line.came


@pytest.mark.mission("AC-12")
@pytest.mark.parametrize(("mode", "served"), [("disabled", True), ("permissive", True), ("enforcing", False)])
async def test_a_plain_replica_is_refused_where_tls_is_enforced(tmp_path: Path, mode: str, served: bool) -> None:
    async with running_broker(tmp_path, **files(tmp_path), **{"tls.ha.mode": mode}) as master, Peer.of(master) as peer:
        await peer.send("T", b"secret")
        received = await copied(port_of(master))
        assert (b"secret" in received) is served
        assert served or received == b""


async def copied(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    with suppress(ConnectionError):
        writer.write(FROM_START)
        while b"secret" not in received and (data := await reader.read(1 << 16)):
            received += data
    writer.close()
    return received


async def test_a_master_without_tls_is_followed_plain_unless_it_is_enforced(tmp_path: Path) -> None:
    files(tmp_path)
    async with running_broker(tmp_path / "m", **{"tls.ha.mode": "disabled"}) as master, Peer.of(master) as peer:
        await peer.send("T", b"copied")
        async with running_broker(tmp_path / "r", **replica_of(master, **trusting(tmp_path))) as copy:
            await until(lambda: copy.store.log.max_offset == master.store.log.max_offset > 0)
        enforced = replica_of(master, **trusting(tmp_path), **{"tls.ha.mode": "enforcing"})
        async with running_broker(tmp_path / "e", **enforced) as copy:
            follower = copy.rooms.replicas.replication.follower
            assert follower is not None
            await until(lambda: follower.failures.count)
            assert copy.store.log.max_offset == 0


async def test_a_master_with_another_certificate_is_not_followed_at_all(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m", **files(tmp_path, "another authority")) as master:
        async with Peer.of(master) as peer:
            await peer.send("T", b"copied")
        async with running_broker(tmp_path / "r", **replica_of(master, **trusting(tmp_path))) as copy:
            follower = copy.rooms.replicas.replication.follower
            assert follower is not None
            await until(lambda: follower.failures.count)
            assert copy.store.log.max_offset == 0


async def test_connections_that_say_nothing_have_a_bound_and_lock_nobody_out_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "OPENING_MAX", 2)
    monkeypatch.setattr(looking, "OPENING_S", 0.05)
    async with running_broker(tmp_path, **files(tmp_path)) as master, Peer.of(master) as peer:
        await peer.send("T", b"secret")
        silent = [await asyncio.open_connection("127.0.0.1", port_of(master)) for _ in range(5)]
        for reader, writer in silent:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        assert b"secret" in await copied(port_of(master))


@pytest.mark.parametrize("texts", [{}, {"brokerRole": "SLAVE", "brokerId": 1}])
async def test_enforcing_without_what_it_needs_does_not_start(tmp_path: Path, texts: dict[str, object]) -> None:
    with pytest.raises(CometError, match=r"TLS is enforced|tls\.enable=true"):
        await Broker(broker_settings(tmp_path, **texts, **{"tls.ha.mode": "enforcing"})).start()
