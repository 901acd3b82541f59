"""Our name server beside RocketMQ's: one Java broker registers with both, and both must serve clients alike.

The tests run against the Java name server too, so that they are known to be right; the last one, about two name
servers of ours, is the exception.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.compat.conftest import Pair
from tests.compat.harness import remoting
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.foreign import ForeignClient
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import ROUTE_POLL_MS, consume, send
from tests.compat.harness.remoting import Answer, Connection, call, route
from tests.compat.harness.servers import CometNameServer, JavaBroker
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

TOPIC_NOT_EXIST = 17
EXPIRY_S = 120.0  # of a broker that says nothing
REGISTRATION_S = 60.0  # a broker registers every 10 s, and may need one period to see that its name server is back


def await_unrouted(address: str, topic: str) -> None:
    wait_until(lambda: route(address, topic).code == TOPIC_NOT_EXIST, f"{address} forgets {topic}")


def await_listed(address: str, topic: str) -> None:
    wait_until(lambda: topic in call(address, 206).json()["topicList"], f"{address} lists {topic}")


# Clients


@pytest.mark.mission("NS-03", "NS-06")
def test_java_clients_send_and_receive_by_its_routes(java: JavaShell, pair: Pair, namesrv: str, topic: str) -> None:
    remoting.create_topic(pair.broker.address, topic)
    consumer = consume(java, namesrv, topic, f"{topic}_group")
    sent = send(java, namesrv, topic, "one", "two")
    assert {row["status"] for row in sent} == {"SEND_OK"}
    assert sorted(row["body"] for row in consumer.take(2)) == ["one", "two"]
    consumer.stop()


def test_a_java_producer_finds_the_topic_that_a_send_creates(
    java: JavaShell, pair: Pair, namesrv: str, topic: str
) -> None:
    assert route(namesrv, topic).code == TOPIC_NOT_EXIST
    (sent,) = send(java, namesrv, topic, "creates its topic by TBW102")
    assert sent["status"] == "SEND_OK"
    await_listed(namesrv, topic)
    (queue,) = route(namesrv, topic).json()["queueDatas"]
    assert queue["brokerName"] == pair.broker.broker_name


@pytest.mark.mission("NS-06")
def test_clients_in_other_languages_send_and_receive_by_its_routes(
    foreign: ForeignClient, pair: Pair, namesrv: str, topic: str
) -> None:
    remoting.create_topic(pair.broker.address, topic)
    sent = foreign.send(namesrv, topic, "one", "two")
    assert {row["broker"] for row in sent} == {pair.broker.broker_name}
    got = foreign.consume(namesrv, topic, f"{topic}_group", 2)
    assert sorted(row["body"] for row in got) == ["one", "two"]


# Plain requests


@pytest.mark.mission("NS-06")
@pytest.mark.parametrize("version", [36, 300, 400, 401, 513])
def test_the_route_is_the_same_bytes_for_every_client_version(pair: Pair, topic: str, version: int) -> None:
    remoting.create_topic(pair.broker.address, topic)
    java, comet = (route(address, topic, version) for address in pair.addresses)
    assert java.code == 0
    assert comet == java
    assert (b'{"0":' in comet.body) == (version >= 401)


def test_a_client_may_ask_for_standard_json(pair: Pair, topic: str) -> None:
    remoting.create_topic(pair.broker.address, topic)
    ext: dict[str, object] = {"topic": topic, "acceptStandardJsonOnly": "true"}
    java, comet = (call(address, 105, ext, version=300) for address in pair.addresses)
    assert b'{"0":' in java.body
    assert comet == java


@pytest.mark.mission("NS-06")
def test_an_unknown_topic_is_exactly_17(namesrv: str) -> None:
    assert route(namesrv, "NoSuchTopic").code == TOPIC_NOT_EXIST


def readable(answer: Answer) -> tuple[int, dict[str, str], object]:
    """An answer without what may differ: the wording of a refusal, and the order of lists, which Java takes from
    hash tables."""
    assert answer.code == 0 or answer.remark
    text = re.sub(r"([{,])(\d+):", r'\1"\2":', answer.body.decode())
    return answer.code, answer.ext, _sorted(json.loads(text)) if text else None


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=repr)
    return value


BROKER = {"clusterName": "compat", "brokerName": "broker-a", "brokerId": 0}
PLAIN_REQUESTS: dict[str, tuple[int, dict[str, object]]] = {
    "cluster info": (106, {}),
    "all topics": (206, {}),
    "topics of a cluster": (224, {"cluster": "compat"}),
    "topics of an unknown cluster": (224, {"cluster": "nowhere"}),
    "system topics": (304, {}),
    "unit topics": (311, {}),
    "unit subscriptions": (312, {}),
    "unit subscriptions of other topics": (313, {}),
    "route of an unknown topic": (105, {"topic": "NoSuchTopic"}),
    "absent key": (101, {"namespace": "n", "key": "k"}),
    "absent namespace": (219, {"namespace": "n"}),
    "delete an absent key": (102, {"namespace": "n", "key": "k"}),
    "delete an unknown topic": (216, {"topic": "NoSuchTopic"}),
    "wipe an unknown broker": (205, {"brokerName": "nobody"}),
    "permit an unknown broker": (327, {"brokerName": "nobody"}),
    "members of a group": (901, {"clusterName": "compat", "brokerName": "broker-a"}),
    "members of an unknown group": (901, {"clusterName": "compat", "brokerName": "nobody"}),
    "heartbeat of an unknown broker": (904, {**BROKER, "brokerName": "nobody", "brokerAddr": "127.0.0.1:1"}),
    "unregister an unknown broker": (104, {**BROKER, "brokerName": "nobody", "brokerAddr": "127.0.0.1:1"}),
    "a code nobody knows": (9999, {}),
    "a broker's code": (10, {}),
}


@pytest.mark.parametrize("request_name", PLAIN_REQUESTS)
def test_plain_requests_get_the_same_answer(pair: Pair, request_name: str) -> None:
    code, ext = PLAIN_REQUESTS[request_name]

    def answers() -> list[tuple[int, dict[str, str], object]]:
        return [readable(call(address, code, ext)) for address in pair.addresses]

    def alike() -> bool:
        java, comet = answers()
        return comet == java

    with suppress(TimeoutError):  # what a test before has changed may reach one of them later
        wait_until(alike, request_name, 5.0)
    java, comet = answers()
    assert comet == java


@pytest.mark.mission("NS-10")
def test_a_broker_learns_whether_its_topics_changed(pair: Pair) -> None:
    ext: dict[str, object] = {**BROKER, "brokerAddr": pair.broker.address}
    stale = {"counter": 0, "stateVersion": 0, "timestamp": 1}
    for address in pair.addresses:
        first = call(address, 322, ext, json.dumps(stale).encode())
        assert (first.code, first.ext["changed"]) == (0, "true")
        again = call(address, 322, ext, first.body)
        assert (again.code, again.ext["changed"], again.json()) == (0, "false", first.json())


# Registration and its end


def registration(topics: list[str]) -> bytes:
    table = {
        name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0, "order": False}
        for name in topics
    }
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    return json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}).encode()


@pytest.mark.mission("NS-05")
def test_only_the_connection_that_registered_counts(namesrv: str, topic: str) -> None:
    ext: dict[str, object] = {
        "clusterName": "paper",
        "brokerName": "paper-a",
        "brokerAddr": "127.0.0.1:9",
        "brokerId": 0,
        "haServerAddr": "127.0.0.1:10",
        "compressed": "false",
        "bodyCrc32": 0,
    }
    with Connection(namesrv) as carrier:
        with Connection(namesrv) as idle:
            assert carrier.call(103, ext, registration([topic, f"{topic}_2"])).code == 0
            assert idle.call(904, ext).code == 0
        # Its end is handled before a request that another connection sends after it.
        assert call(namesrv, 206).code == 0
        assert route(namesrv, topic).code == 0
    await_unrouted(namesrv, topic)


@pytest.mark.mission("NS-05")
def test_a_killed_broker_is_unrouted_when_its_connection_ends(pair: Pair, second: JavaBroker, topic: str) -> None:
    if not second.running:
        second.start()
    remoting.create_topic(second.address, topic)
    assert [route(address, topic).code for address in pair.addresses] == [0, 0]
    killed_at = time.monotonic()
    second.kill()
    for address in pair.addresses:
        await_unrouted(address, topic)
        assert "broker-b" not in call(address, 106).body.decode()
    unrouted_s = time.monotonic() - killed_at
    print(f"unrouted after {unrouted_s:.3f} s")
    assert unrouted_s < EXPIRY_S / 4, "by the end of its connection, not by its silence"


@pytest.mark.mission("NS-03")
def test_a_broker_that_stops_unregisters_while_it_is_still_connected(
    pair: Pair, second: JavaBroker, topic: str
) -> None:
    remoting.create_topic(second.address, topic)
    assert [route(address, topic).code for address in pair.addresses] == [0, 0]
    os.kill(second.pid, signal.SIGTERM)  # its orderly stop takes seconds; it unregisters first
    for address in pair.addresses:
        await_unrouted(address, topic)
    assert second.running


@pytest.mark.mission("NS-09")
def test_a_deleted_topic_is_gone_until_its_broker_registers_again(pair: Pair, topic: str) -> None:
    remoting.create_topic(pair.broker.address, topic)
    pair.broker.register()  # what comes by the clock after this has nothing new
    for address in pair.addresses:
        assert topic in call(address, 206).json()["topicList"]
        assert call(address, 216, {"topic": topic}).code == 0
        assert topic not in call(address, 206).json()["topicList"]
        assert route(address, topic).code == TOPIC_NOT_EXIST
    pair.broker.register()
    for address in pair.addresses:
        await_listed(address, topic)


# Write permission

SEND_ROUNDS = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_rounds"));
    p.setNamesrvAddr(args[0]);
    p.setPollNameServerInterval(Integer.parseInt(args[2]));
    p.start();
    for (String body; (body = receive()) != null; ) {
        Set<String> brokers = new TreeSet<>();
        for (int i = 0; i < 16; i++) {
            brokers.add(p.send(new Message(args[1], body.getBytes())).getMessageQueue().getBrokerName());
        }
        emit(brokers);
    }
"""


