"""How often a value fell where: counts between bounds, and the sum of all values. What becomes a histogram.

bounds   (1, 10, 100)
counts   [<= 1, <= 10, <= 100, more]
"""

from bisect import bisect_left


class Spread:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds: tuple[float, ...] = bounds
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.sum: float = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)
