"""Counts of what is rare: ends of transactions, timers, changes of topics and groups. Each is an addition.

    commits, rollbacks     topic -> how many clients ended so, by themselves or when they were asked
    finish_s               topic -> seconds from born to committed
    timers_in, timers_out  real topic -> put on the wheel, delivered
    timer_delay_s          real topic -> seconds from born to due
    topic_changes          (succeeded, is a system topic) -> milliseconds; group_changes the same by succeeded

Entries of deleted topics are dropped with them, so the tables have as many as there are topics.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from cometmq.broker.stats.spread import Spread

FINISH_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
TIMER_S: Final = (60, 600, 3_600, 43_200, 86_400, 259_200)
CHANGE_MS: Final = (10, 100, 1_000, 3_000, 5_000)


class Ends:
    def __init__(self) -> None:
        self.commits: dict[str, int] = {}
        self.rollbacks: dict[str, int] = {}
        self.finish_s: dict[str, Spread] = {}
        self.topic_changes: dict[tuple[bool, bool], Spread] = {}
        self.group_changes: dict[bool, Spread] = {}

    def committed(self, topic: str, age_s: int) -> None:
        self.commits[topic] = self.commits.get(topic, 0) + 1
        self.finish_s.setdefault(topic, Spread(FINISH_S)).add(age_s)

    def rolled_back(self, topic: str) -> None:
        self.rollbacks[topic] = self.rollbacks.get(topic, 0) + 1

    def topic_changed(self, *, succeeded: bool, is_system: bool, took_ms: int) -> None:
        self.topic_changes.setdefault((succeeded, is_system), Spread(CHANGE_MS)).add(took_ms)

    def group_changed(self, *, succeeded: bool, took_ms: int) -> None:
        self.group_changes.setdefault(succeeded, Spread(CHANGE_MS)).add(took_ms)

    def drop_topic(self, topic: str) -> None:
        for table in (self.commits, self.rollbacks, self.finish_s):
            table.pop(topic, None)


class TimerTally:
    """What the wheel took in and gave out."""

    def __init__(self) -> None:
        self.timers_in: dict[str, int] = {}
        self.timers_out: dict[str, int] = {}
        self.delay_s: dict[str, Spread] = {}

    def taken_in(self, topic: str, delay_s: int) -> None:
        self.timers_in[topic] = self.timers_in.get(topic, 0) + 1
        self.delay_s.setdefault(topic, Spread(TIMER_S)).add(delay_s)

    def delivered(self, topic: str) -> None:
        self.timers_out[topic] = self.timers_out.get(topic, 0) + 1


class Note(Protocol):
    def __call__(self, *, succeeded: bool, took_ms: int) -> object: ...


@contextmanager
def timed(note: Note) -> Iterator[None]:
    """Tell `note` how long the block took and whether it came to its end."""
    begun_s = time.monotonic()
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        note(succeeded=succeeded, took_ms=int((time.monotonic() - begun_s) * 1000))
