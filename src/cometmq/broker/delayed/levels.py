"""Delay levels: a message that should arrive later is kept in a topic of its own until then.

    put        DELAY=n      ->  SCHEDULE_TOPIC_XXXX, queue n-1; real topic and queue become properties
    dispatch                ->  the consume queue entry's tag code is the moment at which it is due
    deliver    due          ->  put again, to its real topic and queue, properties as they are

All messages of a level have the same delay, so each queue is in order of due time: the first entry that is not due
ends the round. Due times are wall time; what is due after a clock was set back further than the delay itself is
delivered now rather than days late.

Progress is one queue offset per level (`delayOffset.json`). It may be saved once the log is on disk up to the last
delivered message (tables/delay_progress.py): saved earlier, a power cut could take the delivered message and keep the
progress. After a crash what was delivered since the last save is delivered again.

The delivered record keeps the properties of the kept one, DELAY included, as RocketMQ's does.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from cometmq.broker.cold_pages import IsCold, all_warm
from cometmq.broker.tables.delay_progress import DelayProgress
from cometmq.clock import Clock
from cometmq.names import HALF_TOPIC, SCHEDULE_TOPIC
from cometmq.store.log.append import AppendRequest, copy_to
from cometmq.store.queues.dispatch import parse_delay_levels
from cometmq.store.queues.extension import is_address
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.record.message import StoredMessage
from cometmq.wire.record.properties import Property, find, without
from cometmq.wire.record.sysflag import enters_consume_queue

log = logging.getLogger(__name__)

FIRST_ROUND_MS: Final = 1_000
ROUND_MS: Final = 100
PAUSE_AFTER_ERROR_S: Final = 10.0
# How many messages of one level one round may put, so that a large backlog shares the loop with everybody.
ROUND_MESSAGES_MAX: Final = 200

_NOT_KEPT: Final = (
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.TIMER_DELIVER_MS,
    Property.REAL_TOPIC,
    Property.REAL_QID,
)


class ScheduleStore(Protocol):
    """What delivery needs of the store."""

    def put(self, request: AppendRequest) -> PutResult: ...

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]: ...

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]: ...

    def extended_tag_code(self, topic: str, queue_id: int, address: int) -> int | None: ...

    def message_at(self, physical_offset: int, record_bytes: int | None) -> StoredMessage | None: ...


class Delays:
    """The levels, and what is delivered of them when. `delivered` is told topic, queue and size of each message."""

    def __init__(
        self, levels_text: str, clock: Clock, progress: DelayProgress, delivered: Callable[[str, int, int], object]
    ) -> None:
        self.levels_ms: list[int] = parse_delay_levels(levels_text)
        self.progress: DelayProgress = progress
        self._clock: Clock = clock
        self._delivered: Callable[[str, int, int], object] = delivered
        self._paused_until_s: dict[int, float] = {}

    @property
    def level_max(self) -> int:
        return len(self.levels_ms)

    # On the way in

    def divert(self, request: AppendRequest) -> bool:
        """If the message asks for a delay level, turn it into one for the schedule topic. Says whether it did."""
        if not enters_consume_queue(request.sys_flag):
            return False
        level = self.level_of(request.properties)
        if level <= 0:
            return False
        text = request.properties
        for name in _NOT_KEPT:
            text = without(text, name)
        if not text.endswith("\x02"):
            text += "\x02"
        request.properties = f"{text}REAL_TOPIC\x01{request.topic}\x02REAL_QID\x01{request.queue_id}\x02"
        request.topic = SCHEDULE_TOPIC
        request.queue_id = level - 1
        return True

    def level_of(self, properties: str) -> int:
        """The delay level that a message asks for: 0 for none, the last one for any beyond it."""
        if "DELAY\x01" not in properties:
            return 0
        text = find(properties, Property.DELAY)
        if text is None or not (text.isascii() and text.isdigit() and len(text) <= 9):
            return 0
        return min(int(text), self.level_max)

    # On the way out

    def deliver(self, store: ScheduleStore, is_cold: IsCold = all_warm) -> bool:
        """One round: put messages that are due, some of each level. True: there are more, call again soon."""
        more = False
        now_s = self._clock.monotonic()
        for level in range(1, self.level_max + 1):
            if now_s < self._paused_until_s.get(level, 0.0):
                continue
            try:
                if self._deliver_level(store, level, is_cold):
                    more = True
            except OSError as error:
                log.error("paused delay level=%d for_s=%.0f cause=%s", level, PAUSE_AFTER_ERROR_S, error)
                self._paused_until_s[level] = now_s + PAUSE_AFTER_ERROR_S
            except Exception:
                log.exception("paused delay level=%d for_s=%.0f", level, PAUSE_AFTER_ERROR_S)
                self._paused_until_s[level] = now_s + PAUSE_AFTER_ERROR_S
        return more

    def _deliver_level(self, store: ScheduleStore, level: int, is_cold: IsCold) -> bool:
        queue_id = level - 1
        low, high = store.queue_bounds(SCHEDULE_TOPIC, queue_id)
        offset = self._within(level, low, high)
        if offset >= high:
            return False
        entries = store.queue_entries(SCHEDULE_TOPIC, queue_id, offset, ROUND_MESSAGES_MAX)
        due = self._due(store, queue_id, entries)
        if is_cold(f"delays {level}", due):
            return False
        for physical_offset, record_bytes in due:
            message = store.message_at(physical_offset, record_bytes)
            if message is not None and not self._put_back(store, message):
                return False
            offset += 1
            self.progress.advance(level, offset)
        return 0 < len(due) == len(entries) and offset < high

    def _due(
        self, store: ScheduleStore, queue_id: int, entries: list[tuple[int, int, int]]
    ) -> list[tuple[int, int]]:
        """Place and size of the messages that are due: those before the first that is not."""
        now_ms = self._clock.now_ms()
        due: list[tuple[int, int]] = []
        for physical_offset, record_bytes, tag_code in entries:
            due_ms = tag_code
            if is_address(tag_code):
                due_ms = self._extended_due_ms(store, queue_id, tag_code, physical_offset, record_bytes)
            # Later than one delay from now: the clock was set back.
            if now_ms < due_ms <= now_ms + self.levels_ms[queue_id]:
                break
            due.append((physical_offset, record_bytes))
        return due

    def _extended_due_ms(
        self, store: ScheduleStore, queue_id: int, address: int, physical_offset: int, record_bytes: int
    ) -> int:
        """The due time that the queue's extension has; computed anew if that cannot be read."""
        due_ms = store.extended_tag_code(SCHEDULE_TOPIC, queue_id, address)
        if due_ms is not None:
            return due_ms
        message = store.message_at(physical_offset, record_bytes)
        return 0 if message is None else message.store_timestamp_ms + self.levels_ms[queue_id]

    def _within(self, level: int, low: int, high: int) -> int:
        """Where to go on; retention may have overtaken us, and a cut log may end before us."""
        offset = self.progress.offsets.get(level, 0)
        if low <= offset <= high:
            return offset
        corrected = low if offset < low else high
        log.warning("moved delay progress level=%d from=%d to=%d", level, offset, corrected)
        self.progress.move(level, corrected)
        return corrected

    def _put_back(self, store: ScheduleStore, message: StoredMessage) -> bool:
        """False: the store refused it, try the same message again in the next round."""
        properties = message.properties.decode("utf-8", "replace")
        topic = find(properties, Property.REAL_TOPIC)
        queue_text = find(properties, Property.REAL_QID) or ""
        if topic is None or topic == HALF_TOPIC or not (queue_text.isascii() and queue_text.isdigit()):
            log.error(
                "dropped delayed message physical_offset=%d real_topic=%r real_queue=%r",
                message.physical_offset,
                topic,
                queue_text,
            )
            return True
        queue_id = int(queue_text)
        request = copy_to(message, topic, queue_id, properties)
        request.prepared_offset = message.prepared_transaction_offset
        result = store.put(request)
        if result.status == PutStatus.MESSAGE_ILLEGAL or result.status == PutStatus.PROPERTIES_SIZE_EXCEEDED:
            log.error("dropped delayed message physical_offset=%d reason=%s", message.physical_offset, result.remark)
            return True
        if result.status != PutStatus.OK:
            return False
        self._delivered(topic, queue_id, result.record_bytes)
        return True
