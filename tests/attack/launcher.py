"""Runs `cometmq ARGUMENTS` with a probe on its event loop; the product's code is as it is.

    python -m tests.attack.launcher broker --set=...
    stdin   one word a line: `begin` measures from now on, `report` prints one line of JSON on stdout
    stdout  the server's own `ready` line, then the reports

The probe is a timer of the loop itself. Between two ticks lies at most one turn of the loop (and `TICK_S` of waiting),
so the longest gap bounds the longest turn from above. It is counted in CPU time of the loop's thread, which other
processes of the machine do not lengthen, and in wall time, which they do. `where` is what the loop's thread was doing
when a turn had lasted for `LOOK_AFTER_S`, seen by another thread.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
import traceback
from typing import Any

from cometmq.cli.main import main
from cometmq.net import loop as product_loop

TICK_S = 0.001
LOOK_S = 0.005
LOOK_AFTER_S = 0.03
FRAMES_SHOWN = 6


class Probe:
    def __init__(self) -> None:
        self.thread_id = 0
        self.cpu_s = 0.0
        self.wall_s = 0.0
        self.turns = 0
        self.where: list[str] = []
        self._tick_cpu_s = 0.0
        self._tick_s = 0.0
        self._seen: list[str] = []
        self._collecting_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.call_soon(self._begin)
        gc.callbacks.append(self._collecting)

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        if threading.get_ident() == self.thread_id and info.get("generation") == 2 and phase == "start":
            self._seen = ["the garbage collector, oldest generation"]

    def _begin(self) -> None:
        self.thread_id = threading.get_ident()
        self._tick_cpu_s, self._tick_s = time.thread_time(), time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()
        threading.Thread(target=self._serve, daemon=True).start()
        self._tick()

    def _tick(self) -> None:
        assert self._loop is not None
        cpu_s, now_s = time.thread_time(), time.monotonic()
        self.turns += 1
        self.wall_s = max(self.wall_s, now_s - self._tick_s)
        if cpu_s - self._tick_cpu_s > self.cpu_s:
            self.cpu_s = cpu_s - self._tick_cpu_s
            self.where = self._seen
        self._seen = []
        self._tick_cpu_s, self._tick_s = cpu_s, now_s
        self._loop.call_later(TICK_S, self._tick)

    def reset(self) -> None:
        self.cpu_s = self.wall_s = 0.0
        self.turns = 0
        self.where = []

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_S)
            if not self._seen and time.monotonic() - self._tick_s > LOOK_AFTER_S:
                frame = sys._current_frames().get(self.thread_id)
                frames = traceback.extract_stack(frame)[-FRAMES_SHOWN:]
                self._seen = [f"{one.filename.rpartition('/')[2]}:{one.lineno} {one.name}" for one in frames]

    def _serve(self) -> None:
        for line in sys.stdin:
            if line.strip() == "begin":
                self.reset()
                print(json.dumps({}), flush=True)
            else:
                report = {"cpu_s": self.cpu_s, "wall_s": self.wall_s, "turns": self.turns, "where": self.where}
                print(json.dumps(report), flush=True)


def probed() -> None:
    """From now on every loop that a server makes has the probe."""
    factory_of = product_loop.loop_factory

    def loop_factory() -> Any:
        factory = factory_of()

        def make() -> asyncio.AbstractEventLoop:
            made = factory()
            Probe().install(made)
            return made

        return make

    product_loop.loop_factory = loop_factory


if __name__ == "__main__":
    probed()
    sys.exit(main())
