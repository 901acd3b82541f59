"""The sync twin of the push consumer: plain functions that are called with messages, in threads.

    app = client.push_consumer("shop-cg", concurrency=8)

    @app.on("orders", tag="paid")
    def handle(order: Order) -> None: ...

    app.run()                             until Ctrl-C or SIGTERM, then drains

Handlers may be async, too; those run on the client's own loop.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from cometmq.client.codecs import Codec
from cometmq.client.consume.push import PushConsumer as AsyncPushConsumer
from cometmq.client.loop_thread import LoopThread
from cometmq.sync.push_base import PushConsumerBase

F = TypeVar("F", bound=Callable[..., Any])

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class PushConsumer(PushConsumerBase):
    """Made by `Client.push_consumer()`."""

    def __init__(self, inner: AsyncPushConsumer, thread: LoopThread) -> None:
        super().__init__(inner, thread)
        self._over = threading.Event()

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

    def run(self) -> None:
        """Start if that was not done, consume until SIGINT, SIGTERM or `stop` from another thread, then stop."""
        if not self.is_running:
            self.start()
        try:
            with _stopped_by_signals(self._over):
                self._over.wait()
        finally:
            self.stop()

    def stop(self) -> None:
        """Finish what handlers do, up to `drain_timeout`; store offsets; leave the group. Idempotent."""
        self._over.set()
        super().stop()


@contextmanager
def _stopped_by_signals(over: threading.Event) -> Iterator[None]:
    """Only the main thread hears signals; elsewhere `stop` ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: over.set()) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
