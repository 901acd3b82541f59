"""Pulls that wait: parked without an answer, woken by a message, by time or by the sweep, answered exactly once."""

import asyncio
import gc
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.consume.long_poll import WAKE_MAX, LongPoll, Waiter
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock, uptime_ms
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, encode
from cometmq.wire.headers import PullMessage
from cometmq.wire.record.message import decode_records
from tests.support.aio import run
from tests.support.brokers import (
    Peer,
    add_topic,
    broker_settings,
    heartbeat_body,
    pull_request,
    running_broker,
    send_request,
)
from tests.support.direct import DirectPeer
from tests.support.net import RawPeer, until

SUSPEND_MS = 15_000


def numbered(command: Command, opaque: int) -> Command:
    command.opaque = opaque
    return command


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)] if answer.body else []


async def parked(broker: Broker, count: int) -> None:
    await until(lambda: broker.rooms.consume.longpoll.count == count, f"{count} parked pulls")


async def silent(peer: RawPeer) -> bool:
    """Whether nothing has come, after a request and its answer have gone the same way."""
    peer.send(numbered(send_request("Other"), 999_999))
    return (await peer.receive()).opaque == 999_999


@pytest.mark.mission("LP-02")
async def test_a_pull_of_an_empty_queue_is_answered_19_when_its_time_is_over(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        peer.send(numbered(pull_request("TopicA", suspend_ms=SUSPEND_MS), 4711))
        await parked(broker, 1)
        clock.advance(14.9)
        assert await silent(peer)
        clock.advance(5.1)
        answer = await peer.receive()
        assert (answer.opaque, answer.code) == (4711, Response.PULL_NOT_FOUND)
        assert {"nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"} <= answer.ext.keys()
        assert broker.rooms.consume.longpoll.count == 0
        assert broker.rooms.families["pull"].waiting == 0


@pytest.mark.mission("LP-02")
def test_a_parked_pull_costs_no_task_and_under_2_kib(tmp_path: Path) -> None:
    count = 50_000

    async def main() -> None:
        async with running_broker(tmp_path, ManualClock()) as broker:
            add_topic(broker, "TopicA", 100)
            peers = [DirectPeer(broker.server, 50_000 + number) for number in range(50)]
            for peer in peers:
                peer.send(_heartbeat())
            # As a Java push consumer writes them.
            frames = [encode(numbered(_push_pull(number % 100), number)) for number in range(count)]
            for number in range(1000):  # what is made once
                await peers[number % 50].feed_in_turn(frames[number])
            gc.collect()
            tasks_before, bytes_before = len(asyncio.all_tasks()), resident_bytes()
            for number in range(1000, count):
                await peers[number % 50].feed_in_turn(frames[number])
            gc.collect()
            grown_bytes = resident_bytes() - bytes_before
            assert broker.rooms.consume.longpoll.count == count
            assert len(asyncio.all_tasks()) <= tasks_before
            each = grown_bytes / (count - 1000)
            print(f"{count} parked pulls cost {each:.0f} bytes each, and no task")
            assert each < 2048
            for peer in peers:
                peer.leave()
            broker.rooms.consume.longpoll.sweep(uptime_ms(broker.clock))
            assert broker.rooms.consume.longpoll.count == 0
            assert broker.rooms.families["pull"].waiting == 0

    run(main(), timeout_s=120)


def _heartbeat() -> Command:
    command = numbered(pull_request("TopicA"), 1)
    command.code, command.ext = Request.HEART_BEAT, {}
    command.body = heartbeat_body("consumers", topics={"TopicA": "TagA || TagB"})
    return command


def _push_pull(queue_id: int) -> Command:
    fields: dict[str, Any] = {"tags": None, "sub_version": 1, "expression_type": "TAG", "max_msg_bytes": 262_144}
    return pull_request("TopicA", queue_id, suspend_ms=SUSPEND_MS, **fields)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.mission("LP-03")
@pytest.mark.parametrize(("long_polling", "limit_s"), [(True, 5.0), (False, 1.0)])
async def test_the_sweep_finds_what_no_notice_told(tmp_path: Path, long_polling: bool, limit_s: float) -> None:
    clock = ManualClock()
    settings = {"longPollingEnable": long_polling}
    async with running_broker(tmp_path, clock, **settings) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        broker.store.dispatcher._arrived = None
        clock.advance(0.3)
        peer.send(pull_request("TopicA", suspend_ms=SUSPEND_MS))
        await parked(broker, 1)
        await peer_sends(broker, b"missed")
        assert await silent(peer)
        clock.advance(limit_s)
        answer = await peer.receive()
        assert (answer.code, bodies(answer)) == (0, [b"missed"])


async def peer_sends(broker: Broker, body: bytes, tag: str = "", topic: str = "TopicA") -> None:
    async with Peer.of(broker) as peer:
        answer = await peer.send(topic, body, properties={"TAGS": tag} if tag else {})
        assert answer.code == 0, answer.remark


@pytest.mark.mission("LP-03")
async def test_without_long_polling_a_pull_waits_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"longPollingEnable": False}
    async with running_broker(tmp_path, clock, **settings) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        peer.send(pull_request("TopicA", suspend_ms=SUSPEND_MS))
        await parked(broker, 1)
        clock.advance(0.9)
        assert await silent(peer)
        clock.advance(0.1)
        assert (await peer.receive()).code == Response.PULL_NOT_FOUND


