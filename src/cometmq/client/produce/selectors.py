"""Which queue a message goes to.

    round robin      the next of all publish queues, beginning anywhere; a retry leaves out the broker used last
    ordering key     the same key in the same queue, from Java producers, too, while the number of queues stays
    a selector       any function of queues and message, one of these or the user's own

A selector is called with the queues as the user knows them (without namespace) and the message, and returns one of
the queues. It may be called on every attempt to send, from the event loop: it must be quick.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from cometmq.client.messages import Message
from cometmq.errors import ConfigError
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.hashing import java_string_hash

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message[Any]], MessageQueue]

_I32_MAX: Final = 2**31 - 1


def java_hash(key: str | int) -> int:
    """`hashCode()` of the key as a String, Integer or, beyond 32 bits, a Long."""
    if isinstance(key, str):
        return java_string_hash(key)
    if -_I32_MAX - 1 <= key <= _I32_MAX:
        return key
    unsigned = key & 0xFFFFFFFFFFFFFFFF
    folded = (unsigned ^ unsigned >> 32) & 0xFFFFFFFF
    return folded - ((folded & 0x80000000) << 1)


def index_of_key(key: str | int, count: int) -> int:
    """Which of `count` queues a key belongs to; Java's remainder has the sign of the dividend, hence abs."""
    return abs(java_hash(key)) % count


def by_key(key: str | int) -> Selector:
    return lambda queues, _message: queues[index_of_key(key, len(queues))]


def at_random(queues: Sequence[MessageQueue], _message: Message[Any]) -> MessageQueue:
    return random.choice(queues)  # noqa: S311 - spreads load, keeps no secret


class LeastLag:
    """Sends to the queues that some consumer group has least to do in, in turn; of equal ones all get the same.

        least_lag = await producer.least_lag("orders", "billing-cg")       keeps it up to date
        await producer.send("orders", b"...", selector=least_lag)

    A queue counts as held back when it lies more than `slack` messages behind the one with the least. Queues that no
    update spoke of count as having no lag. Without an update it is plain round robin.
    """

    def __init__(self, slack: int = 100) -> None:
        if slack < 0:
            raise ConfigError(f"slack is {slack}, the least is 0")
        self._slack = slack
        self._lags: dict[MessageQueue, int] = {}
        self._counter = random.randrange(_I32_MAX)  # noqa: S311

    def update(self, lags: Mapping[MessageQueue, int]) -> None:
        self._lags = dict(lags)

    def __call__(self, queues: Sequence[MessageQueue], _message: Message[Any]) -> MessageQueue:
        behind = [self._lags.get(queue, 0) for queue in queues]
        bound = min(behind) + self._slack
        free = [queue for queue, lag in zip(queues, behind, strict=True) if lag <= bound]
        self._counter += 1
        return free[self._counter % len(free)]


class RoundRobin:
    """The queues of one topic in turn."""

    __slots__ = ("_counter",)

    def __init__(self, start: int | None = None) -> None:
        self._counter = random.randrange(_I32_MAX) if start is None else start  # noqa: S311

    def reseed(self) -> None:
        self._counter = random.randrange(_I32_MAX)  # noqa: S311

    def next_index(self, count: int) -> int:
        self._counter += 1
        return self._counter % count

    def next_where(self, count: int, is_wanted: Callable[[int], bool]) -> int | None:
        """The next index that is wanted; None if none is."""
        for _ in range(count):
            index = self.next_index(count)
            if is_wanted(index):
                return index
        return None
