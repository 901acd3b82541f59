"""Message traces: what became of a message, written down by its producer and its consumers.

    producer, consumer --record--> Tracer: waits for company --message--> trace topic <--key-- mqadmin queryMsgTraceById

A record is a line of fields joined by 0x01 and closed by 0x02; a missing tag or key is the word null.

    Pub             time region group topic id tags keys broker-address body-bytes cost-ms type offset-id success
    SubBefore       time region group request-id id retries keys
    SubAfter        request-id id cost-ms success keys context-code time group
    EndTransaction  time region group topic id tags keys broker-address 2 transaction-id state from-check

Records of one user topic travel together in one message, whose keys are all ids and keys in them. A message goes out
when 10 records wait or the oldest has waited 5 s, and at the end. More than 2048 records never wait: what comes then
is counted and dropped, because a trace must not slow down what it watches.

Each member of a batch has a record of its own. Not recorded: failed and one-way sends, and whatever the broker marks
as not traced.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cometmq.client.cluster.namespaces import strip
from cometmq.client.messages import Message
from cometmq.client.options import ProducerOptions
from cometmq.client.produce.hooks import SendContext
from cometmq.client.produce.outgoing import Composer, Outgoing
from cometmq.client.produce.sending import Sender
from cometmq.clock import Timer
from cometmq.errors import CometError
from cometmq.names import TRACE_TOPIC
from cometmq.wire.headers import EndTransaction
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.message_id import split_ids
from cometmq.wire.record.properties import Property
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"

FLUSH_RECORDS: Final = 10
FLUSH_S: Final = 5.0
RECORDS_MAX: Final = 2048
MESSAGE_BYTES_MAX: Final = 128_000
STOP_S: Final = 5.0

NORMAL, HALF, END_OF_TRANSACTION, DELAYED = 0, 1, 2, 3
# How a handler ended.
SUCCESS, TIMEOUT, EXCEPTION, NO_RESULT, FAILED = 0, 1, 2, 3, 4
STATE_NAMES: Final = {
    TRANSACTION_COMMIT: "COMMIT_MESSAGE",
    TRANSACTION_ROLLBACK: "ROLLBACK_MESSAGE",
    TRANSACTION_NONE: "UNKNOW",
}
DEFAULT_REGION: Final = "DefaultRegion"


class Tracer:
    """Takes records for one producer or consumer and sends them to the trace topic."""

    def __init__(self, instance: "Instance", group: str, topic: str | None) -> None:
        self.instance = instance
        self.clock = instance.clock
        self.group = strip(instance.namespace, group)
        self.topic = topic or TRACE_TOPIC
        self.dropped = 0
        options = ProducerOptions(timeout=5.0, max_message_bytes=MESSAGE_BYTES_MAX, allow_auto_create=True)
        self._composer = Composer(instance, options)
        self._sender = Sender(instance, group, options, self._composer)
        self._waiting: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        self._count = 0
        self._timer: Timer | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def add(self, user_topic: str, fields: Iterable[object], keys: Iterable[str]) -> None:
        """Take one record; `keys` are what it can be found by."""
        if self._count >= RECORDS_MAX:
            self.dropped += 1
            return
        record = FIELD_END.join(_text(field) for field in fields) + RECORD_END
        self._waiting.setdefault(user_topic, []).append((record, tuple(keys)))
        self._count += 1
        if self._count >= FLUSH_RECORDS and not self._sending:
            self._flush()
        elif self._timer is None:
            self._timer = self.clock.call_later(FLUSH_S, self._flush)

    async def stop(self) -> None:
        """Send what waits, for some seconds at most."""
        self._flush()
        if self._sending:
            await asyncio.wait(list(self._sending), timeout=STOP_S)
        if self.dropped:
            logger.warning("lose traces group=%s records=%d: too many waited", self.group, self.dropped)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._count:
            return
        waiting, self._waiting, count, self._count = self._waiting, {}, self._count, 0
        task = self.instance.spawn(self._send_all(waiting))
        self._sending.add(task)
        task.add_done_callback(self._sent)
        logger.debug("send traces group=%s records=%d", self.group, count)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        if self._count >= FLUSH_RECORDS:
            self._flush()

    async def _send_all(self, waiting: dict[str, list[tuple[str, tuple[str, ...]]]]) -> None:
        for records in waiting.values():
            for body, keys in pack(records, MESSAGE_BYTES_MAX):
                outgoing = self._composer.compose(self.topic, body, keys=keys)
                try:
                    await self._sender.send(outgoing, None, self._sender.options.timeout, 2)
                except CometError as error:
                    logger.warning("lose traces group=%s cause=%s", self.group, error)


def pack(records: Sequence[tuple[str, tuple[str, ...]]], bytes_max: int) -> list[tuple[bytes, list[str]]]:
    """Bodies of at most `bytes_max` bytes, each with the keys of its records. A larger record goes alone, cut off."""
    packed: list[tuple[bytes, list[str]]] = []
    body = b""
    keys: dict[str, None] = {}
    for record, record_keys in records:
        encoded = record.encode()[:bytes_max]
        if body and len(body) + len(encoded) > bytes_max:
            packed.append((body, list(keys)))
            body, keys = b"", {}
        body += encoded
        keys.update(dict.fromkeys(record_keys))
    if body:
        packed.append((body, list(keys)))
    return packed


class ProduceTrace:
    """The hook of a producer: one record for each message that a broker has stored."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def before_send(self, context: SendContext) -> None:
        context.state[self] = (self._tracer.clock.now_ms(), self._tracer.clock.monotonic())

    def after_send(self, context: SendContext) -> None:
        receipt, outgoing = context.receipt, context.outgoing
        if receipt is None or not receipt.traced or outgoing.shown_topic == self._tracer.topic:
            return
        began_ms, began_s = context.state[self]
        members = outgoing.members or [outgoing]
        cost_ms = round((self._tracer.clock.monotonic() - began_s) * 1000) // len(members)
        offset_ids = split_ids(receipt.offset_id)
        if len(offset_ids) != len(members):
            offset_ids = [receipt.offset_id] * len(members)
        for member, offset_id in zip(members, offset_ids, strict=True):
            properties = wire_properties.decode_text(member.properties)
            keys = properties.get(Property.KEYS)
            self._tracer.add(
                outgoing.shown_topic,
                (
                    "Pub", began_ms, receipt.region, self._tracer.group, outgoing.shown_topic, member.id,
                    properties.get(Property.TAGS), keys, context.address, len(member.packed), cost_ms,
                    _kind(member, properties), offset_id, True,
                ),
                (member.id, *(keys or "").split()),
            )  # fmt: skip


