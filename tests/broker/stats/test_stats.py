"""What is counted where, under which name it is found, and what is forgotten."""

import time
from dataclasses import replace
from typing import Any

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.stats.stats import Stats
from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.options import StoreOptions
from cometmq.store.results import GetResult, PutStatus
from cometmq.store.store import Store
from cometmq.wire.bodies import BrokerStatsItem


class Bench:
    """Counters on a store, with the clock in hand."""

    def __init__(self, **settings: Any) -> None:
        self.config = replace(BrokerConfig(), cluster_name="c1", **settings)
        self.clock = ManualClock()
        options = StoreOptions(root_dir="/store", segment_bytes=1 << 20, index_slots=10, index_entries=100)
        self.store = Store(options, FakeDisk(), self.clock)
        self.stats = Stats(lambda: self.config, self.clock)
        self.stats.start(self.store)

    def put(self, topic: str, queue_id: int = 0, body: bytes = b"x" * 100) -> int:
        result = self.store.put(AppendRequest(topic, queue_id, body))
        assert result.status == PutStatus.OK
        self.stats.put(topic, queue_id, result.count, result.record_bytes)
        return result.record_bytes

    def get(self, group: str, topic: str, queue_id: int = 0, offset: int = 0, count: int = 32) -> GetResult:
        result = self.store.get(topic, queue_id, offset, count)
        assert result is not None
        if result.count:
            self.stats.got(group, topic, queue_id, result)
        else:
            self.stats.missed(group, topic)
        return result

    def minute(self, name: str, key: str) -> BrokerStatsItem:
        found = self.stats.find(name, key)
        assert found is not None, f"{name} {key} is not counted"
        return found.stats_minute

    def counted(self, name: str, key: str) -> int:
        return self.minute(name, key).sum


def test_puts_are_counted_by_topic_and_by_queue() -> None:
    bench = Bench()
    sizes = [bench.put("T", 0), bench.put("T", 1), bench.put("T", 1)]
    bench.put("U")
    bench.stats.put("T", 0, 5, 900)  # a batch
    bench.clock.advance(10)
    assert bench.minute("TOPIC_PUT_NUMS", "T") == BrokerStatsItem(avgpt=2.0, sum=8, tps=0.8)
    assert bench.counted("TOPIC_PUT_SIZE", "T") == sum(sizes) + 900
    assert bench.counted("QUEUE_PUT_NUMS", "T@0") == 6
    assert bench.counted("QUEUE_PUT_SIZE", "T@1") == sizes[1] + sizes[2]
    assert bench.counted("TOPIC_PUT_NUMS", "U") == 1
    assert bench.stats.put_rate("T") == 0.8
    assert bench.counted("BROKER_PUT_NUMS", "c1") == 9


def test_gets_are_counted_by_group_and_by_queue() -> None:
    bench = Bench()
    size = bench.put("T", 0)
    bench.put("T", 0)
    bench.put("T", 3)
    bench.get("g", "T", 0)
    bench.get("g", "T", 3)
    bench.get("h", "T", 3)
    bench.get("h", "T", 3, offset=1)
    bench.clock.advance(10)
    assert bench.counted("GROUP_GET_NUMS", "T@g") == 3
    assert bench.counted("GROUP_GET_SIZE", "T@g") == 3 * size
    assert bench.counted("QUEUE_GET_NUMS", "T@0@g") == 2
    assert bench.counted("QUEUE_GET_SIZE", "T@3@h") == size
    assert bench.counted("GROUP_GET_MISSED", "T@h") == 1
    assert bench.counted("BROKER_GET_NUMS", "c1") == 4
    assert bench.stats.get_rate("g", "T") == 0.3
    assert bench.stats.get_rate("g", "U") == 0.0


def test_messages_given_back_and_given_up_are_counted() -> None:
    bench = Bench()
    for _ in range(3):
        bench.stats.sent_back("g", "T")
    bench.stats.dead_letter("g", "T")
    bench.clock.advance(10)
    assert bench.counted("SNDBCK_PUT_NUMS", "T@g") == 3
    assert bench.counted("DLQ_PUT_NUMS", "T@g") == 1
    assert bench.stats.find("GROUP_GET_NUMS", "T@g") is None


