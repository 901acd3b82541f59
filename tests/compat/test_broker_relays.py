"""Java clients that are asked through the broker: replies to requests, the state of a consumer, one message by hand."""

from __future__ import annotations

import re

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume, send
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

REPLY = """
    import org.apache.rocketmq.client.utils.MessageUtil;
    DefaultMQProducer back = use(new DefaultMQProducer("compat_back"));
    back.setNamesrvAddr(args[0]);
    back.start();
    CountDownLatch replied = new CountDownLatch(3);
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[1] + "_g"));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) {
            try {
                byte[] answer = ("re: " + new String(m.getBody())).getBytes();
                emit(back.send(MessageUtil.createReplyMessage(m, answer), 10_000).getSendStatus().toString());
            } catch (Exception e) {
                emit(e.toString());
            }
            replied.countDown();
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    DefaultMQProducer p = use(new DefaultMQProducer("compat_asker"));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 0, refused = 0; i < 3; i++) {
        try {
            emit(new String(p.request(new Message(args[1], ("ask " + i).getBytes()), 20_000).getBody()));
        } catch (MQClientException e) {  // not taken: a busy machine makes a broker refuse
            if (refused++ == 5) throw e;
            i--;
        }
    }
    replied.await();  // a reply may be here before its sender was told that it was sent
"""


def test_a_request_gets_its_reply(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    rows = java.run(REPLY, cluster.namesrv.address, topic).rows
    assert sorted(rows) == ["SEND_OK"] * 3 + [f"re: ask {number}" for number in range(3)]


UNANSWERED = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_asker"));
    p.setNamesrvAddr(args[0]);
    p.start();
    MessageQueue q = p.fetchPublishMessageQueues(args[1]).get(0);
    p.maxOffset(q);  // connects it: that is not to be part of the 3 s
    try {
        p.request(new Message(args[1], "ask".getBytes()), 3_000);
    } catch (RequestTimeoutException e) {
        emit("code", e.getResponseCode());
    }
    CountDownLatch late = new CountDownLatch(1);
    p.request(new Message(args[1], "ask back".getBytes()), q, new RequestCallback() {
        public void onSuccess(Message m) { emit("reply", m == null); late.countDown(); }
        public void onException(Throwable e) {
            emit("code", ((RequestTimeoutException) e).getResponseCode());
            late.countDown();
        }
    }, 3_000);
    late.await();
"""


def test_a_request_without_a_reply_ends_in_time(java55: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    rows = java55.run(UNANSWERED, cluster.namesrv.address, topic).rows
    assert rows == [{"code": 10006}, {"code": 10006}]
    consumer = consume(java55, cluster.namesrv.address, topic, f"{topic}_g")
    asked = consumer.take(2)
    consumer.stop()
    for row in asked:
        assert row["properties"].keys() >= {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "CLUSTER"}
        assert row["properties"]["TTL"] == "3000"


def client_id(broker: str, group: str) -> str:
    """Of the only member of a group."""
    wait_until(lambda: remoting.call(broker, 203, {"consumerGroup": group}).code == 0, f"a member of {group}")
    (connection,) = remoting.call(broker, 203, {"consumerGroup": group}).json()["connectionSet"]
    return str(connection["clientId"])


@pytest.mark.mission("MO-03")
def test_a_consumer_tells_its_figures_through_the_broker(java55: JavaShell, cluster: Cluster, topic: str) -> None:
    """40 messages, handled at once: rates are those of a window of 10 s, 20 s, ... that has them all."""
    broker, group = cluster.broker.address, f"{topic}_g"
    remoting.create_topic(broker, topic, queues=1)
    send(java55, cluster.namesrv.address, topic, *map(str, range(40)))
    consumer = consume(java55, cluster.namesrv.address, topic, group)
    consumer.take(40)
    ext: dict[str, object] = {"consumerGroup": group, "clientId": client_id(broker, group), "jstackEnable": "false"}

    def figures() -> dict[str, float]:
        answer = remoting.call(broker, 307, ext)
        assert answer.code == 0, answer.remark
        found = re.search(rf'"{topic}":(\{{[^}}]*"consumeOKTPS"[^}}]*}})', answer.body.decode())
        assert found, answer.body
        return {name: float(value) for name, value in re.findall(r'"(\w+)":([0-9.E-]+)', found[1])}

    def has_all() -> dict[str, float]:
        """Both counters, pulled and handled, have seen all messages within the same window."""
        known = figures()
        if not known["consumeOKTPS"] or known["pullTPS"] != pytest.approx(known["consumeOKTPS"], rel=0.05):
            return {}
        window_s = 40 / known["consumeOKTPS"]
        return known if window_s == pytest.approx(round(window_s, -1), rel=0.05) else {}

    known = wait_until(has_all, "a sample of the consumer's counters", 60.0)
    consumer.stop()
    assert (known["consumeFailedTPS"], known["consumeFailedMsgs"]) == (0, 0)


def test_a_message_is_handled_by_hand(java55: JavaShell, cluster: Cluster, topic: str) -> None:
    broker, group = cluster.broker.address, f"{topic}_g"
    remoting.create_topic(broker, topic, queues=1)
    (sent,) = send(java55, cluster.namesrv.address, topic, "once more")
    consumer = consume(java55, cluster.namesrv.address, topic, group)
    assert [row["body"] for row in consumer.take(1)] == ["once more"]
    ext: dict[str, object] = {
        "consumerGroup": group,
        "clientId": client_id(broker, group),
        "topic": topic,
        "msgId": sent["offsetMsgId"],
    }
    answer = remoting.call(broker, 309, ext)
    assert (answer.code, answer.json()["consumeResult"]) == (0, "CR_SUCCESS")
    assert [row["body"] for row in consumer.take(1)] == ["once more"]
    consumer.stop()
    status = remoting.call(broker, 307, {**ext, "jstackEnable": "false"})
    assert status.code == 1


def test_the_offsets_of_a_consumer_are_asked_through_the_broker(
    java55: JavaShell, cluster: Cluster, topic: str
) -> None:
    broker, group = cluster.broker.address, f"{topic}_g"
    remoting.create_topic(broker, topic, queues=1)
    send(java55, cluster.namesrv.address, topic, "a", "b")
    consumer = consume(java55, cluster.namesrv.address, topic, group)
    consumer.take(2)
    member = client_id(broker, group)
    expected = f'"{member}":{{{{"brokerName":"broker-a","queueId":0,"topic":"{topic}"}}:2}}'

    def told() -> bool:
        return expected in remoting.call(broker, 223, {"topic": topic, "group": group}).body.decode()

    wait_until(told, "the offset of the consumer")
    consumer.stop()
