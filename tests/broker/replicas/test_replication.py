"""Checks a master and its replicas as whole brokers in this process, over real sockets."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cometmq.broker.admin import settings as live
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.errors import StoreError
from cometmq.settings import SettingError
from cometmq.wire.bodies import HaStatus
from cometmq.wire.codes import Request, Response
from tests.support.aio import run, settle
from tests.support.brokers import Peer, broker_settings, running_broker, stored
from tests.support.net import until


def log_bytes(broker: Broker) -> bytes:
    return b"".join(bytes(segment.view()[: segment.wrote]) for segment in broker.store.segments.segments)


def replica_of(master: Broker, number: int = 1, **settings: Any) -> dict[str, Any]:
    assert master.rooms.replicas.replication.listener is not None
    address = f"127.0.0.1:{master.rooms.replicas.replication.listener.port}"
    return {"brokerRole": "SLAVE", "brokerId": number, "haMasterAddress": address, **settings}


class Replica:
    """A replica that says what the test wants and reads nothing."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def of(cls, master: Broker, offset: int = 0) -> "AsyncIterator[Replica]":
        listener = master.rooms.replicas.replication.listener
        assert listener is not None
        before = len(listener.master.links)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        replica = cls(writer)
        replica.report(offset)
        await until(lambda: len(listener.master.links) > before and listener.master.links[-1].acked_offset == offset)
        try:
            yield replica
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def report(self, offset: int) -> None:
        self._writer.write(struct.pack(">q", offset))


async def status_of(peer: Peer) -> HaStatus:
    return HaStatus.decode((await peer.call(Request.GET_BROKER_HA_STATUS)).body)


# The log


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_replica_has_the_bytes_of_its_master(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        async with running_broker(tmp_path / "m") as master, Peer.of(master) as peer:
            for number in range(50):
                await peer.send("TopicA", f"before {number}".encode())
            async with running_broker(tmp_path / "r", **replica_of(master)) as replica:
                for number in range(50):
                    assert (await peer.send("TopicA", f"after {number}".encode())).code == 0
                await until(lambda: replica.store.log.max_offset == master.store.log.max_offset)
                assert log_bytes(replica) == log_bytes(master)
                await until(lambda: replica.store.queue_bounds("TopicA", 0) == (0, 100))

    run(scene(), loop_factory=loop)


@pytest.mark.mission("HA-04")
async def test_a_replica_catches_up_with_a_restarted_master_without_help(tmp_path: Path) -> None:
    clock = ManualClock()  # of the replica, which waits 5 s before it tries again
    async with running_broker(tmp_path / "m") as master:
        ports = {"listenPort": master.port}
        settings = replica_of(master)
        replica = Broker(broker_settings(tmp_path / "r", **settings), clock)
        await replica.start()
        clock.advance(0)
        async with Peer.of(master) as peer:
            await peer.send("TopicA", b"before")
            await until(lambda: replica.store.log.max_offset == master.store.log.max_offset > 0)
    assert replica.rooms.replicas.replication.follower is not None
    follower = replica.rooms.replicas.replication.follower
    await until(lambda: not follower.is_connected)
    async with running_broker(tmp_path / "m", **ports) as master, Peer.of(master) as peer:
        await peer.send("TopicA", b"after")
        clock.advance(4.9)
        await settle()
        assert not follower.is_connected
        clock.advance(0.1)
        await until(lambda: replica.store.log.max_offset == master.store.log.max_offset)
        assert log_bytes(replica) == log_bytes(master)
        assert [message.body for message in stored(replica, "TopicA")] == [b"before", b"after"]
        await replica.stop()


async def test_a_stopping_master_gives_its_replica_the_last_message(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "m") as master,
        running_broker(tmp_path / "r", **replica_of(master)) as replica,
        Peer.of(master) as peer,
    ):
        await until(lambda: master.rooms.replicas.replication.status().in_sync_slave_nums == 1)
        await asyncio.gather(*(peer.send("TopicA", bytes(3000)) for _ in range(100)))
        end = master.store.log.max_offset
        await master.rooms.replicas.replication.stop()
        assert replica.store.log.max_offset == end


