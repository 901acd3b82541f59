"""POP: the broker keeps the progress of a group, message by message; its members need not know of each other.

    pop      from any queue that has something, and from the retry topic of the group: in a fifth of the requests first,
             else if there is room left
    ack      done
    prolong  not done, but in so many milliseconds
    revive   whose time is over goes to the retry topic %RETRY%group_topic, tried once more

How much is in hand is kept in in_flight.py. A group that is new begins where the request says.

A pop in order takes from a queue only if nobody has any of it in hand, and no retries: see orders.py.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

from cometmq import names
from cometmq.broker.cold_pages import IsCold, Place, all_warm
from cometmq.broker.config import BrokerConfig
from cometmq.broker.pop.in_flight import IN_FLIGHT_MAX, Key, PopWindows, Window
from cometmq.broker.pop.orders import Batches
from cometmq.broker.tables.attributes import MESSAGE_TYPE
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.offsets import NONE, Offsets
from cometmq.broker.tables.system_topics import PERM_READ, PERM_READ_WRITE
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.log.append import AppendRequest, copy_to
from cometmq.store.results import GetResult, GetStatus, PutStatus
from cometmq.store.store import Store
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.properties import Property, find, with_property

logger = logging.getLogger(__name__)

PRIORITY_FACTOR: Final = "priority.factor"
FROM_NEWEST: Final = 1
REVIVED_PER_TURN: Final = 100
REVIVED_BYTES_PER_TURN: Final = 4 << 20
REVIVE_AGAIN_MS: Final = 10_000
FIRST_POP_TIME: Final = "1ST_POP_TIME"
MOVED: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.MESSAGE_WAS_REMOVING,
)

Filter = Callable[..., bool]


class Wish:
    """What one request asks for, and how much it got."""

    def __init__(self, group: str, topic: str, queue_id: int, count: int, invisible_ms: int, init_mode: int,
                 unit_filter: Filter | None, record_filter: Filter | None, now_ms: int,
                 order: bool = False, attempt_id: str | None = None) -> None:  # fmt: skip
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.count = count
        self.invisible_ms = invisible_ms
        self.init_mode = init_mode
        self.unit_filter = unit_filter
        self.record_filter = record_filter
        self.now_ms = now_ms
        self.order = order
        self.attempt_id = attempt_id
        # In order: how often each of what was got had been given out before.
        self.counts: dict[Key, dict[int, int]] = {}
        self.got: list[tuple[Key, GetResult]] = []
        self.cold: tuple[Key, GetResult] | None = None
        self.loaded: dict[Key, int] = {}
        self.rest: int = 0

    @property
    def room(self) -> int:
        return self.count - sum(len(result.queue_offsets) for _, result in self.got)


class Popping:
    """`delivered` is told topic, queue and size of each message that is put again."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        store: Store,
        delivered: Callable[[str, int, int], object],
    ) -> None:
        self.windows = PopWindows()
        self.batches = Batches()
        self._config = config
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._delivered = delivered
        self._put_bytes = 0  # in all that was put again
        self._log_lost = ThinnedLog(logger, clock)

    @property
    def _in_flight_max(self) -> int:
        config = self._config()
        return config.pop_in_flight_max if config.pop_in_flight_bounded else IN_FLIGHT_MAX

    def pop(self, wish: Wish) -> None:
        """Fill the wish. With nothing but `cold`, its pages must be read first."""
        retry = retry_topic(wish.group, wish.topic)
        topics = [wish.topic, retry]
        by_priority = self._is_by_priority(wish)
        if wish.order:
            for queue_id in self._queues(wish.topic, wish.queue_id, by_priority):
                self._pop_in_order(wish, Key(wish.topic, wish.group, queue_id))
            return
        if not by_priority and random.random() * 100 < self._config().pop_retries_first_percent:  # noqa: S311 - spreads load
            topics.reverse()
        for topic in topics:
            for queue_id in self._queues(topic, wish.queue_id if topic == wish.topic else -1, by_priority):
                self._pop_queue(wish, Key(topic, wish.group, queue_id))

    def _is_by_priority(self, wish: Wish) -> bool:
        """For topics of messages with priorities, as many times of a hundred as the group says."""
        topic = self._topics.get(wish.topic)
        if topic is None or topic.attributes.get(MESSAGE_TYPE) != "PRIORITY":
            return False
        group = self._groups.get(wish.group)
        factor = group.attributes.get(PRIORITY_FACTOR) if group is not None else None
        return random.random() * 100 < int(factor or 100)  # noqa: S311 - spreads load

    def _queues(self, topic: str, queue_id: int, by_priority: bool = False) -> list[int]:
        config = self._topics.get(topic)
        if config is None or not config.perm & PERM_READ:
            return []
        if queue_id >= 0:
            return [queue_id]
        count = config.read_queue_nums
        if by_priority:
            return list(range(count - 1, -1, -1))
        first = random.randrange(count) if count else 0  # noqa: S311 - spreads load
        return [*range(first, count), *range(first)]

    def _pop_queue(self, wish: Wish, key: Key) -> None:
        window = self._window(key, wish.init_mode)
        if wish.room > 0 and not window.is_full(self._in_flight_max):
            result = self._read(wish, key, window)
            if result is not None:
                self.windows.popped(key, result.queue_offsets, result.next_offset, wish.now_ms, wish.invisible_ms)
                wish.got.append((key, result))
        self._commit(key, window)
        wish.rest += max(0, self._store.queue_bounds(key.topic, key.queue_id)[1] - window.next_offset)

    def _pop_in_order(self, wish: Wish, key: Key) -> None:
        offsets = self._offsets
        reset = offsets.take_reset(key.group, key.topic, key.queue_id)
        committed = offsets.query(key.group, key.topic, key.queue_id) if reset is None else reset
        self.batches.keep_at(key, committed)
        if committed == NONE:
            committed = self._first_offset(key, wish.init_mode)
        window = Window(committed)
        if wish.room > 0 and not self.batches.blocks(key, wish.now_ms, wish.attempt_id):
            result = self._read(wish, key, window)
            if result is not None:
                found = result.queue_offsets
                batch = self.batches.popped(key, wish.attempt_id, found, wish.now_ms, wish.invisible_ms)
                wish.got.append((key, result))
                wish.counts[key] = batch.counts
                window.next_offset = result.queue_offsets[0]
        if window.next_offset != offsets.query(key.group, key.topic, key.queue_id):
            offsets.commit(key.group, key.topic, key.queue_id, window.next_offset, "pop")
        wish.rest += max(0, self._store.queue_bounds(key.topic, key.queue_id)[1] - window.next_offset)

    def _read(self, wish: Wish, key: Key, window: Window) -> GetResult | None:
        """Messages, or None: there is nothing for this group, or it must be read from disk first."""
        for _ in range(2):  # once more where the queue begins, if it begins later
            result = self._store.get(
                key.topic,
                key.queue_id,
                window.next_offset,
                wish.room,
                unit_filter=wish.unit_filter,
                record_filter=wish.record_filter,
                loaded_units=wish.loaded.get(key, 0),
            )
            if result is None:
                return None
            if result.cold:
                wish.cold = wish.cold or (key, result)
                return None
            if result.status == GetStatus.FOUND:
                return result
            if result.status not in MOVED:
                return None
            window.next_offset = result.next_offset
        return None

    def _window(self, key: Key, init_mode: int) -> Window:
        """As it was left, unless somebody else has moved the group: then from there."""
        offsets = self._offsets
        reset = offsets.take_reset(key.group, key.topic, key.queue_id)
        known = self.windows.table.get(key)
        committed = offsets.query(key.group, key.topic, key.queue_id)
        if reset is None and known is not None and known.committed == committed:
            return known
        if committed == NONE:
            committed = self._first_offset(key, init_mode)
        window = self.windows.table[key] = Window(committed if reset is None else reset)
        return window

    def _first_offset(self, key: Key, init_mode: int) -> int:
        low, high = self._store.queue_bounds(key.topic, key.queue_id)
        if init_mode != FROM_NEWEST or key.topic.startswith(names.RETRY_PREFIX):
            return low
        if low <= 0 and self._store.is_in_memory(key.topic, key.queue_id, 0):
            return 0
        return max(low, high - 1, 0)

    def _commit(self, key: Key, window: Window) -> None:
        progress = window.progress()
        if progress != window.committed or self._offsets.query(key.group, key.topic, key.queue_id) == NONE:
            window.committed = progress
            self._offsets.commit(key.group, key.topic, key.queue_id, progress, "pop")

    def has_more(self, group: str, topic: str, queue_id: int, order: bool) -> bool:
        """Whether a pop might find something that it has not looked at."""
        if order:
            return any(self._has_more_in_order(Key(topic, group, number)) for number in self._queues(topic, queue_id))
        retry = retry_topic(group, topic)
        return any(
            self._has_more(Key(name, group, number))
            for name in (topic, retry)
            for number in self._queues(name, queue_id if name == topic else -1)
        )

    def _has_more(self, key: Key) -> bool:
        if self._offsets.has_reset(key.group, key.topic, key.queue_id):
            return True
        window = self.windows.table.get(key)
        end = self._store.queue_bounds(key.topic, key.queue_id)[1]
        return end > window.next_offset and not window.is_full(self._in_flight_max) if window is not None else end > 0

    def _has_more_in_order(self, key: Key) -> bool:
        if self._offsets.has_reset(key.group, key.topic, key.queue_id):
            return True
        end = self._store.queue_bounds(key.topic, key.queue_id)[1]
        committed = self._offsets.query(key.group, key.topic, key.queue_id)
        self.batches.keep_at(key, committed)
        return end > max(committed, 0) and not self.batches.blocks(key, self._clock.now_ms())

    # Done, or not yet

    def ack_in_order(self, key: Key, offset: int, popped_ms: int) -> bool:
        """False: the batch has no such message. An old receipt changes nothing, like one that is done already."""
        committed = self._offsets.query(*_place(key))
        self.batches.keep_at(key, committed)
        batch = self.batches.table.get(key)
        if batch is None or batch.popped_ms != popped_ms or offset < committed:
            return True
        if offset not in batch.offsets:
            return False
        batch.done.add(offset)
        self._offsets.commit(*_place(key), batch.progress(), "pop")
        return True

    def prolong_in_order(self, key: Key, offset: int, popped_ms: int, invisible_ms: int, now_ms: int) -> int:
        """How long it is invisible now, counted from when it was popped: what its new receipt says."""
        batch = self.batches.find(key, offset, popped_ms)
        if batch is not None and offset not in batch.done:
            batch.visible_ms[offset] = now_ms + invisible_ms
        return now_ms + invisible_ms - popped_ms

    def ack(self, key: Key, offset: int, popped_ms: int) -> None:
        """An old receipt changes nothing: the message is somebody else's by now."""
        if self.windows.find(key, offset, popped_ms) is not None:
            self._done(key, offset)

    def prolong(self, key: Key, offset: int, popped_ms: int, invisible_ms: int, now_ms: int) -> None:
        flight = self.windows.find(key, offset, popped_ms)
        if flight is not None:
            self.windows.prolong(key, offset, flight, now_ms, invisible_ms)

    def _done(self, key: Key, offset: int) -> None:
        self.windows.done(key, offset)
        window = self.windows.table.get(key)
        # Where somebody else has moved the group, this window is void; the next pop sees it.
        if window is not None and self._offsets.query(key.group, key.topic, key.queue_id) == window.committed:
            self._commit(key, window)

    # Whose time is over

    def revive(self, is_cold: IsCold = all_warm) -> bool:
        """Some of them. True: there are more, call again soon."""
        now_ms = self._clock.now_ms()
        overdue = self.windows.overdue(now_ms, REVIVED_PER_TURN)
        if is_cold("popped", [place for key, offset, _ in overdue for place in self.places(key, [offset])]):
            for key, offset, flight in overdue:
                self.windows.again(key, offset, flight, flight.due_ms)
            return False
        until_bytes = self._put_bytes + REVIVED_BYTES_PER_TURN
        for index, (key, offset, flight) in enumerate(overdue):
            if self._put_bytes > until_bytes:
                for late_key, late_offset, late in overdue[index:]:
                    self.windows.again(late_key, late_offset, late, late.due_ms)
                return True
            if self.put_again(key, offset, flight.popped_ms):
                self._done(key, offset)
            else:
                self.windows.again(key, offset, flight, now_ms + REVIVE_AGAIN_MS)
        return len(overdue) == REVIVED_PER_TURN

    def places(self, key: Key, offsets: list[int]) -> list[Place]:
        """Where in the log these messages of a queue are, as far as they are there."""
        found = (self._store.queue_entries(key.topic, key.queue_id, offset, 1) for offset in offsets)
        return [entries[0][:2] for entries in found if entries]

    def put_again(self, key: Key, offset: int, popped_ms: int) -> bool:
        """False: the store refused it."""
        store = self._store
        entries = store.queue_entries(key.topic, key.queue_id, offset, 1)
        message = store.message_at(entries[0][0], entries[0][1]) if entries else None
        if message is None:
            self._log_lost.warning("lost popped message topic=%s queue=%d offset=%d", key.topic, key.queue_id, offset)
            return True
        topic = key.topic if key.topic.startswith(names.RETRY_PREFIX) else retry_topic(key.group, key.topic)
        self._topics.create_in_send_back(topic, 1, PERM_READ_WRITE)
        result = store.put(again(message, topic, popped_ms))
        self._put_bytes += result.record_bytes
        if result.status == PutStatus.OK:
            self._delivered(topic, 0, result.record_bytes)
        return result.status == PutStatus.OK


def _place(key: Key) -> tuple[str, str, int]:
    return key.group, key.topic, key.queue_id


def retry_topic(group: str, topic: str) -> str:
    return f"{names.RETRY_PREFIX}{group}_{topic}"


def again(message: StoredMessage, topic: str, popped_ms: int) -> AppendRequest:
    """The message for the retry topic."""
    text = message.properties.decode("utf-8", "replace")
    if find(text, FIRST_POP_TIME) is None:
        text = with_property(text, FIRST_POP_TIME, str(popped_ms))
    request = copy_to(message, topic, 0, text)
    request.reconsume_times += 1
    return request


def relabelled(result: GetResult, topic: str, receipt: str) -> bytes:
    """Messages of a retry topic as if they came from their own, each with its receipt inside, which ends with its
    offset."""
    records: list[bytes] = []
    for piece in result.slices:
        for message in decode_records(piece):
            text = message.properties
            separator = b"" if not text or text.endswith(b"\x02") else b"\x02"
            message.topic = topic
            added = f"{Property.POP_CK}\x01{receipt} {message.queue_offset}\x02"
            message.properties = text + separator + added.encode()
            records.append(message.encode())
    return b"".join(records)
