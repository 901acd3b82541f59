"""How many bytes pass in a second: measured, and bounded where a bound is set."""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 1.0


class Pace:
    """Counts in windows of a second; `window_end_s` is when the current one ends."""

    def __init__(self, now_s: float) -> None:
        self.total_bytes: int = 0
        self._window_s: float = now_s
        self._window_bytes: int = 0
        self._last_bytes: int = 0

    @property
    def window_end_s(self) -> float:
        return self._window_s + WINDOW_S

    def count(self, count: int, now_s: float) -> None:
        self._roll(now_s)
        self._window_bytes += count
        self.total_bytes += count

    def room(self, bytes_max: int, now_s: float) -> int:
        """How much may still pass in this second."""
        self._roll(now_s)
        return bytes_max - self._window_bytes

    def rate(self, now_s: float) -> int:
        """Bytes of the last whole second."""
        self._roll(now_s)
        return self._last_bytes

    def _roll(self, now_s: float) -> None:
        passed_s = now_s - self._window_s
        if passed_s >= WINDOW_S:
            self._last_bytes = self._window_bytes if passed_s < 2 * WINDOW_S else 0
            self._window_s = now_s
            self._window_bytes = 0
