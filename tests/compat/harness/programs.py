"""The two programs nearly every compatibility test needs: a Java producer and a Java push consumer."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.shell import JavaShell, Run

# Clients ask for routes every 30 s by default; a test wants to see a change now.
ROUTE_POLL_MS = 1_000

SEND = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_producer"));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 2; i < args.length; i++) {
        SendResult r = p.send(new Message(args[1], args[i].getBytes(StandardCharsets.UTF_8)), 10_000);
        emit("status", r.getSendStatus(), "msgId", r.getMsgId(), "offsetMsgId", r.getOffsetMsgId(),
            "broker", r.getMessageQueue().getBrokerName(), "queueId", r.getMessageQueue().getQueueId(),
            "queueOffset", r.getQueueOffset());
    }
"""

CONSUME = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setPollNameServerInterval(Integer.parseInt(args[3]));
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], args[4]);
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) {
            emit("body", m.getBody(), "msgId", m.getMsgId(), "broker", m.getBrokerName(),
                "tags", m.getTags(), "keys", m.getKeys(), "queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(),
                "times", m.getReconsumeTimes(), "properties", m.getProperties());
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    awaitStop();
"""


def send(java: JavaShell, namesrv: str, topic: str, *bodies: str) -> list[dict[str, Any]]:
    """Send each body; one row per message with the broker's answer."""
    return java.run(SEND, namesrv, topic, *bodies).rows


def consume(
    java: JavaShell, namesrv: str, topic: str, group: str = "compat_consumer", expression: str = "*"
) -> Run:
    """A running push consumer that starts at the beginning of the topic; take() its messages, stop() it."""
    return java.begin(CONSUME, namesrv, topic, group, ROUTE_POLL_MS, expression)


def text(body: str) -> str:
    """The body of a row as text: a snippet hands bytes over as Latin-1."""
    return body.encode("latin-1").decode()
