"""What users hold in their hands: messages that were received, receipts of those that were sent.

Both are frozen. A message's `properties` are all that it carries, the application's and RocketMQ's; `tag`, `keys` and
times are read from them and from the record. Its `id` is the one that its producer gave it, which stays the same when
a message is sent or delivered again; `offset_id` names one stored copy.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from cometmq.client.cluster.namespaces import strip
from cometmq.client.codecs import Codec, decode_body
from cometmq.names import RETRY_PREFIX
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.compression import decompress
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.failure import FAILURE_NAMES, Failure
from cometmq.wire.record.failure import read as read_failure
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.message_id import encode_offset_id, offset_id_prefix
from cometmq.wire.record.properties import RESERVED_NAMES, Property
from cometmq.wire.record.sysflag import COMPRESSED

T = TypeVar("T")


class SendStatus(Enum):
    """All four mean that the message is stored; only OK that it is as safe as the broker promises."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendReceipt(msgspec.Struct, frozen=True):
    """What a broker says about a message that it has stored. `queue` names the topic as its producer does."""

    id: str
    offset_id: str
    queue: MessageQueue
    offset: int
    status: SendStatus = SendStatus.OK
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = "DefaultRegion"
    traced: bool = True

    @property
    def topic(self) -> str:
        return self.queue.topic

    @property
    def is_confirmed(self) -> bool:
        return self.status is SendStatus.OK


class Message(msgspec.Struct, Generic[T], frozen=True):
    """`value` is the body as the codec reads it; `delivery_count` is 1 when it is delivered for the first time."""

    topic: str
    body: bytes
    value: T
    properties: Mapping[str, str] = {}
    id: str = ""
    offset_id: str = ""
    queue: MessageQueue | None = None
    offset: int = -1
    delivery_count: int = 1
    born_ms: int = 0
    stored_ms: int = 0
    flag: int = 0
    physical_offset: int = -1

    @property
    def tag(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(Property.KEYS, "").split())

    @property
    def user_properties(self) -> dict[str, str]:
        """Those that an application set."""
        return {name: value for name, value in self.properties.items() if name not in RESERVED_NAMES | FAILURE_NAMES}

    @property
    def failure(self) -> Failure | None:
        """Why its last try failed, of a message that was retried or is dead; None if nobody wrote it down."""
        return read_failure(self.properties)

    @property
    def born_at(self) -> datetime:
        return datetime.fromtimestamp(self.born_ms / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        return datetime.fromtimestamp(self.stored_ms / 1000, UTC)

    @property
    def transaction_id(self) -> str | None:
        return self.properties.get(Property.TRANSACTION_ID)

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, id={self.id!r}, body={len(self.body)} bytes, tag={self.tag!r})"


# The arguments of a Message.
Fields: TypeAlias = tuple[str, bytes, Any, dict[str, str], str, str, MessageQueue, int, int, int, int, int, int]


def received(
    stored: StoredMessage, broker_name: str, codec: Codec[T], namespace: str | None = None
) -> Message[T]:
    """A record as its consumer sees it: body decompressed, namespace gone, a retry with the topic that it was sent to.
    WireError or CodecError."""
    return Message(*received_fields(stored, broker_name, codec, namespace))


def received_fields(
    stored: StoredMessage,
    broker_name: str,
    codec: Codec[Any],
    namespace: str | None = None,
    extra: Mapping[str, str] | None = None,
) -> Fields:
    """The arguments of `Message`; `extra` are properties that the client adds."""
    body = decompress(stored.body, stored.sys_flag) if stored.sys_flag & COMPRESSED else stored.body
    properties = wire_properties.decode(stored.properties)
    if extra:
        properties.update(extra)
    offset_id = encode_offset_id(offset_id_prefix(*stored.store_host), stored.physical_offset)
    return (
        strip(namespace, sent_to(stored.topic, properties)),
        body,
        decode_body(codec, body),
        properties,
        properties.get(Property.UNIQ_KEY) or offset_id,
        offset_id,
        MessageQueue(broker_name, stored.queue_id, strip(namespace, stored.topic)),
        stored.queue_offset,
        stored.reconsume_times + 1,
        stored.born_timestamp_ms,
        stored.store_timestamp_ms,
        stored.flag,
        stored.physical_offset,
    )


def sent_to(topic: str, properties: Mapping[str, str]) -> str:
    """The topic that a message was sent to: for one in a retry topic not the one where it lies."""
    return properties.get(Property.RETRY_TOPIC, topic) if topic.startswith(RETRY_PREFIX) else topic
