"""What a scrape gathers: points, in slices, made into families.

collector   yields (row name, label values in the row's order, number or buckets), and None where it may be stopped
gather      runs collectors on the loop, at most `SLICE_S` at a time
families    bounds label sets: what is beyond the limit is added up in one series with otel_metric_overflow="true"
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Final

from cometmq.broker.metrics.families import BY_NAME, ROWS
from cometmq.broker.stats.spread import Spread
from cometmq.wire.exposition import Family, Placed, Series, Value, label_text

SLICE_S: Final = 0.002
LOOK_EVERY: Final = 16
OVERFLOW: Final = "otel_metric_overflow"

# A label without a value is left out.
Labels = tuple[str | None, ...]
Point = tuple[str, Labels, Value]
Points = dict[str, dict[Labels, Value]]


def placed(spread: Spread) -> Placed:
    return Placed(spread.bounds, tuple(spread.counts), spread.sum)


async def gather(collectors: Iterable[Iterator[Point | None]]) -> Points:
    points: Points = {}
    until_s = monotonic() + SLICE_S
    seen = 0
    for collector in collectors:
        for point in collector:
            if point is not None:
                name, labels, value = point
                points.setdefault(name, {})[labels] = value
            seen += 1
            if seen % LOOK_EVERY == 0 and monotonic() > until_s:
                await asyncio.sleep(0)
                until_s = monotonic() + SLICE_S
    return points


def families(points: Points, common: Mapping[str, str], series_max: int) -> list[Family]:
    """For any thread: `points` is not changed any more."""
    made = []
    for row in ROWS:
        found = points.get(row.name)
        if found:
            series = _series(row.name, found, common, series_max)
            made.append(Family(row.name, row.kind, row.help, row.unit, tuple(series)))
    made.append(Family("target", "info", "Target metadata", "", (Series("", 1.0),)))
    return made


def _series(name: str, found: dict[Labels, Value], common: Mapping[str, str], series_max: int) -> Iterator[Series]:
    names = BY_NAME[name].labels
    over: list[Value] = []
    for index, (labels, value) in enumerate(found.items()):
        if index >= series_max:
            over.append(value)
            continue
        own = {label: text for label, text in zip(names, labels, strict=True) if text is not None}
        yield Series(label_text({**common, **own}), value)
    if over:
        yield Series(label_text({**common, OVERFLOW: "true"}), _sum(over))


def _sum(values: list[Value]) -> Value:
    first = values[0]
    if not isinstance(first, Placed):
        return sum(value for value in values if not isinstance(value, Placed))
    spreads = [value for value in values if isinstance(value, Placed)]
    counts = tuple(sum(column) for column in zip(*(spread.counts for spread in spreads), strict=True))
    return Placed(first.bounds, counts, sum(spread.sum for spread in spreads))
