"""Delay levels: into the schedule topic, out of it when due, progress that survives, and what can go wrong."""

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.delayed.levels import Delays, ScheduleStore
from cometmq.broker.server import Broker
from cometmq.broker.tables.delay_progress import DelayProgress
from cometmq.clock import ManualClock
from cometmq.errors import StoreError
from cometmq.names import SCHEDULE_TOPIC
from cometmq.store.disk import OsDisk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.queues.dispatch import parse_delay_levels
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.store import Store
from cometmq.wire.bodies import DelayOffsetTable
from cometmq.wire.record import properties
from cometmq.wire.record.message import StoredMessage
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, broker_settings, running_broker, stored
from tests.support.golden import copy_golden_store, golden_store
from tests.support.net import until
from tests.support.parts import GOLDEN_SIZES

DEFAULT_S = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def props(message: StoredMessage) -> dict[str, str]:
    return properties.decode(message.properties)


def due_times(broker: Broker, level: int) -> list[int]:
    """Tag codes of a level's queue."""
    low, high = broker.store.queue_bounds(SCHEDULE_TOPIC, level - 1)
    return [entry[2] for entry in broker.store.queue_entries(SCHEDULE_TOPIC, level - 1, low, high - low)]


class Bench:
    """Delays and a real store on a fake disk, without a broker around them."""

    def __init__(self, disk: FakeDisk | None = None, levels: str = "1s 5s 10s", **options: Any) -> None:
        self.clock = ManualClock()
        self.disk = disk or FakeDisk(now_ms=self.clock.now_ms)
        sizes = {"segment_bytes": 1 << 16, "queue_file_bytes": 2000, "index_slots": 50, "index_entries": 200}
        given = StoreOptions(**{"root_dir": "/store", "delay_levels": levels, **sizes, **options})
        self.store = Store(given, self.disk, self.clock)
        self.delivered: list[tuple[str, int]] = []
        self.delays = Delays(levels, self.clock, DelayProgress(self.clock), self._delivered)

    def _delivered(self, topic: str, queue_id: int, record_bytes: int) -> None:
        assert record_bytes > 0
        self.delivered.append((topic, queue_id))

    def put(self, level: int, body: bytes = b"x", topic: str = "TopicA", queue_id: int = 0, sys_flag: int = 0) -> None:
        text = properties.encode({"DELAY": str(level), "TAGS": "t"}).decode()
        request = AppendRequest(topic, queue_id, body, text, sys_flag=sys_flag)
        self.delays.divert(request)
        assert self.store.put(request).status == PutStatus.OK

    def rounds(self, seconds: float, store: ScheduleStore | None = None) -> list[tuple[float, bytes]]:
        """Rounds every 100 ms; when which body arrived, in seconds from now."""
        seen = self.store.queue_bounds("TopicA", 0)[1]
        arrived: list[tuple[float, bytes]] = []
        for number in range(1, round(seconds * 10) + 1):
            self.clock.advance(0.1)
            while self.delays.deliver(store or self.store):
                pass
            for offset in range(seen, self.store.queue_bounds("TopicA", 0)[1]):
                arrived.append((number / 10, self.body(offset)))
                seen += 1
        return arrived

    def body(self, offset: int) -> bytes:
        (entry,) = self.store.queue_entries("TopicA", 0, offset, 1)
        message = self.store.message_at(entry[0])
        assert message is not None
        return message.body


@contextmanager
def bench(**options: Any) -> Iterator[Bench]:
    made = Bench(**options)
    yield made
    made.store.close()


# The table of levels


@pytest.mark.mission("DE-01")
def test_the_default_levels_are_rocketmqs() -> None:
    assert parse_delay_levels(StoreOptions().delay_levels) == [second * 1000 for second in DEFAULT_S]


