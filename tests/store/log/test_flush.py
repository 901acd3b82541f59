"""Checks cometmq.store.log.flush on a fake disk and a manual clock: who is told what, and when."""

import errno
import logging
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.checkpoint import Checkpoint
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.flush import Flusher
from cometmq.store.options import StoreOptions
from cometmq.store.results import PutStatus
from tests.support.logs import ROOT, make_log, message, records


class Bench:
    """A log with its flusher; `answers` has (name, status) in the order in which waiters were told."""

    def __init__(self, segment_bytes: int = 1 << 20, **options: Any) -> None:
        self.clock = ManualClock()
        self.disk = FakeDisk(now_ms=self.clock.now_ms)
        self.log: CommitLog = make_log(self.disk, self.clock, segment_bytes, **options)
        self.checkpoint = Checkpoint(self.disk, f"{ROOT}/checkpoint")
        self.failures: list[OSError] = []
        self.flusher = Flusher(
            self.log.segments,
            self.checkpoint,
            self.clock,
            StoreOptions(root_dir=ROOT, **options),
            on_flushed=lambda: None,
            on_failed=self.failures.append,
        )
        self.answers: list[tuple[str, int]] = []

    def put(self, name: str, body_bytes: int = 100) -> int:
        """Append and wait for the disk; returns the end offset."""
        result = self.log.append(message(body=bytes(body_bytes)))
        assert result.status == PutStatus.OK
        self.flusher.wait(result.end_offset, lambda status: self.answers.append((name, status)))
        return result.end_offset

    @property
    def log_syncs(self) -> int:
        return self.disk.calls["sync"]


def test_one_sync_answers_all_who_wait_for_it() -> None:
    bench = Bench()
    for number in range(1000):
        bench.put(str(number))
    assert bench.answers == []
    bench.flusher.flush_now()
    assert bench.log_syncs == 1
    assert bench.answers == [(str(number), PutStatus.OK) for number in range(1000)]


def test_who_comes_during_a_sync_waits_for_the_next_one() -> None:
    bench = Bench()
    bench.put("before")
    work = bench.flusher.begin()
    assert work is not None
    bench.put("during")
    assert bench.flusher.begin() is None, "one sync at a time"
    work.run()
    bench.flusher.finish(work)
    assert bench.answers == [("before", PutStatus.OK)]
    bench.flusher.flush_now()
    assert bench.answers == [("before", PutStatus.OK), ("during", PutStatus.OK)]


def test_a_message_that_rolls_the_file_is_answered_after_both_files_are_synced() -> None:
    bench = Bench(segment_bytes=4096)
    bench.put("first", 3000)
    bench.put("rolls", 3000)
    synced: list[str] = []
    bench.disk.on_call = lambda operation, path: synced.append(path[-4:]) if operation == "sync" else None
    work = bench.flusher.begin()
    assert work is not None
    work.run()
    assert synced == ["0000", "4096"]
    bench.flusher.finish(work)
    assert bench.answers == [("first", PutStatus.OK), ("rolls", PutStatus.OK)]


def test_what_is_flushed_already_needs_no_waiting() -> None:
    bench = Bench()
    end = bench.put("one")
    bench.flusher.flush_now()
    bench.flusher.wait(end, lambda status: bench.answers.append(("again", status)))
    assert bench.answers[-1] == ("again", PutStatus.OK)


@pytest.mark.mission("FL-02")
def test_a_flush_of_6_s_gives_a_timeout_at_5_s_and_the_message_stays() -> None:
    bench = Bench()
    bench.put("early")
    bench.clock.advance(1)
    bench.put("later")
    work = bench.flusher.begin()
    assert work is not None
    bench.clock.advance(3.999)
    assert bench.answers == []
    bench.clock.advance(0.2)
    assert bench.answers == [("early", PutStatus.FLUSH_DISK_TIMEOUT)]
    bench.clock.advance(0.801)
    assert bench.answers[1:] == [("later", PutStatus.FLUSH_DISK_TIMEOUT)]
    bench.clock.advance(0.999)
    work.run()
    bench.flusher.finish(work)
    assert len(bench.answers) == 2, "nobody is told twice"
    assert bench.log.flushed_offset == bench.log.max_offset
    assert [record.queue_offset for record in records(bench.log)] == [0, 1]
    bench.put("new")
    bench.flusher.flush_now()
    assert bench.answers[-1] == ("new", PutStatus.OK)


