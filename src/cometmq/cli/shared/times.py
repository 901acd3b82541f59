"""Moments and spans as people type and read them.

    2026-11-15T12:30:00      local time, unless it says otherwise: 2026-11-15T12:30:00Z, ...+02:00
    1763209800000            milliseconds since 1970
    -1h, -30m, -2d           that long ago
    now
"""

import re
from datetime import UTC, datetime
from typing import Final

from cometmq.errors import ConfigError

_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MILLISECONDS_DIGITS: Final = range(12, 15)


def moment_ms(text: str, now_ms: int) -> int:
    """ConfigError names what can be written."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - round(float(ago[1]) * _UNITS_MS[ago[2]])
    if text == "now":
        return now_ms
    if text.isdecimal() and len(text) in _MILLISECONDS_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        kinds = "2026-11-15T12:30:00, milliseconds since 1970, or how long ago like -1h"
        raise ConfigError(f"{text!r} is no moment: write {kinds}") from None
    return round(moment.timestamp() * 1000)


def time_text(milliseconds: int | None) -> str | None:
    """For people: local time to the second; None for never."""
    if milliseconds is None or milliseconds <= 0:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().isoformat(" ", "seconds")


def span_text(milliseconds: float | None) -> str | None:
    """850 ms, 12 s, 3 m 20 s, 5 h 10 m, 2 d 3 h."""
    if milliseconds is None:
        return None
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = int(milliseconds // 1000)
    for unit, below, size, smaller in (("m", 3600, 60, "s"), ("h", 86400, 3600, "m"), ("d", 1 << 62, 86400, "h")):
        if seconds < 60:
            return f"{seconds} s"
        if seconds < below:
            rest = seconds % size // {"s": 1, "m": 60, "h": 3600}[smaller]
            return f"{seconds // size} {unit} {rest} {smaller}"
    raise AssertionError("every span has a unit")


def bytes_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