@pytest.mark.mission("DE-01")
async def test_two_levels_and_a_level_beyond_them(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, messageDelayLevel="1s 2d") as broker, Peer.of(broker) as peer:
        assert broker.rooms.delayed.delays.levels_ms == [1000, 2 * 86_400_000]
        await peer.send("TopicA", properties={"DELAY": "9"})
        assert due_times(broker, 2) == [clock.now_ms() + 2 * 86_400_000]


@pytest.mark.mission("DE-01")
@pytest.mark.parametrize("text", ["1x", "1s x", "s", "1.5s", "-1s"])
async def test_a_bad_text_refuses_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(StoreError, match="messageDelayLevel"):
        Broker(broker_settings(tmp_path, messageDelayLevel=text))


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1 ", "٣", "9" * 10])
def test_what_is_no_level_is_not_delayed(text: str) -> None:
    delays = Delays("1s", ManualClock(), DelayProgress(ManualClock()), lambda *_: None)
    request = AppendRequest("TopicA", 0, b"", f"DELAY\x01{text}\x02KEYS\x01k\x02")
    assert not delays.divert(request)
    assert request.topic == "TopicA"


# On the way in


@pytest.mark.mission("DE-02")
async def test_golden_delay_messages_are_reproduced(tmp_path: Path) -> None:
    """What Java stored of each delayed message, sent again: the kept record and the delivered one are the same."""
    copied = str(copy_golden_store("clean", tmp_path / "golden"))
    golden = Store(StoreOptions(root_dir=copied, **GOLDEN_SIZES), OsDisk(), ManualClock())
    kept = {level: _all(golden, SCHEDULE_TOPIC, level - 1) for level in (1, 2, 3)}
    delivered = [message for queue in range(4) for message in _all(golden, "GoldenDelayA", queue)]
    entries = {level: golden.queue_entries(SCHEDULE_TOPIC, level - 1, 0, 100) for level in (1, 2, 3)}
    golden.close()
    assert all(kept.values())
    assert len(delivered) == sum(map(len, kept.values()))

    clock = ManualClock(wall_ms=1_794_725_598_148)
    async with running_broker(tmp_path / "own", clock) as broker, Peer.of(broker) as peer:
        add_topic(broker, "GoldenDelayA")
        for level, messages in kept.items():
            for message in messages:
                given = props(message)
                queue_id = int(given.pop("REAL_QID"))
                assert given.pop("REAL_TOPIC") == "GoldenDelayA"
                sent = {name: given[name] for name in given if name not in ("MSG_REGION", "TRACE_ON", "CLUSTER")}
                answer = await peer.send("GoldenDelayA", message.body, properties=sent, queue_id=queue_id)
                assert (answer.code, answer.ext["queueId"]) == (0, str(queue_id))
            own = stored(broker, SCHEDULE_TOPIC, level - 1)
            assert [_content(message) for message in own] == [_content(message) for message in messages]
            delay_ms = broker.rooms.delayed.delays.levels_ms[level - 1]
            assert due_times(broker, level) == [message.store_timestamp_ms + delay_ms for message in own]
            # Java's entries say the same of its own records.
            theirs = [message.store_timestamp_ms + delay_ms for message in messages]
            assert [entry[2] for entry in entries[level]] == theirs
        for _ in range(130):
            clock.advance(0.1)
            await asyncio.sleep(0)
        own = [message for queue in range(4) for message in stored(broker, "GoldenDelayA", queue)]
        assert sorted(map(_content, own), key=str) == sorted(map(_content, delivered), key=str)


def _content(message: StoredMessage) -> tuple[Any, ...]:
    return message.topic, message.queue_id, message.flag, message.sys_flag, message.body, props(message)


def _all(store: Store, topic: str, queue_id: int) -> list[StoredMessage]:
    low, high = store.queue_bounds(topic, queue_id)
    found = [store.message_at(entry[0]) for entry in store.queue_entries(topic, queue_id, low, high - low)]
    return [message for message in found if message is not None]


