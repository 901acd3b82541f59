"""The store: its parts, the order in which they start and stop, and the verbs that a broker uses.

    put ──> commitlog ──> dispatcher ──> queues, index ──> subscribers
                │             ^
             flusher ─────────┘  under SYNC_FLUSH dispatch follows the flush
    get ──> reading ──> queues ──> commitlog

    open    lock, load segments, queues and index, abort file, recover, counters
    close   no more puts and gets, flush, dispatch the rest, flush queues, index and checkpoint,
            remove the abort file if nothing is missing, unlock

Nothing here starts a thread or a timer: `background.Background` does, and calls the methods ending in `_now` and
`_round`. Without it a store does all its work in those calls, which is how tests and tools use it.

The lock is taken before anything is read (RocketMQ takes it after recovery, which cuts files of whoever holds it).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from cometmq.clock import Clock
from cometmq.errors import WireError
from cometmq.store.disk import Disk, DiskFull, File
from cometmq.store.log.append import LOCAL_HOST, AppendRequest
from cometmq.store.log.checkpoint import Checkpoint
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.log.flush import Callback, Flusher
from cometmq.store.log.recovery import OnProgress, Recovery
from cometmq.store.log.retention import Retention
from cometmq.store.log.segments import Segments
from cometmq.store.log.write_flags import NOT_WRITABLE, QUEUE_DISK_FULL, Flags
from cometmq.store.options import SYNC_MASTER, StoreOptions
from cometmq.store.queues.consume_queue import UNIT, UNIT_BYTES, ConsumeQueue
from cometmq.store.queues.consume_queues import ConsumeQueues
from cometmq.store.queues.dispatch import Dispatcher, OnArrival
from cometmq.store.queues.index import Index
from cometmq.store.queues.lookup import Lookup
from cometmq.store.queues.reading import Reading
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.record.message import StoredMessage, decode_record

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX_LEAST = 10

# Wait until replicas have the log up to an offset, then call back with a PutStatus.
ReplicaWait = Callable[[int, Callback], object]


class Store:
    """Everything happens on one thread, the caller's. StoreError or OSError: the directory cannot be opened.

    `on_progress` is told how many segments recovery has read, of how many; it may run in a thread.
    """

    def __init__(
        self,
        options: StoreOptions,
        disk: Disk,
        clock: Clock,
        *,
        store_host: bytes = LOCAL_HOST,
        is_batch_topic: Callable[[str], bool] | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.options = options
        self.disk = disk
        self.clock = clock
        self.flags = Flags()
        # The error that made the store read-only for good; None while all is well.
        self.failure: OSError | None = None
        self._failed_listeners: list[Callable[[OSError], object]] = []
        # Where puts must wait for replicas; what says why there are too few to store anything.
        self.wait_for_replicas: ReplicaWait | None = None
        self.replica_shortage: Callable[[], str] | None = None
        self._appended_listeners: tuple[Callable[[], object], ...] = ()
        self._flushed_listeners: tuple[Callable[[], object], ...] = ()
        # Called when the flusher has work; when dispatch has more to do than one step. See `drive`.
        self.wake_flush: Callable[[], object] = _ignore
        self.wake_dispatch: Callable[[], object] = self.dispatch_now
        # Set while a replica gets a backlog: `wake_dispatch` is then worth some steps, not all of them.
        self.log_first: bool = False
        self.is_open = False
        self.queues_full = False
        # It follows a master. In a set that elects its master this changes while it runs; see `follow` and `lead`.
        self.is_replica: bool = options.is_slave or options.controller_mode
        # In such a set: queues may know messages up to here that are not committed.
        self._ahead_until = 0
        self._lock = disk.lock(options.path("lock"))
        try:
            self._load(store_host, is_batch_topic, on_progress)
        except BaseException:
            self._lock.release()
            raise
        # Whether a put may have to wait before it can be answered: see `put_waiting`.
        self.must_wait: bool = options.sync_flush or options.broker_role == SYNC_MASTER or options.controller_mode
        # A timed flusher sleeps through what would wake it, as RocketMQ's does.
        self._wakes_flush = (
            options.sync_flush or options.controller_mode or (options.flush_wake_on_put and not options.flush_timed)
        )
        self.is_open = True

    def _load(
        self, store_host: bytes, is_batch_topic: Callable[[str], bool] | None, on_progress: OnProgress | None
    ) -> None:
        options, disk, clock = self.options, self.disk, self.clock
        self.crashed = disk.exists(options.path("abort"))
        self.segments = Segments(
            disk,
            options.commitlog_dirs(),
            options.segment_bytes,
            read_only_directories=options.commitlog_read_only_dirs(),
            warm=options.warm_segments,
            read_ahead=options.read_ahead,
            now_ms=clock.now_ms,
        )
        self.segments.load()
        self.log = CommitLog(self.segments, self.flags, clock, options)
        self.log.store_host = store_host
        if options.is_slave and not options.duplication_enabled:
            self.log.closed = "this broker is a replica: send to its master"
        self.queues = ConsumeQueues(disk, options)
        if is_batch_topic is not None:
            self.log.counters.is_batch_topic = is_batch_topic
            self.queues.is_batch_topic = is_batch_topic
        self.queues.load()
        self.checkpoint = Checkpoint(disk, options.path("checkpoint"))
        self.index = Index(disk, options, clock)
        self.index.load(self.crashed, self.checkpoint.index_time_ms)
        self.dispatcher = Dispatcher(self.log, self.queues, self.index, options, clock)
        recovery = Recovery(self.log, self.queues, self.index, self.dispatcher, self.checkpoint, options, self.crashed)
        recovery.on_progress = on_progress
        # Before anything is changed: a crash in the middle of recovery is a crash.
        self._write_abort()
        self.recovered = recovery.run()
        if self.queues.pending:
            self.write_queues()
        for topic, queue_id, next_offset in self.queues.next_offsets():
            self.log.counters.set_next_offset(topic, queue_id, next_offset)
        self.flusher = Flusher(self.segments, self.checkpoint, clock, options, self._on_flushed, self.fail)
        self.reading = Reading(self.log, self.queues, options, disk, clock)
        self.lookup = Lookup(self.log, self.queues, self.index, options, self.reading)
        self.retention = Retention(self.segments, self.queues, self.index, self.flags, options, disk, clock)
        self.get = self.reading.get
        if options.controller_mode:
            self.follow()

    def _write_abort(self) -> None:
        """From now on a start finds out whether this one ended well. One that is there already says so too."""
        try:
            self.disk.replace_atomically(self.options.path("abort"), str(self.disk.process_id()).encode())
        except DiskFull:
            if not self.crashed:
                raise

    # Putting

    def put(self, request: AppendRequest) -> PutResult:
        """Append one message. With status OK it is in the log; see `put_waiting()` for the promises beyond that."""
        if self.replica_shortage is not None and (short := self._short_of_replicas(request)) is not None:
            return short
        try:
            result = self.log.append(request)
        except OSError as error:
            self.fail(error)
            result = self.log.append(request)  # is refused and says why
        if result.status == PutStatus.OK:
            self._appended(request, result)
        return result

    def put_batch(self, request: AppendRequest) -> PutResult:
        """Append a batch in the producer's form, all of it or nothing."""
        if self.replica_shortage is not None and (short := self._short_of_replicas(request)) is not None:
            return short
        try:
            result = self.log.append_batch(request)
        except OSError as error:
            self.fail(error)
            result = self.log.append_batch(request)
        if result.status == PutStatus.OK:
            self._appended(request, result)
        return result

    def _appended(self, request: AppendRequest, result: PutResult) -> None:
        self.dispatcher.appended(request, result)
        if self._wakes_flush:
            self.wake_flush()
        for listener in self._appended_listeners:
            listener()

    def _short_of_replicas(self, request: AppendRequest) -> PutResult | None:
        """Why this message may not be stored: it asks for copies that cannot be made."""
        assert self.replica_shortage is not None
        remark = self.replica_shortage() if request.wait else ""
        return PutResult(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, remark=remark) if remark else None

    def replicated(self) -> None:
        """Bytes of the master were appended: build from them, and let them reach the disk, because that is reported."""
        self.wake_dispatch()
        self.wake_flush()

    def put_waiting(self, request: AppendRequest, result: PutResult, callback: Callback) -> bool:
        """Whether this put must wait for disk or replicas. If so, `callback` gets its final status, once.

        Disk and replicas are waited for at the same time; where both fail, the replicas' status counts.
        """
        if result.status != PutStatus.OK or not request.wait:
            return False
        flush = self.options.sync_flush
        wait_for_replicas = self.wait_for_replicas
        if wait_for_replicas is None:
            if flush:
                self.flusher.wait(result.end_offset, callback)
            return flush
        if not flush:
            wait_for_replicas(result.end_offset, callback)
            return True
        both = _Both(callback)
        self.flusher.wait(result.end_offset, both.flushed)
        wait_for_replicas(result.end_offset, both.replicated)
        return True

    # Who is told, and who is asked

    def subscribe(
        self,
        *,
        arrived: OnArrival | None = None,
        appended: Callable[[], object] | None = None,
        flushed: Callable[[], object] | None = None,
        failed: Callable[[OSError], object] | None = None,
    ) -> None:
        """`arrived`: a message is in its queue. `appended`: the log has grown. `flushed`: more of it is on disk.
        `failed`: what made the store read-only, once."""
        if arrived is not None:
            self.dispatcher.subscribe(arrived)
        if appended is not None:
            self._appended_listeners = (*self._appended_listeners, appended)
        if flushed is not None:
            self._flushed_listeners = (*self._flushed_listeners, flushed)
        if failed is not None:
            self._failed_listeners.append(failed)

    def unsubscribe(
        self, *, appended: Callable[[], object] | None = None, flushed: Callable[[], object] | None = None
    ) -> None:
        """Whoever is not subscribed may say so too."""
        self._appended_listeners = tuple(it for it in self._appended_listeners if it != appended)
        self._flushed_listeners = tuple(it for it in self._flushed_listeners if it != flushed)

    def drive(
        self, *, wake_flush: Callable[[], object] | None = None, wake_dispatch: Callable[[], object] | None = None
    ) -> None:
        """Whoever does the background work is woken by these: see background.py. None: nobody."""
        self.wake_flush = wake_flush or _ignore
        self.wake_dispatch = wake_dispatch or self.dispatch_now

    def promise_copies(self, wait: ReplicaWait) -> None:
        """From now on puts wait for replicas too."""
        self.wait_for_replicas = wait

    def require_copies(self, shortage: Callable[[], str]) -> None:
        """From now on a message that cannot have its copies is refused. `shortage`: why there are too few, or ""."""
        self.replica_shortage = shortage

    def put_log_first(self, is_first: bool) -> None:
        """A replica that gets a backlog dispatches in steps."""
        self.log_first = is_first

    # A set that elects its master

    def follow(self) -> None:
        """Take no messages any more: another broker is the master, or nobody yet."""
        self.is_replica = True
        self.log.closed = "this broker does not lead its set: send to the master"
        self._hide()

    def _hide(self) -> None:
        """What queues know beyond the committed offset is not read before it is committed."""
        self._ahead_until = max(self._ahead_until, self.dispatcher.position)
        self.reading.closed = self._ahead_until > self.log.confirmed_offset

    def count_all(self) -> bool:
        """Before `lead`, until it says False: build queues from all of the log, so that numbers go on behind it."""
        log = self.log
        committed, log.confirmed_offset = log.confirmed_offset, log.max_offset
        try:
            more = self.dispatcher.step()
        finally:
            log.confirmed_offset = committed
        self._hide()
        return more

    def lead(self) -> None:
        """Take messages from now on. The log is all on disk and in the queues."""
        self.log.counters.clear()
        for topic, queue_id, next_offset in self.queues.next_offsets():
            self.log.counters.set_next_offset(topic, queue_id, next_offset)
        last = self.segments.last()
        self.log.take_up(0 if last is None else last.store_time_ms)
        self.is_replica = False

    def commit(self, offset: int) -> None:
        """Consumers may see the log up to here: enough members of the set have it on disk."""
        offset = min(offset, self.log.max_offset)
        if offset <= self.log.confirmed_offset:
            return
        self.log.confirmed_offset = offset
        if self.reading.closed and self.is_open:
            self.reading.closed = self._ahead_until > offset
        if not self.log_first and self.dispatcher.step():
            self.wake_dispatch()

    def cut(self, offset: int) -> None:
        """Make `offset` the end of log, queues and index, on disk. No sync of the log may be running: see `Flusher`."""
        assert not self.flusher.running, "a sync that ends after a cut would take back what was cut"
        # Dispatch may be at work further back, where an earlier cut sent it: queues and index are asked themselves.
        queues_know = self.dispatcher.position > offset or any(each.max_physical > offset for each in self.queues.all())
        self.segments.cut(offset)
        if offset == 0:
            for segment in list(self.segments.segments):
                self.segments.remove(segment)
        self.log.refresh()
        indexed_until = offset
        if queues_know:
            self.queues.cut(offset)
            if self.index.cut(offset):
                indexed_until = max(self.log.min_offset, self.index.last_message)
            self.checkpoint.logics_physical_offset = min(self.checkpoint.logics_physical_offset, max(0, offset - 1))
            self.checkpoint.flush()
        self.dispatcher.cut(offset, indexed_until)
        self._ahead_until = min(self._ahead_until, offset)
        if self.reading.closed and self.is_open:
            self.reading.closed = self._ahead_until > self.log.confirmed_offset

    # Asking

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset and the one behind the last; 0 and 0 for a queue that is not there."""
        return max(0, self.queues.min_offset(topic, queue_id)), self.queues.max_offset(topic, queue_id)

    def queue_entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """(physical offset, size, tag code) of up to `count` messages of a plain queue, from `offset` on."""
        queue = self.queues.find(topic, queue_id)
        if not isinstance(queue, ConsumeQueue):
            return []
        data = queue.read(offset, count)
        return list(UNIT.iter_unpack(data[: len(data) // UNIT_BYTES * UNIT_BYTES]))

    def extended_tag_code(self, topic: str, queue_id: int, address: int) -> int | None:
        """The tag code behind an address of the queue's extension; None if it cannot be read."""
        ext = self.queues.ext(topic, queue_id)
        unit = None if ext is None else ext.get(address)
        return None if unit is None else unit.tags_code

    def message_at(self, physical_offset: int, record_bytes: int | None = None) -> StoredMessage | None:
        """The message whose record starts there; None if there is none (any more)."""
        record = self.lookup.record_at(physical_offset, record_bytes)
        try:
            return None if record is None else decode_record(record)
        except WireError as error:
            log.error("found damaged message physical_offset=%d error=%s", physical_offset, error)
            return None

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, loaded: set[int] | None = None) -> int:
        return self.lookup.offset_by_time(topic, queue_id, time_ms, loaded=loaded)

    def load_ranges(self, ranges: list[tuple[File, int, int]]) -> None:
        """Bring pages into memory. Waits for the device: for a thread."""
        self.reading.load_ranges(ranges)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message is there, and near enough to the end of the log to be in memory."""
        physical_offset = self.lookup.physical_offset(topic, queue_id, offset)
        return physical_offset >= 0 and self.log.max_offset - physical_offset <= self.reading.memory_bytes

    def disk_use(self) -> str:
        """How full the disk is, in words."""
        root = self.options.root_dir
        try:
            return f"disk of {root} is {self.disk.used_ratio(root) * 100:.0f} % full"
        except OSError as error:
            return f"disk of {root} does not say how full it is: {error.strerror or error}"

    def change(self, options: StoreOptions) -> None:
        """Take over settings while running. A message size below 10 is ignored, as in RocketMQ."""
        if options.message_bytes_max < MESSAGE_BYTES_MAX_LEAST:
            options = dataclasses.replace(options, message_bytes_max=self.options.message_bytes_max)
        for field in dataclasses.fields(options):
            setattr(self.options, field.name, getattr(options, field.name))
        self.log.message_bytes_max = options.message_bytes_max
        self.log.busy_s = options.page_cache_busy_ms / 1000

    def delete_topic(self, topic: str) -> None:
        """Queues and counters of a topic; its messages stay in the log until that expires."""
        self.queues.delete_topic(topic)
        self.log.counters.drop_topic(topic)

    # Steps of the background work

    def flush_now(self) -> None:
        """The log, all of it, and whoever waits for it."""
        self.flusher.flush_now()

    def dispatch_now(self) -> None:
        self.dispatcher.run()

    def allocate_now(self) -> None:
        """Make the segments that will be needed next."""
        self.segments.prepare_now()

    def write_queues(self, thorough: bool = True) -> None:
        """Units that wait in memory go to the kernel, or a part of many; on a full disk they stay, and no more messages
        are taken."""
        try:
            if thorough:
                self.queues.write()
            else:
                self.queues.write_round()
        except DiskFull as error:
            self.queues_full = True
            if self.flags.set(QUEUE_DISK_FULL):
                log.error("kept queue units in memory pending=%d error=%s", self.queues.pending, error)
        except OSError as error:
            self.fail(error)
        else:
            if self.queues_full:
                self.queues_full = False
                self.flags.clear(QUEUE_DISK_FULL)

    def flush_queues_now(self) -> None:
        """Queues, full index files and the checkpoint, all of it."""
        self.write_queues()
        if self.failure is None and not self.queues.pending:
            self._try_sync(self._sync_derived)

    def _sync_derived(self) -> None:
        self.queues.flush_now(self.checkpoint)
        for file in self.index.to_sync():
            file.sync()
            file.synced = True
        self.note_index_time()
        self.checkpoint.flush()

    def note_index_time(self) -> None:
        self.checkpoint.index_time_ms = max(
            self.checkpoint.index_time_ms, self.index.safe_time_ms(self.log.flushed_offset)
        )

    def _on_flushed(self) -> None:
        if not self.log_first and self.dispatcher.step():
            self.wake_dispatch()
        for listener in self._flushed_listeners:
            listener()

    # Failing and closing

    def fail(self, error: OSError) -> None:
        """A sync or a write failed: nothing that is not on disk by now can be promised any more."""
        self.flags.set(NOT_WRITABLE)
        if self.failure is None:
            self.failure = error
            self.flags.cause = str(error)
            log.critical("made store read-only error=%s", error)
            for listener in self._failed_listeners:
                listener(error)

    def _try_sync(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            self.fail(error)

    def close(self) -> None:
        """Everything to disk, as far as the disk is to be trusted."""
        if not self.is_open:
            return
        self.is_open = False
        self.log.closed = "the store is closed"
        self.reading.closed = True
        self.flusher.flush_now()
        self.flusher.stop()
        self._try_sync(self.dispatch_now)
        self._try_sync(self.flush_queues_now)
        if self.failure is None:
            self._try_sync(self.index.flush_now)
        if self.failure is None:
            self._try_sync(self.checkpoint.flush)
        self.segments.drop_prepared()
        self._try_sync(self._remove_abort)
        for part in (self.segments, self.queues, self.index, self.checkpoint):
            self._try_sync(part.close)
        self._lock.release()

    def _remove_abort(self) -> None:
        """Its absence says: what was put is on disk and in the queues. Otherwise the next start must look closer."""
        behind = self.dispatcher.behind_bytes + self.queues.pending + self.log.max_offset - self.log.flushed_offset
        if self.flags.writable and behind == 0:
            self.disk.remove(self.options.path("abort"))
            self.disk.sync_dir(self.options.root_dir)
        else:
            log.warning("kept abort file reasons=%r behind=%d", self.flags.reasons(), behind)


class _Both:
    """One callback for disk and replicas together."""

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self._flush_status = -1
        self._replica_status = -1

    def flushed(self, status: int) -> None:
        self._flush_status = status
        self._decide()

    def replicated(self, status: int) -> None:
        self._replica_status = status
        self._decide()

    def _decide(self) -> None:
        if self._flush_status >= 0 and self._replica_status >= 0:
            replicas_failed = self._replica_status != PutStatus.OK
            self._callback(self._replica_status if replicas_failed else self._flush_status)


def _ignore() -> None: ...

