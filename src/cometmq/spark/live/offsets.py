"""Where readers stand, as Spark keeps it: one JSON text for all queues.

    {"@v":1,"orders":{"broker-a":{"0":120,"1":98},"broker-b":{"0":77}}}

The numbers are the next offsets to read. Keys are sorted: Spark compares the text, and the same positions in another
order would count as news. `@v` cannot be a topic. Without it the text is what `startingOffsets` takes, where -2 is the
earliest offset, -1 the latest and -3 the group's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from cometmq.errors import ConfigError

VERSION: Final = 1
EARLIEST: Final = -2
LATEST: Final = -1
GROUP: Final = -3
_SHAPE: Final = '{"topic":{"broker":{"queue":offset}}}'


class Queue(NamedTuple):
    topic: str
    broker: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.number} at {self.broker}"


Positions: TypeAlias = dict[Queue, int]


class Range(NamedTuple):
    """Messages [first, last) of a queue."""

    queue: Queue
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


def to_dict(positions: Mapping[Queue, int]) -> dict[str, Any]:
    tree: dict[str, Any] = {"@v": VERSION}
    for queue in sorted(positions):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker, {})[str(queue.number)] = positions[queue]
    return tree


def to_json(positions: Mapping[Queue, int]) -> str:
    return json.dumps(to_dict(positions), separators=(",", ":"))


def from_dict(tree: Any, what: str = "offsets") -> Positions:
    """ConfigError if it is anything else."""
    if not isinstance(tree, dict) or tree.get("@v", VERSION) != VERSION:
        raise ConfigError(f"{what} must be {_SHAPE} of version {VERSION}: {tree!r:.200}")
    try:
        return {
            Queue(topic, broker, int(number)): int(offset)
            for topic, brokers in tree.items()
            if topic != "@v"
            for broker, queues in brokers.items()
            for number, offset in queues.items()
        }
    except (AttributeError, ValueError, TypeError):
        raise ConfigError(f"{what} must be {_SHAPE}: {tree!r:.200}") from None


def from_json(text: str, what: str = "offsets") -> Positions:
    try:
        return from_dict(json.loads(text), what)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{what} is no JSON: {error}") from None


def cut(ranges: Iterable[Range], rows_max: int, parts_min: int | None = None) -> list[Range]:
    """Pieces for partitions: none over `rows_max`, at least `parts_min` in all where there is enough to read."""
    found = [one for one in ranges if len(one) > 0]
    total = sum(map(len, found))
    pieces: list[Range] = []
    for one in found:
        count = -(-len(one) // rows_max)
        if parts_min is not None and len(found) < parts_min:
            count = max(count, -(-parts_min * len(one) // total))
        count = min(count, len(one))
        edges = [one.first + len(one) * number // count for number in range(count + 1)]
        pieces += [Range(one.queue, low, high) for low, high in pairwise(edges)]
    return pieces


def shares(ranges: Iterable[Range], rows_max: int, parts_min: int | None = None) -> list[list[Range]]:
    """The same in shares of one size, for tasks that take several ranges: a queue is cut only where a share ends."""
    found = [one for one in ranges if len(one) > 0]
    total = sum(map(len, found))
    count = min(total, max(parts_min or 1, -(-total // rows_max)))
    dealt: list[list[Range]] = [[] for _ in range(count)]
    behind = number = 0
    for one in found:
        left = one
        while len(left):
            end = total * (number + 1) // count
            cut_at = min(left.last, left.first + end - behind)
            dealt[number].append(Range(one.queue, left.first, cut_at))
            behind += cut_at - left.first
            left = Range(one.queue, cut_at, one.last)
            number += behind == end
    return dealt


def limited(start: Positions, end: Positions, rows_max: int) -> Positions:
    """How far one batch of at most `rows_max` messages may go: shares of the backlog, but each that has any moves."""
    backlog = {queue: end[queue] - start.get(queue, 0) for queue in end if end[queue] > start.get(queue, 0)}
    total = sum(backlog.values())
    if total <= rows_max:
        return end
    shares = {queue: max(1, rows_max * count // total) for queue, count in backlog.items()}
    left = rows_max - sum(shares.values())
    for queue in sorted(backlog, key=lambda one: (-backlog[one], one)):
        more = min(max(0, left), backlog[queue] - shares[queue])
        shares[queue] += more
        left -= more
    return {queue: start.get(queue, 0) + shares[queue] if queue in shares else end[queue] for queue in end}
