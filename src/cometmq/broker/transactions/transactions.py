"""Transactions: halves are put, ended by their producers, and asked for when nobody ends them.

    send, TRAN_MSG=true      put_half         into the half topic
    END_TRANSACTION          find, commit     the message to its real topic, then an op for the half
                             find, roll_back  an op for the half
    every 30 s               a round          over the halves that are open: judge in half_queue.py
    every 3 s                tend             ops that wait are written, progress is saved

A round walks from the oldest open half to the end that the queue had when the round began, so it never meets what it
has put itself. It runs a few halves at a time between other work. Each half that it passes has ended, was copied, or
was given up, so its progress is one number for the halves and one for the ops, kept as offsets of a consumer group.

Progress is saved only when the log is on disk up to where it was made: a power cut then takes back both or neither.
What is walked again after a restart is recognised: ended halves by their ops, copied ones by their copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from cometmq.broker.cold_pages import ColdPages
from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import OwnAddress
from cometmq.broker.tables.half_counts import HalfCounts
from cometmq.broker.tables.offsets import NONE, Offsets
from cometmq.broker.tables.sessions import Link, Producers
from cometmq.broker.tables.system_topics import PERM_READ_WRITE
from cometmq.broker.tables.topics import Topics
from cometmq.broker.transactions.half import Half, prepare, question
from cometmq.broker.transactions.half_queue import FATE_NAMES, Fate, HalfQueue, Mark, Rules, Verdict, judge
from cometmq.clock import Clock, Timer
from cometmq.errors import CallError, RequestError
from cometmq.names import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.store import Store
from cometmq.wire.codes import Response
from cometmq.wire.record.message import StoredMessage

if TYPE_CHECKING:
    from cometmq.wire.headers import EndTransaction

logger = logging.getLogger(__name__)

# The consumer group whose offsets are the progress.
PROGRESS_GROUP: Final = "CID_RMQ_SYS_TRANS"
# How long a round stays with one queue, so that a long one does not keep the others waiting.
QUEUE_ROUND_S: Final = 60.0
# How many halves are looked at before others have their turn.
HALVES_PER_TURN: Final = 100
HOUR_MS: Final = 3_600_000


class Transactions:
    """`open` comes first. `delivered` is told topic, queue and size of each message that is put.

    `put_elsewhere`: on a replica, whose log is the master's and which acts for it, where open halves go.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        own: OwnAddress,
        store: Store,
        topics: Topics,
        offsets: Offsets,
        producers: Producers,
        counts: HalfCounts,
        delivered: Callable[[str, int, int], object],
        pages: ColdPages,
        put_elsewhere: Callable[[AppendRequest], PutResult] | None,
    ) -> None:
        self.counts = counts
        self._config = config
        self._clock = clock
        self._own = own
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._producers = producers
        self._delivered = delivered
        self._pages = pages
        self._put_elsewhere = put_elsewhere
        self._queues: dict[int, HalfQueue] = {}
        self._round: Iterator[None] | None = None
        self._turn: Timer | None = None
        self._gave_up = False
        self._is_loading = False

    def open(self) -> None:
        topic = self._topics.get(HALF_TOPIC)
        for queue_id in range(topic.read_queue_nums if topic is not None else 1):
            _, first_new = self._store.queue_bounds(HALF_TOPIC, queue_id)
            self._queues[queue_id] = HalfQueue(
                queue_id, self._saved(HALF_TOPIC, queue_id), self._saved(OP_TOPIC, queue_id), first_new
            )

    def _saved(self, topic: str, queue_id: int) -> int:
        offset = self._offsets.query(PROGRESS_GROUP, topic, queue_id)
        low, high = self._store.queue_bounds(topic, queue_id)
        return low if offset == NONE else min(max(offset, low), high)

    def close(self) -> None:
        """No more rounds, and nothing waits to be written."""
        if self._turn is not None:
            self._turn.cancel()
        self._round = None
        for queue in self._queues.values():
            self._write_ops(queue)

    # Halves and their ends

    def put_half(self, message: AppendRequest) -> PutResult:
        config = self._config()
        if config.reject_transactions:
            raise RequestError(
                Response.NO_PERMISSION,
                f"broker {config.broker_name} takes no transactional messages (rejectTransactionMessage=true)",
            )
        topic = message.topic
        prepare(message)
        result = self._store.put(message)
        if result.status == PutStatus.OK:
            self.counts.add(topic, 1, self._now_ms)
        return result

    def find(self, header: EndTransaction) -> Half:
        """The half that a producer wants to end; RequestError says why it cannot."""
        message = self._store.message_at(header.commit_log_offset)
        if message is None or message.topic != HALF_TOPIC or message.queue_id not in self._queues:
            raise _refusal(f"no half message at physical offset {header.commit_log_offset}")
        half = Half(message)
        timeout_ms = self._config().transaction_timeout_ms
        if not header.from_transaction_check and half.is_too_late(self._now_ms, timeout_ms):
            raise RequestError(
                Response.ILLEGAL_OPERATION,
                f"the time that message {half.unique_id} has set to decide is over: its producers will be asked",
            )
        if half.group != header.producer_group:
            raise _refusal(
                f"message {half.unique_id} is not of producer group {header.producer_group!r}, which wants to end it"
            )
        if message.queue_offset != header.tran_state_table_offset:
            raise _refusal(
                f"the half message at physical offset {header.commit_log_offset} has queue offset "
                f"{message.queue_offset}, not {header.tran_state_table_offset}"
            )
        if not half.is_whole:
            raise RequestError(
                Response.MESSAGE_ILLEGAL,
                f"message {half.unique_id} has no place to go: topic {half.real_topic!r}, queue {half.real_queue_id}",
            )
        return half

    def is_ended(self, half: Half, fate: int) -> bool:
        """Whether it has this fate already. RequestError if it has another one: the first word counts.

        Of a half that was ended before the start only the op is known, not its fate.
        """
        queue = self._queues[half.message.queue_id]
        offset = half.message.queue_offset
        known = queue.fate(offset)
        if known is None and offset < queue.first_new:
            return self._has_ended(queue, offset)
        if known is not None and known != fate:
            raise _refusal(f"message {half.unique_id} is {FATE_NAMES[known]} and cannot be {FATE_NAMES[fate]} any more")
        return known is not None

    def end(self, half: Half, fate: int) -> None:
        """The half is no more. A committed message must be in the log by now: then a crash cannot keep the op alone,
        since that comes behind it."""
        queue = self._queues[half.message.queue_id]
        self._add_ops(queue, queue.end(half, fate))
        self.counts.add(half.real_topic, -1, self._now_ms)

    def resume(self, message: StoredMessage) -> PutResult:
        """Put a message that was given up among the halves again."""
        half = Half(message)
        if message.topic not in (GIVEN_UP_TOPIC, HALF_TOPIC) or not half.is_whole:
            raise _refusal(f"the message at physical offset {message.physical_offset} is not one of a transaction")
        request = half.resumed()
        result = self._put(request)
        if result.status == PutStatus.OK:
            self._queues[request.queue_id].copied(half, result.queue_offset)
            if message.topic == GIVEN_UP_TOPIC:
                self.counts.add(half.real_topic, 1, self._now_ms)
        return result

    # By the clock

    def tend(self, save_progress: bool) -> None:
        """Write ops that wait. `save_progress`: nobody is reading the table of offsets now, so that progress of
        halves and ops goes into the file together."""
        for queue in self._queues.values():
            self._write_ops(queue)
            if save_progress:
                self._save_progress(queue)

    def _save_progress(self, queue: HalfQueue) -> None:
        log = self._store.log
        mark = queue.mark
        if mark is not None and log.flushed_offset < mark.log_offset:
            return
        if mark is not None:
            self._commit(HALF_TOPIC, queue.queue_id, mark.half_offset)
            self._commit(OP_TOPIC, queue.queue_id, mark.op_offset)
        queue.mark = Mark(log.max_offset, queue.offset, queue.ops.progress)

    def _commit(self, topic: str, queue_id: int, offset: int) -> None:
        """Progress that is none is not written: a broker without transactions shows no group that reads them."""
        if offset != self._saved(topic, queue_id):
            self._offsets.commit(PROGRESS_GROUP, topic, queue_id, offset, "")

    def _add_ops(self, queue: HalfQueue, offsets: list[int]) -> None:
        for offset in offsets:
            if queue.batch.add(offset, self._config().op_bytes_max):
                self._write_ops(queue)

    def _write_ops(self, queue: HalfQueue) -> None:
        if self._put_elsewhere is not None:
            return  # the log is the master's, which has or makes the same ops
        bytes_max = self._config().op_bytes_max
        while len(queue.batch):
            record, count = queue.batch.next_record(bytes_max, self._now_ms, self._own.host)
            result = self._put(record)
            if result.status != PutStatus.OK:
                logger.warning("keep ops waiting count=%d cause=%s", len(queue.batch), result.remark)
                return
            queue.batch.written(count)

    def begin_round(self) -> None:
        if self._round is None:
            self._round = self._walk()
            self._go_on()

    def _go_on(self) -> None:
        if self._round is None:
            return
        try:
            next(self._round)
        except StopIteration:
            self._round = None
        except Exception:
            self._round = None
            logger.exception("fail round of transactions")
        else:
            if not self._is_loading:
                self._turn = self._clock.call_later(0, self._go_on)

    # A round; whoever is called `yield`s when it is time for others

    def _walk(self) -> Iterator[None]:
        for queue in self._queues.values():
            self._write_ops(queue)
            low, high = self._store.queue_bounds(HALF_TOPIC, queue.queue_id)
            from_offset = queue.offset
            if queue.move_within(low, high):
                logger.warning("move half progress queue=%d from=%d to=%d", queue.queue_id, from_offset, queue.offset)
            if not queue.copies_known:
                yield from self._find_copies(queue, high)
            while True:
                yield from self._load("ops", queue, queue.ops.next_entries(self._store))
                if not self._read_ops(queue):
                    break
                yield
            yield from self._walk_queue(queue, high)

    def _find_copies(self, queue: HalfQueue, end: int) -> Iterator[None]:
        """Once after a start: what was copied before it, so that nothing is copied again."""
        offset = queue.offset
        while offset < end:
            entries = self._store.queue_entries(HALF_TOPIC, queue.queue_id, offset, HALVES_PER_TURN)
            if not entries:
                break
            yield from self._load("copies", queue, entries)
            for physical_offset, record_bytes, _ in entries:
                message = self._store.message_at(physical_offset, record_bytes)
                if message is not None:
                    half = Half(message)
                    if half.is_copy:
                        self._add_ops(queue, queue.found_copy(half))
            offset += len(entries)
            yield
        queue.found_copies()

    def _walk_queue(self, queue: HalfQueue, end: int) -> Iterator[None]:
        clock = self._clock
        stop_s = clock.monotonic() + QUEUE_ROUND_S
        while queue.offset < end and clock.monotonic() < stop_s:
            count = min(HALVES_PER_TURN, end - queue.offset)
            entries = self._store.queue_entries(HALF_TOPIC, queue.queue_id, queue.offset, count)
            if not entries:
                return
            yield from self._load("halves", queue, entries)
            goes_on = self._pass(queue, entries)
            if self._gave_up:
                # Now, not with the next ops: a crash in between would have them given up again.
                self._gave_up = False
                self._write_ops(queue)
            if not goes_on:
                return
            yield

    def _load(self, walk: str, queue: HalfQueue, entries: list[tuple[int, int, int]]) -> Iterator[None]:
        """Wait until these records are in memory."""
        places = [(physical_offset, record_bytes) for physical_offset, record_bytes, _ in entries]
        if self._pages.wanted(f"{walk} {queue.queue_id}", places, self._loaded):
            self._is_loading = True
            yield

    def _loaded(self) -> None:
        self._is_loading = False
        self._go_on()

    def _pass(self, queue: HalfQueue, entries: list[tuple[int, int, int]]) -> bool:
        for physical_offset, record_bytes, _ in entries:
            if not self._look_at(queue, physical_offset, record_bytes):
                return False
            queue.offset += 1
        return True

    def _look_at(self, queue: HalfQueue, physical_offset: int, record_bytes: int) -> bool:
        """The half at `queue.offset`; False if the walk must end before it."""
        if self._has_ended(queue, queue.offset):
            queue.ops.passed(queue.offset)
            return True
        message = self._store.message_at(physical_offset, record_bytes)
        if message is None:
            logger.error("skip half that cannot be read queue_offset=%d", queue.offset)
            return True
        half = Half(message)
        if queue.is_superseded(half) or queue.has_ended(half.first_offset):
            return True
        if self._put_elsewhere is not None:
            return self._put_elsewhere(half.as_sent()).status != PutStatus.SERVICE_NOT_AVAILABLE
        config = self._config()
        age_ms_max = self._store.options.file_reserved_hours * HOUR_MS
        rules = Rules(config.transaction_timeout_ms, config.transaction_checks_max, age_ms_max)
        verdict = judge(half, self._now_ms, rules)
        if verdict == Verdict.WAIT:
            return False
        if verdict == Verdict.GIVE_UP:
            return self._give_up(queue, half)
        if verdict == Verdict.KEEP:
            return self._put_copy(queue, half, half.immune_copy()) is not None
        return self._ask(queue, half)

    def _has_ended(self, queue: HalfQueue, offset: int) -> bool:
        """Reads ops until one names the half, or there are no more."""
        while not queue.has_ended(offset):
            if not self._read_ops(queue):
                return False
        return True

    def _read_ops(self, queue: HalfQueue) -> bool:
        store = self._store
        _, end = store.queue_bounds(HALF_TOPIC, queue.queue_id)
        return queue.ops.read(store, queue.offset, end)

    def _ask(self, queue: HalfQueue, half: Half) -> bool:
        """Copy the half and ask a producer for the copy. With no producer there the round counts as well, so that the
        copies of a message that nobody will ever decide come to an end. One that is there, but slow to take what it
        is sent, is asked in a later round, which is the one that counts."""
        link = self._producers.pick(half.group or "")
        asked = link is None or link.is_writable
        copy = half.copy(half.checks + 1 if asked else half.checks)
        result = self._put_copy(queue, half, copy)
        if result is None:
            return False
        if link is None:
            logger.debug("find no producer group=%s unique_id=%s", half.group, half.unique_id)
        elif asked:
            self._send_question(link, half, copy, result)
        return True

    def _send_question(self, link: Link, half: Half, copy: AppendRequest, result: PutResult) -> None:
        offset_id = self._own.offset_id(result.physical_offset)
        command = question(
            half, copy, result.queue_offset, result.physical_offset, offset_id, self._config().broker_name
        )
        try:
            link.send_oneway(command)
        except CallError as error:
            logger.debug("fail question group=%s unique_id=%s cause=%s", half.group, half.unique_id, error)

    def _put_copy(self, queue: HalfQueue, half: Half, copy: AppendRequest) -> PutResult | None:
        result = self._put(copy)
        if result.status != PutStatus.OK:
            logger.warning("stop round of transactions queue=%d cause=%s", queue.queue_id, result.remark)
            return None
        queue.copied(half, result.queue_offset)
        return result

    def _give_up(self, queue: HalfQueue, half: Half) -> bool:
        self._topics.create_in_send_back(GIVEN_UP_TOPIC, 1, PERM_READ_WRITE)
        result = self._put(half.given_up())
        if result.status != PutStatus.OK:
            logger.warning("stop round of transactions queue=%d cause=%s", queue.queue_id, result.remark)
            return False
        logger.warning("give up half unique_id=%s topic=%s checks=%d", half.unique_id, half.real_topic, half.checks)
        self.end(half, Fate.GIVEN_UP)
        self._gave_up = True
        return True

    # Helpers

    @property
    def _now_ms(self) -> int:
        return self._clock.now_ms()

    def _put(self, request: AppendRequest) -> PutResult:
        result = self._store.put(request)
        if result.status == PutStatus.OK:
            self._delivered(request.topic, request.queue_id, result.record_bytes)
        return result


def _refusal(remark: str) -> RequestError:
    return RequestError(Response.SYSTEM_ERROR, remark)
