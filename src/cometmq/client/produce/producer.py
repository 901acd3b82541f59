"""A producer: one group's way to send.

    async with client.producer("orders-pg", codec=json_codec) as producer:
        receipt = await producer.send("orders", {"id": 7}, tag="created", keys=["7"])

    send          await the receipt; tried again at other brokers on failure
    send_soon     a future at once; messages travel in batches
    send_many     all values of an iterable, in batches; await all receipts
    send_oneway   no answer, no retry
    request       await the reply of whoever consumes the message
    recall        take back a delayed message

`sending` has the rules of retries, `outgoing` the checks. Everything that waits is bounded: sends wait for room in
the window, `send_soon` says Backpressure when its buffer is full.
"""

import asyncio
import base64
import binascii
import logging
import uuid
from collections.abc import AsyncIterable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import strip, wire_group, wrap
from cometmq.client.codecs import Codec, decode_body, encode_value
from cometmq.client.messages import Message, SendReceipt
from cometmq.client.options import ClientOptions, ProducerOptions
from cometmq.client.produce.arguments import wrong_argument
from cometmq.client.produce.batching import Buffer, Many, Place
from cometmq.client.produce.broker_probe import Probe
from cometmq.client.produce.hooks import SendCheck, SendHook
from cometmq.client.produce.lag_watch import LagWatch
from cometmq.client.produce.outgoing import Composer, MessageKeywords, Outgoing, Seconds
from cometmq.client.produce.requests import Reply, reply_address
from cometmq.client.produce.selectors import LeastLag, Selector
from cometmq.client.produce.sending import Pick, Sender
from cometmq.client.traces import ProduceTrace, Tracer
from cometmq.errors import Backpressure, CometError, ConfigError, NoRoute, NotRunning
from cometmq.names import DLQ_PREFIX, RETRY_PREFIX
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.headers import CheckTransactionState, RecallMessage, RecallMessageResponse
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property

logger = logging.getLogger(__name__)

T = TypeVar("T")

FORBIDDEN_GROUP: Final = "DEFAULT_PRODUCER"
ONEWAY_WAITING_MAX: Final = 1024


