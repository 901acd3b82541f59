"""The sync twin of `cometmq.client.consume.push.PushConsumer`. Written by scripts/sync_twin.py."""

from collections.abc import Callable
from typing import Any

from cometmq.client.codecs import Codec
from cometmq.client.consume.group_member import QueueListener
from cometmq.client.consume.hooks import ConsumeHook
from cometmq.client.consume.push import PushConsumer as AsyncPushConsumer
from cometmq.client.loop_thread import LoopThread
from cometmq.sync.life import Life
from cometmq.wire.bodies import MessageQueue


class PushConsumerBase(Life):
    """Made by `Client.push_consumer()`; on its own it has a private client, of `namesrv` or COMETMQ_NAMESRV.

    On its own it may be made where the module is imported, and is then run by `cometmq run module:app`. `options` may
    also be given as keywords, the fields of `ConsumerOptions`.
    """

    def __init__(self, inner: AsyncPushConsumer, thread: LoopThread) -> None:
        self._inner: AsyncPushConsumer = inner
        self._thread = thread

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that are ours at present."""
        return self._inner.queues

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
        self._thread.call(
            lambda: self._inner.subscribe(
                topic, function, tag=tag, sql=sql, ordered=ordered, batch=batch, auto_commit=auto_commit, codec=codec
            )
        )

    def unsubscribe(self, topic: str) -> None:
        """Its queues are given up soon; messages that are in handlers are finished."""
        self._thread.call(lambda: self._inner.unsubscribe(topic))

    def add_hook(self, hook: ConsumeHook) -> None:
        """Be told before and after every call of a handler."""
        self._thread.call(lambda: self._inner.add_hook(hook))

    def add_queue_listener(self, listener: QueueListener) -> None:
        """`listener(topic, all its queues, ours)` is called on the event loop when ours change."""
        self._thread.call(lambda: self._inner.add_queue_listener(listener))

    def pause(self) -> None:
        """Fetch nothing more until `resume()`; what is here is handled."""
        self._thread.call(self._inner.pause)

    def resume(self) -> None:
        self._thread.call(self._inner.resume)

    def start(self) -> None:
        """Register the group, learn routes, have filters checked, say hello, take queues. Only once."""
        self._thread.run(self._inner.start())

    def stop(self) -> None:
        """Finish what handlers do, up to `drain_timeout`; store offsets; leave the group. Idempotent."""
        self._thread.run(self._inner.stop())
