"""A whole store against a simple model, through random puts, flushes, crashes, starts, reads, searches and expiry.

The model is a list of messages in log order. A power cut keeps a prefix of it that has everything flushed; `kill -9`
and a clean stop keep all; expiry drops the oldest. Whatever is left must be found by queue, by time and by key, each
message once, and the next put must get the next number. A start may itself be cut short at any disk operation.
"""

import contextlib
import os
from bisect import bisect_left
from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cometmq.clock import ManualClock
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import StoredMessage, decode_record, decode_records
from cometmq.wire.record.properties import encode
from tests.support.parts import files_below
from tests.support.whole_store import ROOT, open_store

TOPICS = ("TopicA", "TopicB")
KEYS = ("red", "green", "blue")
EVER = (0, 1 << 60)
SMALL_FILES: dict[str, Any] = {
    "segment_bytes": 8192,
    "queue_file_bytes": 200,
    "index_slots": 5,
    "index_entries": 12,
}


class Died(Exception):
    """The process ends here."""


class Message:
    def __init__(self, topic: str, queue_id: int, number: int, body: bytes, key: str, time_ms: int, end: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.number = number
        self.body = body
        self.key = key
        self.time_ms = time_ms
        self.end = end
        self.start = -1


class StoreAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.disk = FakeDisk(now_ms=self.clock.now_ms)
        self.messages: list[Message] = []
        self.options: dict[str, Any] = {}
        self.bodies = 0
        self.expired_to: dict[tuple[str, int], int] = {}

    @initialize(sync_flush=st.booleans(), lazy_names=st.booleans())
    def start(self, sync_flush: bool, lazy_names: bool) -> None:
        self.disk = FakeDisk(now_ms=self.clock.now_ms, lazy_names=lazy_names)
        self.options = {**SMALL_FILES, "flush_disk_type": "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"}
        self.open()

    def open(self) -> None:
        self.store = open_store(self.disk, self.clock, **self.options)

    @property
    def store(self) -> Store:
        return self._store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    # What happens to it

    @rule(
        topic=st.sampled_from(TOPICS),
        queue_id=st.integers(0, 1),
        key=st.sampled_from(KEYS),
        size=st.sampled_from((0, 10, 100, 600, 3000)),
        count=st.integers(1, 6),
    )
    def put(self, topic: str, queue_id: int, key: str, size: int, count: int) -> None:
        for _ in range(count):
            self.clock.advance(0.007)
            body = self.next_body(size)
            request = AppendRequest(topic, queue_id, body, encode({"KEYS": key, "TAGS": key}).decode())
            result = self.store.put(request)
            assert result.status == PutStatus.OK, result
            assert result.queue_offset == self.next_number(topic, queue_id)
            message = Message(topic, queue_id, result.queue_offset, body, key, result.store_time_ms, result.end_offset)
            message.start = result.physical_offset
            self.messages.append(message)

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, 1), count=st.integers(1, 5))
    def put_batch(self, topic: str, queue_id: int, count: int) -> None:
        self.clock.advance(0.007)
        bodies = [self.next_body(50) for _ in range(count)]
        key = KEYS[count % 3]
        result = self.store.put_batch(
            AppendRequest(topic, queue_id, encode_batch([(0, body, encode({"KEYS": key})) for body in bodies]))
        )
        assert result.status == PutStatus.OK, result
        start = result.physical_offset
        for body, length in zip(bodies, result.lengths, strict=True):
            number = self.next_number(topic, queue_id)
            message = Message(topic, queue_id, number, body, key, result.store_time_ms, start + length)
            message.start = start
            self.messages.append(message)
            start += length

    @rule(seconds=st.sampled_from((0.001, 1.0, 100.0)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def flush_log(self) -> None:
        self.store.flush_now()

    @rule()
    def write_queues(self) -> None:
        self.store.write_queues()

    @rule()
    def flush_queues(self) -> None:
        self.store.flush_queues_now()

    @rule()
    def prepare_segments(self) -> None:
        self.store.allocate_now()

    @precondition(lambda self: len(self.store.segments.segments) > 2)
    @rule(count=st.integers(1, 2))
    def expire(self, count: int) -> None:
        # What is old enough to expire was flushed long ago.
        self.store.flush_now()
        self.store.flush_queues_now()
        self.store.options.delete_files_max = count
        self.disk.space_used_ratio = 0.86
        assert self.store.retention.run_now() == count
        self.disk.space_used_ratio = 0.1
        # What comes back when a deletion was not on disk does no harm, but the model does not know it.
        for directory in {os.path.dirname(path) for path, _ in files_below(self.disk, ROOT)}:
            self.disk.sync_dir(directory)
        self.forget_expired()

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        self.disk = self.disk.kill()
        self.open()
        assert not self.store.crashed
        self.keep_up_to(self.store.log.max_offset, all_of_it=True)

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.kill()
        self.open()
        self.keep_up_to(self.store.log.max_offset, all_of_it=True)

    @rule(seed=st.integers(0, 1 << 16))
    def cut_power(self, seed: int) -> None:
        flushed = self.store.log.flushed_offset
        self.disk = self.disk.crash(seed)
        self.open()
        assert self.store.log.max_offset >= flushed, "what was flushed is there"
        self.keep_up_to(self.store.log.max_offset)

    @rule(seed=st.integers(0, 1 << 16), operations=st.integers(1, 60), power=st.booleans(), stop_first=st.booleans())
    def die_while_starting(self, seed: int, operations: int, power: bool, stop_first: bool) -> None:
        """A crash or a clean stop, a start that dies at some disk operation, and another start."""
        if stop_first:
            self.store.close()
        flushed = self.store.log.flushed_offset
        first = self.disk.crash(seed) if power else self.disk.kill()
        left = operations

        def die_in_time(_operation: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died

        first.on_call = die_in_time
        with contextlib.suppress(Died):
            open_store(first, self.clock, **self.options)
        first.on_call = lambda _operation, _path: None
        self.disk = first.crash(seed + 1) if power else first.kill()
        self.open()
        assert self.store.log.max_offset >= flushed, "what was flushed is there"
        self.keep_up_to(self.store.log.max_offset, all_of_it=not power)

    # What the model says

    def next_body(self, size: int) -> bytes:
        self.bodies += 1
        return (b"%d " % self.bodies).ljust(size, b".")

    def next_number(self, topic: str, queue_id: int) -> int:
        numbers = [m.number for m in self.messages if (m.topic, m.queue_id) == (topic, queue_id)]
        return numbers[-1] + 1 if numbers else self.expired_to.get((topic, queue_id), 0)

    def keep_up_to(self, end: int, all_of_it: bool = False) -> None:
        kept = [message for message in self.messages if message.end <= end]
        if all_of_it:
            assert len(kept) == len(self.messages), "nothing is lost"
        assert all(message.start >= end for message in self.messages[len(kept) :]), "the end is between two messages"
        self.messages = kept

    def forget_expired(self) -> None:
        log_min = self.store.log.min_offset
        for message in self.messages:
            if message.start < log_min:
                self.expired_to[message.topic, message.queue_id] = message.number + 1
        self.messages = [message for message in self.messages if message.start >= log_min]

    # What must be true

    @invariant()
    def every_message_is_found_by_queue_once(self) -> None:
        if self.options.get("flush_disk_type") == "SYNC_FLUSH":
            visible = [m for m in self.messages if m.end <= self.store.log.flushed_offset]
        else:
            visible = self.messages
        by_queue: dict[tuple[str, int], list[Message]] = defaultdict(list)
        for message in visible:
            by_queue[message.topic, message.queue_id].append(message)
        for topic in TOPICS:
            for queue_id in range(2):
                found = self.read(topic, queue_id)
                expected = by_queue[topic, queue_id]
                assert [(m.queue_offset, m.body) for m in found] == [(m.number, m.body) for m in expected]

    def read(self, topic: str, queue_id: int) -> list[StoredMessage]:
        offset, end = self.store.queue_bounds(topic, queue_id)
        found: list[StoredMessage] = []
        while offset < end:
            result = self.store.get(topic, queue_id, offset, 32)
            assert result is not None
            assert result.next_offset > offset
            for part in result.slices:
                found += decode_records(part)
            offset = result.next_offset
        return found

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, 1), back_ms=st.integers(-10, 3000))
    def search_by_time(self, topic: str, queue_id: int, back_ms: int) -> None:
        time_ms = self.clock.now_ms() - back_ms
        first, end = self.store.queue_bounds(topic, queue_id)
        times = [m.time_ms for m in self.messages if (m.topic, m.queue_id) == (topic, queue_id)][: end - first]
        answer = self.store.offset_by_time(topic, queue_id, time_ms)
        assert answer == (first + bisect_left(times, time_ms) if end else 0)

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS))
    def search_by_key(self, topic: str, key: str) -> None:
        reached = self.store.dispatcher.position
        wanted = [m for m in self.messages if (m.topic, m.key) == (topic, key) and m.end <= reached]
        found = [decode_record(record) for record in self.store.lookup.query(topic, key, 64, *EVER).records]
        assert [m.body for m in found] == [m.body for m in wanted[-64:]]


StoreAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestStoreAgainstModel = StoreAgainstModel.TestCase
