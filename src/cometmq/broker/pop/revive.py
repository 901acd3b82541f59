"""Popped messages of a store that RocketMQ's broker has left: those that nobody has finished come again.

RocketMQ notes pops and acknowledgements as timer messages in a topic of its own. They get there when they are due:

    ck     so first offset, d differences to it, n how many, bm bits of what is done, pt popped, it invisible ms,
           t topic, c group, q queue, bn broker
    ack    ao offset            } and t, c, q, so, pt, bn as in the ck
    bAck   aol offsets          }

A ck and its acks are due at the same time, so some seconds later it is known what was not acknowledged: that goes to
the retry topic. Progress is kept as offsets of RocketMQ's own group; what is read twice is given out twice.

Nothing here writes such records: see in_flight.py.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from cometmq import names
from cometmq.broker.cold_pages import IsCold, all_warm
from cometmq.broker.pop.in_flight import Key
from cometmq.broker.pop.popping import Popping
from cometmq.broker.tables.offsets import NONE, Offsets
from cometmq.broker.tables.topics import QUEUES_MAX, Topics
from cometmq.clock import Clock
from cometmq.errors import WireError
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.store import Store
from cometmq.wire.fastjson.dialect import loads
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property, decode

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
    """`topic`: where RocketMQ's broker notes them."""

    def __init__(
        self, topic: str, clock: Clock, topics: Topics, offsets: Offsets, store: Store, popping: Popping
    ) -> None:
        self.topic = topic
        self._clock = clock
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._popping = popping
        self._readings: dict[int, _Reading] = {}
        self._log_skipped = ThinnedLog(logger, clock)

    def turn(self, is_cold: IsCold = all_warm) -> bool:
        """Some records of each queue, and what is ripe. True: there is more, call again soon."""
        more = False
        topic = self._topics.get(self.topic)
        for queue_id in range(topic.read_queue_nums if topic is not None else 0):
            low, high = self._store.queue_bounds(self.topic, queue_id)
            reading = self._readings.get(queue_id)
            if reading is None and high > low:
                saved = self._offsets.query(GROUP, self.topic, queue_id)
                reading = self._readings[queue_id] = _Reading(low if saved == NONE else min(max(saved, low), high))
            if reading is None:
                continue
            entries = self._store.queue_entries(self.topic, queue_id, reading.position, PER_TURN)
            if is_cold(f"notes of pops {queue_id}", [entry[:2] for entry in entries]):
                continue  # what was acknowledged may be among these
            more = self._read(reading, entries) or more
            self._revive(reading, queue_id, is_cold)
        return more

    def _read(self, reading: _Reading, entries: list[tuple[int, int, int]]) -> bool:
        for physical_offset, record_bytes, _ in entries:
            message = self._store.message_at(physical_offset, record_bytes)
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
                reading.acked.setdefault(name, set()).update(_offset(offset) for offset in offsets[:COUNT_MAX])
        except (WireError, KeyError, TypeError, ValueError, AttributeError) as error:
            self._log_skipped.warning(
                "skipped record of a pop physical_offset=%d cause=%r", message.physical_offset, str(error)[:200]
            )

    def _revive(self, reading: _Reading, queue_id: int, is_cold: IsCold) -> None:
        now_ms = self._clock.now_ms()
        for name, checkpoint in list(reading.waiting.items()):
            if now_ms < checkpoint.due_ms + PATIENCE_MS:
                continue
            left = sorted(checkpoint.offsets - reading.acked.get(name, set()))
            if is_cold(f"popped {queue_id}", self._popping.places(checkpoint.key, left)):
                return
            for offset in left:
                if not self._popping.put_again(checkpoint.key, offset, checkpoint.popped_ms):
                    return  # the store takes nothing now
                checkpoint.offsets.discard(offset)
            del reading.waiting[name]
            reading.acked.pop(name, None)
        done = min((it.position for it in reading.waiting.values()), default=reading.position)
        if not reading.waiting:
            reading.acked.clear()
        if done != self._offsets.query(GROUP, self.topic, queue_id):
            self._offsets.commit(GROUP, self.topic, queue_id, done, "revive")


def _offset(number: Any) -> int:
    offset = int(number)
    if not 0 <= offset < 1 << 63:
        raise ValueError("an offset outside of 64 bits")
    return offset


def _checkpoint(position: int, name: Name, record: dict[str, Any]) -> Checkpoint:
    count = int(record["n"])
    if not 0 <= count <= COUNT_MAX:
        raise ValueError(f"a pop of {count} messages")
    differences = [int(it) for it in record.get("d") or range(count)]
    bits = int(record.get("bm") or 0)
    start = int(record["so"])
    fault = names.topic_fault(name[0]) or names.group_fault(name[1])
    if fault is not None or names.takes_no_sends(name[0]) or not 0 <= name[2] < QUEUES_MAX:
        raise ValueError(f"a pop of queue {name[2]} of {name[0]!r}: {fault or 'no such queue is popped'}")
    offsets = {_offset(start + it) for index, it in enumerate(differences[:count]) if not bits >> index & 1}
    key = Key(name[0], name[1], name[2])
    popped_ms = int(record["pt"])
    return Checkpoint(position, key, popped_ms, popped_ms + int(record["it"]), offsets)
