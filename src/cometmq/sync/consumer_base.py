"""The sync twin of `cometmq.client.consume.iterator.Consumer`. Written by scripts/sync_twin.py."""

from typing import Generic, TypeVar

from cometmq.client.consume.hooks import ConsumeHook
from cometmq.client.consume.iterator import Consumer as AsyncConsumer
from cometmq.client.loop_thread import LoopThread
from cometmq.sync.life import Life
from cometmq.wire.bodies import MessageQueue

T = TypeVar("T")


class ConsumerBase(Life, Generic[T]):
    """Made by `Client.consumer()`; on its own, with `namesrv=`, it has a private client."""

    def __init__(self, inner: AsyncConsumer[T], thread: LoopThread) -> None:
        self._inner: AsyncConsumer[T] = inner
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

    def add_hook(self, hook: ConsumeHook) -> None:
        """Be told when a message is handed out and when it is settled."""
        self._thread.call(lambda: self._inner.add_hook(hook))

    def start(self) -> None:
        """Only once."""
        self._thread.run(self._inner.start())

    def stop(self) -> None:
        """Loops end after their message; offsets of what was acked are stored; the group is left. Idempotent."""
        self._thread.run(self._inner.stop())

    def pause(self) -> None:
        """Fetch nothing more until `resume()`; what is here is handed out."""
        self._thread.call(self._inner.pause)

    def resume(self) -> None:
        self._thread.call(self._inner.resume)
