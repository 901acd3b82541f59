"""Lets Spark find the format `cometmq` by itself. Nothing heavy is loaded before it is asked for."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from cometmq.spark.live.source import CometSource

        return CometSource
    raise AttributeError(f"module {__name__} has no attribute {name}")
