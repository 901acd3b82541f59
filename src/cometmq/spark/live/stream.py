"""The streaming source: how far there is to read, how far one batch goes, and what to read for it.

Spark asks one object in a process of its own for offsets, some 90 times a second while nothing happens; the cluster is
asked every `offsetPollMs`. Objects that plan and read are others: only offsets, as JSON, pass between them. Queues that
appear later begin at their first message. Where a queue ends is told by the broker, never guessed.

    a broker that is away     its queues keep their place, the others go on; a batch that needs it waits `retryMs`
    a queue that is gone      its broker is there and does not have it: loss
    a queue that went back    it ends before where the query stands, for longer than a restart takes: loss

With failOnDataLoss=false a lost stretch is left out, with one line in the log; a queue that was made anew is read from
its first message.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cometmq.errors import CometError, ConfigError
from cometmq.spark.kill_points import at
from cometmq.spark.live.offsets import Positions, Queue, Range, from_dict, limited, to_dict
from cometmq.spark.live.reading import DataLoss, check_loss
from cometmq.spark.live.remote import READER_GROUP, Bounds, Remote, remote
from cometmq.spark.live.source import RangePartition, partitions_of, read_partition, source_options
from cometmq.spark.live.starting import Pin, is_wanted, queues_of, starting
from cometmq.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
# When nobody knows better how large messages are.
_MESSAGE_BYTES: Final = 1024
# A broker that comes back may know less than it had for a moment.
_BACK_S: Final = 10.0
_PAUSE_S: Final = 1.0


class CometStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: dict[str, str], names: tuple[str, ...]) -> None:
        self.given = given
        self.names = names
        self._until: Positions | None = None
        self._seen: Positions = {}
        self._seen_s = 0.0
        self._queues: list[Queue] = []
        self._queues_s = float("-inf")
        self._firsts: Positions = {}
        self._back_since_s: dict[Queue, float] = {}
        self._batch_s = float("-inf")
        self._away: frozenset[str] = frozenset()

    def _options(self) -> Options:
        return source_options(self.given)

    # Offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options()
        cluster = remote(options)
        queues = self._known_queues(options)
        pin = Pin(options, cluster)
        text = (options.get("startingOffsets") or "latest").strip().lower()
        by_time = options.get("startingTimestamp") or options.get("startingOffsetsByTimestamp")
        moves = not by_time and (text in ("latest", "group") or "-1" in text or "-3" in text)
        if moves:
            pinned = pin.read(queues)
            if pinned is not None:
                return to_dict(pinned)
        found = starting(options, cluster, queues, streaming=True)
        if moves:
            pin.write(found)
        return to_dict(found)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options()
        stands = from_dict(start)
        self._known_queues(options, stands)
        ends = self._until if self._until is not None else self._ends(options)
        begin = {**self._beginnings(options, ends, stands), **stands}
        end = self._reachable(options, begin, ends)
        backlog = sum(max(0, end[queue] - begin[queue]) for queue in end)
        if self._until is None and self._must_wait(options, backlog):
            return start
        rows = _rows_of(limit, options, begin, end)
        self._batch_s = time.monotonic()
        return to_dict(limited(begin, end, rows) if rows is not None else end)

    def _beginnings(self, options: Options, ends: Positions, stands: Positions) -> Positions:
        """First offsets of queues that have appeared since the query began."""
        fresh = [queue for queue in ends if queue not in stands]
        unknown = [queue for queue in fresh if queue not in self._firsts]
        if unknown:
            self._firsts |= {queue: there.first for queue, there in remote(options).bounds(unknown).items()}
        return {queue: self._firsts[queue] for queue in fresh}

    def _reachable(self, options: Options, begin: Positions, ends: Positions) -> Positions:
        """Where each queue can be read to. One whose broker is away keeps its place."""
        found = {queue: max(ends.get(queue, 0), offset) for queue, offset in begin.items()}
        for queue, offset in begin.items():
            if queue not in ends or ends[queue] >= offset:
                self._back_since_s.pop(queue, None)
                continue
            since_s = self._back_since_s.setdefault(queue, time.monotonic())
            if self._until is None and time.monotonic() - since_s < _BACK_S:
                continue
            text = f"{queue}: the query stands at {offset}, the queue ends at {ends[queue]}: it was made anew"
            if options.flag("failOnDataLoss"):
                raise DataLoss(f"{text} or rolled back; set failOnDataLoss=false to read it from its first message")
            found[queue] = ends[queue]
        return found

    def _must_wait(self, options: Options, backlog: int) -> bool:
        least = options.optional_number("minOffsetsPerTrigger", 1)
        if least is None or backlog >= least:
            return False
        return time.monotonic() - self._batch_s < seconds(options.text("maxTriggerDelay"), "maxTriggerDelay")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        options = self._options()
        rows = options.optional_number("maxOffsetsPerTrigger", 1)
        size = options.optional_number("maxBytesPerTrigger", 1)
        if rows is not None and size is not None:
            raise ConfigError("give one of maxOffsetsPerTrigger and maxBytesPerTrigger")
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadMaxBytes(size) if size is not None else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return to_dict(self._ends(self._options()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until = self._ends(self._options(), fresh=True)

    def _ends(self, options: Options, fresh: bool = False) -> Positions:
        now_s = time.monotonic()
        if fresh:
            # A run over what is there must not leave out a broker that is away for a moment: wait for it.
            self._seen = remote(options).maximums(self._known_queues(options))
        elif not self._seen or now_s - self._seen_s >= options.number("offsetPollMs") / 1000:
            queues = self._known_queues(options)
            found = remote(options).maximums_at_hand(queues)
            self._note_away(frozenset(queue.broker for queue in queues if queue not in found))
            self._seen |= found
        else:
            return self._seen
        self._seen_s = now_s
        return self._seen

    def _note_away(self, away: frozenset[str]) -> None:
        """One line when it changes: questions come many times a second."""
        if away != self._away:
            logger.warning("brokers that do not answer: %s", ", ".join(sorted(away)) or "none any more")
            self._away = away

    def _known_queues(self, options: Options, stands: Positions | None = None) -> list[Queue]:
        now_s = time.monotonic()
        if now_s - self._queues_s < options.number("metadataTtlMs") / 1000:
            return self._queues
        cluster = remote(options)
        expected = {*self._queues, *(queue for queue in stands or () if is_wanted(options, queue))}
        try:
            found = set(queues_of(options, cluster))
            lost = cluster.gone(expected - found) if expected - found else set()
        except CometError as error:
            # The next question may find the name server or the broker back; until then nothing new is known.
            if not expected and not stands and self._queues_s < 0:
                raise
            found = set()
            lost = self._lost_meanwhile(cluster, expected, error)
        if lost and options.flag("failOnDataLoss"):
            raise DataLoss(_gone_text(lost))
        if lost & set(self._queues):
            logger.warning("lost queues %s", _gone_text(lost))
        self._queues = sorted({*self._queues, *found} - lost)
        self._queues_s = now_s
        return self._queues

    def _lost_meanwhile(self, cluster: Remote, expected: set[Queue], error: CometError) -> set[Queue]:
        logger.warning("cannot ask for queues: %s", error)
        try:
            return cluster.gone(expected)
        except CometError:
            return set()

    # Reading

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        at("offsets logged")
        options = self._options()
        first, last = from_dict(start), from_dict(end)
        fail = options.flag("failOnDataLoss")
        moving = [queue for queue in last if last[queue] != first.get(queue, -1)]
        ranges = []
        for queue, there in self._bounds(options, moving, fail).items():
            begin = first.get(queue, there.first)
            if begin > last[queue]:
                logger.warning("lost messages %s: made anew, read from %d", queue, there.first)
                begin = min(there.first, last[queue])
            ranges.append(check_loss(Range(queue, begin, last[queue]), there, fail))
        return list(partitions_of(options, ranges))

    def _bounds(self, options: Options, queues: list[Queue], fail: bool) -> dict[Queue, Bounds]:
        cluster = remote(options)
        give_up_s = time.monotonic() + cluster.connection.retry_s
        while True:
            try:
                lost = cluster.gone(queues) if queues else set()
                break
            except CometError:
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(_PAUSE_S)
        if lost and fail:
            raise DataLoss(_gone_text(lost))
        if lost:
            logger.warning("lost queues %s", _gone_text(lost))
        return cluster.bounds([queue for queue in queues if queue not in lost])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_partition(self.given, self.names, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Tells the group how far the query has come, for consoles; the checkpoint is what counts."""
        options = self._options()
        group = options.get("consumerGroup")
        if group is None or options.get("groupCommit") == "none":
            return
        try:
            remote(options).commit(group, from_dict(end))
        except CometError as error:
            logger.warning("cannot save the progress of group %s: %s", group, error)

    def stop(self) -> None:
        pass


