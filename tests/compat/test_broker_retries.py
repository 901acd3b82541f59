"""What Java consumers fail to handle, at our broker and at RocketMQ's: it comes back later, and in the end it is a dead
letter.

The shared clusters bring a message back after one second; one slow test uses the real delays.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness import remoting
from tests.compat.harness.programs import consume, send
from tests.compat.harness.servers import MAKES
from tests.compat.harness.shell import JavaShell, Run

pytestmark = pytest.mark.interop

# Fails whatever has "fail" in its body, with the delay level args[4] for the next try; gives up after args[3] tries.
FAIL = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setPollNameServerInterval(1_000);
    c.setMaxReconsumeTimes(Integer.parseInt(args[3]));
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        boolean fails = false;
        for (MessageExt m : messages) {
            emit("body", m.getBody(), "times", m.getReconsumeTimes(), "at", System.currentTimeMillis(),
                "topic", m.getTopic(), "msgId", m.getMsgId(), "properties", m.getProperties(),
                "offsetId", org.apache.rocketmq.common.message.MessageDecoder.createMessageId(
                    m.getStoreHost(), m.getCommitLogOffset()));
            fails |= new String(m.getBody()).contains("fail");
        }
        context.setDelayLevelWhenNextConsume(Integer.parseInt(args[4]));
        return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    awaitStop();
"""


def fail(java: JavaShell, namesrv: str, topic: str, limit: int, level: int = 0) -> Run:
    return java.begin(FAIL, namesrv, topic, f"{topic}_g", limit, level)


def check_retry(first: dict[str, Any], again: dict[str, Any], topic: str, times: int) -> None:
    """The same message to its handler: its topic, its id, its properties, and the count of tries."""
    assert (again["times"], again["topic"], again["body"]) == (times, topic, first["body"])
    properties = again["properties"]
    assert properties["RETRY_TOPIC"] == topic
    assert properties["ORIGIN_MESSAGE_ID"] == first["offsetId"]
    assert again["msgId"] == first["msgId"] == properties["UNIQ_KEY"]
    assert properties["KEYS"] == "kept"


def send_with_key(java: JavaShell, namesrv: str, topic: str, body: str) -> None:
    java.run(
        """
        DefaultMQProducer p = use(new DefaultMQProducer("compat_retried"));
        p.setNamesrvAddr(args[0]);
        p.start();
        p.send(new Message(args[1], "tag", "kept", args[2].getBytes()));
        """,
        namesrv,
        topic,
        body,
    )


def dead_letter_queues(cluster: Cluster, topic: str) -> int:
    (queues,) = remoting.route(cluster.namesrv.address, f"%DLQ%{topic}_g").json()["queueDatas"]
    count: int = queues["readQueueNums"]
    return count


def test_a_failed_message_comes_back_and_ends_as_a_dead_letter(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    consumer = fail(java, cluster.namesrv.address, topic, limit=2)
    send_with_key(java, cluster.namesrv.address, topic, "will fail")
    first, second, third = consumer.take(3)
    assert (first["times"], "RETRY_TOPIC" in first["properties"]) == (0, False)
    check_retry(first, second, topic, 1)
    check_retry(first, third, topic, 2)
    send(java, cluster.namesrv.address, topic, "good")
    assert consumer.next()["body"] == "good"
    graveyard = consume(java, cluster.namesrv.address, f"%DLQ%{topic}_g", f"{topic}_dead")
    dead = graveyard.next()
    assert (dead["body"], dead["times"], dead["msgId"]) == ("will fail", 3, first["msgId"])
    assert dead["properties"]["RETRY_TOPIC"] == topic
    assert dead["properties"]["ORIGIN_MESSAGE_ID"] == first["offsetId"]
    assert dead_letter_queues(cluster, topic) == 1
    consumer.stop()
    graveyard.stop()
    assert len(consumer.rows) == 4


def test_a_message_may_be_given_up_at_once(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    consumer = fail(java, cluster.namesrv.address, topic, limit=16, level=-1)
    send_with_key(java, cluster.namesrv.address, topic, "fail for good")
    first = consumer.next()
    graveyard = consume(java, cluster.namesrv.address, f"%DLQ%{topic}_g", f"{topic}_dead")
    dead = graveyard.next()
    assert (dead["body"], dead["msgId"], dead["times"]) == ("fail for good", first["msgId"], 1)
    consumer.stop()
    graveyard.stop()
    assert len(consumer.rows) == 1


FAIL_IN_ORDER = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setMaxReconsumeTimes(3);
    c.setSuspendCurrentQueueTimeMillis(50);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
        for (MessageExt m : messages) {
            String body = new String(m.getBody());
            emit("body", body, "times", m.getReconsumeTimes());
            if (body.contains("fail")) return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }
        return ConsumeOrderlyStatus.SUCCESS;
    });
    c.start();
    awaitStop();
"""


@pytest.mark.mission("DL-04")
def test_an_ordered_consumer_tries_in_place_and_goes_on_after_the_limit(
    java: JavaShell, cluster: Cluster, topic: str
) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    send(java, cluster.namesrv.address, topic, "one", "will fail", "two")
    consumer = java.begin(FAIL_IN_ORDER, cluster.namesrv.address, topic, f"{topic}_g")
    rows = consumer.take(6)
    assert [row["body"] for row in rows] == ["one", "will fail", "will fail", "will fail", "will fail", "two"]
    assert [row["times"] for row in rows[1:5]] == [0, 1, 2, 3]
    graveyard = consume(java, cluster.namesrv.address, f"%DLQ%{topic}_g", f"{topic}_dead")
    assert graveyard.next()["body"] == "will fail"
    consumer.stop()
    graveyard.stop()
    assert len(consumer.rows) == 6


# Real delays

FIRST_RETRY_MS, SECOND_RETRY_MS = 10_000, 30_000
LATE_MS = 15_000  # the sweep over delayed messages, the pull, and a busy machine


@pytest.mark.long
def test_retries_come_after_ten_seconds_and_thirty_more(
    java55: JavaShell, jars: None, tmp_path: Path, topic: str
) -> None:
    """Both makes at the same time: the test is one long wait."""
    with ExitStack() as stack:
        runs: list[Run] = []
        for name, make in MAKES.items():
            namesrv = stack.enter_context(make.name_server(tmp_path / name).start())
            broker = stack.enter_context(make.broker(tmp_path / name, namesrv.address).start())
            remoting.create_topic(broker.address, topic)
            runs.append(fail(java55, namesrv.address, topic, limit=16))
            send_with_key(java55, namesrv.address, topic, "will fail")
        for name, run in zip(MAKES, runs, strict=True):
            check_delays(name, run.take(3, timeout_s=90.0), topic)
            run.stop()


def check_delays(name: str, tries: list[dict[str, Any]], topic: str) -> None:
    first, second, third = tries
    waited = [second["at"] - first["at"], third["at"] - second["at"]]
    print(f"{name}: retried after {waited} ms")
    check_retry(first, second, topic, 1)
    check_retry(first, third, topic, 2)
    assert FIRST_RETRY_MS <= waited[0] < FIRST_RETRY_MS + LATE_MS
    assert SECOND_RETRY_MS <= waited[1] < SECOND_RETRY_MS + LATE_MS
