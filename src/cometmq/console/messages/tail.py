"""The live tail of a topic: new messages as they come, at most 200 a second, the others counted.

    page <--event: rows, data: {"rows": [...], "skipped": 4800, "seen": 5000}--

Where the queues end is asked four times a second; of what came, the newest are read and the rest is left out by its
offsets, without being read. So a fast topic costs the broker no more than a slow one: at most 200 messages a second are
pulled, whoever sends how many.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from cometmq.console.context import Context
from cometmq.console.messages.query import Query
from cometmq.console.messages.rows import Reader
from cometmq.console.messages.scan import read
from cometmq.errors import CometError

ROWS_A_TURN: Final = 50
TURN_S: Final = 0.25
HEARTBEAT_S: Final = 15.0


async def tail(context: Context, reader: Reader, topic: str, query: Query) -> AsyncIterator[bytes]:
    admin = context.admin
    queues = [
        queue
        for queue in await admin.topic_queues(topic)
        if query.broker in (None, queue.broker_name) and query.queue in (None, queue.queue_id)
    ]
    ends = dict(zip(queues, await asyncio.gather(*(admin.latest_offset(queue) for queue in queues)), strict=True))
    yield b"retry: 1000\n\nevent: begin\ndata: {}\n\n"
    told_s = time.monotonic()
    trouble: str | None = None
    while True:
        began_s = time.monotonic()
        try:
            stats = await admin.topic_stats(topic)
            fresh = {queue: (ends.get(queue, it.end), it.end) for queue, it in stats.items() if queue in ends}
            seen = sum(max(0, high - low) for low, high in fresh.values())
            rows: list[dict[str, Any]] = []
            if seen:
                rows = await _newest(context, reader, fresh, query)
                ends |= {queue: high for queue, (_, high) in fresh.items()}
            trouble = None
        except CometError as error:
            seen, rows = 0, []
            if trouble != str(error):
                trouble = str(error)
                yield b"event: trouble\ndata: " + msgspec.json.encode({"cause": trouble}) + b"\n\n"
        if seen:
            told_s = time.monotonic()
            skipped = 0 if query.tests or query.tag else max(0, seen - len(rows))
            content = {"rows": rows, "seen": seen, "skipped": skipped, "looked": min(seen, ROWS_A_TURN)}
            yield b"event: rows\ndata: " + msgspec.json.encode(content) + b"\n\n"
        elif time.monotonic() - told_s > HEARTBEAT_S:
            told_s = time.monotonic()
            yield b": here\n\n"
        await asyncio.sleep(max(0.02, TURN_S - (time.monotonic() - began_s)))


async def _newest(
    context: Context, reader: Reader, fresh: dict[Any, tuple[int, int]], query: Query
) -> list[dict[str, Any]]:
    busy = [(queue, low, high) for queue, (low, high) in fresh.items() if high > low]
    share = max(1, ROWS_A_TURN // max(1, len(busy)))
    parts = await asyncio.gather(
        *(
            read(context.admin, queue, max(low, high - share), high, query.tag)
            for queue, low, high in busy[:ROWS_A_TURN]
        )
    )
    copies = sorted((copy for part in parts for copy in part), key=lambda copy: copy.message.stored_ms)
    return [reader.row(copy) for copy in copies if not query.tests or query.takes(reader.found(copy))]
