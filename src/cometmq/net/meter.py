"""How long requests took, counted where they are answered: by code, by what was answered, in RocketMQ's buckets.

    codes                                 request codes that were answered with SUCCESS, one after the other
    fast[code]                            how many of them took less than a millisecond: `codes`, folded now and then
    placed[code, answer, parked, result]  everything else, in buckets of whole milliseconds

A look at the clock for each request would cost more than counting it. All that was read at once is served at once, so
if that took less than a millisecond each of it did; `slow` places those of a read that took longer by the time of the
whole read. A request that was kept has its own time. `placed` is bounded: whoever asks for a thousand codes that do not
exist gets one row for all of them.
"""

from bisect import bisect_left
from collections import Counter
from time import monotonic
from typing import Final

from cometmq.wire.command import FLAG_ONEWAY

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
SLOW_S: Final = 0.001
CODES_MAX: Final = 4_096
PLACED_MAX: Final = 1_000
# The row of what is beyond that.
OVERFLOW: Final = (-1, -1, 0, 0)

SUCCESS: Final = 0
ONEWAY: Final = 1


class Latencies:
    """`counts` has one entry more than there are bounds: what took longer than the last."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms: int = 0

    def add(self, elapsed_ms: int) -> None:
        self.counts[bisect_left(BOUNDS_MS, elapsed_ms)] += 1
        self.sum_ms += elapsed_ms


class Meter:
    __slots__ = ("codes", "fast", "placed")

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.fast: dict[int, int] = {}
        # (request code, response code, 1 if it was kept, SUCCESS or ONEWAY)
        self.placed: dict[tuple[int, int, int, int], Latencies] = {}

    def settle(self, mark: int, elapsed_s: float) -> None:
        """A read is over that took long, or there are many codes. `mark`: how many there were before it."""
        if elapsed_s >= SLOW_S:
            elapsed_ms = int(elapsed_s * 1000)
            for code in self.codes[mark:]:
                self.place(code, 0, 0, SUCCESS, elapsed_ms)
            del self.codes[mark:]
        self.fold()

    def fold(self) -> None:
        for code, count in Counter(self.codes).items():
            self.fast[code] = self.fast.get(code, 0) + count
        self.codes.clear()

    def note(self, code: int, answer: int, flag: int, since_s: float, read_s: float) -> None:
        """Not answered with SUCCESS at once. `since_s`: when a request that was kept came in, else 0."""
        elapsed_s: float = monotonic() - (since_s if since_s > 0 else read_s)
        result = ONEWAY if flag & FLAG_ONEWAY else SUCCESS
        self.place(code, answer, 1 if since_s > 0 else 0, result, int(elapsed_s * 1000))

    def place(self, code: int, answer: int, kept: int, result: int, elapsed_ms: int) -> None:
        key = (code, answer, kept, result)
        row = self.placed.get(key)
        if row is None:
            if len(self.placed) >= PLACED_MAX:
                key = OVERFLOW
            row = self.placed.get(key)
            if row is None:
                row = self.placed[key] = Latencies()
        row.add(elapsed_ms)
