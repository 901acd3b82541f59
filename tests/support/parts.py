"""The parts of a store put together without `Store`, threads or timers: for tests of dispatch, reading and recovery."""

from collections.abc import Iterator
from typing import Any

from cometmq.clock import ManualClock
from cometmq.store.disk import Disk
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.log.checkpoint import Checkpoint
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.recovery import Recovered, Recovery
from cometmq.store.log.retention import Retention
from cometmq.store.log.segments import Segments
from cometmq.store.log.write_flags import Flags
from cometmq.store.options import StoreOptions
from cometmq.store.queues.consume_queues import ConsumeQueues
from cometmq.store.queues.dispatch import Dispatcher, OnArrival
from cometmq.store.queues.index import Index
from cometmq.store.queues.lookup import Lookup
from cometmq.store.queues.reading import Reading
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.properties import encode

ROOT = "/store"
SMALL: dict[str, Any] = {
    "root_dir": ROOT,
    "segment_bytes": 4096,
    "queue_file_bytes": 200,
    "batch_queue_file_bytes": 460,
    "queue_ext_file_bytes": 256,
    "index_slots": 7,
    "index_entries": 20,
}
GOLDEN_SIZES: dict[str, Any] = {
    "segment_bytes": 262_144,
    "queue_file_bytes": 2000,
    "index_slots": 500,
    "index_entries": 2000,
}


class Parts:
    """Opens what is on `disk`. `close()` is a clean stop; just letting go is a crash."""

    def __init__(
        self,
        disk: Disk | None = None,
        clock: ManualClock | None = None,
        on_arrival: OnArrival | None = None,
        batch_topics: tuple[str, ...] = (),
        crashed: bool | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.disk: Disk = FakeDisk(now_ms=self.clock.now_ms) if disk is None else disk
        self.options = StoreOptions(**{**SMALL, **options})
        self.abort = self.options.path("abort")
        self.crashed = self.disk.exists(self.abort) if crashed is None else crashed
        self.disk.replace_atomically(self.abort, b"1")
        self.flags = Flags()
        self.segments = Segments(self.disk, self.options.commitlog_dirs(), self.options.segment_bytes)
        self.segments.load()
        self.log = CommitLog(self.segments, self.flags, self.clock, self.options)
        self.queues = ConsumeQueues(self.disk, self.options)
        if batch_topics:
            self.queues.is_batch_topic = lambda topic: topic in batch_topics
            self.log.counters.is_batch_topic = self.queues.is_batch_topic
        self.queues.load()
        self.checkpoint = Checkpoint(self.disk, self.options.path("checkpoint"))
        self.index = Index(self.disk, self.options, self.clock)
        self.index.load(self.crashed, self.checkpoint.index_time_ms)
        self.dispatcher = Dispatcher(self.log, self.queues, self.index, self.options, self.clock)
        if on_arrival is not None:
            self.dispatcher.subscribe(on_arrival)
        self.recovered: Recovered = Recovery(
            self.log, self.queues, self.index, self.dispatcher, self.checkpoint, self.options, self.crashed
        ).run()
        for topic, queue_id, next_offset in self.queues.next_offsets():
            self.log.counters.set_next_offset(topic, queue_id, next_offset)
        self.checkpoint.flush()
        self.reading = Reading(self.log, self.queues, self.options, self.disk)
        self.lookup = Lookup(self.log, self.queues, self.index, self.options, self.reading)
        self.retention = Retention(
            self.segments, self.queues, self.index, self.flags, self.options, self.disk, self.clock
        )

    def put(
        self, topic: str = "TopicA", queue_id: int = 0, body: bytes = b"hello", sys_flag: int = 0, **properties: str
    ) -> PutResult:
        request = AppendRequest(topic, queue_id, body, encode(properties).decode(), sys_flag=sys_flag)
        result = self.log.append(request)
        assert result.status == PutStatus.OK, result
        self.dispatcher.appended(request, result)
        return result

    def put_batch(self, topic: str, queue_id: int, bodies: list[bytes]) -> PutResult:
        request = AppendRequest(topic, queue_id, encode_batch([(0, body, b"") for body in bodies]))
        result = self.log.append_batch(request)
        assert result.status == PutStatus.OK, result
        self.dispatcher.appended(request, result)
        return result

    def flush_log(self) -> None:
        self.segments.flush(0)
        last = self.segments.last()
        if last is not None and last.store_time_ms:
            self.checkpoint.physic_time_ms = last.store_time_ms

    def flush(self) -> None:
        """Everything thoroughly, and say so in the checkpoint."""
        self.flush_log()
        self.queues.flush_now(self.checkpoint)
        for file in self.index.to_sync():
            file.sync()
            file.synced = True
        self.checkpoint.index_time_ms = max(
            self.checkpoint.index_time_ms, self.index.safe_time_ms(self.log.flushed_offset)
        )
        self.checkpoint.flush()

    def close(self) -> None:
        self.dispatcher.run()
        self.flush_log()
        self.queues.flush_now(self.checkpoint)
        self.index.flush_now()
        self.checkpoint.flush()
        self.disk.remove(self.abort)
        self.queues.close()
        self.index.close()
        self.segments.close()

    def killed(self) -> FakeDisk:
        """The disk as `kill -9` leaves it."""
        assert isinstance(self.disk, FakeDisk)
        return self.disk.kill()

    def read_all(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """Every message of a queue, the way a consumer goes through it."""
        offset = self.queues.min_offset(topic, queue_id)
        messages: list[StoredMessage] = []
        while offset < self.queues.max_offset(topic, queue_id):
            result = self.reading.get(topic, queue_id, offset, 32)
            assert result is not None
            assert result.next_offset > offset, f"stuck at {offset} with status {result.status}"
            for part in result.slices:
                messages += decode_records(part)
            offset = result.next_offset
        return messages

    def bodies(self, topic: str = "TopicA", queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.read_all(topic, queue_id)]


def files_below(disk: Disk, directory: str) -> Iterator[tuple[str, bytes]]:
    """(path, content) of every file in a directory and those in it."""
    for name in disk.list_files(directory):
        yield f"{directory}/{name}", disk.read_bytes(f"{directory}/{name}")
    for name in disk.list_dirs(directory):
        yield from files_below(disk, f"{directory}/{name}")
