"""The sync client: the async one on an event loop in a thread of its own."""

from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from cometmq.client.client import Client as AsyncClient
from cometmq.client.codecs import Codec, bytes_codec
from cometmq.client.consume.iterator import UNACKED_MAX, Topics
from cometmq.client.consume.pull import PullKeywords
from cometmq.client.loop_thread import LoopThread
from cometmq.client.options import ClientKeywords, ConsumerKeywords, ProducerKeywords
from cometmq.client.produce.transactions import Check
from cometmq.sync.admin import Admin
from cometmq.sync.consumer import Consumer
from cometmq.sync.producer import Producer
from cometmq.sync.pull import PullConsumer
from cometmq.sync.push import PushConsumer
from cometmq.sync.transactions import TransactionProducer

T = TypeVar("T")


class Client:
    """`namesrv` is `host:port;host:port`; without it COMETMQ_NAMESRV and NAMESRV_ADDR are asked.

    May be used from several threads at once, as may all that comes from it.
    """

    def __init__(self, namesrv: str | None = None, **options: Unpack[ClientKeywords]) -> None:
        self._inner = AsyncClient(namesrv, **options)
        self._thread = LoopThread(f"cometmq-{self._inner.client_id}")
        self._owns_thread = True

    @classmethod
    def on(cls, inner: AsyncClient, thread: LoopThread) -> Self:
        """The twin of a client that lives on somebody else's thread."""
        client = cls.__new__(cls)
        client._inner, client._thread, client._owns_thread = inner, thread, False
        return client

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    def start(self) -> None:
        if self._owns_thread:
            self._thread.start()
        try:
            self._thread.run(self._inner.start())
        except BaseException:
            self._stop_thread()
            raise

    def stop(self) -> None:
        """Stop what came from this client, then the client and its thread. Idempotent."""
        if self._thread.is_running:
            try:
                self._thread.run(self._inner.stop())
            finally:
                self._stop_thread()

    def _stop_thread(self) -> None:
        if self._owns_thread:
            self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @overload
    def producer(self, group: str, **options: Unpack[ProducerKeywords]) -> Producer[bytes]: ...

    @overload
    def producer(self, group: str, *, codec: Codec[T], **options: Unpack[ProducerKeywords]) -> Producer[T]: ...

    def producer(
        self, group: str, *, codec: Codec[Any] = bytes_codec, **options: Unpack[ProducerKeywords]
    ) -> Producer[Any]:
        """A producer of a group, to be used with `with`. `options` are the fields of `ProducerOptions`."""
        return Producer(self._inner.producer(group, codec=codec, **options), self._thread)

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
        inner = self._inner.transaction_producer(
            group,
            check=check,
            codec=codec,
            check_concurrency=check_concurrency,
            check_waiting_max=check_waiting_max,
            **options,
        )
        return TransactionProducer(inner, self._thread)

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
        """A consumer to loop over: `for message in consumer`. `topics` is a name, a list of names, or a map of names
        to tags. `options` are the fields of `ConsumerOptions`."""
        inner = self._inner.consumer(
            group, topics, codec=codec, auto_ack=auto_ack, max_unacked=max_unacked, **options
        )
        return Consumer(inner, self._thread)

    def push_consumer(
        self, group: str, *, codec: Codec[Any] = bytes_codec, **options: Unpack[ConsumerKeywords]
    ) -> PushConsumer:
        """A consumer that calls functions: `@app.on("topic")`. `options` are the fields of `ConsumerOptions`."""
        return PushConsumer(self._inner.push_consumer(group, codec=codec, **options), self._thread)

    @overload
    def pull_consumer(self, group: str, **options: Unpack[PullKeywords]) -> PullConsumer[bytes]: ...

    @overload
    def pull_consumer(self, group: str, *, codec: Codec[T], **options: Unpack[PullKeywords]) -> PullConsumer[T]: ...

    def pull_consumer(
        self, group: str, *, codec: Codec[Any] = bytes_codec, **options: Unpack[PullKeywords]
    ) -> PullConsumer[Any]:
        """A consumer that asks for messages itself. `options` are the fields of `PullOptions`."""
        return PullConsumer(self._inner.pull_consumer(group, codec=codec, **options), self._thread)

    def admin(self, *, timeout_s: float = 5.0) -> Admin:
        """Administration of the cluster, to be used with `with`; each request takes `timeout_s` at most."""
        return Admin(self._inner.admin(timeout_s=timeout_s), self._thread)
