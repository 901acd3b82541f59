"""Checks that a replica is made the master by its settings, with what it had of the log."""

from pathlib import Path

from cometmq.broker.admin import settings
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.wire import java_properties
from cometmq.wire.codes import Request, Response
from tests.support.brokers import CALM, SMALL_FILES, Peer, add_topic, broker_settings, running_broker, stored
from tests.support.groups import follow_now
from tests.support.net import until


def settings_file(directory: Path, **texts: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "broker.conf"
    given = {"listenPort": 0, "storePathRootDir": directory / "store", **SMALL_FILES, **CALM, **texts}
    path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return path


def read(path: Path) -> settings.LiveSettings:
    texts = java_properties.parse(path.read_bytes())
    return settings.load(texts | {"brokerConfigPath": str(path)})


async def test_a_replica_becomes_the_master_at_its_next_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "m") as master, Peer.of(master) as peer:
        add_topic(master, "TopicA", 1)
        for number in range(20):
            await peer.send("TopicA", b"%d" % number)
        master.tables.offsets.commit("g", "TopicA", 0, 7, "")
        assert master.rooms.replicas.replication.listener is not None
        ha_address = f"127.0.0.1:{master.rooms.replicas.replication.listener.port}"
        path = settings_file(tmp_path / "r", brokerRole="SLAVE", brokerId=1, haMasterAddress=ha_address)
        replica = Broker(read(path))
        await replica.start()
        replica.rooms.replicas.table_sync.follow(master.address)
        await until(lambda: replica.store.log.max_offset == master.store.log.max_offset)
        await follow_now(replica)
    # The master died in the middle of a record.
    whole = replica.store.log.max_offset
    replica.store.log.append_raw(whole, bytes.fromhex("000000c8 daa320a7 0123"))
    async with Peer.of(replica) as peer:
        body = b"brokerRole=ASYNC_MASTER\nbrokerId=0\ntraceOn=false\n"
        assert (await peer.call(Request.UPDATE_BROKER_CONFIG, body)).code == 0
        assert (await peer.call(Request.UPDATE_BROKER_CONFIG, b"traceOn=true\n")).code == 0
        assert replica.rooms.replicas.is_replica
        assert replica.settings.config.broker_id == 1
        assert (await peer.send("TopicA", b"too early")).code == Response.SYSTEM_BUSY
    await replica.stop()

    heir = Broker(read(path))
    await heir.start()
    try:
        assert (heir.rooms.replicas.is_replica, heir.settings.config.broker_id) == (False, 0)
        assert heir.store.log.max_offset == whole
        assert heir.tables.offsets.query("g", "TopicA", 0) == 7
        async with Peer.of(heir) as peer:
            assert (await peer.send("TopicA", b"20")).code == 0
        assert [message.body for message in stored(heir, "TopicA")] == [b"%d" % number for number in range(21)]
    finally:
        await heir.stop()


async def test_a_role_that_cannot_be_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    before = path.read_bytes()
    broker = Broker(read(path), ManualClock())
    await broker.start()
    try:
        async with Peer.of(broker) as peer:
            answer = await peer.call(Request.UPDATE_BROKER_CONFIG, b"brokerRole=SLAVE\n")
            assert answer.code == Response.SYSTEM_ERROR
            assert "brokerId above 0" in (answer.remark or "")
    finally:
        await broker.stop()
    assert path.read_bytes() == before
    broker = Broker(broker_settings(tmp_path / "other"), ManualClock())
    await broker.start()
    try:
        async with Peer.of(broker) as peer:
            answer = await peer.call(Request.UPDATE_BROKER_CONFIG, b"brokerRole=SLAVE\nbrokerId=1\n")
            assert answer.code == Response.NO_PERMISSION
            assert "no settings file" in (answer.remark or "")
    finally:
        await broker.stop()
