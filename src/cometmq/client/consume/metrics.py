"""Figures of a consumer by topic, over the last minute: for the tools that ask how it is doing."""

from collections import deque
from typing import Final

from cometmq.wire.bodies import ConsumeStatus

WINDOW_S: Final = 60.0
BUCKET_S: Final = 5.0


class Rate:
    """How many, and how long they took together, in the last minute."""

    __slots__ = ("_buckets", "count", "total_s")

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, int, float]] = deque()
        self.count = 0
        self.total_s = 0.0

    def add(self, now_s: float, count: int, took_s: float = 0.0) -> None:
        self.trim(now_s)
        began_s = now_s - now_s % BUCKET_S
        self.count += count
        self.total_s += took_s
        if self._buckets and self._buckets[-1][0] == began_s:
            _, before, total_s = self._buckets.pop()
            count, took_s = count + before, took_s + total_s
        self._buckets.append((began_s, count, took_s))

    def trim(self, now_s: float) -> None:
        while self._buckets and self._buckets[0][0] <= now_s - WINDOW_S:
            _, count, took_s = self._buckets.popleft()
            self.count -= count
            self.total_s -= took_s

    @property
    def per_second(self) -> float:
        return self.count / WINDOW_S

    @property
    def mean_ms(self) -> float:
        return self.total_s * 1000 / self.count if self.count else 0.0


class Figures:
    def __init__(self) -> None:
        self._topics: dict[str, tuple[Rate, Rate, Rate]] = {}

    def pulled(self, topic: str, now_s: float, count: int, took_s: float) -> None:
        self._of(topic)[0].add(now_s, count, took_s)

    def consumed(self, topic: str, now_s: float, count: int, took_s: float, fine: bool) -> None:
        self._of(topic)[1 if fine else 2].add(now_s, count, took_s)

    def status(self, topic: str, now_s: float) -> ConsumeStatus:
        pulled, fine, failed = self._of(topic)
        for rate in (pulled, fine, failed):
            rate.trim(now_s)
        return ConsumeStatus(
            consume_failed_msgs=failed.count,
            consume_failed_tps=failed.per_second,
            consume_ok_tps=fine.per_second,
            consume_rt=fine.mean_ms,
            pull_rt=pulled.mean_ms,
            pull_tps=pulled.per_second,
        )

    def _of(self, topic: str) -> tuple[Rate, Rate, Rate]:
        figures = self._topics.get(topic)
        if figures is None:
            figures = self._topics[topic] = (Rate(), Rate(), Rate())
        return figures