class Producer(Generic[T]):
    """Made by `Client.producer()`; on its own, `Producer("group", codec, namesrv="host:9876")` has a private client."""

    def __init__(
        self,
        group: str,
        codec: Codec[T],
        options: ProducerOptions | None = None,
        *,
        instance: Instance | None = None,
        namesrv: str | None = None,
    ) -> None:
        self._owns_instance = instance is None
        self.instance = instance if instance is not None else Instance(ClientOptions(namesrv))
        self.options = options if options is not None else ProducerOptions()
        self.codec = codec
        self.group = wire_group(self.instance.namespace, group)
        if group == FORBIDDEN_GROUP:
            raise ConfigError(f"producer group {group} is everybody's default: choose one of your own")
        self._composer = Composer(self.instance, self.options)
        self._sender = Sender(self.instance, self.group, self.options, self._composer)
        self._buffer = Buffer(self._sender, self._composer)
        self._probe = Probe(self._sender)
        self._tracer: Tracer | None = None
        if self.options.trace:
            self._tracer = Tracer(self.instance, self.group, self.options.trace_topic)
            self.add_hook(ProduceTrace(self._tracer))
        self._watches: list[LagWatch] = []
        self._oneway_waiting = 0
        self._is_running = False
        self._was_started = False

    # Start and stop

    @property
    def is_running(self) -> bool:
        return self._is_running

    async def start(self) -> None:
        """Register the group, learn the routes of `options.topics`, say hello to brokers. Only once."""
        if self._was_started:
            raise NotRunning(f"producer {self.group} was started before: make a new one")
        if not self._owns_instance:
            self.instance.check_running()
        self.instance.register_producer(self)
        self._was_started = True
        try:
            await self.instance.start()
            for topic in self.options.topics:
                await self._sender.find_target(self._composer.wire_topic(topic))
            self._probe.start()
            await self.instance.heartbeat()
        except BaseException:
            await self.instance.unregister_producer(self.group)
            raise
        self._is_running = True
        logger.info("started producer group=%s", self.group)

    async def stop(self) -> None:
        """Send what waits, leave the group. Idempotent."""
        if not self._is_running:
            return
        await self.flush()
        self._is_running = False
        if self._tracer is not None:
            await self._tracer.stop()
        self._probe.stop()
        for watch in self._watches:
            watch.stop()
        await self.instance.unregister_producer(self.group)
        if self._owns_instance:
            await self.instance.stop()
        logger.info("stopped producer group=%s", self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Sending

    async def send(
        self,
        topic: str,
        value: T,
        *,
        tag: str | None = None,
        keys: Iterable[str] | str = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: Seconds | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | None = None,
        wait: bool = True,
        flag: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 - one budget for all attempts, and its own error
    ) -> SendReceipt:
        """Send one message and await its receipt.

        `ordering_key`, `queue` or `selector` decide about the queue, and then there is one attempt only.
        Raises ConfigError or MessageRefused before anything is sent; NoRoute, BrokerError, SendTimeout, ConnectFailed
        and their kin when all attempts failed.
        """
        self._need_running()
        try:
            outgoing = self._composer.compose(
                topic,
                encode_value(self.codec, value),
                tag=tag,
                keys=keys,
                properties=properties,
                delay=delay,
                delay_level=delay_level,
                deliver_at=deliver_at,
                wait=wait,
                flag=flag,
            )
        except (TypeError, AttributeError) as error:
            given = {
                "tag": tag, "keys": keys, "properties": properties, "delay": delay, "delay_level": delay_level,
                "deliver_at": deliver_at, "flag": flag,
            }  # fmt: skip
            raise wrong_argument(given) or error from error
        limit_s = self.options.timeout if timeout is None else timeout
        if ordering_key is None and queue is None and selector is None:
            return await self._sender.send(outgoing, None, limit_s, self.options.retries)
        pick = _pick(outgoing, ordering_key, queue, selector)
        return await self._sender.send(outgoing, pick, limit_s, 0)

    def _compose(
        self, topic: str, value: T, system: Mapping[str, str] | None, message: MessageKeywords
    ) -> Outgoing:
        try:
            return self._composer.compose(topic, encode_value(self.codec, value), system=system, **message)
        except (TypeError, AttributeError) as error:
            raise wrong_argument(message) or error from error

    async def send_record(
        self,
        topic: str,
        body: bytes,
        properties: Mapping[str, str],
        *,
        flag: int = 0,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> SendReceipt:
        """Send a body with exactly these properties, RocketMQ's own too: for what forwards, retries or replays."""
        self._need_running()
        outgoing = self._composer.compose_record(topic, body, properties, flag)
        limit_s = self.options.timeout if timeout is None else timeout
        if queue is None:
            return await self._sender.send(outgoing, None, limit_s, self.options.retries)
        return await self._sender.send(outgoing, _pick(outgoing, None, queue, None), limit_s, 0)

    def send_soon(
        self,
        topic: str,
        value: T,
        *,
        ordering_key: str | int | None = None,
        queue: MessageQueue | None = None,
        **message: Unpack[MessageKeywords],
    ) -> "asyncio.Future[SendReceipt]":
        """Send together with others, soon. The future has the receipt; nobody needs to look at it.

        Raises what is wrong with the message, and Backpressure while too much waits: `await producer.ready()`.
        """
        self._need_running()
        outgoing = self._compose(topic, value, None, message)
        if ordering_key is None and queue is None:
            return self._buffer.add(outgoing, None, None)
        place: Place = queue if queue is not None else ordering_key
        return self._buffer.add(outgoing, place, _pick(outgoing, ordering_key, queue, None))

    async def ready(self) -> None:
        """Return when `send_soon` has room: at once, or after some of what waits has its outcome."""
        self._need_running()
        await self._buffer.room()

    async def flush(self) -> None:
        """Return when everything that `send_soon` accepted has its outcome."""
        await self._buffer.flush()

    async def send_many(
        self,
        topic: str,
        values: Iterable[T] | AsyncIterable[T],
        *,
        ordering_key: str | int | None = None,
        queue: MessageQueue | None = None,
        **message: Unpack[MessageKeywords],
    ) -> list[SendReceipt]:
        """Send all values in batches; receipts in their order. What is said of the message holds for each.

        The first error ends it, after the batches on their way; a note on it says how many messages were stored.
        """
        self._need_running()
        pick: Pick | None = None
        many: Many | None = None
        async for value in _each(values):
            outgoing = self._compose(topic, value, None, message)
            if many is None:
                if ordering_key is not None or queue is not None:
                    pick = _pick(outgoing, ordering_key, queue, None)
                many = Many(self._sender, self._composer, pick)
            await many.add(outgoing)
        return await many.finish() if many is not None else []

    def send_oneway(
        self,
        topic: str,
        value: T,
        *,
        ordering_key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        **message: Unpack[MessageKeywords],
    ) -> "asyncio.Future[None]":
        """Send without an answer: fast, and lost without a word if anything fails.

        Once route and connection are there the message is written before this returns. The future says when it was
        written; awaiting it is not needed. Raises what is wrong with the message, and Backpressure when the broker
        takes less than it is given.
        """
        self._need_running()
        outgoing = self._compose(topic, value, None, message)
        pick: Pick | None = None
        if ordering_key is not None or queue is not None or selector is not None:
            pick = _pick(outgoing, ordering_key, queue, selector)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._sender.write_oneway(outgoing, pick):
            future.set_result(None)
            return future
        if self._oneway_waiting >= ONEWAY_WAITING_MAX:
            raise Backpressure(f"{ONEWAY_WAITING_MAX} one-way messages wait for a connection that takes them")
        self._oneway_waiting += 1
        self.instance.spawn(self._send_oneway(outgoing, pick, future))
        return future

    async def _send_oneway(self, outgoing: Outgoing, pick: Pick | None, future: "asyncio.Future[None]") -> None:
        try:
            await self._sender.send_oneway(outgoing, pick, self.options.timeout)
        except CometError as error:
            logger.debug("lose one-way message topic=%s cause=%s", outgoing.shown_topic, error)
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever does not await it does not care
        finally:
            self._oneway_waiting -= 1
            if not future.done():
                future.set_result(None)

    # Request and reply

    async def request(
        self,
        topic: str,
        value: T,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        **message: Unpack[MessageKeywords],
    ) -> Message[T]:
        """Send a message and await the reply of its consumer. RequestTimeout if none comes in time."""
        self._need_running()
        limit_s = self.options.timeout if timeout is None else timeout
        correlation_id = str(uuid.uuid4())
        system = {
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: self.instance.client_id,
            Property.TTL: str(round(limit_s * 1000)),
        }
        outgoing = self._compose(topic, value, system, message)
        if self._sender.known_target(outgoing.topic) is None:
            await self._sender.find_target(outgoing.topic)
            await self.instance.heartbeat()  # a broker must know us before it can push a reply
        future = self.instance.replies.expect(correlation_id, limit_s)
        try:
            await self._sender.send(outgoing, None, limit_s, self.options.retries_soon, soon=True)
            return self._read_reply(await future)
        finally:
            self.instance.replies.forget(correlation_id)

    async def reply(self, to: Message[Any], value: T, **message: Unpack[MessageKeywords]) -> SendReceipt:
        """Answer a message that was sent with `request`. CannotReply for any other."""
        self._need_running()
        topic, system = reply_address(to.properties)
        outgoing = self._compose(topic, value, system, message)
        return await self._sender.send(outgoing, None, self.options.timeout, self.options.retries)

    def _read_reply(self, reply: Reply) -> Message[T]:
        header = reply.header
        return Message(
            strip(self.instance.namespace, header.topic),
            reply.body,
            decode_body(self.codec, reply.body),
            reply.properties,
            reply.properties.get(Property.UNIQ_KEY, ""),
            born_ms=header.born_timestamp,
            stored_ms=header.store_timestamp,
            flag=header.flag,
        )

    # Recall

    async def recall(self, receipt: SendReceipt | str, topic: str | None = None) -> str:
        """Take back a delayed message before it is due; returns its id. `topic` is needed with a bare handle."""
        self._need_running()
        handle = receipt if isinstance(receipt, str) else receipt.recall_handle
        topic = topic if topic is not None or isinstance(receipt, str) else receipt.topic
        if not handle or not topic:
            raise ConfigError("only messages sent with delay or deliver_at can be recalled: the receipt has no handle")
        wire = self._composer.wire_topic(topic)
        if wire.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise ConfigError(f"messages of {topic} cannot be recalled")
        header = RecallMessage(wire, handle, self.group)
        target = self.instance.brokers.master(_recall_broker(handle))
        if target is None:
            target = self.instance.brokers.any_of(await self.instance.route(wire))
        if target is None:
            raise NoRoute(f"no broker of topic {topic} is known")
        command = self.instance.request(Request.RECALL_MESSAGE, header.encode())
        response = await self.instance.ask(target, command, self.options.timeout)
        return RecallMessageResponse.decode(response.ext).msg_id

    # What else

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic can go to."""
        self._need_running()
        target = await self._sender.find_target(self._composer.wire_topic(topic))
        return [lane.queue for lane in target.lanes]

    async def least_lag(
        self, topic: str, group: str, *, refresh: float = 5.0, slack: int = 100
    ) -> LeastLag:
        """A selector for `topic` that avoids queues in which a consumer group is held back.

        Brokers are asked for the group's progress every `refresh` seconds; a queue is avoided while it lies more
        than `slack` messages behind the best one.
        """
        self._need_running()
        watch = LagWatch(
            self.instance, wrap(self.instance.namespace, group), self._composer.wire_topic(topic), slack
        )
        await watch.start(refresh)
        self._watches.append(watch)
        return watch.selector

    def add_hook(self, hook: SendHook) -> None:
        """Be told before and after every attempt."""
        self._sender.hooks.add_hook(hook)

    def add_check(self, check: SendCheck) -> None:
        """Be asked before every attempt; raising aborts the send."""
        self._sender.hooks.add_check(check)

    def on_check(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        logger.warning("drop check group=%s message=%s: not a transaction producer", self.group, header.msg_id)

    def _need_running(self) -> None:
        if not self._is_running:
            raise NotRunning(f"producer {self.group} is not running: use `async with`, or await producer.start()")


async def _each(values: Iterable[T] | AsyncIterable[T]) -> AsyncIterable[T]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


def _pick(
    outgoing: Outgoing, ordering_key: str | int | None, queue: MessageQueue | None, selector: Selector | None
) -> Pick:
    if ordering_key is not None and (wrong := wrong_argument({"ordering_key": ordering_key})) is not None:
        raise wrong
    if (ordering_key is not None) + (queue is not None) + (selector is not None) != 1:
        raise ConfigError("ordering_key, queue and selector exclude each other: give one")
    if queue is not None:
        if queue.topic != outgoing.shown_topic:
            raise ConfigError(f"queue is one of topic {queue.topic}, the message goes to {outgoing.shown_topic}")
        return lambda target: target.by_queue(queue)
    if selector is not None:
        return lambda target: target.by_selector(selector, outgoing)
    assert ordering_key is not None
    return lambda target: target.by_key(ordering_key)


def _recall_broker(handle: str) -> str:
    """The broker named in a handle: URL-safe Base64 of `v1 topic broker time id`."""
    try:
        parts = base64.urlsafe_b64decode(handle).decode().split(" ")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"recall handle {handle!r} is not one: {error}") from None
    if len(parts) != 5 or parts[0] != "v1":
        raise ConfigError(f"recall handle {handle!r} is not of version v1")
    return parts[2]
