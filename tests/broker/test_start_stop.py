"""In which order a broker starts and stops, what runs by its clock, and what a failed start leaves: nothing."""

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.broker.server import Broker
from cometmq.cli import store as store_command
from cometmq.clock import ManualClock, ManualTimer
from cometmq.errors import CometError, StoreError
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.server import Server
from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply
from tests.support.aio import settle
from tests.support.brokers import Peer, add_topic, broker_settings, running_broker, stored
from tests.support.net import RawPeer, until


def can_connect(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Events(list[str]):
    """What happened, each kind once, in order."""

    def note(self, event: str) -> None:
        if event not in self:
            self.append(event)


class NotingClock(ManualClock):
    def __init__(self, events: Events) -> None:
        super().__init__()
        self.events = events

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualTimer:
        self.events.note(f"timer of {delay_s:g} s")
        return super().call_later(delay_s, callback)


@pytest.mark.mission("BS-01")
async def test_the_store_is_loaded_before_anybody_is_served_and_name_servers_hear_of_it_last(tmp_path: Path) -> None:
    events = Events()
    clock = NotingClock(events)
    disk = FakeDisk(now_ms=clock.now_ms)

    async def take(_: Connection, received: Command) -> Command:
        if received.code == Request.REGISTER_BROKER:
            events.note("registered")
            assert can_connect(broker.port)
            assert can_connect(broker.port - 2)
        return reply(received)

    names = Server(Dispatcher(take, Family("names", 10)))
    await names.start("127.0.0.1", 0)
    broker = Broker(broker_settings(tmp_path, namesrvAddr=f"127.0.0.1:{names.port}"), clock, disk)

    def on_disk(operation: str, path: str) -> None:
        if "registered" not in events:
            events.note(f"{operation} {Path(path).name.lstrip('0') or 'segment'}")
            if operation in ("lock", "replace"):
                assert not can_connect(broker.port), "served before the store was loaded"

    disk.on_call = on_disk
    await broker.start()
    # Parked pulls are swept every 5 s, slow groups looked for every 180 s: the first and the last of the timers.
    order = ["lock lock", "replace abort", "timer of 5 s", "timer of 180 s", "registered"]
    positions = [events.index(event) for event in order]
    assert positions == sorted(positions), events
    # The regular registration begins when the first one is on its way.
    assert "timer of 10 s" in events
    async with Peer.of(broker) as peer:
        assert (await peer.send("TopicA")).code == 0
    await broker.stop()
    await names.stop()


# A start that fails


@pytest.mark.parametrize("taken_offset", [0, -2])
async def test_a_start_without_its_ports_leaves_nothing(tmp_path: Path, taken_offset: int) -> None:
    others = set(threading.enumerate())

    broker = Broker(broker_settings(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", broker.port + taken_offset))
        taken.listen()
        with pytest.raises(CometError, match=str(broker.port + taken_offset)):
            await broker.start()
    left = set(threading.enumerate()) - others
    assert not [thread.name for thread in left if thread.name.startswith("cometmq-")]
    assert len(asyncio.all_tasks()) == 1
    assert not (tmp_path / "store/abort").exists()
    async with running_broker(tmp_path) as again:
        assert not again.store.crashed


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"])
async def test_a_table_without_a_good_copy_refuses_the_start(tmp_path: Path, name: str) -> None:
    async with running_broker(tmp_path) as broker:
        broker.tables.offsets.commit("g", "T", 0, 5, "c")
    path = tmp_path / "store/config" / name
    path.write_bytes(b'{"half a')
    path.with_name(name + ".bak").unlink(missing_ok=True)
    broker = Broker(broker_settings(tmp_path))
    with pytest.raises(StoreError, match=name):
        await broker.start()
    assert not can_connect(broker.port)
    assert not (tmp_path / "store/abort").exists()


async def test_a_second_broker_in_the_same_process_refuses_too(tmp_path: Path) -> None:
    """Record locks do not count inside one process, so the disk remembers them itself."""
    async with running_broker(tmp_path) as first, Peer.of(first) as peer:
        with pytest.raises(StoreError, match="lock"):
            await Broker(broker_settings(tmp_path)).start()
        assert (await peer.send("TopicA")).code == 0


# By the clock


class AskedDisk(FakeDisk):
    """Notes when it is asked how full it is, which is what a round of cleaning begins with."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(now_ms=clock.now_ms)
        self.clock = clock
        self.asked_s: list[float] = []

    def used_ratio(self, path: str) -> float:
        now_s = self.clock.monotonic()
        if not self.asked_s or self.asked_s[-1] != now_s:
            self.asked_s.append(now_s)
        return super().used_ratio(path)


@pytest.mark.mission("BS-06")
async def test_cleaning_and_self_check_come_by_the_clock(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    disk = AskedDisk(clock)
    settings = {"mappedFileSizeCommitLog": 4096}
    async with running_broker(tmp_path, clock, disk, **settings) as broker, Peer.of(broker) as peer:
        for _ in range(40):
            assert (await peer.send("TopicA", b"x" * 300)).code in (0, 1)
        assert len(broker.store.segments.segments) >= 3
        disk.asked_s.clear()
        caplog.clear()
        del broker.store.segments.segments[1]
        for _ in range(1261):
            clock.advance(1)
        assert disk.asked_s[:4] == [60, 70, 80, 90]
        assert len(disk.asked_s) == 121
        found = [record for record in caplog.records if "found gap between segments" in record.getMessage()]
        assert len(found) == 3, "after 1, 11 and 21 minutes"


@pytest.mark.mission("BS-06")
async def test_a_removed_middle_segment_is_reported_by_start_and_by_the_checking_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"mappedFileSizeCommitLog": 8192}
    async with running_broker(tmp_path, **settings) as broker, Peer.of(broker) as peer:
        for _ in range(60):
            await peer.send("TopicA", b"x" * 300)
            await until(lambda: broker.store.segments.prepared)
    (tmp_path / "store/commitlog/00000000000000008192").unlink()
    assert store_command.main(["check", str(tmp_path / "store")]) == 1
    assert "8192" in capsys.readouterr().out
    async with running_broker(tmp_path, **settings):
        assert any("found gap between segments" in record.getMessage() for record in caplog.records)


# Stopping


@pytest.mark.mission("BS-07")
async def test_a_stalled_dispatcher_is_waited_for_5_seconds_then_named_and_the_abort_file_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    broker = Broker(broker_settings(tmp_path), clock, disk)
    await broker.start()

    def fail_index(operation: str, path: str) -> None:
        if "/index/" in path and operation in ("open", "allocate"):
            raise OSError(errno.EIO, "no index today", path)

    disk.on_call = fail_index
    async with Peer.of(broker) as peer:
        assert (await peer.send("TopicA")).code == 0
    end = broker.store.log.max_offset
    assert broker.store.dispatcher.behind_bytes > 0
    began_s = asyncio.get_running_loop().time()
    await broker.stop()
    took_s = asyncio.get_running_loop().time() - began_s
    assert 5 <= took_s < 20
    (line,) = [it.getMessage() for it in caplog.records if "gave up waiting for dispatch" in it.getMessage()]
    assert line.endswith(f"at=0 log_end={end}")
    assert disk.exists(str(tmp_path / "store/abort"))


@pytest.mark.mission("BS-07")
async def test_a_dispatcher_that_catches_up_in_time_stops_clean(tmp_path: Path) -> None:
    disk = FakeDisk()
    broker = Broker(broker_settings(tmp_path), None, disk)
    await broker.start()
    fails_left = [1]

    def fail_index_once(operation: str, path: str) -> None:
        if "/index/" in path and operation == "open" and fails_left[0]:
            fails_left[0] -= 1
            raise OSError(errno.EIO, "not yet", path)

    disk.on_call = fail_index_once
    async with Peer.of(broker) as peer:
        assert (await peer.send("TopicA")).code == 0
    assert broker.store.dispatcher.behind_bytes > 0
    await broker.stop()
    assert not disk.exists(str(tmp_path / "store/abort"))


def stalled_sync(may_end: threading.Event) -> Callable[[str, str], None]:
    def stall(operation: str, path: str) -> None:
        if operation == "sync" and "commitlog" in path:
            may_end.wait(20)

    return stall


@asynccontextmanager
async def hundred_sends(
    tmp_path: Path, disk: FakeDisk
) -> AsyncIterator[tuple[Broker, list[asyncio.Task[Command]], threading.Event]]:
    """A broker with sends that wait for its disk, until the event is set. Whoever enters stops the broker."""
    flush_may_end = threading.Event()
    broker = Broker(broker_settings(tmp_path, flushDiskType="SYNC_FLUSH"), None, disk)
    await broker.start()
    add_topic(broker, "TopicA")
    await broker.rooms.settled()
    disk.on_call = stalled_sync(flush_may_end)
    async with Peer.of(broker) as peer:
        sends = [asyncio.create_task(peer.send("TopicA")) for _ in range(100)]
        await until(lambda: broker.rooms.families["send"].waiting == 100)
        yield broker, sends, flush_may_end


@pytest.mark.mission("BS-07")
async def test_waiting_sends_are_answered_or_cut_within_a_second_of_the_stop(tmp_path: Path) -> None:
    """The disk takes its time, so all hundred still wait when the stop begins."""
    disk = FakeDisk()
    async with hundred_sends(tmp_path, disk) as (broker, sends, flush_may_end):
        began_s = asyncio.get_running_loop().time()
        stopping = asyncio.create_task(broker.stop())
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert asyncio.get_running_loop().time() - began_s < 10, "the disk may take 20 s"
        assert all(isinstance(result, CometError) for result in results), "cut, not acked: the disk has not spoken"
        flush_may_end.set()
        await stopping
    assert broker.store.log.flushed_offset == broker.store.log.max_offset
    assert not disk.exists(str(tmp_path / "store/abort"))


@pytest.mark.mission("BS-07")
async def test_waiting_sends_whose_flush_comes_in_time_are_acked_during_the_stop(tmp_path: Path) -> None:
    async with hundred_sends(tmp_path, FakeDisk()) as (broker, sends, flush_may_end):
        stopping = asyncio.create_task(broker.stop())
        await settle()
        flush_may_end.set()
        assert {(await send).code for send in sends} == {0}
        await stopping


async def test_a_stop_saves_offsets_and_the_next_start_has_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA")
        await peer.pull("TopicA", commit=1)
    async with running_broker(tmp_path) as broker:
        assert broker.tables.offsets.query("consumers", "TopicA", 0) == 1
        assert broker.tables.groups.get("consumers") is not None
        assert len(stored(broker, "TopicA")) == 1


@pytest.mark.mission("CG-10")
async def test_a_crash_takes_offsets_back_by_5_seconds_at_most_and_never_forward(tmp_path: Path) -> None:
    """Every second a commit; what is in the file then is what a crash would leave."""
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        await peer.pull("TopicA")
        for second in range(1, 41):
            fields = {"consumerGroup": "consumers", "topic": "TopicA", "queueId": 0, "commitOffset": second}
            assert (await peer.call(Request.UPDATE_CONSUMER_OFFSET, **fields)).code == 0
            clock.advance(1)
            await until(lambda: not broker.tables.files.is_saving("consumerOffset.json"))
            path = tmp_path / "store/config/consumerOffset.json"
            if second >= 15:
                crashed = tmp_path / f"crashed-{second}/store/config"
                crashed.mkdir(parents=True)
                (crashed / path.name).write_bytes(path.read_bytes())
                survivor = Broker(broker_settings(crashed.parent.parent), clock)
                survivor.load_tables()
                left = survivor.tables.offsets.query("consumers", "TopicA", 0)
                assert second - 5 <= left <= second


async def test_a_stop_with_connected_and_silent_clients_does_not_hang(tmp_path: Path) -> None:
    broker = Broker(broker_settings(tmp_path))
    await broker.start()
    async with RawPeer.connected(broker.port), RawPeer.connected(broker.port - 2) as half:
        half.write(b"\0\0\1\0")
        await until(lambda: len(broker.server.connections) == len(broker.fast_server.connections) == 1)
        await asyncio.wait_for(broker.stop(), 30)
    assert len(asyncio.all_tasks()) == 1


async def test_a_disk_that_failed_takes_no_messages_and_keeps_the_abort_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FakeDisk()
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with running_broker(tmp_path, None, disk, **settings) as broker, Peer.of(broker) as peer:
        assert (await peer.send("TopicA")).code == 0
        disk.fail("sync", 1)
        answer = await peer.send("TopicA")
        assert answer.code == 14
        answer = await peer.send("TopicA")
        assert answer.code == 14
        assert "% full" in (answer.remark or "")
        assert len(await peer.pull_messages("TopicA")) >= 1, "what is there can be read"
    assert disk.exists(str(tmp_path / "store/abort"))
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)


async def test_the_real_disk_is_used_unless_another_is_given(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        assert isinstance(broker.store.disk, OsDisk)
        assert (tmp_path / "store/commitlog").is_dir()