# Promises


@pytest.mark.mission("HA-01")
async def test_a_sync_master_answers_when_a_replica_has_the_bytes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, brokerRole="SYNC_MASTER") as master, Peer.of(master) as peer:
        answer = await peer.send("TopicA", b"nobody has it")
        assert answer.code == Response.SLAVE_NOT_AVAILABLE
        async with Replica.of(master, master.store.log.max_offset) as replica:
            before = master.store.log.max_offset
            sending = asyncio.create_task(peer.send("TopicA", b"somebody has it"))
            await until(lambda: master.store.log.max_offset > before)
            replica.report(master.store.log.max_offset - 1)
            clock.advance(2.9)
            await settle()
            assert not sending.done()
            replica.report(master.store.log.max_offset)
            assert (await sending).code == Response.SUCCESS

            before = master.store.log.max_offset
            sending = asyncio.create_task(peer.send("TopicA", b"the replica is frozen"))
            await until(lambda: master.store.log.max_offset > before)
            clock.advance(2.9)
            await settle()
            assert not sending.done()
            clock.advance(0.1)
            assert (await sending).code == Response.FLUSH_SLAVE_TIMEOUT
        assert len(stored(master, "TopicA")) == 3


async def test_a_message_that_does_not_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, brokerRole="SYNC_MASTER") as master, Peer.of(master) as peer:
        assert (await peer.send("TopicA", b"x", properties={"WAIT": "false"})).code == Response.SUCCESS


async def test_an_async_master_answers_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as master, Peer.of(master) as peer, Replica.of(master):
        assert (await peer.send("TopicA", b"x")).code == Response.SUCCESS


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_sync_master_and_a_replica_keep_their_promise_together(tmp_path: Path, flush: str) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "flushDiskType": flush}
    async with (
        running_broker(tmp_path / "m", **settings) as master,
        running_broker(tmp_path / "r", **replica_of(master)) as replica,
        Peer.of(master) as peer,
    ):
        await until(lambda: master.rooms.replicas.replication.status().in_sync_slave_nums == 1)
        answers = await asyncio.gather(*(peer.send("TopicA", b"%d" % number) for number in range(200)))
        assert {answer.code for answer in answers} == {Response.SUCCESS}
        # All of them were on the replica's disk before they were acked.
        assert replica.store.log.flushed_offset == master.store.log.max_offset
        await until(lambda: len(stored(replica, "TopicA")) == 200)


@pytest.mark.mission("HA-07")
async def test_three_copies_wait_for_the_slower_replica(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 3, "slaveTimeout": 60_000}
    async with (
        running_broker(tmp_path, **settings) as master,
        Peer.of(master) as peer,
        Replica.of(master) as quick,
        Replica.of(master) as slow,
    ):
        sending = asyncio.create_task(peer.send("TopicA", b"three"))
        await until(lambda: master.store.log.max_offset)
        end = master.store.log.max_offset
        await peer.call(Request.UPDATE_BROKER_CONFIG, b"inSyncReplicas=2\n")
        later = asyncio.create_task(peer.send("TopicA", b"two"))
        await until(lambda: master.store.log.max_offset > end)
        quick.report(master.store.log.max_offset)
        assert (await later).code == Response.SUCCESS, "it must not wait for the one before it"
        assert not sending.done()
        slow.report(end)
        assert (await sending).code == Response.SUCCESS


@pytest.mark.mission("HA-09")
async def test_a_message_that_cannot_have_enough_copies_is_not_stored(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "minInSyncReplicas": 1}
    async with running_broker(tmp_path, **settings) as master, Peer.of(master) as peer:
        master.rooms.replicas.replication.act_as_masters(lambda: 1)
        before = master.store.log.max_offset
        answer = await peer.send("TopicA", b"refused")
        assert answer.code == Response.SYSTEM_ERROR
        assert answer.remark is not None
        assert "2 copies are needed and 1 can be made" in answer.remark
        assert master.store.log.max_offset == before
        await peer.call(Request.UPDATE_BROKER_CONFIG, b"enableAutoInSyncReplicas=true\n")
        assert (await peer.send("TopicA", b"taken")).code == Response.SUCCESS


