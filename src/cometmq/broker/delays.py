"""Delay levels: a message that should arrive later is kept in a topic of its own until then.

    put        DELAY=n      ->  SCHEDULE_TOPIC_XXXX, queue n-1; real topic and queue become properties
    dispatch                ->  the consume queue entry's tag code is the moment at which it is due
    deliver    due          ->  put again, to its real topic and queue, properties as they are

All messages of a level have the same delay, so each queue is in order of due time: the first entry that is not due
ends the round. Progress is one queue offset per level (`delayOffset.json`), saved now and then; after a crash what was
delivered since the last save is delivered again.

The delivered record keeps the properties of the kept one, DELAY included, as RocketMQ's does.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from cometmq.broker.versions import next_version
from cometmq.names import SCHEDULE_TOPIC
from cometmq.store.dispatch import parse_delay_levels
from cometmq.store.puts import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.bodies import DataVersion, DelayOffsetTable
from cometmq.wire.json_dialect import dumps_pretty
from cometmq.wire.message import StoredMessage, encode_host
from cometmq.wire.properties import Property, find, without
from cometmq.wire.sysflag import enters_consume_queue

log = logging.getLogger(__name__)

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"

FIRST_ROUND_MS: Final = 1_000
ROUND_MS: Final = 100
PAUSE_AFTER_ERROR_MS: Final = 10_000
# How many messages of one level one round may put, so that a large backlog shares the loop with everybody.
ROUND_MESSAGES_MAX: Final = 500
VERSION_STEP: Final = 200

_TIMER_NAMES: Final = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)


class ScheduleStore(Protocol):
    """What delivery needs of the store."""

    def put(self, request: AppendRequest) -> PutResult: ...

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]: ...

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]: ...

    def message_at(self, physical_offset: int, record_bytes: int | None) -> StoredMessage | None: ...


class Delays:
    """The levels, and how far each has been delivered."""

    def __init__(self, levels_text: str) -> None:
        self.levels_ms: list[int] = parse_delay_levels(levels_text)
        self.offsets: dict[int, int] = {}
        self.version: DataVersion = DataVersion()
        self.changes: int = 0
        self._advanced: int = 0
        self._paused_until_ms: dict[int, int] = {}

    @property
    def level_max(self) -> int:
        return len(self.levels_ms)

    # The file

    def restore(self, content: bytes) -> None:
        read = DelayOffsetTable.decode(content)
        self.offsets = dict(read.offset_table)
        self.version = read.data_version

    def snapshot(self) -> Callable[[], bytes]:
        content = {"dataVersion": self.version, "offsetTable": dict(sorted(self.offsets.items()))}
        return lambda: dumps_pretty(content)

    # On the way in

    def divert(self, request: AppendRequest) -> bool:
        """If the message asks for a delay level, turn it into one for the schedule topic. Says whether it did."""
        if "DELAY\x01" not in request.properties or not enters_consume_queue(request.sys_flag):
            return False
        level = self.level_of(request.properties)
        if level <= 0:
            return False
        text = request.properties
        for name in _TIMER_NAMES:
            text = without(text, name)
        for name in (Property.REAL_TOPIC, Property.REAL_QID):
            text = without(text, name)
        if text and not text.endswith("\x02"):
            text += "\x02"
        request.properties = f"{text}REAL_TOPIC\x01{request.topic}\x02REAL_QID\x01{request.queue_id}\x02"
        request.topic = SCHEDULE_TOPIC
        request.queue_id = level - 1
        return True

    def level_of(self, properties: str) -> int:
        """The delay level that a message asks for: 0 for none, the last one for any beyond it."""
        text = find(properties, Property.DELAY)
        if text is None or not (text.isascii() and text.isdigit() and len(text) <= 9):
            return 0
        return min(int(text), self.level_max)

    # On the way out

    def deliver(self, store: ScheduleStore, now_ms: int, delivered: Callable[[str, int], None]) -> int:
        """Put every message that is due; returns how many. `delivered` is told topic and size of each."""
        count = 0
        for level in range(1, self.level_max + 1):
            if now_ms < self._paused_until_ms.get(level, 0):
                continue
            try:
                count += self._deliver_level(store, level, now_ms, delivered)
            except Exception:
                log.exception("paused delay level=%d for_ms=%d", level, PAUSE_AFTER_ERROR_MS)
                self._paused_until_ms[level] = now_ms + PAUSE_AFTER_ERROR_MS
        return count

    def _deliver_level(
        self, store: ScheduleStore, level: int, now_ms: int, delivered: Callable[[str, int], None]
    ) -> int:
        queue_id = level - 1
        low, high = store.queue_bounds(SCHEDULE_TOPIC, queue_id)
        offset = self._within(level, low, high)
        if offset >= high:
            return 0
        count = 0
        for physical_offset, record_bytes, due_ms in store.queue_entries(
            SCHEDULE_TOPIC, queue_id, offset, ROUND_MESSAGES_MAX
        ):
            # A due time too far ahead means that the clock was set back since: deliver now rather than days late.
            if now_ms < due_ms <= now_ms + self.levels_ms[queue_id]:
                break
            message = store.message_at(physical_offset, record_bytes)
            if message is not None and not self._put_back(store, message, delivered):
                break
            offset += 1
            count += 1
            self._advance(level, offset, now_ms)
        return count

    def _within(self, level: int, low: int, high: int) -> int:
        """Where to go on; retention may have overtaken us, and a cut log may end before us."""
        offset = self.offsets.get(level, 0)
        if low <= offset <= high:
            return offset
        corrected = low if offset < low else high
        log.warning("moved delay progress level=%d from=%d to=%d", level, offset, corrected)
        self.offsets[level] = corrected
        self.changes += 1
        return corrected

    def _put_back(self, store: ScheduleStore, message: StoredMessage, delivered: Callable[[str, int], None]) -> bool:
        """False: the store refused it, try the same message again in the next round."""
        properties = message.properties.decode("utf-8", "replace")
        topic = find(properties, Property.REAL_TOPIC)
        queue_text = find(properties, Property.REAL_QID) or "0"
        if topic is None or topic == HALF_TOPIC or not queue_text.isdigit():
            log.error("dropped delayed message physical_offset=%d real_topic=%r", message.physical_offset, topic)
            return True
        result = store.put(
            AppendRequest(
                topic,
                int(queue_text),
                message.body,
                properties,
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_time_ms=message.born_timestamp_ms,
                born_host=encode_host(message.born_host),
                reconsume_times=message.reconsume_times,
                prepared_offset=message.prepared_transaction_offset,
                wait=False,
            )
        )
        if result.status == PutStatus.MESSAGE_ILLEGAL or result.status == PutStatus.PROPERTIES_SIZE_EXCEEDED:
            log.error("dropped delayed message physical_offset=%d reason=%s", message.physical_offset, result.remark)
            return True
        if result.status != PutStatus.OK:
            return False
        delivered(topic, result.record_bytes)
        return True

    def _advance(self, level: int, offset: int, now_ms: int) -> None:
        self.offsets[level] = offset
        self.changes += 1
        self._advanced += 1
        if self._advanced % VERSION_STEP == 0:
            self.version = next_version(self.version, now_ms)
