"""Pipelines: finished Spark jobs over CometMQ's formats, each a function and a command.

    from cometmq.spark import session
    from cometmq.spark.pipelines import archive

    print(archive(session(), namesrv="127.0.0.1:9876", topics="orders", root="/lake"))

    cometmq pipeline run archive --namesrv 127.0.0.1:9876 topics=orders root=/lake

What each takes and promises is in its module; docs/spark.md has an example of each.
"""

from cometmq.spark.pipelines.archive import archive as archive
from cometmq.spark.pipelines.audit import Finding as Finding
from cometmq.spark.pipelines.audit import audit as audit
from cometmq.spark.pipelines.dedupe import dedupe as dedupe
from cometmq.spark.pipelines.dlq import DeadLetter as DeadLetter
from cometmq.spark.pipelines.dlq import dlq as dlq
from cometmq.spark.pipelines.mirror import mirror as mirror
from cometmq.spark.pipelines.mirror import translate as translate
from cometmq.spark.pipelines.rebuild import rebuild as rebuild
from cometmq.spark.pipelines.replay import replay as replay
from cometmq.spark.pipelines.report import report as report
from cometmq.spark.pipelines.schema import schema as schema
from cometmq.spark.pipelines.search import Hit as Hit
from cometmq.spark.pipelines.search import search as search
from cometmq.spark.pipelines.sql import sql as sql
from cometmq.spark.pipelines.steps import Summary as Summary
from cometmq.spark.pipelines.window import window as window

__all__ = [
    "DeadLetter",
    "Finding",
    "Hit",
    "Summary",
    "archive",
    "audit",
    "dedupe",
    "dlq",
    "mirror",
    "rebuild",
    "replay",
    "report",
    "schema",
    "search",
    "sql",
    "translate",
    "window",
]
