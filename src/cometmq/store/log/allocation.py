"""Segments made ahead of need, in the allocation thread.

Reserving a gigabyte takes milliseconds on a good day and seconds on a bad one, so the thread that serves clients does
not do it. The next segment is asked for early (see Segments.wanted); normally it lies ready when the log
rolls. If it does not:

    still being made     wait ROLL_WAIT_S once; if that was not enough, this put and those after it are refused with
                         CREATE_FILE_FAILED, without waiting, until the segment is there
    could not be made    refused at once: SERVICE_NOT_AVAILABLE if the disk is full, else CREATE_FILE_FAILED;
                         tried again every RETRY_S

Why not wait 5 s as RocketMQ does: docs/decisions/0010-roll-without-waiting.md
"""

from __future__ import annotations

import logging
import threading
from functools import partial

from cometmq.clock import Clock
from cometmq.errors import StoreError
from cometmq.store.log.segments import Segment, Segments
from cometmq.store.workers import Worker

log = logging.getLogger(__name__)

ROLL_WAIT_S = 0.02
RETRY_S = 1.0


class Allocation:
    def __init__(self, segments: Segments, worker: Worker, clock: Clock) -> None:
        self._segments = segments
        self._worker = worker
        self._clock = clock
        self._asked: set[int] = set()
        # Filled by the worker, emptied here.
        self._made: dict[int, Segment] = {}
        self._failed: dict[int, OSError | StoreError] = {}
        self._ready = threading.Event()
        self._stalled = False
        self._failure: OSError | StoreError | None = None

    def attach(self) -> None:
        """From now on segments are made ahead. One that the first put will need is made here: nobody waits yet."""
        self._segments.allocate_with(self.make, self.want)
        last = self._segments.last()
        if last is None or last.is_full:
            start = self._segments.next_start(0)
            self._asked.add(start)
            self._create(start)
            self._created(start)
        self._segments.ask_ahead()

    def want(self, start: int) -> None:
        """Have the segment made, unless that is under way."""
        if start not in self._asked:
            self._asked.add(start)
            self._worker.submit(partial(self._create, start), partial(self._created, start))

    def make(self, start: int) -> Segment | None:
        """The segment, if it can be had within ROLL_WAIT_S. What kept it from being made is raised."""
        if self._failure is not None:
            raise self._failure
        self._ready.clear()
        self.want(start)
        if not self._stalled:
            self._wait_for(start)
        self._take(start)
        if self._failure is not None:
            raise self._failure
        segment = self._segments.prepared.pop(start, None)
        if segment is None and not self._stalled:
            self._stalled = True
            log.warning("waits for segment start=%d", start)
        return segment

    def _wait_for(self, start: int) -> None:
        deadline_s = self._clock.monotonic() + ROLL_WAIT_S
        while start not in self._made and start not in self._failed:
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0 or not self._ready.wait(left_s):
                return
            self._ready.clear()

    def _create(self, start: int) -> None:
        """In the allocation thread."""
        try:
            self._made[start] = self._segments.create(start)
        except (OSError, StoreError) as error:
            self._failed[start] = error
        self._ready.set()

    def _created(self, start: int) -> None:
        self._asked.discard(start)
        self._take(start)

    def _take(self, start: int) -> None:
        segment = self._made.pop(start, None)
        if segment is not None:
            self._segments.offer(segment)
            self._stalled = False
            if self._failure is not None:
                log.info("created segment again start=%d", start)
                self._failure = None
        failure = self._failed.pop(start, None)
        if failure is not None:
            if self._failure is None:
                log.error("failed to create segment start=%d error=%s", start, failure)
            self._failure = failure
            self._asked.add(start)
            self._clock.call_later(RETRY_S, partial(self._retry, start))

    def _retry(self, start: int) -> None:
        self._asked.discard(start)
        self.want(start)

    def detach(self) -> None:
        """Remove what nobody took. The worker has stopped."""
        for segment in self._made.values():
            self._segments.offer(segment)
        self._made.clear()
        self._segments.drop_prepared()
        self._segments.allocate_alone()
