"""Counters over time: what the last minute, hour and day say, and what quiet times do to them."""

import random

from cometmq.broker.stats.counters import BYTES, COUNT, Counter
from cometmq.wire.bodies import BrokerStatsData


def count(counter: Counter, messages: int, size: int) -> None:
    counter.times += 1
    counter.count += messages
    counter.bytes += size


class Ticker:
    """Samples one counter every 10 s."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.samples = 0

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.samples += 1
            self.counter.sample(self.samples * 10.0, self.samples)


def test_nothing_is_said_before_the_first_sample() -> None:
    counter = Counter()
    count(counter, 5, 500)
    assert counter.summary(COUNT) == BrokerStatsData()
    assert counter.rate() == 0.0


def test_the_first_sample_counts_for_the_ten_seconds_before_it() -> None:
    counter = Counter()
    ticker = Ticker(counter)
    count(counter, 2, 200)
    count(counter, 3, 300)
    ticker.tick()
    minute = counter.summary(COUNT).stats_minute
    assert (minute.sum, minute.tps, minute.avgpt) == (5, 0.5, 2.5)
    size = counter.summary(BYTES).stats_minute
    assert (size.sum, size.tps, size.avgpt) == (500, 50.0, 250.0)


def test_a_minute_forgets_what_is_older_than_a_minute() -> None:
    counter = Counter()
    ticker = Ticker(counter)
    for _ in range(20):
        count(counter, 7, 70)
        ticker.tick()
    assert counter.summary(COUNT).stats_minute.sum == 6 * 7
    assert counter.rate() == 0.7
    ticker.tick(6)
    assert counter.summary(COUNT).stats_minute == BrokerStatsData().stats_minute


def test_the_quiet_time_before_a_burst_does_not_thin_its_rate() -> None:
    counter = Counter()
    ticker = Ticker(counter)
    count(counter, 1, 1)
    ticker.tick(100)
    count(counter, 50, 50)
    ticker.tick()
    minute = counter.summary(COUNT).stats_minute
    assert (minute.sum, minute.tps) == (50, 5.0)


def test_hour_and_day_have_readings_of_their_own() -> None:
    counter = Counter()
    ticker = Ticker(counter)
    for _ in range(360):
        count(counter, 10, 100)
        ticker.tick()
    summary = counter.summary(COUNT)
    assert (summary.stats_hour.sum, summary.stats_hour.tps) == (3600, 1.0)
    assert (summary.stats_day.sum, summary.stats_day.tps) == (3600, 1.0)
    for _ in range(360 * 30):
        count(counter, 10, 100)
        ticker.tick()
    summary = counter.summary(COUNT)
    assert (summary.stats_hour.sum, summary.stats_day.sum) == (3600, 24 * 3600)


def test_after_a_quiet_day_a_counter_goes_on_from_its_total() -> None:
    counter = Counter()
    ticker = Ticker(counter)
    count(counter, 1000, 1000)
    ticker.tick(360 * 26)
    assert counter.summary(COUNT) == BrokerStatsData()
    count(counter, 4, 4)
    ticker.tick()
    assert counter.summary(COUNT).stats_minute.sum == 4
    assert counter.count == 1004


def test_windows_agree_with_the_sums_of_what_was_counted() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    chance = random.Random(seed)
    counter = Counter()
    ticker = Ticker(counter)
    per_tick: list[int] = []
    for _ in range(1000):
        counted = chance.choice([0, 0, 0, 1, 5, 100])
        if counted:
            count(counter, counted, counted)
        per_tick.append(counted)
        ticker.tick()
        minute = counter.summary(COUNT).stats_minute
        assert minute.sum == sum(per_tick[-6:]), f"seed={seed} after {len(per_tick)} samples"
        hours = per_tick[: len(per_tick) // 60 * 60]
        assert counter.summary(COUNT).stats_hour.sum == sum(hours[-360:]), f"seed={seed}"
