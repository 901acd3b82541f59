"""Java consumers that pop from our broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.conftest import Cluster, Clusters
from tests.compat.harness import remoting
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.build import REPO
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import send
from tests.compat.harness.servers import CometBroker, CometNameServer, JavaBroker
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

WAIT_S = 60.0
GET_MAX_OFFSET = 30
POP_MESSAGE = 200050
ACK_MESSAGE = 200051

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


@pytest.mark.mission("AD-05")
def test_ten_java_consumers_share_four_queues_and_all_are_busy(
    java55: JavaShell, clusters: Clusters, mqadmin: MqAdmin, topic: str
) -> None:
    cluster = clusters["comet"]
    group = f"{topic}_g"
    remoting.create_topic(cluster.broker.address, topic, queues=4)
    remoting.create_group(cluster.broker.address, group)
    set_pop(mqadmin, cluster, topic, group)
    consumers = [java55.begin(POP, cluster.namesrv.address, topic, group, f"{topic}_{number}") for number in range(10)]
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
    assert "| what you see | why | what to do |" in (REPO / "docs" / "behind.md").read_text()


def test_messages_in_hand_at_a_java_broker_come_again_at_ours(java55: JavaShell, tmp_path: Path, topic: str) -> None:
    group = f"{topic}_g"
    with CometNameServer(tmp_path).start() as namesrv:
        with JavaBroker(tmp_path, namesrv.address).start() as before:
            remoting.create_topic(before.address, topic, queues=1)
            remoting.create_group(before.address, group)
            send(java55, namesrv.address, topic, "0", "1", "2")
            before.await_dispatch()
            wish: dict[str, object] = {
                "consumerGroup": group, "topic": topic, "queueId": 0, "maxMsgNums": 32, "invisibleTime": 10_000,
                "pollTime": 5_000, "bornTime": 0, "initMode": 0,
            }  # fmt: skip
            popped = remoting.call(before.address, POP_MESSAGE, wish)
            assert (popped.code, popped.ext["msgOffsetInfo"]) == (0, "0 0 0,1,2")
            ext = popped.ext
            receipt = f"0 {ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 {before.broker_name} 0 1"
            done = {"consumerGroup": group, "topic": topic, "queueId": 0, "extraInfo": receipt, "offset": 1}
            assert remoting.call(before.address, ACK_MESSAGE, done).code == 0
            before.stop()
        with CometBroker(tmp_path, namesrv.address).start() as broker:
            place = {"topic": f"%RETRY%{group}_{topic}", "queueId": 0, "committed": "true"}

            def end() -> str | None:
                return remoting.call(broker.address, GET_MAX_OFFSET, place).ext.get("offset")

            wait_until(lambda: end() == "2", "both that were not acknowledged", WAIT_S)
            again = remoting.call(broker.address, POP_MESSAGE, wish)
            assert again.ext["msgOffsetInfo"] == "1 0 0,1"
            assert b"POP_CK" in again.body
