"""Format `cometmq_store`: messages straight from store directories, without a broker.

    spark.read.format("cometmq_store").option("subscribe", "orders").load("/var/lib/cometmq/store")

A directory may be stopped, copied, crashed, or in use by a running broker, ours or RocketMQ's; nothing in it is
changed. Several directories, of several brokers, are read at once: `paths` is a JSON object from broker name to
directory.

    split=queue (default)   partition = what queues have in one stretch of the log, about `maxBytesPerPartition` of it.
                            A consume queue names only whole messages, so a live store can be read up to its end.
    split=log               partition = a byte range of one log file: every record of the broker, half messages and
                            delayed ones too, in log order. A record belongs to the range in which it begins.

What cannot be read: with `badRecords=fail` (default) the query ends with the place and the cause, with `skip` the
reader goes on at the next whole record. `brokerName` names the broker of a single directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from cometmq.errors import ConfigError
from cometmq.spark.columns import COLUMNS, Column, chosen, ddl
from cometmq.spark.live.topics import matching
from cometmq.spark.options import Options
from cometmq.spark.pruning import Pruning, Pushes
from cometmq.spark.stores.partitions import LogRange, QueueRange, StoreDirectory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

OPTIONS: Final[dict[str, str | None]] = {
    "paths": None,
    "brokerName": None,
    "commitLog": None,
    "subscribe": None,
    "subscribePattern": None,
    "split": "queue",
    "startingTimestamp": None,
    "endingTimestamp": None,
    "columns": None,
    "decompress": "true",
    "badRecords": "fail",
    "checkCrc": "false",
    "maxBytesPerPartition": str(128 * 1024 * 1024),
    "batchRows": "8192",
    "batchBytes": str(16 * 1024 * 1024),
    "filterPushdown": "false",
}
ALIASES: Final = {"topic": "subscribe", "path": "paths"}


@dataclass(frozen=True)
class StorePartition(InputPartition):
    store: StoreDirectory
    # Of some queues in one stretch of the log, or that stretch.
    part: tuple[QueueRange, ...] | LogRange


@dataclass(frozen=True)
class Reading:
    """How partitions are read; travels to the executors."""

    columns: tuple[Column, ...]
    inflate: bool
    skip_bad: bool
    check_crc: bool
    rows_max: int
    bytes_max: int


class StoreSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "cometmq_store"

    def schema(self) -> str:
        return ddl(_columns(_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _options(self.options)
        kind = PushingReader if options.flag("filterPushdown") else StoreReader
        return kind(dict(self.options), tuple(chosen(schema.fieldNames())))


class StoreReader(DataSourceReader):
    def __init__(self, given: dict[str, str], columns: tuple[Column, ...]) -> None:
        options = _options(given)
        self.given = given
        self.pruning = Pruning()
        self.reading = Reading(
            columns,
            options.flag("decompress"),
            options.choice("badRecords", ("fail", "skip")) == "skip",
            options.flag("checkCrc"),
            options.number("batchRows", 1),
            options.number("batchBytes", 1),
        )

    def partitions(self) -> list[InputPartition]:
        options = _options(self.given)
        by_log = options.choice("split", ("queue", "log")) == "log"
        most = options.number("maxBytesPerPartition", 1)
        wanted = wanted_topics(options)
        found: list[InputPartition] = []
        for store in directories(options):
            if by_log:
                found += [StorePartition(store, part) for part in store.log_ranges(most) if self.pruning.takes(part)]
                continue
            for share in store.queue_shares(lambda topic: wanted(topic) and self.pruning.takes_topic(topic), most):
                parts = tuple(filter(self.pruning.takes, share))
                if parts:
                    found.append(StorePartition(store, parts))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StorePartition):  # Spark's own, where there is nothing to read
            return iter(())
        options = _options(self.given)
        store, part = partition.store, partition.part
        if not isinstance(part, LogRange):
            return _between(store.read_queues(part, self.reading), options)
        if options.get("subscribe") or options.get("subscribePattern"):
            raise ConfigError("split=log reads every topic: filter by the column topic instead of subscribe")
        return _between(store.read(part, self.reading), options)


class PushingReader(Pushes, StoreReader):
    """With `filterPushdown`."""


def _options(given: Any) -> Options:
    return Options(dict(given), OPTIONS, ALIASES)


def _columns(options: Options) -> Sequence[Column]:
    return chosen(options.names("columns")) if options.get("columns") else COLUMNS


def wanted_topics(options: Options) -> Callable[[str], bool]:
    names, pattern = set(options.names("subscribe")), options.get("subscribePattern")
    if names and pattern:
        raise ConfigError("give one of subscribe and subscribePattern")
    if pattern:
        return matching(pattern)
    return (lambda topic: topic in names) if names else (lambda topic: True)


def directories(options: Options) -> list[StoreDirectory]:
    stated = options.text("paths", "the store directory, as .load(DIRECTORY)")
    if stated.lstrip().startswith("{"):
        named = json.loads(stated)
    elif stated.lstrip().startswith("["):
        named = {os.path.basename(os.path.normpath(path)): path for path in json.loads(stated)}
    else:
        named = {options.get("brokerName") or os.path.basename(os.path.normpath(stated)): stated}
    return [StoreDirectory.at(path, name, options.get("commitLog")) for name, path in sorted(named.items())]


def _between(batches: Iterator[pa.RecordBatch], options: Options) -> Iterator[pa.RecordBatch]:
    first, last = options.optional_number("startingTimestamp"), options.optional_number("endingTimestamp")
    if first is None and last is None:
        yield from batches
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        if "storeTimestamp" not in batch.schema.names:
            raise ConfigError("startingTimestamp and endingTimestamp need the column storeTimestamp")
        at = batch.column("storeTimestamp").cast(pa.int64())
        keep = pc.and_(
            pc.greater_equal(at, (first or 0) * 1000), pc.less(at, last * 1000 if last is not None else (1 << 62))
        )
        yield batch.filter(keep)
