"""Looking messages up: by key, by place in the log; and the bounds of queues, by offset and by time.

Whoever asks by key or place may want a message that nobody has read for weeks. Its pages, and those of the index on
the way to it, are read in a thread first, so that a slow disk keeps no one else waiting.

The index knows hashes only: an answer by key may hold messages of other keys, and the client compares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from cometmq.auth.needs import message_read
from cometmq.broker.admin.context import QueriesContext
from cometmq.broker.cold_pages import searched
from cometmq.broker.entry import Entry
from cometmq.broker.stored_records import load_records, record_at
from cometmq.net.connection import Connection
from cometmq.store.queues.index import KEY, TAG
from cometmq.store.store import Store
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import (
    UPPER,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryMessage,
    QueryMessageResponse,
    SearchOffset,
    TimestampResponse,
    ViewMessage,
)
from cometmq.wire.record.message import decode_record

# A frame has at most 16 MiB; clients drop the connection that sends more.
ANSWER_BYTES_MAX: Final = 15 << 20


async def query(context: QueriesContext, connection: Connection, request: Command) -> Command:
    """Messages of a topic that may carry a key, or a tag. Asked for a unique key, as many as the store's default."""
    header = QueryMessage.decode(request.ext)
    options = context.store.options
    count = options.query_messages_default if header.unique_key_query else header.max_num
    offsets = await asyncio.to_thread(_find, context.store, header, min(count, options.query_messages_max))
    records = _records(context.store, offsets)
    if context.rights.are_asked_for:
        # A key can be made up that has the hash of another topic's.
        records = [record for record in records if decode_record(record).topic == header.topic]
    files = context.store.index.files
    ext = QueryMessageResponse(
        index_last_update_timestamp=files[-1].end_time_ms if files else 0,
        index_last_update_phyoffset=files[-1].end_offset if files else 0,
    ).encode()
    if not records:
        remark = f"no message of topic {header.topic} with key {header.key[:80]!r} in the time asked for"
        return reply(request, Response.QUERY_NOT_FOUND, remark, ext)
    return reply(request, ext=ext, body=b"".join(records))


async def view(context: QueriesContext, connection: Connection, request: Command) -> Command:
    """The message whose record starts at a physical offset."""
    record = await record_at(context.store, ViewMessage.decode(request.ext).offset)
    if context.rights.are_asked_for:
        context.rights.require(connection, request, message_read(decode_record(record).topic))
    return reply(request, body=record)


def _find(store: Store, header: QueryMessage, count_max: int) -> list[int]:
    """For a thread: where the messages are, in log order, their pages in memory."""
    kind = TAG if header.index_type == TAG and not header.unique_key_query else KEY
    begin_ms, end_ms = header.begin_timestamp, header.end_timestamp
    found = store.index.query(header.topic, header.key, count_max, begin_ms, end_ms, kind)
    offsets = sorted(set(found))
    load_records(store, offsets)
    return offsets


def _records(store: Store, offsets: list[int]) -> list[memoryview]:
    """As many as one answer can hold."""
    records: list[memoryview] = []
    total = 0
    for offset in offsets:
        record = store.lookup.record_at(offset)
        if record is None:
            continue
        total += len(record)
        if total > ANSWER_BYTES_MAX:
            break
        records.append(record)
    return records


# Bounds of queues. A queue that is not there has none, which is no error.


def offset_by_time(context: QueriesContext, connection: Connection, request: Command) -> Command | Awaitable[Command]:
    header = SearchOffset.decode(request.ext)
    upper = header.boundary_type == UPPER

    def search(loaded: set[int]) -> Command:
        lookup = context.store.lookup
        offset = lookup.offset_by_time(header.topic, header.queue_id, header.timestamp, upper, loaded)
        return reply(request, ext=OffsetResponse(offset=offset).encode())

    return searched(context.store, search)


def max_offset(context: QueriesContext, connection: Connection, request: Command) -> Command:
    header = GetMaxOffset.decode(request.ext)
    _, high = context.store.queue_bounds(header.topic, header.queue_id)
    return reply(request, ext=OffsetResponse(offset=high).encode())


def min_offset(context: QueriesContext, connection: Connection, request: Command) -> Command:
    header = GetMinOffset.decode(request.ext)
    low, _ = context.store.queue_bounds(header.topic, header.queue_id)
    return reply(request, ext=OffsetResponse(offset=low).encode())


def earliest_time(context: QueriesContext, connection: Connection, request: Command) -> Command | Awaitable[Command]:
    """When the first message of a queue was stored; -1 if it has none."""
    header = GetEarliestStoreTime.decode(request.ext)

    def search(loaded: set[int]) -> Command:
        time_ms = context.store.lookup.earliest_time(header.topic, header.queue_id, loaded)
        return reply(request, ext=TimestampResponse(timestamp=time_ms).encode())

    return searched(context.store, search)


HANDLERS: Final = {
    Request.QUERY_MESSAGE: Entry(query, "query"),
    Request.VIEW_MESSAGE_BY_ID: Entry(view, "query"),
    Request.SEARCH_OFFSET_BY_TIMESTAMP: Entry(offset_by_time, "admin"),
    Request.GET_MAX_OFFSET: Entry(max_offset, "admin"),
    Request.GET_MIN_OFFSET: Entry(min_offset, "admin"),
    Request.GET_EARLIEST_MSG_STORETIME: Entry(earliest_time, "admin"),
}
