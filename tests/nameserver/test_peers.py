"""What a name server says to others: notices to brokers, questions to an upstream name server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.settings import SettingError
from cometmq.wire.codes import Request
from cometmq.wire.command import Command
from cometmq.wire.frame import FrameSplitter
from tests.nameserver.support import asked, call, nameserver, register, route
from tests.support.aio import run
from tests.support.net import RawPeer, until


class Listener:
    """Stands where a broker listens and collects what it is told."""

    def __init__(self) -> None:
        self.address = ""
        self.received: list[Command] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> "AsyncIterator[Listener]":
        listener = cls()
        server = await asyncio.start_server(listener._read, "127.0.0.1", 0)
        listener.address = "{}:{}".format(*server.sockets[0].getsockname())
        async with server:
            yield listener

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = FrameSplitter()
        while data := await reader.read(65_536):
            self.received += splitter.feed(data)
        writer.close()


@pytest.mark.parametrize("enabled", [True, False])
async def test_members_are_told_of_a_new_smallest_id_if_that_is_switched_on(enabled: bool, tmp_path: Path) -> None:
    async with (
        nameserver(tmp_path, notifyMinBrokerIdChanged=str(enabled)) as server,
        Listener.opened() as replica,
        RawPeer.connected(server.port) as replica_link,
        RawPeer.connected(server.port) as master_link,
    ):
        acting = {"enable_acting_master": True}
        await register(replica_link, "A", "B", broker_addr=replica.address, broker_id=1, **acting)
        await register(master_link, "A", "B", broker_addr="10.0.0.1:1", ha_server_addr="10.0.0.1:2", **acting)
        if enabled:
            await until(lambda: len(replica.received) == 1, "the first notice")
            assert replica.received[0].ext == {
                "minBrokerId": "0",
                "minBrokerAddr": "10.0.0.1:1",
                "haBrokerAddr": "10.0.0.1:2",
            }
        await master_link.close()
        await until(lambda: len(server.connections) == 1, "the end of the master")
        if enabled:
            await until(lambda: len(replica.received) == 2, "the second notice")
            assert replica.received[1].ext == {
                "minBrokerId": "1",
                "minBrokerAddr": replica.address,
                "offlineBrokerAddr": "10.0.0.1:1",
            }
        assert all(it.is_oneway and it.code == 905 for it in replica.received)
        assert len(replica.received) == (2 if enabled else 0)


async def test_a_member_that_cannot_be_reached_does_no_harm(tmp_path: Path) -> None:
    switched_on = {"notifyMinBrokerIdChanged": "true"}
    async with nameserver(tmp_path, **switched_on) as server, RawPeer.connected(server.port) as peer:
        await register(peer, "A", "B", broker_addr="127.0.0.1:1", broker_id=1)
        await register(peer, "A", "B")
        assert await route(peer, "A") is not None


@pytest.mark.mission("NS-13")
async def test_a_test_environment_falls_back_on_production_for_routes_only(tmp_path: Path) -> None:
    async with nameserver(tmp_path / "up") as upstream, RawPeer.connected(upstream.port) as production:
        await register(production, "Production", "Both", broker_name="production")
        # The first upstream address cannot be reached, the second can.
        addresses = f"127.0.0.1:1;{upstream.address}"
        async with (
            nameserver(tmp_path / "test", clusterTest="true", rocketmq_namesrv_addr=addresses) as server,
            RawPeer.connected(server.port) as peer,
        ):
            await register(peer, "Test", "Both", broker_name="test", broker_addr="10.0.0.2:1")
            for topic, broker in [("Production", "production"), ("Test", "test"), ("Both", "test")]:
                found = await route(peer, topic)
                assert found is not None
                assert [data.broker_name for data in found.broker_datas] == [broker]
            assert await route(peer, "nowhere") is None
            bare = await peer.call(asked(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "Production"}, version=400))
            assert b"{0:" in bare.body
            answer = await call(peer, Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert answer.body == b'{"topicList":["Both","Test"]}'
        async with nameserver(tmp_path / "off") as off, RawPeer.connected(off.port) as peer:
            assert await route(peer, "Production") is None


@pytest.mark.mission("NS-13")
async def test_without_an_upstream_that_answers_an_unknown_topic_is_17(tmp_path: Path) -> None:
    unreachable = {"clusterTest": "true", "rocketmq_namesrv_addr": "127.0.0.1:1"}
    async with nameserver(tmp_path, **unreachable) as server, RawPeer.connected(server.port) as peer:
        assert await route(peer, "Production") is None


def test_falling_back_on_nobody_is_a_wrong_setting(tmp_path: Path) -> None:
    async def main() -> None:
        async with nameserver(tmp_path, clusterTest="true"):
            pass

    with pytest.raises(SettingError, match=r"rocketmq\.namesrv\.addr"):
        run(main())
