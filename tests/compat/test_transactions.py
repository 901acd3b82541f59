"""Java's transactional producer at our broker and at RocketMQ's: decided at once, asked for, killed, given up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.compat.harness.directory import read_queues
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume
from tests.compat.harness.remoting import create_topic
from tests.compat.harness.servers import MAKES, Broker, NameServer
from tests.compat.harness.shell import JavaShell, Run

pytestmark = pytest.mark.interop

CHECKS_MAX = 10
# Short times, so that a test sees some rounds. RocketMQ also asks for what it has committed while its ops wait, so
# those are written soon; on a busy machine it may ask all the same.
SETTINGS = {
    "transactionCheckInterval": 2_000,
    "transactionTimeOut": 3_000,
    "transactionCheckMax": CHECKS_MAX,
    "transactionOpBatchInterval": 100,
}
OPS = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
ASKED_TIMEOUT_S = 60.0

# One order a line: key, what the local branch says, what an answer to a question will say; `args[4]` is said instead.
TRANSACT = """
    TransactionMQProducer p = use(new TransactionMQProducer(args[2]));
    p.setNamesrvAddr(args[0]);
    p.setInstanceName(args[3]);
    p.setPollNameServerInterval(1_000);
    p.setHeartbeatBrokerInterval(1_000);
    p.setSendMsgTimeout(20_000);
    p.setMqClientApiTimeout(20_000);
    p.setTransactionListener(new TransactionListener() {
        public LocalTransactionState executeLocalTransaction(Message m, Object said) {
            return LocalTransactionState.valueOf((String) said);
        }
        public LocalTransactionState checkLocalTransaction(MessageExt m) {
            emit("asked", m.getKeys(), "topic", m.getTopic(), "queueId", m.getQueueId(), "body", m.getBody(),
                "times", m.getProperty("TRANSACTION_CHECK_TIMES"), "transactionId", m.getTransactionId());
            return LocalTransactionState.valueOf(args.length > 4 ? args[4] : m.getUserProperty("answer"));
        }
    });
    p.start();
    emit("started", args[3]);
    for (String order = receive(); order != null; order = receive()) {
        String[] words = order.split(" ");
        Message m = new Message(args[1], "X", words[0], words[0].getBytes());
        m.putUserProperty("answer", words[2]);
        TransactionSendResult r = p.sendMessageInTransaction(m, words[1]);
        emit("sent", words[0], "status", r.getSendStatus(), "state", r.getLocalTransactionState(),
            "transactionId", r.getTransactionId(), "msgId", r.getMsgId());
    }
