"""From the commit log to everything that is built from it: consume queue, index, the notice to who waits.

    log        | r | r | r | r | r | r |
                        ^position       ^confirm offset      position follows; behind_bytes is the distance

One record at a time, in log order: first the consume queue, then the index, then the arrival notice, so whoever is
woken finds the message. Doing a record twice changes nothing.

Right after an append the fields of the record are still at hand: `appended()` takes them and saves reading the record
again. Of a record that disk or replicas have to confirm first they are kept, for the step that follows. What is
neither, `step()` reads from the log: what replicas get, batches that wait, a place where dispatch had to stop.

A damaged place is reported once, with its offset, and left as it is; dispatch goes on with the next record behind it.
In the last segment of a replica the rest of a record may still be on its way, so there it waits.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable
from typing import Final, TypeAlias

from cometmq.clock import Clock
from cometmq.errors import StoreError
from cometmq.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX, takes_no_sends
from cometmq.store.disk import DiskFull
from cometmq.store.log.append import AppendRequest
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.resync import Damage, next_record
from cometmq.store.log.segments import Segment
from cometmq.store.log.write_flags import INDEX_FAILED
from cometmq.store.options import StoreOptions
from cometmq.store.queues.consume_queues import LMQ_PREFIX, ConsumeQueues
from cometmq.store.queues.index import Index
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.plain_scan import PlainScan
from cometmq.wire.record.properties import Property, find
from cometmq.wire.record.scan import BAD, BLANK, HALF, OK, RecordScan, scan_record
from cometmq.wire.record.sysflag import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK

log = logging.getLogger(__name__)

STEP_BYTES: Final = 1 << 20
# Records between the end of dispatch and that of the log whose fields are kept; the others are read again.
KEPT_MAX: Final = 1000
INDEX_TRIES: Final = 3
INDEX_RETRY_S: Final = 1.0
_TAGS_CACHED_MAX: Final = 10_000
_PLAIN_IN_BATCH_TOPIC: Final = "left out plain message of a batch topic topic=%s physical_offset=%d"
_UNKNOWN_LEVEL_DELAY_MS: Final = 1000
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# A property inside the text, and at its start.
_TAGS: Final = "\x02TAGS\x01"
_TAGS_FIRST: Final = "TAGS\x01"
_KEYS: Final = "\x02KEYS\x01"
_KEYS_FIRST: Final = "KEYS\x01"
_UNIQ_KEY: Final = "\x02UNIQ_KEY\x01"
_UNIQ_KEY_FIRST: Final = "UNIQ_KEY\x01"
_NOT_MULTI_DISPATCHED: Final = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_PREFIX)

# topic, queue id, offset behind the message, tag code, store time in ms, properties
OnArrival: TypeAlias = Callable[[str, int, int, int, int, str], object]


class _BothListeners:
    def __init__(self, first: OnArrival, second: OnArrival) -> None:
        self._first: OnArrival = first
        self._second: OnArrival = second

    def told(
        self, topic: str, queue_id: int, next_offset: int, tag_code: int, store_time_ms: int, properties: str
    ) -> None:
        self._first(topic, queue_id, next_offset, tag_code, store_time_ms, properties)
        self._second(topic, queue_id, next_offset, tag_code, store_time_ms, properties)


class Dispatcher:
    def __init__(
        self,
        commitlog: CommitLog,
        queues: ConsumeQueues,
        index: Index,
        options: StoreOptions,
        clock: Clock,
    ) -> None:
        self.position: int = 0
        self.damages: list[Damage] = []
        # Told of each message that is in its queue, once there is anybody.
        self._arrived: OnArrival | None = None
        # In log order. Records may be missing in between; those before `position` are of no use any more.
        self._kept: list[RecordScan] = []
        self._log: CommitLog = commitlog
        self._queues: ConsumeQueues = queues
        self._index: Index = index
        self._index_enabled: bool = options.index_enabled
        # The first message that found no room in the index; -1: none.
        self.unindexed_from: int = -1
        self._index_failures: int = 0
        self._retry_at_s: float = 0.0
        self._clock: Clock = clock
        self._is_slave: bool = options.is_slave or options.controller_mode
        self._read_uncommitted: bool = options.read_uncommitted
        self._multi_dispatch: bool = options.multi_dispatch_enabled
        self._lmq: bool = options.lmq_enabled
        self._delays_ms: list[int] = parse_delay_levels(options.delay_levels)
        self._tag_codes: dict[str, int] = {}

    def subscribe(self, listener: OnArrival) -> None:
        """Nobody is told of what recovery dispatches, because nobody can be here before it."""
        first = self._arrived
        self._arrived = listener if first is None else _BothListeners(first, listener).told

    @property
    def target(self) -> int:
        """Where dispatch ends for now."""
        return self._log.max_offset if self._read_uncommitted else self._log.confirm_offset

    @property
    def behind_bytes(self) -> int:
        return max(0, self.target - self.position)

    def cut(self, end: int, indexed_until: int) -> None:
        """The log ends here now, and the index knows nothing from `indexed_until` on."""
        self._kept.clear()
        self.position = min(self.position, end, indexed_until)

    # The two ways

    def appended(self, request: AppendRequest, result: PutResult) -> None:
        """Call this after every append. Does what the confirm offset allows."""
        if (
            result.physical_offset == self.position
            and result.status == PutStatus.OK
            and result.end_offset <= self.target
            and self._index_failures == 0
        ):
            if result.members:
                self._appended_batch(request, result)
            elif self.dispatch(
                request.topic,
                request.queue_id,
                result.physical_offset,
                result.record_bytes,
                result.queue_offset,
                request.sys_flag,
                result.store_time_ms,
                request.properties,
            ):
                self.position = result.end_offset
        elif result.end_offset > self.target:
            self._keep(request, result)
            if self.position < self.target:
                self.step()
        else:
            self.step()

    def _keep(self, request: AppendRequest, result: PutResult) -> None:
        """What dispatch reads of a scan, of a record that has to wait. The scan itself would take 1.2 us (compiled)."""
        if result.status == PutStatus.OK and not result.lengths and len(self._kept) < KEPT_MAX:
            record = RecordScan(OK, result.record_bytes, "")
            record.topic = request.topic
            record.queue_id = request.queue_id
            record.queue_offset = result.queue_offset
            record.physical_offset = result.physical_offset
            record.sys_flag = request.sys_flag
            record.store_timestamp_ms = result.store_time_ms
            record.properties = request.properties
            self._kept.append(record)

    def _appended_batch(self, request: AppendRequest, result: PutResult) -> None:
        """1.4 us a message less than reading the records again (compiled)."""
        queue_offset = result.queue_offset
        self._index.headers_later = True
        try:
            for length, member in zip(result.lengths, result.members, strict=True):
                properties = member[2].decode("utf-8", "replace")
                if not self.dispatch(
                    request.topic,
                    request.queue_id,
                    self.position,
                    length,
                    queue_offset,
                    request.sys_flag,
                    result.store_time_ms,
                    properties,
                ):
                    break
                self.position += length
                queue_offset += 1
        finally:
            self._index.headers_later = False
            self._index.write_headers()
        result.members = []

    def step(self, bytes_max: int = STEP_BYTES) -> bool:
        """Dispatch about `bytes_max` bytes of the log. True if there is more to do right now."""
        if self.unindexed_from >= 0 and self._clock.monotonic() >= self._retry_at_s:
            self._index_again()
        if self._index_failures and self._clock.monotonic() < self._retry_at_s:
            return False
        stop = min(self.target, self.position + bytes_max)
        if self.position < self._log.min_offset:
            log.warning("moved dispatch to the start of the log from=%d to=%d", self.position, self._log.min_offset)
            self.position = self._log.min_offset
        if self.position >= stop:
            return False
        # Who asks the index meanwhile does not read its header.
        self._index.headers_later = True
        try:
            while self.position < stop:
                following = self._step_over_kept(stop)
                if following < 0:
                    return False
                if following > self.position:
                    segment = self._log.segments.find(self.position)
                    if segment is None or not self._step_in(segment, following):
                        return False
        finally:
            self._index.headers_later = False
            self._index.write_headers()
        return self.position < self.target

    def _step_over_kept(self, stop: int) -> int:
        """Dispatch the records at `position` whose fields were kept.

        Returns up to where the log has to be read now; -1: nothing more can be done.
        """
        kept = self._kept
        done = 0
        for record in kept:
            if record.physical_offset >= self.position:
                if record.physical_offset != self.position or self.position >= stop:
                    break
                if self.position + record.size > self.target or not self._dispatch_scan(record):
                    del kept[:done]
                    return -1
                self.position += record.size
            done += 1
        del kept[:done]
        return min(stop, kept[0].physical_offset) if kept else stop

    def run(self) -> None:
        """Dispatch all that may be dispatched."""
        while self.step():
            pass

    def _step_in(self, segment: Segment, stop: int) -> bool:
        """Dispatch records of one segment up to `stop`. False: nothing more can be done now."""
        view = segment.view()
        limit = segment.wrote
        end = self.target
        while self.position < stop:
            at = self.position - segment.start
            if at >= limit:
                # Only a damaged place or a cut can bring us here with a segment behind this one.
                return self._leave(segment)
            scan = scan_record(view, at, limit, False)
            if scan.kind == OK:
                if self.position + scan.size > end or not self._dispatch_scan(scan):
                    return False
                self.position += scan.size
                if self._is_slave:
                    # A put notes it when it appends; a replica appends bytes and learns it here.
                    segment.store_time_ms = scan.store_timestamp_ms
            elif scan.kind == BLANK:
                self.position = segment.end
                return True
            elif not self._skip_damage(segment, at, scan):
                return False
        return True

    def _leave(self, segment: Segment) -> bool:
        if segment is self._log.segments.last():
            return False
        self.position = segment.end
        return True

    def _dispatch_scan(self, scan: RecordScan) -> bool:
        return self.dispatch(
            scan.topic,
            scan.queue_id,
            self.position,
            scan.size,
            scan.queue_offset,
            scan.sys_flag,
            scan.store_timestamp_ms,
            scan.properties,
        )

    # Damage

    def _skip_damage(self, segment: Segment, at: int, scan: RecordScan) -> bool:
        """Go on behind bytes that are no record. False: wait for the rest of it."""
        is_last = segment is self._log.segments.last()
        if scan.kind == BAD and is_last and self._is_slave:
            return False
        follows = at + scan.size if scan.kind == HALF else next_record(segment, at, segment.wrote)
        if follows < 0 or follows > segment.wrote:
            follows = segment.wrote if is_last else segment.size
        self.note_damage(Damage(self.position, segment.start + follows, scan.reason))
        self.position = segment.start + follows
        return True

    def note_damage(self, damage: Damage) -> None:
        """Report it, once, and let the queues know why numbers are missing behind it."""
        if damage.start in self._queues.damages:
            return
        log.error("found damage in log offset=%d end=%d reason=%s", damage.start, damage.end, damage.reason)
        self.damages.append(damage)
        insort(self._queues.damages, damage.start)

    # One record

    def dispatch(
        self,
        topic: str,
        queue_id: int,
        physical_offset: int,
        size: int,
        queue_offset: int,
        sys_flag: int,
        store_time_ms: int,
        properties: str,
    ) -> bool:
        """Build what one record asks for. False: try it again later."""
        transaction = sys_flag & TRANSACTION_MASK
        tag = _value(properties, _TAGS, _TAGS_FIRST)
        tags_code = 0
        if tag:
            cached = self._tag_codes.get(tag)
            tags_code = self._add_tag(tag) if cached is None else cached
        if topic == SCHEDULE_TOPIC:
            tags_code = self._deliver_time_ms(properties, store_time_ms, tags_code)
        in_queue = transaction == 0 or transaction == TRANSACTION_COMMIT
        light = ""
        if in_queue:
            if sys_flag & INNER_BATCH or self._is_batch_topic(topic):
                self._put_batch(topic, queue_id, physical_offset, size, tags_code, store_time_ms, properties)
            else:
                try:
                    self._queues.put(topic, queue_id, physical_offset, size, tags_code, store_time_ms, queue_offset)
                except StoreError as error:
                    self.note_damage(Damage(physical_offset, physical_offset + size, str(error)))
                    return True
            if self._multi_dispatch:
                light = find(properties, Property.INNER_MULTI_DISPATCH) or ""
                if light:
                    self._put_light(light, topic, physical_offset, size, tags_code, store_time_ms, properties, queue_id)
        if self._index_enabled and transaction != TRANSACTION_ROLLBACK:
            unique_key = _value(properties, _UNIQ_KEY, _UNIQ_KEY_FIRST)
            keys = _value(properties, _KEYS, _KEYS_FIRST)
            try:
                self._index.put(topic, physical_offset, store_time_ms, unique_key, keys, tag)
                self._index_failures = 0
            except (StoreError, OSError) as error:
                if not self._index_failed(error, physical_offset):
                    return False
        if self._arrived is not None and in_queue:
            self._arrived(topic, queue_id, queue_offset + 1, tags_code, store_time_ms, properties)
            if light:
                self._notify_light(light, topic, tags_code, store_time_ms, properties, queue_id)
        return True

    @property
    def takes_key_positions(self) -> bool:
        """Whether `dispatch_by_key_positions` does all of `dispatch`: whoever is told of arrivals wants the text."""
        return self._arrived is None and not self._multi_dispatch

    def dispatch_by_key_positions(self, plain: PlainScan, data: bytes) -> bool:
        """`dispatch()` of a plain record in `data` whose text was not made."""
        scan = plain.scan
        positions = plain.key_positions
        transaction = scan.sys_flag & TRANSACTION_MASK
        in_queue = transaction == 0 or transaction == TRANSACTION_COMMIT
        if in_queue and not self._put_plain(scan, positions.tag_hash(0, data)):
            return True
        if self._index_enabled and transaction != TRANSACTION_ROLLBACK:
            try:
                self._index.put_by_key_positions(
                    scan.topic, scan.physical_offset, scan.store_timestamp_ms, data, positions
                )
                self._index_failures = 0
            except (StoreError, OSError) as error:
                return self._index_failed(error, scan.physical_offset)
        return True

    def _put_plain(self, scan: RecordScan, tags_code: int) -> bool:
        """False: the record cannot be in any queue."""
        if self._is_batch_topic(scan.topic):
            log.error(_PLAIN_IN_BATCH_TOPIC, scan.topic, scan.physical_offset)
            return True
        offset, size = scan.physical_offset, scan.size
        try:
            self._queues.put(
                scan.topic, scan.queue_id, offset, size, tags_code, scan.store_timestamp_ms, scan.queue_offset
            )
        except StoreError as error:
            self.note_damage(Damage(offset, offset + size, str(error)))
            return False
        return True

    def _index_failed(self, error: Exception, physical_offset: int) -> bool:
        """True when it is time to give up: then nothing is indexed and the store takes no messages.

        Where only room is missing, this lasts until there is some.
        """
        self._index_failures += 1
        self._retry_at_s = self._clock.monotonic() + INDEX_RETRY_S
        log.error("failed to index tries=%d error=%s", self._index_failures, error)
        if self._index_failures < INDEX_TRIES:
            return False
        self._log.flags.set(INDEX_FAILED)
        self._index_enabled = False
        self._index_failures = 0
        if isinstance(error, DiskFull):
            self.unindexed_from = physical_offset
        return True

    def _index_again(self) -> None:
        """If the disk has room again, go back to the first message that is not in the index."""
        self._retry_at_s = self._clock.monotonic() + INDEX_RETRY_S
        try:
            self._index.make_room()
        except (StoreError, OSError):
            return
        log.info("indexes again from=%d", self.unindexed_from)
        self.position = min(self.position, self.unindexed_from)
        self.unindexed_from = -1
        self._index_enabled = True
        self._log.flags.clear(INDEX_FAILED)

    def _add_tag(self, tag: str) -> int:
        if len(self._tag_codes) >= _TAGS_CACHED_MAX:
            self._tag_codes.clear()
        code = self._tag_codes[tag] = java_string_hash(tag)
        return code

    def _deliver_time_ms(self, properties: str, store_time_ms: int, tags_code: int) -> int:
        """In a delay queue the tag code is the time of delivery."""
        level = _number(find(properties, Property.DELAY))
        if level <= 0:
            return tags_code
        if not self._delays_ms:
            return store_time_ms + _UNKNOWN_LEVEL_DELAY_MS
        return store_time_ms + self._delays_ms[min(level, len(self._delays_ms)) - 1]

    # Batches and light queues

    def _is_batch_topic(self, topic: str) -> bool:
        if self._queues.is_batch_topic is not None:
            return self._queues.is_batch_topic(topic)
        return topic in self._queues.batch_topics

    def _put_batch(
        self,
        topic: str,
        queue_id: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_time_ms: int,
        properties: str,
    ) -> None:
        base = _number(find(properties, Property.INNER_BASE))
        count = _number(find(properties, Property.INNER_NUM))
        if base < 0 or count <= 0:
            log.error(_PLAIN_IN_BATCH_TOPIC, topic, physical_offset)
            return
        try:
            self._queues.put_batch(topic, queue_id, physical_offset, size, tags_code, store_time_ms, base, count)
        except StoreError as error:
            self.note_damage(Damage(physical_offset, physical_offset + size, str(error)))

    def _light_targets(self, names: str, topic: str, properties: str, queue_id: int) -> list[tuple[str, int, int]]:
        """(light queue, queue id, queue offset) for each that this message goes to."""
        offsets = (find(properties, Property.INNER_MULTI_QUEUE_OFFSET) or "").split(",")
        targets = names.split(",")
        if topic.startswith(_NOT_MULTI_DISPATCHED) or topic == SCHEDULE_TOPIC:
            return []
        if len(targets) != len(offsets):
            log.error("left out light queues topic=%s names=%d offsets=%d", topic, len(targets), len(offsets))
            return []
        found: list[tuple[str, int, int]] = []
        for index in range(len(targets)):
            queue_offset = _number(offsets[index])
            if queue_offset >= 0 and "/" not in targets[index] and not takes_no_sends(targets[index]):
                is_light = self._lmq and targets[index].startswith(LMQ_PREFIX)
                found.append((targets[index], 0 if is_light else queue_id, queue_offset))
        return found

    def _put_light(
        self,
        names: str,
        topic: str,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_time_ms: int,
        properties: str,
        queue_id: int,
    ) -> None:
        for name, light_queue_id, queue_offset in self._light_targets(names, topic, properties, queue_id):
            try:
                self._queues.put(name, light_queue_id, physical_offset, size, tags_code, store_time_ms, queue_offset)
            except StoreError as error:
                log.error("left out light queue topic=%s error=%s", topic, error)

    def _notify_light(
        self,
        names: str,
        topic: str,
        tags_code: int,
        store_time_ms: int,
        properties: str,
        queue_id: int,
    ) -> None:
        assert self._arrived is not None
        for name, light_queue_id, queue_offset in self._light_targets(names, topic, properties, queue_id):
            self._arrived(name, light_queue_id, queue_offset + 1, tags_code, store_time_ms, properties)


def _value(properties: str, inside: str, first: str) -> str:
    """What `find()` gives, or "": three of these take 0.5 us a message, three of those 1.1 us (compiled)."""
    at = properties.rfind(inside)
    if at >= 0:
        start = at + len(inside)
    elif properties.startswith(first):
        start = len(first)
    else:
        return ""
    stop = properties.find("\x02", start)
    value = properties[start:] if stop < 0 else properties[start:stop]
    if not value and at >= 0:
        return find(properties, first[:-1]) or ""
    return value


def parse_delay_levels(text: str) -> list[int]:
    """Delays in ms of the levels 1, 2, ... of a text like "1s 5m 2h"."""
    levels: list[int] = []
    for word in text.split():
        unit_ms = _UNIT_MS.get(word[-1:])
        if unit_ms is None or not word[:-1].isdecimal():
            raise StoreError(f"messageDelayLevel has {word!r}: a number and one of s, m, h, d is expected")
        levels.append(int(word[:-1]) * unit_ms)
    return levels


def _number(text: str | None) -> int:
    """A number of decimal digits, -1 for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 19 else -1
