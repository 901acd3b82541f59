"""Who has which queues, through joins, leaves and trouble."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cometmq import MessageQueue, StartFrom
from cometmq.client.consume.allocation import Average
from cometmq.client.consume.rebalance import Rebalance
from cometmq.client.consume.starts import first_offset
from cometmq.clock import ManualClock
from cometmq.errors import ConfigError
from cometmq.wire.bodies import LockBatchRequest
from cometmq.wire.codes import Request
from cometmq.wire.headers import PullMessage
from tests.support.aio import settle
from tests.support.brokers import Peer
from tests.support.clusters import real_cluster
from tests.support.consuming import Asked, Got, advance_until, cache_of, committed, member_of, quick, send
from tests.support.net import until


class Moody(Average):
    """A strategy that fails while it is told to."""

    fails = False

    def allocate(self, client_id: str, queues: Any, clients: Any) -> Any:
        if Moody.fails:
            raise ConfigError("in a bad mood")
        return super().allocate(client_id, queues, clients)


@pytest.mark.mission("CG-04")
async def test_rounds_are_20_seconds_apart_and_1_second_while_something_is_wrong(tmp_path: Path) -> None:
    clock = ManualClock()
    Moody.fails = False
    async with real_cluster(tmp_path, "T") as cluster, cluster.client(clock=clock) as client:
        app = client.push_consumer("cg", allocation=Moody())
        app.subscribe("T", Got().take)
        async with app:
            rebalance = member_of(app).rebalance
            await advance_until(clock, lambda: rebalance.is_balanced and len(app.queues) == 5, "balance", 1.0)
            await _quiet(clock, rebalance)
            rounds = rebalance.rounds
            rebalance.wake()
            await advance_until(clock, lambda: rebalance.rounds == rounds + 1, "a round that was woken", 0.2)
            began_s = clock.monotonic()
            await settle()
            assert rebalance.rounds == rounds + 1
            clock.advance(began_s + 19.7 - clock.monotonic())
            await settle()
            assert rebalance.rounds == rounds + 1
            Moody.fails = True
            clock.advance(0.3)
            await until(lambda: rebalance.rounds == rounds + 2 and not rebalance.is_balanced)
            for number in range(3, 6):
                clock.advance(0.9)
                await settle()
                assert rebalance.rounds == rounds + number - 1
                clock.advance(0.1)
                await until(lambda number=number: rebalance.rounds == rounds + number)  # type: ignore[misc]
            assert len(app.queues) == 5  # what is wrong with one topic takes nothing away
            Moody.fails = False


async def _quiet(clock: ManualClock, rebalance: Rebalance) -> None:
    """Until it has nothing to look at but its timer: what woke it at the start is dealt with."""
    before = -1
    while rebalance.rounds != before:
        before = rebalance.rounds
        for _ in range(5):
            clock.advance(0.5)
            await asyncio.sleep(0.02)


@pytest.mark.mission("CG-04")
async def test_pulls_go_on_while_a_round_takes_5_seconds_and_errors_of_one_topic_stop_no_other(tmp_path: Path) -> None:
    clock = ManualClock()
    async with real_cluster(tmp_path, "T", "U") as cluster, cluster.client(clock=clock) as client:
        got = Got()
        app = quick(client)
        app.subscribe("Missing", got.take)
        app.subscribe("T", got.take)
        async with app:
            await until(lambda: len(app.queues) == 5)
            rebalance: Any = member_of(app).rebalance
            ask, begun, slow = rebalance._ask_members, asyncio.Event(), asyncio.Event()

            async def ask_slowly(address: str) -> list[str]:
                begun.set()
                clock.call_later(5.0, slow.set)
                await slow.wait()
                return await ask(address)  # type: ignore[no-any-return]

            rebalance._ask_members = ask_slowly
            rebalance.wake()
            await advance_until(clock, begun.is_set, "a round", 0.1)
            rounds = rebalance.rounds
            for count in (5, 10):
                await send(client, "T", 5)
                await got.count(count)
                clock.advance(1.0)
            assert not slow.is_set()
            clock.advance(5.0)
            await until(lambda: rebalance.rounds == rounds + 1)


@pytest.mark.mission("CG-05")
async def test_a_missing_member_list_changes_nothing_and_broadcasting_takes_every_queue(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client, cluster.client() as other:
        app = quick(client)
        app.subscribe("T", Got().take)
        async with app:
            await until(lambda: len(app.queues) == 5)
            rebalance: Any = member_of(app).rebalance

            async def nobody(address: str) -> list[str]:
                return []

            rebalance._ask_members = nobody
            assert await rebalance.round() is False
            assert len(app.queues) == 5
        spread = [quick(one, "bg", broadcast=True, offsets_dir=tmp_path / one.client_id) for one in (client, other)]
        for one in spread:
            one.subscribe("T", Got().take)
            await one.start()
        await until(lambda: [len(one.queues) for one in spread] == [4, 4])


async def test_members_share_queues_and_take_over_from_who_leaves(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=8) as cluster, cluster.client() as client:
        first, second = Got(), Got()
        mine = quick(client)
        mine.subscribe("T", first.take)
        async with mine:
            await until(lambda: _count(mine) == 8)
            async with cluster.client() as other:
                theirs = quick(other)
                theirs.subscribe("T", second.take)
                async with theirs:
                    await until(lambda: (_count(mine), _count(theirs)) == (4, 4))
                    assert not set(mine.queues) & set(theirs.queues) - {_retry()}
                    bodies = await send(client, "T", 80, None)
                    await until(lambda: len(first.messages) + len(second.messages) == 80)
                    assert sorted(first.bodies + second.bodies) == sorted(bodies)
                    assert len(first.messages) == len(second.messages) == 40
            await until(lambda: _count(mine) == 8)
            await send(client, "T", 8, None)
            await first.count(48)


def _count(app: Any, topic: str = "T") -> int:
    return sum(queue.topic == topic for queue in app.queues)


def _retry(group: str = "cg") -> MessageQueue:
    return MessageQueue("broker-a", 0, f"%RETRY%{group}")


@pytest.mark.mission("CG-06")
async def test_a_lost_queue_has_its_offset_stored_before_its_new_owner_begins(tmp_path: Path) -> None:
    asked = Asked()
    async with (
        real_cluster(tmp_path, "T", queues=2) as cluster,
        cluster.client() as client,
        cluster.client(hooks=[asked]) as other,
    ):
        first, second = Got(), Got()
        first.gate.clear()
        # Offsets leave this consumer only with a pull, and the one that waits at the broker carries none.
        mine = quick(client, commit_interval=1000)
        mine.subscribe("T", first.take)
        await mine.start()
        for queue_id in (0, 1):
            await send(client, "T", 10, queue_id)
        await until(lambda: first.running == 20)
        first.gate.set()
        await first.count(20)
        await until(lambda: mine._member.offsets.read(MessageQueue("broker-a", 1, "T")) == 10)
        theirs = other.push_consumer("cg", start=StartFrom.FIRST, rebalance_retry=0.05)
        theirs.subscribe("T", second.take)
        async with theirs:
            await until(lambda: (_count(mine), _count(theirs)) == (1, 1))
            await until(lambda: len(asked.pulls()) > 0)
            (taken,) = [queue for queue in theirs.queues if queue.topic == "T"]
            begun = [header for _, header in asked.pulls() if header.queue_id == taken.queue_id]
            assert begun[0].queue_offset == 10
            assert committed(cluster.broker, "cg", "T", taken.queue_id) == 10
            await settle()
            assert second.messages == []
        await mine.stop()


@pytest.mark.mission("CG-06")
async def test_a_queue_that_is_not_pulled_for_120_seconds_is_taken_anew(tmp_path: Path) -> None:
    clock = ManualClock()
    asked = Asked(clock)
    async with (
        real_cluster(tmp_path, "T", queues=1) as cluster,
        cluster.client(clock=clock, hooks=[asked]) as client,
    ):
        got = Got()
        app = quick(client)
        app.subscribe("T", got.take)
        async with app:
            await until(lambda: len(asked.pulls()) == 1)
            swallowed = cache_of(app)
            member = member_of(app)
            pull: Any = member._pulls[swallowed.queue]
            member.is_paused = True
            await send(client, "T", 1)  # wakes the pull, which then rests because of the pause
            await until(lambda: pull._timer is not None)
            pull.stop()
            member.is_paused = False
            await got.count(1)
            await send(client, "T", 1)
            clock.advance(100)
            await settle()
            assert len(got.messages) == 1
            assert cache_of(app) is swallowed
            await advance_until(clock, lambda: len(got.messages) == 2, "the second message", 5.0)
            assert clock.monotonic() >= 120
            assert cache_of(app) is not swallowed


@pytest.mark.mission("CG-07")
async def test_a_queue_whose_lock_is_refused_is_not_pulled_and_others_after_half_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    asked = Asked(clock)
    async with (
        real_cluster(tmp_path, "T", queues=2) as cluster,
        cluster.client(clock=clock, hooks=[asked]) as client,
        Peer.of(cluster.broker) as peer,
    ):
        body = LockBatchRequest(
            client_id="another", consumer_group="cg", mq_set=[MessageQueue("broker-a", 0, "T")]
        ).encode()
        await peer.call(Request.LOCK_BATCH_MQ, body)
        app = client.push_consumer("cg", start=StartFrom.FIRST)
        app.subscribe("T", Got().take, ordered=True)
        async with app:
            pulls: Any = member_of(app)._pulls
            second = MessageQueue("broker-a", 1, "T")
            await until(lambda: second in pulls and pulls[second]._timer is not None)
            assert _count(app) == 1
            assigned_s = clock.monotonic()
            clock.advance(0.49)
            await settle()
            assert asked.pulls() == []
            clock.advance(0.02)
            await until(lambda: len(asked.pulls()) == 1)
            when_s, header = asked.pulls()[0]
            assert (header.queue_id, round(when_s - assigned_s, 2)) == (1, 0.5)
            for _ in range(5):
                clock.advance(1.0)
                await settle()
            assert {header.queue_id for _, header in asked.pulls()} == {1}
            await peer.call(Request.UNLOCK_BATCH_MQ, body)
            await advance_until(clock, lambda: _count(app) == 2, "the lock", 0.5)
            await advance_until(clock, lambda: 0 in {it.queue_id for _, it in asked.pulls()}, "a pull", 0.25)


@pytest.mark.mission("CG-08")
async def test_bounds_are_divided_and_brokers_know_the_new_version_before_the_next_pull(tmp_path: Path) -> None:
    checked: list[int] = []

    class Compare:
        """Is the version that a pull names the broker's?"""

        def before(self, peer: str, request: Any) -> None:
            if request.code == Request.PULL_MESSAGE:
                header = PullMessage.decode(request.ext)
                known = cluster.broker.tables.consumers.find_subscription("cg", header.topic)
                assert known is not None
                assert known.data.sub_version == header.sub_version
                checked.append(header.sub_version)

        def after(self, peer: str, request: Any, response: Any) -> None: ...

    changes: list[tuple[str, int, int]] = []
    async with (
        real_cluster(tmp_path, "T", queues=9) as cluster,
        cluster.client(hooks=[Compare()]) as client,
        cluster.client() as other,
    ):
        app = quick(client, prefetch_topic=1000, prefetch_topic_bytes=1 << 20)
        app.add_queue_listener(lambda topic, every, mine: changes.append((topic, len(every), len(mine))))
        app.subscribe("T", Got().take)
        async with app:
            await until(lambda: len(app.queues) == 10)  # with the one of the retry topic
            await until(lambda: member_of(app).bounds[:2] == (100, (1 << 20) // 10))
            await until(lambda: len(checked) >= 10)
            before = max(checked)
            assert ("T", 9, 9) in changes
            second = quick(other)
            second.subscribe("T", Got().take)
            async with second:
                await until(lambda: ("T", 9, 5) in changes or ("T", 9, 4) in changes)
                await until(lambda: member_of(app).bounds.messages_max in (166, 200, 250))
            await until(lambda: max(checked) > before)


@pytest.mark.parametrize("kind", ["first", "last", "time"])
async def test_a_new_group_starts_where_it_is_told_and_a_stored_offset_wins(tmp_path: Path, kind: str) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        await send(client, "T", 5)
        await asyncio.sleep(0.01)
        middle = datetime.now(UTC)
        await asyncio.sleep(0.01)
        await send(client, "T", 5)
        start = {"first": StartFrom.FIRST, "last": StartFrom.LAST, "time": middle}[kind]
        await _start_and_check(cluster, client, "fresh", start, {"first": 0, "last": 10, "time": 5}[kind])
        cluster.broker.tables.groups.find("old")
        cluster.broker.tables.offsets.commit("old", "T", 0, 7, "test")
        await _start_and_check(cluster, client, "old", start, 7)


@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_a_new_group_skips_the_messages_of_a_young_topic(tmp_path: Path, kind: str) -> None:
    """The broker has them all in memory, and would answer 0 to a client of RocketMQ's."""
    async with real_cluster(tmp_path, "T", queues=2) as cluster, cluster.client() as client:
        await send(client, "T", 6)
        got: list[bytes] = []
        if kind == "push":
            taker = Got()
            consumer = quick(client, start=StartFrom.LAST)
            consumer.subscribe("T", taker.take)
            async with consumer, client.producer("pg") as producer:
                await producer.send("T", b"new")
                await until(lambda: taker.messages)
            got = [message.body for message in taker.messages]
        else:
            async with client.pull_consumer("cg", start=StartFrom.LAST) as puller, client.producer("pg") as producer:
                await puller.subscribe("T")
                await producer.send("T", b"new")
                while not got:
                    got += [message.body for message in await puller.poll(timeout=5)]
        assert got == [b"new"]


@pytest.mark.mission("DU-02")
async def test_a_group_that_is_not_new_gets_all_messages_of_a_queue_that_was_added_while_it_slept(
    tmp_path: Path,
) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster:
        async with cluster.client() as client:
            await send(client, "T", 1)
        cluster.broker.tables.groups.find("cg")
        cluster.broker.tables.offsets.commit("cg", "T", 0, 1, "test")
        await cluster.add_topic("T", 2)
        got: list[bytes] = []
        async with cluster.client() as client:
            async with client.producer("pg") as producer:
                await producer.send("T", b"in the added queue", queue=MessageQueue("broker-a", 1, "T"))
            async with client.pull_consumer("cg", start=StartFrom.LAST) as puller:
                await puller.subscribe("T")
                while not got:
                    got += [message.body for message in await puller.poll(timeout=5)]
        assert got == [b"in the added queue"]


@pytest.mark.parametrize("kind", ["push", "iterator", "pull"])
@pytest.mark.parametrize("before", [0, 5])
async def test_a_new_group_gets_all_that_is_sent_once_its_consumer_has_started(
    tmp_path: Path, kind: str, before: int
) -> None:
    """The broker says of no message that it is in memory, so that the rule of the group counts."""
    async with (
        real_cluster(tmp_path, "T", accessMessageInMemoryMaxRatio=0) as cluster,
        cluster.client() as client,
    ):
        sent = [b"%d" % number for number in range(20)]
        async with client.producer("pg") as producer:
            for _ in range(before):
                for queue in await producer.queues("T"):
                    await producer.send("T", b"before", queue=queue)

            async def send_all() -> None:
                for body in sent:
                    await producer.send("T", body)

            if kind == "pull":
                async with client.pull_consumer("cg", start=StartFrom.LAST) as puller:
                    await puller.subscribe("T")
                    await send_all()
                    pulled: list[bytes] = []
                    while len(pulled) < len(sent) and (batch := await puller.poll(timeout=5)):
                        pulled += [message.body for message in batch]
                    assert sorted(pulled) == sorted(sent)
            elif kind == "iterator":
                async with client.consumer("cg", "T", start=StartFrom.LAST) as consumer:
                    await send_all()
                    looped = [message.body async for message in consumer.iter(timeout=5)]
                    assert sorted(looped) == sorted(sent)
            else:
                got = Got()
                app = quick(client, start=StartFrom.LAST)
                app.subscribe("T", got.take)
                async with app:
                    await send_all()
                    await got.count(len(sent))
                    got.check_once(sent)


async def test_a_group_whose_first_member_dies_before_it_commits_begins_where_that_member_began(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "T", queues=1, accessMessageInMemoryMaxRatio=0) as cluster,
        cluster.client() as client,
        cluster.client() as other,
    ):
        await send(client, "T", 5)
        first = quick(client, start=StartFrom.LAST, drain_timeout=0.0)
        held = Got()
        held.gate.clear()
        first.subscribe("T", held.take)
        await first.start()
        await send(client, "T", 3)
        await until(lambda: held.running > 0)
        await first.stop()
        got = Got()
        second = quick(other, start=StartFrom.LAST)
        second.subscribe("T", got.take)
        async with second:
            await got.count(3)


async def _start_and_check(cluster: Any, client: Any, group: str, start: Any, expected: int) -> None:
    """What the broker says about young queues (0 for an unknown group) is kept out: the rule alone decides."""
    app = quick(client, group, start=start)
    app.subscribe("T", Got().take)
    member = member_of(app)
    if group == "fresh":
        await client.instance.route("T")
        assert await first_offset(client.instance, MessageQueue("broker-a", 0, "T"), start) == expected
        retry = MessageQueue("broker-a", 0, "%RETRY%fresh")
        if isinstance(start, StartFrom):
            assert await first_offset(client.instance, retry, start) == 0
        return
    async with app:
        await until(lambda: _count(app) == 1)
        await until(lambda: member.offsets.read(MessageQueue("broker-a", 0, "T")) == 10)
        got = member.lanes["T"].handler.function.__self__  # type: ignore[attr-defined]
        assert got.bodies == [b"2", b"3", b"4"]


async def test_a_group_resumes_where_it_stopped_for_both_kinds(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster:
        for broadcast, sent_before in ((False, 0), (True, 6)):
            for turn in range(2):
                async with cluster.client(client_ip="10.0.0.1") as client:
                    got = Got()
                    app = quick(client, f"g{broadcast}", broadcast=broadcast, offsets_dir=tmp_path / "offsets")
                    app.subscribe("T", got.take)
                    expected = 3 if turn else 3 + sent_before
                    async with app:
                        await send(client, "T", 3)
                        await got.count(expected)
                    assert len(got.messages) == expected
                    assert got.bodies[-3:] == [b"0", b"1", b"2"]
