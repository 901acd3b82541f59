"""The sync twin of `cometmq.client.produce.transactions.TransactionProducer`. Written by scripts/sync_twin.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar, Unpack

from cometmq.client.loop_thread import LoopThread
from cometmq.client.produce.outgoing import MessageKeywords
from cometmq.client.produce.transactions import Transaction
from cometmq.client.produce.transactions import TransactionProducer as AsyncTransactionProducer
from cometmq.sync.producer import Producer

T = TypeVar("T")


class TransactionProducer(Producer[T]):
    """`check` says what became of a transaction; a plain function runs in a thread. At most `check_concurrency` of
    them run at a time, and `check_waiting_max` wait; what comes then is dropped, because the broker asks again.
    """

    def __init__(self, inner: AsyncTransactionProducer[T], thread: LoopThread) -> None:
        super().__init__(inner, thread)
        self._inner: AsyncTransactionProducer[T] = inner

    @contextmanager
    def begin(
        self, topic: str, value: T, *, timeout: float | None = None, **message: Unpack[MessageKeywords]
    ) -> Iterator[Transaction[T]]:
        """Store a half message; end it with whatever happens inside."""
        with self._thread.enter(self._inner.begin(topic, value, timeout=timeout, **message)) as entered:
            yield entered
