"""A stored message as a gRPC client gets it.

The body is as it is stored where every client can read it (plain, or gzip); other compressions are undone here, which
RocketMQ leaves to clients of which most cannot. `body_digest` is of what is delivered.
"""

from __future__ import annotations

import hashlib
import socket
from typing import Final, cast

from google.protobuf.timestamp_pb2 import Timestamp

from cometmq.errors import WireError
from cometmq.front.checks import RESERVED
from cometmq.wire.compression import decompress
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.record.message import Host, StoredMessage
from cometmq.wire.record.properties import Property, decode
from cometmq.wire.record.sysflag import COMPRESSED

LITE_TOPIC: Final = "__LITE_TOPIC"
GZIP_MARK: Final = b"\x1f\x8b"
DELAYS: Final = (Property.DELAY, Property.TIMER_DELIVER_MS, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS)
DIGITS_MAX: Final = 18
TYPES: Final = dict(pb.MessageType.items())


def type_of(properties: dict[str, str]) -> str:
    """The kind of a message, by its properties: what the topic's type must be."""
    if properties.get(Property.TRAN_MSG, "").lower() == "true":
        return "TRANSACTION"
    if any(name in properties for name in DELAYS):
        return "DELAY"
    if Property.SHARDING_KEY in properties:
        return "FIFO"
    if Property.PRIORITY in properties:
        return "PRIORITY"
    return "LITE" if LITE_TOPIC in properties else "NORMAL"


def message_of(
    message: StoredMessage, topic: str, handle: str, *, attempt: int, queue_id: int = -1, queue_offset: int = -1
) -> pb.Message:
    """`queue_id`, `queue_offset`: where it was popped from, if that is not what it says itself."""
    properties = decode(message.properties)
    body, encoding = _body(message)
    system = pb.SystemProperties(
        message_id=properties.get(Property.UNIQ_KEY, ""),
        body_digest=pb.Digest(type=pb.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=encoding,
        message_type=cast("pb.MessageType", TYPES[type_of(properties)]),
        born_timestamp=timestamp(message.born_timestamp_ms),
        born_host=properties.get(Property.BORN_HOST) or host_text(message.born_host),
        store_timestamp=timestamp(message.store_timestamp_ms),
        store_host=host_text(message.store_host),
        queue_id=message.queue_id if queue_id < 0 else queue_id,
        queue_offset=message.queue_offset if queue_offset < 0 else queue_offset,
        delivery_attempt=attempt,
    )
    if handle:
        system.receipt_handle = handle
    tag = properties.get(Property.TAGS)
    if tag:
        system.tag = tag
    keys = properties.get(Property.KEYS)
    if keys:
        system.keys.extend(keys.split())
    if Property.SHARDING_KEY in properties:
        system.message_group = properties[Property.SHARDING_KEY]
    _add_rare(system, properties)
    namespace, separator, name = topic.rpartition("%")
    resource = pb.Resource(name=topic)
    if separator and namespace and not topic.startswith("%"):
        resource = pb.Resource(resource_namespace=namespace, name=name)
    user = {name: value for name, value in properties.items() if name not in RESERVED}
    return pb.Message(topic=resource, user_properties=user, system_properties=system, body=body)


def _add_rare(system: pb.SystemProperties, properties: dict[str, str]) -> None:
    deliver_ms = _number(properties.get(Property.TIMER_DELIVER_MS))
    if deliver_ms is not None:
        system.delivery_timestamp.CopyFrom(timestamp(deliver_ms))
    if Property.TRACE_CONTEXT in properties:
        system.trace_context = properties[Property.TRACE_CONTEXT]
    if LITE_TOPIC in properties:
        system.lite_topic = properties[LITE_TOPIC]
    priority = _number(properties.get(Property.PRIORITY))
    if priority is not None and priority <= 0x7FFFFFFF:
        system.priority = priority
    origin, origin_id = properties.get(Property.DLQ_ORIGIN_TOPIC), properties.get(Property.DLQ_ORIGIN_MESSAGE_ID)
    if origin and origin_id:
        system.dead_letter_queue.CopyFrom(pb.DeadLetterQueue(topic=origin, message_id=origin_id))


def _body(message: StoredMessage) -> tuple[bytes, pb.Encoding]:
    body = message.body
    if not message.sys_flag & COMPRESSED:
        return body, pb.IDENTITY
    if body.startswith(GZIP_MARK):
        return body, pb.GZIP
    try:
        return decompress(body, message.sys_flag), pb.IDENTITY
    except WireError:
        return body, pb.GZIP  # as it was sent; the client says that it is damaged


def timestamp(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def host_text(host: Host) -> str:
    address, port = host
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, address)}:{port}"


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        return None
    return int(text)
