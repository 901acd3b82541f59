"""Java consumers at our broker and at RocketMQ's, one at a time: push, pull, lite pull, broadcast, with filters."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Cluster, Clusters
from tests.compat.harness import remoting
from tests.compat.harness.foreign import ForeignClient
from tests.compat.harness.programs import consume, send
from tests.compat.harness.shell import JavaShell

pytestmark = pytest.mark.interop

SEND_TAGGED = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_tagged"));
    p.setNamesrvAddr(args[0]);
    p.start();
    for (int i = 2; i < args.length; i++) p.send(new Message(args[1], args[i], (args[i] + i).getBytes()));
"""


# Filters


def test_a_consumer_sees_only_the_tags_it_wants(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    java.run(SEND_TAGGED, cluster.namesrv.address, topic, *["a", "b", "c"] * 5)
    some = consume(java, cluster.namesrv.address, topic, f"{topic}_some", "a || c")
    everything = consume(java, cluster.namesrv.address, topic, f"{topic}_all")
    got = some.take(10)
    assert len({row["body"] for row in everything.take(15)}) == 15
    java.run(SEND_TAGGED, cluster.namesrv.address, topic, "b", "a")
    got += some.take(1)
    everything.take(2)
    some.stop()
    everything.stop()
    assert [row["tags"] for row in got].count("a") == 6
    assert {row["tags"] for row in some.rows} == {"a", "c"}
    assert len(some.rows) == 11


@pytest.mark.mission("FI-01")
def test_of_two_tags_with_one_hash_the_consumer_gets_its_own(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    java.run(SEND_TAGGED, cluster.namesrv.address, topic, "Aa", "BB", "Aa", "other", "BB", "Aa")
    consumer = consume(java, cluster.namesrv.address, topic, f"{topic}_g", "Aa")
    assert [row["tags"] for row in consumer.take(3)] == ["Aa"] * 3
    consumer.stop()
    assert len(consumer.rows) == 3


# Kinds of consumers

BROADCAST = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setInstanceName(args[3]);
    c.setMessageModel(org.apache.rocketmq.REMOTE.MessageModel.BROADCASTING);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) emit(new String(m.getBody()));
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    awaitStop();
"""


def broadcast(java: JavaShell) -> str:
    """The package of MessageModel moved between the release lines."""
    package = "common.protocol.heartbeat" if java.version == "4.9.8" else "remoting.protocol.heartbeat"
    return BROADCAST.replace("REMOTE", package)


def test_broadcasting_gives_every_consumer_every_message(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic)
    group = f"{topic}_g"
    consumers = [java.begin(broadcast(java), cluster.namesrv.address, topic, group, f"{topic}_{i}") for i in range(2)]
    bodies = [str(number) for number in range(8)]
    send(java, cluster.namesrv.address, topic, *bodies)
    for consumer in consumers:
        assert sorted(consumer.take(8)) == bodies
    consumers[1].stop()
    send(java, cluster.namesrv.address, topic, "while the second was away")
    again = java.begin(broadcast(java), cluster.namesrv.address, topic, group, f"{topic}_1")
    assert again.next() == "while the second was away"
    assert consumers[0].next() == "while the second was away"
    again.stop()
    consumers[0].stop()
    assert len(again.rows) == 1


PULL = """
    DefaultMQPullConsumer c = use(new DefaultMQPullConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.start();
    for (MessageQueue q : new TreeSet<>(c.fetchSubscribeMessageQueues(args[1]))) {
        long next = Math.max(0, c.fetchConsumeOffset(q, true));
        for (boolean more = true; more; ) {
            PullResult r = c.pull(q, "*", next, 5);
            emit("status", r.getPullStatus(), "from", next, "next", r.getNextBeginOffset(), "min", r.getMinOffset(),
                "max", r.getMaxOffset(), "count", r.getMsgFoundList() == null ? 0 : r.getMsgFoundList().size());
            more = r.getPullStatus() == PullStatus.FOUND;
            next = r.getNextBeginOffset();
        }
        c.updateConsumeOffset(q, next);
        c.getOffsetStore().persist(q);
        PullResult beyond = c.pull(q, "*", next + 100, 5);
        emit("status", beyond.getPullStatus(), "next", beyond.getNextBeginOffset());
        emit("min", c.minOffset(q), "max", c.maxOffset(q));
    }
"""


def test_a_pull_consumer_walks_a_queue_and_is_told_where_it_ends(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    send(java, cluster.namesrv.address, topic, *map(str, range(12)))
    cluster.broker.await_dispatch()
    rows = java.run(PULL, cluster.namesrv.address, topic, f"{topic}_g").rows
    bounds = {"min": 0, "max": 12}
    assert rows == [
        {"status": "FOUND", "from": 0, "next": 5, "count": 5, **bounds},
        {"status": "FOUND", "from": 5, "next": 10, "count": 5, **bounds},
        {"status": "FOUND", "from": 10, "next": 12, "count": 2, **bounds},
        {"status": "NO_NEW_MSG", "from": 12, "next": 12, "count": 0, **bounds},
        {"status": "OFFSET_ILLEGAL", "next": 12},
        bounds,
    ]
    cluster.broker.await_committed(f"{topic}_g", topic, 12)
    again = java.run(PULL, cluster.namesrv.address, topic, f"{topic}_g").rows
    assert again == rows[3:]


LITE_PULL = """
    DefaultLitePullConsumer c = use(new DefaultLitePullConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setAutoCommit(false);
    c.subscribe(args[1], "*");
    c.start();
    for (String count; (count = receive()) != null; ) {
        for (int left = Integer.parseInt(count); left > 0; ) {
            for (MessageExt m : c.poll(100)) {
                emit(new String(m.getBody()));
                left--;
            }
        }
        c.commitSync();
    }
"""


def test_a_lite_pull_consumer_goes_on_where_it_committed(java: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=2)
    send(java, cluster.namesrv.address, topic, *map(str, range(10)))
    first = java.begin(LITE_PULL, cluster.namesrv.address, topic, f"{topic}_g")
    first.send("10")
    assert sorted(first.take(10), key=int) == [str(number) for number in range(10)]
    first.stop()
    cluster.broker.await_all_committed(f"{topic}_g", topic, queues=2)
    send(java, cluster.namesrv.address, topic, "10", "11")
    second = java.begin(LITE_PULL, cluster.namesrv.address, topic, f"{topic}_g")
    second.send("2")
    assert sorted(second.take(2)) == ["10", "11"]
    second.stop()
    assert len(second.rows) == 2


ASSIGNED = """
    DefaultLitePullConsumer c = use(new DefaultLitePullConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setAutoCommit(false);
    c.start();
    List<MessageQueue> queues = new ArrayList<>(new TreeSet<>(c.fetchMessageQueues(args[1])));
    emit(queues.size());
    c.assign(queues.subList(0, 1));
    MessageQueue q = queues.get(0);
    c.poll(200); // a seek that meets the start of the first pull can lose it: apache/rocketmq issue 10630
    c.seekToBegin(q);
    emit(take(c, 4));
    c.seek(q, 2);
    emit(take(c, 2));
    emit(c.offsetForTimestamp(q, 0L));
    emit(c.offsetForTimestamp(q, System.currentTimeMillis() + 60_000));
    c.commitSync();
    emit(c.committed(q));
}

List<String> take(DefaultLitePullConsumer c, int count) {
    List<String> bodies = new ArrayList<>();
    while (bodies.size() < count) for (MessageExt m : c.poll(100)) bodies.add(new String(m.getBody()));
    return bodies;
"""


def test_a_lite_pull_consumer_seeks_in_a_queue_it_assigned_itself(
    java: JavaShell, cluster: Cluster, topic: str
) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    send(java, cluster.namesrv.address, topic, *map(str, range(4)))
    rows = java.run(ASSIGNED, cluster.namesrv.address, topic, f"{topic}_g").rows
    assert rows == [1, ["0", "1", "2", "3"], ["2", "3"], 0, 4, 4]


# Where a group starts

START = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.valueOf(args[3]));
    c.setConsumeTimestamp(args[4]);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
        for (MessageExt m : messages) emit(new String(m.getBody()));
        return ConsumeOrderlyStatus.SUCCESS;
    });
    c.start();
    awaitStop();
"""


@pytest.mark.parametrize("rule", ["FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP"])
@pytest.mark.parametrize("age", ["fresh", "old"])
def test_where_a_group_starts(java55: JavaShell, cluster: Cluster, topic: str, rule: str, age: str) -> None:
    """A stored offset always wins; and a queue that still has its first message counts as stored at 0."""
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    send(java55, cluster.namesrv.address, topic, "one", "two")
    group = f"{topic}_g"
    if age == "old":
        remoting.create_group(cluster.broker.address, group)
        commit: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}
        assert remoting.call(cluster.broker.address, 15, commit).code == 0
    consumer = java55.begin(START, cluster.namesrv.address, topic, group, f"CONSUME_FROM_{rule}", "20380101000000")
    expected = ["two"] if age == "old" else ["one", "two"]
    assert consumer.take(len(expected)) == expected
    consumer.stop()
    assert len(consumer.rows) == len(expected)


# Many messages

SEND_MANY = """
    DefaultMQProducer p = use(new DefaultMQProducer("compat_many"));
    p.setNamesrvAddr(args[0]);
    p.start();
    int count = Integer.parseInt(args[2]);
    for (int i = 0; i < count; ) {
        List<Message> batch = new ArrayList<>();
        for (; i < count && batch.size() < 500; i++) batch.add(new Message(args[1], Integer.toString(i).getBytes()));
        p.send(batch);
    }
"""
COUNT_PUSHED = """
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setConsumeMessageBatchMaxSize(32);
    c.subscribe(args[1], "*");
    BitSet seen = new BitSet();
    AtomicInteger got = new AtomicInteger();
    CountDownLatch all = new CountDownLatch(Integer.parseInt(args[3]));
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        synchronized (seen) {
            for (MessageExt m : messages) {
                got.incrementAndGet();
                seen.set(Integer.parseInt(new String(m.getBody())));
                all.countDown();
            }
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    all.await();
    emit("got", got.get(), "seen", seen.cardinality());
"""
COUNT_POLLED = """
    DefaultLitePullConsumer c = use(new DefaultLitePullConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setPullBatchSize(32);
    c.subscribe(args[1], "*");
    c.start();
    BitSet seen = new BitSet();
    int got = 0;
    while (got < Integer.parseInt(args[3])) {
        for (MessageExt m : c.poll(100)) {
            got++;
            seen.set(Integer.parseInt(new String(m.getBody())));
        }
    }
    emit("got", got, "seen", seen.cardinality());
"""
MANY = 100_000
MANY_TIMEOUT_S = 120.0


@pytest.mark.mission("LP-01")
def test_a_hundred_thousand_messages_are_read_once_by_every_kind_of_consumer(
    java55: JavaShell, go: ForeignClient, clusters: Clusters, topic: str
) -> None:
    cluster = clusters["comet"]
    remoting.create_topic(cluster.broker.address, topic)
    java55.run(SEND_MANY, cluster.namesrv.address, topic, MANY, timeout_s=MANY_TIMEOUT_S)
    for number, program in enumerate((COUNT_PUSHED, COUNT_POLLED)):
        group = f"{topic}_{number}"
        (read,) = java55.run(program, cluster.namesrv.address, topic, group, MANY, timeout_s=MANY_TIMEOUT_S).rows
        assert read == {"got": MANY, "seen": MANY}
    rows = go.consume(cluster.namesrv.address, topic, f"{topic}_go", MANY)
    assert len(rows) == len({row["body"] for row in rows}) == MANY


@pytest.mark.mission("LP-01")
def test_every_answer_to_a_pull_says_where_to_go_on(java55: JavaShell, cluster: Cluster, topic: str) -> None:
    remoting.create_topic(cluster.broker.address, topic, queues=1)
    remoting.create_group(cluster.broker.address, f"{topic}_g")
    java55.run(SEND_TAGGED, cluster.namesrv.address, topic, "a", "a")
    cluster.broker.await_dispatch()

    def pull(offset: int, expression: str = "*") -> tuple[int, dict[str, str]]:
        ext: dict[str, object] = {
            "consumerGroup": f"{topic}_g",
            "topic": topic,
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,  # the expression comes with the request, and the answer at once
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": expression,
            "subVersion": 0,
        }
        answer = remoting.call(cluster.broker.address, 11, ext)
        named = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
        return answer.code, {name: answer.ext.get(name, "missing") for name in named}

    def told(next_offset: int) -> dict[str, str]:
        values = ("0", str(next_offset), "0", "2")
        return dict(zip(("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"), values, strict=True))

    assert pull(0) == (0, told(2))
    assert pull(2) == (19, told(2))
    assert pull(0, "other") == (20, told(2))
    assert pull(9) == (21, told(2))
