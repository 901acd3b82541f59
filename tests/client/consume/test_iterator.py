"""Consumers to loop over: when a message is done, and what becomes of it otherwise."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client, Delivered, Reject, Retry, StartFrom, json_codec
from cometmq.client.consume.iterator import Consumer
from cometmq.clock import ManualClock
from cometmq.errors import ConfigError, NotRunning
from tests.support.aio import settle
from tests.support.brokers import stored
from tests.support.clusters import real_cluster
from tests.support.consuming import QUICK, advance_until, cache_of, committed, member_of, send
from tests.support.net import until


def loop_over(client: Client, group: str = "cg", topics: Any = "T", **options: Any) -> Consumer[Any]:
    return client.consumer(group, topics, **{**QUICK, **options})


async def test_messages_are_done_when_the_next_one_is_asked_for(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 5)
        bodies = []
        async with loop_over(client) as consumer:
            async for message in consumer:
                bodies.append(message.body)
                assert cache_of(consumer).commit_offset == message.offset  # not done yet
                assert (message.topic, message.delivery_count) == ("T", 1)
                if len(bodies) == 3:
                    break
        assert bodies == [b"0", b"1", b"2"]
        assert committed(cluster.broker) == 3  # left without an error: the last one is done, too
        async with loop_over(client) as consumer:
            async for message in consumer:
                assert message.body == b"3"
                break


async def test_an_error_in_the_loop_sends_its_message_back_and_the_others_stay(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "T", queues=1, clock=clock) as cluster, cluster.client() as client:
        await send(client, "T", 3)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with loop_over(client) as consumer:
                async for message in consumer:
                    if message.body == b"1":
                        1 / 0  # noqa: B018
        assert committed(cluster.broker) == 2
        seen: list[tuple[bytes, int]] = []
        async with loop_over(client) as consumer:

            async def collect() -> None:
                async for message in consumer:
                    seen.append((message.body, message.delivery_count))

            task = asyncio.create_task(collect())
            await advance_until(clock, lambda: len(seen) == 2, "the retry", 1.0)
            task.cancel()
        assert seen == [(b"2", 1), (b"1", 2)]


@pytest.mark.parametrize("error", [Reject("bad"), asyncio.CancelledError()])
async def test_how_a_loop_ends_decides_about_its_message(tmp_path: Path, error: BaseException) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 1)
        with pytest.raises(type(error)):  # noqa: PT012
            async with loop_over(client) as consumer:
                async for _ in consumer:
                    raise error
        if isinstance(error, Reject):
            assert [message.body for message in stored(cluster.broker, "%DLQ%cg")] == [b"0"]
            assert committed(cluster.broker) == 1
        else:  # nobody's fault: delivered again as it was
            async with loop_over(client) as consumer:
                async for message in consumer:
                    assert message.delivery_count == 1
                    break


async def test_manual_acks_may_come_in_any_order_and_bound_what_is_handed_out(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 10)
        async with loop_over(client, auto_ack=False, max_unacked=4) as consumer:
            taken: list[Delivered[bytes]] = []
            for _ in range(4):
                message = await consumer.receive(10)
                assert message is not None
                taken.append(message)
            assert await consumer.receive(0.05) is None
            assert consumer.unacked == 4
            waiting = asyncio.create_task(consumer.receive())
            await settle()
            await taken[2].ack()
            await taken[2].ack()  # twice is once
            fifth = await waiting
            assert fifth is not None
            assert fifth.offset == 4
            assert cache_of(consumer).commit_offset == 0
            await taken[0].ack()
            await taken[1].ack()
            assert cache_of(consumer).commit_offset == 3
            assert consumer.unacked == 2
        assert committed(cluster.broker) == 3


async def test_a_message_can_be_sent_back_or_buried(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "T", queues=1, clock=clock) as cluster, cluster.client() as client:
        await send(client, "T", 2)
        async with loop_over(client, auto_ack=False) as consumer:
            first, second = await consumer.receive(10), await consumer.receive(10)
            assert first is not None
            assert second is not None
            await first.retry(delay=1)
            await second.dead_letter()
            assert [message.body for message in stored(cluster.broker, "%DLQ%cg")] == [b"1"]
            waiting = asyncio.create_task(consumer.receive())
            await advance_until(clock, waiting.done, "the retry", 0.5)
            again = waiting.result()
            assert again is not None
            assert (again.body, again.delivery_count, again.topic) == (b"0", 2, "T")
            await again.ack()


async def test_several_tasks_may_share_a_consumer(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", "U") as cluster, cluster.client() as client:
        bodies = await send(client, "T", 60, None) + await send(client, "U", 60, None, tag="x")
        seen: list[bytes] = []
        async with loop_over(client, topics={"T": "*", "U": "x || y"}, codec=json_codec) as consumer:

            async def work() -> None:
                async for message in consumer:
                    await asyncio.sleep(0)
                    seen.append(message.body)
                    assert isinstance(message.value, int)

            tasks = [asyncio.create_task(work()) for _ in range(5)]
            await until(lambda: len(seen) == 120)
            await consumer.stop()
            await asyncio.gather(*tasks)  # loops end with their consumer
        assert sorted(seen) == sorted(bodies)


async def test_a_loop_may_end_when_nothing_comes(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        async with loop_over(client) as consumer:
            await until(lambda: len(consumer.queues) == 5)
            await send(client, "T", 3)
            await until(lambda: sum(cache.count for cache in member_of(consumer).queues.values()) == 3)
            got = [message.body async for message in consumer.iter(timeout=0.5)]
            assert got == [b"0", b"1", b"2"]
        await until(lambda: committed(cluster.broker) == 3)


async def test_a_body_that_cannot_be_decoded_comes_again_and_stops_nobody(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            await producer.send("T", b"{")
            await producer.send("T", b"7")
        async with loop_over(client, codec=json_codec) as consumer:
            async for message in consumer:
                assert message.value == 7
                break
        assert committed(cluster.broker) == 2
        assert cluster.broker.store.queue_bounds("SCHEDULE_TOPIC_XXXX", 2) == (0, 1)


async def test_a_cancelled_send_back_is_finished_all_the_same(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 1)
        async with loop_over(client, auto_ack=False) as consumer:
            message = await consumer.receive(10)
            assert message is not None
            task = asyncio.create_task(message.retry())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: cache_of(consumer).count == 0)
        assert cluster.broker.store.queue_bounds("SCHEDULE_TOPIC_XXXX", 2) == (0, 1)


async def test_a_consumer_that_is_not_running_hands_out_nothing() -> None:
    client = Client("127.0.0.1:1")
    consumer = loop_over(client)
    with pytest.raises(NotRunning):
        await consumer.receive()
    with pytest.raises(NotRunning):
        async for _ in consumer:
            pass


@pytest.mark.parametrize(
    ("topics", "options", "match"),
    [([], {}, "needs topics"), ("a b", {}, "characters"), ("T", {"max_unacked": 0}, "max_unacked")],
)
def test_arguments_that_cannot_be_are_refused(topics: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Client("127.0.0.1:1").consumer("cg", topics, **options)


async def test_a_retry_raised_in_the_loop_says_when(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 1)
        with pytest.raises(Retry):  # noqa: PT012
            async with loop_over(client, start=StartFrom.FIRST) as consumer:
                async for _ in consumer:
                    raise Retry(after=60)
        assert cluster.broker.store.queue_bounds("SCHEDULE_TOPIC_XXXX", 4) == (0, 1)  # level 5 is a minute


async def test_a_loop_that_was_left_with_break_is_done_with_its_message(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 3)
        async with loop_over(client) as consumer:
            for expected in range(3):
                async for message in consumer:
                    assert message.offset == expected
                    assert consumer.unacked == 1
                    break
        assert committed(cluster.broker) == 3


async def test_stop_lets_other_tasks_finish_and_keeps_what_cancelled_ones_had(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=2) as cluster, cluster.client() as client:
        for queue_id in (0, 1):
            await send(client, "T", 1, queue_id)
        gate = asyncio.Event()
        finished: list[int] = []
        async with loop_over(client) as consumer:

            async def work() -> None:
                async for message in consumer:
                    await gate.wait()
                    assert message.queue is not None
                    finished.append(message.queue.queue_id)

            tasks = [asyncio.create_task(work()) for _ in range(2)]
            await until(lambda: consumer.unacked == 2)
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            asyncio.get_running_loop().call_later(0.05, gate.set)
        await tasks[1]
        (done,) = finished
        assert committed(cluster.broker, queue_id=done) == 1
        assert committed(cluster.broker, queue_id=1 - done) < 1
