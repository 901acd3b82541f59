"""Popped messages of a store that RocketMQ's broker has left: those that nobody has finished come again.

RocketMQ notes pops and acknowledgements as timer messages in a topic of its own. They get there when they are due:

    ck     so first offset, d differences to it, n how many, bm bits of what is done, pt popped, it invisible ms,
           t topic, c group, q queue, bn broker
    ack    ao offset            } and t, c, q, so, pt, bn as in the ck
    bAck   aol offsets          }

A ck and its acks are due at the same time, so some seconds later it is known what was not acknowledged: that goes to
the retry topic. Progress is kept as offsets of RocketMQ's own group; what is read twice is given out twice.

Nothing here writes such records: see popwindows.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from cometmq.broker.offsets import NONE
from cometmq.broker.popwindows import Key
from cometmq.errors import WireError
from cometmq.wire.json_dialect import loads
from cometmq.wire.message import StoredMessage
from cometmq.wire.properties import Property, decode

if TYPE_CHECKING:
    from cometmq.broker.server import Broker

logger = logging.getLogger(__name__)

GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
PER_TURN: Final = 200
# How long after its time a ck waits for its acks.
PATIENCE_MS: Final = 5_000
COUNT_MAX: Final = 1_024

# topic, group, queue, first offset, popped ms, broker
Name = tuple[str, str, int, int, int, str]


class Checkpoint:
    def __init__(self, position: int, key: Key, popped_ms: int, due_ms: int, offsets: set[int]) -> None:
        self.position = position
        self.key = key
        self.popped_ms = popped_ms
        self.due_ms = due_ms
        self.offsets = offsets


class _Reading:
    """One queue of the topic."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.waiting: dict[Name, Checkpoint] = {}
        self.acked: dict[Name, set[int]] = {}


class PopRevival:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._readings: dict[int, _Reading] = {}

    @property
    def topic(self) -> str:
        return f"rmq_sys_REVIVE_LOG_{self._broker.config.cluster_name}"

    def turn(self) -> bool:
        """Some records of each queue, and what is ripe. True: there is more, call again soon."""
        more = False
        topic = self._broker.topics.get(self.topic)
        for queue_id in range(topic.read_queue_nums if topic is not None else 0):
            low, high = self._broker.store.queue_bounds(self.topic, queue_id)
            reading = self._readings.get(queue_id)
            if reading is None and high > low:
                saved = self._broker.offsets.query(GROUP, self.topic, queue_id)
                reading = self._readings[queue_id] = _Reading(low if saved == NONE else min(max(saved, low), high))
            if reading is not None:
                more = self._read(reading, queue_id) or more
                self._revive(reading, queue_id)
        return more

    def _read(self, reading: _Reading, queue_id: int) -> bool:
        entries = self._broker.store.queue_entries(self.topic, queue_id, reading.position, PER_TURN)
        for physical_offset, record_bytes, _ in entries:
            message = self._broker.store.message_at(physical_offset, record_bytes)
            if message is not None:
                self._note(reading, message)
            reading.position += 1
        return len(entries) == PER_TURN

    def _note(self, reading: _Reading, message: StoredMessage) -> None:
        kind = decode(message.properties).get(Property.TAGS)
        try:
            record = loads(message.body)
            name = (str(record["t"]), str(record["c"]), int(record["q"]), int(record["so"]), int(record["pt"]),
                    str(record.get("bn")))  # fmt: skip
            if kind == "ck":
                reading.waiting[name] = _checkpoint(reading.position, name, record)
            elif kind in ("ack", "bAck"):
                offsets = record["aol"] if kind == "bAck" else [record["ao"]]
                reading.acked.setdefault(name, set()).update(int(offset) for offset in offsets)
        except (WireError, KeyError, TypeError, ValueError, AttributeError) as error:
            logger.warning("skipped record of a pop physical_offset=%d cause=%r", message.physical_offset, error)

    def _revive(self, reading: _Reading, queue_id: int) -> None:
        now_ms = self._broker.clock.now_ms()
        for name, checkpoint in list(reading.waiting.items()):
            if now_ms < checkpoint.due_ms + PATIENCE_MS:
                continue
            left = checkpoint.offsets - reading.acked.get(name, set())
            for offset in sorted(left):
                if not self._broker.popping.put_again(checkpoint.key, offset, checkpoint.popped_ms):
                    return  # the store takes nothing now
                checkpoint.offsets.discard(offset)
            del reading.waiting[name]
            reading.acked.pop(name, None)
        done = min((it.position for it in reading.waiting.values()), default=reading.position)
        if not reading.waiting:
            reading.acked.clear()
        if done != self._broker.offsets.query(GROUP, self.topic, queue_id):
            self._broker.offsets.commit(GROUP, self.topic, queue_id, done, "revive")


def _checkpoint(position: int, name: Name, record: dict[str, Any]) -> Checkpoint:
    count = int(record["n"])
    if not 0 <= count <= COUNT_MAX:
        raise ValueError(f"a pop of {count} messages")
    differences = [int(it) for it in record.get("d") or range(count)]
    bits = int(record.get("bm") or 0)
    start = int(record["so"])
    offsets = {start + it for index, it in enumerate(differences[:count]) if not bits >> index & 1}
    key = Key(name[0], name[1], name[2])
    popped_ms = int(record["pt"])
    return Checkpoint(position, key, popped_ms, popped_ms + int(record["it"]), offsets)
