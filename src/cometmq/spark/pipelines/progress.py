"""Progress of a running pipeline: one line on stderr that is drawn anew, and only where stderr is a terminal.

    with progress("mirror") as line:
        follow(query, line)                # a stream: rows and lag of each micro-batch, until it ends
        line(rows=1200, lag=30)            # or by hand; `rows` is the total so far

    mirror  1,200 rows  400 rows/s  lag 30

Nothing is printed into logs and pipes: there the summary at the end is what counts.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from cometmq.spark.live.offsets import from_dict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DRAW_EVERY_S: Final = 0.2
POLL_S: Final = 0.5


class ProgressLine:
    """Takes the figures of a job as they come; may be called from any thread."""

    def __init__(self, name: str, stream: TextIO | None) -> None:
        self.rows = 0
        self.figures: dict[str, Any] = {}
        self._name = name
        self._stream = stream
        self._begun_s = time.monotonic()
        self._drawn_s = 0.0
        self._lock = threading.Lock()

    @property
    def is_shown(self) -> bool:
        return self._stream is not None

    def __call__(self, *, rows: int | None = None, **figures: Any) -> None:
        with self._lock:
            self.rows = rows if rows is not None else self.rows
            self.figures |= figures
            if self._stream is not None and time.monotonic() - self._drawn_s >= DRAW_EVERY_S:
                self._drawn_s = time.monotonic()
                self._stream.write(f"\r\x1b[K{self.text()}")
                self._stream.flush()

    def add(self, rows: int) -> None:
        self(rows=self.rows + rows)

    def text(self) -> str:
        rate = self.rows / max(0.001, time.monotonic() - self._begun_s)
        shown = [self._name, f"{self.rows:,} rows", f"{rate:,.0f} rows/s"]
        shown += [
            f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in self.figures.items()
        ]
        return "  ".join(shown)

    def wipe(self) -> None:
        if self._stream is not None and self._drawn_s:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def progress(name: str, stream: TextIO | None = None) -> Iterator[ProgressLine]:
    """`stream`: where to, stderr if it is a terminal, by default. The line is gone when the job is done."""
    line = ProgressLine(name, stream or (sys.stderr if sys.stderr.isatty() else None))
    try:
        yield line
    finally:
        line.wipe()


def follow(query: StreamingQuery, line: ProgressLine, *, count: bool = True) -> None:
    """Waits until a stream ends and tells how far it is. `count=False`: the job counts its rows itself."""
    seen = -1
    while not query.awaitTermination(1):
        seen = _drawn(query, line, seen, count)
    _drawn(query, line, seen, count)


def _drawn(query: StreamingQuery, line: ProgressLine, seen: int, count: bool) -> int:
    for one in query.recentProgress:
        batch = int(one["batchId"])
        if batch <= seen:
            continue
        seen = batch
        if count:
            line.add(int(one["numInputRows"]))
        line(lag=lag_of(one), batch=batch)
    return seen


def lag_of(stated: Any) -> int:
    """Messages that were there but not read when a micro-batch ended; of a progress report, as Spark gives it."""
    lag = 0
    for source in stated["sources"]:
        told_of = (source[name] for name in ("endOffset", "latestOffset"))
        # The text null, too: a batch that is repeated after a restart knows no latest offset.
        end, latest = (json.loads(text) if isinstance(text, str) else text for text in told_of)
        if end is None or latest is None:
            continue
        there, reached = from_dict(latest), from_dict(end)
        lag += sum(max(0, last - reached.get(queue, 0)) for queue, last in there.items())
    return lag


@contextmanager
def tasks(spark: SparkSession, line: ProgressLine) -> Iterator[None]:
    """Tells, while a batch job runs, how many of its tasks are done. Only a terminal is worth the asking."""
    if not line.is_shown:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not done.wait(POLL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            there = [one for one in stages if one is not None]
            line(tasks=f"{sum(one.numCompletedTasks for one in there)}/{sum(one.numTasks for one in there)}")

    thread = threading.Thread(target=watch, name="pipeline-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
