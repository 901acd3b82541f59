"""How far long work is, on stderr, while a person watches: nothing is drawn where stderr is a file or a pipe.

    exported 12000 messages, 8100 a second
    [##########..............................]  25%  262144 records

Both are erased when the work has ended.
"""

import sys
import time
from collections.abc import Iterator
from typing import Final

from cometmq.cli.shared import output
from cometmq.store.log.resync import Damage
from cometmq.store.offline.log_files import FoundRecord, LogFiles

COUNT_EVERY: Final = 1000
DRAW_EVERY_S: Final = 0.2
BAR_COLUMNS: Final = 40
ERASE: Final = "\r\x1b[K"


class Counter:
    """Of work whose end nobody knows; `end` says the sum to everybody."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began_s = time.monotonic()
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count % COUNT_EVERY == 0 and sys.stderr.isatty():
            rate = self.count / max(0.001, time.monotonic() - self._began_s)
            _draw(f"{self._what} {self.count} messages, {rate:.0f} a second")

    def end(self) -> None:
        _erase()
        output.note(f"{self._what} {self.count} messages")


class WatchedLog(LogFiles):
    """A log that shows how much of it was read, and cleans up after itself."""

    def walk(self, check_crc: bool = True) -> Iterator[FoundRecord | Damage]:
        if not sys.stderr.isatty():
            yield from super().walk(check_crc)
            return
        whole = max(1, sum(segment.size for segment in self.segments))
        drawn_s = 0.0
        try:
            for count, found in enumerate(super().walk(check_crc)):
                if time.monotonic() - drawn_s >= DRAW_EVERY_S:
                    drawn_s = time.monotonic()
                    at = found.end if isinstance(found, Damage) else found.physical_offset
                    _draw(f"{bar((at - self.start) / whole)}  {count} records")
                yield found
        finally:
            _erase()


def bar(share: float) -> str:
    share = min(1.0, max(0.0, share))
    filled = round(BAR_COLUMNS * share)
    return f"[{'#' * filled}{'.' * (BAR_COLUMNS - filled)}] {share:4.0%}"


def _draw(text: str) -> None:
    print(ERASE + text, end="", file=sys.stderr, flush=True)


def _erase() -> None:
    if sys.stderr.isatty():
        print(ERASE, end="", file=sys.stderr, flush=True)