@pytest.mark.mission("MO-04")
@pytest.mark.parametrize(("took_s", "lines"), [(4.9, 0), (5.1, 1)])
async def test_a_slow_sweep_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, took_s: float, lines: int
) -> None:
    clock = ManualClock()
    broker = Broker(broker_settings(tmp_path), clock)
    await broker.start()

    def slow_end(topic: str, queue_id: int) -> int:
        clock._elapsed_ns += round(took_s * 1e9)
        return broker.store.queues.max_offset(topic, queue_id)

    async with RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        peer.send(pull_request("TopicA", suspend_ms=60_000))
        await parked(broker, 1)
        broker.rooms.consume.longpoll._queue_end = slow_end
        caplog.clear()
        clock.advance(5)
        found = [record.getMessage() for record in caplog.records if "swept parked pulls" in record.getMessage()]
        assert len(found) == lines
        assert not found or f"took_ms={took_s * 1000:.0f}" in found[0]
    await broker.stop()


@pytest.mark.mission("LP-04")
async def test_a_message_wakes_those_whose_tags_match_and_nobody_else(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        RawPeer.connected(broker.port) as one,
        RawPeer.connected(broker.port) as two,
        RawPeer.connected(broker.port) as other_queue,
        Peer.of(broker) as producer,
    ):
        add_topic(broker, "TopicA")
        one.send(pull_request("TopicA", suspend_ms=SUSPEND_MS, tags="A"))
        two.send(pull_request("TopicA", suspend_ms=SUSPEND_MS, tags="B", group="others"))
        other_queue.send(pull_request("TopicA", 1, suspend_ms=SUSPEND_MS))
        await parked(broker, 3)
        times_s = []
        for number in range(5):
            began_s = time.perf_counter()
            sent = asyncio.create_task(producer.send("TopicA", b"for A", properties={"TAGS": "A"}))
            answer = await one.receive()
            times_s.append(time.perf_counter() - began_s)
            await sent
            assert (answer.code, bodies(answer)) == (0, [b"for A"])
            assert broker.rooms.consume.longpoll.count == 2
            one.send(pull_request("TopicA", offset=number + 1, suspend_ms=SUSPEND_MS, tags="A"))
            await parked(broker, 3)
        assert min(times_s) < 0.02
        await producer.send("TopicA", b"for B", properties={"TAGS": "B"})
        assert bodies(await two.receive()) == [b"for B"]
        assert broker.rooms.consume.longpoll.count == 2


@pytest.mark.mission("LP-04")
async def test_a_message_between_read_and_park_is_not_missed(tmp_path: Path) -> None:
    """On one loop it cannot happen by itself; whoever parks is told that the queue has grown since it was read."""
    async with running_broker(tmp_path) as broker:
        peer = DirectPeer(broker.server)
        woken: list[Waiter] = []
        soon: list[Callable[[], None]] = []
        ends = {0: 7, 1: 8}
        poll = LongPoll(woken.append, soon.append, lambda topic, queue_id: ends[queue_id])
        for queue_id in ends:
            command = pull_request("TopicA", queue_id, offset=7, suspend_ms=SUSPEND_MS)
            poll.hold(Waiter(peer.connection, command, PullMessage.decode(command.ext), None, SUSPEND_MS))
        assert poll.count == 1, "nothing came in queue 0"
        (wake,) = soon
        wake()
        assert [waiter.header.queue_id for waiter in woken] == [1]
        peer.leave()


