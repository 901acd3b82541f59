"""The pull consumer against a real embedded cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import timedelta
from typing import get_type_hints

import pytest

from cometmq import Client, json_codec
from cometmq.client.consume.pull import Batch, PullConsumer, PullKeywords, PullOptions
from cometmq.client.options import StartFrom
from cometmq.errors import BrokerError, CodecError, ConfigError, NoRoute, NotRunning
from cometmq.testing import Cluster
from cometmq.wire.bodies import MessageQueue
from tests.support.aio import settle
from tests.support.net import until


@asynccontextmanager
async def filled(count: int = 20, queues: int = 2) -> AsyncIterator[tuple[Cluster, Client]]:
    """A topic `orders` with messages 0, 1, ... in turn over its queues; even ones have the tag even."""
    async with Cluster(topics=["orders"], queues=queues) as cluster, cluster.client() as client:
        await send(client, range(count))
        yield cluster, client


async def send(client: Client, numbers: range) -> None:
    async with client.producer("pg") as producer:
        route = await client.instance.route("orders")
        for number in numbers:
            queue = route.publish[number % len(route.publish)]
            await producer.send("orders", str(number).encode(), tag="odd" if number % 2 else "even", queue=queue)


async def read(consumer: PullConsumer[bytes], count: int, **options: int) -> list[int]:
    """Poll until so many came."""
    found: list[int] = []
    while len(found) < count:
        batch = await consumer.poll(timeout=200, **options)  # of the cluster's seconds, which may fly
        assert batch, f"only {len(found)} of {count} messages came"
        found += [int(message.body) for message in batch]
    return found


async def test_assigned_queues_are_read_from_where_they_are_sought_to() -> None:
    async with filled() as (_, client), client.pull_consumer("cg", auto_commit=False) as consumer:
        queues = await consumer.queues("orders")
        await consumer.assign(queues)
        assert consumer.assignment == tuple(queues)
        for queue in queues:
            assert await consumer.seek(queue, consumer.BEGIN) == 0
        assert sorted(await read(consumer, 20)) == list(range(20))
        assert await consumer.seek(queues[1], 7) == 7
        assert await read(consumer, 3) == [15, 17, 19]
        assert await consumer.seek(queues[0], consumer.END) == 10
        assert not await consumer.poll(timeout=0.05)
        with pytest.raises(ConfigError, match="has 0 to 10"):
            await consumer.seek(queues[0], 11)
        with pytest.raises(ConfigError, match="offset or a timestamp"):
            await consumer.seek(queues[0])
        await consumer.assign(queues[:1])
        with pytest.raises(ConfigError, match="is not assigned"):
            await consumer.seek(queues[1], 0)


async def test_seeking_to_a_time_begins_with_the_first_message_stored_then() -> None:
    async with filled(10, queues=1) as (cluster, client), client.pull_consumer("cg") as consumer:
        await cluster.advance(60)
        middle = cluster.now()
        await send(client, range(10, 15))
        (queue,) = await consumer.queues("orders")
        await consumer.assign([queue])
        assert await consumer.seek(queue, timestamp=middle) == 10
        assert await read(consumer, 5) == [10, 11, 12, 13, 14]
        assert await consumer.seek(queue, timestamp=middle - timedelta(days=1)) == 0
        assert await consumer.seek(queue, timestamp=cluster.now() + timedelta(days=1)) == 15


async def test_a_commit_is_where_the_next_consumer_of_the_group_begins() -> None:
    async with filled(20, queues=1) as (_, client):
        async with client.pull_consumer("cg", auto_commit=False, start=StartFrom.FIRST) as consumer:
            (queue,) = await consumer.queues("orders")
            assert await consumer.committed(queue) is None
            await consumer.assign([queue])
            batch = await consumer.poll(max_messages=5, timeout=20)
            assert len(batch) == 5
            assert batch.positions == {queue: 5}
            await consumer.poll(max_messages=5, timeout=20)
            assert await consumer.committed(queue) is None, "nothing is committed by itself"
            await consumer.commit(batch.positions)
            assert await consumer.committed(queue) == 5
            assert await consumer.lag() == {queue: 10}
        async with client.pull_consumer("cg", auto_commit=False) as consumer:
            await consumer.assign([queue])
            assert consumer.position(queue) == 5
            assert await read(consumer, 15) == list(range(5, 20))
            await consumer.commit()
            assert await consumer.committed(queue) == 20


async def test_auto_commit_stores_what_the_program_came_back_from() -> None:
    async with filled(20, queues=1) as (cluster, client), client.admin() as admin:

        async def committed() -> int:
            return next(iter((await admin.committed_offsets("cg", "orders")).values()))

        async def fail_in_the_second_batch() -> None:
            async with client.pull_consumer("cg", start=StartFrom.FIRST) as consumer:
                await consumer.assign(await consumer.queues("orders"))
                await consumer.poll(max_messages=4, timeout=20)
                await consumer.poll(max_messages=4, timeout=20)
                raise RuntimeError("on purpose")

        with pytest.raises(RuntimeError, match="on purpose"):
            await fail_in_the_second_batch()
        assert await committed() == 4
        async with client.pull_consumer("cg") as consumer:
            await consumer.assign(await consumer.queues("orders"))
            await consumer.poll(max_messages=4, timeout=20)
        assert await committed() == 8, "an orderly end counts as done"
        async with client.pull_consumer("cg") as consumer:
            await consumer.assign(await consumer.queues("orders"))
            await consumer.poll(max_messages=4, timeout=20)
            await consumer.poll(max_messages=4, timeout=20)
            await cluster.advance(6)
            (queue,) = await admin.topic_queues("orders")
            await until(lambda: cluster.broker.server.tables.offsets.query("cg", "orders", queue.queue_id) == 12)


async def test_members_share_a_topic_and_take_over_from_each_other() -> None:
    async with (
        Cluster(topics=["orders"], queues=4) as cluster,
        cluster.client() as one,
        cluster.client() as two,
        one.pull_consumer("cg", start=StartFrom.FIRST) as first,
    ):
        await first.subscribe("orders")
        assert [queue.queue_id for queue in first.assignment] == [0, 1, 2, 3]
        async with two.pull_consumer("cg", start=StartFrom.FIRST) as second:
            await second.subscribe("orders")
            await until(lambda: (len(first.assignment), len(second.assignment)) == (2, 2))
            assert not set(first.assignment) & set(second.assignment)
            await send(one, range(40))
            halves = await asyncio.gather(read(first, 20), read(second, 20))
            assert sorted(halves[0] + halves[1]) == list(range(40))
        await until(lambda: len(first.assignment) == 4)
        await send(one, range(40, 48))
        assert sorted(await read(first, 8)) == list(range(40, 48)), "nothing comes twice after an orderly end"


@pytest.mark.parametrize("mode", ["assign", "subscribe"])
async def test_tags_choose_messages(mode: str) -> None:
    async with filled(10, queues=1) as (_, client), client.pull_consumer("cg", start=StartFrom.FIRST) as consumer:
        if mode == "assign":
            await consumer.assign(await consumer.queues("orders"), "even")
        else:
            await consumer.subscribe("orders", "even")
        assert await read(consumer, 5) == [0, 2, 4, 6, 8]


async def test_a_paused_queue_gives_nothing_and_keeps_its_place() -> None:
    async with filled(10, queues=2) as (_, client), client.pull_consumer("cg", start=StartFrom.FIRST) as consumer:
        queues = await consumer.queues("orders")
        await consumer.assign(queues)
        consumer.pause(queues[0])
        assert sorted(await read(consumer, 5)) == [1, 3, 5, 7, 9]
        assert not await consumer.poll(timeout=0.05)
        consumer.resume()
        assert await read(consumer, 5) == [0, 2, 4, 6, 8]


async def test_no_more_is_fetched_than_the_bound() -> None:
    options = PullKeywords(start=StartFrom.FIRST, prefetch=10, pull_batch=5)
    async with filled(100, queues=1) as (_, client), client.pull_consumer("cg", **options) as consumer:
        await consumer.subscribe("orders")
        (fetcher,) = consumer._fetchers.values()
        await until(lambda: fetcher.cached >= 10)
        await settle()
        assert fetcher.cached == 10
        assert await read(consumer, 100, max_messages=7) == list(range(100))


async def test_a_poll_waits_for_the_first_message_and_no_longer() -> None:
    async with filled(0, queues=1) as (_, client), client.pull_consumer("cg") as consumer:
        await consumer.subscribe("orders")
        polling = asyncio.ensure_future(consumer.poll(timeout=25))
        await settle()
        assert not polling.done()
        await send(client, range(1))
        assert [message.body for message in await polling] == [b"0"]
        assert await consumer.poll(timeout=0) == Batch()


async def test_a_message_that_cannot_be_decoded_is_named_and_can_be_passed() -> None:
    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            for body in (b"1", b"not json", b"3"):
                await producer.send("orders", body)
        async with client.pull_consumer("cg", codec=json_codec, start=StartFrom.FIRST) as consumer:
            await consumer.subscribe("orders")
            (queue,) = consumer.assignment
            assert [message.value for message in await consumer.poll(timeout=20)] == [1]
            with pytest.raises(CodecError, match="offset 1: seek past it"):
                await consumer.poll(timeout=20)
            await consumer.seek(queue, 2)
            assert [message.value for message in await consumer.poll(timeout=20)] == [3]


async def test_a_refusal_of_the_broker_reaches_the_program() -> None:
    async with filled(5, queues=1) as (_, client), client.admin() as admin:
        await admin.create_group("cg", enabled=False)
        async with client.pull_consumer("cg", start=StartFrom.FIRST) as consumer:
            await consumer.assign(await consumer.queues("orders"))
            with pytest.raises(BrokerError) as refused:
                await consumer.poll(timeout=20)
            assert refused.value.code == 16


async def test_a_consumer_outlives_a_killed_broker() -> None:
    async with filled(10, queues=1) as (cluster, client), client.pull_consumer(
        "cg", start=StartFrom.FIRST
    ) as consumer:
        await consumer.subscribe("orders")
        assert await read(consumer, 10) == list(range(10))
        await cluster.broker.restart(kill=True)
        await send(client, range(10, 13))
        moving = asyncio.ensure_future(cluster.advance(60))
        assert await read(consumer, 3) == [10, 11, 12]
        await moving


async def test_an_operator_moves_the_group_and_sees_who_has_what() -> None:
    async with (
        filled(10, queues=1) as (cluster, client),
        cluster.client() as other,
        other.admin() as admin,
        client.pull_consumer("cg", start=StartFrom.FIRST) as consumer,
    ):
        await consumer.subscribe("orders")
        (queue,) = consumer.assignment
        assert await read(consumer, 10) == list(range(10))
        await consumer.commit()
        lag = await admin.group_lag("cg", "orders", owners=True)
        assert lag[queue].owner == client.client_id
        state = await admin.consumer_state("cg", client.client_id)
        assert state.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        moved = asyncio.ensure_future(read(consumer, 2))
        await admin.reset_offsets("cg", "orders", to=8)
        # A pull that waits at the end learns of the reset when its hold is over.
        await cluster.advance(30)
        assert await moved == [8, 9]


async def test_members_follow_a_broker_that_only_tells_them_of_a_reset() -> None:
    """RocketMQ 4, and 5 with useServerSideResetOffset=false."""
    async with (
        Cluster(topics=["orders"], queues=2, settings={"useServerSideResetOffset": False}) as cluster,
        cluster.client() as client,
        cluster.client() as other,
        other.admin() as admin,
    ):
        await send(client, range(10))
        async with client.pull_consumer("cg", start=StartFrom.FIRST) as consumer:
            await consumer.subscribe("orders")
            assert len(await read(consumer, 10)) == 10
            await consumer.commit()
            moved = asyncio.ensure_future(read(consumer, 10))
            await admin.reset_offsets("cg", "orders", to="earliest")
            assert len(await moved) == 10
            with pytest.raises(ConfigError, match="stop them first"):
                await admin.reset_offsets("cg", "orders", to=3)
        await admin.reset_offsets("cg", "orders", to=3)
        assert set((await admin.committed_offsets("cg", "orders")).values()) == {3}


async def test_assign_and_subscribe_exclude_each_other_and_life_is_checked() -> None:
    async with filled(0) as (_, client):
        consumer = client.pull_consumer("cg")
        with pytest.raises(NotRunning, match="use `async with"):
            await consumer.poll()
        async with consumer:
            await consumer.subscribe("orders")
            with pytest.raises(ConfigError, match="exclude each other"):
                await consumer.assign([MessageQueue("broker-a", 0, "orders")])
            with pytest.raises(NoRoute):
                await consumer.subscribe("nowhere")
            with pytest.raises(ConfigError, match="the least is 1"):
                await consumer.poll(max_messages=0)
            with pytest.raises(ConfigError, match="has a consumer of group cg already"):
                await client.pull_consumer("cg").start()
        with pytest.raises(NotRunning, match="make a new one"):
            await consumer.start()
        async with client.pull_consumer("cg") as again:
            await again.assign(await again.queues("orders"))
            with pytest.raises(ConfigError, match="exclude each other"):
                await again.subscribe("orders")


async def test_stopping_wakes_who_polls_and_leaves_no_task() -> None:
    async with filled(0, queues=8) as (_, client):
        before = len(asyncio.all_tasks())
        consumer = client.pull_consumer("cg")
        await consumer.start()
        await consumer.subscribe("orders")
        polling = asyncio.ensure_future(consumer.poll(timeout=25))
        await settle()
        await consumer.stop()
        with pytest.raises(NotRunning):
            await polling
        await until(lambda: len(asyncio.all_tasks()) <= before)


def test_keywords_are_the_fields_of_the_options() -> None:
    assert get_type_hints(PullKeywords).keys() == {field.name for field in fields(PullOptions)}
    with pytest.raises(ConfigError, match="pull_batch is 0"):
        PullOptions(pull_batch=0)
