"""Format `cometmq_archive`: reads an archive of messages that the archive pipeline has written.

    spark.read.format("cometmq_archive").option("subscribe", "orders").load("/lake")

Only files that a manifest names are read (`lake`), so a batch is there once or not at all. `subscribe`, `startingDay`
and `endingDay` (2026-01-31, the end not included), and with filterPushdown=true filters on topic, leave files out
before they are opened. Columns as in `columns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from cometmq.errors import StoreError
from cometmq.spark.columns import COLUMNS, Column, arrow_schema, chosen, ddl
from cometmq.spark.lake.archive import Lake
from cometmq.spark.options import Options
from cometmq.spark.pruning import Pruning, Pushes
from cometmq.spark.stores.source import wanted_topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

OPTIONS: Final[dict[str, str | None]] = {
    "root": None,
    "subscribe": None,
    "subscribePattern": None,
    "startingDay": None,
    "endingDay": None,
    "columns": None,
    "batchRows": "8192",
    "bytesPerPartition": str(64 * 1024 * 1024),
    "filterPushdown": "false",
}
ALIASES: Final = {"path": "root", "topic": "subscribe"}


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    paths: tuple[str, ...]


class ArchiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "cometmq_archive"

    def schema(self) -> str:
        options = _options(self.options)
        if options.get("columns"):
            return ddl(chosen(options.names("columns")))
        kept = Lake(options.text("root", "the archive's directory, as .load(DIRECTORY)")).columns()
        return ddl(chosen(kept) if kept else COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = PushingReader if _options(self.options).flag("filterPushdown") else ArchiveReader
        return kind(dict(self.options), tuple(chosen(schema.fieldNames())))


class ArchiveReader(DataSourceReader):
    def __init__(self, given: dict[str, str], columns: tuple[Column, ...]) -> None:
        self.given = given
        self.columns = columns
        self.pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        options = _options(self.given)
        lake = Lake(options.text("root"))
        wanted = wanted_topics(options)
        first, last = options.get("startingDay") or "", options.get("endingDay") or "9"
        most = options.number("bytesPerPartition", 1)
        parts: list[InputPartition] = []
        paths: list[str] = []
        size = 0
        for file in lake.live_files():
            if not (wanted(file.topic) and self.pruning.takes_topic(file.topic) and first <= file.day < last):
                continue
            if paths and size + file.bytes > most:
                parts.append(FilesPartition(tuple(paths)))
                paths, size = [], 0
            paths.append(str(lake.place(file.path)))
            size += file.bytes
        return [*parts, FilesPartition(tuple(paths))] if paths else parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not isinstance(partition, FilesPartition):  # Spark's own, where there is nothing to read
            return
        schema = arrow_schema(self.columns)
        rows = _options(self.given).number("batchRows", 1)
        for path in partition.paths:
            try:
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches(rows, columns=schema.names):
                        yield batch.select(schema.names).cast(schema)
            except (pa.ArrowException, OSError, KeyError) as error:
                raise StoreError(f"{path} cannot be read as a file of the archive: {error}") from error


class PushingReader(Pushes, ArchiveReader):
    """With `filterPushdown`."""


def _options(given: Any) -> Options:
    return Options(dict(given), OPTIONS, ALIASES)
