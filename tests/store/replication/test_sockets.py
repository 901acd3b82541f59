"""Checks the shells of replication over real sockets: the master's listener and the replica's follower.

Time stands still unless a test moves it.
"""

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import pytest
import uvloop

from cometmq.clock import ManualClock
from cometmq.store.disk import File
from cometmq.store.replication.follower import FLOW_S, Follower
from cometmq.store.replication.frames import HEADER, HEADER_BYTES
from cometmq.store.replication.links import BACKLOG_BYTES
from cometmq.store.replication.listener import LINKS_MAX, LINKS_PER_ADDRESS_MAX, Listener
from cometmq.store.replication.replica import Replica
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from tests.store.replication.bench import SEGMENT_BYTES, fill, log_bytes, put, small_store
from tests.support.aio import run
from tests.support.net import until

CONNECTS = 10_000
BOTH_LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def load_at_once(_ranges: list[tuple[File, int, int]], then: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_soon(then)


class Reader:
    """One end of a connection that says what the test wants; all are closed when the test ends."""

    live: ClassVar[list["Reader"]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.live.append(self)

    @classmethod
    async def close_all(cls) -> None:
        for each in cls.live:
            each.writer.close()
        for each in cls.live:
            with suppress(ConnectionError):
                await each.writer.wait_closed()
        cls.live.clear()

    @classmethod
    async def at(cls, port: int, offset: int | None = None) -> "Reader":
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        if offset is not None:
            peer.report(offset)
        return peer

    def report(self, offset: int) -> None:
        self.writer.write(struct.pack(">q", offset))

    async def frame(self) -> tuple[int, bytes]:
        offset, length = HEADER.unpack(await self.reader.readexactly(HEADER_BYTES))
        return offset, await self.reader.readexactly(length)

    async def closed(self) -> None:
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            return


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[tuple[Store, Listener, ManualClock]]:
    clock = ManualClock()
    store = small_store(clock, **options)
    listener = Listener(store, load_at_once)
    await listener.start("127.0.0.1", 0)
    store.promise_copies(listener.wait)
    try:
        yield store, listener, clock
    finally:
        await listener.stop()
        await Reader.close_all()


# The master


@BOTH_LOOPS
def test_a_put_goes_to_every_replica(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def scene() -> None:
        async with listening() as (store, listener, _):
            replicas = [await Reader.at(listener.port, 0) for _ in range(3)]
            await until(lambda: all(link.next_offset == 0 for link in listener.master.links))
            end = put(store)
            for replica in replicas:
                assert await replica.frame() == (0, log_bytes(store))
            assert [link.next_offset for link in listener.master.links] == [end] * 3

    run(scene(), loop_factory=loop)


async def test_puts_of_one_turn_are_one_frame() -> None:
    async with listening() as (store, listener, _):
        replica = await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links and listener.master.links[0].next_offset == 0)
        for _ in range(10):
            put(store)
        assert await replica.frame() == (0, log_bytes(store))


@BOTH_LOOPS
def test_a_long_log_arrives_whole_at_a_replica_that_reads_slowly(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene() -> None:
        async with listening(segment_bytes=1 << 20, message_bytes_max=1 << 20) as (store, listener, _):
            while store.log.max_offset < 12 << 20:
                put(store, os.urandom(100_000))
            replica = await Reader.at(listener.port, 1)
            data = bytearray(b"\0")
            while len(data) < store.log.max_offset:
                offset, piece = await replica.frame()
                assert offset == len(data)
                data += piece
            assert data[1:] == log_bytes(store)[1:]

    run(scene(), loop_factory=loop)


@pytest.mark.mission("HA-06")
async def test_a_master_begins_where_it_is_asked_and_beats_when_it_has_nothing_to_say() -> None:
    async with listening() as (store, listener, clock):
        fill(store, 2 * SEGMENT_BYTES + 1000)
        end = store.log.max_offset
        empty, other = await Reader.at(listener.port, 0), await Reader.at(listener.port, end - 100)
        assert (await empty.frame())[0] == 2 * SEGMENT_BYTES
        assert await other.frame() == (end - 100, log_bytes(store)[end - 100 :])
        for _ in range(3):
            clock.advance(4.9)
            for replica in (empty, other):
                replica.report(end)
            await until(lambda: all(link.acked_offset == end for link in listener.master.links))
            clock.advance(0.1)
            assert await empty.frame() == (end, b"")
            assert await other.frame() == (end, b"")
        began_s = asyncio.get_running_loop().time()
        last = put(store)
        assert (await empty.frame())[0] == end
        assert asyncio.get_running_loop().time() - began_s < 2 or _is_busy()
        assert listener.master.links[0].next_offset == last


def _is_busy() -> bool:
    """On a machine with more to do than cores, 50 ms say nothing."""
    return os.getloadavg()[0] > (os.cpu_count() or 1)


async def test_a_paced_replica_gets_its_share_every_second() -> None:
    async with listening(ha_pace_enabled=True, ha_pace_bytes=1000) as (store, listener, clock):
        fill(store, 2500)
        replica = await Reader.at(listener.port, 1)
        data = (await replica.frame())[1]
        assert len(data) == 1000
        while len(data) < store.log.max_offset - 1:
            clock.advance(1)
            data += (await replica.frame())[1]
        assert data == log_bytes(store)[1:]
        assert clock.monotonic() == 2
        assert len(listener.master.links) == 1


async def test_a_silent_replica_is_closed_after_twenty_seconds() -> None:
    async with listening() as (_store, listener, clock):
        replica = await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links and listener.master.links[0].next_offset == 0)
        clock.advance(19.9)
        assert len(listener.master.links) == 1
        clock.advance(0.1)
        assert listener.master.links == []
        await replica.closed()


async def test_a_frozen_replica_is_waited_for_three_seconds() -> None:
    async with listening() as (store, listener, clock):
        await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links and listener.master.links[0].next_offset == 0)
        told: list[int] = []
        listener.wait(put(store), told.append)
        clock.advance(2.9)
        assert told == []
        clock.advance(0.1)
        assert told == [PutStatus.FLUSH_SLAVE_TIMEOUT]


async def test_who_waits_when_the_master_stops_is_not_told_ok() -> None:
    told: list[int] = []
    async with listening() as (store, listener, _):
        await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links and listener.master.links[0].next_offset == 0)
        listener.wait(put(store), told.append)
    listener.wait(put(store), told.append)
    assert told == [PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE]


