"""Choosing a queue: by turn, by key, by the caller's function, by lag, and around brokers that are slow."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cometmq.client.messages import Message
from cometmq.client.produce.broker_faults import Faults, unavailable_for_s
from cometmq.client.produce.selectors import LeastLag, RoundRobin, at_random, by_key, index_of_key, java_hash
from cometmq.clock import ManualClock
from cometmq.errors import ConfigError
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.command import Command
from tests.support.brokers import Peer
from tests.support.clusters import accept, idle, producing, real_cluster, refuse, scripted_cluster
from tests.support.net import until

QUEUES = [MessageQueue("a", number, "T") for number in range(4)]
MESSAGE: Message[bytes] = Message("T", b"x", b"x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("TagA", 2598919),
        ("", 0),
        ("polygenelubricants", -(2**31)),  # the String whose hash has no absolute value in Java
        ("日本", 835047),
        (7, 7),
        (-7, -7),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (2**40 + 5, 261),
        (-(2**40), -256),
    ],
)
def test_keys_have_javas_hash(key: str | int, value: int) -> None:
    assert java_hash(key) == value


def test_a_key_keeps_its_queue() -> None:
    assert index_of_key("TagA", 4) == 2598919 % 4
    assert index_of_key("polygenelubricants", 3) == 2**31 % 3
    assert index_of_key(-7, 4) == 3  # Java: abs(-7 % 4) is 3
    assert by_key("TagA")(QUEUES, MESSAGE) == QUEUES[3]
    assert at_random(QUEUES, MESSAGE) in QUEUES


@pytest.mark.mission("PC-07")
async def test_a_selector_sees_names_without_namespace_and_decides() -> None:
    async with scripted_cluster("a", "b") as cluster, cluster.client(namespace="ns") as client:
        seen: list[tuple[Sequence[MessageQueue], Message[Any]]] = []

        def choose(queues: Sequence[MessageQueue], message: Message[Any]) -> MessageQueue:
            seen.append((queues, message))
            return queues[5]

        async with client.producer("pg") as producer:
            receipt = await producer.send("T", b"body", tag="t", selector=choose)
        ((queues, message),) = seen
        assert [(it.topic, it.broker_name, it.queue_id) for it in queues] == [
            ("T", name, number) for name in "ab" for number in range(4)
        ]
        assert (message.topic, message.body, message.tag, message.id) == ("T", b"body", "t", receipt.id)
        assert receipt.queue == MessageQueue("b", 1, "T")
        assert [(header.topic, header.queue_id) for header in cluster["b"].headers()] == [("ns%T", 1)]


@pytest.mark.mission("PC-07")
async def test_a_selector_that_fails_fails_the_call() -> None:
    def fail(_queues: Sequence[MessageQueue], _message: Message[Any]) -> MessageQueue:
        raise LookupError("mine")

    async with producing("a") as (cluster, producer):
        with pytest.raises(LookupError, match="mine"):
            await producer.send("T", b"x", selector=fail)
        with pytest.raises(ConfigError, match="None"):
            await producer.send("T", b"x", selector=lambda _queues, _message: None)  # type: ignore[arg-type, return-value]
        with pytest.raises(ConfigError, match="none of the 4"):
            await producer.send("T", b"x", selector=lambda _queues, _message: MessageQueue("z", 0, "T"))
        assert cluster["a"].sends == 0
        assert producer._sender.window.count == 0


def test_turns_begin_anywhere_and_visit_all() -> None:
    robin = RoundRobin(start=2**31 - 3)
    assert [robin.next_index(4) for _ in range(8)] == [2, 3, 0, 1, 2, 3, 0, 1]
    assert robin.next_where(4, lambda index: index == 1) == 1
    assert robin.next_where(4, lambda _: False) is None


@pytest.mark.mission("PC-06")
@pytest.mark.parametrize(
    ("latency_s", "pause_s"),
    [
        (0.0, 0), (0.049, 0), (0.05, 0), (0.1, 0), (0.549, 0), (0.55, 2), (1.79, 2), (1.8, 5), (2.99, 5), (3, 6),
        (4.99, 6), (5, 10), (14.9, 10), (15, 30), (100, 30),
    ],
)  # fmt: skip
def test_how_long_a_slow_broker_is_left_alone(latency_s: float, pause_s: float) -> None:
    assert unavailable_for_s(latency_s) == pause_s


@pytest.mark.mission("PC-06")
def test_faults_are_remembered_by_the_later_end() -> None:
    faults = Faults()
    assert faults.is_available("a", 0)
    assert faults.is_reachable("a")
    faults.note("a", 0.01, 100, failed=True, reachable=False)  # a failure counts as 10 s
    assert not faults.is_available("a", 109.9)
    assert faults.is_available("a", 110)
    assert not faults.is_reachable("a")
    faults.note("a", 0.6, 101)  # its end, 103, is before 110
    assert not faults.is_available("a", 109.9)
    assert faults.is_reachable("a")
    faults.note("a", 20, 102)
    assert not faults.is_available("a", 131.9)
    faults.note("a", 0.01, 103)
    assert not faults.is_available("a", 131.9)
    faults.forget("a")
    assert faults.is_available("a", 104)


@pytest.mark.mission("PC-06")
async def test_a_broker_that_took_4_seconds_gets_nothing_for_6() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a", "b") as cluster,
        cluster.client(clock) as client,
        client.producer("pg", latency_faults=True, timeout=10) as producer,
    ):
        kept: list[Command] = []
        cluster["a"].answers = [kept.append]
        sending = [asyncio.ensure_future(producer.send("T", b"x")) for _ in range(8)]
        await until(lambda: sum(send.done() for send in sending) == len(kept) == 4)
        clock.advance(4)
        (connection,) = cluster["a"].server.connections
        for received in kept:
            connection.answer(received, accept()(received))
        await asyncio.gather(*sending)
        await idle(client)  # a heartbeat was due, too
        cluster["a"].answers = [accept()]
        before = cluster["a"].sends
        clock.advance(5.9)
        for _ in range(16):
            assert (await producer.send("T", b"x")).queue.broker_name == "b"
        assert cluster["a"].sends == before
        clock.advance(0.2)
        used = Counter([(await producer.send("T", b"x")).queue.broker_name for _ in range(16)])
        assert used == {"a": 8, "b": 8}


@pytest.mark.mission("PC-06")
async def test_a_broker_that_refuses_is_left_alone_and_used_if_there_is_no_other() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a", "b") as cluster,
        cluster.client(clock) as client,
        client.producer("pg", latency_faults=True) as producer,
    ):
        cluster["a"].answers = [refuse(2)]
        for _ in range(16):
            await producer.send("T", b"x")
        assert cluster["a"].sends == 1
        cluster["b"].answers = [refuse(2)]
        cluster["a"].answers = [accept()]
        assert (await producer.send("T", b"x")).queue.broker_name == "a"


@pytest.mark.mission("PC-06")
async def test_the_detector_finds_out_that_a_broker_is_back() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a", "b") as cluster,
        cluster.client(clock) as client,
        client.producer("pg", latency_faults=True, probe_faulty=True) as producer,
    ):
        cluster["a"].answers = [refuse(2)]
        for _ in range(8):
            await producer.send("T", b"x")
        assert producer._sender.faults.unreachable() == ["a"]
        clock.advance(3)
        await until(lambda: producer._sender.faults.unreachable() == [])
        assert cluster["a"].count(Request.GET_MAX_OFFSET) == 1
        assert cluster["b"].count(Request.GET_MAX_OFFSET) == 0


def test_least_lag_takes_turns_among_the_best() -> None:
    selector = LeastLag(slack=10)
    chosen = Counter(selector(QUEUES, MESSAGE) for _ in range(8))
    assert chosen == dict.fromkeys(QUEUES, 2)
    selector.update({QUEUES[0]: 500, QUEUES[1]: 5, QUEUES[2]: 11})
    chosen = Counter(selector(QUEUES, MESSAGE) for _ in range(8))
    assert chosen == {QUEUES[1]: 4, QUEUES[3]: 4}


@pytest.mark.mission("AD-04")
async def test_new_messages_avoid_a_queue_that_is_held_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "T") as cluster,
        cluster.client(clock=clock) as client,
        client.producer("pg") as producer,
        Peer.of(cluster.broker) as consumer,
    ):
        await consumer.heartbeat("cg", topics={"T": "*"})
        queues = await producer.queues("T")
        for queue in queues:
            await producer.send_many("T", [b"x"] * 50, queue=queue)
            await consumer.call(
                Request.UPDATE_CONSUMER_OFFSET,
                consumerGroup="cg",
                topic="T",
                queueId=queue.queue_id,
                commitOffset=0 if queue.queue_id == 0 else 50,
            )
        least_lag = await producer.least_lag("T", "cg", slack=10, refresh=5.0)
        used = Counter([(await producer.send("T", b"x", selector=least_lag)).queue.queue_id for _ in range(9)])
        assert used == {1: 3, 2: 3, 3: 3}
        await consumer.call(
            Request.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=0, commitOffset=50
        )
        clock.advance(5)
        await until(lambda: least_lag(queues, MESSAGE).queue_id == 0)
