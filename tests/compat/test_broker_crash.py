"""kill -9 under the load of a Java producer and a Java consumer, again and again.

What the producer was told is stored stays stored, at the place it was told. The offsets of the group never run ahead
of what its consumer has handled.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until
from tests.compat.harness.servers import CometBroker, CometNameServer
from tests.compat.harness.shell import JavaShell, Run

pytestmark = pytest.mark.interop

QUEUES = 4
KILLS = 20
ACKS_BETWEEN = 40

SEND_ON = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_crash"));
    p.setNamesrvAddr(args[0]);
    p.setPollNameServerInterval(500);
    p.setSendMsgTimeout(1_000);
    p.start();
    AtomicInteger next = new AtomicInteger();
    AtomicInteger failed = new AtomicInteger();
    AtomicBoolean over = new AtomicBoolean();
    Runnable work = () -> {
        while (!over.get()) {
            int number = next.getAndIncrement();
            byte[] body = String.format("%d %s", number, "x".repeat(number * 37 % 1500)).getBytes();
            try {
                SendResult r = p.send(new Message(args[1], body));
                emit("number", number, "status", r.getSendStatus(), "queueId", r.getMessageQueue().getQueueId(),
                    "queueOffset", r.getQueueOffset());
            } catch (Exception e) {
                failed.incrementAndGet();
                try {
                    Thread.sleep(50);
                } catch (InterruptedException stop) {
                    return;
                }
            }
        }
    };
    Thread[] senders = new Thread[4];
    for (int i = 0; i < senders.length; i++) (senders[i] = new Thread(work)).start();
    awaitStop();
    over.set(true);
    for (Thread t : senders) t.join();
    emit("failed", failed.get());
"""
CONSUME_ON = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setPollNameServerInterval(500);
    c.setHeartbeatBrokerInterval(1_000);
    c.setPersistConsumerOffsetInterval(500);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) {
            emit("queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(),
                "number", Integer.parseInt(new String(m.getBody()).split(" ")[0]));
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    awaitStop();
"""
READ_PLACES = """
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer("crash_reader"));
    c.setNamesrvAddr(args[0]);
    c.start();
    for (MessageQueue q : c.fetchSubscribeMessageQueues(args[1])) {
        for (long next = 0; ; ) {
            PullResult r = c.pull(q, "*", next, 32);
            if (r.getPullStatus() != PullStatus.FOUND) break;
            next = r.getNextBeginOffset();
            for (MessageExt m : r.getMsgFoundList()) {
                String[] body = new String(m.getBody()).split(" ", -1);
                int number = Integer.parseInt(body[0]);
                emit("queueId", q.getQueueId(), "queueOffset", m.getQueueOffset(), "number", number,
                    "whole", body[1].equals("x".repeat(number * 37 % 1500)));
            }
        }
    }
"""

Place = tuple[int, int]


def place(row: dict[str, Any]) -> Place:
    return row["queueId"], row["queueOffset"]


def committed(address: str, group: str, topic: str) -> list[int]:
    offsets = []
    for queue in range(QUEUES):
        ext: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": queue}
        answer = remoting.call(address, 14, ext)
        offsets.append(int(answer.ext["offset"]) if answer.code == 0 else 0)
    return offsets


def handled(consumer: Run) -> list[int]:
    """Per queue the end of what the consumer has handled; nothing behind it may be committed."""
    ends = [0] * QUEUES
    for row in list(consumer.rows):
        ends[row["queueId"]] = max(ends[row["queueId"]], row["queueOffset"] + 1)
    return ends


def is_within(offsets: list[int], ends: list[int]) -> bool:
    return all(offset <= end for offset, end in zip(offsets, ends, strict=True))


def test_twenty_kills_under_load_lose_nothing_that_was_acked(
    java55: JavaShell, jars: None, tmp_path: Path, topic: str
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    settings = {"mappedFileSizeCommitLog": 262_144, "mappedFileSizeConsumeQueue": 2_000}
    group = f"{topic}_g"
    with (
        CometNameServer(tmp_path).start() as namesrv,
        CometBroker(tmp_path, namesrv.address, settings).start() as broker,
    ):
        remoting.create_topic(broker.address, topic, queues=QUEUES)
        consumer = java55.begin(CONSUME_ON, namesrv.address, topic, group)
        producer = java55.begin(SEND_ON, namesrv.address, topic)
        for _ in range(KILLS):
            producer.take(ACKS_BETWEEN + chance.randrange(ACKS_BETWEEN), timeout_s=60.0)
            broker.kill()
            broker.start()
            after = committed(broker.address, group, topic)
            wait_until(lambda: is_within(after, handled(consumer)), f"rows of what is committed, {after}")  # noqa: B023
        producer.take(ACKS_BETWEEN, timeout_s=60.0)
        producer.stop()
        acked = {place(row): row["number"] for row in producer.rows[:-1]}
        assert {row["status"] for row in producer.rows[:-1]} == {"SEND_OK"}
        assert len(acked) == len(producer.rows) - 1  # no place was given twice
        rows = java55.run(READ_PLACES, namesrv.address, topic, timeout_s=60.0).rows
        stored = {place(row): row["number"] for row in rows}
        assert all(row["whole"] for row in rows)
        lost = {spot: number for spot, number in acked.items() if stored.get(spot) != number}
        ends = [max(offset for queue, offset in stored if queue == number) + 1 for number in range(QUEUES)]
        wait_until(lambda: committed(broker.address, group, topic) == ends, "the group to reach the end", 60.0)
        consumer.stop()
        repeated = len(consumer.rows) - len(stored)
        print(
            f"{KILLS} kills, {producer.rows[-1]['failed']} sends failed, {len(acked)} acked, {len(stored)} stored, "
            f"{len(lost)} lost, {repeated} handled again"
        )
        assert lost == {}
        assert {place(row) for row in consumer.rows} == stored.keys()