@pytest.mark.mission("HA-05")
async def test_garbage_and_offsets_beyond_the_end_are_closed_and_ack_nothing() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    print(f"seed {seed}")

    async with listening() as (store, listener, _):
        honest = await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links and listener.master.links[0].next_offset == 0)
        told: list[int] = []
        end = put(store)
        listener.wait(end, told.append)
        lies = [struct.pack(">q", end + 1), struct.pack(">q", -1), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]
        # A first byte of 1 to 255 makes an offset far beyond the end, or below 0.
        lies += [bytes((chance.randrange(1, 256),)) + chance.randbytes(31) for _ in range(100)]
        for lie in lies:
            liar = await Reader.at(listener.port)
            liar.writer.write(lie)
            await liar.closed()
        await until(lambda: len(listener.connections) == 1)
        assert told == []
        honest.report(end)
        await until(lambda: told)
        assert told == [PutStatus.OK]


def test_many_connects_and_closes_leave_nothing_behind() -> None:
    async def scene() -> None:
        async with listening() as (_store, listener, clock):
            tasks = len(asyncio.all_tasks())
            address = ("127.0.0.1", listener.port)
            loop = asyncio.get_running_loop()

            class Visitor(asyncio.Protocol):
                def connection_made(self, transport: asyncio.BaseTransport) -> None:
                    transport.close()

            for number in range(CONNECTS):
                await loop.create_connection(Visitor, *address)
                if number % 100 == 99:
                    await until(lambda: not listener.connections)
            await until(lambda: not listener.connections)
            assert listener.master.links == []
            assert len(asyncio.all_tasks()) == tasks
            assert not [timer for timer in clock._timers if not timer.cancelled]

    run(scene(), timeout_s=120)


async def test_too_many_connections_cost_those_that_never_reported() -> None:
    async with listening() as (_store, listener, _):
        honest = await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links and listener.master.links[0].next_offset == 0)
        idle = [await Reader.at(listener.port) for _ in range(LINKS_MAX + 5)]
        await idle[0].closed()
        await until(lambda: len(listener.connections) == LINKS_PER_ADDRESS_MAX)
        assert listener.master.links[0].next_offset == 0
        assert not honest.reader.at_eof()


async def test_idle_connections_of_one_address_do_not_lock_a_replica_out() -> None:
    """They have all said where they wish to begin, and take what they are sent or not; nothing is written meanwhile."""
    async with listening(in_sync_replicas=2) as (store, listener, _):
        fakes = [await Reader.at(listener.port, 0) for _ in range(LINKS_MAX)]
        await fakes[0].closed()
        await until(lambda: len(listener.connections) == LINKS_PER_ADDRESS_MAX)
        honest = await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links[-1].next_offset == 0)
        end = put(store)
        assert await honest.frame() == (0, log_bytes(store))
        told: list[int] = []
        listener.wait(end, told.append)
        honest.report(end)
        await until(lambda: told)
        assert told == [PutStatus.OK]
        more = [await Reader.at(listener.port, 0) for _ in range(LINKS_PER_ADDRESS_MAX + 5)]
        await more[0].closed()
        assert not honest.reader.at_eof(), "it has proven to take what it is sent"


