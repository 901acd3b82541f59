"""The charts' memory: for each series one value every 10 s for an hour, and every minute for a day.

    series      lag:GROUP, rate:GROUP, in:TOPIC, broker-in:NAME ...
    in memory   two rings of (second, value), 29 KB a series, at most 2000 series: those not written for longest go
    on disk     with a directory: `history.json`, replaced every minute and at the end; below 64 MiB

Values come from what pages ask for anyway; nobody is asked for a chart.
"""

import json
import logging
import time
from array import array
from pathlib import Path
from typing import Any, Final

from cometmq import state_file
from cometmq.errors import StoreError

logger = logging.getLogger(__name__)

SERIES_MAX: Final = 2000
RINGS: Final = ((10, 360), (60, 1440))
FILE: Final = "history.json"
SAVE_EVERY_S: Final = 60.0


class Ring:
    """The last `size` steps; one value each, the newest of its step."""

    def __init__(self, step_s: int, size: int) -> None:
        self.step_s, self.size = step_s, size
        self.times: array[int] = array("q")
        self.values: array[float] = array("d")

    def add(self, at_s: int, value: float) -> None:
        step = at_s - at_s % self.step_s
        if self.times and self.times[-1] == step:
            self.values[-1] = value
            return
        self.times.append(step)
        self.values.append(value)
        if len(self.times) > self.size * 2:  # cut now and then
            del self.times[: -self.size], self.values[: -self.size]

    def points(self) -> list[list[float]]:
        return [[at, value] for at, value in zip(self.times[-self.size :], self.values[-self.size :], strict=True)]


class History:
    def __init__(self, directory: Path | None = None) -> None:
        self._file = directory / FILE if directory is not None else None
        self._series: dict[str, tuple[Ring, Ring]] = {}
        self._saved_s = time.monotonic()
        if self._file is not None and self._file.exists():
            self._load(self._file)

    def add(self, series: str, value: float | None) -> None:
        if value is None:
            return
        rings = self._series.pop(series, None)
        if rings is None:
            rings = (Ring(*RINGS[0]), Ring(*RINGS[1]))
            if len(self._series) >= SERIES_MAX:
                self._series.pop(next(iter(self._series)))
        self._series[series] = rings
        now_s = int(time.time())
        for ring in rings:
            ring.add(now_s, value)

    def points(self, series: str, *, day: bool = False) -> list[list[float]]:
        rings = self._series.get(series)
        return rings[1 if day else 0].points() if rings is not None else []

    def is_due(self) -> bool:
        return self._file is not None and time.monotonic() - self._saved_s > SAVE_EVERY_S

    def save(self) -> None:
        """Blocks; an error is logged: charts are no reason to stop."""
        self._saved_s = time.monotonic()
        if self._file is None:
            return
        content: dict[str, Any] = {
            name: [[list(ring.times), list(ring.values)] for ring in rings] for name, rings in self._series.items()
        }
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            state_file.save(self._file, json.dumps(content).encode())
        except (OSError, StoreError) as error:
            logger.warning("fail save of history file=%s cause=%s", self._file, error)

    def _load(self, file: Path) -> None:
        try:
            content = json.loads(file.read_bytes())
            for name, saved in list(content.items())[:SERIES_MAX]:
                rings = (Ring(*RINGS[0]), Ring(*RINGS[1]))
                for ring, (times, values) in zip(rings, saved, strict=True):
                    ring.times, ring.values = array("q", times), array("d", values)
                self._series[str(name)] = rings
        except (OSError, ValueError, TypeError, AttributeError) as error:
            logger.warning("forget history file=%s cause=%s", file, error)
            self._series = {}