def test_a_waiter_that_raises_does_not_keep_the_others_waiting(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    def broken(_status: int) -> None:
        raise RuntimeError("bug of the caller")

    bench.flusher.wait(bench.log.append(message()).end_offset, broken)
    bench.put("healthy")
    bench.flusher.flush_now()
    assert bench.answers == [("healthy", PutStatus.OK)]
    assert "bug of the caller" in caplog.text


def test_timed_rounds_need_pages_until_the_thorough_interval_is_over() -> None:
    bench = Bench()
    bench.log.append(message(body=bytes(3 * 4096)))
    bench.clock.advance(0.5)
    assert bench.flusher.begin_timed() is None
    bench.log.append(message(body=bytes(4096)))
    work = bench.flusher.begin_timed()
    assert work is not None
    assert not work.thorough
    work.run()
    bench.flusher.finish(work)
    assert bench.checkpoint.physic_time_ms == 0, "only a thorough flush moves the checkpoint"
    bench.log.append(message())
    bench.clock.advance(9.4)
    assert bench.flusher.begin_timed() is None
    bench.clock.advance(0.1)
    work = bench.flusher.begin_timed()
    assert work is not None
    assert work.thorough
    work.run()
    bench.flusher.finish(work)
    assert bench.log.flushed_offset == bench.log.max_offset
    assert bench.checkpoint.physic_time_ms == bench.log.segments.segments[-1].store_time_ms


@pytest.mark.mission("FL-05")
def test_the_checkpoint_never_runs_ahead_of_the_last_flushed_record() -> None:
    bench = Bench(segment_bytes=8192)
    flushed_time = 0
    for step in range(400):
        bench.clock.advance(0.003)
        bench.log.append(message(body=bytes(step * 7 % 2000)))
        work = bench.flusher.begin(0 if step % 5 == 0 else 2)
        if work is not None:
            bench.clock.advance(0.001)
            bench.log.append(message())
            work.run()
            bench.flusher.finish(work)
        flushed = [
            record.store_timestamp_ms
            for record in records(bench.log)[-20:]
            if record.physical_offset + record.record_bytes <= bench.log.flushed_offset
        ]
        flushed_time = max([flushed_time, *flushed])
        assert bench.checkpoint.physic_time_ms <= flushed_time
    assert bench.checkpoint.physic_time_ms > 0


def test_a_slow_flush_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.put("x")
    with caplog.at_level(logging.WARNING):
        for took_s, lines in ((0.5, 0), (0.501, 1)):
            bench.put("x")
            work = bench.flusher.begin()
            assert work is not None
            bench.clock.advance(took_s)
            bench.flusher.finish(work)
            assert len(caplog.records) == lines
    assert "took_ms=501" in caplog.text


def test_progress_is_logged_every_tenth_thorough_round(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.INFO):
        for _ in range(21):
            bench.clock.advance(10)
            bench.flusher.begin_timed()
    assert caplog.text.count("flushed log up_to=") == 3


# The first failed sync is final


def test_after_a_failed_sync_nobody_is_told_ok_and_nothing_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.put("before")
    bench.flusher.flush_now()
    bench.put("hit")
    bench.put("hit too")
    bench.disk.fail("sync", 1, OSError(errno.EIO, "Input/output error"))
    bench.flusher.flush_now()
    assert bench.answers == [
        ("before", PutStatus.OK),
        ("hit", PutStatus.SERVICE_NOT_AVAILABLE),
        ("hit too", PutStatus.SERVICE_NOT_AVAILABLE),
    ]
    assert [failure.errno for failure in bench.failures] == [errno.EIO]
    flushed, syncs, physic = bench.log.flushed_offset, bench.log_syncs, bench.checkpoint.physic_time_ms
    assert flushed < bench.log.max_offset
    bench.put("after")
    bench.flusher.flush_now()
    bench.clock.advance(60)
    assert bench.flusher.begin_timed() is None
    assert bench.answers[-1] == ("after", PutStatus.SERVICE_NOT_AVAILABLE)
    assert (bench.log.flushed_offset, bench.log_syncs, bench.checkpoint.physic_time_ms) == (flushed, syncs, physic)
    assert len(bench.failures) == 1
    assert caplog.text.count("lost trust in disk") == 1
    assert "no more messages are taken" in caplog.text


def test_the_files_synced_before_the_failing_one_count() -> None:
    bench = Bench(segment_bytes=4096)
    bench.put("first file", 3000)
    bench.put("second file", 3000)
    bench.disk.fail("sync", 2)
    bench.flusher.flush_now()
    assert bench.log.flushed_offset == 4096
    # The first one is on disk; yet after the failure no promise is made any more.
    assert {status for _, status in bench.answers} == {PutStatus.SERVICE_NOT_AVAILABLE}


def test_deadlines_that_are_no_round_numbers_pass_too() -> None:
    bench = Bench()
    for number in range(60):
        bench.put(str(number))
        bench.clock.advance(0.0113)
    bench.clock.advance(10)
    assert bench.answers == [(str(number), PutStatus.FLUSH_DISK_TIMEOUT) for number in range(60)]
