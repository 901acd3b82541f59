"""Where consumers begin: the Python and the Java client at the same broker, in groups that are new, old and reset; and
the file in which broadcasting consumers of either keep how far they came."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client, Message, StartFrom
from cometmq.client.consume.push import PushConsumer
from tests.compat.harness.processes import wait_until
from tests.compat.harness.remoting import call, create_group, create_topic
from tests.compat.harness.servers import MAKES
from tests.compat.harness.shell import JavaShell
from tests.conftest import run
from tests.support.consuming import queue_of
from tests.support.net import until

pytestmark = pytest.mark.interop

UPDATE_OFFSET, RESET_OFFSET = 15, 222
RULES = ("FIRST", "LAST", "TIME")
BEFORE, AFTER = 5, 5
STORED, RESET = 3, 7

# Where each rule begins in a group of each kind, if the topic has BEFORE + AFTER messages.
EXPECTED = {
    ("fresh", "FIRST"): 0,
    ("fresh", "LAST"): BEFORE + AFTER,
    ("fresh", "TIME"): BEFORE,
    **{("old", rule): STORED for rule in RULES},
    **{("reset", rule): RESET for rule in RULES},
}

CONSUME = """
    import org.apache.rocketmq.common.UtilAll;
    for (int i = 3; i < args.length; i++) {
        String group = args[i];
        DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(group));
        c.setNamesrvAddr(args[0]);
        c.setConsumeFromWhere(group.contains("FIRST") ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            : group.contains("LAST") ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
            : ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        c.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(Long.parseLong(args[2])));
        c.subscribe(args[1], "*");
        c.setMessageQueueListener((topic, all, mine) -> {
            if (topic.equals(args[1])) emit("group", group, "offset", -1);
        });
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) emit("group", group, "offset", m.getQueueOffset());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
    }
    awaitStop();
