"""A histogram of times with buckets of equal ratio: a thousand or a billion values cost the same, within 5 percent."""

import math
from typing import Any, Final

RATIO: Final = 1.05
LEAST_MS: Final = 0.001
_LOG: Final = math.log(RATIO)
BAR_COLUMNS: Final = 40


class Histogram:
    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, took_ms: float) -> None:
        bucket = int(math.log(max(took_ms, LEAST_MS) / LEAST_MS) / _LOG)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.sum_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)

    def quantile(self, share: float) -> float:
        """The upper edge of the bucket that has it; 0 if there is nothing."""
        wanted = math.ceil(self.count * share)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_edge(bucket + 1), self.max_ms)
        return 0.0

    def figures(self) -> dict[str, Any]:
        shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
        found = {name: round(self.quantile(share), 3) for name, share in shares.items()}
        mean_ms = self.sum_ms / self.count if self.count else 0.0
        return {"mean_ms": round(mean_ms, 3), **found, "max_ms": round(self.max_ms, 3)}

    def rows(self) -> list[dict[str, Any]]:
        """By powers of two of a millisecond: `up_to_ms` and how many."""
        coarse: dict[float, int] = {}
        for bucket, count in self._buckets.items():
            up_to_ms = 2.0 ** math.ceil(math.log2(_edge(bucket + 1)) - 1e-9)
            coarse[up_to_ms] = coarse.get(up_to_ms, 0) + count
        return [{"up_to_ms": up_to_ms, "count": count} for up_to_ms, count in sorted(coarse.items())]

    def drawing(self) -> str:
        rows = self.rows()
        most = max((int(row["count"]) for row in rows), default=1)
        return "\n".join(
            f"{row['up_to_ms']:>10.3f} ms  {row['count']:>9}  {'#' * math.ceil(BAR_COLUMNS * row['count'] / most)}"
            for row in rows
        )


def _edge(bucket: int) -> float:
    return float(LEAST_MS * RATIO**bucket)
