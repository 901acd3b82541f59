"""Sends rows from an executor, batched and bounded, and ends transactions from the driver."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from cometmq.client.codecs import bytes_codec
from cometmq.client.messages import SendReceipt
from cometmq.client.options import ProducerOptions
from cometmq.client.produce.producer import Producer
from cometmq.errors import CometError, ConfigError, MessageRefused
from cometmq.names import RETRY_PREFIX
from cometmq.spark.live.exactly_once import Pending
from cometmq.spark.live.fencing import Fence
from cometmq.spark.live.remote import Remote
from cometmq.spark.live.rows import Row
from cometmq.spark.options import Options
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.headers import EndTransaction
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.properties import Property
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

# A half message must outlive its batch before the broker asks about it.
IMMUNITY_S: Final = 600


class Handle(NamedTuple):
    """What it takes to end a half message from another process."""

    topic: str
    broker: str
    queue_offset: int
    log_offset: int
    message_id: str
    transaction_id: str | None


async def producer_of(cluster: Remote, options: Options, *, once: bool = False) -> Producer[bytes]:
    """The producer of this process, started when it is first needed. `once`: it never sends again by itself."""
    group = options.text("producerGroup")
    creates = options.flag("createTopic") and not once
    producers: dict[tuple[str, bool, bool], Producer[bytes]] = cluster.__dict__.setdefault("producers", {})
    found = producers.get((group, once, creates))
    if found is None:
        retries = 0 if once else options.number("sendRetries")
        settings = ProducerOptions(
            timeout=options.number("sendTimeoutMs", 1) / 1000 * (retries + 1),
            retries=retries,
            retries_soon=retries,
            allow_auto_create=creates,
        )
        # A client has one producer of a group: those of another kind have names of their own.
        suffix = "-once" if once else "-create" if creates else ""
        found = Producer(f"{group}{suffix}", bytes_codec, settings, instance=cluster.instance)
        await found.start()
        producers[group, once, creates] = found
    return found


async def send_rows(cluster: Remote, rows: Iterator[Row], options: Options) -> None:
    """All rows, or the first error after what is on its way has come to its end."""
    producer = await producer_of(cluster, options)
    window = options.number("maxInFlight", 1)
    spare = _spare_topic(options)
    waiting: list[asyncio.Future[SendReceipt]] = []
    for row in rows:
        try:
            await producer.ready()
            waiting.append(asyncio.ensure_future(_send(producer, row)))
        except MessageRefused:
            if spare is None:
                raise
            if spare:
                waiting.append(asyncio.ensure_future(_send(producer, row._replace(topic=spare, body=row.body[:1024]))))
        if len(waiting) >= window:
            await _settle(waiting)
            waiting = []
    await _settle(waiting)


def pending(cluster: Remote, rows: Iterator[Row], options: Options, prefix: str, fence: Fence) -> Iterator[Pending]:
    """Rows as what is sent once: each with its mark, and to a queue that a look can cover."""
    producer = cluster.run(producer_of(cluster, options, once=True))
    spare = _spare_topic(options)
    if spare:
        raise ConfigError("oversize=dlq:TOPIC does not go with delivery=deduplicated: use fail or drop")
    queues = cluster.queues([options.text("topic")])
    for number, row in enumerate(rows):
        name = row.id if row.id is not None else str(number)
        if row.sharding_key is not None:
            place = queues[zlib.crc32(row.sharding_key.encode()) % len(queues)]
        else:
            place = queues[number % len(queues)]
        sent = row.marked(f"{prefix}{name}")
        if row.queue is None:
            sent = sent._replace(queue=(place.broker, place.number), sharding_key=None)
        yield Pending(name, partial(_send_one, producer, sent, spare == "", fence))


async def _send_one(producer: Producer[bytes], row: Row, drop: bool, fence: Fence) -> SendReceipt | None:
    await producer.ready()
    try:
        return await _send(producer, fence.marked(row))
    except MessageRefused:
        if drop:
            return None
        raise


def _send(producer: Producer[bytes], row: Row) -> asyncio.Future[SendReceipt]:
    if row.topic.startswith(RETRY_PREFIX):
        properties = dict(row.properties)
        if row.tag:
            properties[Property.TAGS] = row.tag
        if row.keys:
            properties[Property.KEYS] = " ".join(row.keys)
        queue = MessageQueue(row.queue[0], row.queue[1], row.topic) if row.queue is not None else None
        return asyncio.ensure_future(producer.send_record(row.topic, row.body, properties, flag=row.flag, queue=queue))
    message: dict[str, Any] = {"tag": row.tag, "keys": row.keys, "properties": row.properties, "flag": row.flag}
    if row.delay_level is not None:
        message["delay_level"] = row.delay_level
    if row.deliver_at is not None:
        message["deliver_at"] = row.deliver_at
    queue = MessageQueue(row.queue[0], row.queue[1], row.topic) if row.queue is not None else None
    return producer.send_soon(row.topic, row.body, ordering_key=row.sharding_key, queue=queue, **message)


async def _settle(waiting: list[asyncio.Future[SendReceipt]]) -> None:
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        if not outcome.is_confirmed:
            raise CometError(f"a message is stored but not confirmed ({outcome.status.value}): the task sends it again")


def _spare_topic(options: Options) -> str | None:
    """None: a message that is too large ends the task; "": it is dropped; else where its beginning goes."""
    stated = options.text("oversize")
    if stated == "fail":
        return None
    if stated == "drop":
        return ""
    if stated.startswith("dlq:") and stated[4:]:
        return stated[4:]
    raise ConfigError(f"option oversize={stated} is none of fail, drop, dlq:TOPIC")


# Transactions


async def send_halves(cluster: Remote, rows: Iterator[Row], options: Options, prefix: str) -> list[Handle]:
    """A window at a time. What was sent is taken back if the rest cannot be, or does not come."""
    producer = await producer_of(cluster, options)
    window = min(64, options.number("maxInFlight", 1))
    marked = (row.marked(f"{prefix}{number}") for number, row in enumerate(rows))
    handles: list[Handle] = []
    try:
        while chunk := list(islice(marked, window)):
            outcomes = await asyncio.gather(*(_send_half(producer, row) for row in chunk), return_exceptions=True)
            handles += [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
    except Exception:
        await end_all(cluster, handles, options, commit=False)
        raise
    return handles


async def _send_half(producer: Producer[bytes], row: Row) -> Handle:
    if row.delay_level is not None or row.deliver_at is not None:
        raise ConfigError("a transactional row cannot be delayed: drop delayLevel and deliverTimestamp")
    properties = {
        **row.properties,
        Property.TRAN_MSG: "true",
        Property.PGROUP: producer.group,
        Property.CHECK_IMMUNITY_TIME_IN_SECONDS: str(IMMUNITY_S),
    }
    if row.tag:
        properties[Property.TAGS] = row.tag
    if row.keys:
        properties[Property.KEYS] = " ".join(row.keys)
    receipt = await producer.send_record(row.topic, row.body, properties, flag=row.flag)
    place = decode_offset_id(receipt.offset_id).physical_offset
    return Handle(row.topic, receipt.queue.broker_name, receipt.offset, place, receipt.id, receipt.transaction_id)


async def end_all(cluster: Remote, handles: list[Handle], options: Options, *, commit: bool) -> None:
    """Each end is awaited; ending a message twice does nothing."""
    group = options.text("producerGroup")
    await asyncio.gather(*(_end(cluster, handle, group, commit) for handle in handles))


async def _end(cluster: Remote, handle: Handle, group: str, commit: bool) -> None:
    header = EndTransaction(
        producer_group=group,
        tran_state_table_offset=handle.queue_offset,
        commit_log_offset=handle.log_offset,
        commit_or_rollback=TRANSACTION_COMMIT if commit else TRANSACTION_ROLLBACK,
        msg_id=handle.message_id,
        transaction_id=handle.transaction_id,
        from_transaction_check=False,
        topic=handle.topic,
        broker_name=handle.broker,
    )

    async def once() -> object:
        address = await cluster.instance.master(handle.broker, handle.topic)
        command = cluster.instance.request(Request.END_TRANSACTION, header.encode())
        return await cluster.instance.call(address, command, cluster.connection.timeout_s)

    await cluster.patient(once)