@pytest.mark.mission("DE-02")
def test_committed_messages_are_delayed_and_prepared_ones_are_not() -> None:
    delays = Delays("1s", ManualClock(), DelayProgress(ManualClock()), lambda *_: None)
    for sys_flag, diverted in ((0, True), (8, True), (4, False), (12, False)):
        request = AppendRequest("TopicA", 3, b"", "DELAY\x011\x02", sys_flag=sys_flag)
        assert delays.divert(request) is diverted
        assert (request.topic, request.queue_id) == ((SCHEDULE_TOPIC, 0) if diverted else ("TopicA", 3))


def test_a_delay_level_wins_over_timer_properties() -> None:
    delays = Delays("1s 5s", ManualClock(), DelayProgress(ManualClock()), lambda *_: None)
    text = "TIMER_DELAY_SEC\x015\x02DELAY\x012\x02TIMER_DELIVER_MS\x019\x02REAL_TOPIC\x01old\x02TIMER_DELAY_MS\x017\x02"
    request = AppendRequest("TopicA", 3, b"", text)
    assert delays.divert(request)
    assert properties.decode_text(request.properties) == {"DELAY": "2", "REAL_TOPIC": "TopicA", "REAL_QID": "3"}


# Progress


@pytest.mark.mission("DE-03")
def test_the_golden_progress_is_read_and_written_in_the_same_form() -> None:
    content = (golden_store("clean") / "config/delayOffset.json").read_bytes()
    progress = DelayProgress(ManualClock())
    progress.restore(content)
    assert progress.offsets == {1: 4, 2: 4, 3: 4}
    assert progress.snapshot()() == content


