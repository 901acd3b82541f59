"""Options of Java clients that change what goes over the wire, at our broker and at RocketMQ's.

    header in the binary form, the second ("VIP") port, heartbeats that tell only changes, namespaces, traces, ...

And what a client can ask a broker besides sending and reading.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness import remoting
from tests.compat.harness.java import CURRENT, OLD, QUICK
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume, send
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=[CURRENT, OLD])
def binary_java(
    request: pytest.FixtureRequest, jars: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaShell]:
    """A client that writes headers in RocketMQ's binary form. That is chosen for a whole JVM."""
    options = [*QUICK, "-Drocketmq.serialize.type=ROCKETMQ"]
    with JavaShell(tmp_path_factory.mktemp("binary"), request.param, name="binary", options=options) as shell:
        yield shell


def test_clients_may_write_headers_in_the_binary_form(binary_java: JavaShell, cluster: Cluster, topic: str) -> None:
    used = binary_java.run(
        """
        import org.apache.rocketmq.remoting.protocol.RemotingCommand;
        emit(RemotingCommand.getSerializeTypeConfigInThisServer().toString());
        """
    )
    assert used.rows == ["ROCKETMQ"]
    bodies = ["one", "two", "drei"]
    sent = send(binary_java, cluster.namesrv.address, topic, *bodies)
    assert {row["status"] for row in sent} == {"SEND_OK"}
    consumer = consume(binary_java, cluster.namesrv.address, topic, f"{topic}_g")
    got = consumer.take(3)
    consumer.stop()
    assert sorted(row["body"] for row in got) == sorted(bodies)
    assert {row["msgId"] for row in got} == {row["msgId"] for row in sent}
    again = consume(binary_java, cluster.namesrv.address, topic, f"{topic}_g")
    send(binary_java, cluster.namesrv.address, topic, "later")
    # Progress is told without an answer when a consumer stops: what it did not tell comes again.
    assert "later" in (again.next()["body"] for _ in range(4))
    again.stop()


ROUND_TRIP = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_options"));
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[1] + "_g"));
    p.setNamesrvAddr(args[0]);
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setPollNameServerInterval(500);
    c.setHeartbeatBrokerInterval(2_000);
    OPTIONS
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) emit("topic", m.getTopic(), "body", m.getBody(), "times", m.getReconsumeTimes());
        return new String(messages.get(0).getBody()).equals("again") && messages.get(0).getReconsumeTimes() == 0
            ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    p.start();
    for (int i = 0; i < 4; i++) p.send(new Message(args[1], ("body" + i).getBytes()));
    p.send(new Message(args[1], "again".getBytes()));
    c.start();
    awaitStop();
