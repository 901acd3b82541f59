"""CometMQ in Spark: three formats, a session that has them, and pipelines.

    from cometmq.spark import session

    spark = session()
    spark.read.format("cometmq_store").load("data/store").groupBy("topic").count().show()

    cometmq           a live cluster, ours or RocketMQ's: source and sink, batch and stream
    cometmq_store     store directories, read without a broker
    cometmq_archive   an exactly-once Parquet lake of messages
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cometmq.spark.live.progress import attach as attach
    from cometmq.spark.runtime.session import register as register
    from cometmq.spark.runtime.session import session as session

__all__ = ["attach", "register", "session"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import importlib

    module = "live.progress" if name == "attach" else "runtime.session"
    return getattr(importlib.import_module(f"cometmq.spark.{module}"), name)
