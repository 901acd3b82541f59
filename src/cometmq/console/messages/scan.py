"""Looking through a topic, step by step: bounded, with progress, in the order of time.

    backwards      each queue from its end, or from `to:`; the newest of all queues comes first
    forwards       each queue from `offset:` or the first message stored at `from:`; the oldest comes first

A step ends with enough rows, after 100,000 messages or 5 s; its cursor says how far each queue is. Blocks are read side
by side and merged by time, so that several queues read as one.
"""

import asyncio
import base64
import heapq
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cometmq.client.admin import Admin, StoredCopy
from cometmq.console.answers import Problem
from cometmq.console.messages.query import Query
from cometmq.console.messages.rows import Reader
from cometmq.wire.bodies import MessageQueue

STEP_MESSAGES_MAX: Final = 100_000
STEP_S: Final = 5.0
PULLED: Final = 32
SLICES_MAX: Final = 16
TAG_BLOCK: Final = 4000
PROGRESS_S: Final = 0.25
QUEUES_MAX: Final = 1024


@dataclass
class Progress:
    looked: int
    total: int
    rows: list[dict[str, Any]]
    cursor: str | None = None
    is_end: bool = False

    def content(self) -> dict[str, Any]:
        return {
            "looked": self.looked,
            "total": self.total,
            "rows": self.rows,
            "cursor": self.cursor,
            "end": self.is_end,
        }


class Lane:
    """One queue of a scan: what is left of it, and what was read but not taken."""

    def __init__(self, queue: MessageQueue, low: int, high: int, forward: bool) -> None:
        self.queue, self.low, self.high, self.forward = queue, low, high, forward
        self.waiting: list[StoredCopy] = []
        self.slices = 1

    @property
    def left(self) -> int:
        return max(0, self.high - self.low)

    async def fill(self, admin: Admin, tag: str | None) -> int:
        """Read the next block; how many messages it stands for."""
        if tag is not None:
            size = min(self.left, TAG_BLOCK)
        else:
            size = min(self.left, PULLED * self.slices)
            self.slices = min(SLICES_MAX, self.slices * 2)
        if size <= 0:
            return 0
        low, high = (self.low, self.low + size) if self.forward else (self.high - size, self.high)
        if tag is not None:
            copies = await read(admin, self.queue, low, high, tag)
        else:
            edges = [(at, min(at + PULLED, high)) for at in range(low, high, PULLED)]
            parts = await asyncio.gather(*(read(admin, self.queue, *edge, None) for edge in edges))
            copies = [copy for part in parts for copy in part]
        if self.forward:
            self.low = high
            copies.reverse()  # taken from the end
        else:
            self.high = low
        self.waiting = copies
        return size

    def rest(self) -> tuple[int, int]:
        """The bounds to go on from, with what was read but not taken."""
        if not self.waiting:
            return self.low, self.high
        offset = self.waiting[-1].message.offset
        return (offset, self.high) if self.forward else (self.low, offset + 1)


async def read(admin: Admin, queue: MessageQueue, low: int, high: int, tag: str | None) -> list[StoredCopy]:
    found: list[StoredCopy] = []
    at = low
    while at < high:
        page = await admin.read_page(queue, at, min(PULLED, high - at), tag=tag)
        found += [copy for copy in page.copies if copy.message.offset < high]
        if page.next_offset <= at:
            break
        at = page.next_offset
    return found


async def lanes(admin: Admin, topic: str, query: Query) -> list[Lane]:
    chosen = [
        queue
        for queue in await admin.topic_queues(topic)
        if query.broker in (None, queue.broker_name) and query.queue in (None, queue.queue_id)
    ]
    if not chosen and (query.broker is not None or query.queue is not None):
        raise Problem(404, f"topic {topic} has no such queue: queue:{query.queue} broker:{query.broker}")

    async def lane(queue: MessageQueue) -> Lane:
        low, high = await admin.earliest_offset(queue), await admin.latest_offset(queue)
        if query.from_ms is not None:
            low = max(low, await admin.offset_at(queue, _moment(query.from_ms)))
        if query.to_ms is not None:
            high = min(high, await admin.offset_at(queue, _moment(query.to_ms)))
        if query.offset is not None:
            low = max(low, query.offset)
        return Lane(queue, low, high, query.is_forward)

    return list(await asyncio.gather(*(lane(queue) for queue in chosen[:QUEUES_MAX])))


async def scan(
    admin: Admin, reader: Reader, topic: str, query: Query, cursor: str | None, rows_max: int
) -> AsyncIterator[Progress]:
    """Progress several times a second; the last one has the cursor, or says that it was the end."""
    found = await lanes(admin, topic, query)
    total = sum(lane.left for lane in found)
    if cursor is not None:
        _place(found, cursor)
    looked, sent = 0, 0
    rows: list[dict[str, Any]] = []
    began_s = told_s = time.monotonic()
    heap: list[tuple[int, int, int]] = []
    sign = 1 if query.is_forward else -1

    def offer(number: int) -> None:
        if found[number].waiting:
            message = found[number].waiting[-1].message
            heapq.heappush(heap, (sign * message.stored_ms, sign * message.offset, number))

    async def refill(number: int) -> int:
        lane, count = found[number], 0
        while not lane.waiting and lane.left:
            count += await lane.fill(admin, query.tag)
            if lane.waiting or count >= STEP_MESSAGES_MAX or time.monotonic() - began_s > STEP_S:
                break
        return count

    looked += sum(await asyncio.gather(*(refill(number) for number in range(len(found)))))
    for number in range(len(found)):
        offer(number)
    while heap and sent < rows_max and looked < STEP_MESSAGES_MAX:
        now_s = time.monotonic()
        if now_s - began_s > STEP_S:
            break
        if now_s - told_s > PROGRESS_S:
            told_s = now_s
            yield Progress(looked, total, rows)
            rows = []
        _, _, number = heapq.heappop(heap)
        lane = found[number]
        copy = lane.waiting.pop()
        if not query.tests or query.takes(reader.found(copy)):
            rows.append(reader.row(copy))
            sent += 1
        if not lane.waiting:
            looked += await refill(number)
        offer(number)
    is_end = not heap and not any(lane.left for lane in found)
    yield Progress(looked, total, rows, None if is_end else _cursor(found), is_end)


def _cursor(found: list[Lane]) -> str:
    places = [[lane.queue.broker_name, lane.queue.queue_id, *lane.rest()] for lane in found]
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).decode().rstrip("=")


def _place(found: list[Lane], cursor: str) -> None:
    """Go on where a cursor says; only what lies within the queues' bounds."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        places = msgspec.json.decode(raw, type=list[tuple[str, int, int, int]])
    except (ValueError, msgspec.DecodeError):
        raise Problem(400, "the cursor is not one of this console: begin anew without it") from None
    known = {(broker, number): (low, high) for broker, number, low, high in places}
    for lane in found:
        low, high = known.get((lane.queue.broker_name, lane.queue.queue_id), (lane.low, lane.high))
        lane.low, lane.high = max(lane.low, low), min(lane.high, high) if not lane.forward else lane.high


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(min(at_ms, 253_402_300_000_000) / 1000, UTC)
