"""How far groups are, and moving them: against real brokers in the test's process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cometmq import Client, MessageQueue
from cometmq.client.admin import Admin, Lag, Move
from cometmq.errors import NotFound
from tests.support.clusters import real_cluster


@asynccontextmanager
async def filled(directory: Path, count: int = 4) -> AsyncIterator[tuple[Client, Admin, MessageQueue]]:
    """Topic orders of one queue with messages, and group billing."""
    async with real_cluster(directory) as cluster, cluster.client() as client, client.admin() as admin:
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
        (queue,) = await admin.topic_queues("orders")
        async with client.producer("pg") as producer:
            for number in range(count):
                await producer.send("orders", str(number).encode(), keys=[f"k{number}"])
        yield client, admin, queue


async def test_lag_is_what_lies_between_the_commit_and_the_end(tmp_path: Path) -> None:
    async with filled(tmp_path) as (_, admin, queue):
        assert await admin.group_lag("billing") == {}
        await admin.commit_offset("billing", queue, 1)
        lag = (await admin.group_lag("billing"))[queue]
        assert (lag.committed, lag.end, lag.behind) == (1, 4, 3)
        assert lag.consumed_at is not None
        assert lag.consumed_at > datetime.now(UTC) - timedelta(hours=1)
        assert await admin.group_lag("billing", "orders", owners=True) == {queue: lag}
        assert await admin.committed_offsets("nobody", "orders") == {queue: -1}


def test_lag_of_a_queue_without_commit_is_all_of_it() -> None:
    assert Lag(-1, 10).behind == 10
    assert Lag(12, 10).behind == 0


@pytest.mark.parametrize(("to", "after"), [("earliest", 0), ("latest", 4), (3, 3), (99, 4)])
async def test_a_plan_says_what_a_reset_then_does(tmp_path: Path, to: int, after: int) -> None:
    async with filled(tmp_path) as (_, admin, queue):
        await admin.commit_offset("billing", queue, 2)
        plan = await admin.plan_offsets("billing", "orders", to=to)
        assert plan == [Move(queue, 2, after)]
        assert await admin.committed_offsets("billing", "orders") == {queue: 2}, "a plan changes nothing"
        assert await admin.reset_offsets("billing", "orders", to=to) == plan
        assert await admin.committed_offsets("billing", "orders") == {queue: after}


async def test_a_reset_by_time_goes_to_the_first_message_stored_then(tmp_path: Path) -> None:
    async with filled(tmp_path) as (_, admin, queue):
        messages = [message async for message in admin.read(queue)]
        for message in messages:
            first = min(it.offset for it in messages if it.stored_ms >= message.stored_ms)
            (move,) = await admin.reset_offsets("billing", "orders", to=message.stored_at)
            assert move.after == first
        (move,) = await admin.reset_offsets("billing", "orders", to=datetime.now(UTC) + timedelta(days=1))
        assert move.after == 4


async def test_a_reset_of_given_queues_leaves_the_others(tmp_path: Path) -> None:
    async with filled(tmp_path) as (_, admin, queue):
        await admin.alter_topic("orders", queues=2)
        other = MessageQueue(queue.broker_name, 1, "orders")
        assert await admin.reset_offsets("billing", "orders", to={queue: 1}) == [Move(queue, -1, 1)]
        assert await admin.committed_offsets("billing", "orders") == {queue: 1, other: -1}


async def test_a_cloned_group_goes_on_where_the_other_is(tmp_path: Path) -> None:
    async with filled(tmp_path) as (_, admin, queue):
        await admin.create_group("audit")
        await admin.commit_offset("billing", queue, 3)
        assert await admin.clone_offsets("billing", "audit") == [Move(queue, -1, 3)]
        assert await admin.committed_offsets("audit", "orders") == {queue: 3}
        with pytest.raises(NotFound, match="group nobody has no offsets to clone"):
            await admin.clone_offsets("nobody", "audit")


async def test_progress_in_time_spans_the_queue(tmp_path: Path) -> None:
    async with filled(tmp_path) as (_, admin, queue):
        await admin.commit_offset("billing", queue, 1)
        (span,) = await admin.progress_spans("billing", "orders")
        assert span.queue == queue
        assert 0 < span.oldest_ms <= span.consumed_ms <= span.newest_ms
