"""Java consumers that pop from our broker."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Cluster, Clusters
from tests.compat.harness import remoting
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import send
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

WAIT_S = 60.0

# args: name servers, topic, group, instance; bodies that begin with "bad" fail the first time.
POP = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setInstanceName(args[3]);
    c.setPollNameServerInterval(1000);
    c.setClientRebalance(false);
    c.setConsumeThreadMin(2);
    c.setConsumeThreadMax(2);
    c.setPopThresholdForQueue(8);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) {
            String body = new String(m.getBody());
            emit("body", body, "times", m.getReconsumeTimes(), "who", args[3], "receipt", m.getProperty("POP_CK"));
            if (body.startsWith("bad") && m.getReconsumeTimes() == 0) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            if (body.startsWith("slow")) try { Thread.sleep(30); } catch (InterruptedException e) { return null; }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    awaitStop();
"""


def test_java_consumers_pop_and_a_message_that_failed_comes_again(
    java55: JavaShell, clusters: Clusters, mqadmin: MqAdmin, topic: str
) -> None:
    """The same passes with RocketMQ's broker, clusters["java"], but takes it half a minute."""
    cluster = clusters["comet"]
    group = f"{topic}_g"
    remoting.create_topic(cluster.broker.address, topic, queues=4)
    remoting.create_group(cluster.broker.address, group)
    set_pop(mqadmin, cluster, topic, group)
    send(java55, cluster.namesrv.address, topic, *(f"slow {number}" for number in range(20)), "bad")
    consumer = java55.begin(POP, cluster.namesrv.address, topic, group, f"{topic}_1")
    wait_until(lambda: len(consumer.rows) >= 22, "every message, and one again", WAIT_S)
    consumer.stop()
    rows = consumer.rows
    assert all(row["receipt"] for row in rows)
    assert sorted(row["body"] for row in rows) == sorted([*(f"slow {number}" for number in range(20)), "bad", "bad"])
    assert [row["times"] for row in rows if row["body"] == "bad"] == [0, 1]


def set_pop(mqadmin: MqAdmin, cluster: Cluster, topic: str, group: str) -> None:
    mqadmin(
        "setConsumeMode", "-b", cluster.broker.address, "-t", topic, "-g", group, "-m", "POP", "-q", "0",
        namesrv=cluster.namesrv.address,
    )  # fmt: skip


def test_ten_java_consumers_share_four_queues_and_all_are_busy(
    java55: JavaShell, clusters: Clusters, mqadmin: MqAdmin, topic: str
) -> None:
    cluster = clusters["comet"]
    group = f"{topic}_g"
    remoting.create_topic(cluster.broker.address, topic, queues=4)
    remoting.create_group(cluster.broker.address, group)
    set_pop(mqadmin, cluster, topic, group)
    consumers = [
        java55.begin(POP, cluster.namesrv.address, topic, group, f"{topic}_{number}") for number in range(10)
    ]
    sent = 0

    def everyone_is_busy() -> bool:
        nonlocal sent
        send(java55, cluster.namesrv.address, topic, *(f"slow {number}" for number in range(sent, sent + 50)))
        sent += 50
        return all(consumer.rows for consumer in consumers)

    wait_until(everyone_is_busy, "work for everyone", WAIT_S)
    wait_until(lambda: sum(len(consumer.rows) for consumer in consumers) >= sent, "every message", WAIT_S)
    for consumer in consumers:
        consumer.stop()
    bodies = [row["body"] for consumer in consumers for row in consumer.rows]
    assert sorted(bodies) == sorted(f"slow {number}" for number in range(sent))
