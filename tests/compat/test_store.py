"""Store directories go back and forth between CometMQ and RocketMQ: what one wrote, the other reads and goes on with.

Messages of every kind (tests/support/kinds.py) are put through our store, and by the Java producer. The Java broker
opens our directories and the Java client reads them by queue, by key and by id; our store opens Java's.

    COMETMQ_IMAGES=200    how many recovered crash images the Java broker opens (1; 5 in make verify, 200 in make soak)
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.store.store import Store
from cometmq.wire.record.message_id import encode_offset_id, offset_id_prefix
from cometmq.wire.record.properties import decode
from tests.compat.harness import remoting
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.directory import (
    Queue,
    query_keys,
    queue_ends,
    read_queues,
    recovered_end,
    store_errors,
    took_it_for_a_crash,
    view_ids,
)
from tests.compat.harness.processes import wait_until
from tests.compat.harness.servers import Broker, CometBroker, JavaBroker, JavaNameServer
from tests.compat.harness.shell import JavaShell
from tests.support import kinds
from tests.support.golden import StoreName, copy_golden_store, golden_messages
from tests.support.length import count
from tests.support.readback import Found, open_directory, read_all, read_queue
from tests.support.writer import Ack, Life, Nursery, Order, acks_of

pytestmark = pytest.mark.interop

IMAGES = count("COMETMQ_IMAGES", 1, 5, 200)
SEED = int(os.environ.get("COMETMQ_KILL_SEED", random.SystemRandom().randrange(1_000_000)))
QUERY_MESSAGE, VIEW_MESSAGE_BY_ID = 12, 33

# Of the golden stores, and used for all; RocketMQ's names, then ours. Half messages are not asked after again.
SETTINGS = {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "mappedFileSizeTimerLog": 102_400,
    "enableLmq": True,
    "enableMultiDispatch": True,
    "transactionCheckInterval": 3_600_000,
}
OPTIONS: dict[str, Any] = {
    "segment_bytes": 262_144,
    "queue_file_bytes": 2000,
    "index_slots": 500,
    "index_entries": 2000,
    "lmq_enabled": True,
    "multi_dispatch_enabled": True,
}
TOPICS = {kinds.TOPIC: kinds.TOPIC_QUEUES, kinds.INNER_TOPIC: kinds.INNER_QUEUES, kinds.RETRY_TOPIC: 1}
QUEUES: list[Queue] = [
    *[(topic, queue) for topic, count in TOPICS.items() for queue in range(count)],
    *[(topic, 0) for topic in kinds.LIGHT_TOPICS],
    (kinds.SCHEDULE_TOPIC, kinds.LEVEL_2H - 1),
]


@pytest.fixture(scope="module")
def routes(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with JavaNameServer(tmp_path_factory.mktemp("routes")).start() as server:
        yield server.address


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def java_broker(directory: Path, routes: str, name: str) -> JavaBroker:
    """Its store is `directory / f"{name}-store"`."""
    return JavaBroker(directory, routes, {**SETTINGS, "brokerClusterName": name}, name=name)


def add_topics(directory: Path) -> None:
    """Have a broker know the topics; a BatchCQ topic must be known when its queues are loaded."""
    path = directory / "config" / "topics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = json.loads(path.read_text()) if path.exists() else {"dataVersion": {}, "topicConfigTable": {}}
    for name, queues in TOPICS.items():
        tables["topicConfigTable"][name] = {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "attributes": {"queue.type": "BatchCQ"} if kinds.is_batch_topic(name) else {},
        }
    path.write_text(json.dumps(tables))


def host_of(broker: Broker) -> bytes:
    return bytes((127, 0, 0, 1)) + broker.port.to_bytes(4, "big")


# What our store finds


def our_store(directory: Path) -> Store:
    return open_directory(str(directory), **OPTIONS)


def our_queue_ends(store: Store) -> dict[Queue, int]:
    return {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues.all()}


def read_copy(directory: Path) -> tuple[Found, dict[Queue, int], bool]:
    """What our store finds there, where queues end, and whether it takes the last end for a crash.

    The directory itself stays as it is.
    """
    copy = directory.with_name(f"{directory.name}-copy")
    shutil.copytree(directory, copy)
    store = our_store(copy)
    assert store.recovered.damages == []
    found = read_all(store, others=True), our_queue_ends(store), store.crashed
    store.close()
    shutil.rmtree(copy)
    return found


def live(nursery: Nursery, order: Order, acks: int = -1) -> list[Ack]:
    """One writer, to its own end or killed after so many acks."""
    life: Life = nursery.start(order)
    reports: list[Any] = []
    while (more := life.read()) is not None:
        reports += more
        assert Path(order.directory, "abort").exists() or {"open", "closed"} & set(map(str, reports)) != {"open"}
        if acks >= 0 and len(reports) > acks + 2:
            life.kill()
    assert life.end() == (0 if acks < 0 else -9)
    return acks_of(reports)


# What Java finds


def assert_java_finds(java: JavaShell, broker: Broker, found: Found, acks: list[Ack]) -> None:
    """What our store found, the Java client reads too: by queue all of it, by key and by id what was acked."""
    for (topic, queue), rows in read_queues(java, broker, QUEUES).items():
        ours = [key for (name, number, _), key in sorted(found.items()) if (name, number) == (topic, queue)]
        assert [row["properties"]["KEYS"] for row in rows] == ours, f"{topic}-{queue}"
        for offset, row in enumerate(rows):
            plan = kinds.plan(int(row["properties"]["KEYS"].removeprefix("K").partition(".")[0]))
            assert topic in plan.light or row["queueOffset"] == offset
            assert_as_planned(plan, row)
    indexed = [(ack.plan.topic, *record) for ack in acks if ack.plan.is_indexed for record in ack.records()]
    assert_java_finds_keys(java, broker, indexed)
    prefix = offset_id_prefix(host_of(broker)[:4], broker.port)
    records = [(ack.plan.topic, *record) for ack in acks for record in ack.records()]
    viewed = view_ids(java, broker, [(topic, encode_offset_id(prefix, offset)) for topic, _, offset in records])
    assert viewed == [{"topic": topic, "offset": offset, "keys": key} for topic, key, offset in records]


def assert_as_planned(plan: kinds.Plan, row: dict[str, Any]) -> None:
    properties = row["properties"]
    assert row["topic"] == plan.topic
    assert row["body"] == dict(plan.members)[properties["KEYS"]]
    assert row["bornTimestamp"] == kinds.BORN_MS + plan.serial
    assert row["bornHost"].strip("/") == ("[2001:db8:0:0:0:0:0:7]:8123" if plan.kind == "v6" else "10.0.0.7:8123")
    if plan.kind not in ("batch", "inner"):
        assert properties.items() >= plan.properties.items()
        assert row["flag"] == plan.flag


def assert_java_finds_keys(
    java: JavaShell, broker: Broker, keys: list[tuple[str, str, int]], *, unique: bool = False
) -> None:
    """`keys` are topic, key or unique id, physical offset."""
    found = query_keys(java, broker, [(topic, key) for topic, key, _ in keys], unique=unique)
    for (topic, key, offset), offsets in zip(keys, found, strict=True):
        assert offset in offsets, f"{topic} {key}: Java finds {offsets}, not {offset}"


def assert_golden(java: JavaShell, broker: Broker, expected: list[dict[str, Any]]) -> None:
    """The Java client reads the messages as it did when they were recorded, finds them by key and by id."""
    queues = sorted({(message["topic"], message["queueId"]) for message in expected})
    rows = [row for rows in read_queues(java, broker, queues).values() for row in rows]
    assert len(rows) == len(expected)
    recorded = {(message["topic"], message["queueId"], message["queueOffset"]): message for message in expected}
    for row in rows:
        message = recorded[row["topic"], row["queueId"], row["queueOffset"]]
        row["bodyHex"] = row.pop("body").hex()
        row["properties"] |= {name: message["properties"][name] for name in ("MIN_OFFSET", "MAX_OFFSET")}
        del row["offsetMsgId"]
        assert row == message
    ids = [(row["topic"], row["msgId"], row["commitLogOffset"]) for row in expected]
    assert_java_finds_keys(java, broker, ids, unique=True)
    assert_java_finds_keys(java, broker, golden_keys(expected))
    prefix = offset_id_prefix(host_of(broker)[:4], broker.port)
    offset_ids = [(row["topic"], encode_offset_id(prefix, row["commitLogOffset"])) for row in expected]
    viewed = view_ids(java, broker, offset_ids)
    assert [row["offset"] for row in viewed] == [row["commitLogOffset"] for row in expected]


def golden_keys(messages: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """(topic, key, physical offset) for every key that a message has."""
    keys: list[tuple[str, str, int]] = []
    for message in messages:
        words = message["properties"].get("KEYS", "").split(" ")
        keys += [(message["topic"], word, message["commitLogOffset"]) for word in words if word]
    assert len(keys) > 500
    return keys


# Golden stores


@pytest.mark.mission("RC-01", "RC-06", "RC-07")
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_both_find_the_same_in_a_golden_store(name: StoreName, routes: str, tmp_path: Path) -> None:
    broker = java_broker(tmp_path, routes, "broker-golden")
    copy_golden_store(name, broker.store)
    store = our_store(copy_golden_store(name, tmp_path / "ours"))
    ends = our_queue_ends(store)
    with broker.start():
        assert took_it_for_a_crash(broker) == store.crashed == (name == "crash")
        assert recovered_end(broker) == store.log.max_offset
        assert queue_ends(broker, ends) == ends
    store.close()


@pytest.mark.mission("DI-10", "ST-05")
@pytest.mark.parametrize("name", ["clean", "crash"])
def test_java_reads_a_golden_store_that_we_went_on_with(
    name: StoreName, java55: JavaShell, mqadmin: MqAdmin, routes: str, tmp_path: Path
) -> None:
    broker = java_broker(tmp_path, routes, "broker-golden")
    copy_golden_store(name, broker.store)
    add_topics(broker.store)
    store = our_store(broker.store)
    store.log.store_host = host_of(broker)
    acks = []
    for serial in range(300):
        plan = kinds.plan(serial)
        result = plan.put(store, plan.request())
        acks.append(Ack([serial, result.queue_offset, result.physical_offset, result.lengths]))
    assert {ack.plan.kind for ack in acks} == set(kinds.KINDS)
    found, ends = read_all(store, others=True), our_queue_ends(store)
    store.close()
    with broker.start():
        assert not took_it_for_a_crash(broker)
        assert queue_ends(broker, ends) == ends
        assert_java_finds(java55, broker, found, acks)
        assert_golden(java55, broker, golden_messages(name))
        example = golden_messages(name)[0]
        key = example["properties"]["KEYS"].split(" ")[0]
        listed = mqadmin("queryMsgByKey", "-t", example["topic"], "-k", key, namesrv=routes)
        assert any(example["msgId"] in line for line in listed.lines)
        assert store_errors(broker) == []


@pytest.mark.mission("DI-10", "RD-06")
def test_the_admin_tool_finds_golden_messages_at_our_broker(java55: JavaShell, routes: str, tmp_path: Path) -> None:
    settings = {**SETTINGS, "brokerClusterName": "comet-golden"}
    broker = CometBroker(tmp_path, routes, settings, name="broker-golden")
    copy_golden_store("clean", broker.store)
    shutil.rmtree(broker.store / "index")
    messages = golden_messages("clean")
    with broker.start():
        assert_golden(java55, broker, messages)
        topic, offset = messages[0]["topic"], messages[0]["commitLogOffset"]
        nothing: dict[str, object] = {
            "topic": topic,
            "key": "no such key",
            "maxNum": 8,
            "beginTimestamp": 0,
            "endTimestamp": 1 << 60,
        }
        assert remoting.call(broker.address, QUERY_MESSAGE, nothing).code == 22
        assert remoting.call(broker.address, VIEW_MESSAGE_BY_ID, {"topic": topic, "offset": offset}).code == 0
        assert remoting.call(broker.address, VIEW_MESSAGE_BY_ID, {"topic": topic, "offset": offset + 1}).code == 1
        assert remoting.call(broker.address, VIEW_MESSAGE_BY_ID, {"topic": topic, "offset": offset}).code == 0


# There and back

SEND_EVERY_KIND = """
    String topic = args[1];
    TransactionMQProducer p = use(new TransactionMQProducer("store_sender"));
    p.setNamesrvAddr(args[0]);
    p.setSendMsgTimeout(10_000);
    p.setTransactionListener(new TransactionListener() {
        public LocalTransactionState executeLocalTransaction(Message m, Object outcome) {
            return (LocalTransactionState) outcome;
        }
        public LocalTransactionState checkLocalTransaction(MessageExt m) {
            return LocalTransactionState.UNKNOW;
        }
    });
    p.start();
    List<Message> all = new ArrayList<>();
    for (int i = 0; i < 12; i++) all.add(new Message(topic, "TagJ", "J" + i, ("plain " + i).getBytes()));
    all.add(new Message(topic, "TagJ", "Jbig", new byte[20_000]));
    Message delayed = new Message(topic, "TagJ", "Jdelayed", "delayed".getBytes());
    delayed.setDelayTimeLevel(18);
    all.add(delayed);
    Message light = new Message(topic, "TagJ", "Jlight", "light".getBytes());
    light.putUserProperty("INNER_MULTI_DISPATCH", args[3]);
    all.add(light);
    for (Message m : all) {
        SendResult r = p.send(m);
        emit("key", m.getKeys(), "status", r.getSendStatus(), "topic", topic, "offsetMsgId", r.getOffsetMsgId(),
            "queueId", r.getMessageQueue().getQueueId(), "queueOffset", r.getQueueOffset());
    }
    for (String name : List.of(topic, args[2])) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) batch.add(new Message(name, "TagJ", "Jbatch" + i, ("batch " + i).getBytes()));
        SendResult r = p.send(batch);
        emit("key", "Jbatch", "status", r.getSendStatus(), "topic", name, "offsetMsgId", r.getOffsetMsgId(),
            "queueId", r.getMessageQueue().getQueueId(), "queueOffset", r.getQueueOffset());
    }
    for (LocalTransactionState outcome : LocalTransactionState.values()) {
        Message m = new Message(topic, "TagJ", "J" + outcome, outcome.name().getBytes());
        SendResult r = p.sendMessageInTransaction(m, outcome);
        if (r.getSendStatus() != SendStatus.SEND_OK) throw new Exception(r.toString());
    }
