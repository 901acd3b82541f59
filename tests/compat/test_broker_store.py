"""One store directory, two makes of broker: ours serves what RocketMQ wrote, RocketMQ serves what ours wrote.

Also who may use a directory at a time, and how each make judges the way the other one ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness import remoting
from tests.compat.harness.processes import ChildFailed, wait_until
from tests.compat.harness.programs import consume, send
from tests.compat.harness.servers import MAKES, Broker, CometBroker, CometNameServer, Make
from tests.compat.harness.shell import JavaShell, Run
from tests.support.golden import StoreName, copy_golden_store, golden_messages

pytestmark = pytest.mark.interop


@pytest.fixture
def namesrv_of_ours(jars: None, tmp_path: Path) -> Iterator[str]:
    with CometNameServer(tmp_path).start() as server:
        yield server.address


def at(store: Path) -> dict[str, object]:
    return {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}


# What RocketMQ wrote

GOLDEN_FILES: dict[str, object] = {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "brokerClusterName": "DefaultCluster",
}
READ_ALL = """
    import org.apache.rocketmq.common.UtilAll;
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer("golden_reader"));
    c.setNamesrvAddr(args[0]);
    c.start();
    for (int i = 1; i < args.length; i++) {
        for (MessageQueue q : new TreeSet<>(c.fetchSubscribeMessageQueues(args[i]))) {
            for (long next = 0; ; ) {
                PullResult r = c.pull(q, "*", next, 32);
                if (r.getPullStatus() != PullStatus.FOUND) break;
                next = r.getNextBeginOffset();
                for (MessageExt m : r.getMsgFoundList()) {
                    Map<String, Object> row = new LinkedHashMap<>();
                    row.put("topic", m.getTopic());
                    row.put("queueId", m.getQueueId());
                    row.put("queueOffset", m.getQueueOffset());
                    row.put("commitLogOffset", m.getCommitLogOffset());
                    row.put("storeSize", m.getStoreSize());
                    row.put("bodyCRC", m.getBodyCRC());
                    row.put("flag", m.getFlag());
                    row.put("sysFlag", m.getSysFlag());
                    row.put("bornTimestamp", m.getBornTimestamp());
                    row.put("bornHost", m.getBornHost().toString());
                    row.put("storeTimestamp", m.getStoreTimestamp());
                    row.put("storeHost", m.getStoreHost().toString());
                    row.put("reconsumeTimes", m.getReconsumeTimes());
                    row.put("preparedTransactionOffset", m.getPreparedTransactionOffset());
                    row.put("msgId", m.getMsgId());
                    row.put("bodyHex", UtilAll.bytes2string(m.getBody()).toLowerCase());
                    row.put("properties", m.getProperties());
                    emit(row);
                }
            }
        }
    }
"""


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """The end of the queue is not part of a message, though the client puts it there."""
    properties = {key: value for key, value in row["properties"].items() if key != "MAX_OFFSET"}
    return {**row, "properties": properties}


def saved_offsets(store: Path) -> dict[str, dict[str, int]]:
    """topic@group -> queue -> offset, from the file; its keys may be bare numbers."""
    text = (store / "config" / "consumerOffset.json").read_text()
    table: dict[str, dict[str, int]] = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))["offsetTable"]
    assert table
    return table


def committed(address: str, store: Path) -> dict[str, dict[str, int]]:
    """The same, as the broker answers it."""
    table: dict[str, dict[str, int]] = {}
    for name, queues in saved_offsets(store).items():
        topic, group = name.split("@")
        for queue in queues:
            answer = remoting.call(address, 14, {"consumerGroup": group, "topic": topic, "queueId": queue})
            table.setdefault(name, {})[queue] = int(answer.ext["offset"])
    return table


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_our_broker_serves_every_message_of_a_java_store(
    java55: JavaShell, namesrv_of_ours: str, tmp_path: Path, name: StoreName
) -> None:
    store = copy_golden_store(name, tmp_path / "golden-store")
    with CometBroker(tmp_path, namesrv_of_ours, {**GOLDEN_FILES, **at(store)}, name="broker-golden").start() as broker:
        expected = golden_messages(name)
        topics = sorted({row["topic"] for row in expected})
        rows = java55.run(READ_ALL, namesrv_of_ours, *topics).rows
        places = {(row["topic"], row["queueId"], row["queueOffset"]): comparable(row) for row in rows}
        for row in expected:
            assert places.pop((row["topic"], row["queueId"], row["queueOffset"])) == comparable(row)
        # A delayed message of the crashed store may have come due since.
        assert {topic for topic, _, _ in places} <= {"GoldenDelayB"}
        assert committed(broker.address, store) == saved_offsets(store)
        groups = remoting.call(broker.address, 201).json()["subscriptionGroupTable"]
        assert f"golden_c_{'A' if name == 'clean' else 'B'}" in groups
        (sent,) = send(java55, namesrv_of_ours, "GoldenNormalA" if name == "clean" else "GoldenNormalB", "more")
        ends = {row["queueId"]: int(row["properties"]["MAX_OFFSET"]) for row in expected if "Normal" in row["topic"]}
        assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", ends[sent["queueId"]])


# Turn by turn


class SharedStore:
    """A directory on which brokers of both makes run one after the other, with one group that reads on."""

    def __init__(self, java: JavaShell, namesrv: str, directory: Path, topic: str) -> None:
        self.store = directory / "shared-store"
        self._java = java
        self._namesrv = namesrv
        self._directory = directory
        self._topic = topic
        self._sent: list[str] = []
        self._was_killed = False

    def turn(self, make: Make, end: str) -> str:
        """Send, let the group read on, send once more, end. Gives the broker's log."""
        with make.broker(self._directory, self._namesrv, at(self.store)).start() as broker:
            if not self._sent:
                remoting.create_topic(broker.address, self._topic, queues=1)
            self._send(f"{make.name} {len(self._sent)}")
            self._read_on(broker)
            self._send(f"{make.name} {len(self._sent)}")
            assert (self.store / "abort").exists()
            if end == "stop":
                broker.stop()
            else:
                broker.kill()
            self._was_killed = end == "kill"
            assert (self.store / "abort").exists() == self._was_killed
            return broker.log(since_start=True)

    def _send(self, body: str) -> None:
        (sent,) = send(self._java, self._namesrv, self._topic, body)
        assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", len(self._sent))
        self._sent.append(body)

    def _read_on(self, broker: Broker) -> None:
        """The group gets at least the last two. A kill may have taken its newest offset, then it gets more."""
        group = f"{self._topic}_g"
        consumer = consume(self._java, self._namesrv, self._topic, group)
        wait_until(lambda: set(self._sent[-2:]) <= bodies(consumer), "the new ones")
        consumer.stop()
        again = len(consumer.rows)
        assert bodies(consumer) == set(self._sent[-again:])
        assert again == min(2, len(self._sent)) or self._was_killed
        broker.await_committed(group, self._topic, len(self._sent))