"""
COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"


class Producer:
    """A running program; rows of both kinds come as they happen."""

    def __init__(self, java: JavaShell, namesrv: str, topic: str, instance: str = "one", *says: str) -> None:
        self.run: Run = java.begin(TRANSACT, namesrv, topic, f"{topic}_p", instance, *says)
        assert self.run.next() == {"started": instance}
        self.asked: list[dict[str, Any]] = []
        self._sent: list[dict[str, Any]] = []

    def send(self, key: str, says: str, answer: str = UNKNOWN) -> dict[str, Any]:
        self.run.send(f"{key} {says} {answer}")
        while not self._sent:
            self._take_row()
        return self._sent.pop()

    def wait_asked(self, count: int) -> list[str]:
        """Keys of the first `count` questions."""
        while len(self.asked) < count:
            self._take_row()
        return [row["asked"] for row in self.asked[:count]]

    def wait_asked_for(self, *keys: str) -> list[str]:
        """Keys of all questions until each of these was asked for."""
        while not set(keys) <= {row["asked"] for row in self.asked}:
            self._take_row()
        return [row["asked"] for row in self.asked]

    def _take_row(self) -> None:
        row = self.run.next(ASKED_TIMEOUT_S)
        (self.asked if "asked" in row else self._sent).append(row)


class Servers:
    def __init__(self, is_ours: bool, namesrv: NameServer, broker: Broker) -> None:
        self.is_ours = is_ours
        self.namesrv = namesrv.address
        self.broker = broker.address


@pytest.fixture(scope="module", params=list(MAKES))
def servers(request: pytest.FixtureRequest, jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    make = MAKES[request.param]
    directory = tmp_path_factory.mktemp(f"transactions-{make.name}")
    with ExitStack() as stack:
        namesrv = stack.enter_context(make.name_server(directory).start())
        broker = stack.enter_context(make.broker(directory, namesrv.address, SETTINGS).start())
        yield Servers(make.name == "comet", namesrv, broker)


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return [row["body"] for row in rows]


@pytest.mark.mission("TX-02", "TX-04")
def test_what_is_committed_at_once_or_when_asked_arrives_and_nothing_else(
    java: JavaShell, servers: Servers, topic: str
) -> None:
    create_topic(servers.broker, topic, queues=1)
    producer = Producer(java, servers.namesrv, topic)
    for key, says, answer in (
        ("committed", COMMIT, UNKNOWN),
        ("removed", ROLLBACK, UNKNOWN),
        ("asked-committed", UNKNOWN, COMMIT),
        ("asked-removed", UNKNOWN, ROLLBACK),
    ):
        sent = producer.send(key, says, answer)
        assert (sent["status"], sent["state"]) == ("SEND_OK", says)
        assert sent["transactionId"] == sent["msgId"]
    asked = producer.wait_asked_for("asked-committed", "asked-removed")
    assert len(asked) == 2 or not servers.is_ours
    for row in producer.asked:
        assert (row["topic"], row["queueId"], row["body"], row["times"]) == (topic, 0, row["asked"], "1")

    consumer = consume(java, servers.namesrv, topic, f"{topic}_g")
    first = consumer.take(2)
    producer.send("last", COMMIT)
    (last,) = consumer.take(1)
    consumer.stop()
    producer.run.stop()
    first.sort(key=lambda row: len(row["body"]))
    assert bodies([*first, last]) == ["committed", "asked-committed", "last"]
    added_by_client = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "answer", "KEYS", "TAGS"}
    assert set(first[0]["properties"]) - added_by_client == {
        "WAIT", "TRAN_MSG", "PGROUP", "UNIQ_KEY", "__transactionId__", "MSG_REGION", "TRACE_ON", "CLUSTER",
    }  # fmt: skip
    assert first[1]["properties"]["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.mission("TX-08")
def test_a_producer_that_never_decides_is_asked_some_times(java55: JavaShell, servers: Servers, topic: str) -> None:
    create_topic(servers.broker, topic, queues=1)
    producer = Producer(java55, servers.namesrv, topic)
    producer.send("undecided", UNKNOWN)
    assert producer.wait_asked(CHECKS_MAX) == ["undecided"] * CHECKS_MAX
    assert [row["times"] for row in producer.asked] == [str(1 + number) for number in range(CHECKS_MAX)]
    consumer = consume(java55, servers.namesrv, GIVEN_UP_TOPIC, f"{topic}_g")
    while (row := consumer.next(ASKED_TIMEOUT_S))["properties"]["REAL_TOPIC"] != topic:
        pass
    assert row["body"] == "undecided"
    producer.send("other", UNKNOWN, COMMIT)
    assert producer.wait_asked(CHECKS_MAX + 1)[-1] == "other", "the first one is asked for no more"
    consumer.stop()
    producer.run.stop()


@pytest.mark.mission("TX-09")
@pytest.mark.parametrize("is_there", [True, False], ids=["other-is-there", "other-comes-later"])
def test_another_producer_of_the_group_is_asked_when_one_was_killed(
    java55: JavaShell, servers: Servers, topic: str, tmp_path: Path, is_there: bool
) -> None:
    create_topic(servers.broker, topic, queues=1)
    doomed = JavaShell(tmp_path, name="doomed")
    try:
        killed = Producer(doomed, servers.namesrv, topic, "doomed", UNKNOWN)
        if is_there:
            other = _join(java55, servers, topic)
        killed.send("orphan", UNKNOWN, COMMIT)
    finally:
        doomed.close()
    if not is_there:
        other = _join(java55, servers, topic)
    other.wait_asked_for("orphan")
    consumer = consume(java55, servers.namesrv, topic, f"{topic}_g")
    assert bodies(consumer.take(1)) == ["orphan"]
    consumer.stop()
    other.run.stop()


def _join(java: JavaShell, servers: Servers, topic: str) -> Producer:
    """Another producer of the group. It says hello to brokers to which it has sent something."""
    producer = Producer(java, servers.namesrv, topic, "other")
    producer.send("hello", ROLLBACK)
    return producer


def decisions(java: JavaShell, broker: Broker) -> int:
    """How many half messages are marked as decided; a mark is a list of their offsets, each with a comma."""
    return sum(row["body"].count(b",") for row in read_queues(java, broker, [OPS])[OPS])


@pytest.mark.mission("TX-05")
@pytest.mark.parametrize(("first", "second"), [("java", "comet"), ("comet", "java")])
def test_one_broker_finishes_the_open_transactions_of_the_other(
    java55: JavaShell, topic: str, tmp_path: Path, first: str, second: str
) -> None:
    """The same directory, one after the other."""
    with MAKES[first].name_server(tmp_path).start() as namesrv:
        slow = {**SETTINGS, "transactionCheckInterval": 600_000}
        with MAKES[first].broker(tmp_path, namesrv.address, slow).start() as broker:
            create_topic(broker.address, topic, queues=1)
            producer = Producer(java55, namesrv.address, topic)
            producer.send("committed", COMMIT)
            producer.send("removed", ROLLBACK)
            producer.send("open-committed", UNKNOWN, COMMIT)
            producer.send("open-removed", UNKNOWN, ROLLBACK)
            # A producer that has decided gets no answer, so look whether both decisions have come.
            wait_until(lambda: decisions(java55, broker) == 2, "two decisions")
            broker.stop()
        with MAKES[second].broker(tmp_path, namesrv.address, SETTINGS).start():
            asked = producer.wait_asked_for("open-committed", "open-removed")
            consumer = consume(java55, namesrv.address, topic, f"{topic}_g")
            got = consumer.take(2)
            producer.send("last", COMMIT)
            got += consumer.take(1)
            consumer.stop()
            producer.run.stop()
    assert sorted(bodies(got[:2])) == ["committed", "open-committed"]
    assert bodies(got[2:]) == ["last"]
    assert sorted(asked) == ["open-committed", "open-removed"]