class ConsumeTrace:
    """What a consumer calls around its handler. `before` gives what `after` wants back."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def before(self, messages: Sequence[Message[Any]]) -> tuple[str, int, float]:
        now_ms = self._tracer.clock.now_ms()
        request_id = self._tracer.instance.ids.next(now_ms)
        for message in messages:
            if not _is_traced(message):
                continue
            region = message.properties.get(Property.MSG_REGION)
            self._add(
                message,
                "SubBefore", now_ms, region, self._tracer.group, request_id, message.id,
                message.delivery_count - 1, message.properties.get(Property.KEYS, ""),
            )  # fmt: skip
        return request_id, now_ms, self._tracer.clock.monotonic()

    def after(self, began: tuple[str, int, float], messages: Sequence[Message[Any]], success: bool, code: int) -> None:
        """`code` says how the handler ended."""
        request_id, _, began_s = began
        cost_ms = round((self._tracer.clock.monotonic() - began_s) * 1000) // max(1, len(messages))
        for message in messages:
            if _is_traced(message):
                self._add(
                    message,
                    "SubAfter", request_id, message.id, cost_ms, success, message.properties.get(Property.KEYS, ""),
                    code, self._tracer.clock.now_ms(), self._tracer.group,
                )  # fmt: skip

    def _add(self, message: Message[Any], *fields: object) -> None:
        self._tracer.add(message.topic, fields, (message.id, *message.keys))


def add_transaction_end(
    tracer: Tracer, topic: str, properties: Mapping[str, str], address: str, header: EndTransaction
) -> None:
    """A producer tells, or answers, what becomes of a half message with these properties."""
    keys = properties.get(Property.KEYS)
    region = properties.get(Property.MSG_REGION, DEFAULT_REGION)
    tracer.add(
        topic,
        (
            "EndTransaction", tracer.clock.now_ms(), region, tracer.group, topic, header.msg_id,
            properties.get(Property.TAGS), keys, address, END_OF_TRANSACTION, header.transaction_id,
            STATE_NAMES[header.commit_or_rollback], header.from_transaction_check,
        ),
        (header.msg_id or "", *(keys or "").split()),
    )  # fmt: skip


def _is_traced(message: Message[Any]) -> bool:
    return message.properties.get(Property.TRACE_ON) != "false"


def _kind(outgoing: Outgoing, properties: dict[str, str]) -> int:
    if properties.get(Property.TRAN_MSG) == "true":
        return HALF
    return DELAYED if outgoing.is_delayed else NORMAL


def _text(field: object) -> str:
    if field is None:
        return "null"
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field)
