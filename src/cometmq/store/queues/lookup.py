"""Finding messages other than by queue offset: by time, by key, by place in the log.

By time: store times never fall along a queue, so a binary search over its units finds the first message at or after a
time. Only the store time inside the records counts; dates of files say nothing, so a copied store gives the same
answers.

By key: the index gives places in the log. It knows hashes, so the answer may hold messages of other keys; who asked
compares.

By place: an offset that does not hit the start of a record finds nothing.

A search by time touches records all over the log, whose pages may not be in memory. Who gives a set of places as
`loaded` gets ColdPage where the search would wait for the disk: load the page elsewhere, add its place, search again.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from cometmq.store.disk import File
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.options import StoreOptions
from cometmq.store.queues.batch_queue import BATCH_UNIT_BYTES, BatchQueue
from cometmq.store.queues.consume_queue import BLANK_SIZE, ConsumeQueue
from cometmq.store.queues.consume_queues import AnyQueue, ConsumeQueues
from cometmq.store.queues.index import KEY, Index
from cometmq.store.queues.reading import Reading
from cometmq.wire.record.layout import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, struct_of
from cometmq.wire.record.message import store_timestamp_at

_HEAD: Final = struct_of(("record_bytes", "magic", "physical_offset"))
_I64: Final = Struct(">q")


class ColdPage(Exception):
    """The record at `physical_offset` is not in memory; reading `range` in another thread brings it there."""

    def __init__(self, physical_offset: int, file_range: tuple[File, int, int]) -> None:
        super().__init__(physical_offset)
        self.physical_offset = physical_offset
        self.range = file_range


class QueryResult:
    """`records` in log order; the other two say how far the index reaches."""

    def __init__(self, index_time_ms: int, index_offset: int) -> None:
        self.records: list[memoryview] = []
        self.index_time_ms = index_time_ms
        self.index_offset = index_offset


class Lookup:
    def __init__(
        self, commitlog: CommitLog, queues: ConsumeQueues, index: Index, options: StoreOptions, reading: Reading
    ) -> None:
        self._log = commitlog
        self._reading = reading
        self._queues = queues
        self._index = index
        self._options = options

    # By place

    def record_at(self, physical_offset: int, size: int | None = None) -> memoryview | None:
        """The record that starts here; None if none does. `size`: what the caller believes it to be."""
        segment = self._log.segments.find(physical_offset)
        if segment is None:
            return None
        position = physical_offset - segment.start
        if position + RECORD_BYTES_MIN > segment.wrote:
            return None
        try:
            view = segment.view()
        except OSError:
            return None
        found, magic, stated_offset = _HEAD.unpack_from(view, position)
        if magic not in (MAGIC_V1, MAGIC_V2) or stated_offset != physical_offset or size not in (None, found):
            return None
        if not RECORD_BYTES_MIN <= found <= segment.wrote - position:
            return None
        return view[position : position + found]

    def store_time_at(self, physical_offset: int, loaded: set[int] | None = None) -> int:
        """When the record that starts here was stored; -1 if there is none."""
        if loaded is not None and physical_offset not in loaded:
            file_range = self._reading.cold_range(physical_offset, RECORD_BYTES_MIN)
            if file_range is not None:
                raise ColdPage(physical_offset, file_range)
        record = self.record_at(physical_offset)
        return -1 if record is None else _store_time(record)

    def earliest_log_time(self) -> int:
        """Store time of the first record of the log; -1 if it has none."""
        for segment in self._log.segments.segments:
            time_ms = self.store_time_at(segment.start)
            if time_ms >= 0:
                return time_ms
        return -1

    # By queue

    def queue_store_time(self, topic: str, queue_id: int, queue_offset: int, loaded: set[int] | None = None) -> int:
        """Store time of one message of a queue; -1 if it is not there."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._unit_time(queue, queue_offset, loaded)

    def earliest_time(self, topic: str, queue_id: int, loaded: set[int] | None = None) -> int:
        """Store time of the first message of a queue; -1 if it has none."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else self._unit_time(queue, max(0, queue.min_offset), loaded)

    def physical_offset(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where the message lies in the log; -1 if the queue does not have it."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.unit(queue_offset) if isinstance(queue, ConsumeQueue) else None
        return -1 if unit is None or unit[1] == BLANK_SIZE else unit[0]

    def _unit_time(self, queue: AnyQueue, queue_offset: int, loaded: set[int] | None = None) -> int:
        if isinstance(queue, BatchQueue):
            batch_unit = queue.unit_at(queue.position_of(queue_offset))
            return -1 if batch_unit is None else batch_unit.store_time_ms
        unit = queue.unit(queue_offset)
        return -1 if unit is None or unit[1] == BLANK_SIZE else self.store_time_at(unit[0], loaded)

    # By time

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, upper: bool = False, loaded: set[int] | None = None
    ) -> int:
        """The first message stored at or after `time_ms`; the end of the queue if there is none.

        With `upper` the last message stored at or before it; the first of the queue if there is none. An unknown queue
        answers 0.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            return 0
        if isinstance(queue, BatchQueue):
            return self._batch_offset_by_time(queue, time_ms)
        first, end = queue.min_offset, queue.max_offset
        if upper:
            return max(first, self._first_at(queue, first, end, time_ms + 1, loaded) - 1)
        return self._first_at(queue, first, end, time_ms, loaded)

    def _first_at(self, queue: ConsumeQueue, low: int, high: int, time_ms: int, loaded: set[int] | None) -> int:
        """The first number from `low` to `high` whose message was stored at or after `time_ms`."""
        while low < high:
            middle = (low + high) // 2
            # A message that cannot be read has no time; the next one that can speaks for it.
            readable = middle
            found_ms = self._unit_time(queue, readable, loaded)
            while found_ms < 0 and readable + 1 < high:
                readable += 1
                found_ms = self._unit_time(queue, readable, loaded)
            if 0 <= found_ms < time_ms:
                low = readable + 1
            else:
                high = middle
        return low

    def _batch_offset_by_time(self, queue: BatchQueue, time_ms: int) -> int:
        """The base of the first unit stored at or after `time_ms`; of the newest unit if all are older."""
        low = queue.min_position // BATCH_UNIT_BYTES
        high = queue.files.end // BATCH_UNIT_BYTES - 1
        while low < high:
            middle = (low + high) // 2
            unit = queue.unit_at(middle * BATCH_UNIT_BYTES)
            if unit is None or unit.store_time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        unit = queue.unit_at(low * BATCH_UNIT_BYTES)
        return max(0, queue.min_offset) if unit is None else unit.base

    # By key

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, kind: str = KEY) -> QueryResult:
        """Messages stored from `begin_ms` to `end_ms` that may carry the key."""
        files = self._index.files
        result = QueryResult(files[-1].end_time_ms if files else 0, files[-1].end_offset if files else 0)
        count_max = min(count_max, self._options.query_messages_max)
        for offset in sorted(self._index.query(topic, key, count_max, begin_ms, end_ms, kind)):
            record = self.record_at(offset)
            if record is not None:
                result.records.append(record)
        return result


def _store_time(record: memoryview) -> int:
    return int(_I64.unpack_from(record, store_timestamp_at(record, 0))[0])
