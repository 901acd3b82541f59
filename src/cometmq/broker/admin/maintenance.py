"""Cleaning up on demand, the state of replication, and what this broker was not built for.

Cleaning happens by itself as well (store/log/retention.py); these requests only make it happen now.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cometmq.broker.admin.context import MaintenanceContext
from cometmq.broker.entry import Entry
from cometmq.errors import RequestError
from cometmq.net.connection import Connection
from cometmq.store.queues.consume_queues import LMQ_PREFIX
from cometmq.wire.codes import REQUEST_NAMES, Request, Response
from cometmq.wire.command import Command, reply

logger = logging.getLogger(__name__)

QUEUES_PER_TURN: Final = 100


async def clean_queues(context: MaintenanceContext, connection: Connection, request: Command) -> Command:
    """Remove queue files whose messages are no longer in the log."""
    store = context.store
    removed = 0
    for number, queue in enumerate(list(store.queues.all())):
        if number % QUEUES_PER_TURN == QUEUES_PER_TURN - 1:
            await asyncio.sleep(0)
        # Not one of a topic that was deleted in between.
        if store.queues.find(queue.topic, queue.queue_id) is queue:
            removed += store.queues.delete_expired_of(queue, store.log.min_offset)
    logger.info("clean queues removed_files=%d peer=%s", removed, connection.peer_text)
    return reply(request)


async def clean_topics(context: MaintenanceContext, connection: Connection, request: Command) -> Command:
    """Remove the queues of topics that this broker does not have any more."""
    topics, queues = context.topics, context.store.queues
    for topic in [*queues.topics, *queues.batch_topics]:
        if topics.get(topic) is None and not topics.is_system(topic) and not topic.startswith(LMQ_PREFIX):
            logger.info("clean unused topic=%s peer=%s", topic, connection.peer_text)
            context.store.delete_topic(topic)
            await asyncio.sleep(0)
    return reply(request)


def delete_log(context: MaintenanceContext, connection: Connection, request: Command) -> Command:
    """Delete segments that are past their time, in the next rounds, whatever the hour."""
    logger.info("delete expired segments peer=%s", connection.peer_text)
    context.store.retention.delete_by_hand()
    return reply(request)


def ha_status(context: MaintenanceContext, connection: Connection, request: Command) -> Command:
    return reply(request, body=context.ha_status().encode())


# Request -> what it is about.
NOT_BUILT: Final = {
    Request.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: "consume queues in RocksDB",
    Request.EXPORT_ROCKSDB_CONFIG_TO_JSON: "settings in RocksDB",
    Request.ADD_BROKER: "a container of several brokers",
    Request.REMOVE_BROKER: "a container of several brokers",
    Request.RESET_MASTER_FLUSH_OFFSET: "acting masters",
    Request.NOTIFY_BROKER_ROLE_CHANGED: "a controller",
    Request.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: "limits on reading cold data",
    Request.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: "limits on reading cold data",
    Request.GET_COLD_DATA_FLOW_CTR_INFO: "limits on reading cold data",
    Request.SET_COMMITLOG_READ_MODE: "limits on reading cold data",
}


def refuse(context: MaintenanceContext, connection: Connection, request: Command) -> Command:
    raise RequestError(
        Response.REQUEST_CODE_NOT_SUPPORTED,
        f"{REQUEST_NAMES[request.code]} ({request.code}) belongs to {NOT_BUILT[request.code]}, not built here",
    )


HANDLERS: Final = {
    Request.CLEAN_EXPIRED_CONSUMEQUEUE: Entry(clean_queues, "admin"),
    Request.CLEAN_UNUSED_TOPIC: Entry(clean_topics, "admin"),
    Request.DELETE_EXPIRED_COMMITLOG: Entry(delete_log, "admin"),
    Request.GET_BROKER_HA_STATUS: Entry(ha_status, "admin"),
    **dict.fromkeys(NOT_BUILT, Entry(refuse, "admin")),
}
