"""The sync twin of `cometmq.client.produce.producer.Producer`. Written by scripts/sync_twin.py."""

from collections.abc import AsyncIterable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from typing import Any, Generic, TypeVar, Unpack

from cometmq.client.loop_thread import LoopThread
from cometmq.client.messages import Message, SendReceipt
from cometmq.client.produce.hooks import SendCheck, SendHook
from cometmq.client.produce.outgoing import MessageKeywords, Seconds
from cometmq.client.produce.producer import Producer as AsyncProducer
from cometmq.client.produce.selectors import LeastLag, Selector
from cometmq.sync.life import Life
from cometmq.wire.bodies import MessageQueue

T = TypeVar("T")


class Producer(Life, Generic[T]):
    """Made by `Client.producer()`; on its own, `Producer("group", codec, namesrv="host:9876")` has a private client."""

    def __init__(self, inner: AsyncProducer[T], thread: LoopThread) -> None:
        self._inner: AsyncProducer[T] = inner
        self._thread = thread

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    def start(self) -> None:
        """Register the group, learn the routes of `options.topics`, say hello to brokers. Only once."""
        self._thread.run(self._inner.start())

    def stop(self) -> None:
        """Send what waits, leave the group. Idempotent."""
        self._thread.run(self._inner.stop())

    def send(
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
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send one message and await its receipt.

        `ordering_key`, `queue` or `selector` decide about the queue, and then there is one attempt only.
        Raises ConfigError or MessageRefused before anything is sent; NoRoute, BrokerError, SendTimeout, ConnectFailed
        and their kin when all attempts failed.
        """
        return self._thread.run(
            self._inner.send(
                topic,
                value,
                tag=tag,
                keys=keys,
                properties=properties,
                ordering_key=ordering_key,
                queue=queue,
                selector=selector,
                delay=delay,
                delay_level=delay_level,
                deliver_at=deliver_at,
                wait=wait,
                flag=flag,
                timeout=timeout,
            )
        )

    def send_record(
        self,
        topic: str,
        body: bytes,
        properties: Mapping[str, str],
        *,
        flag: int = 0,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send a body with exactly these properties, RocketMQ's own too: for what forwards, retries or replays."""
        return self._thread.run(
            self._inner.send_record(topic, body, properties, flag=flag, queue=queue, timeout=timeout)
        )

    def send_soon(
        self,
        topic: str,
        value: T,
        *,
        ordering_key: str | int | None = None,
        queue: MessageQueue | None = None,
        **message: Unpack[MessageKeywords],
    ) -> Future[SendReceipt]:
        """Send together with others, soon. The future has the receipt; nobody needs to look at it.

        Raises what is wrong with the message, and Backpressure while too much waits: `producer.ready()`.
        """
        return self._thread.promise(
            lambda: self._inner.send_soon(topic, value, ordering_key=ordering_key, queue=queue, **message)
        )

    def ready(self) -> None:
        """Return when `send_soon` has room: at once, or after some of what waits has its outcome."""
        self._thread.run(self._inner.ready())

    def flush(self) -> None:
        """Return when everything that `send_soon` accepted has its outcome."""
        self._thread.run(self._inner.flush())

    def send_many(
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
        return self._thread.run(self._inner.send_many(topic, values, ordering_key=ordering_key, queue=queue, **message))

    def send_oneway(
        self,
        topic: str,
        value: T,
        *,
        ordering_key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        **message: Unpack[MessageKeywords],
    ) -> Future[None]:
        """Send without an answer: fast, and lost without a word if anything fails.

        Once route and connection are there the message is written before this returns. The future says when it was
        written; awaiting it is not needed. Raises what is wrong with the message, and Backpressure when the broker
        takes less than it is given.
        """
        return self._thread.promise(
            lambda: self._inner.send_oneway(
                topic, value, ordering_key=ordering_key, queue=queue, selector=selector, **message
            )
        )

    def request(
        self, topic: str, value: T, *, timeout: float | None = None, **message: Unpack[MessageKeywords]
    ) -> Message[T]:
        """Send a message and await the reply of its consumer. RequestTimeout if none comes in time."""
        return self._thread.run(self._inner.request(topic, value, timeout=timeout, **message))

    def reply(self, to: Message[Any], value: T, **message: Unpack[MessageKeywords]) -> SendReceipt:
        """Answer a message that was sent with `request`. CannotReply for any other."""
        return self._thread.run(self._inner.reply(to, value, **message))

    def recall(self, receipt: SendReceipt | str, topic: str | None = None) -> str:
        """Take back a delayed message before it is due; returns its id. `topic` is needed with a bare handle."""
        return self._thread.run(self._inner.recall(receipt, topic))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic can go to."""
        return self._thread.run(self._inner.queues(topic))

    def least_lag(self, topic: str, group: str, *, refresh: float = 5.0, slack: int = 100) -> LeastLag:
        """A selector for `topic` that avoids queues in which a consumer group is held back.

        Brokers are asked for the group's progress every `refresh` seconds; a queue is avoided while it lies more
        than `slack` messages behind the best one.
        """
        return self._thread.run(self._inner.least_lag(topic, group, refresh=refresh, slack=slack))

    def add_hook(self, hook: SendHook) -> None:
        """Be told before and after every attempt."""
        self._thread.call(lambda: self._inner.add_hook(hook))

    def add_check(self, check: SendCheck) -> None:
        """Be asked before every attempt; raising aborts the send."""
        self._thread.call(lambda: self._inner.add_check(check))
