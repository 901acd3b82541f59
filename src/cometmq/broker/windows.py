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


class Window:
    """`readings` is never empty; with a single one nothing has moved for as long as the window is."""

    __slots__ = ("_interval_s", "_readings_max", "readings")

    def __init__(self, interval_s: float, readings_max: int, base: Reading) -> None:
        self._interval_s: float = interval_s
        self._readings_max: int = readings_max
        self.readings: list[Reading] = [base]

    def take(self, reading: Reading) -> None:
        readings = self.readings
        moved = readings[-1][1] != reading[1]
        if len(readings) == 1:
            if not moved:
                return
            # The quiet time before does not belong to the rate.
            _, times, count, size = readings[0]
            readings[0] = (reading[0] - self._interval_s, times, count, size)
        readings.append(reading)
        if len(readings) > self._readings_max:
            del readings[0]
            if readings[0][1] == reading[1]:
                del readings[1:]

    @property
    def is_quiet(self) -> bool:
        return len(self.readings) == 1

    def summary(self, what: int) -> BrokerStatsItem:
        """Of the COUNT or the BYTES: the growth, the growth per second, and the growth per time counted."""
        first, last = self.readings[0], self.readings[-1]
        grown = last[COUNT] - first[COUNT] if what == COUNT else last[BYTES] - first[BYTES]
        times = last[1] - first[1]
        elapsed_s = last[0] - first[0]
        return BrokerStatsItem(
            avgpt=grown / times if times else 0.0, sum=grown, tps=grown / elapsed_s if elapsed_s > 0 else 0.0
        )


class Counter:
    """`times` something happened, to `count` messages of `bytes` bytes in all. Add to all three."""

    __slots__ = ("_base", "_windows", "bytes", "count", "times")

    def __init__(self) -> None:
        self.times: int = 0
        self.count: int = 0
        self.bytes: int = 0
        self._base: Reading = (0.0, 0, 0, 0)
        self._windows: tuple[Window, Window, Window] | None = None

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
        if self._windows is None:
            if self.times == self._base[1]:
                return
            base = self._base
            self._windows = (
                Window(MINUTE_S, MINUTE_READINGS, base),
                Window(HOUR_S, HOUR_READINGS, base),
                Window(DAY_S, DAY_READINGS, base),
            )
        minute, hour, day = self._windows
        reading = (now_s, self.times, self.count, self.bytes)
        minute.take(reading)
        if samples % HOUR_EVERY == 0:
            hour.take(reading)
        if samples % DAY_EVERY == 0:
            day.take(reading)
            if minute.is_quiet and hour.is_quiet and day.is_quiet:
                self._base = reading
                self._windows = None

    def summary(self, what: int) -> BrokerStatsData:
        if self._windows is None:
            return BrokerStatsData()
        minute, hour, day = self._windows
        return BrokerStatsData(
            stats_day=day.summary(what), stats_hour=hour.summary(what), stats_minute=minute.summary(what)
        )

    def rate(self) -> float:
        """Messages per second in the last minute."""
        return 0.0 if self._windows is None else self._windows[0].summary(COUNT).tps
