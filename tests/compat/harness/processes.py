"""A child process of the tests: started in its own process group, with its output in a file, and never left behind.

    launch()      start it, do not wait        start() = launch() + wait_ready()
    wait_ready()  until its log shows `ready`  restart() = stop() + start()
    stop()        SIGTERM and wait             kill()  SIGKILL and wait

The kernel kills the child when the thread that launched it ends (see guard.py), so launch from a thread that lives as
long as the child is needed; to start several at once, launch() them all and then wait_ready() for each.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

GUARD = Path(__file__).with_name("guard.py")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 90.0
POLL_S = 0.02
# Below the range from which the kernel picks ports for outgoing connections, so that none takes a server's port
# between its kill and its restart.
PORT_MIN, PORT_MAX = 15_000, 32_000
CHANCE = random.SystemRandom()  # two runs of the tests must not pick the same ports


class ChildFailed(Exception):
    """A child did not start, stop or answer; the message ends with the tail of its log."""


class Child:
    """One program that runs beside the tests. Subclasses say what to run (`command`) and what line means ready.

    `directory` may be shared by several, `home` is its own: what the program takes for the user's home directory."""

    ready: re.Pattern[str] = re.compile("")

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.home = directory / f"{name}.home"
        self.log_path = directory / f"{name}.log"
        self.env: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def on_ready(self, line: re.Match[str]) -> None:
        """Called once per start with the match of `ready`, e.g. to learn the port."""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ChildFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def launch(self, stdin: int | None = subprocess.DEVNULL, stdout: int | None = None) -> None:
        if self.running:
            raise ChildFailed(f"{self.name} already runs as process {self.pid}")
        self.close()
        self.home.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *self.command()],
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.env},
                process_group=0,  # its own group for signals, the session and so the scheduling group of the tests
            )
        LIVE.append(self)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not (found := self.ready.search(self.log(since_start=True))):
            if not self.running:
                raise ChildFailed(f"{self.name} ended with status {self.exit_status}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ChildFailed(f"{self.name} was not ready after {timeout_s:g} s\n{self.log_tail()}")
            time.sleep(POLL_S)
        self.on_ready(found)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        self.launch()
        self.wait_ready(timeout_s)
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """End it the orderly way and return its exit status; a child that does not end is killed and is an error."""
        process = self._end(signal.SIGTERM)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ChildFailed(f"{self.name} ignored SIGTERM for {timeout_s:g} s\n{self.log_tail()}") from None
        self._forget(process)
        return status

    def kill(self) -> None:
        process = self._end(signal.SIGKILL)
        process.wait(STOP_TIMEOUT_S)
        self._forget(process)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill it if it runs, and let go of it. Fast; for what a process does at an orderly end use stop()."""
        if self._process is not None:
            self.kill()

    def _end(self, how: signal.Signals) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ChildFailed(f"{self.name} was not started")
        if self.running:
            os.killpg(self._process.pid, how)
        return self._process

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        if self in LIVE:
            LIVE.remove(self)

    def log(self, since_start: bool = False) -> str:
        with self.log_path.open("rb") as file:
            file.seek(self._log_start if since_start else 0)
            return file.read().decode("utf-8", "replace")

    def log_tail(self, lines: int = 40) -> str:
        text = [line[:200] for line in self.log().splitlines()[-lines:]] if self.log_path.exists() else []
        return f"--- last lines of {self.log_path}\n" + "\n".join(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


LIVE: list[Child] = []


@atexit.register
def close_all() -> None:
    for child in list(LIVE):
        child.close()


def free_ports(*offsets: int) -> int:
    """A port P of which P + each offset can be bound on every address, e.g. free_ports(0, 1, -2) for a broker."""
    for _ in range(200):
        port = CHANCE.randint(PORT_MIN, PORT_MAX)
        if all(_can_bind(port + offset) for offset in offsets or (0,)):
            return port
    raise ChildFailed(f"no free ports with offsets {offsets} between {PORT_MIN} and {PORT_MAX}")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def wait_until(read: Callable[[], T], what: str, timeout_s: float = 30.0) -> T:
    """Call read() until it gives something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while not (value := read()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: still {value!r} after {timeout_s:g} s")
        time.sleep(POLL_S)
    return value
