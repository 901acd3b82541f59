"""`cometmq broker` and `cometmq up` as child processes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.brokers import CALM, SMALL_FILES

READY = re.compile(r"ready namesrv=(\S*) broker=(\S+)(?: grpc=\S+)?\n")


class Process:
    """One that serves; `address` is the broker's."""

    def __init__(self, child: "subprocess.Popen[str]", home: Path, name_server: str, address: str) -> None:
        self.child = child
        self.home = home
        self.name_server = name_server
        self.address = address
        self.port = int(address.rpartition(":")[2])

    @property
    def log(self) -> str:
        return (self.home / "stderr").read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        return self.child.wait(60)


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cometmq.cli.main", *arguments]


def small(home: Path, **settings: object) -> list[str]:
    """--set for small files in a store below `home`, any port, and what is given."""
    texts = {"storePathRootDir": home / "store", "listenPort": 0, **SMALL_FILES, **CALM, **settings}
    return [f"--set={key}={value}" for key, value in texts.items()]


@contextmanager
def broker_process(home: Path, *arguments: str, **settings: object) -> Iterator[Process]:
    with serving_process(home, "broker", *small(home, **settings), *arguments) as process:
        yield process


@contextmanager
def serving_process(home: Path, *arguments: str) -> Iterator[Process]:
    home.mkdir(exist_ok=True)
    with (home / "stderr").open("a") as log:
        environment = {**os.environ, "HOME": str(home)}
        child = subprocess.Popen(
            command_line(*arguments), stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    try:
        assert child.stdout is not None
        ready = READY.fullmatch(child.stdout.readline())
        assert ready, (home / "stderr").read_text()
        yield Process(child, home, ready[1], ready[2])
    finally:
        child.kill()
        child.communicate()
