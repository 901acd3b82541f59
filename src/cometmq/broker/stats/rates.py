"""How fast the store works: what it did per second, in the last 10 s, the last minute and the last ten minutes.

Readings are taken every 10 s. A rate is the difference between now and the youngest reading that is at least as old as
its span, or the start where there is none; so it never leaves out what has just happened.
"""

from collections import deque
from typing import Final, NamedTuple

from cometmq.clock import Clock
from cometmq.store.store import Store

SPANS_S: Final = (10.0, 60.0, 600.0)
READINGS_MAX: Final = 62


class Work(NamedTuple):
    """Of the store since its start."""

    at_s: float
    put: int
    found: int
    missed: int
    transferred: int


class Rates(NamedTuple):
    """Per second; each has a number for every span."""

    put: list[float]
    found: list[float]
    missed: list[float]
    transferred: list[float]


class Pace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._store: Store | None = None
        self._readings: deque[Work] = deque(maxlen=READINGS_MAX)

    def start(self, store: Store) -> None:
        self._store = store
        self.sample()

    def sample(self) -> None:
        self._readings.append(self._work())

    def rates(self) -> Rates:
        now = self._work()
        spans = [(now, self._before(now.at_s - span_s)) for span_s in SPANS_S]
        return Rates(
            put=[_rate(now, then, now.put - then.put) for now, then in spans],
            found=[_rate(now, then, now.found - then.found) for now, then in spans],
            missed=[_rate(now, then, now.missed - then.missed) for now, then in spans],
            transferred=[_rate(now, then, now.transferred - then.transferred) for now, then in spans],
        )

    def _before(self, time_s: float) -> Work:
        return next((work for work in reversed(self._readings) if work.at_s <= time_s), self._readings[0])

    def _work(self) -> Work:
        assert self._store is not None, "start comes first"
        reading = self._store.reading
        return Work(
            self._clock.monotonic(),
            self._store.log.metrics.messages,
            reading.found,
            reading.missed,
            reading.transferred,
        )


def _rate(now: Work, then: Work, done: int) -> float:
    elapsed_s = now.at_s - then.at_s
    return done / elapsed_s if elapsed_s > 0 else 0.0
