"""The table of a lake topic: how it is made, found and committed to.

    mq.orders      the 21 columns of a message (`cometmq.spark.columns`), by day of `storeTimestamp`

Files have no field ids: the table's name mapping says which column is which, and PyIceberg sets it with the first file.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError, StoreError
from cometmq.spark.columns import COLUMNS
from cometmq.spark.lake.archive import Manifest
from cometmq.spark.tables.catalog import NAMESPACE, CatalogAway, Place, file_uri, first_line, opened
from cometmq.spark.tables.commits import TOPIC, Addition, addition

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

PROPERTIES: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    # Nobody looks for a body by its smallest and largest, and they would be in each entry.
    "write.metadata.metrics.column.body": "none",
    "write.metadata.metrics.column.properties": "none",
}
TRIES_MAX: Final = 5
_NO_RETRIES: Final = "commit.retry.num-retries"


def table_name(topic: str) -> str:
    """mq.orders; what other engines would not take in a name becomes `_`."""
    return f"{NAMESPACE}.{re.sub(r'[^A-Za-z0-9_-]', '_', topic)}"


def create(catalog: Catalog, topic: str) -> bool:
    """Makes the table of a topic; False if it is there. ConfigError if its name is another topic's."""
    from pyiceberg.exceptions import TableAlreadyExistsError
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform

    catalog.create_namespace_if_not_exists(NAMESPACE)
    schema = message_schema()
    by_day = PartitionField(schema.find_field("storeTimestamp").field_id, 1000, DayTransform(), "day")
    name = table_name(topic)
    try:
        catalog.create_table(name, schema, partition_spec=PartitionSpec(by_day), properties=PROPERTIES | {TOPIC: topic})
    except TableAlreadyExistsError:
        other = catalog.load_table(name).properties.get(TOPIC)
        if other != topic:
            raise ConfigError(
                f"table {name} exists and is {f'that of topic {other}' if other else 'no lake table'}: "
                f"drop or rename it, or use another catalog for {topic}"
            ) from None
        return False
    return True


def message_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        IcebergType,
        IntegerType,
        LongType,
        MapType,
        NestedField,
        StringType,
        TimestamptzType,
    )

    inner = len(COLUMNS) + 1
    types: dict[str, IcebergType] = {
        "STRING": StringType(),
        "BINARY": BinaryType(),
        "INT": IntegerType(),
        "BIGINT": LongType(),
        "TIMESTAMP": TimestamptzType(),
        "MAP<STRING,STRING>": MapType(inner, StringType(), inner + 1, StringType(), value_required=False),
    }
    fields = [
        NestedField(number, column.name, types[column.sql_type], required=False, doc=column.meaning)
        for number, column in enumerate(COLUMNS, 1)
    ]
    return Schema(*fields)


def lake_tables(catalog: Catalog) -> dict[str, Table]:
    """Topic -> table."""
    if not catalog.namespace_exists(NAMESPACE):
        return {}
    tables = [catalog.load_table(name) for name in catalog.list_tables(NAMESPACE)]
    return {table.properties[TOPIC]: table for table in tables if TOPIC in table.properties}


@contextmanager
def tables_at(place: Place) -> Iterator[tuple[Catalog, dict[str, Table]]]:
    with opened(place) as catalog, reached(place):
        yield catalog, lake_tables(catalog)


@contextmanager
def reached(place: Place) -> Iterator[None]:
    """Errors of the catalog as ours."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except NoSuchTableError as error:
        raise StoreError(f"{first_line(error)} in catalog {place.shown}: it was dropped meanwhile") from error
    except FileNotFoundError as error:
        raise StoreError(f"a file of a table of catalog {place.shown} is gone: {first_line(error)}") from error
    except (CommitFailedException, RESTError, SQLAlchemyError, OSError) as error:
        raise CatalogAway(f"catalog {place.shown}: {first_line(error)}") from error


def chosen_tables(tables: dict[str, Table], topics: Iterable[str], place: Place) -> dict[str, Table]:
    """Those of these topics, all without any. ConfigError names what there is not."""
    wanted = list(topics)
    missing = [topic for topic in wanted if topic not in tables]
    if missing or not tables:
        known = ", ".join(sorted(tables)) or "none"
        asked = f"no table of {', '.join(missing)}" if missing else "no table"
        raise ConfigError(
            f"catalog {place.shown} has {asked}; it has those of topics {known}: cometmq lake create "
            f"{missing[0] if missing else 'TOPIC'}"
        )
    return {topic: tables[topic] for topic in wanted or sorted(tables)}


def commit(table: Table, topic: str, root: Any, manifests: list[Manifest], *, check: bool, gaps: bool) -> int:
    """Adds what the table lacks of these batches, in as many commits as it takes; the rows added.

    PyIceberg would try a commit that lost against another again by itself, with files that the other may have added:
    here each try looks at the table anew.
    """
    from pyiceberg.exceptions import CommitFailedException

    rows = 0
    tries = 0
    while True:
        missing = addition(topic, table.properties, manifests, gaps=gaps)
        if missing is None:
            return rows
        try:
            _add(table, root, missing, check)
        except CommitFailedException:
            tries += 1
            if tries == TRIES_MAX:
                raise
        else:
            rows += sum(file.rows for file in missing.files)
            tries = 0
        table.refresh()


def _add(table: Table, root: Any, missing: Addition, check: bool) -> None:
    with once(table).transaction() as change, warnings.catch_warnings():
        # That bodies and properties have no statistics is so on purpose.
        warnings.simplefilter("ignore")
        noted = {"cometmq.batches": ",".join(f"{query}/{batch}" for query, batch in missing.batches)[:1000]}
        paths = [file_uri(root.place(file.path)) for file in missing.files]
        change.add_files(paths, snapshot_properties=noted, check_duplicate_files=check)
        change.set_properties(missing.properties)


def once(table: Table) -> Table:
    """The same with a commit that is tried once: what it was decided from must not have changed."""
    table.metadata = table.metadata.model_copy(update={"properties": {**table.metadata.properties, _NO_RETRIES: "0"}})
    return table
