"""Counters that remember how they grew: in the last minute, the last hour and the last day.

    window    a reading every    of which it keeps    so it spans
    minute    10 s               7                    60 s
    hour      10 min             7                    1 h
    day       1 h                25                   24 h

What a window says is the difference between its newest and its oldest reading; what came after the newest one is for
the next. Counting itself is an addition to attributes. Whoever counts also sees that `sample` is called every 10 s.

A counter that has not moved for a whole day keeps no readings, and one that does not move costs a comparison per
sample: there may be ten thousands of them.
"""

from collections.abc import Iterable
from typing import Final

from cometmq.wire.bodies import BrokerStatsData, BrokerStatsItem

MINUTE_S: Final = 10.0
HOUR_S: Final = 600.0
DAY_S: Final = 3_600.0
# Samples per reading of the hour and of the day.
HOUR_EVERY: Final = 60
DAY_EVERY: Final = 360

MINUTE_READINGS: Final = 7
HOUR_READINGS: Final = 7
DAY_READINGS: Final = 25

# What a window is asked for.
COUNT: Final = 2
BYTES: Final = 3

# When, and the counter's three numbers then: times, count, bytes.
Reading = tuple[float, int, int, int]
NOTHING: Final[Reading] = (0.0, 0, 0, 0)


def take(readings: list[Reading], interval_s: float, readings_max: int, reading: Reading) -> None:
    """Add to a window. It is never empty; with a single reading nothing has moved for as long as it is."""
    moved = readings[-1][1] != reading[1]
    if len(readings) == 1:
        if not moved:
            return
        # The quiet time before does not belong to the rate.
        _, times, count, size = readings[0]
        readings[0] = (reading[0] - interval_s, times, count, size)
    readings.append(reading)
    if len(readings) > readings_max:
        del readings[0]
        if readings[0][1] == reading[1]:
            del readings[1:]


def summary_of(readings: list[Reading] | None, what: int) -> BrokerStatsItem:
    """Of the COUNT or the BYTES: the growth, the growth per second, and the growth per time counted."""
    if readings is None:
        return BrokerStatsItem()
    first, last = readings[0], readings[-1]
    grown = last[COUNT] - first[COUNT] if what == COUNT else last[BYTES] - first[BYTES]
    times = last[1] - first[1]
    elapsed_s = last[0] - first[0]
    return BrokerStatsItem(
        avgpt=grown / times if times else 0.0, sum=grown, tps=grown / elapsed_s if elapsed_s > 0 else 0.0
    )


class Counter:
    """`times` something happened, to `count` messages of `bytes` bytes in all. Add to all three."""

    __slots__ = ("_base", "_day", "_hour", "_minute", "bytes", "count", "times")

    def __init__(self) -> None:
        self.times: int = 0
        self.count: int = 0
        self.bytes: int = 0
        # What was counted when the last quiet time began; every window starts there.
        self._base: Reading = NOTHING
        self._minute: list[Reading] | None = None
        self._hour: list[Reading] | None = None
        self._day: list[Reading] | None = None

    def refresh(self) -> None:
        """Overridden by counters that are made of others."""

    def add_up(self, parts: Iterable["Counter"]) -> None:
        """Become the sum of others."""
        times = count = size = 0
        for part in parts:
            times += part.times
            count += part.count
            size += part.bytes
        self.times = times
        self.count = count
        self.bytes = size

    def sample(self, now_s: float, samples: int) -> None:
        """The `samples`-th sample of all."""
        self.refresh()
        if self._minute is None:
            if self.times == self._base[1]:
                return
            self._minute = [self._base]
        reading = (now_s, self.times, self.count, self.bytes)
        take(self._minute, MINUTE_S, MINUTE_READINGS, reading)
        if samples % HOUR_EVERY == 0:
            if self._hour is None:
                self._hour = [self._base]
            take(self._hour, HOUR_S, HOUR_READINGS, reading)
        if samples % DAY_EVERY == 0:
            if self._day is None:
                self._day = [self._base]
            take(self._day, DAY_S, DAY_READINGS, reading)
            self._rest_if_quiet(reading)

    def _rest_if_quiet(self, reading: Reading) -> None:
        for readings in (self._minute, self._hour, self._day):
            if readings is not None and len(readings) > 1:
                return
        self._base = reading
        self._minute = self._hour = self._day = None

    def summary(self, what: int) -> BrokerStatsData:
        return BrokerStatsData(
            stats_day=summary_of(self._day, what),
            stats_hour=summary_of(self._hour, what),
            stats_minute=summary_of(self._minute, what),
        )

    def rate(self) -> float:
        """Messages per second in the last minute."""
        return summary_of(self._minute, COUNT).tps
