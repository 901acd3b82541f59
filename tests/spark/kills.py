"""Kills drivers, workers and brokers at named points of pipelines, and looks whether each message arrived once.

    python -m tests.spark.kills 7            one seed
    python -m tests.spark.kills 0 30         seeds 0 to 29

A seed says what is run, at which point (`cometmq.spark.kill_points`), for which time, and who dies. 54 seeds in a row
have each pipeline with each point and each victim; 18 have every two of the three. Whoever comes to the point waits
there.
Then the checkpoint, the target and what makes a batch count are looked at: they must say the same as the name of the
point. Then the victim is killed with SIGKILL. Pipelines run in a driver that takes jobs line by line, so that only its
own death costs a new one; a job that fails, or whose driver died, is given again until it is through.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any, Final

from cometmq.errors import NoRoute
from cometmq.spark.live.offsets import from_dict
from tests.spark.conftest import fill
from tests.spark.victims import Driver, Servers, kill_broker, kill_worker

ROWS: Final = 180
ROWS_PER_BATCH: Final = 60
BATCHES: Final = 3
QUEUES: Final = 2  # at each of two brokers
# Small, so that a task pulls twice or more, and sends twice or more.
PULL: Final = 8
WINDOW: Final = 8
TRIES_MAX: Final = 6
WAIT_S: Final = 300.0
PIPELINES: Final = ("archive", "sink", "mirror")
VICTIMS: Final = ("driver", "worker", "broker")
# Points in the order in which a batch comes to them, and how often a whole run does at least.
POINTS: Final = {
    "offsets logged": BATCHES,
    "before read": 4 * BATCHES,
    "in read": 4 * BATCHES,
    "in write": 4 * BATCHES,
    "written": BATCHES,
    "committed": BATCHES,
}
# From nine seeds to the next nine; reading and writing by turns.
STEPS: Final = (0, 3, 1, 4, 2, 5)
LEDGER: Final = "cometmq_spark_ledger"
READING: Final = ("offsets logged", "before read", "in read")


@dataclass(frozen=True)
class Fault:
    seed: int
    pipeline: str
    point: str
    time: int
    victim: str
    # Of the source, or of the target; which of the two.
    cluster: str
    broker: int

    @classmethod
    def of(cls, seed: int) -> Fault:
        dice = random.Random(seed)
        number, turn = seed % 3, seed // 3 % 3
        point = tuple(POINTS)[(2 * number + 2 * turn + STEPS[seed // 9 % 6]) % 6]
        cluster = "source" if point in READING or PIPELINES[number] == "archive" else "target"
        # After a point that a batch comes to once there must be another batch that feels the death.
        times = POINTS[point] - (POINTS[point] == BATCHES)
        return cls(seed, PIPELINES[number], point, dice.randint(1, times), VICTIMS[turn], cluster, dice.randrange(2))

    def __str__(self) -> str:
        who = f"{self.cluster} broker" if self.victim == "broker" else self.victim
        return f"seed {self.seed}: {self.pipeline}, {who} dies at {self.point!r}, time {self.time}"


# The driver


def run_jobs() -> None:
    """Takes jobs from stdin, one JSON a line, and answers each with a line."""
    from cometmq.spark import session

    jobs = {"archive": _archive, "sink": _sink, "mirror": _mirror}
    # Short-lived: what the better compiler would gain never comes back.
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    conf = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": java, "spark.sql.shuffle.partitions": "2"}
    spark = session("kills", master="local[2,4]", conf=conf)
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

    # Pulled or from the broker's files, whichever it finds.
    limits: dict[str, Any] = {"rows_per_batch": ROWS_PER_BATCH, "pullBatchSize": str(PULL), "batchRows": str(PULL)}
    archive(spark, namesrv=source, topics=topic, root=folder, checkpoint=f"{folder}/checkpoint", **limits)


def _sink(spark: Any, source: str, target: str, topic: str, folder: str) -> None:
    read = {"namesrvAddr": source, "subscribe": topic, "startingOffsets": "earliest", "columns": "body,keys"}
    read |= {"maxOffsetsPerTrigger": str(ROWS_PER_BATCH), "pullBatchSize": str(PULL)}
    frame = spark.readStream.format("cometmq").options(**read).load()
    write = {"namesrvAddr": target, "topic": topic, "delivery": "deduplicated", "maxInFlight": str(WINDOW)}
    stream = frame.writeStream.format("cometmq").options(**write, checkpointLocation=f"{folder}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()


def _mirror(spark: Any, source: str, target: str, topic: str, folder: str) -> None:
    from cometmq.spark.pipelines import mirror

    limits: dict[str, Any] = {"rows_per_batch": ROWS_PER_BATCH, "pullBatchSize": str(PULL)}
    limits["to_maxInFlight"] = str(WINDOW)
    limits |= {"cluster": "A", "to_cluster": "B"}
    mirror(spark, namesrv=source, to_namesrv=target, topics=topic, state=folder, **limits)


# What watches it


class Range:
    """Two clusters, a driver, and a place for faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults = folder / "faults"
        self.faults.mkdir(parents=True)
        self.clusters = {"source": Servers(folder / "a"), "target": Servers(folder / "b")}
        self.source, self.target = self.clusters["source"], self.clusters["target"]
        self.driver: Driver | None = None
        # What was seen at the last strike.
        self.seen = ""

    def __enter__(self) -> Range:
        self.source.start()
        self.target.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.driver is not None:
            self.driver.stop()
        self.target.stop()
        self.source.stop()

    def strike(self, fault: Fault) -> int:
        """Runs the pipeline of a seed with its fault; how often the job was given. AssertionError if rows are wrong."""
        try:
            return self._strike(fault)
        except BaseException:
            # The job may still run or wait at the point: the next seed begins without it.
            if self.driver is not None:
                self.driver.kill()
                self.driver = None
            raise

    def _strike(self, fault: Fault) -> int:
        topic = f"kill_{fault.seed}"
        self.seen = ""
        self.source.create_topic(topic, QUEUES)
        self.target.create_topic(topic, QUEUES)
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
            assert tries <= TRIES_MAX, f"{fault}: not through after {TRIES_MAX} tries; see {self.faults / 'driver.log'}"
        assert self.seen, f"{fault}: the point was not reached"
        CHECKS[fault.pipeline](self, topic, place)
        if fault.victim == "driver":
            assert tries > 1, f"{fault}: the job went on without its driver"
        return tries

    def _through(self, job: dict[str, str], fault: Fault) -> bool:
        if self.driver is None:
            self.driver = Driver(self.faults)
            assert self._answer(self.driver, None) == "ready"
        self.driver.ask(job)
        answer = self._answer(self.driver, fault)
        with (self.faults / "driver.log").open("a") as log:
            log.write(f"{fault}: {answer}\n")
        if answer == "dead":
            self.driver.kill()
            self.driver = None
        return answer == "done"

    def _answer(self, driver: Driver, fault: Fault | None) -> str:
        give_up_s = time.monotonic() + WAIT_S
        while time.monotonic() < give_up_s:
            try:
                return driver.answers.get(timeout=0.02)
            except Empty:
                if fault is not None and not self.seen and (self.faults / "struck").exists():
                    self._do_worst(driver, fault)
        raise AssertionError(f"{fault}: no answer for {WAIT_S} s; see {self.faults / 'driver.log'}")

    def _do_worst(self, driver: Driver, fault: Fault) -> None:
        point, _, number = (self.faults / "struck").read_text().rpartition(" ")
        assert point == fault.point
        seen = Seen.now(self, fault)
        assert SIGNS[point](seen), f"{fault}: this is not {point!r}: {seen}"
        (self.faults / "plan").unlink()
        if fault.victim == "driver":
            driver.kill()
            killed = f"driver process {driver.pid} with its session"
        elif fault.victim == "worker":
            # A point in the driver has no worker of its own: then one that waits for its next task dies.
            killed = kill_worker(int(number) if int(number) != driver.pid else _any_worker(driver, fault))
        else:
            killed = kill_broker(self.clusters[fault.cluster].brokers[fault.broker])
        self.seen = f"{seen}; killed {killed}"
        # Whoever waited meets a broker that is away, and then one that comes back.
        (self.faults / "go").touch()
        if fault.victim == "broker":
            self.clusters[fault.cluster].brokers[fault.broker].start()