def test_what_was_never_counted_is_not_found() -> None:
    bench = Bench()
    bench.put("T")
    bench.clock.advance(10)
    for name, key in (
        ("TOPIC_PUT_NUMS", "U"),
        ("NO_SUCH_NAME", "T"),
        ("QUEUE_PUT_NUMS", "T"),
        ("QUEUE_PUT_NUMS", "T@9"),
        ("QUEUE_PUT_NUMS", "T@minus"),
        ("GROUP_GET_NUMS", "T"),
        ("GROUP_GET_NUMS", "T@g"),
        ("QUEUE_GET_NUMS", "T@0"),
        ("GROUP_GET_FALL_SIZE", "0@T@g"),
        ("GROUP_GET_FALL_SIZE", ""),
        ("BROKER_PUT_NUMS", "another cluster"),
    ):
        assert bench.stats.find(name, key) is None, (name, key)


def test_a_group_may_have_the_separator_in_its_name() -> None:
    bench = Bench()
    bench.put("T")
    bench.get("g@broadcast", "T")
    bench.clock.advance(10)
    assert bench.counted("GROUP_GET_NUMS", "T@g@broadcast") == 1
    assert bench.counted("QUEUE_GET_NUMS", "T@0@g@broadcast") == 1
    assert bench.stats.find("GROUP_GET_FALL_SIZE", "0@T@g@broadcast") is not None


def test_queues_are_shown_only_with_detailed_figures() -> None:
    bench = Bench(detail_stats=False)
    bench.put("T")
    bench.get("g", "T")
    bench.clock.advance(10)
    assert bench.stats.find("QUEUE_PUT_NUMS", "T@0") is None
    assert bench.stats.find("QUEUE_GET_NUMS", "T@0@g") is None
    assert bench.counted("TOPIC_PUT_NUMS", "T") == 1
    bench.config = replace(bench.config, detail_stats=True)
    assert bench.counted("QUEUE_PUT_NUMS", "T@0") == 1


def test_lag_is_that_of_the_last_read_in_bytes_and_in_time() -> None:
    bench = Bench()
    first = bench.put("T")
    bench.clock.advance(2)
    rest = bench.put("T") + bench.put("T", 1)
    bench.clock.advance(3)
    result = bench.get("g", "T", 0, count=1)
    assert result.behind_bytes == first + rest
    assert bench.counted("GROUP_GET_FALL_SIZE", "0@T@g") == first + rest
    assert bench.counted("GROUP_GET_FALL_TIME", "0@T@g") == 5_000
    bench.clock.advance(1)
    bench.get("g", "T", 0, offset=1, count=1)
    assert bench.counted("GROUP_GET_FALL_SIZE", "0@T@g") == rest
    assert bench.counted("GROUP_GET_FALL_TIME", "0@T@g") == 4_000


def test_a_group_is_as_far_behind_as_the_slowest_of_its_reads() -> None:
    bench = Bench()
    size = bench.put("T", 0)
    bench.put("T", 1)
    bench.get("g", "T", 0)
    bench.get("g", "T", 1)
    bench.get("h", "T", 1)
    assert bench.stats.bytes_behind() == {"g": 2 * size, "h": size}


@pytest.mark.parametrize("slot", range(10))
def test_every_counter_is_sampled_once_in_ten_seconds(slot: int) -> None:
    bench = Bench()
    bench.clock.advance(slot)
    for number in range(25):
        bench.put(f"T{number}")
    bench.clock.advance(10)
    assert [bench.counted("TOPIC_PUT_NUMS", f"T{number}") for number in range(25)] == [1] * 25


