"""The audit log: who was refused what, and who changed users and policies. Never a password, never a signature.

    refuse request code=310 user=alice source=10.0.0.7 cause=User:alice has no permission ... seen=1
    create user user=bob by=root source=10.0.0.2 type=Normal

Its lines go where the server's own go, or into a file of their own that only its owner reads (authAuditLogPath), which
may be moved away while the server runs. A refusal is written once a minute for each user and source; peers choose the
names, so that beyond PAIRS_MAX of them in a minute the others share one line.
"""

from __future__ import annotations

import logging
import os
from logging.handlers import WatchedFileHandler
from typing import IO, Any, Final

from cometmq.clock import Clock
from cometmq.errors import ConfigError
from cometmq.log_lines import OneLine
from cometmq.rate_limited_log import ThinnedLog
from cometmq.state_file import PRIVATE_MODE

LOGGER: Final = "cometmq.audit"
QUIET_S: Final = 60.0
PAIRS_MAX: Final = 1_000
NAME_CHARS_SHOWN: Final = 128


class Audit:
    """Of one server, called `name`. Without `path` it needs neither `open` nor `close`."""

    def __init__(self, clock: Clock, name: str, path: str = "") -> None:
        self.log: logging.Logger = logging.getLogger(f"{LOGGER}.{name}")
        self._path = path
        self._clock = clock
        self._pairs: dict[tuple[str, str], tuple[float, int]] = {}
        self._others = ThinnedLog(self.log, clock)
        self._file: _PrivateFile | None = None

    def open(self) -> None:
        """Raises ConfigError if the file cannot be written."""
        if not self._path or self._file is not None:
            return
        try:
            self._file = _PrivateFile(self._path, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"authAuditLogPath={self._path} cannot be written: {error.strerror or error}") from error
        self._file.setFormatter(OneLine(logging.Formatter("%(asctime)s %(levelname)s %(message)s")))
        self.log.addHandler(self._file)
        self.log.setLevel(logging.INFO)
        self.log.propagate = False

    def close(self) -> None:
        if self._file is not None:
            self.log.removeHandler(self._file)
            self.log.propagate = True
            self._file.close()
            self._file = None

    def changed(self, action: str, name: str, by: str, source: str, what: str = "") -> None:
        self.log.info("%s user=%s by=%s source=%s %s", action, name, by, source, what)

    def refused(self, code: int, name: str, source: str, cause: str) -> None:
        pair, now_s = (name[:NAME_CHARS_SHOWN], source), self._clock.monotonic()
        if pair not in self._pairs and not self._has_room(now_s):
            self._others.warning("refuse request code=%d source=%s of too many users to name", code, source)
            return
        line_s, count = self._pairs.get(pair, (float("-inf"), 0))
        is_due = now_s - line_s >= QUIET_S
        self._pairs[pair] = (now_s if is_due else line_s, count + 1)
        if is_due:
            self.log.warning(
                "refuse request code=%d user=%s source=%s cause=%s seen=%d", code, pair[0], source, cause, count + 1
            )

    def _has_room(self, now_s: float) -> bool:
        if len(self._pairs) >= PAIRS_MAX:
            self._pairs = {pair: seen for pair, seen in self._pairs.items() if now_s - seen[0] < QUIET_S}
        return len(self._pairs) < PAIRS_MAX


class _PrivateFile(WatchedFileHandler):
    def _open(self) -> IO[Any]:  # type: ignore[override]
        def opener(path: str, flags: int) -> int:
            return os.open(path, flags, PRIVATE_MODE)

        return open(self.baseFilename, "a", encoding=self.encoding, opener=opener)