async def test_connections_of_many_addresses_leave_room_for_a_new_one() -> None:
    async with listening() as (_store, listener, _):
        for number in range(LINKS_MAX // 8):
            for _ in range(8):
                opened = await asyncio.open_connection(
                    "127.0.0.1", listener.port, local_addr=(f"127.0.1.{number + 1}", 0)
                )
                Reader(*opened).report(0)
        await until(lambda: len(listener.connections) == LINKS_MAX)
        honest = await Reader.at(listener.port, 0)
        await until(lambda: listener.master.links[-1].name.startswith("127.0.0.1:"))
        assert len(listener.connections) == LINKS_MAX
        assert not honest.reader.at_eof()


# The replica


class FakeMaster:
    """Takes connections of a follower; `peers` has them in order."""

    def __init__(self) -> None:
        self.peers: list[Reader] = []
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def serving(cls) -> "AsyncIterator[FakeMaster]":
        master = cls()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            master.peers.append(Reader(reader, writer))

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        master.port = server.sockets[0].getsockname()[1]
        try:
            yield master
        finally:
            server.close()
            await Reader.close_all()

    async def next_peer(self, number: int) -> Reader:
        await until(lambda: len(self.peers) > number)
        return self.peers[number]


async def report_of(peer: Reader) -> int:
    offset: int = struct.unpack(">q", await peer.reader.readexactly(8))[0]
    return offset


@asynccontextmanager
async def following() -> AsyncIterator[tuple[FakeMaster, Follower, ManualClock]]:
    clock = ManualClock()
    store = small_store(clock, broker_role="SLAVE")
    store.drive(wake_flush=store.flush_now)
    follower = Follower(store)
    async with FakeMaster.serving() as master:
        follower.follow(f"127.0.0.1:{master.port}")
        clock.advance(0)
        try:
            yield master, follower, clock
        finally:
            await follower.stop()
            await until(lambda: follower.connection is None)


def scene_of(act: Callable[[FakeMaster, Follower, ManualClock], Awaitable[None]]) -> Any:
    async def scene() -> None:
        async with following() as parts:
            await act(*parts)

    return scene()


@BOTH_LOOPS
def test_a_replica_appends_reports_and_builds_queues(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def act(master: FakeMaster, follower: Follower, _clock: ManualClock) -> None:
        source = small_store()
        fill(source, 1000)
        peer = await master.next_peer(0)
        assert await report_of(peer) == 0
        data = log_bytes(source)
        for at in range(0, len(data), 100):
            peer.writer.write(HEADER.pack(at, len(data[at : at + 100])) + data[at : at + 100])
        while await report_of(peer) < len(data):
            pass
        assert log_bytes(follower.store) == data
        assert follower.store.queue_bounds("T", 0) == source.queue_bounds("T", 0)

    run(scene_of(act), loop_factory=loop)


@pytest.mark.mission("HA-04")
def test_a_replica_reports_every_five_seconds_leaves_a_silent_master_and_comes_back() -> None:
    async def act(master: FakeMaster, follower: Follower, clock: ManualClock) -> None:
        peer = await master.next_peer(0)
        assert await report_of(peer) == 0
        clock.advance(4.9)
        clock.advance(0.1)
        assert await report_of(peer) == 0
        clock.advance(14.9)
        assert follower.is_connected
        clock.advance(0.1)
        await peer.closed()
        await until(lambda: not follower.is_connected)
        clock.advance(4.9)
        await asyncio.sleep(0)
        assert len(master.peers) == 1
        clock.advance(0.1)
        assert await report_of(await master.next_peer(1)) == 0

    run(scene_of(act))


@pytest.mark.mission("HA-05")
def test_a_wrong_offset_closes_the_connection_and_changes_nothing() -> None:
    async def act(master: FakeMaster, follower: Follower, clock: ManualClock) -> None:
        source = small_store()
        end = put(source)
        peer = await master.next_peer(0)
        peer.writer.write(HEADER.pack(0, end) + log_bytes(source))
        await until(lambda: follower.store.log.max_offset == end)
        peer.writer.write(HEADER.pack(end + 1, 3) + b"abc")
        await peer.closed()
        assert log_bytes(follower.store) == log_bytes(source)
        clock.advance(5)
        assert await report_of(await master.next_peer(1)) == 1

    run(scene_of(act))


def test_another_master_is_taken_at_once() -> None:
    async def act(master: FakeMaster, follower: Follower, clock: ManualClock) -> None:
        await report_of(await master.next_peer(0))
        async with FakeMaster.serving() as other:
            follower.follow(f"127.0.0.1:{other.port}")
            await until(lambda: not follower.is_connected)
            clock.advance(0)
            assert await report_of(await other.next_peer(0)) == 0
            follower.follow("")
            await (other.peers[0]).closed()
            clock.advance(60)
            assert not follower.is_connected

    run(scene_of(act))


def test_a_replica_whose_disk_failed_reports_no_more() -> None:
    async def act(master: FakeMaster, follower: Follower, clock: ManualClock) -> None:
        source = small_store()
        end = put(source)
        peer = await master.next_peer(0)
        assert await report_of(peer) == 0
        disk: Any = follower.store.disk
        disk.fail("sync", 1)
        peer.writer.write(HEADER.pack(0, end) + log_bytes(source))
        await until(lambda: follower.store.failure is not None)
        clock.advance(5)
        await peer.closed()
        clock.advance(60)
        assert len(master.peers) == 1

    run(scene_of(act))


class Backlog:
    """A log that counts as a backlog, in pieces as a test wants them."""

    def __init__(self) -> None:
        self.source = small_store()
        fill(self.source, 3900)
        self.data = log_bytes(self.source)

    def send(self, peer: Reader, begin: int = 0, end: int | None = None) -> None:
        piece = self.data[begin:end]
        peer.writer.write(HEADER.pack(begin, len(piece)) + piece)


@pytest.fixture
def backlog(monkeypatch: pytest.MonkeyPatch) -> Backlog:
    monkeypatch.setattr("cometmq.store.replication.follower.FLOWING_BYTES", 2000)
    return Backlog()


def test_while_a_backlog_flows_its_log_comes_first_and_its_queues_when_it_stops(backlog: Backlog) -> None:
    async def act(master: FakeMaster, follower: Follower, clock: ManualClock) -> None:
        store = follower.store
        woken: list[bool] = []
        store.drive(wake_dispatch=lambda: woken.append(store.log_first))
        backlog.send(await master.next_peer(0))
        await until(lambda: store.log.max_offset == len(backlog.data))
        assert store.log_first
        assert woken == []
        clock.advance(FLOW_S)
        assert woken == [True], "one step for all that came in this time"
        clock.advance(FLOW_S)
        assert woken == [True, False], "nothing came any more"
        clock.advance(1.0)
        assert len(woken) == 2

    run(scene_of(act))


def test_a_backlog_that_breaks_off_gets_its_queues(backlog: Backlog) -> None:
    async def act(master: FakeMaster, follower: Follower, _clock: ManualClock) -> None:
        store = follower.store
        peer = await master.next_peer(0)
        backlog.send(peer)
        await until(lambda: store.log_first)
        peer.writer.close()
        await until(lambda: follower.connection is None)
        assert not store.log_first
        assert store.queue_bounds("T", 0) == backlog.source.queue_bounds("T", 0)

    run(scene_of(act))


@BOTH_LOOPS
def test_the_last_bytes_of_a_backlog_wait_for_no_more(
    loop: Callable[[], asyncio.AbstractEventLoop], backlog: Backlog
) -> None:
    async def act(master: FakeMaster, follower: Follower, clock: ManualClock) -> None:
        store = follower.store
        peer = await master.next_peer(0)
        backlog.send(peer, 0, 3000)
        await until(lambda: store.log_first)
        backlog.send(peer, 3000)
        clock.advance(FLOW_S)
        clock.advance(FLOW_S)
        await until(lambda: store.log.max_offset == len(backlog.data))
        assert follower.is_caught_up

    run(scene_of(act), loop_factory=loop)


@BOTH_LOOPS
def test_a_backlog_comes_in_long_frames_that_land_where_records_are_looked_for(
    loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    landed_bytes: list[int] = []

    class Watched(Replica):
        def landed(self, count: int, now_s: float) -> bool:
            landed_bytes.append(count)
            return super().landed(count, now_s)

    monkeypatch.setattr("cometmq.store.replication.follower.Replica", Watched)
    options: dict[str, Any] = {"segment_bytes": 16 << 20, "message_bytes_max": 1 << 20}

    async def scene() -> None:
        async with listening(**options) as (source, listener, clock):
            while source.log.max_offset < BACKLOG_BYTES + (4 << 20):
                put(source, os.urandom(100_000))
            store = small_store(clock, broker_role="SLAVE", **options)
            store.drive(wake_flush=store.flush_now)
            follower = Follower(store)
            follower.follow(f"127.0.0.1:{listener.port}")
            while store.log.max_offset < source.log.max_offset:
                clock.advance(FLOW_S / 10)
                await asyncio.sleep(0.001)
            await follower.stop()
            await until(lambda: follower.connection is None)
            assert log_bytes(store) == log_bytes(source)

    run(scene(), loop_factory=loop)
    assert sum(landed_bytes) > 2 << 20