async def test_thousands_that_become_ready_at_once_are_woken_in_turns(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        peer = DirectPeer(broker.server)
        woken: list[Waiter] = []
        soon: list[Callable[[], None]] = []
        poll = LongPoll(woken.append, soon.append, lambda topic, queue_id: 0)
        command = pull_request("TopicA", suspend_ms=SUSPEND_MS)
        header = PullMessage.decode(command.ext)
        waiters = [Waiter(peer.connection, command, header, None, number % 2) for number in range(1000)]
        for waiter in waiters:
            poll.hold(waiter)
        poll.sweep(0)
        turns = 0
        while soon:
            soon.pop(0)()
            turns += 1
            assert len(woken) <= turns * WAKE_MAX
        assert woken == waiters[::2]
        assert poll.count == 500
        peer.leave()


async def test_a_burst_wakes_a_consumer_once_and_with_all_of_it(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        RawPeer.connected(broker.port) as consumer,
        RawPeer.connected(broker.port) as producer,
    ):
        add_topic(broker, "TopicA")
        consumer.send(pull_request("TopicA", suspend_ms=SUSPEND_MS))
        await parked(broker, 1)
        producer.write(b"".join(encode(send_request("TopicA", b"%d" % number)) for number in range(10)))
        assert len(bodies(await consumer.receive())) == 10


@pytest.mark.mission("LP-05")
def test_arrival_against_timeout_gives_each_pull_one_answer(tmp_path: Path) -> None:
    """10,000 pulls; each round a message, the end of the waiting time, or both in either order, or a closed socket."""
    seed = 20261115
    chance = random.Random(seed)
    rounds, pulls = 250, 40

    async def main() -> None:
        clock = ManualClock()
        settings = {"mappedFileSizeCommitLog": 8 << 20, "serverChannelMaxIdleTimeSeconds": 1_000_000}
        async with running_broker(tmp_path, clock, **settings) as broker:
            add_topic(broker, "TopicA", 1)
            consumer, producer = DirectPeer(broker.server), DirectPeer(broker.server)
            offset = 0
            opaque = 0
            ended = Counter[int]()
            for _ in range(rounds):
                for _ in range(pulls):
                    opaque += 1
                    consumer.send(numbered(pull_request("TopicA", offset=offset, suspend_ms=SUSPEND_MS), opaque))
                assert broker.rooms.consume.longpoll.count == pulls
                acts = chance.choice([["send"], ["time"], ["send", "time"], ["time", "send"], ["send", "send", "time"]])
                for act in acts:
                    if act == "send":
                        producer.send(send_request("TopicA"))
                        offset += 1
                    else:
                        clock.advance(20)
                    if chance.random() < 0.3:
                        await asyncio.sleep(0)
                await until(lambda: len(consumer.answers) >= pulls)
                await asyncio.sleep(0)
                assert broker.rooms.consume.longpoll.count == broker.rooms.families["pull"].waiting == 0
                ended.update(answer.code for answer in consumer.answers)
                assert sorted(answer.opaque for answer in consumer.answers) == list(
                    range(opaque - pulls + 1, opaque + 1)
                ), f"seed {seed}"
                consumer.answers.clear()
            assert sum(ended.values()) == rounds * pulls == 10_000
            assert ended[0] > 1000
            assert ended[Response.PULL_NOT_FOUND] > 1000
            consumer.leave()
            producer.leave()

    run(main(), timeout_s=120)


@pytest.mark.mission("LP-05")
async def test_parked_pulls_of_a_closed_connection_vanish(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, RawPeer.connected(broker.port) as staying:
        add_topic(broker, "TopicA")
        staying.send(pull_request("TopicA", suspend_ms=SUSPEND_MS, group="staying"))
        async with RawPeer.connected(broker.port) as leaving:
            for _ in range(10):
                leaving.send(pull_request("TopicA", suspend_ms=SUSPEND_MS))
            await parked(broker, 11)
        await until(lambda: broker.rooms.families["pull"].waiting == 1)
        clock.advance(5)
        assert broker.rooms.consume.longpoll.count == 1
        await peer_sends(broker, b"x")
        assert bodies(await staying.receive()) == [b"x"]


async def test_a_woken_pull_that_is_no_longer_allowed_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        peer.send(numbered(pull_request("TopicA", suspend_ms=SUSPEND_MS), 1))
        peer.send(numbered(pull_request("TopicA", suspend_ms=SUSPEND_MS, tags="A"), 2))
        await parked(broker, 2)
        broker.tables.topics.delete("TopicA")
        clock.advance(20)
        for opaque in (1, 2):
            answer = await peer.receive()
            assert (answer.opaque, answer.code) == (opaque, Response.TOPIC_NOT_EXIST)


async def test_a_bug_in_one_woken_pull_does_not_keep_the_others_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        for opaque, name in enumerate(("first", "broken", "last")):
            peer.send(numbered(pull_request("TopicA", suspend_ms=SUSPEND_MS, group=name), opaque))
        await parked(broker, 3)
        broker.tables.groups.table["broken"] = "not a group"  # type: ignore[assignment]
        clock.advance(20)
        codes = [(await peer.receive()).code for _ in range(3)]
        assert codes == [19, Response.SYSTEM_ERROR, 19]
        assert "fail pull" in caplog.text
        del broker.tables.groups.table["broken"]


@pytest.mark.mission("LP-06")
async def test_a_commit_that_rides_on_a_parked_pull_is_stored_at_once_and_only_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        peer.send(pull_request("TopicA", suspend_ms=SUSPEND_MS, commit=7))
        await parked(broker, 1)
        assert broker.tables.offsets.query("consumers", "TopicA", 0) == 7
        async with Peer.of(broker) as other:
            fields = {"consumerGroup": "consumers", "topic": "TopicA", "queueId": 0, "commitOffset": 9}
            assert (await other.call(Request.UPDATE_CONSUMER_OFFSET, **fields)).code == 0
        clock.advance(20)
        assert (await peer.receive()).code == Response.PULL_NOT_FOUND
        assert broker.tables.offsets.query("consumers", "TopicA", 0) == 9, "the newer commit survives the wake-up"


@pytest.mark.mission("LP-06")
async def test_flags_decide_about_committing_waiting_and_the_expression(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        # A commit offset without its flag, a waiting time without its flag: neither counts.
        answer = await peer.pull("TopicA", commit_offset=5, suspend_timeout_ms=SUSPEND_MS, sys_flag=4)
        assert answer.code == Response.PULL_NOT_FOUND
        assert broker.tables.offsets.query("consumers", "TopicA", 0) == -1
        # An expression without its flag: the heartbeat's subscription counts.
        await peer.heartbeat("consumers", topics={"TopicA": "A"})
        await peer.send("TopicA", b"b", properties={"TAGS": "B"})
        answer = await peer.pull("TopicA", subscription="B", sys_flag=0)
        assert answer.code == Response.PULL_RETRY_IMMEDIATELY
        answer = await peer.pull("TopicA", subscription="B", sys_flag=4)
        assert bodies(answer) == [b"b"]


async def test_nanoseconds_of_old_clients_do_not_park_for_ever(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, RawPeer.connected(broker.port) as peer:
        add_topic(broker, "TopicA")
        peer.send(pull_request("TopicA", suspend_ms=20_000_000_000))
        await parked(broker, 1)
        clock.advance(65)
        assert (await peer.receive()).code == Response.PULL_NOT_FOUND


async def test_a_stop_answers_parked_pulls(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        peer = RawPeer(*await asyncio.open_connection("127.0.0.1", broker.port))
        add_topic(broker, "TopicA")
        peer.send(pull_request("TopicA", suspend_ms=SUSPEND_MS))
        await parked(broker, 1)
    assert (await peer.receive()).code == Response.PULL_NOT_FOUND
    assert await peer.is_cut()
    await peer.close()
