"""Pulls of a consumer: how much they fetch, what they do with answers, and what trouble does to them."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cometmq import Message, MessageQueue
from cometmq.client.cluster.queue_client import PullStatus
from cometmq.client.consume.pull_request import pull, read
from cometmq.client.consume.subscriptions import matches, subscribe
from cometmq.clock import ManualClock
from cometmq.wire.codes import Request
from cometmq.wire.command import reply, request
from cometmq.wire.hashing import crc31
from cometmq.wire.headers import PullMessageResponse
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import encode as encode_properties
from cometmq.wire.record.sysflag import INNER_BATCH, NEEDS_UNWRAP
from tests.support.aio import settle
from tests.support.brokers import stored
from tests.support.clusters import real_cluster
from tests.support.consuming import Asked, Got, behind_proxy, cache_of, committed, member_of, quick, send
from tests.support.net import until

QUEUE = MessageQueue("broker-a", 0, "T")


@pytest.mark.mission("CC-03")
async def test_a_broker_that_answers_late_delays_no_other(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(real_cluster(tmp_path, "T", brokers=3, queues=1))
        client = await stack.enter_async_context(cluster.client())
        sender = await stack.enter_async_context(cluster.client())
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        await app.start()
        await until(lambda: len(app.queues) == 6)
        proxy = await stack.enter_async_context(behind_proxy(client, cluster, "broker-c"))
        await send(sender, "T", 3, None)
        await got.count(3)
        proxy.stalled = True
        await send(sender, "T", 300, None)
        # A hundred wait behind the broker that says nothing; the others come as if it were not there.
        await got.count(3 + 200)
        brokers = [message.queue.broker_name for message in got.messages[3:] if message.queue is not None]
        assert {name: brokers.count(name) for name in set(brokers)} == {"broker-a": 100, "broker-b": 100}
        proxy.stalled = False
        await got.count(3 + 300)
        await app.stop()


@pytest.mark.mission("CC-04")
async def test_a_blocked_handler_stops_pulls_at_a_thousand_and_one_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        real_cluster(tmp_path, "T", queues=1, mappedFileSizeCommitLog=4 << 20) as cluster,
        cluster.client() as client,
    ):
        await send(client, "T", 1500)
        got = Got()
        got.gate.clear()
        app = quick(client, drain_timeout=0.0)
        app.subscribe("T", got.take)
        async with app:
            pulls: Any = member_of(app)._pulls
            await until(lambda: QUEUE in pulls and pulls[QUEUE]._full_count >= 3)
            assert 1000 < cache_of(app).count <= 1000 + 32
            assert caplog.text.count("messages wait for handlers") == 1  # and again after a thousand times
            got.gate.set()
            await got.count(1500)


@pytest.mark.mission("CC-04")
async def test_a_stuck_message_stops_pulls_at_a_span_of_two_thousand_and_one_batch(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "T", queues=1, mappedFileSizeCommitLog=4 << 20) as cluster,
        cluster.client() as client,
    ):
        await send(client, "T", 2500)
        stuck = asyncio.Event()
        done: list[bytes] = []
        app = quick(client)

        @app.on("T")
        async def handle(body: bytes) -> None:
            if body == b"0":
                await stuck.wait()
            done.append(body)

        async with app:
            pulls: Any = member_of(app)._pulls
            await until(lambda: QUEUE in pulls and pulls[QUEUE]._full_count >= 3)
            cache = cache_of(app)
            assert 2000 < cache.span <= 2000 + 32
            await until(lambda: cache.count == 1)
            stuck.set()
            await until(lambda: len(done) == 2500)
        assert committed(cluster.broker) == 2500


@pytest.mark.mission("CC-04")
async def test_large_bodies_and_pauses_stop_pulls_and_dropped_queues_end_them(tmp_path: Path) -> None:
    clock = ManualClock()
    asked = Asked(clock)
    async with (
        real_cluster(tmp_path, "T", queues=1, mappedFileSizeCommitLog=16 << 20) as cluster,
        cluster.client(clock=clock, hooks=[asked]) as client,
    ):
        got = Got()
        got.gate.clear()
        app = quick(client, prefetch_bytes=1 << 20, drain_timeout=0.0)
        app.subscribe("T", got.take)
        async with client.producer("pg") as producer:
            for _ in range(20):
                await producer.send("T", os.urandom(100_000), queue=QUEUE)
        async with app:
            pulls: Any = member_of(app)._pulls
            await until(lambda: QUEUE in pulls and pulls[QUEUE]._full_count >= 1)
            cache = cache_of(app)
            assert 1 << 20 < cache.size_bytes < 2_000_000
            count = len(asked.pulls())
            clock.advance(0.049)
            assert pulls[QUEUE]._full_count == 1
            clock.advance(0.001)  # looks again after 50 ms
            assert pulls[QUEUE]._full_count == 2
            assert len(asked.pulls()) == count
            member_of(app).is_paused = True
            got.gate.set()
            await until(lambda: cache.count == 0)
            clock.advance(0.06)
            clock.advance(0.9)
            assert len(asked.pulls()) == count
            member_of(app).is_paused = False
            clock.advance(0.2)  # a paused one looks again after 1 s
            assert len(asked.pulls()) == count + 1
            cache.state = "lost"
            await got.count(len(got.messages))
            clock.advance(5)
            assert len(asked.pulls()) == count + 1


@pytest.mark.mission("CC-06")
async def test_what_a_filter_skips_is_committed(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take, tag="wanted")
        await send(client, "T", 50, tag="other")
        async with app:
            await until(lambda: committed(cluster.broker) == 50)
        again = quick(client)
        again.subscribe("T", got.take, tag="wanted")
        for count, tag in ((5, "other"), (1, "wanted"), (5, "other")):
            await send(client, "T", count, tag=tag)
        async with again:
            await got.count(1)
            await until(lambda: committed(cluster.broker) == 61)
        assert [message.tag for message in got.messages] == ["wanted"]


@pytest.mark.mission("CC-06")
async def test_a_broker_that_is_down_is_asked_once_a_second_for_each_queue(tmp_path: Path) -> None:
    clock = ManualClock()
    asked = Asked(clock)
    async with (
        real_cluster(tmp_path, "T", queues=3) as cluster,
        cluster.client(clock=clock, hooks=[asked]) as client,
    ):
        got = Got()
        app = quick(client, rebalance_interval=10_000, drain_timeout=0.0)
        app.subscribe("T", got.take)
        await app.start()
        await until(lambda: len(asked.pulls()) == 3)
        await cluster.broker.stop()
        await until(lambda: client.instance.net.connection(cluster.broker.address) is None)
        pulls: Any = member_of(app)._pulls
        mine = [pulls[MessageQueue("broker-a", number, "T")] for number in range(3)]
        await until(lambda: all(one._timer is not None for one in mine))
        before = len(asked.pulls())
        for number in range(1, 5):
            clock.advance(1.0)
            await until(lambda number=number: len(asked.pulls()) == before + 3 * number)  # type: ignore[misc]
            await until(lambda: all(one._timer is not None for one in mine))  # refused connections
            assert len(asked.pulls()) == before + 3 * number
        await app.stop()


@pytest.mark.mission("CC-07")
@pytest.mark.parametrize("kind", ["beyond the end", "below the beginning"])
async def test_an_illegal_offset_is_repaired_at_once(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 10)
        cluster.broker.tables.groups.find("cg")
        if kind == "beyond the end":
            cluster.broker.tables.offsets.commit("cg", "T", 0, 5000, "test")
        else:
            cluster.broker.tables.offsets.commit("cg", "T", 0, 2, "test")
            cluster.broker.store.queues.delete_expired(stored(cluster.broker, "T")[4].physical_offset)
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with app:
            await until(lambda: "repair offset" in caplog.text)
            await until(lambda: QUEUE in app.queues and cache_of(app).is_owned)
            await send(client, "T", 1)
            await got.count(1 if kind == "beyond the end" else 7)
            assert loop.time() - began_s < 8 or os.getloadavg()[0] > 2
            await until(lambda: committed(cluster.broker) == 11)
        assert caplog.text.count("repair offset") == 1
        assert [it.offset for it in got.messages] == list(range(10 if kind == "beyond the end" else 4, 11))


@pytest.mark.mission("CC-07")
async def test_results_that_come_after_a_repair_do_not_move_the_offset(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        got = Got()
        got.gate.clear()
        app = quick(client)
        app.subscribe("T", got.take)
        async with app:
            await send(client, "T", 5)
            await until(lambda: got.running == 5)
            cache = cache_of(app)
            member_of(app).repair(cache, 3)
            got.gate.set()
            await got.count(5)
            await until(lambda: QUEUE in app.queues and cache_of(app) is not cache)
            await got.count(7)
            assert [message.offset for message in got.messages[5:]] == [3, 4]


@pytest.mark.mission("CC-11")
async def test_a_message_that_is_16_minutes_in_its_handler_goes_to_others(tmp_path: Path) -> None:
    clock = ManualClock()
    # Nothing that is under way shall run out of time when the clock jumps.
    patient = {"call_timeout": 5000, "idle_timeout": 50_000, "close_on_timeout": False}
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client(clock=clock, **patient) as client:
        seen: list[tuple[str, int]] = []
        stuck = asyncio.Event()
        app = quick(client, commit_interval=10_000, rebalance_interval=10_000, poll_timeout=50_000)

        @app.on("T")
        async def handle(text: str, message: Message[bytes]) -> None:
            seen.append((text, message.delivery_count))
            if (text, message.delivery_count) == ("0", 1):
                await stuck.wait()

        async with app:
            await until(lambda: QUEUE in app.queues)
            clock.advance(14 * 60)
            await settle()
            await send(client, "T", 3)
            await until(lambda: len(seen) == 3)
            cache = cache_of(app)
            assert (cache.count, cache.commit_offset) == (1, 0)
            clock.advance(61)  # looked at after a minute
            await settle()
            assert cache.count == 1
            clock.advance(15 * 60)  # ... and after 16
            await until(lambda: cache.count == 0)
            assert cache.commit_offset == 3
            held = cluster.broker.store.queue_bounds("SCHEDULE_TOPIC_XXXX", 2)
            assert held == (0, 1)  # on its way to the retry topic, level 3
            stuck.set()


# One pull


async def test_a_pull_of_ones_own_says_what_it_found(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 5)
        cluster.broker.tables.groups.find("g")
        every = subscribe("T")
        found = await pull(client.instance, QUEUE, "g", 1, subscription=every, count_max=3)
        assert (found.status, [it.queue_offset for it in found.messages]) == (PullStatus.FOUND, [1, 2, 3])
        assert (found.next_offset, found.min_offset, found.max_offset, found.suggested_broker_id) == (4, 0, 5, 0)
        nothing = await pull(client.instance, QUEUE, "g", 5, subscription=every)
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_NEW, 5)
        illegal = await pull(client.instance, QUEUE, "g", 50, subscription=every)
        assert illegal.status is PullStatus.ILLEGAL
        held = asyncio.create_task(
            pull(client.instance, QUEUE, "g", 5, subscription=every, suspend_s=15, timeout_s=30, commit_offset=4)
        )
        await until(lambda: committed(cluster.broker, "g") == 4)
        await send(client, "T", 1)
        assert [message.body for message in (await held).messages] == [b"0"]


def _record(offset: int, body: bytes, properties: dict[str, str], sys_flag: int = 0) -> StoredMessage:
    host = (b"\x7f\0\0\1", 10911)
    packed, crc = encode_properties(properties), crc31(body)
    return StoredMessage(0, 1, crc, 0, 0, offset, offset * 100, sys_flag, 1, host, 2, host, 0, 0, body, "T", packed)


def test_inner_batches_are_taken_apart_and_tags_compared_exactly() -> None:
    inner = [(0, b"a", encode_properties({"TAGS": "Aa"})), (0, b"b", encode_properties({"TAGS": "BB"}))]
    outer = _record(7, encode_batch(inner), {"TAGS": "Aa"}, NEEDS_UNWRAP | INNER_BATCH)
    plain = _record(9, b"c", {"TAGS": "BB"})  # the same hash as Aa
    response = reply(request(Request.PULL_MESSAGE, {}), body=outer.encode() + plain.encode())
    response.ext = PullMessageResponse(0, 10, 0, 10, offset_delta=100).encode()
    everything = read(response, QUEUE, subscribe("T"))
    assert [(it.queue_offset, it.body) for it in everything.messages] == [(107, b"a"), (108, b"b"), (109, b"c")]
    some = read(response, QUEUE, subscribe("T", "Aa"))
    assert [(it.queue_offset, it.body) for it in some.messages] == [(107, b"a")]


@pytest.mark.parametrize(
    ("tags", "expected"), [(None, set()), ("*", set()), ("", set()), (" A || B|| ", {"A", "B"}), ("A", {"A"})]
)
def test_tags_are_read_from_their_expression(tags: str | None, expected: set[str]) -> None:
    subscription = subscribe("T", tags)
    assert subscription.tags_set == expected
    assert len(subscription.code_set) == len(expected)
    assert matches(subscription, _record(0, b"x", {"TAGS": "A"}))
    assert matches(subscription, _record(0, b"x", {})) == (not expected)
