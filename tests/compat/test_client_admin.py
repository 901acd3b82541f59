"""Our administration and pull consumer at RocketMQ's broker and at ours: one test for both makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from cometmq import Client, Message, Reject, StartFrom
from cometmq.client.admin import Admin, Move
from cometmq.client.consume.pull import PullConsumer
from cometmq.errors import BrokerError, NoRoute, NotFound
from cometmq.names import retry_topic
from tests.compat.conftest import Cluster
from tests.conftest import run
from tests.support.net import until

pytestmark = pytest.mark.interop

LIMIT_S = 120


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[tuple[Client, Admin]]:
    async with Client(cluster.namesrv.address, call_timeout=20.0) as client, client.admin(timeout_s=20.0) as admin:
        yield client, admin


async def until_routed(admin: Admin, topic: str, is_there: bool = True) -> None:
    """RocketMQ's broker does not wait for the name server when a topic changes."""
    for _ in range(500):
        try:
            await admin.topic_queues(topic)
            found = True
        except NoRoute:
            found = False
        if found == is_there:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"route of {topic}: {not is_there}")


async def eventually(question: Callable[[], Awaitable[bool]]) -> None:
    """`run` bounds the wait."""
    while not await question():  # noqa: ASYNC110 - other processes bring it about
        await asyncio.sleep(0.05)


async def create(admin: Admin, topic: str, queues: int) -> None:
    await admin.create_topic(topic, queues=queues)
    await until_routed(admin, topic)


async def send(client: Client, topic: str, count: int) -> list[str]:
    async with client.producer(f"pg-{topic}", timeout=20.0) as producer:
        return [
            (await producer.send(topic, str(number).encode(), keys=["all", f"k{number}"], tag="t")).id
            for number in range(count)
        ]


def test_topics_and_groups_are_made_changed_and_deleted(cluster: Cluster, topic: str) -> None:
    async def check() -> None:
        async with connected(cluster) as (_, admin):
            made = await admin.create_topic(topic, queues=3, kind="FIFO")
            await until_routed(admin, topic)
            (on,) = made.brokers
            assert (on.read_queues, on.write_queues, on.permissions, made.kind) == (3, 3, "rw", "FIFO")
            assert topic in await admin.topics()
            assert topic in await admin.topic_configs(on.broker)
            altered = await admin.alter_topic(topic, queues=5, permissions="r")
            assert [(it.write_queues, it.permissions) for it in altered.brokers] == [(5, "r")]
            assert (await admin.describe_topic(topic)).kind == "FIFO", "what was not named stays"
            group = f"G-{topic}"
            assert (await admin.create_group(group, retries_max=3)).retries_max == 3
            assert (await admin.alter_group(group, enabled=False)).retries_max == 3
            assert not (await admin.describe_group(group)).enabled
            assert group in await admin.groups()
            await admin.delete_group(group, offsets=True)
            with pytest.raises(NotFound):
                await admin.describe_group(group)
            await admin.delete_topic(topic)
            await until_routed(admin, topic, is_there=False)

    run(check(), LIMIT_S)


def test_messages_are_found_and_offsets_moved(cluster: Cluster, topic: str) -> None:
    async def check() -> None:
        async with connected(cluster) as (client, admin):
            await create(admin, topic, 1)
            group = f"G-{topic}"
            await admin.create_group(group)
            ids = await send(client, topic, 5)
            (queue,) = await admin.topic_queues(topic)

            async def is_indexed() -> bool:
                return len(await admin.find(topic, key="all")) == 5

            await eventually(is_indexed)
            (found,) = await admin.find(topic, key="k3")
            assert (found.body, found.id, found.offset, found.tag) == (b"3", ids[3], 3, "t")
            assert (await admin.message(ids[3], topic)).offset_id == found.offset_id
            assert (await admin.message(found.offset_id)).body == b"3"
            with pytest.raises(NotFound):
                await admin.message(found.offset_id[:-4] + "FFF0")
            assert [message.body async for message in admin.read(queue, 1, 3)] == [b"1", b"2"]
            hour_ago = datetime.now(UTC) - timedelta(hours=1)
            assert len([message async for message in admin.find_by_time(topic, hour_ago)]) == 5
            assert (await admin.topic_stats(topic))[queue].count == 5

            assert await admin.committed_offsets(group, topic) == {queue: -1}
            assert await admin.reset_offsets(group, topic, to="latest") == [Move(queue, -1, 5)]
            assert await admin.committed_offsets(group, topic) == {queue: 5}
            assert await admin.reset_offsets(group, topic, to=2) == [Move(queue, 5, 2)]
            assert await admin.reset_offsets(group, topic, to=hour_ago) == [Move(queue, 2, 0)]
            lag = await admin.group_lag(group, topic)
            assert (lag[queue].committed, lag[queue].end) == (0, 5)
            await admin.create_group(f"{group}-2")
            assert await admin.clone_offsets(group, f"{group}-2", topic) == [Move(queue, -1, 0)]

    run(check(), LIMIT_S)


