"""Telling name servers: when, what, and that one which fails costs the others nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.server import Server
from cometmq.wire.bodies import DataVersion, KVTable, RegisterBrokerBody
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply
from cometmq.wire.hashing import crc31
from cometmq.wire.headers import QueryDataVersionResponse, RegisterBroker
from tests.nameserver.support import nameserver, route
from tests.support.brokers import Peer, add_topic, running_broker, until_routed
from tests.support.net import RawPeer, until


class RecordingNames:
    """A name server that keeps what it is told, and can be slow, unfriendly or knowing."""

    def __init__(self) -> None:
        self.told: list[Command] = []
        self.code = 0
        self.ordered: dict[str, str] = {}
        self.known: DataVersion | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        dispatcher = Dispatcher(self._take, Family("names", 1000))
        self.server = Server(dispatcher)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def count(self, code: int) -> int:
        return sum(command.code == code for command in self.told)

    @property
    def registrations(self) -> list[set[str]]:
        """The topics of each, our own system topics left out."""
        bodies = [RegisterBrokerBody.decode(it.body) for it in self.told if it.code == Request.REGISTER_BROKER]
        return [{name for name in body.topics.topic_config_table if name.startswith("T_")} for body in bodies]

    async def _take(self, _: Connection, received: Command) -> Command:
        self.told.append(received)
        await self.may_answer.wait()
        if received.code == Request.QUERY_DATA_VERSION:
            changed = self.known != DataVersion.decode(received.body)
            return reply(received, ext=QueryDataVersionResponse(changed=changed).encode())
        body = KVTable(table=self.ordered).encode() if self.ordered else b""
        return reply(received, self.code, "no" if self.code else None, {}, body)


@asynccontextmanager
async def recording() -> AsyncIterator[RecordingNames]:
    names = RecordingNames()
    await names.server.start("127.0.0.1", 0)
    try:
        yield names
    finally:
        names.may_answer.set()
        await names.server.stop()


async def advance(clock: ManualClock, broker: Broker, names: RecordingNames, seconds: int) -> list[int]:
    """Second by second; in which seconds a registration came, by the name server's count."""
    came = []
    for second in range(1, seconds + 1):
        before = names.count(Request.REGISTER_BROKER)
        clock.advance(1)
        await broker.rooms.replicas.registration.reported()
        if names.count(Request.REGISTER_BROKER) > before:
            came.append(second)
    return came


@pytest.mark.mission("BS-02")
@pytest.mark.parametrize(
    ("settings", "at_start", "seconds"),
    [
        ({}, 1, [10, 40, 70, 100]),
        ({"registerNameServerPeriod": 1000}, 1, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]),
        ({"registerNameServerPeriod": 600_000}, 1, [10, 70]),
        ({"disappearTimeAfterStart": 60_000}, 0, [70, 100]),
    ],
)
async def test_registrations_come_at_the_start_and_by_the_clock(
    tmp_path: Path, settings: dict[str, object], at_start: int, seconds: list[int]
) -> None:
    clock = ManualClock()
    async with recording() as names:
        async with running_broker(tmp_path, clock, namesrvAddr=names.address, **settings) as broker:
            assert names.count(Request.REGISTER_BROKER) == at_start
            assert await advance(clock, broker, names, 100) == seconds
        assert names.told[-1].code == Request.UNREGISTER_BROKER


async def test_before_its_time_not_even_a_new_topic_makes_the_broker_known(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        recording() as names,
        running_broker(tmp_path, clock, namesrvAddr=names.address, disappearTimeAfterStart=60_000) as broker,
        Peer.of(broker) as peer,
    ):
        await peer.send("T_new")
        await broker.rooms.settled()
        assert names.told == []


@pytest.mark.mission("BS-02")
async def test_one_name_server_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    clock = ManualClock()
    async with recording() as dead, recording() as hanging, recording() as refusing, recording() as healthy:
        await dead.server.stop()
        hanging.may_answer.clear()
        refusing.code = 1
        addresses = ";".join(it.address for it in (dead, hanging, refusing, healthy))
        broker_task = asyncio.create_task(_serve_until(tmp_path, clock, addresses, stop := asyncio.Event()))
        await until(lambda: healthy.count(Request.REGISTER_BROKER) == 1)
        await until(lambda: hanging.count(Request.REGISTER_BROKER) == 1)
        clock.advance(25)  # the hanging one has had its 24 s
        await until(lambda: healthy.count(Request.REGISTER_BROKER) >= 2)
        clock.advance(30)
        await until(lambda: healthy.count(Request.REGISTER_BROKER) >= 3)
        await until(lambda: refusing.count(Request.REGISTER_BROKER) >= 3)
        hanging.may_answer.set()
        stop.set()
        await broker_task
        assert healthy.told[-1].code == Request.UNREGISTER_BROKER


async def _serve_until(directory: Path, clock: ManualClock, addresses: str, stop: asyncio.Event) -> None:
    async with running_broker(directory, clock, namesrvAddr=addresses):
        await stop.wait()


