"""One message in several light queues, and queues by priority: Java's client at both brokers."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume
from tests.compat.harness.remoting import call, create_group, create_topic
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

SEND_LIGHT = """
    import org.apache.rocketmq.common.message.MessageAccessor;
    DefaultMQProducer p = use(new DefaultMQProducer("compat_producer"));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 2; i < args.length; i++) {
        String[] words = args[i].split(" ");
        Message m = new Message(args[1], "tag", words[0].getBytes());
        if (words.length > 1) MessageAccessor.putProperty(m, "INNER_MULTI_DISPATCH", words[1]);
        SendResult r = p.send(m);
        emit(r.getSendStatus().toString());
    }
"""

# A light queue has no route: what is known of the topic says where its broker is. The last pull waits.
PULL_LIGHT = """
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.start();
    MessageQueue any = c.fetchSubscribeMessageQueues(args[1]).iterator().next();
    c.pull(any, "*", 0, 32);
    for (int i = 3; i < args.length; i++) {
        MessageQueue q = new MessageQueue(args[i], any.getBrokerName(), 0);
        for (long next = 0; ; ) {
            PullResult r = c.pull(q, "*", next, 32);
            if (r.getPullStatus() != PullStatus.FOUND) break;
            next = r.getNextBeginOffset();
            for (MessageExt m : r.getMsgFoundList()) {
                emit("queue", args[i], "topic", m.getTopic(), "queueId", m.getQueueId(), "offset", m.getQueueOffset(),
                    "body", m.getBody(), "offsets", m.getProperty("INNER_MULTI_QUEUE_OFFSET"));
            }
        }
        emit("queue", args[i], "min", c.minOffset(q), "max", c.maxOffset(q));
    }
    MessageQueue q = new MessageQueue(args[3], any.getBrokerName(), 0);
    long end = c.maxOffset(q);
    emit("waits", true);
    emit("arrived", c.pullBlockIfNotFound(q, "*", end, 32).getMsgFoundList().get(0).getBody());
"""


SEND_BY_PRIORITY = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_producer"));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 2; i < args.length; i++) {
        String[] words = args[i].split(" ");
        Message m = new Message(args[1], words[1].getBytes());
        m.setPriority(Integer.parseInt(words[0]));
        if (words[1].equals("delayed")) m.setDelayTimeMs(100);
        SendResult r = p.send(m);
        emit("body", words[1], "queueId", r.getMessageQueue().getQueueId());
    }
"""


def commit(broker: str, group: str, topic: str, offset: int) -> int:
    fields: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    return call(broker, 15, fields).code


def committed(broker: str, group: str, topic: str) -> str:
    return call(broker, 14, {"consumerGroup": group, "topic": topic, "queueId": 0}).ext["offset"]


def test_a_message_is_in_every_light_queue_that_it_names(java55: JavaShell, equipped: Cluster, topic: str) -> None:
    namesrv, broker = equipped.namesrv.address, equipped.broker.address
    create_topic(broker, topic, queues=1)
    a, b, group = f"%LMQ%{topic}_a", f"%LMQ%{topic}_b", f"%LMQ%{topic}_g"
    sent = java55.run(SEND_LIGHT, namesrv, topic, f"1 {a},{b}", f"2 {b}", "3", f"4 {a}").rows
    assert sent == ["SEND_OK"] * 4
    equipped.broker.await_dispatch()
    run = java55.begin(PULL_LIGHT, namesrv, topic, group, a, b)
    assert run.take(7) == [
        {"queue": a, "topic": topic, "queueId": 0, "offset": 0, "body": "1", "offsets": "0,0"},
        {"queue": a, "topic": topic, "queueId": 0, "offset": 3, "body": "4", "offsets": "1"},
        {"queue": a, "min": 0, "max": 2},
        {"queue": b, "topic": topic, "queueId": 0, "offset": 0, "body": "1", "offsets": "0,0"},
        {"queue": b, "topic": topic, "queueId": 0, "offset": 1, "body": "2", "offsets": "1"},
        {"queue": b, "min": 0, "max": 2},
        {"waits": True},
    ]
    java55.run(SEND_LIGHT, namesrv, topic, f"5 {a}")
    assert run.next() == {"arrived": "5"}
    assert commit(broker, group, a, 2) == 0
    assert committed(broker, group, a) == "2"
    assert commit(broker, f"{topic}_no_such_group", a, 2) == 26


def test_light_offsets_are_in_a_file_of_their_own(equipped: Cluster, topic: str) -> None:
    broker = equipped.broker
    create_topic(broker.address, topic, queues=1)
    create_group(broker.address, f"{topic}_g")
    light, group = f"%LMQ%{topic}", f"%LMQ%{topic}_g"
    assert commit(broker.address, group, light, 7) == 0
    assert commit(broker.address, f"{topic}_g", topic, 0) == 0
    path = broker.store / "config/lmqConsumerOffset.json"

    def saved() -> dict[str, Any]:
        """The file, once it has both groups. RocketMQ's broker has no such file for a moment when it saves."""
        text = ""
        with suppress(FileNotFoundError):
            text = path.read_text()
        found: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text)) if text else {}
        return found if f"{topic}@{topic}_g" in found.get("offsetTable", {}) else {}

    table = wait_until(saved, "the file of offsets")
    assert table["lmqOffsetTable"][f"{light}@{group}"] == 7
    assert table["offsetTable"][f"{topic}@{topic}_g"] == {"0": 0}
    assert not [key for key in table["offsetTable"] if "%LMQ%" in key]


def test_priority_chooses_the_queue(java55: JavaShell, cluster: Cluster, topic: str) -> None:
    create_topic(cluster.broker.address, topic, queues=4)
    rows = java55.run(
        SEND_BY_PRIORITY, cluster.namesrv.address, topic, *("0 a", "1 b", "3 c", "4 d", "99 e"), "2 delayed"
    ).rows
    assert [(row["body"], row["queueId"]) for row in rows[:-1]] == [("a", 0), ("b", 1), ("c", 3), ("d", 3), ("e", 3)]
    consumer = consume(java55, cluster.namesrv.address, topic, f"{topic}_g")
    found = {row["body"]: row for row in consumer.take(6)}
    consumer.stop()
    assert {body: row["queueId"] for body, row in found.items() if body != "delayed"} == {
        "a": 0, "b": 1, "c": 3, "d": 3, "e": 3,
    }  # fmt: skip
    assert found["e"]["properties"]["_SYS_MSG_PRIORITY_"] == "99"
    assert "_SYS_MSG_PRIORITY_" not in found["delayed"]["properties"]
