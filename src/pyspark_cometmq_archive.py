"""Lets Spark find the format `cometmq_archive` by itself. Nothing heavy is loaded before it is asked for."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from cometmq.spark.lake.source import ArchiveSource

        return ArchiveSource
    raise AttributeError(f"module {__name__} has no attribute {name}")
