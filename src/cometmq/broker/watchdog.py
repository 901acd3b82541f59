"""Explains afterwards why the broker stood still: stacks of all threads and tasks, taken while it did.

    LoopWatch.ticked_s   set by the event loop every 50 ms
    this thread          looks at it; a loop silent for over `STALL_S` has its stacks written to a file

    <directory>/stack-20261115T121314-1203ms.txt      at most one per second, the newest `FILES_MAX` are kept

RocketMQ watches who holds its put lock for over a second; here the loop is that lock. Switched on by
`debugLockEnable`. A call that blocks without letting other threads run cannot be caught in the act.
"""

import asyncio
import io
import logging
import os
import sys
import threading
import traceback
from datetime import datetime
from pathlib import Path
from typing import Final

from cometmq.broker.admission import LoopWatch
from cometmq.clock import Clock

logger = logging.getLogger(__name__)

STALL_S: Final = 1.0
LOOK_S: Final = 0.1
BETWEEN_FILES_S: Final = 1.0
FILES_MAX: Final = 100


class Watchdog:
    def __init__(self, watch: LoopWatch, clock: Clock, loop: asyncio.AbstractEventLoop, directory: Path) -> None:
        self.written: int = 0
        self._watch = watch
        self._clock = clock
        self._loop = loop
        self._directory = directory
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        written_s = float("-inf")
        while not self._stopping.wait(LOOK_S):
            now_s = self._clock.monotonic()
            stalled_s = now_s - self._watch.ticked_s
            if stalled_s > STALL_S and now_s - written_s >= BETWEEN_FILES_S:
                written_s = now_s
                self._write(stalled_s)

    def _write(self, stalled_s: float) -> None:
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000).astimezone()
        path = self._directory / f"stack-{moment:%Y%m%dT%H%M%S}-{stalled_s * 1000:.0f}ms.txt"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            path.write_text(f"event loop silent for {stalled_s:.3f} s at {moment.isoformat()}\n{self._stacks()}")
            self.written += 1
            logger.warning("loop stands still for_ms=%d stacks=%s", stalled_s * 1000, path)
            self._remove_oldest()
        except OSError as error:
            logger.warning("fail write stacks path=%s error=%s", path, error)

    def _stacks(self) -> str:
        text = io.StringIO()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            text.write(f"\nthread {names.get(ident, '?')} {ident}\n")
            text.writelines(traceback.format_stack(frame))
        for task in asyncio.all_tasks(self._loop):
            text.write(f"\ntask {task.get_name()}\n")
            task.print_stack(file=text)
        return text.getvalue()

    def _remove_oldest(self) -> None:
        files = sorted(self._directory.glob("stack-*.txt"), key=os.path.getmtime)
        for path in files[:-FILES_MAX]:
            path.unlink(missing_ok=True)
