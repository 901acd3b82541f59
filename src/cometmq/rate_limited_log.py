"""A log line that a peer can cause at will must not fill the disk.

The first line of a kind is written, then every `every`-th, and the next one after `quiet_s` without a line. Each says
how many of its kind there were, so nothing is lost but the repetition.
"""

import logging

from cometmq.clock import Clock

EVERY = 50_000
QUIET_S = 60.0


class ThinnedLog:
    """One per kind of line."""

    __slots__ = ("_clock", "_every", "_line_s", "_logger", "_quiet_s", "count")

    def __init__(
        self, logger: logging.Logger, clock: Clock, every: int = EVERY, quiet_s: float = QUIET_S
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._every = every
        self._quiet_s = quiet_s
        self._line_s = float("-inf")
        self.count = 0

    def warning(self, line: str, *values: object, error: BaseException | None = None) -> None:
        """`error` adds its traceback."""
        self.count += 1
        now = self._clock.monotonic()
        if self.count % self._every == 1 or now - self._line_s >= self._quiet_s:
            self._line_s = now
            self._logger.warning(f"{line} seen=%d", *values, self.count, exc_info=error)
