"""Checks cometmq.store.background: with a manual clock and no threads, then with real ones."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock, SystemClock
from cometmq.store.background import Background
from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.log.flush import Callback
from cometmq.store.results import GetStatus, PutResult, PutStatus
from cometmq.store.store import Store
from cometmq.store.workers import Act, InlineWorker
from tests.support.logs import message
from tests.support.net import until
from tests.support.whole_store import ROOT, open_store, queue_bodies

PAGE = 4096


class Still:
    """A store whose background runs when the test moves the clock, and only then."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.disk = FakeDisk(now_ms=self.clock.now_ms)
        self.store = open_store(self.disk, self.clock, **{"segment_bytes": 1 << 20, **options})
        self.background = Background(self.store, lambda act: act(), lambda _name: InlineWorker())
        self.background.start()

    @property
    def unflushed_bytes(self) -> int:
        return self.store.log.max_offset - self.store.log.flushed_offset


# ASYNC_FLUSH


@pytest.mark.mission("FL-04")
def test_one_small_message_is_flushed_by_ten_and_a_half_seconds_and_five_pages_within_600_ms() -> None:
    still = Still()
    still.store.put(message())
    still.clock.advance(0.5)
    assert still.unflushed_bytes > 0, "a few bytes are not worth a sync yet"
    still.clock.advance(10.0)
    assert still.unflushed_bytes == 0
    still.store.put(message(body=bytes(5 * PAGE)))
    still.clock.advance(0.6)
    assert still.unflushed_bytes < PAGE


@pytest.mark.mission("FL-04")
def test_the_stated_loss_window_is_the_measured_one() -> None:
    """The oldest message that is not on disk, watched every 50 ms for two minutes under small and rare puts."""
    still = Still()
    put_at: list[tuple[int, float]] = []
    oldest_s = 0.0
    for tick in range(2400):
        if tick % 7 == 0:
            put_at.append((still.store.put(message(body=b"")).end_offset, still.clock.monotonic()))
        still.clock.advance(0.05)
        while put_at and put_at[0][0] <= still.store.log.flushed_offset:
            put_at.pop(0)
        if put_at:
            oldest_s = max(oldest_s, still.clock.monotonic() - put_at[0][1])
    stated_s = still.store.options.loss_window_ms / 1000
    assert stated_s - 1.0 <= oldest_s <= stated_s
    assert open_store(FakeDisk(), flush_disk_type="SYNC_FLUSH").options.loss_window_ms == 0


def test_puts_do_not_wake_the_timed_flusher_unless_the_setting_says_so() -> None:
    still = Still()
    still.store.put(message())
    assert still.unflushed_bytes > 0
    asleep = Still(flush_wake_on_put=True)
    asleep.store.put(message())
    assert asleep.unflushed_bytes > 0, "flushCommitLogTimed sleeps through it"
    eager = Still(flush_wake_on_put=True, flush_timed=False)
    eager.store.put(message())
    assert eager.unflushed_bytes == 0


# Queues