def bodies(consumer: Run) -> set[str]:
    return {row["body"] for row in list(consumer.rows)}


@pytest.mark.mission("BS-05")
@pytest.mark.long
def test_both_makes_take_over_from_each_other(
    java55: JavaShell, namesrv_of_ours: str, tmp_path: Path, topic: str
) -> None:
    shared = SharedStore(java55, namesrv_of_ours, tmp_path, topic)
    shared.turn(MAKES["comet"], end="stop")
    assert "last shutdown normally" in shared.turn(MAKES["java"], end="stop")
    shared.turn(MAKES["comet"], end="kill")
    assert "last shutdown abnormally" in shared.turn(MAKES["java"], end="kill")
    shared.turn(MAKES["comet"], end="stop")


# One at a time


def hashes(store: Path) -> dict[str, str]:
    files = (path for path in sorted(store.rglob("*")) if path.is_file())
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.mission("BS-04")
@pytest.mark.parametrize("second", ["comet", "java"])
def test_a_broker_refuses_the_directory_of_a_running_one_of_ours(
    java55: JavaShell, namesrv_of_ours: str, tmp_path: Path, topic: str, second: str
) -> None:
    # A broker that stood still refuses what may have waited for it: not here, where it is made to stand still.
    settings = {"mappedFileSizeCommitLog": 65_536, "brokerFastFailureEnable": False}
    with CometBroker(tmp_path, namesrv_of_ours, settings, name="broker-first").start() as first:
        remoting.create_topic(first.address, topic, queues=1)
        send(java55, namesrv_of_ours, topic, "mine")
        os.kill(first.pid, signal.SIGSTOP)  # so that what changes is not its doing
        before = hashes(first.store)
        other = MAKES[second].broker(tmp_path, namesrv_of_ours, settings | at(first.store), name="broker-second")
        with pytest.raises(ChildFailed, match=REFUSALS[second]):
            other.start()
        if second == "comet":  # Java recovers the store, and removes empty files, before it looks at the lock
            assert hashes(first.store) == before
        os.kill(first.pid, signal.SIGCONT)
        sent = send(java55, namesrv_of_ours, topic, *(str(number) * 1500 for number in range(10, 70)))
        assert {row["status"] for row in sent} == {"SEND_OK"}
        first.restart()
        consumer = consume(java55, namesrv_of_ours, topic, f"{topic}_g")
        assert {row["queueOffset"] for row in consumer.take(61)} == set(range(61))
        consumer.stop()


REFUSALS = {"comet": "another broker uses this store directory", "java": "Lock failed, MQ already started"}


@pytest.mark.mission("BS-04")
def test_our_broker_refuses_the_directory_of_a_running_java_one(java_cluster: Cluster, tmp_path: Path) -> None:
    intruder = CometBroker(tmp_path, java_cluster.namesrv.address, at(java_cluster.broker.store), name="intruder")
    with pytest.raises(ChildFailed, match=REFUSALS["comet"]):
        intruder.start()
