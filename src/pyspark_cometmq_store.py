"""Lets Spark find the format `cometmq_store` by itself. Nothing heavy is loaded before it is asked for."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from cometmq.spark.stores.source import StoreSource

        return StoreSource
    raise AttributeError(f"module {__name__} has no attribute {name}")
