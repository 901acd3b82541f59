"""Checks cometmq.store.log.allocation: rolling to segments that another thread makes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.clock import ManualClock, SystemClock
from cometmq.store.disk import DiskFull, OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.allocation import RETRY_S, ROLL_WAIT_S, Allocation
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.segments import Segments
from cometmq.store.log.write_flags import Flags
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutStatus
from cometmq.store.workers import Act, InlineWorker, ThreadWorker
from tests.support.logs import LOG_DIR, make_log, message, records


class Posts:
    """What a loop would run: reports gather here until the test runs them."""

    def __init__(self) -> None:
        self._acts: list[Act] = []

    def post(self, act: Act) -> None:
        self._acts.append(act)

    def run(self) -> None:
        while self._acts:
            self._acts.pop(0)()


@pytest.fixture
def posts() -> Posts:
    return Posts()


@pytest.fixture
def worker(posts: Posts) -> Iterator[ThreadWorker]:
    worker = ThreadWorker("allocate", posts.post)
    yield worker
    worker.stop()


class SlowDisk(FakeDisk):
    """Reserving blocks takes as long as `gate` is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.on_call = self._wait

    def _wait(self, operation: str, _path: str) -> None:
        if operation == "allocate":
            assert self.gate.wait(20)


def put(log: CommitLog, body_bytes: int = 1500) -> int:
    return log.append(message(body=bytes(body_bytes))).status


def test_segments_lie_ready_before_they_are_needed(posts: Posts, worker: ThreadWorker) -> None:
    disk = FakeDisk()
    log = make_log(disk, segment_bytes=4096)
    allocation = Allocation(log.segments, worker, ManualClock())
    allocation.attach()
    for _ in range(30):
        assert put(log) == PutStatus.OK
        posts.run()
    worker.stop()
    posts.run()
    last = log.segments.last()
    assert last is not None
    assert sorted(log.segments.prepared) == [last.end, last.end + 4096]
    allocation.detach()
    assert disk.list_files(LOG_DIR) == [f"{segment.start:020d}" for segment in log.segments.segments]


@pytest.mark.mission("MF-02")
def test_a_stalled_disk_refuses_puts_without_stopping_the_loop_and_later_ones_succeed(
    posts: Posts, worker: ThreadWorker
) -> None:
    """RocketMQ's writer waits 5 s here; ours 20 ms once, however many sends come meanwhile."""
    disk = SlowDisk()
    log = make_log(disk, segment_bytes=4096)
    Allocation(log.segments, worker, SystemClock()).attach()
    assert put(log) == PutStatus.OK
    assert put(log) == PutStatus.OK
    disk.gate.clear()
    end = log.max_offset
    _use_up_prepared(log)
    began_s = time.monotonic()
    statuses = {put(log) for _ in range(1000)}
    elapsed_s = time.monotonic() - began_s
    assert statuses == {PutStatus.CREATE_FILE_FAILED}
    assert log.max_offset == end
    assert ROLL_WAIT_S <= elapsed_s < 10, "the wait is made once, not by every send"
    # What still fits the current segment is taken, and reads go on.
    assert put(log, 10) == PutStatus.OK
    assert len(records(log)) == 3
    disk.gate.set()
    _until(lambda: put(log) == PutStatus.OK, posts)
    assert [record.queue_offset for record in records(log)] == [0, 1, 2, 3]


def _use_up_prepared(log: CommitLog) -> None:
    """Whatever was ready is gone: the next roll must wait for the stalled disk."""
    log.segments.drop_prepared()


def _until(condition: Act, posts: Posts) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        posts.run()
        time.sleep(0.001)


@pytest.mark.mission("MF-02")
def test_a_full_disk_refuses_with_not_available_and_writing_resumes_with_room() -> None:
    clock = ManualClock()
    disk = FakeDisk()
    log = make_log(disk, clock, segment_bytes=4096)
    Allocation(log.segments, InlineWorker(), clock).attach()
    disk.full_after(3 * 4096)
    statuses = [put(log) for _ in range(40)]
    stored = statuses.count(PutStatus.OK)
    assert statuses == [PutStatus.OK] * stored + [PutStatus.SERVICE_NOT_AVAILABLE] * (40 - stored)
    assert len(records(log)) == stored >= 6
    tries = disk.calls["allocate"]
    put(log)
    assert disk.calls["allocate"] == tries, "not tried again for every send"
    clock.advance(RETRY_S)
    assert put(log) == PutStatus.SERVICE_NOT_AVAILABLE
    disk.full_after(None)
    clock.advance(RETRY_S)
    assert put(log) == PutStatus.OK
    assert [record.queue_offset for record in records(log)] == list(range(stored + 1))


@pytest.mark.mission("MF-02")
def test_an_error_fails_callers_at_once_and_the_segment_is_tried_again() -> None:
    clock = ManualClock()
    disk = FakeDisk()
    log = make_log(disk, clock, segment_bytes=4096)
    disk.fail("allocate", 1)
    Allocation(log.segments, InlineWorker(), clock).attach()
    refused = log.append(message())
    assert refused.status == PutStatus.CREATE_FILE_FAILED
    assert "Input/output error" in refused.remark
    clock.advance(RETRY_S)
    assert put(log) == PutStatus.OK


