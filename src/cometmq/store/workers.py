"""Threads that do what may wait for a disk, so that the store's own thread never does.

A worker runs acts one after the other and reports each on the thread that owns the store. An act touches files
and its own objects only; what came of it is taken over by its report.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

log = logging.getLogger(__name__)

Act = Callable[[], object]


class Worker(Protocol):
    @property
    def pending(self) -> int:
        """Acts whose report was not made yet."""

    def submit(self, act: Act, report: Act) -> None:
        """Run `act`, then `report` on the store's thread, also when `act` raised (which is logged)."""

    def stop(self) -> None:
        """Return when all acts have run and all reports were made. Call it on the store's thread."""


class ThreadWorker:
    """`post` runs a function on the store's thread: loop.call_soon_threadsafe."""

    def __init__(self, name: str, post: Callable[[Act], object]) -> None:
        self._post = post
        self._acts: SimpleQueue[tuple[Act, Act] | None] = SimpleQueue()
        self._reports: deque[Act] = deque()
        self.pending = 0
        self._thread = threading.Thread(target=self._run, name=f"cometmq-{name}", daemon=True)
        self._thread.start()

    def submit(self, act: Act, report: Act) -> None:
        self.pending += 1
        self._acts.put((act, report))

    def _run(self) -> None:
        while (task := self._acts.get()) is not None:
            act, report = task
            _run_logged(act)
            self._reports.append(report)
            self._post(self._report)

    def _report(self) -> None:
        while self._reports:
            self.pending -= 1
            self._reports.popleft()()

    def stop(self) -> None:
        self._acts.put(None)
        self._thread.join()
        self._report()


class InlineWorker:
    """No thread: act and report run at once, for tests and tools."""

    pending = 0

    def submit(self, act: Act, report: Act) -> None:
        _run_logged(act)
        report()

    def stop(self) -> None: ...


def _run_logged(act: Act) -> None:
    try:
        act()
    except Exception:
        log.exception("failed act in background")
