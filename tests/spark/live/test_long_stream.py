"""A stream that runs while everything around it changes: nothing lost, nothing twice, no memory kept.

    topics appear, queues grow, a broker is restarted, another is away, and at last, while the query is stopped,
    retention takes what it has not read

    COMETMQ_STREAM_S=600      how long (5 s; 20 s in make verify, ten minutes in make soak)
    COMETMQ_AWAY_S=60         how long the broker is away (2 s; 5 s in make verify, a minute in make soak)

What must be there is known twice: the numbers that a producer was told are stored, and the offsets that the brokers
have. Every offset from the first on must be a row, once, but for the stretch that retention took.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cometmq.errors import CometError
from cometmq.spark.live.offsets import Positions, Queue, from_json
from cometmq.testing import SyncCluster
from tests.support.length import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.repeated]

STREAM_S = count("COMETMQ_STREAM_S", 5, 20, 600)
AWAY_S = count("COMETMQ_AWAY_S", 2, 5, 60)
# Messages a second, of about a kilobyte.
RATE = 300
LIMIT_S = 120.0
PADDING = b" " * 1000
COLUMNS = "topic,brokerName,queueId,queueOffset,body"
SETTINGS: dict[str, str | int | float | bool] = {
    "brokerFastFailureEnable": False,
    "mappedFileSizeCommitLog": 1 << 20,
    "maxMessageSize": 1 << 18,
    "cleanResourceInterval": 200,
    "deleteCommitLogFilesInterval": 0,
}


@pytest.fixture
def flows() -> Iterator[SyncCluster]:
    with SyncCluster(brokers=2, settings=SETTINGS) as made:
        made.create_topic("flow_0", queues=1)
        yield made


class Sender:
    """Numbers to all topics by turns; what fails is sent again, so a number may be stored twice."""

    def __init__(self, cluster: SyncCluster) -> None:
        self.topics = ["flow_0"]
        self.stored: list[int] = []
        self.failed = 0
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(LIMIT_S)

    def _run(self) -> None:
        began_s = time.monotonic()
        with self._cluster.client() as client, client.producer("flow") as producer:
            number = 0
            while not self._stopping.is_set():
                try:
                    producer.send(self.topics[number % len(self.topics)], b"%d" % number + PADDING)
                except CometError:
                    self.failed += 1
                    continue
                self.stored.append(number)
                number += 1
                self._stopping.wait(max(0.0, number / RATE - (time.monotonic() - began_s)))

    def burst(self, count: int) -> None:
        """More at once, from outside; numbers that nobody else uses."""
        with self._cluster.client() as client, client.producer("burst") as producer:
            for number in range(10**9, 10**9 + count):
                producer.send_soon(self.topics[number % len(self.topics)], b"%d" % number + PADDING)
            producer.flush()


class Memory:
    """Samples of what Spark's Python processes hold (MiB, the largest), and of the JVM's heap after a collection."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self.workers: list[float] = []
        self.heap: list[float] = []

    def sample(self) -> None:
        runtime = self._spark._jvm.java.lang.Runtime.getRuntime()
        self._spark._jvm.java.lang.System.gc()
        self.heap.append((runtime.totalMemory() - runtime.freeMemory()) / 2**20)
        self.workers.append(max(map(_resident_mib, _pythons(self._spark.sparkContext._gateway.proc.pid)), default=0.0))


