"""A push consumer: functions that are called with messages.

    app = client.push_consumer("shop-cg", concurrency=32)

    @app.on("orders", tag="created || paid")
    async def handle(order: Order) -> None: ...

    await app.run()                       until cancelled or SIGTERM, then drains

`handlers` says what a function may take and return, `outcomes` how it asks for another try. Topics with `ordered=True`
are handled one message at a time for each queue; all others side by side. `concurrency` bounds both together.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from cometmq.client.cluster.instance import Instance
from cometmq.client.cluster.namespaces import wire_topic
from cometmq.client.codecs import Codec, bytes_codec
from cometmq.client.consume.concurrent import Concurrent, give_back
from cometmq.client.consume.failures import Cause
from cometmq.client.consume.group_member import Lane, Member, QueueListener
from cometmq.client.consume.handlers import Handler
from cometmq.client.consume.hooks import ConsumeHook
from cometmq.client.consume.ordered import Ordered
from cometmq.client.consume.outcomes import BROKER_DECIDES
from cometmq.client.consume.process_queue import Held, ProcessQueue
from cometmq.client.consume.subscriptions import subscribe
from cometmq.client.messages import sent_to
from cometmq.client.options import ClientOptions, ConsumerKeywords, ConsumerOptions
from cometmq.errors import ConfigError
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.record import properties as wire_properties

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

BATCH_MAX: Final = 1024
NO_HANDLER: Final = Cause("the consumer has no handler for the topic", "failed")
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class PushConsumer:
    """Made by `Client.push_consumer()`; on its own it has a private client, of `namesrv` or COMETMQ_NAMESRV.

    On its own it may be made where the module is imported, and is then run by `cometmq run module:app`. `options` may
    also be given as keywords, the fields of `ConsumerOptions`.
    """

    def __init__(
        self,
        group: str,
        options: ConsumerOptions | None = None,
        *,
        codec: Codec[Any] = bytes_codec,
        instance: Instance | None = None,
        namesrv: str | None = None,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None:
        if options is not None and keywords:
            raise ConfigError(f"options and {', '.join(keywords)}: give one or the other")
        self._owns_instance = instance is None
        self.instance = instance if instance is not None else Instance(ClientOptions(namesrv))
        self.options = options if options is not None else ConsumerOptions(**keywords)
        self._codec = codec
        self._member = Member(self.instance, group, self.options)
        self._member.subscribe_retries(self._take_retries)
        self._retry_lanes: dict[str, Concurrent] = {}

    @property
    def group(self) -> str:
        return self._member.shown_group

    @property
    def is_running(self) -> bool:
        return self._member.is_running

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that are ours at present."""
        return self._member.owned()

    # Handlers

    def on(
        self,
        topic: str,
        tag: str | None = None,
        *,
        sql: str | None = None,
        ordered: bool = False,
        batch: int | None = None,
        auto_commit: bool = True,
        codec: Codec[Any] | None = None,
    ) -> Callable[[F], F]:
        """Handle the messages of a topic, or those that `tag` or `sql` let through, with the function below.

        `batch` gives it up to so many at once, in a list. `auto_commit=False` is for ordered handlers that say by their
        Outcome when to commit. May also be used while the consumer runs.
        """

        def register(function: F) -> F:
            self.subscribe(
                topic, function, tag=tag, sql=sql, ordered=ordered, batch=batch, auto_commit=auto_commit, codec=codec
            )
            return function

        return register

    def subscribe(
        self,
        topic: str,
        function: Callable[..., Any],
        *,
        tag: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
        batch: int | None = None,
        auto_commit: bool = True,
        codec: Codec[Any] | None = None,
    ) -> None:
        """What `on` does, without decorating."""
        wire = wire_topic(self.instance.namespace, topic)
        if batch is not None and not 1 <= batch <= BATCH_MAX:
            raise ConfigError(f"batch is {batch}, allowed are 1 to {BATCH_MAX}")
        if not auto_commit and not ordered:
            raise ConfigError("auto_commit=False is for ordered handlers")
        handler = Handler(
            function, batch=batch, ordered=ordered, auto_commit=auto_commit, codec=codec, default_codec=self._codec
        )
        lane: Lane = Ordered(self._member, handler) if ordered else Concurrent(self._member, handler)
        self._member.subscribe(subscribe(wire, tag, sql), lane)
        self._retry_lanes[wire] = Concurrent(self._member, handler)

    def unsubscribe(self, topic: str) -> None:
        """Its queues are given up soon; messages that are in handlers are finished."""
        self._member.unsubscribe(wire_topic(self.instance.namespace, topic))
        self._member.rebalance.wake()

    def add_hook(self, hook: ConsumeHook) -> None:
        """Be told before and after every call of a handler."""
        self._member.delivery.hooks.add(hook)

    def add_queue_listener(self, listener: QueueListener) -> None:
        """`listener(topic, all its queues, ours)` is called on the event loop when ours change."""
        self._member.add_queue_listener(listener)

    def pause(self) -> None:
        """Fetch nothing more until `resume()`; what is here is handled."""
        self._member.is_paused = True

    def resume(self) -> None:
        self._member.is_paused = False

    def _take_retries(self, queue: ProcessQueue, held: Sequence[Held]) -> None:
        """Messages of the retry topic go to the handlers of the topics that they were sent to."""
        by_topic: dict[str, list[Held]] = {}
        for one in held:
            topic = sent_to(one.message.topic, wire_properties.decode(one.message.properties))
            by_topic.setdefault(topic, []).append(one)
        for topic, some in by_topic.items():
            lane = self._retry_lanes.get(topic)
            if lane is not None:
                lane.submit(queue, some)
            else:
                logger.warning("return messages group=%s topic=%s count=%d: no handler", self.group, topic, len(some))
                self.instance.spawn(self._return(queue, some))

    async def _return(self, queue: ProcessQueue, held: list[Held]) -> None:
        failed = await give_back(self._member, queue, held, BROKER_DECIDES, NO_HANDLER)
        self._member.finish(queue, [one for one in held if one not in failed])

    # Life

    async def start(self) -> None:
        """Register the group, learn routes, have filters checked, say hello, take queues. Only once."""
        if self._owns_instance:
            await self.instance.start()
        await self._member.start()

    async def stop(self) -> None:
        """Finish what handlers do, up to `drain_timeout`; store offsets; leave the group. Idempotent."""
        await self._member.stop()
        if self._owns_instance:
            await self.instance.stop()

    async def run(self) -> None:
        """Start if that was not done, consume until SIGINT, SIGTERM or cancellation, then stop."""
        if not self.is_running:
            await self.start()
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        installed: list[signal.Signals] = []
        for number in STOP_SIGNALS:
            # Not possible on Windows and outside the main thread: then cancellation ends it.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, over.set)
                installed.append(number)
        try:
            await over.wait()
        finally:
            for number in installed:
                loop.remove_signal_handler(number)
            await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
