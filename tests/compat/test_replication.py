"""Master and replica of both makes, in every combination: one log in two places.

    master     ours    RocketMQ
    replica    ours    RocketMQ

Every kind of message is replicated byte for byte, either side catches up after it was killed, and when the master is
gone a Java consumer reads on at the replica.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq.clock import SystemClock
from cometmq.store.disk import OsDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.replication.links import BACKLOG_BYTES
from cometmq.store.store import Store
from tests.compat.harness import remoting
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume, send
from tests.compat.harness.servers import MAKES, Broker, CometBroker, CometNameServer, JavaBroker, Make
from tests.compat.harness.shell import JavaShell
from tests.support.length import SOAK

pytestmark = pytest.mark.interop

WAIT_S = 60.0
LONG_SEGMENT_BYTES = 16 << 20
QUEUES = 4
GET_TOPIC_CONFIG = 351
GET_HA_STATUS = 907
# Both are prompt, and a machine that is busy refuses nothing.
PROMPT: dict[str, object] = {
    "brokerFastFailureEnable": False,
    "haSendHeartbeatInterval": 500,
    "flushDiskType": "ASYNC_FLUSH",
    "slaveReadEnable": True,
    "slaveTimeout": 20_000,
    "syncFlushTimeout": 20_000,
}

# Every kind of message with the number args[2], then args[3] batches of a hundred, then more than fits a segment.
SEND_EVERY_KIND = """
    TransactionMQProducer p = use(new TransactionMQProducer("compat_replication"));
    p.setNamesrvAddr(args[0]);
    p.setTransactionListener(new TransactionListener() {
        public LocalTransactionState executeLocalTransaction(Message m, Object rollback) {
            return (Boolean) rollback ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }
        public LocalTransactionState checkLocalTransaction(MessageExt m) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    });
    p.start();
    String topic = args[1];
    String from = args[2];
    p.send(new Message(topic, "tag", "key-" + from, (from + " tagged").getBytes()), 10_000);
    p.send(new Message(topic, (from + " large " + "x".repeat(200_000)).getBytes()), 10_000);
    Message one = new Message(topic, (from + " one").getBytes());
    p.send(Arrays.asList(one, new Message(topic, (from + " two").getBytes())), 10_000);
    p.sendOneway(new Message(topic, (from + " oneway").getBytes()));
    Message delayed = new Message(topic, (from + " delayed").getBytes());
    delayed.setDelayTimeLevel(1);
    p.send(delayed, 10_000);
    p.sendMessageInTransaction(new Message(topic, (from + " committed").getBytes()), false);
    p.sendMessageInTransaction(new Message(topic, (from + " rolled back").getBytes()), true);
    for (int i = 0; i < Integer.parseInt(args[3]); i++) {
        List<Message> batch = new ArrayList<>();
        for (int j = 0; j < 100; j++) batch.add(new Message(topic, "many".getBytes()));
        p.send(batch, 10_000);
    }
    Random random = new Random(Integer.parseInt(from));
    for (int i = 0; i < 24; i++) {
        byte[] body = new byte[60_000];
        random.nextBytes(body);
        SendResult r = p.send(new Message(topic, body), 10_000);
        emit("status", r.getSendStatus());
    }
