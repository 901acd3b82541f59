"""A message on its way out: checked, given its id, packed and compressed, before anything is sent.

What is made here does not change with attempts: every retry sends the same bytes under the same id, to another queue
perhaps. Nothing that the caller gave is changed.

    checks      topic, body, properties    in this order; the first that fails raises MessageRefused or ConfigError
    id          UNIQ_KEY, the same in all copies
    names       wrapped with the namespace; the property INSTANCE_ID says which
    body        compressed from `compress_over` bytes on, but for batches; a large one in a thread

A batch is a message whose body is its members; it has one id of its own, and each member has its own, too.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from cometmq.client.cluster.namespaces import wire_topic
from cometmq.client.options import ProducerOptions
from cometmq.errors import ConfigError, MessageRefused, WireError
from cometmq.names import RETRY_PREFIX, takes_no_sends
from cometmq.wire.codes import Request
from cometmq.wire.compression import compress
from cometmq.wire.record import properties as wire_properties
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.properties import RESERVED_NAMES, Property
from cometmq.wire.record.sysflag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    TRANSACTION_PREPARED,
)

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)

Seconds: TypeAlias = float | timedelta

DELAY_LEVEL_MAX: Final = 18
TOPICS_MAX: Final = 10_000
# Compressing this takes about as long as a hundred sends: worth a thread.
THREAD_BYTES_MIN: Final = 131_072
# What a message on its way costs besides its bytes.
OVERHEAD_BYTES: Final = 1024

# The properties of a message that has no others.
_ID_BEGIN: Final = f"{Property.UNIQ_KEY}\x01"
_ID_END: Final = f"\x02{Property.WAIT}\x01true\x02"

_COMPRESSIONS: Final = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}
_TIMER_NAMES: Final = (
    Property.DELAY,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELIVER_MS,
)


class MessageKeywords(TypedDict, total=False):
    """What can be said about a message besides topic and value.

    keys          business ids by which it can be found; without blanks
    properties    the application's own
    delay, delay_level, deliver_at
                  when it becomes visible: one of seconds, level 1 to 18, or a time
    wait          False: the broker answers without waiting for disk or replica
    flag          a number of the application's
    """

    tag: str | None
    keys: Iterable[str] | str
    properties: Mapping[str, str] | None
    delay: Seconds | None
    delay_level: int | None
    deliver_at: datetime | None
    wait: bool
    flag: int


class Outgoing:
    """`topic` is the name on the wire; `properties` the text form; `size_bytes` counts against the client's bounds.

    Only a batch has members."""

    __slots__ = (
        "topic", "shown_topic", "body", "packed", "properties", "id", "born_ms", "sys_flag", "flag", "code",
        "tag", "wait", "is_delayed", "reconsume_times", "max_reconsume_times", "size_bytes", "members",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        shown_topic: str,
        body: bytes,
        properties: str,
        message_id: str,
        born_ms: int,
        flag: int = 0,
    ) -> None:
        self.topic = topic
        self.shown_topic = shown_topic
        self.body = body
        self.packed = body
        self.properties = properties
        self.id = message_id
        self.born_ms = born_ms
        self.sys_flag = 0
        self.flag = flag
        self.code: int = Request.SEND_MESSAGE_V2
        self.tag: str | None = None
        self.wait = True
        self.is_delayed = False
        self.reconsume_times = 0
        self.max_reconsume_times: int | None = None
        self.members: list[Outgoing] | None = None
        self.size_bytes = len(body) + len(properties) + OVERHEAD_BYTES

    @property
    def is_batch(self) -> bool:
        return self.code == Request.SEND_BATCH_MESSAGE


class Composer:
    """Makes messages of what callers give, by the rules of one producer."""

    def __init__(self, instance: "Instance", options: ProducerOptions) -> None:
        self._options = options
        self._clock = instance.clock
        self._ids = instance.ids
        self._namespace = instance.namespace
        self._compression = _COMPRESSIONS[options.compression]
        self._wire_topics: dict[str, str] = {}

    def wire_topic(self, topic: str) -> str:
        """The name on the wire of a topic that may be sent to."""
        wire = self._wire_topics.get(topic)
        if wire is None:
            wire = wire_topic(self._namespace, topic)
            if takes_no_sends(wire):
                raise ConfigError(f"topic {topic} is the brokers' own: nobody may send to it")
            if len(self._wire_topics) >= TOPICS_MAX:
                self._wire_topics.clear()
            self._wire_topics[topic] = wire
        return wire

    def compose(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Iterable[str] | str = (),
        properties: Mapping[str, str] | None = None,
        delay: Seconds | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | None = None,
        wait: bool = True,
        flag: int = 0,
        system: Mapping[str, str] | None = None,
    ) -> Outgoing:
        """A message that may be sent. `system` are properties that applications may not set."""
        wire = self._wire_topics.get(topic) or self.wire_topic(topic)
        self._check_body(body)
        now_ms = self._clock.now_ms()
        message_id = self._ids.next(now_ms)
        is_delayed = delay is not None or delay_level is not None or deliver_at is not None
        if tag is None and not (keys or properties or is_delayed or system or self._namespace or not wait):
            # Most messages: 1.5 us less than joining and checking what needs no check.
            return Outgoing(wire, topic, body, f"{_ID_BEGIN}{message_id}{_ID_END}", message_id, now_ms, flag)
        given: dict[str, str] = {Property.UNIQ_KEY: message_id, Property.WAIT: "true" if wait else "false"}
        if tag is not None:
            given[Property.TAGS] = _checked_tag(tag)
        if keys:
            given[Property.KEYS] = joined_keys(keys)
        if properties:
            check_user_properties(properties)
            given.update(properties)
        if is_delayed:
            given.update(_timer(delay, delay_level, deliver_at))
        if self._namespace:
            given[Property.INSTANCE_ID] = self._namespace
        if system:
            given.update(system)
        outgoing = Outgoing(wire, topic, body, _text(given), message_id, now_ms, flag)
        outgoing.tag = tag
        outgoing.wait = wait
        outgoing.is_delayed = is_delayed
        if system:
            _read_system(outgoing, system)
        return outgoing

    def compose_record(self, topic: str, body: bytes, properties: Mapping[str, str], flag: int = 0) -> Outgoing:
        """A message with exactly these properties, an id if it has none: what was received goes on as it is."""
        wire = self.wire_topic(topic)
        self._check_body(body)
        given = dict(properties)
        now_ms = self._clock.now_ms()
        message_id = given.setdefault(Property.UNIQ_KEY, self._ids.next(now_ms))
        reconsume_times, max_reconsume_times = 0, None
        if wire.startswith(RETRY_PREFIX):
            # Of a retry the header tells how often it was tried, not the properties.
            reconsume_times = _number(given.pop(Property.RECONSUME_TIME, "0"))
            most = given.pop(Property.MAX_RECONSUME_TIMES, None)
            max_reconsume_times = _number(most) if most is not None else None
        outgoing = Outgoing(wire, topic, body, _text(given), message_id, now_ms, flag)
        outgoing.tag = given.get(Property.TAGS)
        outgoing.wait = given.get(Property.WAIT, "true") != "false"
        outgoing.is_delayed = any(name in given for name in _TIMER_NAMES)
        outgoing.reconsume_times = reconsume_times
        outgoing.max_reconsume_times = max_reconsume_times
        _read_system(outgoing, given)
        return outgoing

    def pack(self, members: list[Outgoing]) -> Outgoing:
        """One batch of several messages. They have topic and `wait` in common, and none is delayed."""
        first = members[0]
        body = encode_batch([(member.flag, member.body, member.properties.encode()) for member in members])
        if len(body) > self._options.max_message_bytes:
            raise MessageRefused(
                f"a batch of {len(members)} messages has {len(body)} bytes, "
                f"max_message_bytes is {self._options.max_message_bytes}: send fewer at once"
            )
        now_ms = self._clock.now_ms()
        message_id = self._ids.next(now_ms)
        given: dict[str, str] = {Property.UNIQ_KEY: message_id, Property.WAIT: "true" if first.wait else "false"}
        if first.tag is not None and all(member.tag == first.tag for member in members):
            given[Property.TAGS] = first.tag
        if self._namespace:
            given[Property.INSTANCE_ID] = self._namespace
        outgoing = Outgoing(first.topic, first.shown_topic, body, _text(given), message_id, now_ms)
        outgoing.code = Request.SEND_BATCH_MESSAGE
        outgoing.members = members
        outgoing.wait = first.wait
        return outgoing

    def needs_packing(self, outgoing: Outgoing) -> bool:
        """Whether `compress` has work to do: asked first, because most messages are small."""
        return len(outgoing.body) >= self._options.compress_over and not outgoing.is_batch

    async def compress(self, outgoing: Outgoing) -> None:
        """Sets `packed` and the system flag. The body goes as it is if the codec fails."""
        body = outgoing.body
        level = self._options.compression_level
        try:
            if len(body) < THREAD_BYTES_MIN:
                packed = compress(body, self._compression, level)
            else:
                packed = await asyncio.to_thread(compress, body, self._compression, level)
        except Exception as error:
            logger.warning("fail compression bytes=%d cause=%r", len(body), error)
            return
        outgoing.packed = packed
        outgoing.sys_flag |= COMPRESSED | self._compression

    def _check_body(self, body: bytes) -> None:
        if not body:
            raise MessageRefused("the body is empty: brokers take messages of 1 byte and more")
        if len(body) > self._options.max_message_bytes:
            raise MessageRefused(
                f"the body has {len(body)} bytes, max_message_bytes is {self._options.max_message_bytes}; "
                "the broker has a limit of its own (maxMessageSize)"
            )


def joined_keys(keys: Iterable[str] | str) -> str:
    given: list[Any] = [keys] if isinstance(keys, str) else list(keys)
    for key in given:
        if not isinstance(key, str) or not key or len(key.split()) != 1 or key != key.strip():
            raise ConfigError(f"key {key!r} is not a text without blanks: blanks separate keys")
    return " ".join(given)


def check_user_properties(properties: Mapping[Any, Any]) -> None:
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name.strip() or not value.strip():
            raise ConfigError(f"property {name!r} has value {value!r}: both must be text that is not blank")
        if name in RESERVED_NAMES:
            raise ConfigError(f"property {name!r} is reserved: choose another name, or the argument that sets it")


def _checked_tag(tag: str) -> str:
    if not tag.strip() or "||" in tag:
        raise ConfigError(f"tag {tag!r} is blank or holds ||, which separates tags in subscriptions")
    return tag


def _text(properties: Mapping[str, str]) -> str:
    try:
        return wire_properties.encode_text(properties)
    except WireError as error:
        raise MessageRefused(str(error)) from None


def _timer(delay: Seconds | None, delay_level: int | None, deliver_at: datetime | None) -> dict[str, str]:
    if (delay is not None) + (delay_level is not None) + (deliver_at is not None) > 1:
        raise ConfigError("delay, delay_level and deliver_at exclude each other: give one")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if seconds <= 0:
            raise ConfigError(f"delay is {seconds} s: it must be more than 0")
        return {Property.TIMER_DELAY_MS: str(max(1, round(seconds * 1000)))}
    if deliver_at is not None:
        return {Property.TIMER_DELIVER_MS: str(round(deliver_at.timestamp() * 1000))}
    if delay_level is None or not 1 <= delay_level <= DELAY_LEVEL_MAX:
        raise ConfigError(f"delay_level is {delay_level}, allowed are 1 to {DELAY_LEVEL_MAX}")
    return {Property.DELAY: str(delay_level)}


def _read_system(outgoing: Outgoing, properties: Mapping[str, str]) -> None:
    """What some of RocketMQ's own properties mean for the request."""
    if properties.get(Property.TRAN_MSG) == "true":
        outgoing.sys_flag |= TRANSACTION_PREPARED
    if properties.get(Property.MSG_TYPE) == "reply":
        outgoing.code = Request.SEND_REPLY_MESSAGE_V2


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise MessageRefused(f"a retry says it was tried {text!r} times: that is no number") from None