@pytest.mark.mission("FL-07")
def test_queues_are_flushed_every_second_from_two_pages_and_wholly_every_minute() -> None:
    still = Still(queue_file_bytes=100_000, index_enabled=False, segment_bytes=1 << 22)
    synced: list[str] = []
    still.disk.on_call = lambda operation, path: (
        synced.append(path) if operation == "sync" and "/consumequeue/" in path else None
    )
    still.clock.advance(2)
    still.store.put(message("Small"))
    for _ in range(2 * PAGE // 20):
        still.store.put(message("Large"))
    still.clock.advance(1)
    assert synced == [], "a few bytes below two pages"
    assert still.store.queues.pending == 0, "yet everything is in the kernel"
    still.store.put(message("Large"))
    still.clock.advance(1)
    assert synced == [f"{ROOT}/consumequeue/Large/0/{0:020d}"]
    still.clock.advance(61)
    assert f"{ROOT}/consumequeue/Small/0/{0:020d}" in synced
    assert all(queue.files.unsynced_bytes == 0 for queue in still.store.queues.all())
    assert still.unflushed_bytes == 0
    assert not still.store.checkpoint.dirty
    assert still.store.checkpoint.logics_physical_offset > 0
    image = still.disk.crash(1)
    for path in synced:
        assert image.read_bytes(path) == still.disk.read_bytes(path)


def test_the_checkpoint_of_the_queues_moves_only_with_a_thorough_flush() -> None:
    still = Still(queue_file_bytes=100_000)
    still.clock.advance(1.5)
    for _ in range(1000):
        still.store.put(message())
    still.clock.advance(50)
    assert still.store.checkpoint.logics_physical_offset == 0
    still.clock.advance(11)
    assert still.store.checkpoint.logics_physical_offset > 0


def test_a_thorough_flush_writes_the_queues_that_earlier_rounds_left_out() -> None:
    still = Still()
    still.clock.advance(1.5)
    still.store.queues.round_queues_min = 1
    for number in range(600):
        still.store.put(message(f"Topic{number}"))
    still.clock.advance(1)
    assert still.store.queues.pending == 540
    assert still.store.checkpoint.logics_physical_offset == 0
    still.clock.advance(60)
    assert still.store.queues.pending == 0
    newest = max(queue.max_physical for queue in still.store.queues.all())
    assert 0 < still.store.checkpoint.logics_physical_offset < newest
    image = still.disk.crash(1)
    for number in range(600):
        path = f"{ROOT}/consumequeue/Topic{number}/0/{0:020d}"
        assert image.read_bytes(path) == still.disk.read_bytes(path)


def test_a_failed_sync_in_the_background_makes_the_store_read_only() -> None:
    for part in ("commitlog", "consumequeue", "checkpoint"):
        still = Still()
        still.store.put(message(body=bytes(5 * PAGE)))
        alarms: list[OSError] = []
        still.store.subscribe(failed=alarms.append)
        error = OSError(5, part)

        def fail_part(operation: str, path: str, part: str = part, error: OSError = error) -> None:
            if operation == "sync" and part in path:
                raise error

        still.disk.on_call = fail_part
        still.clock.advance(62)
        assert (alarms, still.store.put(message()).status) == ([error], PutStatus.SERVICE_NOT_AVAILABLE), part
        syncs = still.disk.calls["sync"]
        still.clock.advance(120)
        still.background.stop()
        still.store.close()
        assert still.disk.calls["sync"] == syncs, f"after {part} failed nothing may be synced again"


def test_old_segments_go_and_queues_follow() -> None:
    still = Still(segment_bytes=16_384, file_reserved_hours=0, delete_when=";".join(map(str, range(24))))
    for _ in range(200):
        still.store.put(message(body=bytes(1000)))
        still.clock.advance(0.001)
    assert len(still.store.segments.segments) > 10
    for _ in range(40):
        still.clock.advance(10)
    assert len(still.store.segments.segments) == 1
    assert still.store.queues.min_offset("TopicA", 0) > 150


def test_files_that_expire_while_they_wait_for_their_sync_are_no_failure(tmp_path: Path) -> None:
    """Queue files and directories of a deleted topic, index files; the upkeep thread comes when they are gone."""
    clock = ManualClock()
    store = open_store(OsDisk(), clock, str(tmp_path), index_entries=20, queue_file_bytes=200)
    waiting: list[tuple[Act, Act]] = []

    class Late(InlineWorker):
        def submit(self, act: Act, report: Act) -> None:
            waiting.append((act, report))

    background = Background(store, lambda act: act(), lambda name: Late() if name == "upkeep" else InlineWorker())
    background.start()
    for number in range(60):
        store.put(message(properties=f"KEYS\x01k{number}\x02"))
    clock.advance(1)
    assert len(store.index.to_sync()) > 1
    store.delete_topic("TopicA")
    store.index.destroy_all()
    assert waiting
    for act, report in waiting:
        act()
        report()
    assert store.failure is None
    assert store.put(message()).status == PutStatus.OK
    background.stop()
    store.close()


def test_stopping_ends_all_timers_and_the_store_goes_on_without_them() -> None:
    still = Still(flush_disk_type="SYNC_FLUSH")
    still.background.stop()
    told: list[int] = []
    request = message()
    assert still.store.put_waiting(request, still.store.put(request), told.append)
    still.clock.advance(3)
    assert told == []
    still.store.flush_now()
    assert told == [PutStatus.OK]
    still.store.close()


# With threads


class Live:
    """A store with real threads on a fake disk whose sync of the log takes a while."""

    def __init__(self, sync_s: float, **options: Any) -> None:
        self.disk = FakeDisk()
        self.sync_s = sync_s
        self.disk.on_call = self._sleep
        self.log_syncs = 0
        self.store: Store = open_store(self.disk, SystemClock(), flush_disk_type="SYNC_FLUSH", **options)
        self.background = Background(self.store, asyncio.get_running_loop().call_soon_threadsafe)
        self.background.start()

    def _sleep(self, operation: str, path: str) -> None:
        if operation == "sync" and "/commitlog/" in path:
            self.log_syncs += 1
            time.sleep(self.sync_s)

    async def put(self, body_bytes: int = 100, wait: bool = True) -> tuple[PutResult, int]:
        """The put and its final status."""
        request = message(body=bytes(body_bytes), wait=wait)
        result = self.store.put(request)
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not self.store.put_waiting(request, result, told.set_result):
            return result, result.status
        return result, await told

    def durable_end(self) -> int:
        """Up to where the device has what was written, by the disk's own books."""
        for segment in self.store.segments.segments:
            node = self.disk._node(segment.file.path)
            if node.durable != node.content:
                same = next(at for at in range(segment.size) if node.durable[at] != node.content[at])
                return segment.start + same
        return self.store.log.max_offset

    def stop(self) -> None:
        self.background.stop()
        self.store.close()


@pytest.mark.mission("FL-01")
async def test_1000_concurrent_sends_share_their_flushes_and_no_ack_comes_early() -> None:
    live = Live(sync_s=0.005, segment_bytes=1 << 16)
    early: list[int] = []

    async def writer() -> None:
        for _ in range(10):
            result, status = await live.put()
            assert status == PutStatus.OK
            if live.durable_end() < result.end_offset:
                early.append(result.physical_offset)

    await asyncio.gather(*[writer() for _ in range(100)])
    assert live.store.log.metrics.messages == 1000
    assert len(live.store.segments.segments) >= 3, "messages that roll the file are among them"
    assert live.log_syncs < 300
    assert early == []
    live.stop()


@pytest.mark.mission("FL-03")
async def test_wait_false_is_answered_at_once_and_flushed_by_the_next_round() -> None:
    live = Live(sync_s=1.0)
    frozen: list[tuple[int, Callback]] = []
    live.store.promise_copies(lambda end_offset, callback: frozen.append((end_offset, callback)))
    # One that waits keeps the disk busy, so that the next ones meet a running flush.
    waiting = asyncio.create_task(live.put())
    await until(lambda: live.log_syncs == 1)
    result, status = await live.put(wait=False)
    assert (status, waiting.done(), live.log_syncs) == (PutStatus.OK, False, 1), "the disk is still at the first"
    assert live.store.log.flushed_offset < result.end_offset
    await until(lambda: live.store.log.flushed_offset == result.end_offset, "the next round")
    assert len(frozen) == 1, "only the one that waits asked the replica"
    frozen[0][1](PutStatus.OK)
    assert (await waiting)[1] == PutStatus.OK
    live.stop()


async def test_a_slow_disk_does_not_stop_the_loop() -> None:
    live = Live(sync_s=0.6)
    puts = [asyncio.create_task(live.put()) for _ in range(10)]
    longest_s = 0.0
    while not all(put.done() for put in puts):
        began_s = time.monotonic()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.monotonic() - began_s)
    assert longest_s < 0.5
    live.stop()


