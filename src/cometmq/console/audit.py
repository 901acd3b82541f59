"""Who changed what: one JSON line a change, newest last, in a file that is only appended to.

    {"at_ms": 1, "who": "ada", "from": "10.0.0.7", "action": "topic.delete", "plan": {...}, "result": "done"}

A change whose line cannot be written is not made.
"""

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

from cometmq.console.answers import Problem
from cometmq.state_file import PRIVATE_MODE

KEPT: Final = 2000
TAIL_BYTES: Final = 4 << 20


class Audit:
    """Without a file the lines live as long as the console."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._lines: deque[dict[str, Any]] = deque(maxlen=KEPT)
        if file is not None and file.exists():
            with file.open("rb") as opened:
                opened.seek(max(0, file.stat().st_size - TAIL_BYTES))
                for line in opened.read().splitlines()[-KEPT:]:
                    try:
                        self._lines.append(json.loads(line))
                    except ValueError:
                        continue  # cut by the seek, or by a crash

    def note(self, who: str, address: str, action: str, plan: dict[str, Any], result: str) -> None:
        """Blocks for one small write."""
        line = {
            "at_ms": int(time.time() * 1000),
            "who": who,
            "from": address,
            "action": action,
            "plan": plan,
            "result": result,
        }
        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_MODE)
                try:
                    os.write(handle, json.dumps(line, ensure_ascii=False).encode() + b"\n")
                finally:
                    os.close(handle)
            except OSError as error:
                raise Problem(
                    500, f"the audit log {self._file} cannot be written: {error.strerror}; nothing was done"
                ) from None
        self._lines.append(line)

    def newest(self, count: int) -> list[dict[str, Any]]:
        return list(self._lines)[-count:][::-1]