@pytest.mark.mission("NS-10")
def test_without_write_permission_producers_go_elsewhere_and_consumers_read_on(
    java55: JavaShell, mqadmin: MqAdmin, pair: Pair, second: JavaBroker, topic: str
) -> None:
    for broker in (pair.broker, second):
        remoting.create_topic(broker.address, topic)
    producers = [java55.begin(SEND_ROUNDS, address, topic, ROUTE_POLL_MS) for address in pair.addresses]

    def used_brokers() -> list[list[str]]:
        for producer in producers:
            producer.send("x")
        return [producer.next() for producer in producers]

    assert used_brokers() == [["broker-a", "broker-b"]] * 2
    for address in pair.addresses:
        done = mqadmin("wipeWritePerm", "-b", "broker-b", namesrv=address)
        assert re.search(r"wipe write perm of broker\[broker-b\] in name server\[.*\] OK, \d+", done.stdout)
    wait_until(lambda: used_brokers() == [["broker-a"]] * 2, "producers leave broker-b")
    assert used_brokers() == [["broker-a"]] * 2

    for number, address in enumerate(pair.addresses):
        consumer = consume(java55, address, topic, f"{topic}_{number}")
        while {row["broker"] for row in consumer.rows} != {"broker-a", "broker-b"}:
            consumer.next()
        consumer.stop()

    for address in pair.addresses:
        mqadmin("addWritePerm", "-b", "broker-b", namesrv=address)
    wait_until(lambda: used_brokers() == [["broker-a", "broker-b"]] * 2, "producers return")


