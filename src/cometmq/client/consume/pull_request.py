"""One pull: a request for messages of one queue from one offset on, and what its answer means.

    code 0    FOUND       records back to back; inner batches are taken apart, tags compared exactly
         19   NO_NEW      nothing there yet, after the broker held the request for `suspend_s`
         20   NO_MATCH    nothing that the filter lets through
         21   ILLEGAL     the offset lies outside the queue; `next_offset` is where it begins or ends
    other     BrokerError

Every answer says where to go on, and which member of the broker to ask next: a master under pressure sends readers of
old messages to a replica.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.client.cluster.queue_client import TAG, PullStatus, pull_command, read_pull
from cometmq.client.consume.subscriptions import matches
from cometmq.errors import BrokerUnknown, WireError
from cometmq.wire.bodies import MessageQueue, SubscriptionData
from cometmq.wire.codes import MASTER_ID
from cometmq.wire.command import Command
from cometmq.wire.record.batch import split_batch
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.sysflag import INNER_BATCH, NEEDS_UNWRAP

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

BATCH: Final = 32
BATCH_BYTES: Final = 262_144


class Unreadable(WireError):
    """An answer whose records cannot be read. `body` is what came, `next_offset` is behind it."""

    def __init__(self, text: str, body: bytes, next_offset: int) -> None:
        super().__init__(text)
        self.body = body
        self.next_offset = next_offset


class PullResult(NamedTuple):
    """`messages` may be empty although some were found: the exact filter let none through."""

    status: PullStatus
    messages: Sequence[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int


async def pull(
    instance: "Instance",
    queue: MessageQueue,
    group: str,
    offset: int,
    *,
    subscription: SubscriptionData,
    count_max: int = BATCH,
    suspend_s: float = 0.0,
    timeout_s: float = 10.0,
    commit_offset: int | None = None,
    broker_id: int = MASTER_ID,
    lite: bool = False,
) -> PullResult:
    """Pull once. With `suspend_s` the broker may hold the request so long; `timeout_s` must be longer. Names are those
    on the wire. CallError, BrokerError, BrokerUnknown or WireError."""
    address, member = await find_reader(instance, queue, broker_id)
    command = compose(
        instance, queue, group, offset,
        subscription=subscription, count_max=count_max, suspend_s=suspend_s, lite=lite, with_subscription=True,
        commit_offset=commit_offset if member == MASTER_ID else None,
    )  # fmt: skip
    response = await instance.net.call(address, command, timeout_s)
    return read(response, queue, subscription)


async def find_reader(instance: "Instance", queue: MessageQueue, broker_id: int) -> tuple[str, int]:
    """Where to read a queue and the id of that member; the route is asked again if its broker is not known."""
    reader = instance.brokers.reader(instance.host(queue), broker_id)
    if reader is None:
        await instance.refresh_route(queue.topic)
        reader = instance.brokers.reader(instance.host(queue), broker_id)
    if reader is None:
        raise BrokerUnknown(f"no route names a member of broker {queue.broker_name} for topic {queue.topic}")
    return reader


def compose(
    instance: "Instance",
    queue: MessageQueue,
    group: str,
    offset: int,
    *,
    subscription: SubscriptionData,
    count_max: int = BATCH,
    bytes_max: int = BATCH_BYTES,
    suspend_s: float = 0.0,
    commit_offset: int | None = None,
    with_subscription: bool = False,
    lite: bool = False,
) -> Command:
    """The request. Without its subscription it relies on the group's heartbeat."""
    return pull_command(
        instance,
        queue,
        group,
        offset,
        count_max=count_max,
        bytes_max=bytes_max,
        subscription=subscription.sub_string if with_subscription else None,
        kind=subscription.expression_type or TAG,
        sub_version=subscription.sub_version,
        hold_s=suspend_s,
        commit_offset=commit_offset or 0,
        lite=lite,
    )


def read(response: Command, queue: MessageQueue, subscription: SubscriptionData) -> PullResult:
    """What an answer means. BrokerError for a code that is no result, Unreadable for records that cannot be read."""
    pulled = read_pull(response, queue.broker_name)
    messages: list[StoredMessage] = []
    if pulled.body:
        try:
            for message in decode_records(pulled.body):
                messages += _unwrap(message) if message.sys_flag & NEEDS_UNWRAP else [message]
        except WireError as error:
            raise Unreadable(str(error), pulled.body, pulled.next_offset) from error
        if subscription.tags_set:
            messages = [message for message in messages if matches(subscription, message)]
        if pulled.offset_delta:
            for message in messages:
                message.queue_offset += pulled.offset_delta
    return PullResult(
        pulled.status,
        messages,
        pulled.next_offset,
        pulled.min_offset,
        pulled.max_offset,
        pulled.suggested_broker_id,
    )


def _unwrap(outer: StoredMessage) -> list[StoredMessage]:
    """The messages of an inner batch: stored as one record, delivered one by one."""
    if not outer.sys_flag & INNER_BATCH:
        return [outer]
    return [
        StoredMessage(
            outer.record_bytes,
            outer.version,
            outer.body_crc,
            outer.queue_id,
            flag,
            outer.queue_offset + index,
            outer.physical_offset,
            outer.sys_flag & ~(NEEDS_UNWRAP | INNER_BATCH),
            outer.born_timestamp_ms,
            outer.born_host,
            outer.store_timestamp_ms,
            outer.store_host,
            outer.reconsume_times,
            outer.prepared_transaction_offset,
            body,
            outer.topic,
            properties,
        )
        for index, (flag, body, properties) in enumerate(split_batch(outer.body))
    ]
