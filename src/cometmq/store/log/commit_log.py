"""The commit log: one run of records for all topics.

    | record | record | record | blank ... |   | record | record |                 |
    0                          segment_bytes                     max_offset

A record lies in one segment and leaves at least 8 bytes behind it. One that does not fit is preceded by a blank record
that closes the segment; a batch is treated as one piece. The blank is written when the next segment is there: a put
that is refused leaves the log as it was.

Every put runs from start to end on the one thread that owns the store. So there is no lock, store times never fall,
and a put that fails raises no counter and leaves no hole.

`append()` writes the record straight into the mapped segment. This module is compiled; figures are in docs/store.md.
Checks come in the order of RocketMQ's, the first failure wins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from cometmq.clock import Clock
from cometmq.errors import StoreError, WireError
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.disk import DiskFull
from cometmq.store.log.append import LOCAL_HOST, AppendRequest, PutMetrics
from cometmq.store.log.segments import Segment, Segments
from cometmq.store.log.write_flags import Flags
from cometmq.store.options import StoreOptions
from cometmq.store.queues.next_offsets import INNER_COUNT_MAX, NO_NAMES, QueueCounters, TopicQueues
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.hashing import crc31
from cometmq.wire.record.batch import BatchMember, split_batch
from cometmq.wire.record.crc import reserve_crc, seal_crc
from cometmq.wire.record.layout import BLANK_BYTES
from cometmq.wire.record.message import encode_blank, record_size, write_record
from cometmq.wire.record.properties import PROPERTIES_BYTES_MAX, Property, find, with_property, without
from cometmq.wire.record.sysflag import INNER_BATCH, NEEDS_UNWRAP, TRANSACTION_MASK, enters_consume_queue

log = logging.getLogger(__name__)

RECORD_BYTES_OVER_BODY: Final = 64 << 10
# How long puts are refused after an append that took over `page_cache_busy_ms`: what piled up meanwhile goes
# elsewhere instead of pressing on a disk that does not keep up.
BUSY_AFTER_STALL_S: Final = 0.1
SLOW_PUT_S: Final = 0.5
QUICK_PUT_S: Final = 0.001
# From here on one write is cheaper than a fault for every page of the map, and than taking each page from the map again
# before it is synced, which interrupts every processor that runs a thread of ours.
PWRITE_BYTES: Final = 16 << 10
DESK_BYTES: Final = 1 << 20

_NEVER_PREPARE: Final = 1 << 62


class CommitLog:
    def __init__(self, segments: Segments, flags: Flags, clock: Clock, options: StoreOptions) -> None:
        self.segments = segments
        self.flags = flags
        self.metrics = PutMetrics()
        self.counters = QueueCounters(
            options.version_by_topic_length,
            options.lmq_enabled and options.multi_dispatch_enabled,
            options.lmq_queues_max if options.lmq_quota_enabled else -1,
        )
        self.store_host: bytes = LOCAL_HOST
        self.message_bytes_max = options.message_bytes_max
        # Why puts are refused before anything else is looked at: "" while they are not.
        self.closed: str = ""
        self.max_offset = 0
        # What replicas confirmed; counts only in duplication or controller mode.
        self.confirmed_offset = 0
        self.confirm_by_replicas = options.duplication_enabled or options.controller_mode
        self._segment: Segment | None = None
        self._prepare_at = _NEVER_PREPARE
        self._segment_bytes = segments.segment_bytes
        self._sync_flush = options.sync_flush
        self._property_crc = options.property_crc_append
        self._scratch: memoryview = memoryview(b"")
        self.busy_s = options.page_cache_busy_ms / 1000
        self._busy_until_s = 0.0
        self._now_ms: Callable[[], int] = clock.now_ms
        self._monotonic: Callable[[], float] = clock.monotonic
        self._store_time_ms = 0
        self._refusals: dict[str, ThinnedLog] = {}
        self._clock = clock

    # Where things are

    @property
    def min_offset(self) -> int:
        return self.segments.min_offset

    @property
    def flushed_offset(self) -> int:
        return self.segments.flushed_offset

    @property
    def confirm_offset(self) -> int:
        """Up to here consumers may see."""
        if self.confirm_by_replicas:
            return self.confirmed_offset
        return self.segments.flushed_offset if self._sync_flush else self.max_offset

    @property
    def busy(self) -> bool:
        return self._busy_until_s > 0 and self._monotonic() < self._busy_until_s

    def refresh(self) -> None:
        """Take over what loading, recovery or cutting made of the segments."""
        self._segment = self.segments.last()
        self.max_offset = self.segments.max_offset
        self._prepare_at = self.segments.prepare_at()

    def take_up(self, store_time_ms: int) -> None:
        """Go on where another master stopped: store times never fall."""
        self._store_time_ms = max(self._store_time_ms, store_time_ms)
        self.closed = ""

    # Appending

    def append(self, request: AppendRequest) -> PutResult:
        """Store one message. The result's status is OK, or says why nothing was written."""
        began_s = self._monotonic()
        refused = self._refuse_early(request, began_s)
        if refused is not None:
            return refused
        queues = self.counters.topics[request.topic]
        queue_offset = 0
        raise_by = 0
        if enters_consume_queue(request.sys_flag):
            queue_offset = queues.next_offset(request.queue_id)
            raise_by = 1
        light_names = NO_NAMES
        if request.sys_flag & INNER_BATCH or "INNER_" in request.properties:
            refused = self._refuse_inner(request)
            if refused is not None:
                return refused
            if request.sys_flag & INNER_BATCH:
                raise_by = self.counters.number_inner_batch(request, queue_offset)
            light_names = self.counters.light_names(request)
            if light_names:
                self.counters.number_light_queues(request, light_names)

        member = self._encoded(request)
        if member is None:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL, "encoding", "properties hold a lone surrogate: not UTF-8")
        _, body, properties = member
        record_bytes = record_size(queues.field, len(body), len(properties), request.born_host, self.store_host)
        limit = self.message_bytes_max if light_names else self.message_bytes_max + RECORD_BYTES_OVER_BODY
        if len(properties) > PROPERTIES_BYTES_MAX:
            return self._refuse_properties(len(properties))
        if len(body) > self.message_bytes_max or record_bytes > limit:
            return self._refuse(
                PutStatus.MESSAGE_ILLEGAL,
                "size",
                f"body of {len(body)} bytes makes a record of {record_bytes}, maxMessageSize={self.message_bytes_max}",
            )
        result = self._write(request, queues, queue_offset, [member], record_bytes)
        if result.status == PutStatus.OK:
            if raise_by:
                queues.set_next_offset(request.queue_id, queue_offset + raise_by)
            if light_names:
                self.counters.raise_light_queues(light_names)
            if request.sys_flag & INNER_BATCH:
                result.count = raise_by
            self._note(began_s, result.count, record_bytes, record_bytes)
        return result

    def append_batch(self, request: AppendRequest) -> PutResult:
        """Store the members of a batch, whose body is in the producer's form: all of them in one segment, or none.

        In a topic of batches (BatchCQ) the batch is one record, which consumers take apart.
        """
        if self.counters.is_batch_topic(request.topic) and not request.sys_flag & INNER_BATCH:
            return self._append_whole(request)
        began_s = self._monotonic()
        refused = self._refuse_early(request, began_s) or self._refuse_inner(request)
        if refused is not None:
            return refused
        body = request.body
        assert body is not None
        try:
            members = split_batch(body)
            fault = _batch_fault(request, len(members), self.message_bytes_max)
        except WireError as error:
            fault = str(error)
        if fault:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL, "batch", fault)
        if self._property_crc:
            members = [_with_crc_room(member) for member in members]
        queues = self.counters.topics[request.topic]
        lengths: list[int] = []
        total_bytes = 0
        for _flag, member_body, properties in members:
            if len(properties) > PROPERTIES_BYTES_MAX:
                return self._refuse_properties(len(properties))
            length = record_size(queues.field, len(member_body), len(properties), request.born_host, self.store_host)
            lengths.append(length)
            total_bytes += length
        queue_offset = queues.next_offset(request.queue_id)
        result = self._write(request, queues, queue_offset, members, total_bytes)
        if result.status == PutStatus.OK:
            result.lengths = tuple(lengths)
            result.members = members
            queues.set_next_offset(request.queue_id, queue_offset + len(members))
            self._note(began_s, len(members), total_bytes, max(lengths))
        return result

    def _append_whole(self, request: AppendRequest) -> PutResult:
        count = 0
        fault = ""
        if request.body is not None:
            try:
                count = len(split_batch(request.body, INNER_COUNT_MAX))
                fault = _batch_fault(request, count, self.message_bytes_max)
            except WireError as error:
                fault = str(error)
        if fault:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL, "batch", fault)
        request.sys_flag |= NEEDS_UNWRAP | INNER_BATCH
        request.properties = with_property(request.properties, Property.INNER_NUM, str(count))
        return self.append(request)

    def _write(
        self,
        request: AppendRequest,
        queues: TopicQueues,
        queue_offset: int,
        members: list[BatchMember],
        total_bytes: int,
    ) -> PutResult:
        """`members` back to back, `total_bytes` in all, or nothing of them."""
        refused = self._make_room(total_bytes)
        if refused is not None:
            return refused
        segment = self._segment
        assert segment is not None
        store_time_ms = self._next_store_time()
        at = segment.wrote
        physical_offset = segment.start + at
        try:
            if total_bytes < PWRITE_BYTES:
                self._write_in_map(segment, request, queues, queue_offset, members, total_bytes)
            else:
                self._write_at_once(segment, request, queues, queue_offset, members, total_bytes)
        except WireError as error:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL, "encoding", str(error))
        segment.wrote = at + total_bytes
        segment.store_time_ms = store_time_ms
        self.max_offset = physical_offset + total_bytes
        if self.max_offset >= self._prepare_at:
            self._ask_ahead()
        return PutResult(
            PutStatus.OK,
            physical_offset,
            total_bytes,
            store_time_ms,
            queue_offset,
            len(members),
            self.max_offset,
            "",
            (),
        )

    def _write_in_map(
        self,
        segment: Segment,
        request: AppendRequest,
        queues: TopicQueues,
        queue_offset: int,
        members: list[BatchMember],
        total_bytes: int,
    ) -> None:
        """Small ones are made where they will lie."""
        at = segment.wrote
        view = segment.view()
        if at + total_bytes > segment.touched:
            segment.touch(at + total_bytes)
        try:
            made = self._make(view, at, segment.start + at, request, queues, queue_offset, members)
            assert made == total_bytes, f"made {made} bytes, not {total_bytes}"
        except BaseException:
            # Whole members may lie behind the end. After a crash recovery would take them for messages.
            view[at : at + total_bytes] = bytes(total_bytes)
            raise

    def _write_at_once(
        self,
        segment: Segment,
        request: AppendRequest,
        queues: TopicQueues,
        queue_offset: int,
        members: list[BatchMember],
        total_bytes: int,
    ) -> None:
        """Large ones are made aside, for one write."""
        at = segment.wrote
        desk = self._desk_for(total_bytes)
        made = self._make(desk, 0, segment.start + at, request, queues, queue_offset, members)
        assert made == total_bytes, f"made {made} bytes, not {total_bytes}"
        try:
            segment.file.pwrite(at, desk[:total_bytes])
        except BaseException:
            # As above: some of it may have been written.
            segment.view()[at : at + total_bytes] = bytes(total_bytes)
            raise

    def _make(
        self,
        view: memoryview,
        position: int,
        physical_offset: int,
        request: AppendRequest,
        queues: TopicQueues,
        queue_offset: int,
        members: list[BatchMember],
    ) -> int:
        """The only place where records are made. Returns how many bytes they have."""
        made = 0
        for flag, body, properties in members:
            record_bytes = write_record(
                view,
                position + made,
                queues.field,
                body,
                properties,
                crc31(body),
                request.queue_id,
                flag,
                queue_offset,
                physical_offset + made,
                request.sys_flag,
                request.born_time_ms,
                request.born_host,
                self._store_time_ms,
                self.store_host,
                request.reconsume_times,
                request.prepared_offset,
            )
            if self._property_crc:
                seal_crc(view, position + made, record_bytes)
            made += record_bytes
            queue_offset += 1
        return made

    def _desk_for(self, count: int) -> memoryview:
        """Memory to make records in; what a rare large batch needs is not kept."""
        if count > DESK_BYTES:
            return memoryview(bytearray(count))
        if len(self._scratch) < count:
            self._scratch = memoryview(bytearray(max(count, 2 * len(self._scratch))))
        return self._scratch

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Append bytes of another log as they are, on a replica. An empty log may begin anywhere.

        StoreError if they do not continue this log; DiskFull or OSError if a segment cannot be made: what came
        before it is in the log.
        """
        if self.segments.segments and physical_offset != self.max_offset:
            raise StoreError(
                f"cannot append at {physical_offset}: this log ends at {self.max_offset}; "
                "cut it there or copy the log anew"
            )
        rest = memoryview(data)
        while len(rest):
            segment = self.segments.last()
            if segment is None or segment.is_full:
                segment = self.segments.roll(physical_offset)
                if segment is None:
                    raise StoreError(f"no segment for offset {physical_offset} in time: the disk is too slow")
            segment.reserve()
            count = min(len(rest), segment.size - segment.wrote)
            if count < PWRITE_BYTES:
                if segment.wrote + count > segment.touched:
                    segment.touch(segment.wrote + count)
                segment.view()[segment.wrote : segment.wrote + count] = rest[:count]
            else:
                segment.file.pwrite(segment.wrote, rest[:count])
            segment.wrote += count
            physical_offset += count
            rest = rest[count:]
            self.refresh()
        if self.max_offset >= self._prepare_at:
            self._ask_ahead()

    def _encoded(self, request: AppendRequest) -> BatchMember | None:
        """Flag, body and properties as the record has them; None if they cannot be bytes."""
        body = request.body
        assert body is not None
        try:
            if self._property_crc:
                properties = reserve_crc(without(request.properties, Property.CRC32).encode())
            else:
                properties = request.properties.encode()
        except UnicodeEncodeError:
            return None
        return request.flag, body, properties

    def _next_store_time(self) -> int:
        """Now, but never before the record before it: searching by time depends on that."""
        now_ms = self._now_ms()
        if now_ms > self._store_time_ms:
            self._store_time_ms = now_ms
        return self._store_time_ms

    def _ask_ahead(self) -> None:
        self._prepare_at = _NEVER_PREPARE
        self.segments.ask_ahead()

    def _make_room(self, count: int) -> PutResult | None:
        """See that the current segment can take `count` bytes and a blank record, or say why not."""
        segment = self._segment
        if segment is not None and segment.reserved and segment.wrote + count + BLANK_BYTES <= segment.size:
            return None
        if count + BLANK_BYTES > self._segment_bytes:
            return self._refuse(
                PutStatus.MESSAGE_ILLEGAL,
                "size",
                f"{count} bytes fit no segment, mappedFileSizeCommitLog={self._segment_bytes}",
            )
        try:
            if segment is not None and segment.wrote + count + BLANK_BYTES <= segment.size:
                segment.reserve()
                return None
            following = self.segments.roll()
        except DiskFull as error:
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE, "disk full", str(error))
        except OSError as error:
            return self._refuse(PutStatus.CREATE_FILE_FAILED, "create", f"cannot create a segment: {error}")
        if following is None:
            return self._refuse(PutStatus.CREATE_FILE_FAILED, "create", "the next segment is not ready: slow disk")
        if segment is not None and not segment.is_full:
            blank = encode_blank(segment.size - segment.wrote)
            segment.view()[segment.wrote : segment.wrote + BLANK_BYTES] = blank
            segment.wrote = segment.size
            segment.store_time_ms = self._next_store_time()
        self.refresh()
        return None

    def _note(self, began_s: float, messages: int, count: int, largest: int) -> None:
        metrics = self.metrics
        metrics.messages += messages
        metrics.bytes += count
        if largest > metrics.largest_bytes:
            metrics.largest_bytes = largest
        elapsed_s = self._monotonic() - began_s
        if elapsed_s <= QUICK_PUT_S and elapsed_s <= metrics.longest_s and elapsed_s <= self.busy_s:
            # Nearly every put ends here.
            metrics.times[0] += 1
            return
        metrics.took(elapsed_s)
        if elapsed_s > SLOW_PUT_S:
            log.warning("put slowly took_ms=%.0f messages=%d bytes=%d", elapsed_s * 1000, messages, count)
        if elapsed_s > self.busy_s:
            self._busy_until_s = began_s + elapsed_s + BUSY_AFTER_STALL_S
            log.warning("stalled append took_ms=%d limit_ms=%d", elapsed_s * 1000, self.busy_s * 1000)

    # Refusing

    def _refuse_early(self, request: AppendRequest, now_s: float) -> PutResult | None:
        """The checks that do not depend on the message's size. None: go on, and the topic has its counters."""
        if self.closed:
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE, "closed", self.closed)
        if not self.flags.writable:
            reasons = self.flags.reasons()
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE, reasons, self.flags.refusal())
        queues = self.counters.topics.get(request.topic)
        if queues is None or not queues.field:
            fault = self.counters.topic_fault(request.topic)
            if fault:
                return self._refuse(PutStatus.MESSAGE_ILLEGAL, "topic", fault)
        if request.body is None:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL, "body", f"the message for {request.topic} has no body")
        if now_s < self._busy_until_s:
            return self._refuse(
                PutStatus.OS_PAGE_CACHE_BUSY,
                "busy",
                f"an append took over {self.busy_s * 1000:.0f} ms (osPageCacheBusyTimeOutMills): slow disk",
            )
        return None

    def _refuse_inner(self, request: AppendRequest) -> PutResult | None:
        fault = self.counters.inner_fault(request)
        if fault:
            return self._refuse(PutStatus.MESSAGE_ILLEGAL, "inner batch", fault)
        fault = self.counters.quota_fault(self.counters.light_names(request))
        if fault:
            return self._refuse(PutStatus.LMQ_QUOTA_EXCEEDED, "light queues", fault)
        return None

    def _refuse_properties(self, count: int) -> PutResult:
        return self._refuse(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            "properties",
            f"properties have {count} bytes, the limit is {PROPERTIES_BYTES_MAX}",
        )

    def _refuse(self, status: int, kind: str, remark: str) -> PutResult:
        self.metrics.failed += 1
        thinned = self._refusals.get(kind)
        if thinned is None:
            thinned = self._refusals[kind] = ThinnedLog(log, self._clock)
        thinned.warning("refused put reason=%r", remark)
        return PutResult(status, -1, 0, 0, -1, 0, -1, remark, ())

    # Reading

    def get(self, physical_offset: int, count: int) -> memoryview | None:
        """Exactly these bytes, or None if the log does not have all of them in one segment (any more)."""
        segment = self.segments.find(physical_offset, physical_offset == 0)
        if segment is None:
            return None
        position = physical_offset - segment.start
        if position < 0 or position + count > segment.wrote:
            return None
        try:
            return segment.view()[position : position + count]
        except OSError:
            return None

    def read_from(self, physical_offset: int) -> tuple[int, memoryview] | None:
        """From here to the end of what is written in this segment; (real start, bytes).

        For offset 0 the oldest segment answers, wherever it begins. None if there is nothing.
        """
        segment = self.segments.find(physical_offset, physical_offset == 0)
        if segment is None:
            return None
        position = max(0, physical_offset - segment.start)
        if position >= segment.wrote:
            return None
        try:
            return segment.start + position, segment.view()[position : segment.wrote]
        except OSError:
            return None


def _batch_fault(request: AppendRequest, count: int, bytes_max: int) -> str:
    if request.sys_flag & TRANSACTION_MASK:
        return "a batch cannot be part of a transaction"
    delay = find(request.properties, Property.DELAY)
    if delay is not None and delay.strip("0"):
        return f"a batch cannot be delayed: DELAY is {delay[:20]!r}"
    if count == 0:
        return "the batch is empty"
    body = request.body
    if body is not None and len(body) > bytes_max:
        return f"batch of {count} messages has {len(body)} bytes, maxMessageSize={bytes_max}"
    return ""


def _with_crc_room(member: BatchMember) -> BatchMember:
    flag, body, properties = member
    if b"__CRC32#\x01" in properties:
        properties = without(properties.decode("utf-8", "replace"), Property.CRC32).encode()
    return flag, body, reserve_crc(properties, True)