def _pythons(root: int) -> list[int]:
    """Processes of Python that descend from this one."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            parents[int(folder.name)], names[int(folder.name)] = int(rest.split()[1]), name
    found, seen = [root], {root}
    for pid in found:
        below = [child for child, parent in parents.items() if parent == pid and child not in seen]
        seen.update(below)
        found += below
    return [pid for pid in found if names.get(pid, "").startswith("python")]


def _resident_mib(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except OSError:
        return 0.0


class Stream:
    def __init__(self, spark: SparkSession, cluster: SyncCluster, folder: Path) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder

    def start(self, **options: str) -> StreamingQuery:
        source = (
            self.spark.readStream.format("cometmq")
            .options(namesrvAddr=self.cluster.namesrv, subscribePattern="flow_.*", startingOffsets="earliest")
            .options(columns=COLUMNS, metadataTtlMs="1000", maxOffsetsPerTrigger="5000", **options)
            .load()
        )
        numbered = source.selectExpr(*COLUMNS.split(",")[:4], "CAST(trim(CAST(body AS STRING)) AS BIGINT) AS number")
        return (
            numbered.writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .option("path", str(self.folder / "out"))
            .trigger(processingTime="1 second")
            .start()
        )

    def positions(self, query: StreamingQuery) -> Positions:
        progress: Any = query.lastProgress
        return from_json(progress.sources[0].endOffset) if progress is not None else {}

    def bounds(self) -> dict[Queue, tuple[int, int]]:
        found: dict[Queue, tuple[int, int]] = {}
        with self.cluster.client() as client, client.admin() as admin:
            for topic in [name for name in admin.topics() if name.startswith("flow_")]:
                for queue in admin.topic_queues(topic):
                    at = Queue(topic, queue.broker_name, queue.queue_id)
                    found[at] = (admin.earliest_offset(queue), admin.latest_offset(queue))
        return found

    def catch_up(self, query: StreamingQuery, failure: str) -> None:
        ends = {queue: last for queue, (_, last) in self.bounds().items() if last}
        wait(query, failure, lambda: all(self.positions(query).get(queue, 0) >= ends[queue] for queue in ends))

    def rows(self) -> dict[Queue, Counter[int]]:
        found: dict[Queue, Counter[int]] = {}
        for row in self.spark.read.parquet(str(self.folder / "out")).select(*COLUMNS.split(",")[:4]).collect():
            found.setdefault(Queue(row[0], row[1], row[2]), Counter())[row[3]] += 1
        return found


def wait(query: StreamingQuery, failure: str, is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert query.isActive, f"{failure}: the query has ended: {query.exception()}"
        assert time.monotonic() < give_up_s, failure
        time.sleep(0.2)


def test_a_stream_lives_through_all_that_happens_around_it(
    spark: SparkSession, flows: SyncCluster, tmp_path: Path
) -> None:
    stream, memory = Stream(spark, flows, tmp_path), Memory(spark)
    began_s = time.monotonic()

    def until(share: float) -> None:
        while time.monotonic() - began_s < STREAM_S * share:
            memory.sample()
            assert query.isActive, query.exception()
            time.sleep(min(10.0, max(0.5, STREAM_S / 40)))

    with Sender(flows) as sender:
        query = stream.start()
        run = query.runId
        wait(query, "the stream does not begin", lambda: bool(stream.positions(query)))
        began_s = time.monotonic()
        until(0.1)
        flows.create_topic("flow_1", queues=2)
        sender.topics = ["flow_0", "flow_1"]
        until(0.2)
        flows.create_topic("flow_0", queues=3)
        until(0.3)
        flows.brokers[0].restart()
        until(0.45)
        flows.brokers[1].kill()
        away_s = time.monotonic()
        while time.monotonic() - away_s < AWAY_S:
            assert query.isActive, query.exception()
            time.sleep(0.5)
        flows.brokers[1].start()
        until(0.75)
        flows.create_topic("flow_2", queues=1)
        flows.create_topic("flow_1", queues=4)
        sender.topics = ["flow_0", "flow_1", "flow_2"]
        until(1.0)
        wait(query, "the new topic is not read", lambda: any(q.topic == "flow_2" for q in stream.positions(query)))
        assert query.runId == run
        query.stop()
        stood = committed(tmp_path / "checkpoint")
        sender.burst(6000)
        expire(flows, lambda: any(first > stood.get(queue, 0) for queue, (first, _) in stream.bounds().items()))
    query = stream.start()
    with pytest.raises(Exception, match=r"were wanted, the queue has \d+ to \d+ \(retention passed the start\); set"):
        query.awaitTermination()
    query = stream.start(failOnDataLoss="false")
    stream.catch_up(query, "the stream does not come to its end")
    query.stop()

    bounds, rows = stream.bounds(), stream.rows()
    lost = {queue: range(stood.get(queue, 0), first) for queue, (first, _) in bounds.items()}
    for queue, (_, last) in bounds.items():
        expected = set(range(last)) - set(lost[queue])
        assert set(rows.get(queue, ())) == expected, f"{queue}: {sorted(expected ^ set(rows.get(queue, ())))[:10]}"
    assert all(count == 1 for counter in rows.values() for count in counter.values())
    told = sum(map(len, rows.values()))
    gap = sum(map(len, lost.values()))
    stored = len(sender.stored) + 6000
    print(
        f"seconds={STREAM_S:.0f} away={AWAY_S:.0f} stored={stored} failed_sends={sender.failed} rows={told} "
        f"lost_to_retention={gap} queues={len(rows)} workers_mib={_ends(memory.workers)} heap_mib={_ends(memory.heap)}"
    )
    assert told + gap >= stored
    first, last = _ends(memory.workers)
    assert last <= first * 1.25 + 30, f"Python processes grow: {memory.workers}"
    first, last = _ends(memory.heap)
    assert last <= first * 1.25 + 100, f"the heap grows: {memory.heap}"


def _ends(samples: list[float]) -> tuple[int, int]:
    """Early, after the start has settled, and late."""
    quarter = max(1, len(samples) // 4)
    return round(statistics.median(samples[quarter : 2 * quarter])), round(statistics.median(samples[-quarter:]))


def committed(checkpoint: Path) -> Positions:
    """Where the last batch ended that was finished; one that was not is read again."""
    batch = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    return from_json((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


def expire(cluster: SyncCluster, is_enough: Callable[[], bool]) -> None:
    """Retention takes files, the oldest first, until it is enough."""
    with cluster.client() as client, client.admin() as admin:
        admin.set_broker_config({"fileReservedTime": "0"})
        admin.delete_expired_files()
        cluster.advance(61)  # a broker looks for the first time a minute after its start
        give_up_s = time.monotonic() + LIMIT_S
        while not is_enough():
            assert time.monotonic() < give_up_s, "retention has not passed the start: the test shows nothing"
            time.sleep(0.2)
        admin.set_broker_config({"fileReservedTime": "72"})