def test_a_segment_is_asked_for_once_however_often_it_is_wanted(posts: Posts, worker: ThreadWorker) -> None:
    disk = SlowDisk()
    log = make_log(disk, segment_bytes=4096)
    allocation = Allocation(log.segments, worker, SystemClock())
    disk.gate.clear()
    for _ in range(10):
        allocation.want(0)
    disk.gate.set()
    worker.stop()
    assert disk.calls["allocate"] == 1
    assert list(log.segments.prepared) == [0]


def test_a_segment_made_too_late_is_removed_at_the_end(posts: Posts, worker: ThreadWorker) -> None:
    disk = SlowDisk()
    log = make_log(disk, segment_bytes=4096)
    allocation = Allocation(log.segments, worker, SystemClock())
    disk.gate.clear()
    allocation.want(0)
    disk.gate.set()
    worker.stop()
    allocation.detach()
    assert disk.list_files(LOG_DIR) == []
    assert put(log) == PutStatus.OK, "without a thread the log makes its segments itself"


def _real_log(root: Path, segment_bytes: int, **options: bool) -> CommitLog:
    settings = StoreOptions(root_dir=str(root), segment_bytes=segment_bytes, **options)  # type: ignore[arg-type]
    segments = Segments(OsDisk(), settings.commitlog_dirs(), segment_bytes, warm=settings.warm_segments)
    return CommitLog(segments, Flags(), SystemClock(), settings)


@pytest.mark.mission("MF-02")
def test_fifty_rolls_under_load_keep_no_append_waiting(tmp_path: Path, posts: Posts, worker: ThreadWorker) -> None:
    """Real disk, 1 MiB segments, some 50 MB/s, reports taken as an event loop does."""
    log = _real_log(tmp_path, 1 << 20)
    Allocation(log.segments, worker, SystemClock()).attach()
    slowest: list[float] = []
    # The machine may be busy with other things: of three runs of 50 rolls, one must be undisturbed.
    while len(slowest) < 3 and min(slowest, default=1.0) >= 0.05:
        slowest.append(_slowest_append(log, posts, len(log.segments.segments) + 50))
    assert min(slowest) < 0.05, f"slowest append of each run in s: {slowest}"


def _slowest_append(log: CommitLog, posts: Posts, segments: int) -> float:
    """Append until there are so many segments; infinity if an append was refused."""
    request = message(body=bytes(8000))
    longest_s = 0.0
    while len(log.segments.segments) < segments:
        began_s = time.perf_counter()
        if log.append(request).status != PutStatus.OK:
            longest_s = float("inf")
        longest_s = max(longest_s, time.perf_counter() - began_s)
        posts.run()
        # A broker's loop waits for its sockets now and then, which is when other threads run.
        time.sleep(0.0001)
    return longest_s


@pytest.mark.mission("MF-03")
@pytest.mark.parametrize("warm", [False, True])
def test_appends_around_a_roll_are_about_as_quick_as_others(
    tmp_path: Path, posts: Posts, worker: ThreadWorker, warm: bool
) -> None:
    """The 99.9th percentile of the appends around a roll is within 3 times the overall one; no byte differs."""
    segment_bytes = 16 << 20
    log = _real_log(tmp_path, segment_bytes, warm_segments=warm)
    Allocation(log.segments, worker, SystemClock()).attach()
    request = message(body=bytes(1024))
    ratios: list[float] = []
    for _ in range(3):
        times: list[float] = []
        rolled_at: list[int] = []
        segments_before = len(log.segments.segments)
        while len(log.segments.segments) < segments_before + 3:
            before = len(log.segments.segments)
            began_s = time.perf_counter()
            assert log.append(request).status == PutStatus.OK
            times.append(time.perf_counter() - began_s)
            if len(log.segments.segments) > before:
                rolled_at.append(len(times) - 1)
            if len(times) % 32 == 0:
                posts.run()
                time.sleep(0)
        near = [took for at in rolled_at for took in times[max(0, at - 3000) : at + 3000]]
        ratios.append(_percentile(near) / _percentile(times))
        if ratios[-1] <= 3:
            break
    assert min(ratios) <= 3, f"99.9th percentile around rolls / overall, three runs: {ratios}"
    assert {bytes(record.body) for record in records(log)[-100:]} == {bytes(1024)}


def _percentile(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.999)]


def test_warming_a_segment_changes_no_byte(tmp_path: Path) -> None:
    content = {}
    for warm in (False, True):
        log = _real_log(tmp_path / str(warm), 65_536, warm_segments=warm)
        log._store_time_ms = 1 << 42
        for number in range(100):
            log.append(message(body=b"%d" % number))
        log.segments.flush(0)
        content[warm] = [path.read_bytes() for path in sorted((tmp_path / str(warm) / "commitlog").iterdir())]
    assert content[True] == content[False]


def test_disk_full_is_told_from_other_errors() -> None:
    assert issubclass(DiskFull, Exception)
    assert not issubclass(DiskFull, OSError)
