"""The client: what a program makes once, and from which its producers and consumers come.

    async with Client("ns1:9876;ns2:9876") as client:
        async with client.producer("orders-pg") as producer:
            await producer.send("orders", b"hello")

All of them share connections, routes and heartbeats. Leaving the client stops what is still running, in the reverse
order of its making.
"""

import logging
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from cometmq.client.admin import Admin
from cometmq.client.cluster.instance import Instance
from cometmq.client.codecs import Codec, bytes_codec
from cometmq.client.consume.iterator import UNACKED_MAX, Consumer, Topics
from cometmq.client.consume.pull import PullConsumer, PullKeywords, PullOptions
from cometmq.client.consume.push import PushConsumer
from cometmq.client.options import (
    ClientKeywords,
    ClientOptions,
    ConsumerKeywords,
    ConsumerOptions,
    ProducerKeywords,
    ProducerOptions,
)
from cometmq.client.produce.producer import Producer
from cometmq.client.produce.transactions import Check, TransactionProducer
from cometmq.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Stoppable(Protocol):
    @property
    def is_running(self) -> bool: ...

    async def stop(self) -> None: ...


class Client:
    """`namesrv` is `host:port;host:port`; without it COMETMQ_NAMESRV and NAMESRV_ADDR are asked."""

    def __init__(
        self, namesrv: str | None = None, *, clock: Clock | None = None, **options: Unpack[ClientKeywords]
    ) -> None:
        self.instance = Instance(ClientOptions(namesrv, **options), clock)
        self._members: WeakKeyDictionary[Stoppable, None] = WeakKeyDictionary()

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    async def start(self) -> None:
        await self.instance.start()

    async def stop(self) -> None:
        """Stop what came from this client, then the client. Idempotent."""
        for member in reversed(list(self._members)):
            if member.is_running:
                try:
                    await member.stop()
                except Exception:
                    logger.exception("fail stop of %r", member)
        self._members.clear()
        await self.instance.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def adopt(self, member: Stoppable) -> None:
        """Stop it with this client, if it still runs then."""
        self._members[member] = None

    @overload
    def producer(self, group: str, **options: Unpack[ProducerKeywords]) -> Producer[bytes]: ...

    @overload
    def producer(self, group: str, *, codec: Codec[T], **options: Unpack[ProducerKeywords]) -> Producer[T]: ...

    def producer(
        self, group: str, *, codec: Codec[Any] = bytes_codec, **options: Unpack[ProducerKeywords]
    ) -> Producer[Any]:
        """A producer of a group, to be used with `async with`. `options` are the fields of `ProducerOptions`."""
        producer = Producer(group, codec, ProducerOptions(**options), instance=self.instance)
        self.adopt(producer)
        return producer

    @overload
    def transaction_producer(
        self,
        group: str,
        *,
        check: Check[bytes],
        check_concurrency: int = 1,
        check_waiting_max: int = 2000,
        **options: Unpack[ProducerKeywords],
    ) -> TransactionProducer[bytes]: ...

    @overload
    def transaction_producer(
        self,
        group: str,
        *,
        check: Check[T],
        codec: Codec[T],
        check_concurrency: int = 1,
        check_waiting_max: int = 2000,
        **options: Unpack[ProducerKeywords],
    ) -> TransactionProducer[T]: ...

    def transaction_producer(
        self,
        group: str,
        *,
        check: Check[Any],
        codec: Codec[Any] = bytes_codec,
        check_concurrency: int = 1,
        check_waiting_max: int = 2000,
        **options: Unpack[ProducerKeywords],
    ) -> TransactionProducer[Any]:
        """A producer whose messages become visible with the success of the program's own work."""
        producer = TransactionProducer(
            group,
            codec,
            check,
            ProducerOptions(**options),
            instance=self.instance,
            check_concurrency=check_concurrency,
            check_waiting_max=check_waiting_max,
        )
        self.adopt(producer)
        return producer

    @overload
    def pull_consumer(self, group: str, **options: Unpack[PullKeywords]) -> PullConsumer[bytes]: ...

    @overload
    def pull_consumer(self, group: str, *, codec: Codec[T], **options: Unpack[PullKeywords]) -> PullConsumer[T]: ...

    def pull_consumer(
        self, group: str, *, codec: Codec[Any] = bytes_codec, **options: Unpack[PullKeywords]
    ) -> PullConsumer[Any]:
        """A consumer that asks for messages itself. `options` are the fields of `PullOptions`."""
        consumer = PullConsumer(group, codec, PullOptions(**options), instance=self.instance)
        self.adopt(consumer)
        return consumer

    def admin(self, *, timeout_s: float = 5.0) -> Admin:
        """Administration of the cluster, to be used with `async with`; each request takes `timeout_s` at most."""
        admin = Admin(self.instance, timeout_s)
        self.adopt(admin)
        return admin

    @overload
    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        auto_ack: bool = True,
        max_unacked: int = UNACKED_MAX,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[bytes]: ...

    @overload
    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        codec: Codec[T],
        auto_ack: bool = True,
        max_unacked: int = UNACKED_MAX,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[T]: ...

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        codec: Codec[Any] = bytes_codec,
        auto_ack: bool = True,
        max_unacked: int = UNACKED_MAX,
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[Any]:
        """A consumer to loop over: `async for message in consumer`. `topics` is a name, a list of names, or a map of
        names to tags. `options` are the fields of `ConsumerOptions`."""
        consumer = Consumer(
            group,
            topics,
            codec,
            ConsumerOptions(**options),
            auto_ack=auto_ack,
            max_unacked=max_unacked,
            instance=self.instance,
        )
        self.adopt(consumer)
        return consumer

    def push_consumer(
        self, group: str, *, codec: Codec[Any] = bytes_codec, **options: Unpack[ConsumerKeywords]
    ) -> PushConsumer:
        """A consumer that calls functions: `@app.on("topic")`. `options` are the fields of `ConsumerOptions`."""
        consumer = PushConsumer(group, ConsumerOptions(**options), codec=codec, instance=self.instance)
        self.adopt(consumer)
        return consumer