async def test_stopping_waits_for_the_running_flush_and_takes_its_result() -> None:
    live = Live(sync_s=0.2)
    put = asyncio.create_task(live.put())
    await until(lambda: live.log_syncs == 1)
    live.stop()
    assert (await put)[1] == PutStatus.OK
    assert not live.disk.exists(f"{ROOT}/abort")


async def test_cold_pages_are_loaded_by_the_read_thread() -> None:
    disk = FakeDisk()
    store = open_store(disk)
    store.put(message(body=b"cold"))
    store.close()
    store = open_store(disk, SystemClock())
    background = Background(store, asyncio.get_running_loop().call_soon_threadsafe)
    background.start()
    disk.cold_paths.add(f"{ROOT}/commitlog/{0:020d}")
    result = store.get("TopicA", 0, 0, 32)
    assert result is not None
    assert result.cold
    loaded = asyncio.get_running_loop().create_future()
    background.load_pages(result, lambda: loaded.set_result(None))
    await loaded
    disk.cold_paths.clear()
    again = store.get("TopicA", 0, 0, 32)
    assert again is not None
    assert again.status == GetStatus.FOUND
    assert queue_bodies(store, "TopicA") == [b"cold"]
    background.stop()
    store.close()


def test_a_replica_that_gets_a_backlog_builds_its_queues_a_step_at_a_time() -> None:
    source = open_store(FakeDisk(), ManualClock(), segment_bytes=8 << 20)
    while source.log.max_offset < 3 << 20:
        source.put(AppendRequest("T", 0, bytes(60_000)))
    found = source.log.read_from(0)
    assert found is not None

    class Slow(ManualClock):
        """A step takes a second."""

        def monotonic(self) -> float:
            self.seconds = getattr(self, "seconds", 0.0) + 1.0
            return self.seconds

    store = open_store(FakeDisk(), Slow(), segment_bytes=8 << 20, broker_role="SLAVE")
    posted: list[Act] = []
    background = Background(store, posted.append, lambda _name: InlineWorker())
    background.start()
    store.log.append_raw(0, found[1][: source.log.max_offset])

    def built() -> int:
        store.wake_dispatch()
        while posted:
            posted.pop()()
        return store.dispatcher.position

    store.put_log_first(True)
    assert 1 << 20 <= built() < 2 << 20
    assert 2 << 20 <= built() < 3 << 20
    store.put_log_first(False)
    assert built() == source.log.max_offset
    background.stop()
