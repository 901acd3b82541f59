"""What the broker reads for itself long after it was stored: a thread brings it into memory, others are served."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.broker.cold_pages import ColdPages
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.store.disk import File
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutStatus
from cometmq.wire.codes import Request
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import SearchOffset
from tests.support.brokers import Peer, running_broker, stored
from tests.support.net import until
from tests.support.transacting import questions, send_half

WAIT_S = 30


class SlowDisk:
    """Reads of the log wait until `let_go`; then the pages count as in memory. `reads`: who reads now or has read."""

    def __init__(self, disk: FakeDisk, broker: Broker) -> None:
        self.reads = 0
        self._disk = disk
        self._goes_on = threading.Event()
        self._loop_thread = threading.get_ident()
        disk.cold_paths.update(segment.file.path for segment in broker.store.segments.segments)
        disk.on_call = self._called

    def _called(self, operation: str, path: str) -> None:
        if operation == "pread" and "/commitlog/" in path:
            assert threading.get_ident() != self._loop_thread, "the loop waits for the disk"
            self.reads += 1
            assert self._goes_on.wait(WAIT_S)

    def let_go(self) -> None:
        self._disk.cold_paths.clear()
        self._goes_on.set()


@asynccontextmanager
async def after_a_restart(
    tmp_path: Path, clock: ManualClock, disk: FakeDisk
) -> AsyncIterator[tuple[Broker, Peer, SlowDisk]]:
    """The broker again, with nothing of its log in memory."""
    reborn = disk.kill()
    async with running_broker(tmp_path, clock, reborn) as broker, Peer.of(broker) as peer:
        slow = SlowDisk(reborn, broker)
        try:
            yield broker, peer, slow
        finally:
            slow.let_go()


async def test_delayed_messages_wait_for_their_pages_and_nobody_else_does(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        for number in range(3):
            await peer.send("TopicA", b"%d" % number, properties={"DELAY": "2"})
    async with after_a_restart(tmp_path, clock, disk) as (broker, peer, slow):
        clock.advance(10)
        await until(lambda: slow.reads, "a read in the thread")
        clock.advance(1)
        assert (await peer.send("TopicB")).code == 0
        assert stored(broker, "TopicA") == []
        slow.let_go()
        await until(lambda: len(stored(broker, "TopicA")) == 3, "delivery")
        assert [message.body for message in stored(broker, "TopicA")] == [b"0", b"1", b"2"]


async def test_popped_messages_that_come_again_wait_for_their_pages(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        for number in range(3):
            await peer.send("TopicA", b"%d" % number)
        popped = await peer.call(
            Request.POP_MESSAGE, consumerGroup="g", topic="TopicA", queueId=0, maxMsgNums=32, invisibleTime=10_000,
            pollTime=0, bornTime=clock.now_ms(), initMode=0, expType="TAG", exp="*",
        )  # fmt: skip
        assert popped.code == 0, popped.remark
        broker.store.reading.memory_bytes = 0  # as if much had been written since
        slow = SlowDisk(disk, broker)
        try:
            clock.advance(11)
            await until(lambda: slow.reads, "a read in the thread")
            clock.advance(1)
            assert stored(broker, "%RETRY%g_TopicA") == []
        finally:
            slow.let_go()
        await until(lambda: len(stored(broker, "%RETRY%g_TopicA")) == 3, "revival")


async def test_pops_that_another_broker_has_noted_wait_for_their_pages(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        for number in range(3):
            await peer.send("TopicA", b"%d" % number)
        name = {"t": "TopicA", "c": "g", "q": 0, "so": 0, "pt": clock.now_ms(), "bn": "broker-a"}
        for tag, note in (("ck", {**name, "it": 1_000, "n": 3}), ("ack", {**name, "ao": 1})):
            put = AppendRequest(topic, 0, json.dumps(note).encode(), f"TAGS\x01{tag}\x02")
            assert broker.rooms.delayed.put(put).status == PutStatus.OK
    async with after_a_restart(tmp_path, clock, disk) as (broker, _peer, slow):
        clock.advance(10)
        await until(lambda: slow.reads, "a read in the thread")
        clock.advance(1)
        assert stored(broker, "%RETRY%g_TopicA") == []
        slow.let_go()
        await until(lambda: _advanced(clock, len(stored(broker, "%RETRY%g_TopicA")) == 2), "revival")
        assert [message.body for message in stored(broker, "%RETRY%g_TopicA")] == [b"0", b"2"]


def _advanced(clock: ManualClock, done: bool) -> bool:
    if not done:
        clock.advance(1)
    return done


async def test_a_round_of_transactions_waits_for_the_pages_of_halves(tmp_path: Path) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        sent = [await send_half(peer, clock) for _ in range(2)]
    async with after_a_restart(tmp_path, clock, disk) as (broker, peer, slow):
        await peer.heartbeat()
        clock.advance(35)
        await until(lambda: slow.reads, "a read in the thread")
        clock.advance(35)
        assert (await peer.send("TopicB")).code == 0
        assert questions(peer) == []
        slow.let_go()

        def both_asked() -> bool:
            clock.advance(0)
            return len(peer.asked) == 2

        await until(both_asked, "questions")
        assert [it.unique_id for it in questions(peer)] == [it.unique_id for it in sent]


@pytest.mark.parametrize("code", [Request.SEARCH_OFFSET_BY_TIMESTAMP, Request.GET_EARLIEST_MSG_STORETIME])
async def test_a_search_by_time_waits_for_its_pages_and_nobody_else_does(tmp_path: Path, code: int) -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        for _ in range(8):
            await peer.send("TopicA")
            clock.advance(1)
    async with after_a_restart(tmp_path, clock, disk) as (broker, peer, slow), Peer.of(broker) as other:
        header = SearchOffset(topic="TopicA", queue_id=0, timestamp=start_ms + 4500)
        asking = asyncio.create_task(peer.ask(new_request(code, header.encode())))
        await until(lambda: slow.reads, "a read in the thread")
        assert (await other.send("TopicB")).code == 0
        assert not asking.done()
        slow.let_go()
        answer = await asking
        assert answer.ext.get("offset", "5") == "5"
        assert answer.ext.get("timestamp", str(start_ms)) == str(start_ms)


@pytest.mark.parametrize(
    "code", [Request.GET_TOPIC_STATS_INFO, Request.GET_CONSUME_STATS, Request.QUERY_CONSUME_TIME_SPAN]
)
async def test_figures_of_queues_wait_for_their_pages_and_nobody_else_does(tmp_path: Path, code: int) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA")
        clock.advance(5)
        last_ms = clock.now_ms()
        await peer.send("TopicA")
    async with after_a_restart(tmp_path, clock, disk) as (broker, peer, slow), Peer.of(broker) as other:
        broker.tables.offsets.commit("consumers", "TopicA", 0, 2, "test")
        ext = {"topic": "TopicA", "group": "consumers", "consumerGroup": "consumers"}
        asking = asyncio.create_task(peer.call(code, **ext))
        await until(lambda: slow.reads, "a read in the thread")
        assert (await other.send("TopicB")).code == 0
        assert not asking.done()
        slow.let_go()
        assert str(last_ms).encode() in (await asking).body


async def test_a_reset_to_a_time_waits_for_its_pages_and_changes_nothing_before(tmp_path: Path) -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        for number in range(16):
            await peer.send("TopicA", queue_id=number % 2)
            clock.advance(1)
        await peer.pull("TopicA", commit=8)
    async with after_a_restart(tmp_path, clock, disk) as (broker, peer, slow):
        ext = {"topic": "TopicA", "group": "consumers", "timestamp": start_ms + 8000, "isForce": "true"}
        asking = asyncio.create_task(peer.call(Request.INVOKE_BROKER_TO_RESET_OFFSET, **ext))
        await until(lambda: slow.reads, "a read in the thread")
        assert broker.tables.offsets.take_reset("consumers", "TopicA", 0) is None
        slow.let_go()
        assert (await asking).code == 0
        assert [broker.tables.offsets.take_reset("consumers", "TopicA", queue_id) for queue_id in range(2)] == [4, 4]


def test_pages_that_were_loaded_are_not_asked_for_again_until_the_walk_is_past_them() -> None:
    disk = FakeDisk()
    file = disk.open("/log", 100, create=True, allocate=True)
    loads: list[list[tuple[File, int, int]]] = []
    told: list[str] = []

    def load(ranges: list[tuple[File, int, int]], then: Callable[[], None]) -> None:
        loads.append(ranges)
        then()

    pages = ColdPages(lambda offset, size: (file, offset, size), load)
    places = [(0, 10), (10, 10)]
    assert pages.wanted("a", places, lambda: told.append("a"))
    assert (loads, told) == ([[(file, 0, 10), (file, 10, 10)]], ["a"])
    assert not pages.wanted("a", places, lambda: told.append("again"))
    assert not pages.wanted("a", places[1:], lambda: told.append("again"))
    assert pages.wanted("a", [(10, 10), (20, 10)], lambda: told.append("more"))
    assert loads[1:] == [[(file, 20, 10)]]
    assert pages.wanted("b", places, lambda: told.append("b"))
    assert told == ["a", "more", "b"]
