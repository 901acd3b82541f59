"""The fence of one task of the sink: what its earlier tries have sent and a broker has not handled is not stored later.

Raised at every broker of the target before each look, so that what the look does not see cannot come after it. Each
message carries the epoch that its broker gave (broker/produce/fences.py). RocketMQ's brokers have no fences: there the
wait before a look is what there is.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cometmq.errors import BrokerError
from cometmq.spark.live.offsets import Queue
from cometmq.spark.live.remote import Remote
from cometmq.spark.live.rows import Row
from cometmq.wire.codes import Request

PROPERTY: Final = "CMQ_FENCE"
_UNKNOWN_CODE: Final = 3


class Fence:
    """`task`: names the rows that one task sends, in all its tries."""

    def __init__(self, cluster: Remote, topic: str, task: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._name = hashlib.blake2b(f"{topic}:{task}".encode(), digest_size=12).hexdigest()
        self._epochs: dict[str, str] = {}

    def rise(self) -> None:
        """At all brokers, or an error: what one of them holds is not known."""
        brokers = sorted({queue.broker for queue in self._cluster.queues([self._topic])} | set(self._epochs))
        for broker in brokers:
            try:
                answer = self._cluster.asked(Request.RAISE_FENCE, Queue(self._topic, broker, 0), {"fence": self._name})
            except BrokerError as error:
                if error.code != _UNKNOWN_CODE:
                    raise
            else:
                self._epochs[broker] = answer.ext["epoch"]

    def mark(self, broker: str) -> dict[str, str]:
        """The property of a message that is sent now."""
        epoch = self._epochs.get(broker)
        return {PROPERTY: f"{self._name}:{epoch}"} if epoch is not None else {}

    def marked(self, row: Row) -> Row:
        """A row that goes to a queue, as it may be sent now."""
        return row._replace(properties=row.properties | self.mark(row.queue[0])) if row.queue is not None else row
