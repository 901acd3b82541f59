"""Tells a consumer group how far a streaming query has come, so that consoles show its lag.

    query = frame.writeStream....start()
    attach(query, namesrvAddr="127.0.0.1:9876", consumerGroup="lake")

The source itself can tell only when the next batch is planned, and Spark never tells it of the last one. A listener in
the driver hears of every batch after it was finished. The group is for those who look: the query stands where its
checkpoint says.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from cometmq.errors import CometError, ConfigError
from cometmq.spark.live.offsets import Positions, from_json
from cometmq.spark.live.remote import CONNECTION_ALIASES, CONNECTION_OPTIONS, remote
from cometmq.spark.options import Options

logger = logging.getLogger(__name__)


def attach(query: Any, *, consumerGroup: str, **connection: str) -> GroupProgress:  # noqa: N803 - the option's name
    """From now on the group has the progress of the query. `connection`: namesrvAddr and its kin, as for the source."""
    options = Options(connection, CONNECTION_OPTIONS, CONNECTION_ALIASES)
    options.text("namesrvAddr", "the name server, host:port;host:port")
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError("there is no active Spark session in this thread: call attach where the query was started")
    listener = GroupProgress(query, consumerGroup, options, spark.streams)
    spark.streams.addListener(listener)
    listener.note(query.lastProgress)
    return listener


class GroupProgress(StreamingQueryListener):
    """Leaves when its query ends."""

    def __init__(self, query: Any, group: str, options: Options, streams: Any) -> None:
        self.query_id = str(query.id)
        self.group = group
        self._options = options
        self._streams = streams

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        if str(event.progress.id) == self.query_id:
            self.note(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        if str(event.id) == self.query_id:
            self._streams.removeListener(self)

    def note(self, progress: Any) -> None:
        positions = _positions(progress)
        if not positions:
            return
        try:
            remote(self._options).commit(self.group, positions)
        except CometError as error:
            logger.warning("cannot save the progress of group %s: %s", self.group, error)


def _positions(progress: Any) -> Positions:
    """Where the sources of this format stand; others speak of offsets in their own ways."""
    found: Positions = {}
    for source in progress.sources if progress is not None else ():
        try:
            found |= from_json(source.endOffset) if '"@v"' in (source.endOffset or "") else {}
        except ConfigError:
            continue
    return found
