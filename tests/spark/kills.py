"""Kills drivers, workers and brokers at named points of pipelines, and looks whether each message arrived once.

    python -m tests.spark.kills 7            one seed
    python -m tests.spark.kills 0 30         seeds 0 to 29

A seed says what is run, at which point, for which time it is struck, and who dies. Nine seeds in a row have each
pipeline with each victim. Pipelines run in a child that takes jobs line by line, so that only the death of a driver
costs a new one; a job that fails, or whose driver died, is given again until it is through.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from cometmq.testing import SyncCluster
from tests.spark.conftest import fill

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = 240
ROWS_PER_BATCH: Final = 80
BATCHES: Final = 3
WINDOW: Final = 8
TRIES_MAX: Final = 6
WAIT_S: Final = 300.0
VICTIMS: Final = ("driver", "worker", "broker")
# Points, and how often a whole run comes to each at least.
POINTS: Final = {
    "archive": {
        "archive before write": BATCHES,
        "archive task after read": 4 * BATCHES,
        "archive task after write": 4 * BATCHES,
        "archive before publish": BATCHES,
        "archive after publish": BATCHES,
    },
    "sink": {
        "sink task before send": 4 * BATCHES,
        "task between sends": 8 * BATCHES,
        "sink task after send": 4 * BATCHES,
        "sink before commit": BATCHES,
        "sink after commit": BATCHES,
    },
    "mirror": {
        "mirror before write": BATCHES,
        "mirror task after read": 4 * BATCHES,
        "task between sends": 8 * BATCHES,
        "mirror task after send": 4 * BATCHES,
        "mirror before commit": BATCHES,
        "mirror after commit": BATCHES,
    },
}


@dataclass(frozen=True)
class Fault:
    seed: int
    pipeline: str
    point: str
    time: int
    victim: str
    broker: int

    @classmethod
    def of(cls, seed: int) -> Fault:
        dice = random.Random(seed)
        pipeline = tuple(POINTS)[seed % 3]
        victim = VICTIMS[seed // 3 % 3]
        point = dice.choice(tuple(POINTS[pipeline]))
        return cls(seed, pipeline, point, dice.randint(1, POINTS[pipeline][point]), victim, dice.randrange(4))

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.pipeline}, {self.victim} dies at {self.point!r}, time {self.time}"


# The child


def run_jobs() -> None:
    """Takes jobs from stdin, one JSON a line, and answers each with a line."""
    from cometmq.spark import session

    jobs = {"archive": _archive, "sink": _sink, "mirror": _mirror}
    spark = session("kills", master="local[2,4]", conf={"spark.driver.memory": "1g"})
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            jobs[job.pop("pipeline")](spark, **job)
            print("done", flush=True)
        except Exception as error:
            print(f"failed {str(error).splitlines()[0]}", flush=True)


def _archive(spark: Any, source: str, target: str, topic: str, folder: str) -> None:
    from cometmq.spark.pipelines import archive

    archive(spark, namesrv=source, topics=topic, root=folder, rows_per_batch=ROWS_PER_BATCH)


def _sink(spark: Any, source: str, target: str, topic: str, folder: str) -> None:
    read = {"namesrvAddr": source, "subscribe": topic, "startingOffsets": "earliest", "columns": "body,keys"}
    frame = spark.readStream.format("cometmq").options(**read, maxOffsetsPerTrigger=str(ROWS_PER_BATCH)).load()
    write = {"namesrvAddr": target, "topic": topic, "delivery": "deduplicated", "maxInFlight": str(WINDOW)}
    stream = frame.writeStream.format("cometmq").options(**write, checkpointLocation=folder)
    stream.trigger(availableNow=True).start().awaitTermination()


def _mirror(spark: Any, source: str, target: str, topic: str, folder: str) -> None:
    from cometmq.spark.pipelines import mirror

    mirror(
        spark, namesrv=source, to_namesrv=target, topics=topic, state=folder, rows_per_batch=ROWS_PER_BATCH,
        cluster="A", to_cluster="B", to_maxInFlight=str(WINDOW),
    )  # fmt: skip


class Child:
    """A driver in a process of its own, and what it answers."""

    def __init__(self, folder: Path) -> None:
        env = os.environ | {"COMETMQ_FAULTS": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        env["PYSPARK_PYTHON"] = sys.executable
        self._log = (folder / "child.log").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.kills", "--child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=env, cwd=ROOT,
        )  # fmt: skip
        self.answers: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("ready", "done", "failed")):  # Spark says things there, too
                self.answers.put(line.strip())
        self.answers.put("dead")

    def ask(self, job: dict[str, str]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def workers(self) -> list[int]:
        return [
            pid for pid in descendants(self.process.pid) if "pyspark" in _command(pid) and "daemon" in _command(pid)
        ]

    def kill(self) -> None:
        """The driver with all that it started, at once: nothing of it may send after this."""
        if self.process.poll() is not None:  # its number may be another's by now
            self._close()
            return
        pids = [self.process.pid, *descendants(self.process.pid)]
        for pid in pids:
            _kill(pid)
        self.process.wait()
        give_up_s = time.monotonic() + 30
        while any(_is_alive(pid) for pid in pids) and time.monotonic() < give_up_s:
            time.sleep(0.01)
        self._close()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
            self._close()
        except subprocess.TimeoutExpired:
            self.kill()

    def _close(self) -> None:
        self._reader.join(30)
        for file in (self.process.stdin, self.process.stdout, self._log):
            if file is not None:
                file.close()


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# What watches it


class Range:
    """Two clusters of two brokers, a child, and a place for faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)
        settings = {"brokerFastFailureEnable": False}
        self.source = SyncCluster(brokers=2, settings=settings, directory=folder / "a")
        self.target = SyncCluster(brokers=2, settings=settings, directory=folder / "b")
        self.child: Child | None = None

    def __enter__(self) -> Range:
        self.source.start()
        self.target.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.child is not None:
            self.child.stop()
        self.target.stop()
        self.source.stop()

    def strike(self, fault: Fault) -> int:
        """Runs the pipeline of a seed with its fault; how often the job was given. AssertionError if rows are wrong."""
        topic = f"kill_{fault.seed}"
        self.source.create_topic(topic, queues=2)
        self.target.create_topic(topic, queues=2)
        fill(self.source, topic, ROWS)
        place = self.folder / topic
        job = {"pipeline": fault.pipeline, "source": self.source.namesrv, "target": self.target.namesrv}
        job |= {"topic": topic, "folder": str(place)}
        for name in ("count", "struck", "go"):
            (self.faults / name).unlink(missing_ok=True)
        (self.faults / "plan").write_text(f"{fault.point}@{fault.time}")
        tries = 1
        while not self._through(job, fault):
            tries += 1
            assert tries <= TRIES_MAX, f"{fault}: not through after {TRIES_MAX} tries; see {self.faults / 'child.log'}"
        assert (self.faults / "struck").exists(), f"{fault}: the point was not reached"
        CHECKS[fault.pipeline](self, topic, place)
        return tries

    def _through(self, job: dict[str, str], fault: Fault) -> bool:
        if self.child is None:
            self.child = Child(self.faults)
            assert self._answer(self.child, None) == "ready"
        self.child.ask(job)
        answer = self._answer(self.child, fault)
        with (self.faults / "child.log").open("a") as log:
            log.write(f"{fault}: {answer}\n")
        if answer == "dead":
            self.child.kill()
            self.child = None
        return answer == "done"

    def _answer(self, child: Child, fault: Fault | None) -> str:
        give_up_s = time.monotonic() + WAIT_S
        while time.monotonic() < give_up_s:
            try:
                return child.answers.get(timeout=0.02)
            except Empty:
                if fault is not None and (self.faults / "struck").exists() and not (self.faults / "go").exists():
                    self._do_worst(child, fault)
        raise AssertionError(f"{fault}: no answer for {WAIT_S} s; see {self.faults / 'child.log'}")

    def _do_worst(self, child: Child, fault: Fault) -> None:
        (self.faults / "plan").unlink()
        struck = int((self.faults / "struck").read_text())
        if fault.victim == "driver":
            child.kill()
        elif fault.victim == "worker":
            # Points of the driver have no worker of their own: then one that waits for its next task dies.
            workers = [struck] if struck != child.process.pid else child.workers()
            _kill(random.Random(fault.seed).choice(workers))
        else:
            brokers = [*self.source.brokers, *self.target.brokers]
            brokers[fault.broker].restart(kill=True)
        (self.faults / "go").touch()


