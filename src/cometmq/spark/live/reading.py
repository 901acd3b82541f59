"""The messages of one range of a live queue, as Arrow batches in queue order.

The range is cut in stretches that are fetched ahead, `pullConcurrency` at a time, and joined in order: our broker gives
up to 4096 messages for one pull of a bulk reader, RocketMQ's 32. What came is decoded once per batch of rows, not once
per pull.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cometmq.client.cluster.queue_client import PullStatus
from cometmq.errors import CometError, StoreError
from cometmq.spark.columns import Column
from cometmq.spark.kill_points import at
from cometmq.spark.live.offsets import Range
from cometmq.spark.live.remote import Bounds, Remote
from cometmq.spark.runtime.gc_freeze import settle
from cometmq.wire.record.layout import RECORD_BYTES_MIN

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

STRETCH: Final = 2048
_PAUSE_S: Final = 0.1


class DataLoss(StoreError):
    """Messages that were to be read are not there any more."""


@dataclass(frozen=True)
class PullOptions:
    columns: tuple[Column, ...]
    inflate: bool
    group: str
    # Kind (TAG or SQL92) and expression for the broker.
    filter: tuple[str, str]
    # What the broker compares by hash only is compared here for good.
    tags: frozenset[str] | None
    count: int
    bytes_max: int
    concurrency: int
    fail_on_loss: bool
    rows_max: int
    bytes_per_batch: int


def read_range(remote: Remote, one: Range, options: PullOptions) -> Iterator[pa.RecordBatch]:
    from cometmq.spark.decode import Records, decode, record_starts

    settle()
    at("before read")
    bodies: list[bytes] = []
    rows = size = 0
    for body in _bodies(remote, one, options):
        bodies.append(body)
        size += len(body)
        rows += _count(body)
        if rows >= options.rows_max or size >= options.bytes_per_batch:
            yield from _decoded(bodies, one, options, decode, Records, record_starts)
            bodies, rows, size = [], 0, 0
    if bodies:
        yield from _decoded(bodies, one, options, decode, Records, record_starts)


def _decoded(bodies: list[bytes], one: Range, options: PullOptions, decode: Any, records: Any, starts: Any) -> Any:
    data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
    bounds = (one.first, one.last)
    return decode(
        records(data, starts(data)), one.queue.broker, options.columns, options.inflate, options.tags, *bounds
    )


def _count(body: bytes) -> int:
    """About how many records; only used to size batches."""
    return max(1, len(body) // max(RECORD_BYTES_MIN, int.from_bytes(body[:4], "big")))


def _bodies(remote: Remote, one: Range, options: PullOptions) -> Iterator[bytes]:
    """Bodies of pull answers in order. Stretches ahead of the one that is being read are on their way."""
    ahead: deque[Any] = deque()
    stretches = iter(range(one.first, one.last, STRETCH))
    try:
        while True:
            while len(ahead) < options.concurrency and (first := next(stretches, None)) is not None:
                last = min(one.last, first + STRETCH)
                ahead.append(remote.start(_stretch(remote, Range(one.queue, first, last), options)))
            if not ahead:
                return
            yield from ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


async def _stretch(remote: Remote, one: Range, options: PullOptions) -> list[bytes]:
    position = one.first
    found: list[bytes] = []
    waited_s = 0.0
    while position < one.last:
        count = min(options.count, one.last - position)
        pulled = await remote.pull(one.queue, position, count, options.bytes_max, options.group, options.filter)
        if pulled.status is PullStatus.ILLEGAL:
            bounds = Bounds(pulled.min_offset, pulled.max_offset)
            position = _lost(one, position, bounds, options.fail_on_loss)
            continue
        if pulled.status is PullStatus.NO_NEW:
            # The end of the range was told by the broker: what is not there yet is about to be.
            if waited_s > remote.connection.retry_s:
                raise CometError(
                    f"{one.queue}: offset {position} does not appear although the queue was said to reach {one.last}"
                )
            await asyncio.sleep(_PAUSE_S)
            waited_s += _PAUSE_S
            continue
        if pulled.body:
            found.append(pulled.body)
        if pulled.next_offset <= position:
            raise CometError(f"{one.queue}: the broker does not get beyond offset {position}")
        position = pulled.next_offset
        if position < one.last:
            at("in read")
    return found


def _lost(one: Range, position: int, bounds: Bounds, fail: bool) -> int:
    """Where to go on after a gap. DataLoss if that is not allowed."""
    check_loss(Range(one.queue, position, one.last), bounds, fail)
    return max(position, bounds.first) if position < bounds.first else one.last


def check_loss(one: Range, bounds: Bounds, fail: bool) -> Range:
    """The part of a range that is still there; DataLoss, or one line in the log, if that is not all of it."""
    if bounds.first <= one.first <= one.last <= bounds.last:
        return one
    text = (
        f"{one.queue}: offsets {one.first} to {one.last} were wanted, the queue has {bounds.first} to {bounds.last} "
        f"({'retention passed the start' if one.first < bounds.first else 'the topic was made anew or rolled back'})"
    )
    if fail:
        raise DataLoss(f"{text}; set failOnDataLoss=false to read what is left")
    logger.warning("lost messages %s", text)
    first = min(max(one.first, bounds.first), bounds.last)
    return Range(one.queue, first, max(first, min(one.last, bounds.last)))
