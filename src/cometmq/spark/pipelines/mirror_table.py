"""Where messages of one cluster are in another: the table that a mirror keeps, and positions of groups by it.

    STATE/table/QUERY/0000000007.json       what batch 7 of a query has copied; made at once or not at all

    {"queues": [{"from": ["orders", "broker-a", 0], "to": ["orders", "broker-x", 0], "cut": 0,
                 "runs": [[100, 40, 60], [161, 100, 9]]}]}

A run [100, 40, 60] says that offsets 100 to 159 there are 40 to 99 here. A message between runs was not copied: it came
from the target.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cometmq.errors import StoreError
from cometmq.names import path_part
from cometmq.spark.lake.atomic_file import create_whole
from cometmq.spark.live.offsets import Positions, Queue


class Run(NamedTuple):
    source: int
    target: int
    length: int


@dataclass(frozen=True)
class Copied:
    """What of one queue was copied in one batch."""

    source: Queue
    target: Queue
    runs: tuple[Run, ...]
    cut: int

    @property
    def rows(self) -> int:
        return sum(run.length for run in self.runs)

    def to_json(self) -> str:
        return json.dumps({"from": self.source, "to": self.target, "cut": self.cut, "runs": self.runs})

    @classmethod
    def from_json(cls, text: str) -> Copied:
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, stated: dict[str, Any]) -> Copied:
        runs = tuple(Run(*run) for run in stated["runs"])
        return cls(Queue(*stated["from"]), Queue(*stated["to"]), runs, int(stated["cut"]))


def runs_of(places: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """Of pairs of offsets, there and here."""
    runs: list[Run] = []
    for source, target in sorted(places):
        last = runs[-1] if runs else None
        if last is not None and (source, target) == (last.source + last.length, last.target + last.length):
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(Run(source, target, 1))
    return tuple(runs)


class Table:
    def __init__(self, state: str | Path) -> None:
        self.folder = Path(state) / "table"
        self._runs: dict[Queue, list[Run]] = {}
        self._targets: dict[Queue, Queue] = {}
        for path in sorted(self.folder.glob("*/*.json")):
            self._take(_read(path))

    def is_published(self, query: str, batch: int) -> bool:
        return self._path(query, batch).exists()

    def publish(self, query: str, batch: int, copied: list[Copied]) -> None:
        text = json.dumps({"queues": [json.loads(one.to_json()) for one in copied]})
        if create_whole(self._path(query, batch), text.encode()):
            self._take(copied)

    def _path(self, query: str, batch: int) -> Path:
        return self.folder / path_part(query) / f"{batch:010d}.json"

    def _take(self, copied: list[Copied]) -> None:
        for one in copied:
            self._targets[one.source] = one.target
            # Batches of a query come in order; a second query may begin before the first has ended.
            self._runs[one.source] = sorted([*self._runs.get(one.source, ()), *one.runs])

    def sources(self) -> list[Queue]:
        return sorted(self._targets)

    def end(self, source: Queue) -> int:
        """Behind the last copy of this queue's messages: the next ones will not lie below."""
        return max((run.target + run.length for run in self._runs.get(source, ())), default=0)

    def translate(self, positions: Positions) -> Positions:
        """For next offsets there the offsets here at which the same message comes next.

        Where it is not copied yet that is the end of what is. Queues of which nothing was copied are left out. Several
        queues there may be one here: then the lowest, so that nothing is skipped.
        """
        found: Positions = {}
        for source, offset in positions.items():
            if not self._runs.get(source):
                continue
            place = self._place(source, offset)
            target = self._targets[source]
            found[target] = min(found.get(target, place), place)
        return found

    def _place(self, source: Queue, offset: int) -> int:
        runs = self._runs[source]
        at = max(0, bisect_right(runs, offset, key=lambda run: run.source) - 1)
        for run in runs[at : at + 2]:
            if offset < run.source + run.length:
                return run.target + max(0, offset - run.source)
        return self.end(source)


def _read(path: Path) -> list[Copied]:
    try:
        return [Copied.of(one) for one in json.loads(path.read_text())["queues"]]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no table of a mirror: {error}") from None
