"""Checks a broker among those of its name: isolation, heartbeats, acting for the master and giving back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.broker.replicas.replica_group import starts_isolated
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock, uptime_ms
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import Limits
from cometmq.net.server import Server
from cometmq.wire.bodies import BrokerMemberGroup, BrokerMembers, KVTable, MessageQueue
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import BrokerHeartbeat, RegisterBroker
from tests.nameserver.support import nameserver
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, broker_settings, running_broker, stored
from tests.support.groups import follow_now, replica, running_group
from tests.support.net import until

ACTING: dict[str, object] = {"enableSlaveActingMaster": True}
TWO: dict[str, object] = {**ACTING, "totalReplicas": 2}
# Brokers tell that they are alive and look for others often, so that a test need not wait.
BRISK: dict[str, object] = {"brokerHeartbeatInterval": 100, "syncBrokerMemberGroupPeriod": 50}


class Witness:
    """Stands for a name server; keeps what brokers said. `members` None: it cannot tell."""

    def __init__(self) -> None:
        self.heard: list[Command] = []
        self.members: dict[int, str] | None = None
        self._server = Server(Dispatcher(self._take, Family("witness", 1000)), limits=Limits())

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> "AsyncIterator[Witness]":
        witness = cls()
        await witness._server.start("127.0.0.1", 0)
        try:
            yield witness
        finally:
            await witness._server.stop(0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def counts(self) -> Counter[int]:
        return Counter(command.code for command in self.heard)

    def _take(self, _: Connection, command: Command) -> Command:
        self.heard.append(command)
        if command.code != Request.GET_BROKER_MEMBER_GROUP:
            return reply(command)
        if self.members is None:
            return reply(command, Response.SYSTEM_ERROR, "not now")
        return reply(command, body=BrokerMemberGroup(BrokerMembers(self.members)).encode())


async def seconds(clock: ManualClock, count: int, witness: Witness, broker: Broker) -> None:
    """Let so many pass, one by one, each until what it began is done: a heartbeat has come."""
    for _ in range(count):
        before = witness.counts()[Request.BROKER_HEARTBEAT]
        await until(lambda: not broker.rooms.replicas.group._tasks, "what the last second began")
        clock.advance(1)
        await until(lambda: witness.counts()[Request.BROKER_HEARTBEAT] > before, "a heartbeat")  # noqa: B023


@pytest.mark.mission("BS-03")
def test_a_broker_whose_replicas_act_starts_isolated_and_beats_every_second(tmp_path: Path) -> None:
    async def isolated() -> None:
        clock = ManualClock()
        async with Witness.listening() as witness:
            settings = {"namesrvAddr": witness.address, **TWO}
            async with running_broker(tmp_path / "a", clock, **settings) as broker:
                await seconds(clock, 15, witness, broker)
                await until(lambda: witness.counts()[Request.GET_BROKER_MEMBER_GROUP] >= 15)
                counts = witness.counts()
                assert counts[Request.BROKER_HEARTBEAT] == 15
                assert counts[Request.REGISTER_BROKER] == 0
                assert not broker.rooms.replicas.leader_tasks.is_on
                beat = next(it for it in witness.heard if it.code == Request.BROKER_HEARTBEAT)
                assert BrokerHeartbeat.decode(beat.ext).heartbeat_timeout_ms == 10_000
                witness.members = {}
                await seconds(clock, 1, witness, broker)
                await until(lambda: witness.counts()[Request.REGISTER_BROKER], "registration")
                await until(lambda: broker.rooms.replicas.leader_tasks.is_on)
                asked = next(it for it in witness.heard if it.code == Request.REGISTER_BROKER)
                header = RegisterBroker.decode(asked.ext)
                assert (header.heartbeat_timeout_ms, header.enable_acting_master) == (10_000, True)

    async def at_once() -> None:
        async with Witness.listening() as witness:
            settings = {"namesrvAddr": witness.address, **TWO, "skipPreOnline": True}
            async with running_broker(tmp_path / "b", ManualClock(), **settings) as broker:
                assert witness.counts()[Request.REGISTER_BROKER] == 1
                assert broker.rooms.replicas.leader_tasks.is_on

    async def silent() -> None:
        own, theirs = ManualClock(), ManualClock()
        async with nameserver(tmp_path, theirs) as names:
            settings = {"namesrvAddr": names.address, **ACTING}
            async with running_broker(tmp_path / "c", own, **settings) as broker:
                key = (broker.settings.config.cluster_name, broker.address)
                for _ in range(20):
                    await until(lambda: not broker.rooms.replicas.group._tasks)
                    theirs.advance(1)
                    own.advance(1)
                    now_ms = names.state.now_ms()
                    await until(lambda: names.state.routes.presences[key].seen_ms == now_ms)  # noqa: B023
                theirs.advance(9)
                assert key in names.state.routes.presences
                theirs.advance(7)
                assert key not in names.state.routes.presences

    run(isolated())
    run(at_once())
    run(silent())


@asynccontextmanager
async def group_without_master(directory: Path, **settings: object) -> AsyncIterator[tuple[Broker, str]]:
    """A replica that acts since its master is gone, and the name server."""
    async with nameserver(directory) as names:
        common = {"namesrvAddr": names.address, **ACTING, **BRISK, **settings}
        async with running_broker(directory / "replica", **replica(**common)) as follower:
            async with running_broker(directory / "master", **common) as master, Peer.of(master) as peer:
                await until(lambda: follower.rooms.replicas.table_sync.rounds)
                add_topic(master, "TopicA", 2)
                for number in range(10):
                    await peer.send("TopicA", b"%d" % number)
                master.tables.offsets.commit("g", "TopicA", 0, 4, "")
                await until(lambda: follower.store.log.max_offset == master.store.log.max_offset)
                await follow_now(follower)
                assert follower.tables.offsets.query("g", "TopicA", 0) == 4
                assert not follower.rooms.replicas.group.is_acting
            await until(lambda: follower.rooms.replicas.group.is_acting, "the replica acts")
            yield follower, names.address


def test_a_replica_acts_while_its_master_is_away(tmp_path: Path) -> None:
    async def scene() -> None:
        async with group_without_master(tmp_path) as (acting, _), Peer.of(acting) as peer:
            await peer.heartbeat("g", topics={"TopicA": "*"})
            bodies = [message.body for message in await peer.pull_messages("TopicA", offset=4, group="g")]
            assert bodies == [b"%d" % number for number in range(4, 10)]
            committed = await peer.call(
                Request.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="TopicA", queueId=0, commitOffset=10
            )
            assert committed.code == 0
            assert acting.tables.offsets.query("g", "TopicA", 0) == 10
            queue = MessageQueue("broker-a", 0, "TopicA")
            assert acting.rooms.consume.queue_locks.lock("g", [queue], "client", uptime_ms(acting.clock)) == [queue]
            assert acting.rooms.delayed.timers.is_open
            refused = await peer.send("TopicA", b"here")
            assert refused.code == Response.SERVICE_NOT_AVAILABLE
            assert acting.store.queue_bounds("TopicA", 0) == (0, 10)

    run(scene(), timeout_s=60)


def test_a_master_that_comes_back_takes_over_what_its_replica_went_on_with(tmp_path: Path) -> None:
    async def scene() -> None:
        async with group_without_master(tmp_path, totalReplicas=2) as (acting, names):
            for offset in range(5, 11):
                acting.tables.offsets.commit("g", "TopicA", 0, offset, "")
            acting.tables.offsets.data_version = type(acting.tables.offsets.data_version)(counter=10**6, timestamp=1)
            acting.tables.delays.offsets[99] = 77  # a level that nobody delivers
            acting.tables.delays.confirm({99: 77})
            acting.tables.delays.version = acting.tables.offsets.data_version
            common = {"namesrvAddr": names, **TWO, **BRISK}
            async with running_broker(tmp_path / "master", **common) as master:
                assert master.rooms.replicas.registration.is_isolated
                await until(lambda: not master.rooms.replicas.registration.is_isolated, "the master is online")
                assert master.tables.offsets.query("g", "TopicA", 0) == 10
                assert master.tables.delays.offsets[99] == 77
                assert master.rooms.replicas.leader_tasks.is_on
                await until(lambda: not acting.rooms.replicas.group.is_acting, "the replica gives up")
                await until(lambda: acting.rooms.replicas.table_sync.master == master.address)
                assert not acting.rooms.delayed.timers.is_open
                async with Peer.of(master) as peer:
                    assert (await peer.send("TopicA", b"again")).code == 0
                await until(lambda: len(stored(acting, "TopicA")) == 11)

    run(scene(), timeout_s=60)


def test_pulls_wait_at_a_replica_without_master_and_are_sent_to_it_when_it_is_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with group_without_master(tmp_path) as (acting, names), Peer.of(acting) as peer:
            parked = asyncio.ensure_future(peer.pull("TopicA", offset=10, group="g", suspend_ms=20_000))
            await until(lambda: acting.rooms.consume.longpoll.count == 1)
            async with running_broker(tmp_path / "master", namesrvAddr=names, **ACTING, **BRISK):
                answer = await parked
                assert answer.code == Response.PULL_RETRY_IMMEDIATELY
                assert answer.ext["suggestWhichBrokerId"] == "0"

    run(scene(), timeout_s=60)


async def test_a_replica_sends_readers_to_its_master_unless_that_sent_them(tmp_path: Path) -> None:
    async with running_group(tmp_path) as group, Peer.of(group.master) as peer, Peer.of(group.replica) as other:
        await peer.send("TopicA", b"one")
        await until(lambda: group.is_even and group.replica.store.queue_bounds("TopicA", 0) == (0, 1))
        await follow_now(group.replica)
        for asked, active in ((peer, "true"), (other, "false")):
            figures = KVTable.decode((await asked.call(Request.GET_BROKER_RUNTIME_INFO)).body).table
            assert figures["brokerActive"] == active
        found = await other.pull("TopicA", group="g")
        assert (found.code, found.ext["suggestWhichBrokerId"]) == (0, "0")
        nothing = await other.pull("TopicA", offset=1, group="g", suspend_ms=20_000)
        assert (nothing.code, nothing.ext["suggestWhichBrokerId"]) == (Response.PULL_RETRY_IMMEDIATELY, "0")
        beyond = await other.pull("TopicA", offset=9, group="g")
        assert (beyond.code, beyond.ext["suggestWhichBrokerId"]) == (Response.PULL_RETRY_IMMEDIATELY, "0")


async def test_a_replica_that_cannot_begin_its_duties_tries_again(tmp_path: Path) -> None:
    async with nameserver(tmp_path) as names:
        common = {"namesrvAddr": names.address, **ACTING, **BRISK}
        async with running_broker(tmp_path / "replica", **replica(**common)) as alone:
            real, tries = alone.rooms.replicas.leader_tasks.open, []

            def fail_twice() -> None:
                tries.append(1)
                if len(tries) < 3:
                    raise OSError("no space for a wheel")
                real()

            alone.rooms.replicas.leader_tasks.open = fail_twice  # type: ignore[method-assign]
            await until(lambda: alone.rooms.replicas.group.is_acting)
            assert len(tries) == 3


async def test_a_master_that_is_silent_counts_as_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path / "replica", clock, **replica()) as alone:
        alone.rooms.replicas.table_sync.follow("127.0.0.1:3")
        seen = [alone.rooms.replicas.group.sees_master()]
        for _ in range(11):
            clock.advance(1)
            seen.append(alone.rooms.replicas.group.sees_master())
        assert (seen[0], seen[-1]) == (True, False)
        await until(lambda: alone.rooms.replicas.table_sync._running is None)


async def test_a_replica_that_has_a_master_is_not_led_away(tmp_path: Path) -> None:
    async with running_group(tmp_path, **ACTING, **BRISK) as group, Peer.of(group.replica) as stranger:
        follower = group.replica.rooms.replicas.replication.follower
        assert follower is not None
        await until(lambda: follower.is_connected)
        address = follower.address
        answer = await stranger.call(Request.EXCHANGE_BROKER_HA_INFO, masterHaAddress="127.0.0.1:1")
        assert answer.code == 0
        assert follower.address == address
        asked = await stranger.call(Request.EXCHANGE_BROKER_HA_INFO)
        assert "masterHaAddress" not in asked.ext
        async with Peer.of(group.master) as peer:
            told = await peer.call(Request.EXCHANGE_BROKER_HA_INFO)
            assert told.ext["masterHaAddress"] == address
            assert told.ext["masterAddress"] == group.master.address


def test_a_replica_may_be_asked_to_act_only_with_settings_that_fit(tmp_path: Path) -> None:
    assert starts_isolated(broker_settings(tmp_path, **replica(**TWO)).config)
    assert not starts_isolated(broker_settings(tmp_path, **replica(**ACTING)).config)
