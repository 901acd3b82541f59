"""Pipelines: finished Spark jobs over CometMQ's formats, each a function and a command.

    from cometmq.spark import session
    from cometmq.spark.pipelines import archive

    print(archive(session(), namesrv="127.0.0.1:9876", topics="orders", root="/lake"))

    cometmq pipeline run archive --namesrv 127.0.0.1:9876 topics=orders root=/lake
"""

from cometmq.spark.pipelines.archive import archive as archive
from cometmq.spark.pipelines.audit import Finding as Finding
from cometmq.spark.pipelines.audit import audit as audit
from cometmq.spark.pipelines.replay import replay as replay
from cometmq.spark.pipelines.steps import Summary as Summary

__all__ = ["Finding", "Summary", "archive", "audit", "replay"]