"""


def assert_we_find_what_java_sent(store: Store, sent: list[dict[str, Any]]) -> None:
    for row in sent:
        assert row["status"] == "SEND_OK"
        if row["key"] == "Jdelayed":
            continue  # the answer names the queue of its real topic
        queue = dict(read_queue(store, row["topic"], row["queueId"]))
        for at, part in enumerate(row["offsetMsgId"].split(",")):
            message = queue[row["queueOffset"] + at]
            assert message.physical_offset == int(part[-16:], 16)
            assert store.message_at(message.physical_offset) is not None
            assert kinds.key_of(message).startswith(row["key"]) or kinds.is_batch_topic(row["topic"])
        if kinds.is_batch_topic(row["topic"]):
            assert kinds.inner_members(queue[row["queueOffset"]]) == [b"batch 0", b"batch 1", b"batch 2"]
    delayed = read_queue(store, kinds.SCHEDULE_TOPIC, kinds.LEVEL_2H - 1)[-1][1]
    assert decode(delayed.properties).items() >= {"KEYS": "Jdelayed", "REAL_TOPIC": kinds.TOPIC}.items()
    for name in kinds.LIGHT_TOPICS:
        assert kinds.key_of(read_queue(store, name, 0)[-1][1]) == "Jlight"
    keys = [key for key in read_all(store, others=True).values() if key.startswith("J")]
    assert keys.count("JCOMMIT_MESSAGE") == 2, "as a half message and as what was committed"
    assert keys.count("JROLLBACK_MESSAGE") == 1
    assert keys.count("JUNKNOW") in (1, 2), "a broker that stops looks once more after half messages"
    for key in ("J0", "Jbig", "Jbatch2", "JCOMMIT_MESSAGE"):
        assert store.lookup.query(kinds.TOPIC, key, 64, 0, 1 << 60).records, key


@pytest.mark.mission("ST-03", "ST-05", "ST-08")
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_store_goes_from_us_to_java_and_back(
    end: str, java55: JavaShell, nursery: Nursery, routes: str, tmp_path: Path
) -> None:
    """Each side leaves the directory to the other by the same kind of end."""
    broker = java_broker(tmp_path, routes, f"broker-{end}")
    add_topics(broker.store)
    root = str(broker.store)
    acks = live(nursery, Order(root, 0, stop_after=100, store_host=kinds.V6_HOST.hex(), options=OPTIONS))
    stop_after, kill_after = (300, -1) if end == "stop" else (-1, 300)
    order = Order(root, 100_000, stop_after=stop_after, store_host=host_of(broker).hex(), options=OPTIONS)
    acks += live(nursery, order, kill_after)
    found, ends, crashed = read_copy(broker.store)
    assert crashed == (end == "kill")
    with broker.start():
        assert took_it_for_a_crash(broker) == crashed
        assert queue_ends(broker, ends) == ends
        assert_java_finds(java55, broker, found, acks)
        assert store_errors(broker) == []
        light = ",".join(kinds.LIGHT_TOPICS)
        sent = java55.run(SEND_EVERY_KIND, routes, kinds.TOPIC, kinds.INNER_TOPIC, light, timeout_s=60).rows
        # A commit is answered by nobody; what it leaves at last is a removal mark.
        mark = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
        wait_until(lambda: queue_ends(broker, [mark])[mark] >= 1, "the end of the transactions", 60)
        committed = [(kinds.TOPIC, "JCOMMIT_MESSAGE")]
        wait_until(lambda: query_keys(java55, broker, committed) != [[]], "the committed message", 60)
        if end == "stop":
            broker.stop(60)
        else:
            broker.kill()
    store = our_store(broker.store)
    assert store.crashed == crashed
    assert store.recovered.damages == []
    assert found.items() <= read_all(store, others=True).items()
    assert_we_find_what_java_sent(store, sent)
    store.close()


# Crash images


@pytest.mark.repeated
def test_java_reads_what_is_left_of_crashes(
    java55: JavaShell, nursery: Nursery, routes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writers die three times in a row, our store recovers what they left, the Java broker opens that."""
    messages = 0
    for image in range(IMAGES):
        seed = SEED + image
        chance = random.Random(seed)
        replay = f"COMETMQ_KILL_SEED={seed} COMETMQ_IMAGES=1 pytest tests/compat/test_store.py -k crashes"
        print(f"image {image} seed={seed} replay: {replay}")
        options = {
            **OPTIONS,
            "flush_disk_type": chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
            "segment_bytes": chance.choice((32_768, 262_144)),
            "queue_flush_interval_ms": 10,
            "queue_flush_thorough_interval_ms": chance.choice((50, 60_000)),
        }
        sizes = {"mappedFileSizeCommitLog": options["segment_bytes"], "brokerClusterName": f"image-{image}"}
        broker = JavaBroker(tmp_path, routes, {**SETTINGS, **sizes}, name=f"image-{image}")
        add_topics(broker.store)
        acks: list[Ack] = []
        for number in range(3):
            order = Order(
                str(broker.store),
                number * 100_000,
                seed=chance.randrange(1 << 30),
                store_host=host_of(broker).hex(),
                options=options,
            )
            acks += live(nursery, order, chance.randint(0, 200))
        store = open_directory(str(broker.store), **options)
        assert store.crashed
        found, ends = read_all(store), our_queue_ends(store)
        store.close()
        with broker.start():
            assert not took_it_for_a_crash(broker)
            assert queue_ends(broker, ends) == ends
            assert_java_finds(java55, broker, found, acks)
            assert store_errors(broker) == []
        messages += len(found)
        shutil.rmtree(broker.store)
    with capsys.disabled():
        print(f"\nJava read all {messages} messages of {IMAGES} recovered crash images; seeds from {SEED}")
