"""A Spark session with CometMQ's formats in it.

    from cometmq.spark import session

    spark = session()                                            # local, all cores
    spark = session(master="spark://host:7077", conf={"spark.executor.memory": "4g"})

Locally it finds Java by itself, starts workers with the Python that runs here, and binds to loopback. For a cluster the
package is sent to the executors; what it needs there (pyarrow, numpy, msgspec, lz4) must be installed, as pandas and
pyarrow must for any Python data source.
"""

from __future__ import annotations

import os
import socket
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import ConfigError
from cometmq.spark.runtime.java import java_home
from cometmq.spark.runtime.workers import workers_of_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS: Final = {
    "cometmq": ("cometmq.spark.live.source", "CometSource"),
    "cometmq_store": ("cometmq.spark.stores.source", "StoreSource"),
    "cometmq_archive": ("cometmq.spark.lake.source", "ArchiveSource"),
}
_CONF: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
# Only where the driver runs in this process and nobody else is to reach it.
_LOCAL_CONF: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    # Between Spark and its Python workers; a fifth less processor time for a live read than over TCP.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}


def session(
    app: str = "cometmq",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, made if there is none. `remote` is the address of a Spark Connect server."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("Spark is not installed: pip install 'cometmq[spark]'") from None
    builder = SparkSession.builder.appName(app)
    if remote is not None:
        spark = builder.remote(remote).getOrCreate()
        register(spark)
        return spark
    master = master or os.environ.get("SPARK_MASTER") or "local[*]"
    is_local = master.startswith("local")
    settings = {**_CONF, **(_LOCAL_CONF if is_local else {}), **(conf or {})}
    if is_local:
        os.environ["JAVA_HOME"] = java_home()
    for key, value in settings.items():
        builder = builder.config(key, value)
    with workers_of_this_python() if is_local else nullcontext():
        spark = builder.master(master).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if not is_local:
        spark.sparkContext.addPyFile(str(packed_package()))
    register(spark)
    return spark


def register(spark: Any) -> None:
    """Makes the formats known to a session that was made elsewhere."""
    import importlib

    for module, name in FORMATS.values():
        spark.dataSource.register(getattr(importlib.import_module(module), name))


def packed_package() -> Path:
    """This package and its discovery modules as one archive that executors can import from."""
    root = Path(__file__).resolve().parents[3]
    target = Path(tempfile.mkdtemp(prefix="cometmq-spark-")) / "cometmq.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted([*root.glob("cometmq/**/*.py"), *root.glob("pyspark_cometmq*.py")]):
            archive.write(path, path.relative_to(root))
    return target