"""
CONSUMED_KINDS = {"tagged", "one", "two", "oneway", "delayed", "committed"}


@dataclass(slots=True)
class Square:
    namesrv: str
    master: Broker
    replica: Broker


REPLICA: dict[str, object] = {**PROMPT, "brokerRole": "SLAVE", "brokerId": 1}


# RocketMQ's pair shows that the test is right, not that we are: it runs where there is time.
PAIRS = [(one, other) for one in MAKES for other in MAKES if SOAK or "comet" in (one, other)]


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]}-to-{pair[1]}")
def square(request: pytest.FixtureRequest, jars: None, tmp_path: Path, topic: str) -> Iterator[Square]:
    makes: tuple[Make, Make] = (MAKES[request.param[0]], MAKES[request.param[1]])
    with (
        CometNameServer(tmp_path).start() as namesrv,
        makes[0].broker(tmp_path / "master", namesrv.address, PROMPT) as master,
        makes[1].broker(tmp_path / "replica", namesrv.address, REPLICA) as replica,
    ):
        for broker in (master, replica):
            broker.directory.mkdir()
        master.start()
        remoting.create_topic(master.address, topic, queues=QUEUES)
        replica.start()
        yield Square(namesrv.address, master, replica)


def log_of(broker: Broker) -> bytes:
    """All segments in a row, without the zeros that follow."""
    files = sorted((broker.store / "commitlog").glob("[0-9]*"))
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def await_equal_logs(square: Square, longer_than: int = 0, number: int = 0) -> int:
    """What is delayed, or decided later, is in the log twice when the master has delivered it."""
    twice = [f"{number} {kind}".encode() for kind in ("delayed", "committed")] if number else []

    def equal() -> int:
        data = log_of(square.master)
        is_whole = len(data) > longer_than and all(data.count(body) >= 2 for body in twice)
        return len(data) if is_whole and data == log_of(square.replica) else 0

    return wait_until(equal, "equal logs", WAIT_S)


def send_every_kind(java: JavaShell, square: Square, topic: str, number: int, batches: int = 0) -> None:
    rows = java.run(SEND_EVERY_KIND, square.namesrv, topic, str(number), str(batches)).rows
    assert {row["status"] for row in rows} == {"SEND_OK"}


def knows_topic(broker: Broker, topic: str) -> Callable[[], bool]:
    return lambda: remoting.call(broker.address, GET_TOPIC_CONFIG, {"topic": topic}).code == 0


@pytest.mark.mission("HA-03")
def test_a_log_in_two_places(java55: JavaShell, mqadmin: MqAdmin, square: Square, topic: str) -> None:
    # An empty replica gets the last segment only: let it begin with the first.
    send(java55, square.namesrv, topic, "first")
    length = await_equal_logs(square)
    send_every_kind(java55, square, topic, 1, batches=100)
    length = await_equal_logs(square, length + (1 << 20), number=1)
    assert "#SlaveNum\t1" in mqadmin("haStatus", "-b", square.master.address).lines
    own = mqadmin("haStatus", "-b", square.replica.address).lines
    assert f"#MasterAddr\t127.0.0.1:{square.master.port + 1}" in own

    square.replica.kill()
    send_every_kind(java55, square, topic, 2)
    square.replica.start()
    length = await_equal_logs(square, length, number=2)

    square.master.kill()
    square.master.start()
    send_every_kind(java55, square, topic, 3)
    await_equal_logs(square, length, number=3)

    if isinstance(square.replica, JavaBroker):
        # It would ask its master 60 s after its start.
        remoting.create_topic(square.replica.address, topic, queues=QUEUES)
    wait_until(knows_topic(square.replica, topic), "topic at the replica", WAIT_S)
    square.master.kill()
    consumer = consume(java55, square.namesrv, topic, f"{topic}_g")
    expected = {f"{number} {kind}" for number in (1, 2, 3) for kind in CONSUMED_KINDS}

    def small() -> set[str]:
        return {row["body"] for row in list(consumer.rows) if 4 < len(row["body"]) < 100}

    wait_until(lambda: small() >= expected, "every kind from the replica", WAIT_S)
    assert not {body for body in small() if "rolled" in body}


def fill_log(directory: Path, length: int) -> None:
    """A store that has been in use before a broker starts on it."""
    options = StoreOptions(
        root_dir=str(directory), segment_bytes=LONG_SEGMENT_BYTES, queue_file_bytes=20_000, index_enabled=False
    )
    store = Store(options, OsDisk(), SystemClock())
    while store.log.max_offset < length:
        store.put(AppendRequest("Filled", 0, os.urandom(50_000)))
    store.close()


def test_our_sync_master_sends_a_java_replica_a_backlog_and_answers_by_its_reports(
    java55: JavaShell, jars: None, tmp_path: Path, topic: str
) -> None:
    for name in ("master", "replica"):
        (tmp_path / name).mkdir()
    size = {"mappedFileSizeCommitLog": LONG_SEGMENT_BYTES}
    with (
        CometNameServer(tmp_path).start() as namesrv,
        CometBroker(tmp_path / "master", namesrv.address, {**PROMPT, **size, "brokerRole": "SYNC_MASTER"}) as master,
        JavaBroker(tmp_path / "replica", namesrv.address, {**REPLICA, **size}) as replica,
    ):
        fill_log(master.store, BACKLOG_BYTES + (3 << 20))
        master.start()
        replica.start()
        remoting.create_topic(master.address, topic, queues=QUEUES)
        wait_until(
            lambda: remoting.call(master.address, GET_HA_STATUS).json()["inSyncSlaveNums"] == 1, "replica", WAIT_S
        )
        bodies = [str(number) for number in range(20)]
        assert {row["status"] for row in send(java55, namesrv.address, topic, *bodies)} == {"SEND_OK"}
        await_equal_logs(Square(namesrv.address, master, replica), BACKLOG_BYTES)
    (tmp_path / "alone").mkdir()
    with (
        CometNameServer(tmp_path, name="namesrv-2").start() as namesrv,
        CometBroker(tmp_path / "alone", namesrv.address, {**PROMPT, "brokerRole": "SYNC_MASTER"}).start() as master,
    ):
        remoting.create_topic(master.address, topic, queues=QUEUES)
        (row,) = send(java55, namesrv.address, topic, "alone")
        assert row["status"] == "SLAVE_NOT_AVAILABLE"
