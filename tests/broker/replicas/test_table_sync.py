"""Checks what a replica takes over from its master besides the log, and when."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.broker.replicas.table_sync import EVERYTHING_S, PROGRESS_S
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.names import SCHEDULE_TOPIC
from cometmq.settings import SettingError
from cometmq.store.timers import following as timerfollowing
from cometmq.store.timers.progress import TimerProgress
from cometmq.wire.bodies import MessageRequestMode, SubscriptionGroupConfig, TopicConfig
from cometmq.wire.codes import Request, Response
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, broker_settings, running_broker, stored
from tests.support.groups import follow_now, replica, running_group
from tests.support.net import until


async def test_a_replica_registers_with_its_id_and_finds_its_master(tmp_path: Path) -> None:
    async with running_group(tmp_path) as group:
        known = group.names.state.routes.brokers["broker-a"]
        assert known.addresses == {0: group.master.address, 1: group.replica.address}
        assert group.replica.rooms.replicas.table_sync.master == group.master.address
        follower = group.replica.rooms.replicas.replication.follower
        assert follower is not None
        await until(lambda: follower.is_connected)


async def test_topics_groups_offsets_and_delays_are_those_of_the_master(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m") as master, Peer.of(master) as peer:
        add_topic(master, "TopicA", 7)
        master.tables.groups.update([SubscriptionGroupConfig(group_name="g", retry_max_times=3)])
        master.tables.groups.allow_reading("g", "TopicB", False)
        for number in range(10):
            await peer.send("TopicA", b"%d" % number)
        master.tables.offsets.commit("g", "TopicA", 0, 6, "")
        master.tables.request_modes.set(MessageRequestMode("g", "POP", 0, "TopicA"))
        await peer.send("TopicA", b"later", properties={"DELAY": "1"})
        master.tables.delays.offsets[1] = 1
        master.tables.delays.confirm({1: 1})
        async with following(tmp_path / "r", master) as copy:
            await until(lambda: copy.tables.offsets.query("g", "TopicA", 0) == 6)
            assert copy.tables.topics.table == master.tables.topics.table
            assert copy.tables.topics.data_version == master.tables.topics.data_version
            assert copy.tables.groups.table == master.tables.groups.table
            assert copy.tables.groups.forbidden == master.tables.groups.forbidden
            assert copy.tables.delays.offsets == {1: 1}
            assert copy.tables.request_modes.table == master.tables.request_modes.table
            await copy.rooms.settled()
        restarted = Broker(broker_settings(tmp_path / "r", **replica()))
        restarted.load_tables()
        assert restarted.tables.topics.table == master.tables.topics.table
        assert restarted.tables.offsets.query("g", "TopicA", 0) == 6


def ha_address(master: Broker) -> str:
    assert master.rooms.replicas.replication.listener is not None
    return f"127.0.0.1:{master.rooms.replicas.replication.listener.port}"


@asynccontextmanager
async def following(directory: Path, master: Broker, clock: ManualClock | None = None) -> AsyncIterator[Broker]:
    """A replica that was told its master, without a name server."""
    async with running_broker(directory, clock, **replica(haMasterAddress=ha_address(master))) as broker:
        broker.rooms.replicas.table_sync.follow(master.address)
        yield broker


async def test_offsets_wait_for_the_log_they_speak_of(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m") as master, Peer.of(master) as peer:
        for number in range(10):
            await peer.send("TopicA", b"%d" % number)
        master.tables.offsets.commit("g", "TopicA", 0, 10, "")
        async with following(tmp_path / "r", master) as copy:
            assert copy.rooms.replicas.replication.follower is not None
            copy.rooms.replicas.replication.follower.follow("")  # the link is cut before anything came
            await until(lambda: copy.rooms.replicas.table_sync.rounds)
            assert copy.tables.topics.get("TopicA") is not None
            assert copy.rooms.replicas.table_sync.waiting
            assert copy.tables.offsets.query("g", "TopicA", 0) == -1
            copy.rooms.replicas.replication.follower.follow(ha_address(master))
            await until(lambda: copy.tables.offsets.query("g", "TopicA", 0) == 10)
            assert copy.store.log.max_offset == master.store.log.max_offset
            assert not copy.rooms.replicas.table_sync.waiting


async def test_progress_is_asked_for_every_3_s_and_everything_every_60_s(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        running_broker(tmp_path / "m") as master,
        following(tmp_path / "r", master, clock) as copy,
    ):
        await until(lambda: copy.rooms.replicas.table_sync.rounds == 1)
        await until(lambda: not copy.rooms.replicas.table_sync._running)
        add_topic(master, "New")
        for second in range(int(EVERYTHING_S + PROGRESS_S)):
            clock.advance(1)
            await until(lambda: not copy.rooms.replicas.table_sync._running)
            assert second + 1 >= EVERYTHING_S or copy.tables.topics.get("New") is None, f"after {second + 1} s"
        assert copy.tables.topics.get("New") is not None
        assert copy.rooms.replicas.table_sync.rounds == pytest.approx(1 + EVERYTHING_S / PROGRESS_S, abs=2)


async def test_a_message_can_be_read_at_the_replica_whose_master_dies_with_the_table(tmp_path: Path) -> None:
    """Its master cannot be asked any more, and was asked before it had the topic, or the queue."""
    async with (
        running_broker(tmp_path / "m") as master,
        Peer.of(master) as peer,
        following(tmp_path / "r", master) as copy,
        Peer.of(copy) as reader,
    ):
        await peer.send("Old")
        await until(lambda: copy.tables.topics.data_version == master.tables.topics.data_version)
        copy.rooms.replicas.table_sync.follow(None)
        await until(lambda: not copy.rooms.replicas.table_sync._running)
        assert (await peer.send("New", b"new", queue_id=2)).code == 0
        add_topic(master, "Old", 8)
        assert (await peer.send("Old", b"late", queue_id=7)).code == 0
        await until(lambda: len(stored(copy, "Old", 7)) == 1)
        assert [it.body for it in await reader.pull_messages("New", 2)] == [b"new"]
        assert [it.body for it in await reader.pull_messages("Old", 7)] == [b"late"]
        await copy.rooms.settled()
        saved = json.loads((tmp_path / "r/store/config/topics.json").read_bytes())["topicConfigTable"]
        assert (saved["New"]["readQueueNums"], saved["Old"]["readQueueNums"]) == (3, 8)


async def test_a_topic_that_the_log_brings_is_asked_for_soon_and_once(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        Peer.of(master) as peer,
        following(tmp_path / "r", master) as copy,
    ):
        await until(lambda: copy.rooms.replicas.table_sync.rounds == 1 and not copy.rooms.replicas.table_sync._running)
        await peer.send("New", b"first")
        await until(lambda: copy.tables.topics.get("New") is not None)
        assert [message.body for message in stored(copy, "New")] == [b"first"]
        await until(lambda: copy.tables.topics.data_version == master.tables.topics.data_version)
        await until(lambda: not copy.rooms.replicas.table_sync._running)
        asked_s = copy.rooms.replicas.table_sync._everything_s
        copy.rooms.replicas.table_sync.met("New")
        assert copy.rooms.replicas.table_sync._everything_s == asked_s > 0


async def test_a_table_of_many_pages_is_read_whole(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m") as master:
        names = [f"Many{number:05d}" for number in range(2_500)]
        master.tables.topics.update([TopicConfig(topic_name=name, read_queue_nums=1) for name in names])
        async with following(tmp_path / "r", master) as copy:
            await until(lambda: copy.tables.topics.data_version == master.tables.topics.data_version)
            assert copy.tables.topics.table.keys() == master.tables.topics.table.keys()


def test_timers_go_on_on_the_replica_where_the_master_was(tmp_path: Path) -> None:
    """What is delivered is not delivered again by a replica that is made the master, and nothing else is lost."""

    async def scene() -> None:
        clock = ManualClock()
        async with running_broker(tmp_path / "m", clock) as master, Peer.of(master) as peer:
            for seconds in (5, 60):
                answer = await peer.send("TopicA", b"%d" % seconds, properties={"TIMER_DELAY_SEC": str(seconds)})
                assert answer.code == 0, answer.remark
            async with following(tmp_path / "r", master) as copy:
                for _ in range(30):
                    clock.advance(0.5)
                    await asyncio.sleep(0)
                await until(lambda: stored(master, "TopicA"))
                check = master.rooms.delayed.timers.files.check
                await moving(clock, lambda: check.saved.read_ms > clock.now_ms() - 9_000)
                progress = check.saved
                await until(lambda: stored(copy, "TopicA"))
                await follow_now(copy)
                await until(lambda: _noted(copy).read_ms >= progress.read_ms)
                assert _noted(copy).queue_offset == 0
                assert _noted(copy).master_queue_offset == 2
            async with running_broker(tmp_path / "r", clock) as heir:  # by configuration: it is a master now
                for _ in range(30):
                    clock.advance(0.5)
                    await asyncio.sleep(0)
                assert heir.rooms.delayed.timers.pending == 1
                assert [message.body for message in stored(heir, "TopicA")] == [b"5"]
                clock.advance(60)
                await moving(clock, lambda: len(stored(heir, "TopicA")) == 2)
                assert [message.body for message in stored(heir, "TopicA")] == [b"5", b"60"]

    run(scene(), timeout_s=60)


async def moving(clock: ManualClock, done: Callable[[], bool]) -> None:
    def step() -> bool:
        clock.advance(0.2)
        return done()

    await until(step)


def _noted(broker: Broker) -> TimerProgress:
    return timerfollowing.noted(broker.disk, broker.store.options)


@pytest.mark.mission("HA-08")
async def test_a_replica_takes_no_message_and_builds_its_queues_itself(tmp_path: Path) -> None:
    async with running_group(tmp_path) as group, Peer.of(group.master) as peer, Peer.of(group.replica) as other:
        for number in range(40):
            properties = {"KEYS": f"k{number}", "TAGS": f"t{number % 3}"}
            assert (await peer.send("TopicA", b"%d" % number, queue_id=number % 4, properties=properties)).code == 0
        await peer.send("TopicA", b"later", properties={"DELAY": "3"})
        await until(lambda: group.is_even and not group.replica.store.dispatcher.behind_bytes)
        before = group.replica.store.log.max_offset

        refused = await other.send("TopicA", b"here")
        assert refused.code == Response.SYSTEM_BUSY
        assert (refused.remark or "").startswith("[REJECTREQUEST]")
        end = await other.call(
            Request.END_TRANSACTION, producerGroup="p", tranStateTableOffset=0, commitLogOffset=0,
            commitOrRollback=8, fromTransactionCheck="false", msgId="m", transactionId="t", topic="TopicA",
        )  # fmt: skip
        assert end.code == Response.SLAVE_NOT_AVAILABLE
        assert group.replica.store.log.max_offset == before

        for topic, queues in (("TopicA", range(4)), (SCHEDULE_TOPIC, range(3))):
            for queue_id in queues:
                theirs = group.master.store.queue_entries(topic, queue_id, 0, 100)
                assert group.replica.store.queue_entries(topic, queue_id, 0, 100) == theirs
        assert len(group.replica.store.queue_entries("TopicA", 0, 0, 100)) == 10
        assert group.replica.rooms.shared.stats.messages()[0] == group.master.rooms.shared.stats.messages()[0] == 40
        found = await other.call(
            Request.QUERY_MESSAGE, topic="TopicA", key="k7", maxNum=10, beginTimestamp=0, endTimestamp=1 << 60
        )
        assert found.code == 0, found.remark
        assert b"k7" in found.body


def test_an_id_fits_its_role(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="brokerId above 0"):
        broker_settings(tmp_path, brokerRole="SLAVE")
    assert broker_settings(tmp_path, brokerId=3).config.broker_id == 0
