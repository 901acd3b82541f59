"""Sends each message once: looks in the target before it sends, and again after a send whose outcome nobody knows.

    look         what is there of these messages, by the mark that each carries
    send         the rest, each to a queue that was looked at, without the client's own retries: a send that gets no
                 answer may have been stored, and one that is repeated blindly is a duplicate
    look again   when sends fail; then send what is not there, for as long as `retryMs` allows

What it rests on: a try has ended before the next one looks, and nothing of it arrives later: `look` raises a fence
first (fencing.py). Brokers without fences get a second between a failure and the look.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from cometmq.client.cluster.queue_client import PullStatus
from cometmq.client.messages import SendReceipt
from cometmq.errors import BrokerError, CometError, MessageRefused
from cometmq.spark.kill_points import at
from cometmq.spark.live.offsets import Positions, Queue, Range
from cometmq.spark.live.remote import READER_GROUP, Remote
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.properties import decode

PAUSE_S: Final = 1.0
# Answers after which the same request may succeed: too busy, not available, going away.
PASSING: Final = frozenset({2, 14, 1500})

# Id of a message -> its offset in the target.
OffsetsById: TypeAlias = dict[str, int]


class Pending(NamedTuple):
    """A message on its way: what it is known by, and how it is sent once."""

    id: str
    # None: it is left out.
    send: Callable[[], Awaitable[SendReceipt | None]]


def send_once(cluster: Remote, pending: Iterator[Pending], look: Callable[[], OffsetsById], window: int) -> OffsetsById:
    """Where each one is, those of earlier tries too. The last error if it could not be sent in time."""
    offsets = look()
    while chunk := list(islice(pending, window)):
        left = [one for one in chunk if one.id not in offsets]
        give_up_s = time.monotonic() + cluster.connection.retry_s
        while left:
            failed = cluster.run(_send_all(left, offsets))
            if failed is None:
                break
            if not _may_pass(failed) or time.monotonic() > give_up_s:
                raise failed
            time.sleep(PAUSE_S)
            offsets |= look()
            left = [one for one in left if one.id not in offsets]
        at("in write")
    return offsets


async def _send_all(pending: list[Pending], offsets: OffsetsById) -> Exception | None:
    """One error of those that happened."""
    outcomes = await asyncio.gather(*(one.send() for one in pending), return_exceptions=True)
    failed: Exception | None = None
    for one, outcome in zip(pending, outcomes, strict=True):
        if isinstance(outcome, SendReceipt):
            # Stored is enough: it is where the next look would find it.
            offsets[one.id] = outcome.offset
        elif isinstance(outcome, Exception):
            failed = outcome
        elif outcome is not None:
            raise outcome
    return failed


def _may_pass(error: Exception) -> bool:
    """Also that a queue is not in the route: its broker is away."""
    if isinstance(error, BrokerError):
        return error.code in PASSING
    return isinstance(error, CometError) and not isinstance(error, MessageRefused)


def since(cluster: Remote, queues: Iterable[Queue], floors: Positions) -> list[Range]:
    """From the floors to the ends, of queues with and without one. All must answer: what is not seen may be there."""
    bounds = cluster.bounds({*queues, *floors})
    begins = {queue: max(floors.get(queue, 0), there.first) for queue, there in bounds.items()}
    return [Range(queue, begins[queue], bounds[queue].last) for queue in sorted(bounds)]


def marked(cluster: Remote, ranges: Iterable[Range], name: str, prefix: str) -> OffsetsById:
    """The messages in these ranges whose property `name` begins so: the rest of the property -> offset."""
    found: OffsetsById = {}
    for one in ranges:
        for message in cluster.run(records(cluster, one)):
            mark = decode(message.properties).get(name, "")
            if mark.startswith(prefix):
                found[mark[len(prefix) :]] = message.queue_offset
    return found


async def records(cluster: Remote, one: Range, tag: str = "*") -> list[StoredMessage]:
    """The messages of a range; what retention has taken is left out."""
    found: list[StoredMessage] = []
    position = one.first
    while position < one.last:
        pulled = await cluster.pull(one.queue, position, 4096, 1 << 22, READER_GROUP, ("TAG", tag))
        if pulled.status is PullStatus.ILLEGAL:
            position = max(position + 1, pulled.min_offset)
            continue
        if pulled.body:
            found += [each for each in decode_records(pulled.body, check_crc=False) if each.queue_offset < one.last]
        if pulled.next_offset <= position:
            break
        position = pulled.next_offset
    return found