def _any_worker(driver: Driver, fault: Fault) -> int:
    workers = driver.workers()
    assert workers, f"{fault}: the driver has no worker"
    return random.Random(fault.seed).choice(workers)


# Where a batch was when it was struck


@dataclass(frozen=True)
class Seen:
    batch: int
    rows: int
    # Rows of the batch in files or topic.
    written: int
    # By manifest, table or ledger.
    counts: bool
    # Spark's log has it as done.
    is_done: bool

    @classmethod
    def now(cls, range_: Range, fault: Fault) -> Seen:
        topic = f"kill_{fault.seed}"
        place = range_.folder / topic
        checkpoint = place / "checkpoint"
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        batch = max(_logged(checkpoint / "offsets"))
        before, after = _total(checkpoint, batch - 1), _total(checkpoint, batch)
        written, counts = STATES[fault.pipeline](range_, topic, place, query, batch)
        if fault.pipeline != "archive":
            written -= before
        return cls(batch, after - before, written, counts, batch in _logged(checkpoint / "commits"))

    def __str__(self) -> str:
        return f"batch {self.batch}: {self.written} of {self.rows} rows written, counts: {self.counts}"


# What must be true at each point, as anybody can see it from outside.
SIGNS: Final[dict[str, Callable[[Seen], bool]]] = {
    "offsets logged": lambda seen: not seen.is_done and not seen.counts and seen.written == 0,
    "before read": lambda seen: not seen.is_done and not seen.counts and seen.written < seen.rows,
    "in read": lambda seen: not seen.is_done and not seen.counts and seen.written < seen.rows,
    "in write": lambda seen: not seen.is_done and not seen.counts and seen.written > 0,
    "written": lambda seen: not seen.is_done and not seen.counts and seen.written == seen.rows,
    "committed": lambda seen: not seen.is_done and seen.counts and seen.written == seen.rows,
}


