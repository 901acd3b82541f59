"""Messages for pipelines that do not care where they are: a cluster, an archive, or store directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def messages(
    spark: SparkSession,
    *,
    topics: str,
    columns: str,
    namesrv: str | None = None,
    root: str | None = None,
    store: str | None = None,
    **source: str,
) -> DataFrame:
    """These columns of all messages of the topics: of the archive `root`, else the stores, else the cluster, of which
    `source` are further options (keys, TLS)."""
    if root and store:
        raise ConfigError("give one of root= (an archive) and store= (store directories)")
    common = {"subscribe": topics, "columns": columns}
    if root:
        return spark.read.format("cometmq_archive").options(**common).load(root)
    if store:
        return spark.read.format("cometmq_store").options(**common).load(store)
    if not namesrv:
        raise ConfigError("say where the messages are: namesrv=HOST:PORT, root=ARCHIVE or store=DIRECTORY")
    live = {**source, **common, "namesrvAddr": namesrv, "startingOffsets": "earliest"}
    return spark.read.format("cometmq").options(**live).load()
