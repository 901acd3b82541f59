"""A command in a pseudo terminal of so many columns, as a person sees it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 60.0
CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PLACED = frozenset(("COLUMNS", "LINES", "NO_COLOR", "TERM"))


class Terminal:
    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self.process = process
        self.text = ""
        self._master = master

    @property
    def plain(self) -> str:
        return CODES.sub("", self.text).replace("\r", "")

    def read_until(self, wanted: str, times: int = 1) -> str:
        end_s = time.monotonic() + WAIT_S
        while self.text.count(wanted) < times:
            assert time.monotonic() < end_s, self.text
            if not self._read():
                break
        assert self.text.count(wanted) >= times, self.text
        return self.text

    def end(self) -> int:
        """Read the rest; the exit code."""
        end_s = time.monotonic() + WAIT_S
        while self._read():
            assert time.monotonic() < end_s, self.text
        return self.process.wait(WAIT_S)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def _read(self) -> bool:
        if not select.select([self._master], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the other end is closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(columns: int, *command: str, cwd: Path | None = None, **environment: str) -> Iterator[Terminal]:
    """`command` are the words after `cometmq`."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    known = {key: text for key, text in os.environ.items() if key not in PLACED}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", sys.executable, "-m", "cometmq.cli.main", *command], cwd=cwd,
        stdin=slave, stdout=slave, stderr=slave, env={**known, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(WAIT_S)
        os.close(master)
