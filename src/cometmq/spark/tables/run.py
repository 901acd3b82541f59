"""`cometmq lake run`: new messages of lake topics into their tables, each once.

    offsets logged by Spark > files by workers > manifest, created once > commit to each table > batch done in Spark

Files and manifests are those of the archive pipeline. A commit takes all batches that a table lacks, so it may come
later than they do: every `commit_every_s`, and at the end. Killed before the manifest the batch is written again, and
what it had written is strays; killed after it the next start commits it first; killed after the commit the table says
that it has the batch. A run without a checkpoint begins where the tables end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError
from cometmq.spark.columns import COLUMNS
from cometmq.spark.lake.archive import CODEC, Lake, Manifest, check_codec
from cometmq.spark.live.offsets import EARLIEST, Positions, to_json
from cometmq.spark.live.remote import remote
from cometmq.spark.live.source import source_options
from cometmq.spark.live.starting import queues_of
from cometmq.spark.pipelines.archive import Batch
from cometmq.spark.pipelines.progress import ProgressLine, follow, progress
from cometmq.spark.pipelines.steps import Summary, at
from cometmq.spark.tables.catalog import CatalogAway, Place
from cometmq.spark.tables.commits import committed, covered
from cometmq.spark.tables.table import chosen_tables, commit, tables_at
from cometmq.spark.tables.upkeep import KEEP_S, upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# Rows of a table are all messages of its topic, in whole: what leaves some out, or out of them, is refused.
REFUSED: Final = ("tags", "sqlfilter", "columns", "emit", "decompress", "subscribe", "topic", "topics")
COMMIT_EVERY_S: Final = 30.0
MAINTAIN_EVERY_S: Final = 3600.0
LOOK_EVERY_S: Final = 1.0


def run(
    spark: SparkSession,
    *,
    place: Place,
    namesrv: str,
    topics: Iterable[str] = (),
    once: bool = True,
    interval_s: float = 10.0,
    commit_every_s: float = COMMIT_EVERY_S,
    maintain_every_s: float = MAINTAIN_EVERY_S,
    keep_s: float = KEEP_S,
    rows_per_batch: int = 1_000_000,
    partitions: int | None = None,
    codec: str = CODEC,
    **source: str,
) -> Summary:
    """Tables of `topics`, of all lake topics without any. Until all that is there is in them (`once`), or until it is
    stopped, with `upkeep` from time to time. `source`: further options of the source."""
    check_codec(codec)
    refused = [name for name in source if name.lower().replace("_", "") in REFUSED or name.lower().startswith("start")]
    if refused:
        raise ConfigError(f"lake run takes no {', '.join(refused)}: a table has all messages of its topic, whole")
    with place.locked():
        lake = Lake(place.root)
        lake.manifests.mkdir(parents=True, exist_ok=True)
        with tables_at(place) as (_, tables):
            wanted = sorted(chosen_tables(tables, topics, place))
        options = {
            "namesrvAddr": namesrv,
            "subscribe": ",".join(wanted),
            "maxOffsetsPerTrigger": str(rows_per_batch),
            "minPartitions": str(partitions or spark.sparkContext.defaultParallelism),
            "readMode": "auto",
            **source,
        }
        commits = Commits(place, commit_every_s, gaps=not source_options(options).flag("failOnDataLoss"))
        commits.commit()
        options["startingOffsets"] = to_json(_starts(place, options))
        with progress("lake run") as line, commits.going_on(0 if once else maintain_every_s, keep_s):
            ranges = spark.readStream.format("cometmq").options(**options, emit="shares").load()
            batch = _LakeBatch(str(lake.root), options, COLUMNS, codec, line, commits)
            writer = ranges.writeStream.foreachBatch(batch)
            writer = writer.option("checkpointLocation", str(place.root / "checkpoint"))
            every = f"{interval_s} seconds"
            timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
            follow(timed.start(), line, count=False)
        commits.commit()
    return Summary("lake run", {"rows": commits.rows, "commits": commits.count, "tables": len(wanted)})


def _starts(place: Place, options: dict[str, str]) -> Positions:
    """Where a run without a checkpoint begins: where the tables end, and with the first message of other queues."""
    with tables_at(place) as (_, tables):
        ends = {queue: end for table in tables.values() for queue, end in committed(table.properties).items()}
    given = source_options(options)
    return {queue: ends.get(queue, EARLIEST) for queue in queues_of(given, remote(given))}


class _LakeBatch(Batch):
    def __init__(
        self, root: str, options: dict[str, str], columns: Any, codec: str, line: ProgressLine, commits: Commits
    ) -> None:
        super().__init__(root, options, columns, codec, line)
        self.commits = commits

    def publish(self, lake: Lake, manifest: Manifest) -> None:
        lake.publish(manifest, listed=False)
        at("manifest")
        self.commits.if_due()
        at("committed")


class Commits:
    """The driver's commits: from batches, from a thread while no batch comes, and at the end; one at a time."""

    def __init__(self, place: Place, every_s: float, *, gaps: bool) -> None:
        self.place = place
        self.rows = 0
        self.count = 0
        self._every_s = every_s
        self._gaps = gaps
        self._last_s = time.monotonic()
        # PyIceberg looks through the whole table for the files of a commit: for the first after a start only.
        self._checked: set[str] = set()
        self._lock = threading.Lock()
        # Of the thread; the next batch raises it.
        self._fault: Exception | None = None

    def if_due(self) -> None:
        """A catalog that is away is no reason to stop: batches wait in their manifests."""
        if self._fault is not None:
            raise self._fault
        if time.monotonic() - self._last_s < self._every_s:
            return
        try:
            self.commit()
        except CatalogAway as error:
            self._last_s = time.monotonic()
            logger.warning("cannot commit, batches wait: %s", error)

    def commit(self) -> None:
        """Whatever is written and in no table yet."""
        with self._lock:
            lake = Lake(self.place.root)
            there = lake.batches()
            if there:
                self._commit(lake, [lake.manifest(query, batch) for query, known in there.items() for batch in known])
            self._last_s = time.monotonic()

    def _commit(self, lake: Lake, manifests: list[Manifest]) -> None:
        with tables_at(self.place) as (_, tables):
            for topic, table in sorted(tables.items()):
                added = commit(table, topic, lake, manifests, check=topic not in self._checked, gaps=self._gaps)
                self._checked.add(topic)
                if added:
                    self.rows += added
                    self.count += 1
                    logger.info("commit table=%s rows=%d", ".".join(table.name()), added)
                    at("in commit")
            properties = {topic: table.properties for topic, table in tables.items()}
        # Spark may repeat its last batch, which is known by its manifest.
        newest = {manifest.query: manifest.batch for manifest in sorted(manifests, key=lambda one: one.batch)}
        for manifest in manifests:
            if manifest.batch < newest[manifest.query] and covered(manifest, properties):
                lake.forget(manifest.query, manifest.batch)

    @contextmanager
    def going_on(self, maintain_every_s: float, keep_s: float) -> Iterator[None]:
        """Commits that are due while no batch comes, and upkeep from time to time."""
        over = threading.Event()

        def work() -> None:
            maintained_s = time.monotonic()
            try:
                while not over.wait(LOOK_EVERY_S):
                    self.if_due()
                    if maintain_every_s and time.monotonic() - maintained_s >= maintain_every_s:
                        with self._lock:
                            upkeep(self.place, keep_s=keep_s)
                        maintained_s = time.monotonic()
            except Exception as error:
                logger.exception("stop commits")
                self._fault = error

        thread = threading.Thread(target=work, name="lake-commits", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if self._fault is not None:
            raise self._fault