async def test_a_registration_says_who_where_and_what(tmp_path: Path) -> None:
    settings = {"brokerName": "b", "brokerClusterName": "c", "brokerIP2": "192.0.2.7"}
    async with (
        recording() as names,
        running_broker(tmp_path, namesrvAddr=names.address, **settings) as broker,
    ):
        (command,) = names.told
        header = RegisterBroker.decode(command.ext)
        assert (header.broker_name, header.cluster_name, header.broker_id) == ("b", "c", 0)
        assert header.broker_addr == broker.address == f"127.0.0.1:{broker.port}"
        assert header.ha_server_addr == f"192.0.2.7:{broker.port + 1}"
        assert header.body_crc32 == crc31(command.body)
        body = RegisterBrokerBody.decode(command.body)
        assert body.topics.topic_config_table == broker.tables.topics.table
        assert body.topics.data_version == broker.tables.topics.data_version


async def test_a_changed_topic_is_told_alone_and_a_deleted_one_by_telling_all(tmp_path: Path) -> None:
    async with recording() as names, running_broker(tmp_path, namesrvAddr=names.address) as broker:
        add_topic(broker, "T_a")
        await broker.rooms.replicas.registration.reported()
        add_topic(broker, "T_b")
        await broker.rooms.replicas.registration.reported()
        broker.tables.topics.delete("T_a")
        await broker.rooms.replicas.registration.reported()
        assert names.registrations == [set(), {"T_a"}, {"T_b"}, {"T_b"}]


async def test_what_changes_during_a_registration_is_gathered_for_one_more(tmp_path: Path) -> None:
    async with recording() as names, running_broker(tmp_path, namesrvAddr=names.address) as broker:
        names.may_answer.clear()
        for number in range(20):
            add_topic(broker, f"T_{number}")
            await asyncio.sleep(0)
        await until(lambda: names.count(Request.REGISTER_BROKER) == 2)
        names.may_answer.set()
        await broker.rooms.replicas.registration.reported()
        told = names.registrations[1:]
        assert len(told) == 2
        assert told[0] | told[1] == {f"T_{number}" for number in range(20)}


async def test_after_a_failure_the_whole_table_is_told(tmp_path: Path) -> None:
    """A name server that lost everything refuses a broker that begins with one topic."""
    async with recording() as names, running_broker(tmp_path, namesrvAddr=names.address) as broker:
        names.code = 1
        add_topic(broker, "T_a")
        await broker.rooms.replicas.registration.reported()
        names.code = 0
        add_topic(broker, "T_b")
        await broker.rooms.replicas.registration.reported()
        assert names.registrations == [set(), {"T_a"}, {"T_a", "T_b"}]


async def test_without_force_only_a_name_server_that_knows_another_version_is_told(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        recording() as names,
        running_broker(tmp_path, clock, namesrvAddr=names.address, forceRegister=False) as broker,
    ):
        assert (names.count(Request.QUERY_DATA_VERSION), names.count(Request.REGISTER_BROKER)) == (1, 1)
        names.known = broker.tables.topics.data_version
        assert await advance(clock, broker, names, 10) == []
        assert names.count(Request.QUERY_DATA_VERSION) == 2
        names.known = None
        assert await advance(clock, broker, names, 30) == [30]


async def test_topics_that_the_name_server_lists_as_ordered_become_ordered(tmp_path: Path) -> None:
    clock = ManualClock()
    async with recording() as names, running_broker(tmp_path, clock, namesrvAddr=names.address) as broker:
        add_topic(broker, "T_a")
        await broker.rooms.replicas.registration.reported()
        names.ordered = {"T_a": "broker-a:4"}
        await advance(clock, broker, names, 10)
        await until(lambda: broker.tables.topics.is_ordered("T_a"))
        await broker.rooms.replicas.registration.reported()
        assert names.registrations[-1] == {"T_a"}


async def test_a_broker_without_a_permission_has_no_topic_with_it(tmp_path: Path) -> None:
    async with recording() as names, running_broker(tmp_path, namesrvAddr=names.address) as broker:
        await broker.rooms.admin.changes.change(b"brokerPermission=4")
        await broker.rooms.replicas.registration.reported()
        body = RegisterBrokerBody.decode(names.told[-1].body)
        perms = {topic.perm for topic in body.topics.topic_config_table.values()}
        assert perms <= {0, 4}
        assert broker.tables.topics.table["TBW102"].perm == 7, "its own table is as it was"


async def test_a_name_server_that_was_away_knows_the_broker_after_the_next_registration(tmp_path: Path) -> None:
    clock = ManualClock()
    async with nameserver(tmp_path / "n1") as names:
        port = names.port
        broker_task = asyncio.create_task(_serve_until(tmp_path, clock, names.address, stop := asyncio.Event()))
        async with RawPeer.connected(port) as asking:
            await until_routed(asking, "TBW102")
    clock.advance(10)
    await asyncio.sleep(0.05)
    async with nameserver(tmp_path / "n2", listenPort=str(port)), RawPeer.connected(port) as asking:
        assert await route(asking, "TBW102") is None
        clock.advance(30)
        await until_routed(asking, "TBW102")
        stop.set()
        await broker_task
        assert await route(asking, "TBW102") is None, "a stop is told at once"
