"""What is deleted when: segments by age and disk use, then the queue and index files that point to nothing.

    in the hours of `deleteWhen`, when asked to, or when a disk is above    delete segments older than
    `diskMaxUsedSpaceRatio` (75 %) or cannot be measured                    `fileReservedTime`
    a disk above `diskSpaceCleanForciblyRatio` (85 %)                       delete the oldest, whatever their age
    a disk above `diskSpaceWarningLevelRatio` (90 %)                        the same, and take no messages until it is
                                                                            below again

Two disks count: the least used one of the commit log, and the one of the consume queues. Oldest first, never the last
segment nor one that is not flushed, at most `deleteFileBatchMax` in a round. A deleted segment stays readable for who
holds a slice of it.

Queues follow when the log's first offset has risen, a few at a time: there may be ten thousand of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

from cometmq.clock import Clock
from cometmq.store.disk import Disk
from cometmq.store.log.segments import Segments
from cometmq.store.log.write_flags import DISK_FULL, QUEUE_DISK_FULL, Flags
from cometmq.store.options import StoreOptions
from cometmq.store.queues.consume_queues import AnyQueue, ConsumeQueues
from cometmq.store.queues.index import Index

log = logging.getLogger(__name__)

MANUAL_ROUNDS: Final = 20
QUEUES_PER_STEP: Final = 100
_HOUR_MS: Final = 3_600_000
_WARNING_PERCENT: Final = (35, 90)
_FORCIBLY_PERCENT: Final = (30, 85)


class Space:
    """What the disks say: `full_paths` get no new segment, `delete` and `at_once` as in the table above."""

    def __init__(self) -> None:
        self.log_ratio: float = 0.0
        self.queue_ratio: float = 0.0
        self.full_paths: set[str] = set()
        self.delete: bool = False
        self.at_once: bool = False


class Retention:
    def __init__(
        self,
        segments: Segments,
        queues: ConsumeQueues,
        index: Index,
        flags: Flags,
        options: StoreOptions,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self.space = Space()
        # Removes a file that nothing refers to any more; may be handed to another thread, it can take long.
        self.remove_file: Callable[[str], object] = disk.remove
        self._segments = segments
        self._queues = queues
        self._index = index
        self._flags = flags
        self._options = options
        self._disk = disk
        self._clock = clock
        self._manual_rounds = 0
        self._followed_to = segments.min_offset
        self._queues_left: Iterator[AnyQueue] | None = None
        segments.avoid(self._is_crowded)

    def delete_by_hand(self) -> None:
        """An operator asked for it: the next rounds delete by age, whatever the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def round(self) -> int:
        """Look at clock and disks, delete segments that may go. Returns how many were deleted."""
        self.space = self.measure()
        manual = self._manual_rounds > 0
        if manual:
            self._manual_rounds -= 1
        if not (manual or self.space.delete or self._is_hour()):
            return 0
        return self._delete_segments(self._options.clean_forcibly and self.space.at_once)

    def _is_hour(self) -> bool:
        hour = time.localtime(self._clock.now_ms() // 1000).tm_hour
        hours = [text.strip() for text in self._options.delete_when.split(";")]
        return any(text.isdecimal() and int(text) == hour for text in hours)

    def _delete_segments(self, whatever_age: bool) -> int:
        deleted = 0
        oldest_kept_ms = self._clock.now_ms() - self._options.file_reserved_hours * _HOUR_MS
        while deleted < self._options.delete_files_max and len(self._segments.segments) > 1:
            segment = self._segments.segments[0]
            if segment.flushed < segment.wrote:
                # A flush may be at it this moment, and a file that is gone looks like a failing disk.
                break
            if not whatever_age and self._modified_ms(segment.file.path) > oldest_kept_ms:
                break
            log.info("deleted segment path=%s at_once=%s", segment.file.path, whatever_age)
            del self._segments.segments[0]
            segment.close()
            self.remove_file(segment.file.path)
            deleted += 1
        return deleted

    def _modified_ms(self, path: str) -> int:
        try:
            return self._disk.modified_ms(path)
        except FileNotFoundError:
            return 0

    # Space

    def measure(self) -> Space:
        """Ask the disks and set the flags that stop puts."""
        options = self._options
        space = Space()
        warning = _clamped(options.disk_warning_percent, _WARNING_PERCENT) / 100
        forcibly = _clamped(options.disk_clean_forcibly_percent, _FORCIBLY_PERCENT) / 100
        ratios = {path: self._ratio(path) for path in options.commitlog_dirs()}
        space.full_paths = {path for path, ratio in ratios.items() if ratio > forcibly}
        space.log_ratio = min(ratios.values())
        space.queue_ratio = self._ratio(options.path("consumequeue"))
        for ratio, bit in ((space.log_ratio, DISK_FULL), (space.queue_ratio, QUEUE_DISK_FULL)):
            if ratio > warning:
                if self._flags.set(bit):
                    log.error("stopped taking messages, disk is full used=%.2f limit=%.2f", ratio, warning)
                space.at_once = True
            else:
                if self._flags.clear(bit):
                    log.warning("takes messages again, disk has room used=%.2f limit=%.2f", ratio, warning)
                space.at_once = space.at_once or ratio > forcibly
        limit = options.disk_used_percent_max / 100
        if options.replicas_per_disk > 1:
            share = self._share_of_partition(space.log_ratio)
            space.at_once = space.at_once or share > options.logical_disk_clean_forcibly_ratio
            space.delete = space.at_once or share > limit
        else:
            unknown = space.log_ratio < 0 or space.queue_ratio < 0
            space.delete = space.at_once or unknown or max(space.log_ratio, space.queue_ratio) > limit
        return space

    def _ratio(self, path: str) -> float:
        """Used part of the partition; -1 if it cannot be measured."""
        try:
            return self._disk.used_ratio(path)
        except OSError as error:
            log.error("failed to measure disk path=%s error=%s", path, error)
            return -1.0

    def _share_of_partition(self, ratio: float) -> float:
        """Of the part of the partition that is meant for this store, how much it uses."""
        usable = self._disk.usable_bytes(self._options.commitlog_dirs()[0])
        partition = usable / max(0.01, 1.0 - ratio)
        used = self._segments.totals()[1] + sum(file.file.size for file in self._index.files)
        used += sum(len(queue.files.starts) * queue.files.file_bytes for queue in self._queues.all())
        return used * self._options.replicas_per_disk / partition

    def _is_crowded(self, path: str) -> bool:
        return path in self.space.full_paths

    # What follows

    def follow(self, queues_max: int = QUEUES_PER_STEP) -> bool:
        """Delete queue and index files that lie wholly before the log. True if there is more to do."""
        log_min = self._segments.min_offset
        if self._queues_left is None:
            if log_min <= self._followed_to:
                return False
            self._followed_to = log_min
            self._index.delete_expired(log_min)
            self._queues_left = iter(list(self._queues.all()))
        for _ in range(queues_max):
            queue = next(self._queues_left, None)
            if queue is None:
                self._queues_left = None
                return self._segments.min_offset > self._followed_to
            self._queues.delete_expired_of(queue, self._followed_to)
        return True

    def run_now(self) -> int:
        """A round and all that follows from it."""
        deleted = self.round()
        while self.follow():
            pass
        return deleted


def _clamped(percent: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(percent, limits[1]))
