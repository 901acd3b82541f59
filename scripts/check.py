"""Runs the tests in passes, several at a time.

    check.py test      the source as it is, by folders; beside RocketMQ's programs; Spark
    check.py verify    what repeats it at length: the suites of hot modules with the compiled build, and the tests
                       marked `repeated` and `long` (tests/support/length.py)

Passes start in the order of their plan, longest first, as workers become free. Many tests start real servers and wait
for what those do, so four passes keep two processors busy. The output of a pass is shown when it has ended. A test
that fails has failed: none is run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OVERLAY = ROOT / "build" / "compiled"
NO_TESTS = 5
WORKERS = 4

# The suites of hot modules, the client's send path among them; they run a second time, against the compiled build.
HOT = (
    ("tests/broker",),
    ("tests/wire", "tests/net", "tests/nameserver", "tests/store"),
    ("tests/client/produce", "tests/client/test_traces.py"),
)
# Folders with a pass of their own; all others are one pass.
APART = (
    ("tests/attack", "tests/crash", "tests/fuzz"),
    ("tests/failover",),
    ("tests/client", "tests/sync", "tests/testing", "tests/kombu", "tests/examples"),
    ("tests/broker",),
)
SHOWN = ("-q", "--durations=20")
BESIDE_OTHERS = ("tests/compat", "tests/spark")
BROKER_TESTS = "tests/compat/test_broker_*.py"


@dataclass
class Pass:
    """One run of pytest. `name` is its section in the record of mission rows."""

    name: str
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 0

    def run(self, folder: Path) -> None:
        log = folder / f"{self.name}.log"
        print(f"pass {self.name}: pytest {' '.join(self.arguments)}", flush=True)
        began_s = time.monotonic()
        with open(log, "w") as file:
            command = [sys.executable, "-m", "pytest", *self.arguments]
            environment = {**os.environ, "COMETMQ_MISSION_PASS": self.name, **self.environment}
            self.code = subprocess.call(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
        took_s = time.monotonic() - began_s
        print(f"pass {self.name} ended after {took_s:.0f} s:\n{log.read_text()}", flush=True)


def check(passes: list[Pass], workers: int = WORKERS) -> int:
    """0 if every pass went well."""
    waiting = deque(passes)
    with tempfile.TemporaryDirectory() as name:
        threads = [threading.Thread(target=_work, args=(waiting, Path(name))) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    failed = [one for one in passes if one.code not in (0, NO_TESTS)]
    for one in failed:
        print(f"pass {one.name} failed", flush=True)
    return failed[-1].code if failed else 0


def _work(waiting: deque[Pass], folder: Path) -> None:
    while True:
        try:
            one = waiting.popleft()
        except IndexError:
            return
        one.run(folder)


def plan(what: str) -> list[Pass]:
    if what == "test":
        apart = [folder for part in APART for folder in part]
        return [
            _short("java", "tests/compat", f"--ignore-glob={BROKER_TESTS}"),
            _short("java-brokers", *sorted(glob(BROKER_TESTS))),
            *[_short(part[0].rpartition("/")[2], *part) for part in APART],
            _short("others", "tests", *(f"--ignore={folder}" for folder in (*BESIDE_OTHERS, *apart))),
            _short("spark", "tests/spark"),
        ]
    at_length = ("-m", "(repeated or long) and not reference")
    grpc, others = "tests/compat/test_grpc.py", ("tests/failover", "tests/crash")
    ignored = [f"--ignore={folder}" for folder in ("tests/compat", *others)]
    passes = [
        Pass("at-length-grpc", [*SHOWN, *at_length, grpc], LONG),
        Pass("at-length-java", [*SHOWN, *at_length, "tests/compat", f"--ignore={grpc}"], LONG),
        *[Pass(f"at-length-{one.rpartition('/')[2]}", [*SHOWN, *at_length, one], LONG) for one in others],
        Pass("at-length", [*SHOWN, *at_length, "tests", *ignored], LONG),
    ]
    if not _is_compiled():
        print("NOT TESTED: the compiled build; there is none without a C compiler and Python headers", flush=True)
        return passes
    once = ("-m", "not long and not repeated")
    compiled = [
        Pass(f"compiled-{number}", [*SHOWN, *once, *part], {"PYTHONPATH": str(OVERLAY)})
        for number, part in enumerate(HOT, 1)
    ]
    return [*passes[:2], *compiled, *passes[2:]]


LONG = {"COMETMQ_LENGTH": "long"}


def _short(name: str, *arguments: str) -> Pass:
    return Pass(name, [*SHOWN, "-m", "not long", *arguments])


def _is_compiled() -> bool:
    command = [sys.executable, "-m", "cometmq.cli.main", "version"]
    told = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(OVERLAY)}, capture_output=True, text=True, check=False
    )
    return "(compiled)" in told.stdout


if __name__ == "__main__":
    os.chdir(ROOT)
    if len(sys.argv) != 2 or sys.argv[1] not in ("test", "verify"):
        sys.exit("usage: check.py test|verify")
    sys.exit(check(plan(sys.argv[1])))
