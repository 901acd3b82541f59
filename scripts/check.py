"""Runs the tests in lanes, side by side.

    check.py test      lane 1: the source as it is; lanes 2 and 3: beside RocketMQ's programs, which wait for each other
                       most of the time, and Spark at the end of the shorter one
    check.py verify    what repeats it at length: the suites of hot modules with the compiled build, beside the tests
                       marked `repeated` and `long` (tests/support/length.py)

The first lane is shown as it runs, the others when they have ended. A test that fails has failed: none is run again.
Many tests start real servers, so they wait for what those do and not for time to pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OVERLAY = ROOT / "build" / "compiled"
NO_TESTS = 5

# The suites of hot modules, the client's send path among them; they run a second time, against the compiled build, in
# two parts of about the same length.
HOT = (
    ("tests/wire", "tests/net", "tests/nameserver", "tests/store"),
    ("tests/broker", "tests/client/produce", "tests/client/test_traces.py"),
)
SHOWN = ("-q", "--durations=20")
APART = ("tests/compat", "tests/spark")
BROKER_TESTS = "tests/compat/test_broker_*.py"


@dataclass
class Pass:
    """One run of pytest. `name` is its section in the record of mission rows."""

    name: str
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 0

    def run(self, folder: Path, is_seen: bool) -> None:
        log = folder / f"{self.name}.log"
        print(f"pass {self.name}: pytest {' '.join(self.arguments)}", flush=True)
        with open(log, "w") as file:
            output = None if is_seen else file
            command = [sys.executable, "-m", "pytest", *self.arguments]
            environment = {**os.environ, "COMETMQ_MISSION_PASS": self.name, **self.environment}
            self.code = subprocess.call(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        if not is_seen:
            print(f"pass {self.name} ended:\n{log.read_text()}", flush=True)


def check(lanes: list[list[Pass]]) -> int:
    """0 if every pass went well."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        others = [threading.Thread(target=_run_lane, args=(lane, folder, False)) for lane in lanes[1:]]
        for thread in others:
            thread.start()
        for lane in lanes[:1]:
            _run_lane(lane, folder, True)
        for thread in others:
            thread.join()
    verdict = 0
    for one in (one for lane in lanes for one in lane):
        if one.code not in (0, NO_TESTS):
            print(f"pass {one.name} failed", flush=True)
            verdict = one.code
    return verdict


def _run_lane(lane: list[Pass], folder: Path, is_seen: bool) -> None:
    for one in lane:
        one.run(folder, is_seen)


def plan(what: str) -> list[list[Pass]]:
    if what == "test":
        plain = _short("interpreted", "tests", *(f"--ignore={folder}" for folder in APART))
        spark = _short("spark", "tests/spark")
        java = _short("java", "tests/compat", f"--ignore-glob={BROKER_TESTS}")
        brokers = _short("java-brokers", *sorted(glob(BROKER_TESTS)))
        return [[plain], [java], [brokers, spark]]
    length = Pass("at-length", [*SHOWN, "-m", "repeated or long", "tests"], {"COMETMQ_LENGTH": "long"})
    if not _is_compiled():
        print("NOT TESTED: the compiled build; there is none without a C compiler and Python headers", flush=True)
        return [[length]]
    once = ("-m", "not long and not repeated")
    compiled = [
        Pass(f"compiled-{number}", [*SHOWN, *once, *part], {"PYTHONPATH": str(OVERLAY)})
        for number, part in enumerate(HOT, 1)
    ]
    return [compiled, [length]]


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
