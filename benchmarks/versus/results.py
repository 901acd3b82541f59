"""What was measured, kept in a JSON file that grows run by run, and the ratios that follow from it.

    {"machine": "...", "records": [{run, number, load, make, per_s, cpu_us, load_us, ...}], "limits": [{...}]}

A record is one make under one load in one round. Records of several runs add up; one that is measured again under the
same run and round takes the place of the old one. A ratio is that of the medians, ours / RocketMQ's; its spread is
over the rounds, each with its own pair.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

JAVA: Final = "java"


@dataclass(frozen=True, slots=True)
class Record:
    run: str
    number: int
    load: str
    make: str
    per_s: float
    # Processor time per message: of the broker, and of the programs that load it.
    cpu_us: float
    load_us: float
    # How many windows the load ran, and whether the last three agreed.
    windows: int
    settled: bool
    resident_mib: float
    private_mib: float
    ready_s: float
    failed: int
    # Only where sends are paced.
    p50_us: float = 0.0
    p99_us: float = 0.0

    @property
    def key(self) -> tuple[str, int, str, str]:
        return self.run, self.number, self.load, self.make


@dataclass(slots=True)
class Results:
    machine: str = ""
    records: list[Record] = field(default_factory=list)
    limits: list[dict[str, float]] = field(default_factory=list)

    def add(self, records: list[Record]) -> None:
        by_key = {record.key: record for record in [*self.records, *records]}
        self.records = list(by_key.values())

    def of(self, load: str, make: str) -> list[Record]:
        return [record for record in self.records if record.load == load and record.make == make]

    def makes(self, load: str) -> list[str]:
        """Ours, of which there are figures beside RocketMQ's."""
        if not self.of(load, JAVA):
            return []
        return list(dict.fromkeys(each.make for each in self.records if each.load == load and each.make != JAVA))

    def loads(self) -> list[str]:
        return list(dict.fromkeys(record.load for record in self.records))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours / RocketMQ's."""

    value: float
    low: float
    high: float


def median(records: list[Record], name: str) -> float:
    return float(statistics.median(getattr(record, name) for record in records))


def ratio(results: Results, load: str, make: str, name: str) -> Ratio:
    ours, theirs = results.of(load, make), results.of(load, JAVA)
    beside = {(record.run, record.number): getattr(record, name) for record in theirs}
    each = [
        getattr(record, name) / beside[(record.run, record.number)]
        for record in ours
        if beside.get((record.run, record.number))
    ]
    value = median(ours, name) / median(theirs, name) if median(theirs, name) else 0.0
    return Ratio(value, min(each, default=value), max(each, default=value))


def load_file(path: Path) -> Results:
    if not path.exists():
        return Results(machine())
    content: dict[str, Any] = json.loads(path.read_text())
    records = [Record(**record) for record in content["records"]]
    return Results(content["machine"], records, content["limits"])


def save_file(path: Path, results: Results) -> None:
    """Whole or not at all: a run that is ended leaves what earlier ones found."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    content = {
        "machine": results.machine,
        "records": [asdict(record) for record in results.records],
        "limits": results.limits,
    }
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(unfinished, path)


def machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
