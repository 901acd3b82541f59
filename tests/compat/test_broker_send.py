"""Java producers at our broker and at RocketMQ's: however a message is sent, it arrives as it was."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness import remoting
from tests.compat.harness.processes import wait_until
from tests.compat.harness.programs import consume, send, text
from tests.compat.harness.servers import CometUp, Make
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

MIB = 1024 * 1024
# A broker registers all its topics this often.
REGISTRATION_S = 10.0


def test_each_answer_names_where_the_message_is(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=2)
    sent = send(java, cluster.namesrv.address, topic, *map(str, range(6)))
    assert [row["status"] for row in sent] == ["SEND_OK"] * 6
    places = [(row["queueId"], row["queueOffset"]) for row in sent]
    assert sorted(places) == [(queue, offset) for queue in range(2) for offset in range(3)]
    consumer = consume(java, cluster.namesrv.address, topic, f"{topic}_g")
    got = {row["msgId"]: row for row in consumer.take(6)}
    consumer.stop()
    for number, row in enumerate(sent):
        there = got[row["msgId"]]
        assert (there["queueId"], there["queueOffset"], there["body"]) == (*places[number], str(number))


def test_the_offset_id_names_the_broker_and_the_place_in_its_log(java: JavaShell, cluster: Cluster, topic: str) -> None:
    (sent,) = send(java, cluster.namesrv.address, topic, "x")
    (found,) = java.run(
        """
        import org.apache.rocketmq.common.message.MessageDecoder;
        MessageId id = MessageDecoder.decodeMessageId(args[0]);
        emit("address", id.getAddress().toString(), "offset", id.getOffset());
        """,
        sent["offsetMsgId"],
    ).rows
    assert found["address"] == f"/{cluster.broker.address}"
    assert found["offset"] >= 0


SEND_ASYNC = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_async"));
    p.setNamesrvAddr(args[0]);
    p.start();
    int count = Integer.parseInt(args[2]);
    CountDownLatch answered = new CountDownLatch(count);
    for (int i = 0; i < count; i++) {
        p.send(new Message(args[1], Integer.toString(i).getBytes()), new SendCallback() {
            public void onSuccess(SendResult r) {
                emit(r.getSendStatus().toString());
                answered.countDown();
            }
            public void onException(Throwable e) {
                emit(e.toString());
                answered.countDown();
            }
        });
    }
    answered.await();
"""


def test_asynchronous_sends_are_all_answered_and_arrive_once(java: JavaShell, cluster: Cluster, topic: str) -> None:
    count = 200
    remoting.create_topic(cluster.broker.address, topic)
    assert java.run(SEND_ASYNC, cluster.namesrv.address, topic, count).rows == ["SEND_OK"] * count
    consumer = consume(java, cluster.namesrv.address, topic, f"{topic}_g")
    assert sorted(int(row["body"]) for row in consumer.take(count)) == list(range(count))
    consumer.stop()