# What operators see


@pytest.mark.mission("HA-02")
async def test_the_status_tells_of_each_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m") as master, Peer.of(master) as peer:
        await peer.send("TopicA", b"x")
        async with running_broker(tmp_path / "a", **replica_of(master)) as first, Peer.of(first) as asker:
            async with running_broker(tmp_path / "b", **replica_of(master, 2)) as second:
                await until(lambda: master.rooms.replicas.replication.status().in_sync_slave_nums == 2)
                end = master.store.log.max_offset
                await until(lambda: all(each.store.log.flushed_offset == end for each in (first, second)))
                status = await status_of(peer)
                assert status.master
                assert status.master_commit_log_max_offset == end
                assert [link.in_sync for link in status.ha_connection_info] == [True, True]
                tasks = len(asyncio.all_tasks())
                assert second.rooms.replicas.replication.follower is not None
                second.rooms.replicas.replication.follower.follow("")
                async with asyncio.timeout(10):  # by silence alone a connection ends after 20 s
                    while len((await status_of(peer)).ha_connection_info) > 1:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                assert len(asyncio.all_tasks()) <= tasks
            own = await status_of(asker)
            assert not own.master
            assert own.ha_client_runtime_info.max_offset == end
            assert own.ha_client_runtime_info.master_addr == first.settings.store_options.ha_master_address


def test_one_copy_on_a_sync_master_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 1}
        async with running_broker(tmp_path, **settings) as master, Peer.of(master) as peer:
            assert (await peer.send("TopicA", b"x")).code == Response.SUCCESS

    run(scene())
    assert len([record for record in caplog.records if "waits for no replica" in record.message]) == 1


DEFAULTS = {
    "brokerRole": "ASYNC_MASTER",
    "brokerId": "0",
    "haSendHeartbeatInterval": "5000",
    "haHousekeepingInterval": "20000",
    "haTransferBatchSize": "32768",
    "haMaxGapNotInSync": str(256 << 20),
    "slaveTimeout": "3000",
    "totalReplicas": "1",
    "inSyncReplicas": "0",  # RocketMQ: 1, which waits for nobody; docs/decisions/0045-sync-master-waits.md
    "minInSyncReplicas": "1",
    "allAckInSyncStateSet": "false",
    "enableSlaveActingMaster": "false",
    "enableControllerMode": "false",
    "skipPreOnline": "false",
    "duplicationEnable": "false",
    "enableDLegerCommitLog": "false",
    "disappearTimeAfterStart": "-1",
    "registerNameServerPeriod": "30000",
    "forceRegister": "true",
    "syncBrokerMemberGroupPeriod": "1000",
}


@pytest.mark.mission("SK-03")
def test_settings_of_roles_and_replication(caplog: pytest.LogCaptureFixture) -> None:
    shown = live.load({}).texts()
    assert {key: shown.get(key) for key in DEFAULTS} == DEFAULTS
    assert shown["haListenPort"] == "0"  # the port above the broker's own, which is 10912 by default
    caplog.set_level(logging.WARNING)
    settings = live.load({"haSlaveFallbehindMax": "1000"})
    assert settings.store_options.ha_gap_bytes_max == 1000
    assert len([record for record in caplog.records if "haSlaveFallbehindMax" in record.message]) == 1
    with pytest.raises(SettingError, match="haTransferBatchSize"):
        live.load({"haTransferBatchSize": str(5 << 20)})


async def test_a_taken_port_is_named_with_the_setting(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m") as master:
        assert master.rooms.replicas.replication.listener is not None
        port = master.rooms.replicas.replication.listener.port
        other = Broker(broker_settings(tmp_path / "other", haListenPort=port))
        with pytest.raises(StoreError, match=f"cannot listen for replicas on 127.0.0.1:{port}.*set haListenPort"):
            await other.start()
