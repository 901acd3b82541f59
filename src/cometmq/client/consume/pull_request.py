"""One pull: a request for messages of one queue from one offset on, and what its answer means.

    code 0    FOUND       records back to back; inner batches are taken apart, tags compared exactly
         19   NO_NEW      nothing there yet, after the broker held the request for `suspend_s`
         20   NO_MATCH    nothing that the filter lets through
         21   ILLEGAL     the offset lies outside the queue; `next_offset` is where it begins or ends
    other     BrokerError

Every answer says where to go on, and which member of the broker to ask next: a master under pressure sends readers of
old messages to a replica.

Records that cannot be read: a CRC that does not fit, or bytes that are no record. They must not block their queue.

    an answer cannot be read       the queue is pulled message by message, so that those in front of it are handled
    it is the next message         pulled again, `bad_record_tries` times in all: perhaps the way damaged it
    still                          set aside, an ERROR in the log with the place, and the queue goes on behind it

Set aside means: the bytes as they came, in a file

    <directory>/GROUP/TOPIC-BROKER-QUEUE-OFFSET.record       directory: COMETMQ_BAD_RECORDS, or ~/.cometmq/bad-records

at most `KEPT_MAX` for a group; the broker's log has the record anyway. `bad_records="block"` keeps the queue where it
is, with one ERROR when the tries are over, until somebody mends the log or moves the group.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.client.cluster.queue_client import TAG, PullStatus, pull_command, read_pull
from cometmq.client.consume.subscriptions import matches
from cometmq.errors import BrokerUnknown, WireError
from cometmq.names import path_part, readable_part
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
logger = logging.getLogger(__name__)

BLOCK: Final = "block"
KEPT_MAX: Final = 1000
DIRECTORY_VARIABLE: Final = "COMETMQ_BAD_RECORDS"


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


class BadRecords:
    """Of one queue."""

    __slots__ = ("_choice", "_group", "_queue", "_tries", "_tries_max", "at")

    def __init__(self, group: str, queue: MessageQueue, tries_max: int, choice: str) -> None:
        self._group = group
        self._queue = queue
        self._tries_max = tries_max
        self._choice = choice
        self._tries = 0
        # Where messages are pulled one by one; -1: everything can be read.
        self.at = -1

    def count_max(self, usual: int) -> int:
        """How many messages the next pull may bring."""
        return usual if self.at < 0 else 1

    def passed(self, next_offset: int) -> None:
        """An answer could be read. Those behind it have been in the answer that could not."""
        self._tries = 0
        if next_offset > self.at:
            self.at = -1

    def failed(self, error: Unreadable, offset: int, asked: int) -> int | None:
        """The pull of `asked` messages from `offset` on cannot be read. Where to go on, None: there, again."""
        if asked > 1:
            # All that was asked for may come before the bad one.
            self.at, self._tries = offset + asked - 1, 0
            return None
        self._tries += 1
        self.at = max(self.at, offset)
        if self._tries < self._tries_max:
            return None
        if self._choice == BLOCK:
            if self._tries == self._tries_max:
                logger.error(
                    "block queue group=%s topic=%s broker=%s queue=%d offset=%d cause=%r: its record cannot be read; "
                    "move the group behind it (cometmq group seek), or set bad_records=skip",
                    self._group, self._queue.topic, self._queue.broker_name, self._queue.queue_id, offset, str(error),
                )  # fmt: skip
            return None
        following = max(error.next_offset, offset + 1)
        logger.error(
            "pass over record group=%s topic=%s broker=%s queue=%d offset=%d next=%d tries=%d file=%s cause=%r",
            self._group, self._queue.topic, self._queue.broker_name, self._queue.queue_id, offset, following,
            self._tries, self._set_aside(offset, error.body), str(error),
        )  # fmt: skip
        self._tries = 0
        return following

    def _set_aside(self, offset: int, body: bytes) -> Path | str:
        """The file, or why there is none: that must not block the queue, too."""
        queue = self._queue
        try:
            folder = directory() / path_part(self._group)
            folder.mkdir(parents=True, exist_ok=True)
            if len(os.listdir(folder)) >= KEPT_MAX:
                return f"none, {folder} has {KEPT_MAX} already"
            name = f"{readable_part(queue.topic)}-{readable_part(queue.broker_name)}-{queue.queue_id}-{offset}.record"
            (folder / name).write_bytes(body)
            return folder / name
        except OSError as error:
            return f"none, {error}"


def directory() -> Path:
    given = os.environ.get(DIRECTORY_VARIABLE)
    return Path(given) if given else Path.home() / ".cometmq" / "bad-records"