def test_system_topics_are_left_out_of_the_totals_that_tools_show() -> None:
    bench = Bench()
    bench.put("T")
    for topic in ("SCHEDULE_TOPIC_XXXX", "c1_REPLY_TOPIC", "rmq_sys_wheel_timer"):
        bench.put(topic)
        bench.get("g", topic)
    bench.get("g", "T")
    bench.clock.advance(10)
    assert bench.stats.messages() == (1, 1)
    assert bench.counted("BROKER_PUT_NUMS", "c1") == 4
    assert bench.counted("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "c1") == 1
    assert bench.counted("BROKER_GET_NUMS", "c1") == 4
    assert bench.counted("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "c1") == 1


def test_a_deleted_topic_is_forgotten_but_not_by_the_totals() -> None:
    bench = Bench()
    for _ in range(3):
        bench.put("T")
    bench.put("U")
    bench.get("g", "T")
    bench.get("g", "U")
    bench.stats.drop_topic("T")
    bench.clock.advance(10)
    for name, key in (
        ("TOPIC_PUT_NUMS", "T"),
        ("QUEUE_PUT_NUMS", "T@0"),
        ("GROUP_GET_NUMS", "T@g"),
        ("GROUP_GET_FALL_SIZE", "0@T@g"),
    ):
        assert bench.stats.find(name, key) is None, name
    assert bench.counted("TOPIC_PUT_NUMS", "U") == 1
    assert bench.stats.messages() == (4, 4)
    assert bench.counted("BROKER_PUT_NUMS", "c1") == 4
    bench.put("T")
    bench.clock.advance(10)
    assert bench.counted("TOPIC_PUT_NUMS", "T") == 1
    assert bench.stats.messages() == (5, 4)


def test_a_deleted_group_is_forgotten_but_not_by_the_totals() -> None:
    bench = Bench()
    bench.put("T")
    bench.get("g", "T")
    bench.get("h", "T")
    bench.stats.drop_group("g")
    bench.clock.advance(10)
    assert bench.stats.find("GROUP_GET_NUMS", "T@g") is None
    assert bench.counted("GROUP_GET_NUMS", "T@h") == 1
    assert bench.stats.messages() == (1, 2)
    assert bench.stats.bytes_behind().keys() == {"h"}


def test_the_counts_at_midnight_are_kept_for_two_days() -> None:
    bench = Bench()
    bench.put("T")
    assert bench.stats.mornings() == ((0, 0), (0, 0))
    now = time.localtime(bench.clock.now_ms() // 1000)
    bench.clock.advance(86_400 - (now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec) - 15)
    bench.put("T")
    assert bench.stats.mornings() == ((0, 0), (0, 0))
    bench.clock.advance(30)
    assert bench.stats.mornings() == ((0, 0), (2, 0))
    bench.get("g", "T")
    bench.clock.advance(86_400)
    assert bench.stats.mornings() == ((2, 0), (2, 2))
    assert bench.stats.messages() == (2, 2)


def test_the_pace_of_the_store_is_given_for_ten_seconds_a_minute_and_ten_minutes() -> None:
    bench = Bench()
    for _ in range(600):
        bench.put("T")
        bench.clock.advance(1)
    rates = bench.stats.pace.rates()
    assert rates.put == [pytest.approx(1.0)] * 3
    for second in range(60):
        bench.clock.advance(1)
        bench.store.get("T", 0, second, 2)
        bench.store.get("T", 0, 600, 1)
    rates = bench.stats.pace.rates()
    assert rates.put[0] == 0.0
    assert rates.put[2] == pytest.approx(0.9, abs=0.02)
    assert rates.found[:2] == [pytest.approx(1.0, abs=0.11)] * 2
    assert rates.missed[:2] == [pytest.approx(1.0, abs=0.11)] * 2
    assert rates.transferred[:2] == [pytest.approx(2.0, abs=0.21)] * 2


def test_the_pace_is_known_from_the_first_second_on() -> None:
    bench = Bench()
    assert bench.stats.pace.rates().put == [0.0, 0.0, 0.0]
    for _ in range(8):
        bench.put("T")
    bench.clock.advance(4)
    assert bench.stats.pace.rates().put == [2.0, 2.0, 2.0]


@pytest.mark.mission("MO-01")
def test_the_store_knows_its_longest_read() -> None:
    bench = Bench()
    bench.put("T")

    def slow(_code: int | None, _extension: object) -> bool:
        bench.clock.advance(0.25)
        return True

    assert bench.store.reading.longest_s == 0.0
    bench.store.get("T", 0, 0, 1, unit_filter=slow)
    bench.store.get("T", 0, 0, 1)
    assert bench.store.reading.longest_s == 0.25


def test_nothing_runs_after_the_stop() -> None:
    bench = Bench()
    bench.put("T")
    bench.stats.stop()
    bench.clock.advance(60)
    found = bench.stats.find("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.stats_minute.sum == 0
