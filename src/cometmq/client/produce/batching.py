"""Many messages in few requests.

    send_soon:  message -> Buffer: one open batch per (topic, place, wait, tag) -> sent when full or `batch_delay` old
    send_many:  values -> chunks of at most CHUNK_BYTES -> sent, several at a time

A batch is sent when it has reached `batch_bytes`, or when its oldest message has waited `batch_delay`. A batch of one
goes as a plain message. What cannot be in a batch (delayed messages, retry topics, replies) goes on its own at once.

Messages of one place (a queue or an ordering key) keep their order: a batch waits for the one before it. Batches
without a place overtake each other.

`buffer_bytes` bounds everything that was accepted and has no outcome yet, whether it waits here or is on its way.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeAlias

from cometmq.client.messages import SendReceipt
from cometmq.client.produce.outgoing import Composer, Outgoing
from cometmq.client.produce.sending import Pick, Sender
from cometmq.clock import Timer
from cometmq.errors import Backpressure, NotRunning
from cometmq.names import RETRY_PREFIX
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.record.message_id import split_ids

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1_000_000
# Framing of one member, and a margin for the properties of the batch itself.
MEMBER_BYTES: Final = 22
HEADROOM_BYTES: Final = 4096
# Chunks of one send_many on their way at a time.
CHUNKS_MAX: Final = 4

Place: TypeAlias = MessageQueue | str | int | None
Key: TypeAlias = tuple[str, Place, bool, str | None]
Receipts: TypeAlias = "asyncio.Future[SendReceipt]"


def can_batch(outgoing: Outgoing) -> bool:
    return (
        not outgoing.is_delayed
        and outgoing.code == Request.SEND_MESSAGE_V2
        and not outgoing.sys_flag
        and not outgoing.topic.startswith(RETRY_PREFIX)
    )


def member_bytes(outgoing: Outgoing) -> int:
    return MEMBER_BYTES + len(outgoing.body) + len(outgoing.properties)


def split_receipt(receipt: SendReceipt, members: Sequence[Outgoing]) -> list[SendReceipt]:
    """One receipt for each member of a batch. A broker that stored it as one record gives all the same place."""
    offset_ids = split_ids(receipt.offset_id)
    if len(offset_ids) != len(members):
        offset_ids = [receipt.offset_id] * len(members)
        step = 0
    else:
        step = 1
    return [
        SendReceipt(
            member.id,
            offset_id,
            receipt.queue,
            receipt.offset + index * step,
            receipt.status,
            receipt.transaction_id,
            None,
            receipt.region,
            receipt.traced,
        )
        for index, (member, offset_id) in enumerate(zip(members, offset_ids, strict=True))
    ]


class Batch:
    """Messages that wait to be sent together."""

    __slots__ = ("futures", "members", "pick", "size_bytes", "timer")

    def __init__(self, pick: Pick | None) -> None:
        self.members: list[Outgoing] = []
        self.futures: list[Receipts] = []
        self.size_bytes = 0
        self.pick = pick
        self.timer: Timer | None = None


class Buffer:
    """Open batches of one producer, and those on their way."""

    def __init__(self, sender: Sender, composer: Composer) -> None:
        self._sender = sender
        self._composer = composer
        self._options = sender.options
        self._clock = sender.instance.clock
        self._open: dict[Key, Batch] = {}
        self._tails: dict[tuple[str, Place], asyncio.Task[None]] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._line: list[asyncio.Future[None]] = []
        self.held_bytes = 0
        self.held_count = 0

    @property
    def has_room(self) -> bool:
        return self.held_bytes < self._options.buffer_bytes

    async def room(self) -> None:
        """Return as soon as another message may be added."""
        while not self.has_room:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(future)
            await future

    def add(self, outgoing: Outgoing, place: Place, pick: Pick | None) -> Receipts:
        """Take a message; the future has its receipt or the error. Backpressure if there is no room."""
        if not self.has_room:
            raise Backpressure(
                f"{self.held_count} messages of {self.held_bytes} bytes wait for their receipts, buffer_bytes is "
                f"{self._options.buffer_bytes}: await producer.ready() before sending more"
            )
        future: Receipts = asyncio.get_running_loop().create_future()
        self.held_bytes += outgoing.size_bytes
        self.held_count += 1
        if not can_batch(outgoing):
            alone = Batch(pick)
            alone.members.append(outgoing)
            alone.futures.append(future)
            self._launch(alone, (outgoing.topic, place))
            return future
        key = (outgoing.topic, place, outgoing.wait, outgoing.tag)
        batch = self._open.get(key)
        size_bytes = member_bytes(outgoing)
        if batch is not None and batch.size_bytes + size_bytes > self._batch_bytes_max:
            self._close(key)
            batch = None
        if batch is None:
            batch = self._open[key] = Batch(pick)
            batch.timer = self._clock.call_later(self._options.batch_delay, lambda: self._close(key))
        batch.members.append(outgoing)
        batch.futures.append(future)
        batch.size_bytes += size_bytes
        if batch.size_bytes >= self._options.batch_bytes:
            self._close(key)
        return future

    @property
    def _batch_bytes_max(self) -> int:
        return self._options.max_message_bytes - HEADROOM_BYTES

    def _close(self, key: Key) -> None:
        batch = self._open.pop(key, None)
        if batch is not None:
            if batch.timer is not None:
                batch.timer.cancel()
            self._launch(batch, key[:2])

    def _launch(self, batch: Batch, lane: tuple[str, Place]) -> None:
        before = self._tails.get(lane) if lane[1] is not None else None
        task = self._sender.instance.spawn(self._send(batch, before))
        self._under_way.add(task)
        if lane[1] is not None:
            self._tails[lane] = task
        task.add_done_callback(lambda ended: self._ended(ended, batch, lane))

    async def _send(self, batch: Batch, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            receipts = await send_together(self._sender, self._composer, batch.members, batch.pick)
        except Exception as error:
            for future in batch.futures:
                if not future.done():
                    future.set_exception(error)
                    # Whoever does not look at the future has said that the outcome does not matter.
                    future.exception()
            logger.debug("fail batch messages=%d cause=%s", len(batch.members), error)
            return
        for future, receipt in zip(batch.futures, receipts, strict=True):
            if not future.done():
                future.set_result(receipt)

    def _ended(self, task: "asyncio.Task[None]", batch: Batch, lane: tuple[str, Place]) -> None:
        self._under_way.discard(task)
        if self._tails.get(lane) is task:
            del self._tails[lane]
        for outgoing, future in zip(batch.members, batch.futures, strict=True):
            self.held_bytes -= outgoing.size_bytes
            if not future.done():
                future.set_exception(NotRunning("the client stopped before the message had its receipt"))
                future.exception()
        self.held_count -= len(batch.members)
        if self._line and self.has_room:
            line, self._line = self._line, []
            for waiter in line:
                if not waiter.done():
                    waiter.set_result(None)

    async def flush(self) -> None:
        """Send all that waits; returns when everything accepted so far has its outcome."""
        for key in list(self._open):
            self._close(key)
        under_way = list(self._under_way)
        if under_way:
            await asyncio.wait(under_way)


async def send_together(
    sender: Sender, composer: Composer, members: Sequence[Outgoing], pick: Pick | None
) -> list[SendReceipt]:
    """Several messages in one request, under the rules of messages sent soon."""
    options = sender.options
    if len(members) == 1:
        receipt = await sender.send(members[0], pick, options.timeout, options.retries_soon, soon=True)
        return [receipt]
    batch = composer.pack(list(members))
    receipt = await sender.send(batch, pick, options.timeout, options.retries_soon, soon=True)
    return split_receipt(receipt, members)


class Many:
    """The chunks of one `send_many`: several at a time, or one after the other where a place keeps its order."""

    def __init__(self, sender: Sender, composer: Composer, pick: Pick | None) -> None:
        self._sender = sender
        self._composer = composer
        self._pick = pick
        self._chunk_bytes = min(CHUNK_BYTES, sender.options.max_message_bytes - HEADROOM_BYTES)
        self._running_max = 1 if pick is not None else CHUNKS_MAX
        self._members: list[Outgoing] = []
        self._size_bytes = 0
        self._chunks: list[asyncio.Task[list[SendReceipt]]] = []
        self._running: set[asyncio.Task[list[SendReceipt]]] = set()

    async def add(self, outgoing: Outgoing) -> None:
        """Take one; waits while enough chunks are on their way. Raises the first error."""
        size_bytes = member_bytes(outgoing)
        fits = can_batch(outgoing)
        if self._members and (not fits or self._size_bytes + size_bytes > self._chunk_bytes):
            await self._start()
        self._members.append(outgoing)
        self._size_bytes += size_bytes
        if not fits:
            await self._start()

    async def finish(self) -> list[SendReceipt]:
        """Send the rest; all receipts in order."""
        if self._members:
            await self._start()
        outcomes = await asyncio.gather(*self._chunks, return_exceptions=True)
        receipts = [receipt for outcome in outcomes if isinstance(outcome, list) for receipt in outcome]
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                outcome.add_note(f"{len(receipts)} messages before and beside it were stored")
                raise outcome
        return receipts

    async def _start(self) -> None:
        members, self._members, self._size_bytes = self._members, [], 0
        while len(self._running) >= self._running_max:
            done, self._running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            if any(task.cancelled() or task.exception() is not None for task in done):
                await self.finish()
        task = self._sender.instance.spawn(send_together(self._sender, self._composer, members, self._pick))
        self._chunks.append(task)
        self._running.add(task)
