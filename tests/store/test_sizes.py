"""Checks the settings of files, flushing and memory: RocketMQ's defaults, and that those with an effect have it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cometmq import settings_table
from cometmq.broker.admin import settings
from cometmq.clock import ManualClock
from cometmq.store.background import Background
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.results import PutStatus
from cometmq.store.workers import InlineWorker
from tests.support.logs import message
from tests.support.whole_store import open_store

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20

FILES = {
    "storePathRootDir": str(Path.home() / "store"),
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "messageIndexEnable": "true",
    "maxMessageSize": str(4 * MIB),
}
FLUSH = {
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "500",
    "flushCommitLogLeastPages": "4",
    "flushCommitLogThoroughInterval": "10000",
    "flushCommitLogTimed": "true",
    "commitIntervalCommitLog": "200",
    "commitCommitLogLeastPages": "4",
    "commitCommitLogThoroughInterval": "200",
    "flushIntervalConsumeQueue": "1000",
    "syncFlushTimeout": "5000",
    "transientStorePoolEnable": "false",
    "transientStorePoolSize": "5",
    "fastFailIfNoBufferInStorePool": "false",
    "warmMapedFileEnable": "false",
    "useReentrantLockWhenPutMessage": "true",
    "debugLockEnable": "false",
}
# Of those, the ones that mean nothing here; tests/broker/test_watchdog.py shows what debugLockEnable does.
WITHOUT_EFFECT = {
    "commitIntervalCommitLog",
    "commitCommitLogLeastPages",
    "commitCommitLogThoroughInterval",
    "transientStorePoolEnable",
    "transientStorePoolSize",
    "fastFailIfNoBufferInStorePool",
    "useReentrantLockWhenPutMessage",
}
# A value that is not the default.
OTHER = {"true": "false", "false": "true", "200": "100", "4": "8", "5": "9"}


def shown(*keys: str) -> dict[str, str]:
    texts = settings.load({}).texts()
    return {key: texts[key] for key in keys}


@pytest.mark.mission("SK-01")
def test_settings_of_files_have_rocketmqs_defaults_and_are_read_from_its_file(tmp_path: Path) -> None:
    assert shown(*FILES) == FILES
    assert settings.load({}).store_options.commitlog_dirs() == [str(Path.home() / "store" / "commitlog")]
    given = {"storePathRootDir": "/a", "storePathCommitLog": "/b,/c", "mappedFileSizeCommitLog": str(10 * MIB),
             "maxHashSlotNum": "10000", "maxIndexNum": "10000"}  # fmt: skip
    options = settings.load(given).store_options
    assert options.commitlog_dirs() == ["/b", "/c"]
    assert (options.segment_bytes, options.index_slots, options.index_entries) == (10 * MIB, 10_000, 10_000)


@pytest.mark.mission("SK-01")
@pytest.mark.long
def test_the_suite_of_the_whole_store_holds_with_files_of_10_mib_and_10000_slots_and_entries() -> None:
    """The tests that open a store with the sizes of tests/support/whole_store.py, once more with these."""
    names = ("test_store.py", "test_background.py", "queues/test_consume_queue.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *[f"tests/store/{it}" for it in names]],
        cwd=ROOT,
        env={**os.environ, "COMETMQ_STORE_SIZES": "medium", "COMETMQ_MISSION_RECORD": ""},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]


@pytest.mark.mission("SK-02")
def test_settings_of_flushing_and_memory_have_rocketmqs_defaults() -> None:
    assert shown(*FLUSH) == FLUSH
    explained = {key for key in FLUSH if key in settings_table.BROKER}
    assert explained == WITHOUT_EFFECT, "each says once why it has no effect"


@pytest.mark.mission("SK-02")
def test_a_key_without_effect_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        settings.load({key: OTHER[FLUSH[key]] for key in WITHOUT_EFFECT})
    for key in WITHOUT_EFFECT:
        assert sum(f"key={key} " in record.getMessage() for record in caplog.records) == 1


class Flushed:
    """A store in the background of a clock that the test moves; `at_ms` says when everything was on disk."""

    def __init__(self, **texts: object) -> None:
        self.clock = ManualClock()
        self.disk = FakeDisk(now_ms=self.clock.now_ms)
        self.calls: list[tuple[str, str]] = []
        self.disk.on_call = lambda operation, path: self.calls.append((operation, path))
        options = settings.load({key: str(value) for key, value in texts.items()}).store_options
        names = ("flush_disk_type", "flush_interval_ms", "flush_pages_min", "flush_thorough_interval_ms", "flush_timed",
                 "flush_wake_on_put", "queue_flush_interval_ms", "sync_flush_timeout_ms", "warm_segments",
                 "index_enabled", "message_bytes_max", "queue_flush_pages_min")  # fmt: skip
        given: dict[str, Any] = {name: getattr(options, name) for name in names}
        self.store = open_store(self.disk, self.clock, **{**given, "segment_bytes": MIB, "queue_file_bytes": 20_000})
        self.background = Background(self.store, lambda act: act(), lambda _name: InlineWorker())
        self.background.start()

    def at_ms(self, body: bytes) -> int:
        """How long a put stays in memory only."""
        self.store.put(message(body=body))
        for tick in range(300):
            if self.store.log.flushed_offset == self.store.log.max_offset:
                return tick * 100
            self.clock.advance(0.1)
        raise AssertionError("never flushed")

    def synced(self, part: str) -> int:
        return sum(operation == "sync" and part in path for operation, path in self.calls)


@pytest.mark.mission("SK-02")
@pytest.mark.parametrize(
    ("texts", "body_bytes", "before_ms", "after_ms"),
    [
        ({"flushDiskType": "SYNC_FLUSH"}, 10, (10_000, 10_600), (0, 0)),
        ({"flushIntervalCommitLog": 2000}, 20_000, (100, 600), (1500, 2100)),
        ({"flushCommitLogLeastPages": 0}, 10, (10_000, 10_600), (100, 600)),
        ({"flushCommitLogThoroughInterval": 3000}, 10, (10_000, 10_600), (3000, 3600)),
        ({"flushCommitLogTimed": "false", "wakeFlushWhenPutMessage": "true"}, 10, (10_000, 10_600), (0, 0)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_setting_of_flushing_changes_when_a_message_is_on_disk(
    texts: dict[str, object], body_bytes: int, before_ms: tuple[int, int], after_ms: tuple[int, int]
) -> None:
    default, changed = Flushed().at_ms(bytes(body_bytes)), Flushed(**texts).at_ms(bytes(body_bytes))
    assert before_ms[0] <= default <= before_ms[1]
    assert after_ms[0] <= changed <= after_ms[1]


@pytest.mark.mission("SK-02")
def test_the_interval_of_queues_decides_how_often_they_are_looked_at() -> None:
    def syncs(**texts: object) -> int:
        flushed = Flushed(flushConsumeQueueLeastPages=0, **texts)
        for _ in range(100):
            flushed.store.put(message())
            flushed.clock.advance(0.1)
        return flushed.synced("/consumequeue/")

    often, seldom = syncs(), syncs(flushIntervalConsumeQueue=5000)
    assert often >= 8
    assert seldom <= 3


@pytest.mark.mission("SK-02")
def test_the_timeout_of_synchronous_flushing_decides_when_a_producer_is_told() -> None:
    def told_after_ms(timeout_ms: int) -> int:
        clock = ManualClock()
        store = open_store(FakeDisk(), clock, flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=timeout_ms)
        answers: list[int] = []
        put = store.put(message())
        store.flusher.wait(put.end_offset, answers.append)
        for tick in range(100):
            if answers:
                assert answers == [PutStatus.FLUSH_DISK_TIMEOUT]
                return tick * 100
            clock.advance(0.1)
        raise AssertionError("never told")

    assert 5000 <= told_after_ms(5000) <= 5200
    assert 1000 <= told_after_ms(1000) <= 1200


@pytest.mark.mission("SK-02")
def test_warming_touches_new_files_only_when_it_is_switched_on() -> None:
    assert warmed() == []
    assert any("/commitlog/" in path for path in warmed(warmMapedFileEnable="true"))


def warmed(**texts: object) -> list[str]:
    flushed = Flushed(**texts)
    flushed.store.put(message())
    return [path for operation, path in flushed.calls if operation == "warm"]
