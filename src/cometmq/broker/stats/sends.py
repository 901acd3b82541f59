"""What clients send to a topic, by kind of message and by size, without looking at each message.

Nearly every send is one message of the topic's usual kind and of up to a kilobyte. Those are not noted: they are what
is left when everything else is taken away from the topic's totals.

    all puts of the topic              TopicPuts
    - put by the broker itself         TopicPuts.inner
    - ordered, out of a delay level    RareSends.fifo, RareSends.delayed
    = sends of the usual kind          those above a kilobyte are in RareSends.large

The usual kind of the topic of half messages is `transaction`, of the topics of delayed ones `delay`, else `normal`. The
size that is noted of a batch is that of its messages on the average, as in RocketMQ.
"""

from typing import Final

from cometmq import names
from cometmq.broker.stats.spread import Spread

SIZES: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
PLAIN_BYTES_MAX: Final = 1024

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAY: Final = "delay"
TRANSACTION: Final = "transaction"

_KINDS: Final = {names.HALF_TOPIC: TRANSACTION, names.SCHEDULE_TOPIC: DELAY, names.TIMER_TOPIC: DELAY}


def usual_kind(topic: str) -> str:
    return _KINDS.get(topic, NORMAL)


class Sends:
    """Sends of one kind."""

    __slots__ = ("bytes", "count", "sizes", "times")

    def __init__(self) -> None:
        self.times: int = 0
        self.count: int = 0
        self.bytes: int = 0
        self.sizes: Spread = Spread(SIZES)

    def add(self, count: int, size: int) -> None:
        self.times += 1
        self.count += count
        self.bytes += size
        self.sizes.add(size // count)


class RareSends:
    __slots__ = ("delayed", "fifo", "large", "left_out_bytes")

    def __init__(self) -> None:
        self.fifo: Sends = Sends()
        self.delayed: Sends = Sends()
        # Of the usual kind: sizes above a kilobyte; the sum is not used.
        self.large: Spread = Spread(SIZES)
        # By how much batches of the usual kind are larger than their average message.
        self.left_out_bytes: int = 0

    def note(self, count: int, size: int, is_ordered: bool) -> None:
        if is_ordered:
            self.fifo.add(count, size)
            return
        average = size // max(1, count)
        self.left_out_bytes += size - average
        if average > PLAIN_BYTES_MAX:
            self.large.add(average)

    def note_delayed(self, size: int) -> None:
        self.delayed.add(1, size)

    def usual(self, times: int, count: int, size: int) -> Sends:
        """The sends of the usual kind, given all of clients."""
        rest = Sends()
        rest.times = times - self.fifo.times - self.delayed.times
        rest.count = count - self.fifo.count - self.delayed.count
        rest.bytes = size - self.fifo.bytes - self.delayed.bytes
        rest.sizes.counts = [max(0, rest.times - self.large.count), *self.large.counts[1:]]
        rest.sizes.sum = rest.bytes - self.left_out_bytes
        return rest