def _gone_text(lost: set[Queue]) -> str:
    names = ", ".join(map(str, sorted(lost)))
    return f"{names}: not there any more, what was not read is lost; set failOnDataLoss=false to go on without"


def _rows_of(limit: ReadLimit, options: Options, begin: Positions, end: Positions) -> int | None:
    if isinstance(limit, ReadMaxRows):
        return max(1, limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return max(1, limit.max_bytes // _average_bytes(options, begin, end))
    return None


def _average_bytes(options: Options, begin: Positions, end: Positions) -> int:
    """Bytes of the records at the head of the largest backlog."""
    behind = [queue for queue in end if end[queue] > begin.get(queue, 0)]
    if not behind:
        return _MESSAGE_BYTES
    queue = max(behind, key=lambda one: end[one] - begin.get(one, 0))
    cluster = remote(options)
    pulled = cluster.run(cluster.pull(queue, begin.get(queue, 0), 32, 1 << 18, READER_GROUP, ("TAG", "*")))
    count = max(1, pulled.next_offset - begin.get(queue, 0))
    return max(1, len(pulled.body) // count) if pulled.body else _MESSAGE_BYTES


def seconds(text: str, name: str) -> float:
    """Of 15m, 500ms, 2h or a plain number of seconds."""
    stated = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", text.strip().lower())
    if stated is None:
        raise ConfigError(f"option {name}={text} is no duration such as 500ms, 30s or 15m")
    return float(stated.group(1)) * _UNITS[stated.group(2) or "s"]