def _logged(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]


def _total(checkpoint: Path, batch: int) -> int:
    """Rows up to the end of a batch, by Spark's log of offsets. Queues begin at 0."""
    if batch < 0:
        return 0
    positions = from_dict(json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]))
    return sum(positions.values())


def _archive_now(range_: Range, topic: str, place: Path, query: str, batch: int) -> tuple[int, bool]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cometmq.spark.lake.archive import Lake

    rows = 0
    for path in (place / "data").glob(f"**/part-{query}-{batch}-*.parquet"):
        try:
            rows += pq.read_metadata(path).num_rows
        except pa.ArrowInvalid:  # another task writes it
            continue
    return rows, Lake(place).is_published(query, batch)


def _sink_now(range_: Range, topic: str, place: Path, query: str, batch: int) -> tuple[int, bool]:
    try:
        notes = [json.loads(one.body) for one in range_.target.messages(LEDGER)]
    except NoRoute:  # no sink has begun yet
        notes = []
    counts = any(note["query"] == query and note["next"] > batch for note in notes)
    return len(range_.target.messages(topic)), counts


def _mirror_now(range_: Range, topic: str, place: Path, query: str, batch: int) -> tuple[int, bool]:
    from cometmq.spark.pipelines.mirror_table import Table

    return len(range_.target.messages(topic)), Table(place).is_published(query, batch)


STATES: Final = {"archive": _archive_now, "sink": _sink_now, "mirror": _mirror_now}


# What arrived


def _identities(cluster: Servers, topic: str) -> dict[tuple[str, int, int], tuple[bytes, int]]:
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

    from cometmq.spark.lake.archive import live_paths

    rows = [row for path in live_paths(place) for row in pq.read_table(path, partitioning=None).to_pylist()]
    found = Counter((row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows)
    wanted = _identities(range_.source, topic)
    assert found == Counter(wanted.keys()), _difference(found, Counter(wanted.keys()))
    for row in rows:
        body, crc = wanted[row["brokerName"], row["queueId"], row["queueOffset"]]
        assert (row["body"], row["bodyCRC"]) == (body, crc)


def check_sink(range_: Range, topic: str, place: Path) -> None:
    messages = range_.target.messages(topic)
    found = Counter((zlib.crc32(one.body), one.body, one.keys) for one in messages)
    bodies = [b"%d" % number for number in range(ROWS)]
    wanted = Counter((zlib.crc32(body), body, (f"k{body.decode()}",)) for body in bodies)
    assert found == wanted, _difference(found, wanted)
    marks = Counter(one.properties["CMQ_TX"] for one in messages)
    assert set(marks.values()) == {1}


def check_mirror(range_: Range, topic: str, place: Path) -> None:
    from cometmq.spark.live.offsets import Queue
    from cometmq.spark.pipelines.mirror_table import Table

    wanted = {f"A/{topic}/{b}/{q}/{o}": body for (b, q, o), (body, _) in _identities(range_.source, topic).items()}
    messages = range_.target.messages(topic)
    found = Counter(one.properties["CMQ_SRC"] for one in messages)
    assert found == Counter(wanted.keys()), _difference(found, Counter(wanted.keys()))
    table = Table(place)
    for one in messages:
        assert one.queue is not None
        source = one.properties["CMQ_SRC"]
        assert (one.body, zlib.crc32(one.body)) == (wanted[source], zlib.crc32(wanted[source]))
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
            print(f"{fault}: {range_.seen}: {told}, {time.monotonic() - begun_s:.1f} s", flush=True)
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{last - first} seeds, {failed} wrong", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--driver":
        run_jobs()
    else:
        begin = int(sys.argv[1])
        sys.exit(main(begin, int(sys.argv[2]) if len(sys.argv) > 2 else begin + 1))
