"""Ordered consumption: one at a time, under a lock, in the order of offsets."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client, Message, MessageQueue, Outcome, PushConsumer, Reject, Retry
from cometmq.client.consume import ordered
from cometmq.clock import ManualClock, uptime_ms
from cometmq.wire.bodies import LockBatchRequest, LockBatchResponse
from cometmq.wire.codes import Request
from tests.conftest import run
from tests.support.aio import settle
from tests.support.brokers import Peer, stored
from tests.support.clusters import RealCluster, real_cluster
from tests.support.consuming import Asked, Got, advance_until, cache_of, committed, member_of, quick, send
from tests.support.net import until

QUEUE = MessageQueue("broker-a", 0, "T")


async def lock(peer: Peer, code: int, client_id: str, group: str = "cg") -> list[MessageQueue]:
    body = LockBatchRequest(client_id=client_id, consumer_group=group, mq_set=[QUEUE]).encode()
    answer = await peer.call(code, body)
    return LockBatchResponse.decode(answer.body).locked if answer.body else []


@asynccontextmanager
async def scene(
    directory: Path, handle: Any, clock: ManualClock | None = None, batch: int | None = None, **options: Any
) -> AsyncIterator[tuple[RealCluster, Client, PushConsumer]]:
    """A topic of one queue, and a running consumer whose ordered handler is `handle`."""
    auto_commit = options.pop("auto_commit", True)
    async with (
        real_cluster(directory, "T", queues=1) as cluster,
        cluster.client(clock=clock) as client,
    ):
        app = quick(client, **{"suspend": 0.01, **options})
        app.subscribe("T", handle, ordered=True, auto_commit=auto_commit, batch=batch)
        async with app:
            yield cluster, client, app


@pytest.mark.mission("CC-12")
def test_order_holds_through_failures_and_rebalances(tmp_path: Path) -> None:
    """Per queue offsets rise, a failed one is tried again before the next, and never two owners at a time."""
    seed = time.time_ns()
    print(f"seed={seed}")
    dice = random.Random(seed)

    async def main() -> None:
        count = 40
        handled: dict[int, list[tuple[int, bool]]] = {number: [] for number in range(8)}
        busy: dict[int, int] = dict.fromkeys(range(8), 0)

        async def handle(message: Message[bytes]) -> None:
            assert message.queue is not None
            queue_id = message.queue.queue_id
            busy[queue_id] += 1
            try:
                assert busy[queue_id] == 1, f"queue {queue_id} has two owners"
                await asyncio.sleep(dice.choice((0, 0, 0.001, 0.004)))
                fails = dice.random() < 0.15
                handled[queue_id].append((message.offset, not fails))
                if fails:
                    raise Retry(after=0.01)
            finally:
                busy[queue_id] -= 1

        async with real_cluster(tmp_path, "T", queues=8) as cluster, cluster.client() as client:
            for number in range(8):
                await send(client, "T", count, number)
            app = _ordered(client, handle)
            await app.start()
            for _ in range(3):
                async with cluster.client() as other:
                    guest = _ordered(other, handle)
                    await guest.start()
                    await asyncio.sleep(dice.uniform(0.05, 0.2))
                    await guest.stop()
            await until(lambda: all(_done(events) == count for events in handled.values()))
            await app.stop()
            assert [committed(cluster.broker, "cg", "T", number) for number in range(8)] == [count] * 8
        for queue_id, events in handled.items():
            expected = 0
            for offset, fine in events:
                assert offset == expected, f"queue {queue_id}: {offset} after {expected - 1}"
                expected += fine

    run(main(), 60)


def _ordered(client: Client, handle: Any) -> PushConsumer:
    app = quick(client)
    app.subscribe("T", handle, ordered=True)
    return app


def _done(events: list[tuple[int, bool]]) -> int:
    return sum(fine for _, fine in events)


@pytest.mark.mission("CC-12")
async def test_a_queue_has_60_seconds_in_a_row_and_then_lets_others_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ordered.RUN_S_MAX == 60
    monkeypatch.setattr(ordered, "RUN_S_MAX", 0.6)  # a clock that runs by minutes would end every call

    clock = ManualClock()
    order: list[int] = []

    async def handle(message: Message[bytes]) -> None:
        assert message.queue is not None
        order.append(message.queue.queue_id)
        clock.advance(0.09)  # seven of them are more than that

    async with real_cluster(tmp_path, "T", queues=2) as cluster, cluster.client(clock=clock) as client:
        for number in (0, 1):
            await send(client, "T", 10, number)
        app = quick(client, concurrency=1)
        app.subscribe("T", handle, ordered=True)
        async with app:
            await advance_until(clock, lambda: len(order) == 20, "all messages", 0.01)
    turns = [len(list(turn)) for _, turn in itertools.groupby(order)]
    assert turns == [7, 7, 3, 3]


@pytest.mark.mission("CC-12")
async def test_nothing_is_handled_without_a_lock_that_was_renewed(tmp_path: Path) -> None:
    clock = ManualClock()
    got = Got()
    async with scene(tmp_path, got.take, clock) as (cluster, client, app):
        await send(client, "T", 1)
        await got.count(1)
        await advance_until(clock, lambda: committed(cluster.broker) == 1, "a commit")
        cache = cache_of(app)
        cache.lock_s = clock.monotonic() - 31  # nobody renewed it
        taken = cluster.broker.rooms.consume.queue_locks
        taken.unlock("cg", [QUEUE], client.client_id)
        assert taken.lock("cg", [QUEUE], "another", uptime_ms(cluster.broker.clock)) == [QUEUE]
        await send(client, "T", 1)
        await settle()
        for _ in range(5):
            clock.advance(1.0)
            await settle()
        assert len(got.messages) == 1
        assert app.queues == [MessageQueue("broker-a", 0, "%RETRY%cg")]
        taken.unlock("cg", [QUEUE], "another")
        await advance_until(clock, lambda: len(got.messages) == 2, "the lock", 0.5)


@pytest.mark.mission("CC-05")
async def test_who_lost_its_lock_goes_on_from_the_committed_offset(tmp_path: Path) -> None:
    clock = ManualClock()
    asked = Asked(clock)
    got = Got()
    async with (
        real_cluster(tmp_path, "T", queues=1) as cluster,
        cluster.client(clock=clock, hooks=[asked]) as client,
        Peer.of(cluster.broker) as peer,
    ):
        app = quick(client)
        app.subscribe("T", got.take, ordered=True)
        async with app:
            got.gate.clear()
            await send(client, "T", 10)
            await until(lambda: got.running == 1 and cache_of(app).count == 10)
            # Another takes the lock, handles eight messages, and gives it back.
            await lock(peer, Request.UNLOCK_BATCH_MQ, client.client_id)
            assert await lock(peer, Request.LOCK_BATCH_MQ, "another") == [QUEUE]
            clock.advance(1.0)  # the first renewal, refused
            await until(lambda: not cache_of(app).is_owned)
            cluster.broker.tables.offsets.commit("cg", "T", 0, 8, "another")
            got.gate.set()  # the message in hand ends: it must not be committed
            await got.count(1)
            await lock(peer, Request.UNLOCK_BATCH_MQ, "another")
            pulls = len(asked.pulls())
            await advance_until(clock, lambda: len(got.messages) == 3, "the rest", 0.5)
            assert asked.pulls()[pulls][1].queue_offset == 8
        assert [message.offset for message in got.messages] == [0, 8, 9]
        assert committed(cluster.broker) == 10


async def test_a_leaving_queue_is_kept_until_its_handler_has_ended(tmp_path: Path) -> None:
    first, second = Got(), Got()
    async with scene(tmp_path, first.take) as (cluster, client, app), cluster.client() as other:
        first.gate.clear()
        await send(client, "T", 3)
        await until(lambda: first.running == 1)
        app.unsubscribe("T")
        await until(lambda: cache_of(app).unlock_tries > 0)
        theirs = quick(other)
        theirs.subscribe("T", second.take, ordered=True)
        async with theirs:
            await settle()
            assert second.running_max == 0
            first.gate.set()
            await first.count(1)
            await until(lambda: QUEUE not in member_of(app).queues)
            assert committed(cluster.broker) == 1
            await app.stop()
            await second.count(2)
        assert [message.offset for message in first.messages + second.messages] == [0, 1, 2]


# Results


@pytest.mark.mission("CC-13")
@pytest.mark.parametrize(
    ("outcome", "auto_commit", "committed_offset", "next_offset"),
    [
        (Outcome.SUCCESS, True, 1, 1),
        (Outcome.COMMIT, True, 1, 1),
        (Outcome.ROLLBACK, True, 1, 1),
        (Outcome.LATER, True, 0, 0),
        (Outcome.SUCCESS, False, 0, 1),
        (Outcome.COMMIT, False, 1, 1),
        (Outcome.ROLLBACK, False, 0, 0),
        (Outcome.LATER, False, 0, 0),
    ],
)
def test_each_result_has_its_effect_in_both_modes(
    tmp_path: Path,
    outcome: Outcome,
    auto_commit: bool,
    committed_offset: int | None,
    next_offset: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        seen: list[int] = []
        offsets: list[int | None] = []

        async def handle(message: Message[bytes]) -> Outcome:
            offsets.append(member.offsets.read(QUEUE))
            seen.append(message.offset)
            if len(seen) == 1:
                return outcome
            await asyncio.Event().wait()
            return Outcome.SUCCESS

        async with scene(tmp_path, handle, auto_commit=auto_commit, drain_timeout=0.0) as (_, client, app):
            member = member_of(app)
            await until(lambda: QUEUE in app.queues)
            await send(client, "T", 2)
            await until(lambda: len(seen) == 2)
            assert seen == [0, next_offset]
            assert offsets[1] == committed_offset

    run(main())
    assert ("auto_commit is on" in caplog.text) == (auto_commit and outcome in (Outcome.COMMIT, Outcome.ROLLBACK))


@pytest.mark.mission("CC-13")
async def test_without_auto_commit_a_commit_takes_all_and_a_rollback_puts_all_back(tmp_path: Path) -> None:
    seen: list[int] = []
    plan = [Outcome.SUCCESS, Outcome.SUCCESS, Outcome.ROLLBACK, Outcome.SUCCESS, Outcome.SUCCESS, Outcome.COMMIT]

    async def handle(message: Message[bytes]) -> Outcome:
        seen.append(message.offset)
        return plan[len(seen) - 1] if len(seen) <= len(plan) else Outcome.SUCCESS

    async with scene(tmp_path, handle, auto_commit=False) as (cluster, client, _):
        await send(client, "T", 4)
        await until(lambda: len(seen) == 7)
    assert seen == [0, 1, 2, 0, 1, 2, 3]
    assert committed(cluster.broker) == 3  # the last SUCCESS only counts


@pytest.mark.mission("CC-13")
async def test_a_failing_message_pauses_its_queue_by_what_it_asks_for(tmp_path: Path) -> None:
    clock = ManualClock()
    at_s: list[float] = []

    async def handle(message: Message[bytes]) -> None:
        at_s.append(clock.monotonic())
        if len(at_s) == 1:
            raise ValueError("no")  # the consumer's own pause
        if len(at_s) == 2:
            raise Retry(after=100)  # at most 30 s
        if len(at_s) == 3:
            raise Retry(after=0)  # at least 10 ms

    async with scene(tmp_path, handle, clock, suspend=2.0, lock_expiry=59, lock_timeout=50) as (_, client, _app):
        await send(client, "T", 1)
        await until(lambda: len(at_s) == 1)
        await advance_until(clock, lambda: len(at_s) == 2, "the second try", 0.01)
        assert 2.0 <= at_s[1] - at_s[0] < 2.2
        clock.advance(15)
        await settle()
        clock.advance(14.9)
        await settle()
        assert len(at_s) == 2
        await advance_until(clock, lambda: len(at_s) == 4, "the last tries", 0.01)
        assert 30.0 <= at_s[2] - at_s[1] < 30.5
        assert round(at_s[3] - at_s[2], 6) >= 0.01


@pytest.mark.mission("DL-04")
async def test_after_the_last_retry_a_message_is_a_dead_letter_and_the_queue_goes_on(tmp_path: Path) -> None:
    tries: list[tuple[int, int]] = []

    async def handle(message: Message[bytes]) -> None:
        tries.append((message.offset, message.delivery_count))
        if message.offset == 0:
            raise ValueError("always")
        if message.offset == 2:
            raise Reject("bad data")

    async with scene(tmp_path, handle, max_retries=3) as (cluster, client, _):
        await send(client, "T", 4)
        await until(lambda: tries[-1:] == [(3, 1)])
        await until(lambda: committed(cluster.broker) == 4)
        dead = stored(cluster.broker, "%DLQ%cg")
        assert sorted(message.body for message in dead) == [b"0", b"2"]
        assert stored(cluster.broker, "%RETRY%cg") == []
    assert tries == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (2, 1), (3, 1)]


async def test_part_of_an_ordered_batch_can_be_done(tmp_path: Path) -> None:
    batches: list[list[int]] = []

    async def handle(messages: list[Message[bytes]]) -> None:
        batches.append([message.offset for message in messages])
        if len(messages) > 2:
            raise Retry(after=0.01, done=2)

    async with scene(tmp_path, handle, batch=4) as (cluster, client, _):
        await send(client, "T", 4)
        await until(lambda: committed(cluster.broker) == 4)
    assert batches[-1][-1] == 3
    assert sorted({offset for batch in batches for offset in batch}) == [0, 1, 2, 3]
    assert sum(batch.count(0) for batch in batches) == 1


@pytest.mark.mission("CG-09")
async def test_a_lock_is_asked_for_at_the_master_and_released_when_the_consumer_stops(tmp_path: Path) -> None:
    got = Got()
    async with scene(tmp_path, got.take) as (cluster, _, app), Peer.of(cluster.broker) as peer:
        await until(lambda: QUEUE in app.queues)
        assert cache_of(app).lock_s is not None
        assert await lock(peer, Request.LOCK_BATCH_MQ, "another") == []
        await app.stop()
        assert await lock(peer, Request.LOCK_BATCH_MQ, "another") == [QUEUE]


async def test_a_queue_that_rests_is_not_disturbed_by_new_messages(tmp_path: Path) -> None:
    clock = ManualClock()
    seen: list[int] = []

    async def handle(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if len(seen) == 1:
            raise Retry(after=5)

    async with scene(tmp_path, handle, clock, lock_timeout=50) as (_, client, app):
        await send(client, "T", 1)
        await until(lambda: seen == [0])
        await send(client, "T", 2)
        await until(lambda: cache_of(app).count == 3)
        await settle()
        assert seen == [0]
        clock.advance(5)
        await until(lambda: seen == [0, 0, 1, 2])


async def test_a_lock_that_is_granted_while_the_consumer_stops_is_released(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "T", queues=1) as cluster,
        cluster.client() as client,
        Peer.of(cluster.broker) as peer,
    ):
        asked = asyncio.Event()

        class Watch:
            def before(self, peer: str, request: Any) -> None:
                if request.code == Request.LOCK_BATCH_MQ:
                    asked.set()

            def after(self, peer: str, request: Any, response: Any) -> None: ...

        client.instance.net.add_hook(Watch())
        app = quick(client)
        app.subscribe("T", Got().take, ordered=True)
        await app.start()
        await asked.wait()
        await app.stop()  # the request is written, its answer not read
        assert await lock(peer, Request.LOCK_BATCH_MQ, "another") == [QUEUE]