def test_one_way_sends_arrive_without_an_answer(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    java.run(
        """
        DefaultMQProducer p = use(new DefaultMQProducer("compat_oneway"));
        p.setNamesrvAddr(args[0]);
        p.start();
        for (int i = 0; i < 20; i++) p.sendOneway(new Message(args[1], Integer.toString(i).getBytes()));
        p.send(new Message(args[1], "last".getBytes()));  // behind the others on the same connection
        """,
        cluster.namesrv.address,
        topic,
    )
    consumer = consume(java, cluster.namesrv.address, topic, f"{topic}_g")
    assert {row["body"] for row in consumer.take(21)} == {*map(str, range(20)), "last"}
    consumer.stop()


def test_a_batch_is_stored_as_its_members(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    (first,) = send(java, cluster.namesrv.address, topic, "before")
    (sent,) = java.run(
        """
        DefaultMQProducer p = use(new DefaultMQProducer("compat_batch"));
        p.setNamesrvAddr(args[0]);
        p.start();
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            Message m = new Message(args[1], "tag" + i % 2, "key" + i, ("body" + i).getBytes());
            m.putUserProperty("number", Integer.toString(i));
            batch.add(m);
        }
        SendResult r = p.send(batch);
        emit("status", r.getSendStatus(), "ids", r.getMsgId(), "offsetIds", r.getOffsetMsgId(),
            "queueOffset", r.getQueueOffset());
        """,
        cluster.namesrv.address,
        topic,
    ).rows
    assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", 1)
    ids, offset_ids = sent["ids"].split(","), sent["offsetIds"].split(",")
    assert len(set(ids)) == len(set(offset_ids)) == 10
    assert all(one[:-16] == first["offsetMsgId"][:-16] for one in offset_ids)
    consumer = consume(java, cluster.namesrv.address, topic, f"{topic}_g", "tag0 || tag1")
    got = sorted(consumer.take(10), key=lambda row: row["queueOffset"])
    consumer.stop()
    assert [row["queueOffset"] for row in got] == list(range(1, 11))
    assert [row["msgId"] for row in got] == ids
    assert [(row["body"], row["keys"], row["tags"], row["properties"]["number"]) for row in got] == [
        (f"body{i}", f"key{i}", f"tag{i % 2}", str(i)) for i in range(10)
    ]


def test_a_batch_for_a_topic_of_batches_is_one_record_and_arrives_as_its_members(
    java55: JavaShell, cluster: Cluster, topic: str
) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1, attributes="+queue.type=BatchCQ")
    sent = java55.run(
        """
        DefaultMQProducer p = use(new DefaultMQProducer("compat_inner_batch"));
        p.setNamesrvAddr(args[0]);
        p.setSendMsgTimeout(20_000);
        p.start();
        for (int n = 0; n < 2; n++) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 5; i++)
                batch.add(new Message(args[1], "tag", "key" + i, ("body" + n + i).getBytes()));
            SendResult r = p.send(batch);
            emit("status", r.getSendStatus(), "id", r.getMsgId(), "offsetId", r.getOffsetMsgId(),
                "queueOffset", r.getQueueOffset());
        }
        """,
        cluster.namesrv.address,
        topic,
    ).rows
    assert [(row["status"], row["queueOffset"]) for row in sent] == [("SEND_OK", 0), ("SEND_OK", 5)]
    assert all("," not in row["id"] + row["offsetId"] for row in sent), sent
    consumer = consume(java55, cluster.namesrv.address, topic, f"{topic}_g")
    got = sorted(consumer.take(10), key=lambda row: row["queueOffset"])
    consumer.stop()
    assert [row["queueOffset"] for row in got] == list(range(10))
    assert [row["body"] for row in got] == [f"body{n}{i}" for n in range(2) for i in range(5)]
    assert [row["keys"] for row in got] == [f"key{i}" for i in range(5)] * 2


def test_a_selector_keeps_each_key_in_one_queue(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=4)
    sent = java.run(
        """
        DefaultMQProducer p = use(new DefaultMQProducer("compat_selector"));
        p.setNamesrvAddr(args[0]);
        p.start();
        for (int i = 0; i < 40; i++) {
            String key = "key" + i % 10;
            SendResult r = p.send(new Message(args[1], "", key, Integer.toString(i).getBytes()),
                new SelectMessageQueueByHash(), key);
            emit("key", key, "queueId", r.getMessageQueue().getQueueId(), "queueOffset", r.getQueueOffset());
        }
        """,
        cluster.namesrv.address,
        topic,
    ).rows
    for key in {row["key"] for row in sent}:
        mine = [row for row in sent if row["key"] == key]
        assert len({row["queueId"] for row in mine}) == 1
        assert [row["queueOffset"] for row in mine] == sorted(row["queueOffset"] for row in mine)


ODD = "Ünïcödé 消息 🚀 ñ"


def test_text_of_any_script_is_kept_everywhere(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    java.run(
        """
        DefaultMQProducer p = use(new DefaultMQProducer("compat_unicode"));
        p.setNamesrvAddr(args[0]);
        p.start();
        for (String tag : new String[] {"标签🏷", "другой", "标签🏷"}) {
            Message m = new Message(args[1], tag, "schlüssel鍵", args[2].getBytes(StandardCharsets.UTF_8));
            m.putUserProperty("eigenschaft_ü", args[2]);
            m.putUserProperty("empty after", "x=y&z;:/?#");
            p.send(m);
        }
        """,
        cluster.namesrv.address,
        topic,
        ODD,
    )
    consumer = consume(java, cluster.namesrv.address, topic, f"{topic}_g", "标签🏷")
    got, last = consumer.take(2)
    consumer.stop()
    assert (text(got["body"]), got["tags"], got["keys"]) == (ODD, "标签🏷", "schlüssel鍵")
    assert got["properties"]["eigenschaft_ü"] == ODD
    assert got["properties"]["empty after"] == "x=y&z;:/?#"
    assert {got["queueOffset"], last["queueOffset"]} == {0, 2}


SEND_BIG = """
    import java.util.zip.CRC32;
    import org.apache.rocketmq.common.UtilAll;
    DefaultMQProducer p = use(new DefaultMQProducer("compat_big"));
    p.setNamesrvAddr(args[0]);
    p.setSendMsgTimeout(20_000);
    if (!args[4].isEmpty()) {
        Class<?> kind = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
        Object type = kind.getMethod("of", String.class).invoke(null, args[4]);
        p.getClass().getMethod("setCompressType", kind).invoke(p, type);
    }
    p.start();
    byte[] body = new byte[Integer.parseInt(args[2])];
    if (args[3].equals("noise")) new Random(1).nextBytes(body);
    else for (int i = 0; i < body.length; i++) body[i] = (byte) ("all work and no play ".charAt(i % 21));
    byte[] before = body.clone();
    SendResult r = p.send(new Message(args[1], body));
    emit("status", r.getSendStatus(), "sha", UtilAll.bytes2string(
        java.security.MessageDigest.getInstance("SHA-256").digest(before)));
"""
CONSUME_BIG = """
    import org.apache.rocketmq.common.UtilAll;
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) {
            try {
                byte[] hash = java.security.MessageDigest.getInstance("SHA-256").digest(m.getBody());
                emit("sha", UtilAll.bytes2string(hash), "bytes", m.getBody().length, "stored", m.getStoreSize(),
                    "flag", m.getSysFlag());
            } catch (java.security.GeneralSecurityException e) {
                throw new IllegalStateException(e);
            }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    awaitStop();
"""


def test_bodies_of_three_mebibytes_arrive_whole(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    size = 3 * MIB
    sent = [java.run(SEND_BIG, cluster.namesrv.address, topic, size, "noise", "").rows[0] for _ in range(2)]
    assert [row["status"] for row in sent] == ["SEND_OK"] * 2
    consumer = java.begin(CONSUME_BIG, cluster.namesrv.address, topic, f"{topic}_g")
    got = consumer.take(2)
    consumer.stop()
    assert [(row["sha"], row["bytes"]) for row in got] == [(sent[0]["sha"], size)] * 2
    assert all(row["stored"] > size for row in got)


def test_compressed_bodies_stay_compressed_in_the_store(java: JavaShell, cluster: Cluster, topic: str) -> None:
    send_compressed(java, cluster, topic, "")


TYPE_BITS = {"ZLIB": 0x300, "ZSTD": 0x200, "LZ4": 0x100}


@pytest.mark.parametrize("kind", TYPE_BITS)
def test_the_kind_of_compression_is_kept(java55: JavaShell, cluster: Cluster, topic: str, kind: str) -> None:
    assert send_compressed(java55, cluster, topic, kind) & 0x700 == TYPE_BITS[kind]


def send_compressed(java: JavaShell, cluster: Cluster, topic: str, kind: str) -> int:
    remoting.create_topic(cluster.broker.address, topic)
    (sent,) = java.run(SEND_BIG, cluster.namesrv.address, topic, 100_000, "text", kind).rows
    consumer = java.begin(CONSUME_BIG, cluster.namesrv.address, topic, f"{topic}_g")
    got = consumer.next()
    consumer.stop()
    assert (got["sha"], got["bytes"]) == (sent["sha"], 100_000)
    assert got["stored"] < 10_000
    flag: int = got["flag"]
    return flag


def test_a_message_over_the_limit_is_refused_by_the_broker(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    (refused,) = java.run(
        """
        DefaultMQProducer p = use(new DefaultMQProducer("compat_over"));
        p.setNamesrvAddr(args[0]);
        p.setMaxMessageSize(8 << 20);
        p.setSendMsgTimeout(20_000);
        p.start();
        byte[] body = new byte[(4 << 20) + 1];
        new Random(1).nextBytes(body);
        try {
            p.send(new Message(args[1], body));
        } catch (MQBrokerException e) {
            emit("code", e.getResponseCode(), "text", e.getErrorMessage());
        }
        """,
        cluster.namesrv.address,
        topic,
    ).rows
    assert refused["code"] == 13
    (sent,) = send(java, cluster.namesrv.address, topic, "small")
    assert sent["status"] == "SEND_OK"


# A first message makes its topic


@pytest.mark.mission("TO-02")
def test_the_first_message_makes_its_topic_on_its_broker(java: JavaShell, cluster: Cluster, topic: str) -> None:
    def saved() -> dict[str, object]:
        loaded: dict[str, object] = json.loads((cluster.broker.store / "config" / "topics.json").read_text())
        return loaded

    def version() -> tuple[int, int]:
        answer = remoting.call(cluster.broker.address, 21).json()["dataVersion"]
        return answer["counter"], answer["timestamp"]

    def seconds_until_known(name: str) -> float:
        (sent,) = send(java, cluster.namesrv.address, name, "creates its topic")
        sent_at = time.monotonic()
        assert sent["status"] == "SEND_OK"
        wait_until(lambda: remoting.route(cluster.namesrv.address, name).code == 0, "the route")
        wait_until(lambda: name in saved()["topicConfigTable"], "topics.json")  # type: ignore[operator]
        return time.monotonic() - sent_at

    before = version()
    assert seconds_until_known(topic) < REGISTRATION_S, "registered and saved by its own, not by the clock"
    (queues,) = remoting.route(cluster.namesrv.address, topic).json()["queueDatas"]
    expected = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    assert expected.items() <= queues.items()
    assert expected.items() <= saved()["topicConfigTable"][topic].items()  # type: ignore[index]
    assert version() > before


SEND_AND_REFRESH = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_refresh"));
    p.setNamesrvAddr(args[0]);
    p.start();
    emit(p.send(new Message(args[1], "first".getBytes())).getMessageQueue().getBrokerName());
    emit(brokers(p, args[1]));
    receive();
    refresh(p, args[1]);
    Set<String> used = new TreeSet<>();
    for (int i = 0; i < 16; i++) {
        used.add(p.send(new Message(args[1], "x".getBytes())).getMessageQueue().getBrokerName());
    }
    emit(used);
}

/** The brokers of a topic as the producer sees them now. */
Set<String> brokers(DefaultMQProducer p, String topic) {
    return p.getDefaultMQProducerImpl().getTopicPublishInfoTable().get(topic).getMessageQueueList().stream()
        .map(MessageQueue::getBrokerName).collect(Collectors.toCollection(TreeSet::new));
}

/** What the producer does every 30 s. */
void refresh(DefaultMQProducer p, String topic) {
    p.getDefaultMQProducerImpl().getMqClientFactory().updateTopicRouteInfoFromNameServer(topic);
"""


def test_a_topic_made_by_one_message_is_on_one_broker_only(
    java55: JavaShell, cluster: Cluster, make: Make, tmp_path: Path, topic: str
) -> None:
    with make.broker(tmp_path, cluster.namesrv.address, name="broker-two").start():
        producer = java55.begin(SEND_AND_REFRESH, cluster.namesrv.address, topic)
        first, seen = producer.take(2)
        # Over all brokers until the next refresh, which on a slow machine may have come already.
        assert seen in (["broker-a", "broker-two"], [first])

        def routed_brokers() -> list[str]:
            answer = remoting.route(cluster.namesrv.address, topic)
            return [queue["brokerName"] for queue in answer.json()["queueDatas"]] if answer.code == 0 else []

        assert wait_until(routed_brokers, "the route") == [first]
        producer.send("go on")
        assert producer.next() == [first]
        producer.stop()


def test_cometmq_up_serves_java_clients(java: JavaShell, tmp_path: Path, topic: str) -> None:
    with CometUp(tmp_path).start() as up:
        sent = send(java, up.namesrv, topic, "one", "two")
        assert [row["status"] for row in sent] == ["SEND_OK"] * 2
        consumer = consume(java, up.namesrv, topic, f"{topic}_g")
        assert sorted(row["body"] for row in consumer.take(2)) == ["one", "two"]
        consumer.stop()
        assert up.stop() == 0
