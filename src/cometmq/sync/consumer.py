"""The sync twin of the consumer that is a loop: `for message in consumer`, at least once.

    with client.consumer("billing-cg", topics=["orders"]) as consumer:
        for message in consumer.iter(timeout=10.0):
            bill(message.value)

A message is done when the loop asks for the next one, or is left without an error. With `auto_ack=False` the program
says so: `message.ack()`, `message.retry(delay=60)`, `message.dead_letter()`, from any thread.
"""

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from cometmq.client.consume.iterator import Consumer as AsyncConsumer
from cometmq.client.consume.iterator import Delivered as AsyncDelivered
from cometmq.client.consume.outcomes import judge_error
from cometmq.client.loop_thread import LoopThread
from cometmq.client.messages import Message
from cometmq.sync.consumer_base import ConsumerBase

T = TypeVar("T")

# How often a consumer that stops looks whether other threads have finished their messages.
LOOK_S: Final = 0.02


class Delivered(Message[T], Generic[T], frozen=True):
    """A message that its program says the end of. Saying it twice does nothing."""

    inner: AsyncDelivered[T] | None = None
    thread: LoopThread | None = None

    def ack(self) -> None:
        """It is done."""
        if self.inner is not None and self.thread is not None:
            self.thread.run(self.inner.ack())

    def retry(self, delay: float | None = None, *, reason: str | None = None) -> None:
        """Deliver it again: after `delay` seconds, rounded to a level of the broker, or as the broker decides.
        `reason` is kept with the message."""
        if self.inner is not None and self.thread is not None:
            self.thread.run(self.inner.retry(delay, reason=reason))

    def dead_letter(self, reason: str | None = None) -> None:
        """Do not deliver it again. `reason` is kept with the message."""
        if self.inner is not None and self.thread is not None:
            self.thread.run(self.inner.dead_letter(reason))


class Consumer(ConsumerBase[T]):
    """Made by `Client.consumer()`. Several threads may loop over one: each message goes to one of them."""

    def __init__(self, inner: AsyncConsumer[T], thread: LoopThread) -> None:
        super().__init__(inner, thread)
        # What the body of each thread's loop is at.
        self._current: dict[threading.Thread, Delivered[T]] = {}
        self._is_leaving = False

    def __iter__(self) -> Iterator[Delivered[T]]:
        return self.iter()

    def iter(self, timeout: float | None = None) -> Iterator[Delivered[T]]:
        """Messages until the consumer stops, or until none came for `timeout` seconds."""
        while True:
            self._settle(None)
            message = None if self._is_leaving else self.receive(timeout)
            if message is None:
                return
            if self._inner.auto_ack:
                self._current[threading.current_thread()] = message
            yield message

    def receive(self, timeout: float | None = None) -> Delivered[T] | None:
        """The next message, None if none came in time or the consumer stops. It is not acked by itself."""
        message = self._thread.run(self._inner.receive(timeout))
        return None if message is None else self._twin(message)

    def stop(self) -> None:
        """Loops end after their message; offsets of what was acked are stored; the group is left. Idempotent."""
        self._leave(None)
        super().stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
        super().__exit__(None, None, None)

    def _leave(self, error: BaseException | None) -> None:
        """`error` is what ends this thread's loop; those of other threads may finish their message."""
        self._is_leaving = True
        if self.is_running:
            self._settle(error)
            deadline_s = time.monotonic() + self._inner.options.drain_timeout
            while any(it.is_alive() for it in list(self._current)) and time.monotonic() < deadline_s:
                time.sleep(LOOK_S)

    def _settle(self, error: BaseException | None) -> None:
        """The body of this thread's loop was left: its message is done, or failed, or, if interrupted, neither."""
        message = self._current.pop(threading.current_thread(), None)
        if message is None or message.inner is None or message.inner.slip is None:
            return
        if error is None:
            message.ack()
        elif isinstance(error, Exception):
            self._thread.run(message.inner.slip.settle(judge_error(error)))

    def _twin(self, message: AsyncDelivered[T]) -> Delivered[T]:
        values: list[Any] = [getattr(message, name) for name in Message.__struct_fields__]
        make: Callable[..., Delivered[T]] = Delivered
        return make(*values, message, self._thread)
