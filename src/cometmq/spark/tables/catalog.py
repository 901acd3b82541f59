"""Where tables are found, and where their files lie.

    sql:/lake/catalog.db            SQLite, for one machine; the warehouse is its directory unless another is given
    sql:postgresql+psycopg://...    PostgreSQL through the same catalog; its driver must be installed
    rest:https://host/path          a REST catalog
    glue:                           AWS Glue
    NAME                            an entry of PyIceberg's own configuration (.pyiceberg.yaml, PYICEBERG_CATALOG__...)

    WAREHOUSE/mq/orders/metadata/   what Iceberg knows of the table
    WAREHOUSE/cometmq/              `data/` with the Parquet files, `manifest/` with batches that wait for their commit,
                                    `checkpoint/` of Spark, `lock` of the run

Only SQLite is tested here; the others are PyIceberg's own, and are handed what is written above.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# An SQL catalog keeps it with each table: other programs must use the same.
CATALOG_NAME: Final = "cometmq"
NAMESPACE: Final = "mq"
_SQLITE_WAIT_S: Final = 60


class CatalogAway(StoreError):
    """It cannot be reached, or does not take what it is given now; it may later."""


@dataclass(frozen=True)
class Place:
    """A catalog, as people write it, and an absolute directory."""

    catalog: str
    warehouse: Path

    @classmethod
    def of(cls, catalog: str | None, warehouse: str | None) -> Place:
        catalog = catalog or os.environ.get("COMETMQ_LAKE_CATALOG")
        warehouse = warehouse or os.environ.get("COMETMQ_LAKE_WAREHOUSE")
        if not catalog:
            raise ConfigError(
                "no catalog is given: use --catalog (option catalog), or COMETMQ_LAKE_CATALOG; for one machine "
                "sql:/DIRECTORY/catalog.db"
            )
        if not warehouse:
            file = _sqlite_file(catalog)
            if file is None:
                raise ConfigError(f"catalog {catalog} needs --warehouse (option warehouse), or COMETMQ_LAKE_WAREHOUSE")
            warehouse = str(file.parent)
        if "://" in warehouse and not warehouse.startswith("file://"):
            raise ConfigError(f"warehouse {warehouse}: files are written to a file system only; give a directory")
        if set(warehouse) & set("?#"):
            raise ConfigError(f"warehouse {warehouse} has ? or #, which no table can have in a path: use another name")
        return cls(catalog, Path(warehouse.removeprefix("file://")).absolute())

    @property
    def shown(self) -> str:
        """The catalog without a password."""
        return re.sub(r"//[^@/]*@", "//***@", self.catalog)

    @property
    def root(self) -> Path:
        """Files and manifests, as the archive pipeline lays them out."""
        return self.warehouse / "cometmq"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For the one process that writes; the lock is gone with its process."""
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / "lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreError(
                    f"{self.root / 'lock'} is held: another lake run, compact or expire works on this warehouse; "
                    "stop it, or wait for its end"
                ) from None
            yield


def _sqlite_file(catalog: str) -> Path | None:
    kind, _, rest = catalog.partition(":")
    return Path(rest).absolute() if kind == "sql" and rest and "://" not in rest else None


@contextmanager
def opened(place: Place) -> Iterator[Catalog]:
    """The catalog, closed afterwards: connections do not pass from thread to thread."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ConfigError(f"PyIceberg is not installed ({error.name}): pip install 'cometmq[lake]'") from None
    name, properties = _properties(place)
    try:
        catalog = load_catalog(name, **properties)
    except Exception as error:  # of whatever library reaches the catalog
        raise CatalogAway(f"catalog {place.shown} cannot be opened: {first_line(error)}") from error
    try:
        yield catalog
    finally:
        catalog.close()


def _properties(place: Place) -> tuple[str, dict[str, str | None]]:
    kind, colon, rest = place.catalog.partition(":")
    found: dict[str, str | None] = {"warehouse": file_uri(place.warehouse)}
    file = _sqlite_file(place.catalog)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        return CATALOG_NAME, found | {"type": "sql", "uri": f"sqlite:///{file}?timeout={_SQLITE_WAIT_S}"}
    if not colon:
        return place.catalog, found
    if kind == "sql" and rest:
        return CATALOG_NAME, found | {"type": "sql", "uri": rest}
    if kind == "rest" and rest:
        return CATALOG_NAME, found | {"type": "rest", "uri": rest}
    if kind == "glue" and not rest:
        return CATALOG_NAME, found | {"type": "glue"}
    raise ConfigError(f"catalog {place.shown} is none of sql:FILE, sql:URI, rest:URI, glue: and a configured name")


def file_uri(path: Path) -> str:
    """As Iceberg's libraries write it: nothing is quoted."""
    return f"file://{path}"


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__
