"""The sync twin of the consumer that is a loop: `for message in consumer`, at least once.

    with client.consumer("billing-cg", topics=["orders"]) as consumer:
        for message in consumer.iter(timeout=10.0):
            bill(message.value)

A message is done when the loop asks for the next one, or is left without an error. With `auto_ack=False` the program
says so: `message.ack()`, `message.retry(delay=60)`, `message.dead_letter()`, from any thread.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from cometmq.client.iterator import Delivered as AsyncDelivered
from cometmq.client.loopthread import LoopThread
from cometmq.client.messages import Message
from cometmq.sync.consumerbase import ConsumerBase

T = TypeVar("T")


class Delivered(Message[T], Generic[T], frozen=True):
    """A message that its program says the end of. Saying it twice does nothing."""

    inner: AsyncDelivered[T] | None = None
    thread: LoopThread | None = None

    def ack(self) -> None:
        """It is done."""
        if self.inner is not None and self.thread is not None:
            self.thread.run(self.inner.ack())

    def retry(self, delay: float | None = None) -> None:
        """Deliver it again: after `delay` seconds, rounded to a level of the broker, or as the broker decides."""
        if self.inner is not None and self.thread is not None:
            self.thread.run(self.inner.retry(delay))

    def dead_letter(self) -> None:
        """Deliver it never again."""
        if self.inner is not None and self.thread is not None:
            self.thread.run(self.inner.dead_letter())


class Consumer(ConsumerBase[T]):
    """Made by `Client.consumer()`. Several threads may loop over one: each message goes to one of them."""

    def __iter__(self) -> Iterator[Delivered[T]]:
        return self.iter()

    def iter(self, timeout: float | None = None) -> Iterator[Delivered[T]]:
        """Messages until the consumer stops, or until none came for `timeout` seconds."""
        loop = self._thread.call(lambda: self._inner.iter(timeout))
        for message in self._thread.iterate(loop):
            yield self._twin(message)

    def receive(self, timeout: float | None = None) -> Delivered[T] | None:
        """The next message, None if none came in time or the consumer stops. It is not acked by itself."""
        message = self._thread.run(self._inner.receive(timeout))
        return None if message is None else self._twin(message)

    def _twin(self, message: AsyncDelivered[T]) -> Delivered[T]:
        values: list[Any] = [getattr(message, name) for name in Message.__struct_fields__]
        make: Callable[..., Delivered[T]] = Delivered
        return make(*values, message, self._thread)