def test_the_cluster_and_its_settings_are_told(cluster: Cluster) -> None:
    async def check() -> None:
        async with connected(cluster) as (_, admin):
            (state,) = await admin.cluster_state()
            assert state.is_up
            assert state.member.role == "master"
            assert state.version
            broker = state.member.name
            before = (await admin.broker_config(broker))["fileReservedTime"]
            await admin.set_broker_config({"fileReservedTime": "48"}, broker=broker)
            assert (await admin.broker_config(broker))["fileReservedTime"] == "48"
            await admin.set_broker_config({"fileReservedTime": before}, broker=broker)
            with pytest.raises(BrokerError):
                await admin.set_broker_config({"configBlackList": "x"}, broker=broker)
            await admin.put_key_value("CometSpace", "a", "1")
            assert await admin.key_values("CometSpace") == {"a": "1"}
            await admin.delete_key_value("CometSpace", "a")
            assert await admin.key_value("CometSpace", "a") is None
            assert cluster.namesrv.address in await admin.name_server_config()

    run(check(), LIMIT_S)


def test_members_are_asked_and_dead_letters_replayed(cluster: Cluster, topic: str) -> None:
    async def check() -> None:
        async with connected(cluster) as (client, admin):
            await create(admin, topic, 1)
            group = f"G-{topic}"
            app = client.push_consumer(group, start=StartFrom.FIRST)
            refused = asyncio.Event()
            good: list[bytes] = []

            @app.on(topic)
            async def handle(message: Message[bytes]) -> None:
                if message.body == b"1" and not refused.is_set():
                    refused.set()
                    raise Reject("on purpose")
                good.append(message.body)

            async with app:
                await send(client, topic, 3)
                await refused.wait()
                connections = await admin.group_connections(group)
                assert [it.client_id for it in connections.connections] == [client.client_id]
                assert topic in [it.topic for it in connections.subscriptions]
                (queue,) = await admin.topic_queues(topic)
                state = await admin.consumer_state(group, client.client_id)
                assert queue in state.queues
                (message,) = [it async for it in admin.read(queue, 0, 1)]
                result = await admin.consume_directly(group, client.client_id, message.offset_id, topic)
                assert result.is_success

                async def is_given_up() -> bool:
                    return bool([letter async for letter in admin.dead_letters(group)])

                await eventually(is_given_up)
                (sent,) = [it async for it in admin.replay_dead_letters(group)]
                assert (sent.topic, sent.error) == (retry_topic(group), None)
                await until(lambda: b"1" in good)

    run(check(), LIMIT_S)


async def polled(consumer: PullConsumer[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [message.body for message in await consumer.poll(timeout=10.0)]
    return found


def test_queues_are_pulled_sought_and_committed(cluster: Cluster, topic: str) -> None:
    async def check() -> None:
        async with connected(cluster) as (client, admin):
            await create(admin, topic, 2)
            await send(client, topic, 10)
            group = f"G-{topic}"
            async with client.pull_consumer(group, auto_commit=False, start=StartFrom.FIRST) as consumer:
                await consumer.assign(await consumer.queues(topic))
                assert sorted(await polled(consumer, 10)) == [str(number).encode() for number in range(10)]
                await consumer.commit()
                for queue in consumer.assignment:
                    assert await consumer.committed(queue) == await consumer.end_offset(queue)
                assert await consumer.seek(consumer.assignment[0], consumer.BEGIN) == 0
                assert len(await polled(consumer, 1)) >= 1
            async with client.pull_consumer(group, poll_hold=1.0) as consumer:
                await consumer.subscribe(topic)
                assert len(consumer.assignment) == 2
                waiting = asyncio.ensure_future(polled(consumer, 4))
                await admin.reset_offsets(group, topic, to=3)
                assert len(await waiting) == 4

    run(check(), LIMIT_S)