"""

BROADCAST = """
    import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
    import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
    emit("directory", LocalFileOffsetStore.LOCAL_OFFSET_STORE_DIR);
    if (args.length == 0) return;
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setMessageModel(MessageModel.BROADCASTING);
    c.setClientIP("10.9.8.7");
    c.setInstanceName(args[3]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.subscribe(args[1], "*");
    c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        for (MessageExt m : messages) emit("offset", m.getQueueOffset());
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    c.start();
    awaitStop();
"""


@pytest.fixture(scope="module")
def servers(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Addresses of our name server and broker. The broker says of no message that it is in memory: else groups that it
    does not know begin at 0 in young queues, whatever their rule."""
    directory = tmp_path_factory.mktemp("starts")
    settings = {"accessMessageInMemoryMaxRatio": 0, "brokerFastFailureEnable": False}
    with ExitStack() as stack:
        namesrv = stack.enter_context(MAKES["comet"].name_server(directory).start())
        broker = stack.enter_context(MAKES["comet"].broker(directory, namesrv.address, settings).start())
        yield namesrv.address, broker.address


async def send(namesrv: str, topic: str, count: int) -> None:
    async with Client(namesrv, call_timeout=20.0) as client, client.producer("pg", timeout=20.0) as producer:
        queue = await queue_of(producer, topic, 0)
        for number in range(count):
            await producer.send(topic, b"%d" % number, queue=queue)


def groups_of(topic: str, who: str) -> dict[tuple[str, str], str]:
    return {(kind, rule): f"{topic}_{who}_{kind}_{rule}" for kind in ("fresh", "old", "reset") for rule in RULES}


def prepare(broker: str, topic: str, groups: dict[tuple[str, str], str]) -> None:
    """Give the groups that are not fresh what a broker stores of them."""
    for (kind, _), group in groups.items():
        if kind == "fresh":
            continue
        create_group(broker, group)
        stored: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": STORED}
        assert call(broker, UPDATE_OFFSET, stored).code == 0
        if kind == "reset":
            reset: dict[str, object] = {
                "group": group, "topic": topic, "timestamp": 0, "isForce": "true", "queueId": 0, "offset": RESET,
            }  # fmt: skip
            answer = call(broker, RESET_OFFSET, reset)
            assert answer.code == 0, answer.remark


async def python_starts(namesrv: str, topic: str, groups: dict[tuple[str, str], str], at: datetime) -> dict[str, int]:
    """The first offset that each group sees."""
    seen: dict[str, list[int]] = defaultdict(list)
    async with Client(namesrv, call_timeout=20.0) as client:
        apps: list[PushConsumer] = []
        starts: dict[str, StartFrom | datetime] = {"FIRST": StartFrom.FIRST, "LAST": StartFrom.LAST, "TIME": at}
        for (_, rule), group in groups.items():
            app = client.push_consumer(group, start=starts[rule])

            def take(group: str = group) -> Any:
                async def handle(message: Message[bytes]) -> None:
                    seen[group].append(message.offset)

                return handle

            app.subscribe(topic, take())
            await app.start()
            apps.append(app)
        await until(lambda: all(any(queue.topic == topic for queue in app.queues) for app in apps))
        await send(namesrv, topic, 1)
        await until(lambda: all(BEFORE + AFTER in seen[group] for group in groups.values()))
    return {group: min(offsets) for group, offsets in seen.items()}


def java_starts(
    java: JavaShell, namesrv: str, topic: str, groups: dict[tuple[str, str], str], at: datetime
) -> dict[str, int]:
    consuming = java.begin(CONSUME, namesrv, topic, round(at.timestamp() * 1000), *groups.values())
    names = set(groups.values())
    wait_until(lambda: {row["group"] for row in consuming.rows if row["offset"] == -1} == names, "queues", 60)
    run(send(namesrv, topic, 1))
    last = BEFORE + AFTER
    wait_until(lambda: {row["group"] for row in consuming.rows if row["offset"] >= last} == names, "the end", 60)
    consuming.stop()
    return {
        group: min(row["offset"] for row in consuming.rows if row["group"] == group and row["offset"] >= 0)
        for group in names
    }


@pytest.mark.mission("CG-11")
def test_both_clients_begin_where_rule_and_broker_say(
    servers: tuple[str, str], java55: JavaShell, topic: str
) -> None:
    namesrv, broker = servers
    found: dict[str, dict[tuple[str, str], int]] = {}
    for who in ("python", "java"):
        own = f"{topic}_{who}"
        create_topic(broker, own, 1)
        run(send(namesrv, own, BEFORE))
        # RocketMQ's times have whole seconds.
        time.sleep(2.1 - time.time() % 1)
        at = datetime.fromtimestamp(int(time.time()), UTC)
        run(send(namesrv, own, AFTER))
        groups = groups_of(own, who)
        prepare(broker, own, groups)
        if who == "python":
            starts = run(python_starts(namesrv, own, groups, at), 60)
        else:
            starts = java_starts(java55, namesrv, own, groups, at)
        found[who] = {key: starts[group] for key, group in groups.items()}
    assert found["python"] == EXPECTED
    assert found["java"] == EXPECTED


@pytest.mark.mission("CG-10")
@pytest.mark.parametrize("first", ["python", "java"])
def test_each_client_goes_on_from_the_local_offsets_of_the_other(
    servers: tuple[str, str], java55: JavaShell, topic: str, first: str
) -> None:
    namesrv, broker = servers
    create_topic(broker, topic, 1)
    (where,) = java55.run(BROADCAST).rows
    member, group = f"{topic}_member", f"{topic}_g"
    seen: dict[str, list[int]] = {}

    async def python() -> None:
        offsets: list[int] = []
        async with Client(namesrv, client_ip="10.9.8.7", instance_name=member, call_timeout=20.0) as client:
            app = client.push_consumer(
                group, broadcast=True, start=StartFrom.FIRST, offsets_dir=Path(where["directory"])
            )

            @app.on(topic)
            async def handle(message: Message[bytes]) -> None:
                offsets.append(message.offset)

            async with app:
                await until(lambda: len(offsets) >= 3)
                await asyncio.sleep(0.1)
        seen["python"] = offsets

    def java() -> None:
        consuming = java55.begin(BROADCAST, namesrv, topic, group, member)
        wait_until(lambda: len(consuming.rows) >= 4, "three messages", 60)
        consuming.stop()
        seen["java"] = [row["offset"] for row in consuming.rows[1:]]

    for who in (first, "java" if first == "python" else "python"):
        run(send(namesrv, topic, 3))
        if who == "python":
            run(python(), 60)
        else:
            java()
    second = "java" if first == "python" else "python"
    assert {who: sorted(offsets) for who, offsets in seen.items()} == {first: [0, 1, 2], second: [3, 4, 5]}


START_AND_SEND = """
    DefaultMQProducer p = use(new DefaultMQProducer(args[1] + "_p"));
    p.setNamesrvAddr(args[0]);
    p.start();
    int turns = Integer.parseInt(args[2]), count = Integer.parseInt(args[3]);
    for (int turn = 0; turn < turns; turn++) p.fetchPublishMessageQueues(args[1] + "_" + turn);
    for (int turn = 0; turn < turns; turn++) {
        String topic = args[1] + "_" + turn;
        DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(topic + "_g"));
        c.setNamesrvAddr(args[0]);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) emit("topic", topic, "body", new String(m.getBody()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        for (int i = 0; i < count; i++) p.send(new Message(topic, ("" + i).getBytes()));
    }
    emit("sent", turns * count);
    awaitStop();
"""


def test_a_new_group_of_the_java_client_skips_nothing_that_is_sent_right_after_its_start(
    java55: JavaShell, topic: str, tmp_path: Path
) -> None:
    """Its rule is the end of the queues, which have never had a message when it first asks."""
    turns, count = 12, 20
    with ExitStack() as stack:
        namesrv = stack.enter_context(MAKES["comet"].name_server(tmp_path).start())
        settings = {"brokerFastFailureEnable": False}
        broker = stack.enter_context(MAKES["comet"].broker(tmp_path, namesrv.address, settings).start())
        for turn in range(turns):
            create_topic(broker.address, f"{topic}_{turn}", 8)
        running = java55.begin(START_AND_SEND, namesrv.address, topic, turns, count)
        expected = {(f"{topic}_{turn}", str(number)) for turn in range(turns) for number in range(count)}

        def missing() -> set[tuple[str, str]]:
            return expected - {(row["topic"], row["body"]) for row in running.rows if "body" in row}

        try:
            wait_until(lambda: not missing(), "every message", 30)
        except TimeoutError:
            raise AssertionError(f"skipped: {sorted(missing())}") from None
        running.stop()
