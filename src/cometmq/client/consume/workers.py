"""At most so many handlers at a time; the rest waits in line.

A worker is a task that takes jobs from the line until it is empty. Workers start when there is something to do: an idle
consumer has none, and a busy one starts no task per message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

logger = logging.getLogger(__name__)

# Handlers that never wait would keep the loop from everything else.
JOBS_IN_A_ROW: Final = 32


class Job(Protocol):
    async def run(self) -> None: ...


class Workers:
    """`spawn` starts a task."""

    def __init__(self, count_max: int, spawn: "Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]") -> None:
        self._count_max = count_max
        self._spawn = spawn
        self._line: deque[Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def running(self) -> int:
        return len(self._tasks)

    def submit(self, job: Job) -> None:
        if self._is_closed:
            return
        self._line.append(job)
        if len(self._tasks) < self._count_max:
            task = self._spawn(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def stop(self, timeout_s: float) -> bool:
        """Forget the line, wait for what runs, cancel what takes too long. True if nothing was cancelled.

        A handler that stops its own consumer is not waited for.
        """
        self._is_closed = True
        self._line.clear()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return not late

    async def _work(self) -> None:
        in_a_row = 0
        while self._line:
            job = self._line.popleft()
            try:
                await job.run()
            except Exception:
                logger.exception("fail job %r", job)
            in_a_row += 1
            if in_a_row % JOBS_IN_A_ROW == 0:
                await asyncio.sleep(0)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._line and not self._is_closed:  # one was cancelled from outside
            self.submit(self._line.popleft())
