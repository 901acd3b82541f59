"""Replicas of both makes beyond the log: tables of the master, reading on without it, acting for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.compat.harness import remoting
from tests.compat.harness.java import CURRENT
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume, send
from tests.compat.harness.servers import MAKES, Broker, CometNameServer, JavaNameServer
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

WAIT_S = 60.0
TABLES_S = 120.0
SETTINGS: dict[str, object] = {
    "brokerFastFailureEnable": False,
    "haSendHeartbeatInterval": 500,
    "messageDelayLevel": "1s 2s",
    "mappedFileSizeCommitLog": 8 * 1024 * 1024,
}
# Without slaveReadEnable RocketMQ's replica refuses every pull.
REPLICA: dict[str, object] = {**SETTINGS, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}

GET_RUNTIME_INFO = 28
GET_ALL_CONSUMER_OFFSET = 43
GET_ALL_DELAY_OFFSET = 45
CREATE_GROUP = 200
GET_TOPIC_CONFIG = 351
GET_GROUP_CONFIG = 352


@dataclass(slots=True)
class Pair:
    """A master with a topic of 2 queues that has 12 messages, a group that has consumed them, and its replica."""

    namesrv: str
    master: Broker
    replica: Broker
    topic: str

    @property
    def group(self) -> str:
        return f"{self.topic}_g"


Settings = dict[str, object]


def start(stack: ExitStack, make: str, directory: Path, namesrv: str, settings: Settings, **more: Any) -> Broker:
    directory.mkdir(parents=True)
    return stack.enter_context(MAKES[make].broker(directory, namesrv, settings, **more).start())


DELAYED = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_producer"));
    p.setNamesrvAddr(args[0]);
    p.start();
    Message delayed = new Message(args[1], "delayed".getBytes());
    delayed.setDelayTimeLevel(1);
    p.send(delayed, 10_000);
    Message timer = new Message(args[1], "timer".getBytes());
    timer.setDelayTimeSec(2);
    p.send(timer, 10_000);
"""


def start_pair(stack: ExitStack, java: JavaShell, makes: tuple[str, str], directory: Path) -> Pair:
    namesrv = stack.enter_context(CometNameServer(directory).start()).address
    master = start(stack, makes[0], directory / "master", namesrv, SETTINGS)
    topic = f"Replicated_{makes[0]}"
    remoting.create_topic(master.address, topic, queues=2)
    group = json.dumps({"groupName": f"{topic}_g", "retryMaxTimes": 5})
    remoting.call(master.address, CREATE_GROUP, body=group.encode())
    java.run(DELAYED, namesrv, topic)
    consumer = consume(java, namesrv, topic, f"{topic}_g")
    send(java, namesrv, topic, *(f"before {number}" for number in range(10)))
    consumer.take(12, timeout_s=WAIT_S)
    consumer.stop()
    replica = start(stack, makes[1], directory / "replica", namesrv, REPLICA)
    return Pair(namesrv, master, replica, topic)