# Two name servers of ours


@pytest.mark.mission("NS-01")
def test_name_servers_share_nothing_but_their_brokers(jars: None, tmp_path: Path, topic: str) -> None:
    with (
        CometNameServer(tmp_path, name="one").start() as one,
        CometNameServer(tmp_path, name="two").start() as two,
        JavaBroker(tmp_path, f"{one.address};{two.address}").start() as broker,
    ):
        remoting.create_topic(broker.address, topic)
        whole = route(one.address, topic)
        assert whole.code == 0
        assert route(two.address, topic) == whole
        assert not connected(one, two)
        os.kill(broker.pid, signal.SIGSTOP)  # or it might register before we have looked
        one.kill()
        one.start()
        assert route(one.address, topic).code == TOPIC_NOT_EXIST
        assert route(two.address, topic) == whole
        os.kill(broker.pid, signal.SIGCONT)
        wait_until(lambda: route(one.address, topic).code == 0, "the next registration", REGISTRATION_S)
        assert route(one.address, topic) == whole
        assert not connected(one, two)


def connected(one: CometNameServer, two: CometNameServer) -> bool:
    return two.address in peers(one.pid) or one.address in peers(two.pid)


def peers(pid: int) -> set[str]:
    """Addresses at the other end of a process's TCP connections, from Linux's tables."""
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            own.add(os.readlink(link))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {_address(row[2]) for row in rows if f"socket:[{row[9]}]" in own}


def _address(text: str) -> str:
    host, port = text.split(":")
    return ".".join(str(byte) for byte in bytes.fromhex(host)[::-1]) + f":{int(port, 16)}"