@pytest.mark.mission("DE-03")
async def test_progress_is_saved_every_10_seconds_and_a_crash_repeats_at_most_those(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        for number in range(30):  # one due each second
            await peer.send("TopicA", b"%d" % number, properties={"DELAY": "1"})
            await _advance(clock, 1, broker)
        await _advance(clock, 2, broker)
        assert [message.body for message in stored(broker, "TopicA")] == [b"%d" % number for number in range(30)]
        path = tmp_path / "store/config/delayOffset.json"
        await until(lambda: _saved(path).get(1, 0) >= 20)
        saved = _saved(path)[1]
        # What a crash now would leave.
        crashed = tmp_path / "crashed"
        shutil.copytree(tmp_path / "store", crashed / "store")
    async with running_broker(crashed, clock) as broker:
        assert broker.tables.delays.offsets[1] == saved
        await _advance(clock, 3)
        again = [int(message.body) for message in stored(broker, "TopicA")][30:]
        assert again == list(range(saved, 30)), "delivered again, in order, none lost"
        assert len(again) <= 10


async def _advance(clock: ManualClock, seconds: float, broker: Broker | None = None) -> None:
    """In steps of 100 ms; with a broker its threads keep up, however slow they are."""
    for _ in range(round(seconds * 10)):
        clock.advance(0.1)
        await asyncio.sleep(0)
        if broker is not None:
            await asyncio.sleep(0)
            await until(lambda: not broker.background.busy)


def _saved(path: Path) -> dict[int, int]:
    return DelayOffsetTable.decode(path.read_bytes()).offset_table if path.exists() else {}


async def test_progress_is_saved_only_behind_the_log_that_has_the_messages(tmp_path: Path) -> None:
    """Else a power cut between the two takes the delivered message and keeps the progress."""
    clock = ManualClock()
    disk = FakeDisk(now_ms=clock.now_ms)
    async with running_broker(tmp_path, clock, disk) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", properties={"DELAY": "1"})
        await _advance(clock, 9.5)
        assert broker.tables.delays.offsets == {1: 1}
        path = tmp_path / "store/config/delayOffset.json"
        flushing, flush_may_end = threading.Event(), threading.Event()

        def stall(operation: str, on: str) -> None:
            if operation == "sync" and "commitlog" in on:
                flushing.set()
                flush_may_end.wait(20)

        disk.on_call = stall
        await _advance(clock, 1)
        await until(flushing.is_set)
        assert _saved(path) == {}, "nothing is saved while the log is being flushed"
        flush_may_end.set()
        await until(lambda: _saved(path) == {1: 1})
        assert broker.store.log.flushed_offset == broker.store.log.max_offset


async def test_a_clean_stop_saves_all_progress(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", properties={"DELAY": "1"})
        await _advance(clock, 2.2)
        assert len(stored(broker, "TopicA")) == 1
    async with running_broker(tmp_path, clock) as broker:
        assert broker.tables.delays.offsets == {1: 1}
        await _advance(clock, 3)
        assert len(stored(broker, "TopicA")) == 1
    content = json.loads((tmp_path / "store/config/delayOffset.json").read_text().replace("1:", '"1":'))
    assert content["offsetTable"] == {"1": 1}


# On the way out


@pytest.mark.mission("DE-04")
def test_a_thousand_messages_of_three_levels_are_in_time_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        levels_ms = {1: 1000, 2: 5000, 3: 10_000}
        async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
            add_topic(broker, "TopicA", 1)
            await _advance(clock, 1.5)  # the first round comes a second after the start
            for number in range(1000):
                await peer.send("TopicA", b"%d" % number, properties={"DELAY": str(number % 3 + 1)})
                if number % 10 == 0:
                    await _advance(clock, 0.1)
            for _ in range(120):
                await _advance(clock, 0.1)
                await asyncio.sleep(0)
            arrived = stored(broker, "TopicA")
            kept = {
                message.body: message for level in levels_ms for message in stored(broker, SCHEDULE_TOPIC, level - 1)
            }
            assert sorted(int(message.body) for message in arrived) == list(range(1000))
            for level, delay_ms in levels_ms.items():
                own = [message for message in arrived if int(message.body) % 3 + 1 == level]
                assert [message.body for message in own] == [
                    message.body for message in stored(broker, SCHEDULE_TOPIC, level - 1)
                ]
                for message in own:
                    late_ms = message.store_timestamp_ms - kept[message.body].store_timestamp_ms - delay_ms
                    assert 0 <= late_ms <= 300, f"message {message.body!r} is {late_ms} ms late"

    run(main(), timeout_s=60)


@pytest.mark.mission("DE-04", "BS-01")
async def test_a_broker_that_is_not_the_master_delivers_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", properties={"DELAY": "1"})
    async with running_broker(tmp_path, clock, brokerRole="SLAVE", brokerId=1) as broker:
        await _advance(clock, 5)
        assert stored(broker, "TopicA") == []
    async with running_broker(tmp_path, clock) as broker:
        await _advance(clock, 1.2)
        assert len(stored(broker, "TopicA")) == 1


async def test_a_large_backlog_is_delivered_without_waiting_for_the_next_round(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await asyncio.gather(*(peer.send("TopicA", properties={"DELAY": "1"}) for _ in range(1500)))
        clock.advance(1.1)
        await until(lambda: broker.store.queue_bounds("TopicA", 0)[1] == 1500)


class RefusingStore:
    """The real store, which refuses as many puts as it is told."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refusals = 0
        self.errors = 0
        self.queue_bounds = store.queue_bounds
        self.queue_entries = store.queue_entries
        self.message_at = store.message_at
        self.extended_tag_code = store.extended_tag_code

    def put(self, request: AppendRequest) -> PutResult:
        if self.errors:
            self.errors -= 1
            raise RuntimeError("a bug")
        if self.refusals:
            self.refusals -= 1
            return PutResult(PutStatus.OS_PAGE_CACHE_BUSY, remark="busy")
        return self._store.put(request)


@pytest.mark.mission("DE-05")
def test_a_refused_put_is_tried_again_after_100_ms_and_nothing_is_skipped() -> None:
    with bench() as it:
        it.put(1, b"first")
        it.put(1, b"second")
        refusing = RefusingStore(it.store)
        refusing.refusals = 5
        assert it.rounds(3, refusing) == [(1.5, b"first"), (1.5, b"second")], "once each, 500 ms late"


@pytest.mark.mission("DE-05")
def test_an_exception_pauses_its_level_for_10_seconds_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with bench() as it:
        it.put(1, b"level 1")
        it.put(2, b"level 2")
        refusing = RefusingStore(it.store)
        refusing.errors = 1
        assert it.rounds(15, refusing) == [(5.0, b"level 2"), (11.0, b"level 1")]
        assert "paused delay level=1" in caplog.text


def test_a_pause_is_not_prolonged_by_a_clock_that_is_set_back() -> None:
    with bench() as it:
        it.put(1)
        refusing = RefusingStore(it.store)
        refusing.errors = 1
        it.clock.advance(1.1)
        it.delays.deliver(refusing)
        it.clock._wall_start_ms -= 86_400_000
        it.clock.advance(10)
        it.delays.deliver(refusing)
        assert it.delivered == [("TopicA", 0)]


# Repairs


@pytest.mark.mission("DE-06")
def test_a_clock_that_is_set_back_by_a_day_delays_nobody_by_a_day() -> None:
    with bench() as it:
        it.put(1, b"before")
        it.clock._wall_start_ms -= 86_400_000
        it.put(1, b"after")
        arrived = it.rounds(1.3)
        assert [body for _, body in arrived] == [b"before", b"after"]


@pytest.mark.mission("DE-06")
def test_progress_below_the_queue_jumps_to_its_start_and_beyond_it_to_its_end() -> None:
    with bench(segment_bytes=1 << 14) as it:
        for number in range(400):
            it.put(1, b"%d" % number)
        first = it.store.segments.segments[0]
        it.store.segments.remove(first)
        it.store.queues.correct_min(first.end)
        low, high = it.store.queue_bounds(SCHEDULE_TOPIC, 0)
        assert 0 < low < high
        arrived = it.rounds(1.5)
        assert [int(body) for _, body in arrived] == list(range(low, high))
        it.delays.progress.offsets[1] = high + 100
        assert it.rounds(0.1) == []
        it.put(1, b"later")
        assert it.rounds(1.5) == [(1.0, b"later")]


@pytest.mark.mission("DE-06")
@pytest.mark.parametrize("readable", [True, False])
def test_with_an_extension_the_due_time_comes_from_it_or_from_the_store_time(readable: bool) -> None:
    with bench(queue_ext_enabled=True, queue_ext_file_bytes=10_000) as it:
        it.put(1, b"extended")
        (entry,) = it.store.queue_entries(SCHEDULE_TOPIC, 0, 0, 1)
        assert entry[2] < -(2**31), "the entry has an address instead of its due time"
        if not readable:
            ext = it.store.queues.ext(SCHEDULE_TOPIC, 0)
            assert ext is not None
            ext.files.cut(0)
        assert it.rounds(1.3) == [(1.0, b"extended")]


@pytest.mark.mission("DE-06")
def test_a_message_aimed_at_the_half_topic_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    with bench() as it:
        it.put(1, topic="RMQ_SYS_TRANS_HALF_TOPIC")
        it.put(1, b"next")
        assert it.rounds(1.3) == [(1.0, b"next")]
        assert it.store.queue_bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0) == (0, 0)
        assert "dropped delayed message" in caplog.text


def test_what_can_never_be_stored_is_dropped_and_does_not_block_its_level(caplog: pytest.LogCaptureFixture) -> None:
    with bench() as it:
        it.put(1, topic="t" * 200)
        it.put(1, b"next")
        assert it.rounds(1.3) == [(1.0, b"next")]
        assert "dropped delayed message" in caplog.text