"""
OPTIONS = {
    "second port": "p.setVipChannelEnabled(true); c.setVipChannelEnabled(true);",
    "changes only": "p.setUseHeartbeatV2(true); c.setUseHeartbeatV2(true); c.setHeartbeatBrokerInterval(1_000);",
    "concurrent heartbeats": "p.setEnableConcurrentHeartbeat(true); c.setEnableConcurrentHeartbeat(true);",
    "latency": "p.setSendLatencyFaultEnable(true); p.setSendLatencyEnable(true); p.setStartDetectorEnable(true);",
    "stream": "p.setEnableStreamRequestType(true); c.setEnableStreamRequestType(true);",
    "unit": 'p.setUnitName("unit"); c.setUnitName("unit"); c.setUnitMode(true); p.setUnitMode(true);',
    "namespace": 'p.setNamespaceV2("tenant"); c.setNamespaceV2("tenant");',
    "old namespace": 'p.setNamespace("tenant"); c.setNamespace("tenant");',
    "batches": "p.setAutoBatch(true); c.setPullBatchSize(8); c.setConsumeMessageBatchMaxSize(1);",
    "subscription with the pull": "c.setPostSubscriptionWhenPull(true);",
    "trace": "p.setEnableTrace(true); c.setEnableTrace(true);",
}
OF_BOTH_RELEASES = ("second port", "unit", "old namespace", "subscription with the pull")


@pytest.mark.parametrize("name", OPTIONS)
def test_a_round_trip_with_an_option(java55: JavaShell, cluster: Cluster, topic: str, name: str) -> None:
    round_trip(java55, cluster, topic, OPTIONS[name])


@pytest.mark.parametrize("name", OF_BOTH_RELEASES)
def test_a_round_trip_with_an_option_of_old_clients(
    shells: dict[str, JavaShell], cluster: Cluster, topic: str, name: str
) -> None:
    round_trip(shells[OLD], cluster, topic, OPTIONS[name])


def round_trip(java: JavaShell, cluster: Cluster, topic: str, options: str) -> None:
    run = java.begin(ROUND_TRIP.replace("OPTIONS", options), cluster.namesrv.address, topic)
    rows = run.take(6, timeout_s=60.0)
    run.stop()
    expected = [("again", 0), ("again", 1), ("body0", 0), ("body1", 0), ("body2", 0), ("body3", 0)]
    assert sorted((row["body"], row["times"]) for row in rows) == expected
    assert {row["topic"] for row in rows} == {topic}


ASK = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_asking"));
    p.setNamesrvAddr(args[0]);
    p.start();
    long before = System.currentTimeMillis();
    List<MessageQueue> queues = p.fetchPublishMessageQueues(args[1]);
    emit("queues", queues.size());
    MessageQueue q = queues.get(0);
    SendResult r = null;
    for (int i = 0; i < 3; i++) r = p.send(new Message(args[1], "tag", "its-key", ("body" + i).getBytes()), q);
    emit("sent", true);
    receive();
    emit("min", p.minOffset(q), "max", p.maxOffset(q));
    emit("earliest", p.earliestMsgStoreTime(q) >= before - 60_000);
    emit("searched", p.searchOffset(q, before - 60_000), "future", p.searchOffset(q, before + 3_600_000));
    MessageExt byOffset = p.viewMessage(args[1], r.getOffsetMsgId());
    MessageExt byUnique = p.viewMessage(args[1], r.getMsgId());
    emit("viewed", byOffset.getBody(), "unique", byUnique.getBody(), "keys", byOffset.getKeys());
    emit("found", p.queryMessage(args[1], "its-key", 10, before - 60_000, before + 3_600_000).getMessageList().size());
"""


def test_what_a_client_asks_of_a_broker(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=3)
    asking = java.begin(ASK, cluster.namesrv.address, topic)
    assert asking.take(2) == [{"queues": 3}, {"sent": True}]
    cluster.broker.await_dispatch()
    asking.send("go on")
    assert asking.wait().rows[2:] == [
        {"min": 0, "max": 3},
        {"earliest": True},
        {"searched": 0, "future": 3},
        {"viewed": "body2", "unique": "body2", "keys": "its-key"},
        {"found": 3},
    ]


SUBSCRIBE_LATER = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[1] + "_g"));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setPollNameServerInterval(500);
    c.setHeartbeatBrokerInterval(2_000);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) emit(m.getTopic() + " " + new String(m.getBody()));
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    receive();
    c.subscribe(args[2], "*");
    awaitStop();
"""


def test_a_running_consumer_subscribes_to_another_topic(java: JavaShell, cluster: Cluster, topic: str) -> None:
    other = f"{topic}_other"
    for name in (topic, other):
        remoting.create_topic(cluster.broker.address, name, queues=1)
        send(java, cluster.namesrv.address, name, "there")
    consumer = java.begin(SUBSCRIBE_LATER, cluster.namesrv.address, topic, other)
    assert consumer.next() == f"{topic} there"
    consumer.send("subscribe")
    assert consumer.next() == f"{other} there"
    send(java, cluster.namesrv.address, topic, "still")
    assert consumer.next() == f"{topic} still"
    consumer.stop()

    def subscribed() -> set[str]:
        answer = remoting.call(cluster.broker.address, 203, {"consumerGroup": f"{topic}_g"})
        return set(answer.json()["subscriptionTable"]) if answer.code == 0 else set()

    wait_until(lambda: not subscribed(), "the end of the group")
