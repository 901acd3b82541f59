"""What filters of a query say about whole partitions: which topics, queues and offsets can match at all.

Only used to leave partitions out. Spark checks every row against every filter all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from cometmq.spark.stores.partitions import LogRange, QueueRange

_BOUNDS: Final[dict[str, Callable[[int], tuple[int | None, int | None]]]] = {
    "GreaterThan": lambda value: (value + 1, None),
    "GreaterThanOrEqual": lambda value: (value, None),
    "LessThan": lambda value: (None, value),
    "LessThanOrEqual": lambda value: (None, value + 1),
    "EqualTo": lambda value: (value, value + 1),
    "EqualNullSafe": lambda value: (value, value + 1),
}
_TEXT: Final[dict[str, Callable[[str, Any], bool]]] = {
    "EqualTo": lambda text, value: text == value,
    "EqualNullSafe": lambda text, value: text == value,
    "In": lambda text, value: text in value,
    "StringStartsWith": lambda text, value: text.startswith(value),
    "StringEndsWith": lambda text, value: text.endswith(value),
    "StringContains": lambda text, value: value in text,
}


class Pruning:
    def __init__(self) -> None:
        self._topics: list[tuple[str, Any]] = []
        self._queues: list[tuple[int | None, int | None]] = []
        self._offsets: list[tuple[int | None, int | None]] = []

    def add(self, one: Any) -> None:
        """Takes what it understands of a filter, and no more."""
        kind, name, value = type(one).__name__, ".".join(getattr(one, "attribute", ())), getattr(one, "value", None)
        if name == "topic" and kind in _TEXT:
            self._topics.append((kind, value))
        elif name in ("queueId", "queueOffset") and kind in _BOUNDS and isinstance(value, int):
            (self._queues if name == "queueId" else self._offsets).append(_BOUNDS[kind](value))

    def takes_topic(self, topic: str) -> bool:
        return all(_TEXT[kind](topic, value) for kind, value in self._topics)

    def takes(self, part: QueueRange | LogRange) -> bool:
        queue = getattr(part, "queue_id", None)
        if queue is None:
            return True
        return _overlaps(self._queues, queue, queue + 1) and _overlaps(self._offsets, part.first, part.last)

    def takes_range(self, topic: str, queue_id: int, first: int, last: int) -> bool:
        return (
            self.takes_topic(topic)
            and _overlaps(self._queues, queue_id, queue_id + 1)
            and _overlaps(self._offsets, first, last)
        )


class Pushes:
    """Of a reader whose partitions filters prune. Each is given back too, so that Spark checks every row itself."""

    pruning: Pruning

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            self.pruning.add(one)
            yield one


def _overlaps(bounds: list[tuple[int | None, int | None]], first: int, last: int) -> bool:
    """Whether [first, last) has something in common with every bound [low, high)."""
    return all((low is None or last > low) and (high is None or first < high) for low, high in bounds)
