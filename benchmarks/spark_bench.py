"""What the parts of `benchmarks.spark` share: the session, how things are timed, and where figures go."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark_topics import Filled, kafka_jars
from benchmarks.windows import AGREEING, agree
from cometmq.spark import session
from tests.compat.harness.build import REPO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What Kafka's source has too: key, value, topic, partition, offset, timestamp.
COLUMNS: Final = "topic,queueId,queueOffset,keys,body,storeTimestamp"

RUNS_MAX: Final = 12

Figure = dict[str, Any]


class Timed:
    """Seconds of several runs, and processor time of all processes in each; the last three count, if there are more.

    A JVM is warm when runs agree (benchmarks/windows.py): `is_settled`. Spark's own and Kafka's broker's both compile
    themselves while they run.
    """

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._cpu_s: list[float] = []
        self._before: dict[int, int] = {}

    def __enter__(self) -> None:
        self._before = tree_ticks()
        self._seconds.append(-time.perf_counter())

    def __exit__(self, *_: object) -> None:
        self._seconds[-1] += time.perf_counter()
        used = sum(ticks - self._before.get(pid, 0) for pid, ticks in tree_ticks().items())
        self._cpu_s.append(used / os.sysconf("SC_CLK_TCK"))

    @property
    def first_s(self) -> float:
        return self._seconds[0]

    @property
    def seconds(self) -> list[float]:
        return (self._seconds[1:] or self._seconds)[-AGREEING:]

    @property
    def least_cpu_s(self) -> float:
        return min((self._cpu_s[1:] or self._cpu_s)[-AGREEING:])

    @property
    def is_settled(self) -> bool:
        return len(self._seconds) > AGREEING and agree(self.seconds)

    @property
    def runs(self) -> int:
        return len(self._seconds)


class Bench:
    """Session, arguments, figures so far."""

    def __init__(self, args: argparse.Namespace, keep: Path, spark: SparkSession | None = None) -> None:
        self.args = args
        self.keep = keep
        self.figures: dict[str, Figure] = {}
        self.spark: SparkSession = spark or self._session()

    def _session(self) -> SparkSession:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(REPO / "src"), str(REPO)])
        conf = {"spark.driver.memory": "3g", "spark.local.dir": str(self.keep / "local"), **dict(self.args.conf)}
        if {"fill", "kafka", "latency"} & set(self.args.only):
            conf["spark.jars"] = ",".join(map(str, sorted(kafka_jars("source").glob("*.jar"))))
        return session("cometmq-benchmark", master=self.args.master, conf=conf)

    def topic(self, size: int) -> Filled:
        return Filled(self.keep, self.args.messages, size).make_store()

    def is_first(self, filled: Filled) -> bool:
        """Of the first size: what says little more with another is left out for the others."""
        return filled.size == int(self.args.bodies[0])

    def put(self, name: str, timed: Timed, filled: Filled, **more: Any) -> None:
        median = statistics.median(timed.seconds)
        figure: Figure = {"rows": filled.count, "seconds": [round(one, 2) for one in timed.seconds]}
        figure |= {
            "first_s": round(timed.first_s, 2),
            "m_rows_per_s": round(filled.count / median / 1e6, 3),
            "best_m_rows_per_s": round(filled.count / min(timed.seconds) / 1e6, 3),
            "mb_bodies_per_s": round(filled.count * filled.size / median / 1e6),
            "cpu_us_per_row": round(timed.least_cpu_s / filled.count * 1e6, 2),
            "runs": timed.runs,
            "settled": timed.is_settled,
            **more,
        }
        self.tell(f"{name}/{filled.size}", figure)

    def tell(self, name: str, figure: Figure) -> None:
        """Adds a figure, and to the file at once: a part that is cut off leaves what it has."""
        self.figures[name] = figure
        print(name, json.dumps(figure), flush=True)
        if self.args.json is not None:
            before = json.loads(self.args.json.read_text()) if self.args.json.exists() else {}
            self.args.json.write_text(json.dumps({**before, name: figure}, indent=1, sort_keys=True) + "\n")

    def read(self, name: str, make: Callable[[], DataFrame], aggregate: str, filled: Filled, rounds: int) -> None:
        """Reads it `rounds` times after a first one, and on until the last three agree."""
        timed = Timed()
        while timed.runs < rounds + 1 or (rounds >= AGREEING and not timed.is_settled and timed.runs < RUNS_MAX):
            with timed:
                row = make().selectExpr(*aggregate.split(", ")).collect()[0]
            assert row["rows"] == filled.count, (name, row)
            assert row["keys"] == filled.count, (name, row)
        self.put(name, timed, filled)

    def scratch(self, name: str) -> str:
        path = self.keep / name
        shutil.rmtree(path, ignore_errors=True)
        return str(path)


def tree_ticks() -> dict[int, int]:
    """Processor time of this process and all below it: Spark, its workers, the servers."""
    parents: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended meanwhile
        # Those of children that have ended count with their parent, if it waits for them.
        parents[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    known = {os.getpid()}
    while found := {pid for pid, (parent, _) in parents.items() if parent in known and pid not in known}:
        known |= found
    return {pid: parents[pid][1] for pid in known if pid in parents}
