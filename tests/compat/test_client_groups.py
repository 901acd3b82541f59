"""Groups of two languages: Java and Python members share the queues of a topic while they come, go and are killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.compat.conftest import Cluster
from tests.compat.harness.member import PythonMember
from tests.compat.harness.processes import wait_until
from tests.compat.harness.remoting import create_topic
from tests.compat.harness.shell import JavaShell, Run

pytestmark = pytest.mark.interop

QUEUES = 8
SHARE_TIMEOUT_S = 150.0  # a lock that nobody gave back is free after 60 s

SEND = """
    DefaultMQProducer p = use(new DefaultMQProducer(args[1] + "_p"));
    p.setNamesrvAddr(args[0]);
    p.start();
    int sent = 0;
    for (String count; (count = receive()) != null; ) {
        for (int end = sent + Integer.parseInt(count); sent < end; sent++) {
            p.send(new Message(args[1], Integer.toString(sent).getBytes()), new SelectMessageQueueByHash(), sent % 16);
            Thread.sleep(1);
        }
        emit(sent);
    }
"""

MEMBER = """
    import java.time.Instant;
    import java.time.temporal.ChronoUnit;
    DefaultMQPushConsumer c = use(new DefaultMQPushConsumer(args[2]));
    c.setNamesrvAddr(args[0]);
    c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    c.setHeartbeatBrokerInterval(2_000);
    c.subscribe(args[1], "*");
    java.util.function.Consumer<List<MessageExt>> handle = messages -> {
        for (MessageExt m : messages) emit("queue", m.getQueueId(), "offset", m.getQueueOffset(),
            "body", m.getBody(), "at", ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
    };
    if (args[3].equals("ordered")) {
        c.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            handle.accept(messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
    } else {
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            handle.accept(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }
    c.start();
    while (receive() != null) {
        emit("owned", c.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(q -> q.getTopic().equals(args[1])).map(MessageQueue::getQueueId).sorted()
            .collect(Collectors.toList()));
    }
"""


class Member(Protocol):
    @property
    def rows(self) -> list[dict[str, Any]]: ...

    def owned(self) -> list[int]: ...

    def leave(self) -> None: ...


class JavaMember:
    def __init__(self, java: JavaShell, *arguments: str) -> None:
        self._run: Run = java.begin(MEMBER, *arguments)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for row in list(self._run.rows) if "body" in row]

    def owned(self) -> list[int]:
        before = sum("owned" in row for row in self._run.rows)
        self._run.send("which?")
        wait_until(lambda: sum("owned" in row for row in list(self._run.rows)) > before, "an answer", SHARE_TIMEOUT_S)
        owned: list[int] = [row["owned"] for row in list(self._run.rows) if "owned" in row][-1]
        return owned

    def leave(self) -> None:
        self._run.stop()


class Group:
    """All members that ever were, and what they handled."""

    def __init__(
        self, java: JavaShell, victim: JavaShell, directory: Path, stack: ExitStack, arguments: tuple[str, ...]
    ) -> None:
        self._java = java
        self.victim = victim
        self._directory = directory
        self._stack = stack
        self._arguments = arguments
        self.everybody: list[Member] = []

    def java(self) -> JavaMember:
        self.everybody.append(member := JavaMember(self._java, *self._arguments))
        return member

    def java_victim(self) -> JavaMember:
        """In a JVM of its own, which may be killed."""
        self.everybody.append(member := JavaMember(self.victim, *self._arguments))
        return member

    def python(self) -> PythonMember:
        name = f"member-{len(self.everybody)}"
        namesrv, topic, group, kind = self._arguments
        member = PythonMember(self._directory, name, namesrv, topic, group, kind)
        self._stack.callback(member.close)
        self.everybody.append(member.join())
        return member

    @property
    def rows(self) -> list[dict[str, Any]]:
        return sorted((row for member in self.everybody for row in list(member.rows)), key=lambda row: row["at"])

    def await_all(self, count: int) -> None:
        wait_until(lambda: len({row["body"] for row in self.rows}) == count, f"{count} messages", SHARE_TIMEOUT_S)


def await_shares(*members: Member) -> None:
    """Until each has its share: all queues are somebody's, none is two members', and shares differ by one at most."""

    def shared() -> bool:
        shares = [member.owned() for member in members]
        sizes = [len(share) for share in shares]
        everything = sorted(queue for share in shares for queue in share)
        return everything == list(range(QUEUES)) and max(sizes) - min(sizes) <= 1

    wait_until(shared, f"{len(members)} members to share {QUEUES} queues", SHARE_TIMEOUT_S)


@pytest.fixture
def make_group(
    java55: JavaShell, cluster: Cluster, topic: str, tmp_path: Path
) -> Iterator[Callable[[str], tuple[Group, Run]]]:
    with ExitStack() as stack:

        def make(kind: str) -> tuple[Group, Run]:
            """The group, and a producer that sends as many as it is told."""
            create_topic(cluster.broker.address, topic, QUEUES)
            victim = stack.enter_context(JavaShell(tmp_path, name="victim"))
            arguments = (cluster.namesrv.address, topic, f"{topic}_g", kind)
            producer = java55.begin(SEND, *arguments[:2])
            return Group(java55, victim, tmp_path, stack, arguments), producer

        yield make


def test_members_of_both_languages_share_queues_through_joins_leaves_and_kills(
    make_group: Callable[[str], tuple[Group, Run]],
) -> None:
    group, producer = make_group("concurrent")
    java = group.java()
    await_shares(java)
    producer.send("300")
    python = group.python()
    await_shares(java, python)
    java_victim, python_victim = group.java_victim(), group.python()
    await_shares(java, python, java_victim, python_victim)
    producer.next()
    producer.send("100")
    wait_until(lambda: java_victim.rows and python_victim.rows, "messages of all four", SHARE_TIMEOUT_S)
    producer.next()
    producer.send("400")
    python_victim.kill()
    await_shares(java, python, java_victim)
    group.victim.kill()
    await_shares(java, python)
    back = group.python()
    await_shares(java, python, back)
    producer.next()
    producer.send("300")
    java.leave()
    await_shares(python, back)
    producer.next()
    group.await_all(1100)
    python.leave()
    await_shares(back)
    back.leave()
    assert java.rows
    assert python.rows
    assert back.rows
    repeated = len(group.rows) - 1100
    print(f"{repeated} of 1100 messages were handled twice")


def test_order_is_kept_across_languages(make_group: Callable[[str], tuple[Group, Run]]) -> None:
    group, producer = make_group("ordered")
    java = group.java()
    await_shares(java)
    producer.send("600")
    python = group.python()
    await_shares(java, python)
    more_java, more_python = group.java(), group.python()
    await_shares(java, python, more_java, more_python)
    producer.next()
    producer.send("300")
    java.leave()
    await_shares(python, more_java, more_python)
    producer.next()
    producer.send("300")
    python.leave()
    await_shares(more_java, more_python)
    producer.next()
    group.await_all(1200)
    more_java.leave()
    more_python.leave()
    by_queue: dict[int, list[int]] = defaultdict(list)
    for row in group.rows:
        by_queue[row["queue"]].append(row["offset"])
    assert len(by_queue) == QUEUES
    for offsets in by_queue.values():  # after a handover some may come again, none is left out or overtaken
        assert list(dict.fromkeys(offsets)) == list(range(max(offsets) + 1))
    assert all(member.rows for member in group.everybody)
