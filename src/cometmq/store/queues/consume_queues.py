"""All queues of a store: which there are, when their bytes are written and synced, and when they go.

Dispatch puts units here, message by message in log order. Units wait in memory (`pending`) until they are handed to the
kernel: of some hundred queues with the next `write_round()`, every second; of more in turns, after twenty rounds at the
latest, because opening the file of a queue, not writing to it, is what costs; of all when UNITS_PENDING_MAX wait, or
before a thorough flush.
A crash takes them, as it takes those that were written and not synced: recovery makes both again.

A thorough flush makes the queues durable and says so in the checkpoint. It has three steps, because the middle
one runs in another thread:

    begin_flush()     write all; note the newest message whose unit was put
    flush.sync()      sync every file that was written since the last time
    finish_flush()    checkpoint fields 8 and 40 := the note. Recovery after a crash starts there.

Light queues (LMQ) are ordinary queues with number 0 whose topic starts with %LMQ%.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from cometmq.errors import StoreError
from cometmq.names import path_part, topic_fault
from cometmq.store.disk import PAGE_BYTES, Disk
from cometmq.store.log.checkpoint import Checkpoint
from cometmq.store.options import StoreOptions
from cometmq.store.queues.batch_queue import BATCH_UNIT_BYTES, BatchQueue
from cometmq.store.queues.consume_queue import UNIT_BYTES, ConsumeQueue
from cometmq.store.queues.extension import ConsumeQueueExt, is_address
from cometmq.store.queues.queue_files import OpenFiles, QueueFiles

log = logging.getLogger(__name__)

LMQ_PREFIX: Final = "%LMQ%"
# 4 MB. With 50,000 of them, ten thousand queues under full load would be written every second.
UNITS_PENDING_MAX: Final = 200_000
# As many queues are written in every round; of more, the part that makes it ten rounds for all.
ROUND_QUEUES_MIN: Final = 256
ROUNDS: Final = 10
# A journalling file system writes many small files at once if it is asked by many: ten thousand new queues take
# 3 s, one after the other 27 s.
_SYNC_THREADS: Final = 16
_ONE_BY_ONE_MAX: Final = 64

AnyQueue: TypeAlias = ConsumeQueue | BatchQueue


class QueueFlush:
    """The middle step of a flush; touches no queue, so it may run in any thread."""

    def __init__(self, disk: Disk, time_ms: int, physical_offset: int) -> None:
        self.disk = disk
        self.time_ms = time_ms
        self.physical_offset = physical_offset
        self.paths: list[str] = []
        self.directories: set[str] = set()

    def sync(self) -> None:
        """OSError if a file cannot be synced; then nothing is known about it any more.

        What has expired meanwhile, or was deleted with its topic, is left out.
        """
        directories = sorted(self.directories, reverse=True)
        if len(self.paths) <= _ONE_BY_ONE_MAX:
            for path in self.paths:
                self._sync_file(path)
            for directory in directories:
                self._sync_directory(directory)
            return
        with ThreadPoolExecutor(_SYNC_THREADS, "sync") as pool:
            for _ in pool.map(self._sync_file, self.paths):
                pass
            for _ in pool.map(self._sync_directory, directories):
                pass

    def _sync_file(self, path: str) -> None:
        try:
            file = self.disk.open(path, -1, create=False, allocate=False)
            file.sync()
            file.close()
        except FileNotFoundError:
            return

    def _sync_directory(self, path: str) -> None:
        try:
            self.disk.sync_dir(path)
        except FileNotFoundError:
            return


class ConsumeQueues:
    def __init__(self, disk: Disk, options: StoreOptions) -> None:
        self.disk: Disk = disk
        self.options: StoreOptions = options
        # A topic whose batches are stored as one record each. The broker knows; alone, the store learns it from what
        # is there.
        self.is_batch_topic: Callable[[str], bool] | None = None
        self.topics: dict[str, dict[int, ConsumeQueue]] = {}
        self.batch_topics: dict[str, dict[int, BatchQueue]] = {}
        self.exts: dict[tuple[str, int], ConsumeQueueExt] = {}
        self.pending: int = 0
        self.round_queues_min: int = ROUND_QUEUES_MIN
        # How many queues each round writes, and how many of those that waited are still to be written so.
        self._round_count: int = 0
        self._round_left: int = 0
        self.lmq_count: int = 0
        # Offsets of damaged places of the log, ascending; see consume_queue.py.
        self.damages: list[int] = []
        # On while recovery goes through messages that are in their queues already; `strict`: QueueBehind is raised.
        self.verifying: bool = False
        self.strict: bool = False
        # For a message before this offset no queue is made: after a clean stop the topic was deleted.
        self.made_from: int = 0
        self._ext_enabled: bool = options.queue_ext_enabled
        self._open_files: OpenFiles = OpenFiles(disk)
        self._waiting: list[ConsumeQueue] = []
        self._waiting_batch: list[BatchQueue] = []
        self._noted_time_ms: int = 0
        self._noted_offset: int = 0
        self._queue_bytes: int = _rounded_up(options.queue_file_bytes, UNIT_BYTES)
        self._batch_bytes: int = _rounded_up(options.batch_queue_file_bytes, BATCH_UNIT_BYTES)

    # Finding

    def find(self, topic: str, queue_id: int) -> AnyQueue | None:
        queues = self.topics.get(topic)
        if queues is not None:
            return queues.get(queue_id)
        batch_queues = self.batch_topics.get(topic)
        return None if batch_queues is None else batch_queues.get(queue_id)

    def all(self) -> Iterator[AnyQueue]:
        for queues in self.topics.values():
            yield from queues.values()
        for batch_queues in self.batch_topics.values():
            yield from batch_queues.values()

    def of_topic(self, topic: str) -> list[int]:
        """The queues that there are."""
        return [*self.topics.get(topic, ()), *self.batch_topics.get(topic, ())]

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made if missing. StoreError if the topic cannot be a directory name."""
        queues = self.topics.get(topic)
        if queues is None:
            queues = self.topics[sys.intern(path_part(topic))] = {}
            self.lmq_count += topic.startswith(LMQ_PREFIX)
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = ConsumeQueue(topic, queue_id, self._files("consumequeue", topic, queue_id))
        return queue

    def batch_queue(self, topic: str, queue_id: int) -> BatchQueue:
        queues = self.batch_topics.setdefault(path_part(topic), {})
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = BatchQueue(topic, queue_id, self._files("batchconsumequeue", topic, queue_id))
        return queue

    def ext(self, topic: str, queue_id: int) -> ConsumeQueueExt | None:
        """The extension, if the setting is on."""
        if not self._ext_enabled:
            return None
        ext = self.exts.get((topic, queue_id))
        if ext is None:
            ext = ConsumeQueueExt(self._files("consumequeue_ext", topic, queue_id))
            self.exts[topic, queue_id] = ext
        return ext

    def _files(self, kind: str, topic: str, queue_id: int) -> QueueFiles:
        sizes = {
            "consumequeue": self._queue_bytes,
            "batchconsumequeue": self._batch_bytes,
            "consumequeue_ext": self.options.queue_ext_file_bytes,
        }
        directory = self.options.path(kind, path_part(topic), str(int(queue_id)))
        return QueueFiles(self._open_files, directory, sizes[kind])

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.find(topic, queue_id)
        return 0 if queue is None else max(0, queue.min_offset)

    def next_offsets(self) -> Iterator[tuple[str, int, int]]:
        """(topic, queue, number of the next message), which is what the counters of the commit log start with."""
        for queue in self.all():
            yield queue.topic, queue.queue_id, queue.max_offset

    # Building

    def put(
        self,
        topic: str,
        queue_id: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_time_ms: int,
        queue_offset: int,
    ) -> bool:
        """Put the unit of one message; True unless it was there already."""
        queues = self.topics.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        if queue is None:
            if physical_offset < self.made_from:
                return False
            queue = self.queue(topic, queue_id)
        if self.verifying:
            queue.check_last(physical_offset, size, tags_code, queue_offset)
        if self._ext_enabled and physical_offset + size > queue.max_physical:
            ext = self.ext(topic, queue_id)
            if ext is not None:
                tags_code = ext.put(tags_code, store_time_ms, b"")
        if not queue.put(physical_offset, size, tags_code, queue_offset, self.damages, self.strict):
            return False
        if not queue.waiting:
            queue.waiting = True
            self._waiting.append(queue)
        self._put_done(physical_offset, store_time_ms)
        return True

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_time_ms: int,
        base: int,
        count: int,
    ) -> bool:
        """Put the unit of a batch that is one record."""
        if physical_offset < self.made_from and self.find(topic, queue_id) is None:
            return False
        queue = self.batch_queue(topic, queue_id)
        if not queue.put(physical_offset, size, tags_code, store_time_ms, base, count):
            return False
        if not queue.waiting:
            queue.waiting = True
            self._waiting_batch.append(queue)
        self._put_done(physical_offset, store_time_ms)
        return True

    def _put_done(self, physical_offset: int, store_time_ms: int) -> None:
        self._noted_time_ms = store_time_ms
        self._noted_offset = physical_offset
        self.pending += 1
        if self.pending == UNITS_PENDING_MAX:
            self._write_early()

    def _write_early(self) -> None:
        """Memory is the only reason; what fails here is tried again, and reported, by the next write()."""
        try:
            self.write()
        except (StoreError, OSError) as error:
            log.warning("kept units in memory pending=%d error=%s", self.pending, error)

    def write(self) -> None:
        """Hand all units to the kernel. DiskFull or OSError: those not written stay, try again later."""
        self._write_oldest(len(self._waiting))
        self._round_left = 0

    def write_round(self) -> None:
        """The same, if many queues wait, for those that wait longest: for all that wait now in ROUNDS rounds."""
        if self._round_left <= 0:
            self._round_left = len(self._waiting)
            self._round_count = max(self.round_queues_min, -(-len(self._waiting) // ROUNDS))
        self._round_left -= self._round_count
        self._write_oldest(self._round_count)

    def _write_oldest(self, count: int) -> None:
        # The extension first: an address must never point to nothing.
        for ext in self.exts.values():
            ext.files.write()
        while self._waiting_batch:
            batch_queue = self._waiting_batch[-1]
            batch_queue.files.write()
            batch_queue.waiting = False
            self._waiting_batch.pop()
        written = 0
        try:
            for queue in self._waiting[:count]:
                queue.files.write()
                queue.waiting = False
                written += 1
        finally:
            del self._waiting[:written]
        self.pending = sum([len(queue.files.tail) for queue in self._waiting]) // UNIT_BYTES if self._waiting else 0

    # Flushing

    def begin_flush(self, pages_min: int = 0) -> QueueFlush:
        """With `pages_min`, leave out queues with fewer unsynced pages, and units that are not written yet; then
        finish_flush() has nothing to say."""
        flush = QueueFlush(self.disk, self._noted_time_ms, self._noted_offset)
        if not pages_min:
            self.write()
        for files in self._all_files():
            if pages_min and files.unsynced_bytes < pages_min * PAGE_BYTES:
                continue
            if not files.named:
                files.named = True
                topic_directory = os.path.dirname(files.directory)
                flush.directories |= {files.directory, topic_directory, os.path.dirname(topic_directory)}
            flush.paths += files.take_unsynced()
        return flush

    def finish_flush(self, flush: QueueFlush, checkpoint: Checkpoint) -> None:
        """After `flush.sync()` succeeded. The checkpoint itself is still to be flushed."""
        if flush.time_ms and flush.physical_offset:
            checkpoint.logics_time_ms = flush.time_ms
            checkpoint.logics_physical_offset = flush.physical_offset

    def flush_now(self, checkpoint: Checkpoint) -> None:
        """All three steps here and now."""
        flush = self.begin_flush()
        flush.sync()
        self.finish_flush(flush, checkpoint)

    def _all_files(self) -> Iterator[QueueFiles]:
        for queue in self.all():
            yield queue.files
        for ext in self.exts.values():
            yield ext.files

    # Loading and recovering

    def load(self) -> None:
        """Take what is in the directories. StoreError names the file or directory that is wrong."""
        for topic, queue_id in self._directories("consumequeue"):
            if self.is_batch_topic is not None and self.is_batch_topic(topic):
                raise StoreError(f"{self.options.path('consumequeue', topic)} exists, but the topic's type is BatchCQ")
            self.queue(topic, queue_id).files.load()
        for topic, queue_id in self._directories("batchconsumequeue"):
            if self.is_batch_topic is not None and not self.is_batch_topic(topic):
                raise StoreError(
                    f"{self.options.path('batchconsumequeue', topic)} exists, but the topic's type is not BatchCQ"
                )
            self.batch_queue(topic, queue_id).files.load()
        if self._ext_enabled:
            for topic, queue_id in self._directories("consumequeue_ext"):
                ext = self.ext(topic, queue_id)
                assert ext is not None
                ext.files.load()

    def _directories(self, kind: str) -> Iterator[tuple[str, int]]:
        root = self.options.path(kind)
        for topic in self.disk.list_dirs(root):
            if topic_fault(topic) is not None:
                log.warning("left out directory that is no topic path=%s", os.path.join(root, topic))
                continue
            for name in self.disk.list_dirs(os.path.join(root, topic)):
                if name.isdecimal():
                    yield topic, int(name)

    def recover(self, trusted_offset: int) -> int:
        """Find the end of every queue. Returns where the newest message known to any queue ends in the log, or -1."""
        newest = -1
        for queue in self.all():
            queue.recover(trusted_offset)
            newest = max(newest, queue.max_physical)
        self._recover_exts()
        return newest

    def cut(self, physical_offset: int) -> None:
        """Drop all units that point to this offset or behind it."""
        for queue in self.all():
            queue.cut(physical_offset)
        self._recover_exts()

    def _recover_exts(self) -> None:
        for (topic, queue_id), ext in self.exts.items():
            queue = self.topics.get(topic, {}).get(queue_id)
            unit = None if queue is None or queue.is_empty else queue.unit(queue.max_offset - 1)
            ext.recover(0 if unit is None else unit[2])

    # Expiring

    def correct_min(self, log_min: int) -> None:
        for queue in self.all():
            queue.correct_min(log_min)

    def delete_expired(self, log_min: int) -> int:
        """Remove files that only point below the log, and correct what is the first message. Returns how many files."""
        return sum(self.delete_expired_of(queue, log_min) for queue in list(self.all()))

    def delete_expired_of(self, queue: AnyQueue, log_min: int) -> int:
        removed = queue.delete_expired(log_min)
        queue.correct_min(log_min)
        ext = self.exts.get((queue.topic, queue.queue_id))
        if ext is not None and isinstance(queue, ConsumeQueue):
            unit = queue.unit(queue.min_offset)
            if unit is not None and is_address(unit[2]):
                removed += ext.delete_expired(unit[2])
        return removed

    def delete_topic(self, topic: str) -> None:
        """All queues of a topic and their files."""
        for queue in self.topics.pop(topic, {}).values():
            queue.files.clear()
            self.exts.pop((topic, queue.queue_id), None)
        for batch_queue in self.batch_topics.pop(topic, {}).values():
            batch_queue.files.clear()
        self.lmq_count = sum(name.startswith(LMQ_PREFIX) for name in self.topics)
        for kind in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
            self.disk.remove_dir(self.options.path(kind, path_part(topic)))

    def destroy_all(self) -> None:
        """A log without files has no messages, so the queues have none either."""
        for topic in [*self.topics, *self.batch_topics]:
            self.delete_topic(topic)

    def close(self) -> None:
        self._open_files.close()


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