def _identities(cluster: SyncCluster, topic: str) -> dict[tuple[str, int, int], tuple[bytes, int]]:
    """Broker, queue and offset -> body and CRC."""
    messages = cluster.messages(topic)
    found = {
        (one.queue.broker_name, one.queue.queue_id, one.offset): (one.body, zlib.crc32(one.body) & 0x7FFFFFFF)
        for one in messages
        if one.queue is not None
    }
    assert len(found) == len(messages) == ROWS
    return found


def check_archive(range_: Range, topic: str, place: Path) -> None:
    import pyarrow.parquet as pq

    from cometmq.spark.lake import live_paths

    rows = [row for path in live_paths(place) for row in pq.read_table(path, partitioning=None).to_pylist()]
    found = Counter((row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows)
    wanted = _identities(range_.source, topic)
    assert found == Counter(wanted.keys()), _difference(found, Counter(wanted.keys()))
    for row in rows:
        body, crc = wanted[row["brokerName"], row["queueId"], row["queueOffset"]]
        assert (row["body"], row["bodyCRC"]) == (body, crc)


def check_sink(range_: Range, topic: str, place: Path) -> None:
    messages = range_.target.messages(topic)
    found = Counter((one.body, one.keys) for one in messages)
    wanted = Counter((b"%d" % number, (f"k{number}",)) for number in range(ROWS))
    assert found == wanted, _difference(found, wanted)
    marks = Counter(one.properties["CMQ_TX"] for one in messages)
    assert set(marks.values()) == {1}


def check_mirror(range_: Range, topic: str, place: Path) -> None:
    from cometmq.spark.offsets import Queue
    from cometmq.spark.pipelines.mirrortable import Table

    wanted = {f"A/{topic}/{b}/{q}/{o}": body for (b, q, o), (body, _) in _identities(range_.source, topic).items()}
    messages = range_.target.messages(topic)
    found = Counter(one.properties["CMQ_SRC"] for one in messages)
    assert found == Counter(wanted.keys()), _difference(found, Counter(wanted.keys()))
    table = Table(place)
    for one in messages:
        assert one.queue is not None
        source = one.properties["CMQ_SRC"]
        assert zlib.crc32(one.body) == zlib.crc32(wanted[source])
        _, _, broker, number, offset = source.split("/")
        assert int(number) == one.queue.queue_id
        # The table gives for each offset there the offset here of the same message.
        here = Queue(topic, one.queue.broker_name, one.queue.queue_id)
        assert table.translate({Queue(topic, broker, int(number)): int(offset)}) == {here: one.offset}


def _difference(found: Counter[Any], wanted: Counter[Any]) -> str:
    missing, more = wanted - found, found - wanted
    return f"missing {missing.total()}: {list(missing)[:5]}; too many {more.total()}: {list(more)[:5]}"


CHECKS: Final = {"archive": check_archive, "sink": check_sink, "mirror": check_mirror}


def main(first: int, last: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="cometmq-kills-"))
    failed = 0
    with Range(folder) as range_:
        for seed in range(first, last):
            fault = Fault.of(seed)
            begun_s = time.monotonic()
            try:
                told = f"ok, {range_.strike(fault)} tries"
            except AssertionError as error:
                failed += 1
                told = f"WRONG: {error}"
            print(f"{fault}: {told}, {time.monotonic() - begun_s:.1f} s", flush=True)
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{last - first} seeds, {failed} wrong", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        run_jobs()
    else:
        begin = int(sys.argv[1])
        sys.exit(main(begin, int(sys.argv[2]) if len(sys.argv) > 2 else begin + 1))