@pytest.fixture(scope="module", autouse=True)
def java_replica(shells: dict[str, JavaShell], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Started before all tests here and used by the last: RocketMQ's replica asks for tables after a minute."""
    with ExitStack() as stack:
        yield start_pair(stack, shells[CURRENT], ("comet", "java"), tmp_path_factory.mktemp("java-replica"))


def table(broker: Broker, code: int, name: str) -> dict[str, Any]:
    """A table of a broker; keys that RocketMQ writes bare are quoted first."""
    answer = remoting.call(broker.address, code)
    assert answer.code == 0, answer.remark
    found: dict[str, Any] = json.loads(_quoted(answer.body.decode()))[name]
    return found


def _quoted(text: str) -> str:
    return re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', text)


def agree(pair: Pair, read: Callable[[Broker], object]) -> Callable[[], bool]:
    def look() -> bool:
        theirs = read(pair.master)
        return bool(theirs) and read(pair.replica) == theirs

    return look


def shows(code: int, **ext: object) -> Callable[[Broker], object]:
    def read(broker: Broker) -> object:
        answer = remoting.call(broker.address, code, ext)
        return answer.json() if answer.code == 0 else None

    return read


def check_replica(java: JavaShell, pair: Pair) -> None:
    topic, group = pair.topic, pair.group
    wait_until(agree(pair, shows(GET_TOPIC_CONFIG, topic=topic)), "topic", TABLES_S)
    wait_until(agree(pair, shows(GET_GROUP_CONFIG, group=group)), "group", WAIT_S)
    key = f"{topic}@{group}"
    wait_until(agree(pair, lambda it: table(it, GET_ALL_CONSUMER_OFFSET, "offsetTable").get(key)), "offsets", WAIT_S)
    wait_until(agree(pair, lambda it: table(it, GET_ALL_DELAY_OFFSET, "offsetTable")), "delays", WAIT_S)
    progress = pair.replica.store / "config" / "timercheck"
    one = (1).to_bytes(8, "big")
    wait_until(lambda: progress.exists() and progress.read_bytes()[24:32] == one, "timers", WAIT_S)

    old = consume(java, pair.namesrv, topic, group)
    send(java, pair.namesrv, topic, "with both")
    old.take(1, timeout_s=WAIT_S)
    wait_until(lambda: _ends(pair.replica, topic) == _ends(pair.master, topic), "queues of the replica", WAIT_S)
    pair.master.kill()
    new = consume(java, pair.namesrv, topic, f"{group}_new")
    bodies = {row["body"] for row in new.take(13, timeout_s=WAIT_S)}
    assert bodies == {*(f"before {number}" for number in range(10)), "delayed", "timer", "with both"}

    pair.master.start()
    send(java, pair.namesrv, topic, "after")
    for consumer in (old, new):
        wait_until(lambda: "after" in {row["body"] for row in consumer.rows}, "from the master again", WAIT_S)  # noqa: B023
        consumer.stop()


def _ends(broker: Broker, topic: str) -> list[str]:
    return [
        remoting.call(broker.address, 30, {"topic": topic, "queueId": queue_id, "committed": "true"}).ext["offset"]
        for queue_id in range(2)
    ]


def test_our_replica_has_the_tables_of_a_java_master_and_serves_while_it_is_gone(
    java55: JavaShell, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        check_replica(java55, start_pair(stack, java55, ("java", "comet"), tmp_path))


@pytest.mark.mission("RD-03")
def test_a_java_consumer_that_is_far_behind_is_sent_to_the_replica(
    java55: JavaShell, tmp_path: Path, topic: str
) -> None:
    """With no memory at all for messages, whoever reads is far behind."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(CometNameServer(tmp_path).start()).address
        behind = {**SETTINGS, "accessMessageInMemoryMaxRatio": 0, "slaveReadEnable": True}
        master = start(stack, "comet", tmp_path / "master", namesrv, behind)
        remoting.create_topic(master.address, topic, queues=1)
        remoting.create_group(master.address, f"{topic}_g")
        replica = start(stack, "comet", tmp_path / "replica", namesrv, {**REPLICA, **behind})
        send(java55, namesrv, topic, *(str(number) for number in range(30)))
        wait_until(lambda: remoting.call(replica.address, 351, {"topic": topic}).code == 0, "topic", WAIT_S)
        consumer = consume(java55, namesrv, topic, f"{topic}_g")
        consumer.take(30, timeout_s=WAIT_S)
        send(java55, namesrv, topic, *(str(number) for number in range(30, 60)))
        consumer.take(30, timeout_s=WAIT_S)
        consumer.stop()
        assert served(replica) > 0
        advised = remoting.call(master.address, 11, pull(topic)).ext["suggestWhichBrokerId"]
        remoting.call(master.address, 25, body=b"slaveReadEnable=false")
        kept = remoting.call(master.address, 11, pull(topic)).ext["suggestWhichBrokerId"]
        assert (advised, kept) == ("1", "0")


def pull(topic: str) -> dict[str, object]:
    return {
        "consumerGroup": f"{topic}_g", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip


def served(broker: Broker) -> int:
    answer = remoting.call(broker.address, GET_RUNTIME_INFO)
    return int(answer.json()["table"]["msgGetTotalTodayNow"])


ORDERED = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setPollNameServerInterval(1000);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
        for (MessageExt m : messages) emit("body", m.getBody(), "broker", m.getBrokerName());
        return ConsumeOrderlyStatus.SUCCESS;
    });
    c.start();
    awaitStop();
"""


def test_brokers_and_name_servers_of_both_kinds_are_one_cluster_and_a_replica_acts_in_it(
    java55: JavaShell, jars: None, tmp_path: Path, topic: str
) -> None:
    acting: dict[str, object] = {
        **SETTINGS, "enableSlaveActingMaster": True, "brokerNotActiveTimeoutMillis": 15_000, "enableRemoteEscape": True,
    }  # fmt: skip
    with ExitStack() as stack:
        names = {"supportActingMaster": True, "scanNotActiveBrokerInterval": 1_000}
        java_names = stack.enter_context(JavaNameServer(tmp_path, names).start())
        comet_names = stack.enter_context(CometNameServer(tmp_path, names).start())
        namesrv = f"{java_names.address};{comet_names.address}"
        master = start(stack, "comet", tmp_path / "a", namesrv, acting)
        for broker in (master, start(stack, "comet", tmp_path / "b", namesrv, acting, name="broker-b")):
            remoting.create_topic(broker.address, topic, queues=2)
        replica_settings = {**acting, "brokerRole": "SLAVE", "brokerId": 1}
        replica = start(stack, "comet", tmp_path / "replica", namesrv, replica_settings)
        for address in (java_names.address, comet_names.address):
            whole = {"0": master.address, "1": replica.address}
            wait_until(lambda: routes(address, topic).get("broker-a") == whole, "routes", WAIT_S)  # noqa: B023
        sent = [row for address in (java_names.address, comet_names.address)
                for row in send(java55, address, topic, *(f"{address} {number}" for number in range(8)))]  # fmt: skip
        assert {row["broker"] for row in sent} == {"broker-a", "broker-b"}
        wait_until(lambda: remoting.call(replica.address, 351, {"topic": topic}).code == 0, "topic", WAIT_S)
        wait_until(lambda: _ends(replica, topic) == _ends(master, topic), "queues of the replica", WAIT_S)

        master.kill()
        for address in (java_names.address, comet_names.address):
            wait_until(lambda: routes(address, topic)["broker-a"] == {"0": replica.address}, "acting master", WAIT_S)  # noqa: B023
        consumer = java55.begin(ORDERED, java_names.address, topic, f"{topic}_g")
        rows = consumer.take(16, timeout_s=WAIT_S)
        assert sorted(row["broker"] for row in rows) == sorted(row["broker"] for row in sent)
        consumer.stop()
        key = f"{topic}@{topic}_g"
        ends = {str(queue_id): int(end) for queue_id, end in enumerate(_ends(replica, topic))}
        wait_until(lambda: table(replica, GET_ALL_CONSUMER_OFFSET, "offsetTable").get(key) == ends, "offsets", WAIT_S)


def routes(namesrv: str, topic: str) -> dict[str, dict[str, str]]:
    """Addresses by broker and id."""
    answer = remoting.route(namesrv, topic)
    if answer.code != 0:
        return {}
    return {it["brokerName"]: it["brokerAddrs"] for it in json.loads(_quoted(answer.body.decode()))["brokerDatas"]}


def test_a_java_replica_has_the_tables_of_our_master_and_serves_while_it_is_gone(
    java55: JavaShell, java_replica: Pair
) -> None:
    check_replica(java55, java_replica)
