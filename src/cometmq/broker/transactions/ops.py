"""Op records: which halves have ended, one queue of them beside each queue of halves.

    topic RMQ_SYS_TRANS_OP_HALF_TOPIC, queue as the halves', TAGS=d, body    17,18,25,     queue offsets of halves
                                                        before 5.1           17            one each

An op says that its half is not to be looked at any more, whatever became of it. Ops are written some at a time; those
that a crash takes away before that cost one more question to a producer.

An op record is done when the walk over the halves is past all that it names. Progress in the op queue goes over done
records only, so that a restart reads every op that it still needs.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final, Protocol

from cometmq.names import OP_TOPIC
from cometmq.store.log.append import AppendRequest
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property, find

logger = logging.getLogger(__name__)

REMOVE_TAG: Final = "d"
OP_PROPERTIES: Final = f"WAIT\x01true\x02TAGS\x01{REMOVE_TAG}\x02"
OPS_PER_READ: Final = 32
# So many are written at once, whatever their size. While the store takes nothing, no more than that wait; the others
# are forgotten, and their halves asked for again.
WAITING_MAX: Final = 20_000
# Ops for halves that the walk is past are only of use to copies of those.
PAST_KEPT_MAX: Final = 10_000
# At once: a search for the oldest passes all that were forgotten before it.
PAST_FORGOTTEN: Final = 500


class OpStore(Protocol):
    """What reading ops needs of the store."""

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]: ...

    def message_at(self, physical_offset: int, record_bytes: int | None) -> StoredMessage | None: ...


def decode_op(message: StoredMessage) -> list[int]:
    """The queue offsets that a record names, in either form."""
    tag = find(message.properties.decode("utf-8", "replace"), Property.TAGS)
    if tag != REMOVE_TAG:
        logger.error("skip op record physical_offset=%d tag=%r", message.physical_offset, tag)
        return []
    parts = [part.strip() for part in message.body.split(b",")]
    return [int(part) for part in parts if part.isdigit() and len(part) <= 19]


class OpBatch:
    """Ops of one queue that wait to be written."""

    def __init__(self, queue_id: int) -> None:
        self._queue_id = queue_id
        self._waiting: list[bytes] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, half_offset: int, bytes_max: int) -> bool:
        """True if it is time to write."""
        if len(self._waiting) < WAITING_MAX:
            part = b"%d," % half_offset
            self._waiting.append(part)
            self._bytes += len(part)
        return self._bytes >= bytes_max or len(self._waiting) >= WAITING_MAX

    def next_record(self, bytes_max: int, now_ms: int, host: bytes) -> tuple[AppendRequest, int]:
        """The record to put now, and how many ops it has: give that to `written` when it is stored."""
        count = size = 0
        for part in self._waiting:
            if count and size + len(part) > bytes_max:
                break
            size += len(part)
            count += 1
        body = b"".join(self._waiting[:count])
        record = AppendRequest(
            OP_TOPIC, self._queue_id, body, OP_PROPERTIES, born_time_ms=now_ms, born_host=host, wait=False
        )
        return record, count

    def written(self, count: int) -> None:
        self._bytes -= sum(len(part) for part in self._waiting[:count])
        del self._waiting[:count]


class OpQueue:
    """Reads the ops of one queue from `offset` on, a few records at a time."""

    def __init__(self, queue_id: int, offset: int) -> None:
        self.offset = offset
        self._queue_id = queue_id
        self._op_of: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._past: dict[int, None] = {}

    @property
    def progress(self) -> int:
        """All before it is done."""
        return next(iter(self._left), self.offset)

    def names(self, half_offset: int) -> bool:
        return half_offset in self._op_of or half_offset in self._past

    def next_entries(self, store: OpStore) -> list[tuple[int, int, int]]:
        """What `read` reads next."""
        return store.queue_entries(OP_TOPIC, self._queue_id, self.offset, OPS_PER_READ)

    def read(self, store: OpStore, first_half: int, end_half: int) -> bool:
        """Read on; False if there was nothing. Halves are there from `first_half`, where the walk is, to `end_half`."""
        entries = self.next_entries(store)
        for physical_offset, record_bytes, _ in entries:
            message = store.message_at(physical_offset, record_bytes)
            if message is not None:
                self._take(message, first_half, end_half)
            self.offset += 1
        return bool(entries)

    def _take(self, message: StoredMessage, first_half: int, end_half: int) -> None:
        left = 0
        for half_offset in decode_op(message):
            if half_offset < first_half:
                self._remember_past(half_offset)
            elif half_offset < end_half and half_offset not in self._op_of:
                self._op_of[half_offset] = self.offset
                left += 1
        if left:
            self._left[self.offset] = left

    def _remember_past(self, half_offset: int) -> None:
        if len(self._past) >= PAST_KEPT_MAX:
            for oldest in list(islice(self._past, PAST_FORGOTTEN)):
                del self._past[oldest]
        self._past[half_offset] = None

    def passed(self, half_offset: int) -> None:
        """The walk is past this half."""
        op = self._op_of.pop(half_offset, None)
        if op is None:
            return
        self._remember_past(half_offset)
        self._left[op] -= 1
        if not self._left[op]:
            del self._left[op]

    def jumped(self, half_offset: int) -> None:
        """The walk goes on at `half_offset`: what is before it is no more."""
        for passed in [offset for offset in self._op_of if offset < half_offset]:
            self.passed(passed)
