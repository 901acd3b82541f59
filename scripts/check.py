"""Runs the tests in lanes, two at a time; a test that fails is run once more, alone, before it counts.

    lane 1    the source as it is, then the suites of hot modules with the compiled build, then Spark
    lane 2    what waits for other programs most of the time: RocketMQ's in Java

The first lane is seen as it runs, the second when it has ended. Many tests start real servers and wait for what they
do. On a machine of two cores one of them runs out of time now and then, because of its neighbours. What fails a second
time, with the machine to itself, is broken. The last lines name every test that needed its second chance, so that it is
seen and mended; failures of more than `FEW` causes in one pass are no accident and get none. All tests that a shared
fixture took with it are one cause.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OVERLAY = ROOT / "build" / "compiled"
FEW = 8
FAILED = 1  # what pytest returns when tests ran and some failed
NO_TESTS = 5

# The suites of hot modules, the client's send path among them; they run a second time against the compiled build.
HOT = (
    *(f"tests/{name}" for name in ("wire", "net", "nameserver", "store", "broker")),
    *(f"tests/client/test_{name}.py" for name in ("batching", "producer", "retries", "selectors", "traces", "window")),
)
# Long tests that have seen the same code interpreted and learn nothing from its compiled form.
ONCE = (
    "tests/broker/test_store_promises.py::test_after_a_failed_flush_no_send_is_acked_and_reads_go_on",
    "tests/client/test_batching.py::test_a_million_sends_to_a_slow_broker_stay_within_their_bounds",
    "tests/store/test_growth.py::test_a_long_run_is_flat",
    "tests/store/test_sizes.py",
)
APART = ("tests/compat", "tests/spark")


@dataclass
class Pass:
    """One run of pytest. `name` is its section in the record of mission rows."""

    name: str
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 0
    failed: list[str] = field(default_factory=list)
    causes: set[str] = field(default_factory=set)

    def run(self, folder: Path, is_seen: bool) -> None:
        failures = folder / f"{self.name}.failures"
        log = folder / f"{self.name}.log"
        print(f"pass {self.name}: pytest {' '.join(self.arguments)}", flush=True)
        with open(log, "w") as file:
            output = None if is_seen else file
            command = [sys.executable, "-m", "pytest", *self.arguments]
            environment = self._environment(COMETMQ_FAILURES=str(failures))
            self.code = subprocess.call(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        lines = failures.read_text().splitlines() if failures.exists() else []
        self.failed = [line.partition("\t")[2] for line in lines]
        self.causes = {line.partition("\t")[0] for line in lines}
        if not is_seen:
            print(f"pass {self.name} ended:\n{log.read_text()}", flush=True)

    def run_again(self) -> int:
        options = [argument for argument in self.arguments if argument.startswith("-") and "ignore" not in argument]
        command = [sys.executable, "-m", "pytest", *options, *self.failed]
        return subprocess.call(command, env=self._environment(COMETMQ_AGAIN="1"))

    def _environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "COMETMQ_MISSION_PASS": self.name, **self.environment, **more}


def check(lanes: list[list[Pass]]) -> int:
    """0 if every pass went well, at the second try at the latest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        others = [threading.Thread(target=_run_lane, args=(lane, folder, False)) for lane in lanes[1:]]
        for thread in others:
            thread.start()
        _run_lane(lanes[0], folder, True)
        for thread in others:
            thread.join()
    verdict = 0
    for one in (one for lane in lanes for one in lane):
        if one.code == FAILED and 0 < len(one.causes) <= FEW:
            print(f"\nonce more, alone: {len(one.failed)} tests of pass {one.name}", flush=True)
            one.code = one.run_again()
            for test in one.failed:
                print(f"{'failed again' if one.code else 'passed alone, look at it'}: {test}", flush=True)
        if one.code not in (0, NO_TESTS):
            print(f"pass {one.name} failed", flush=True)
            verdict = one.code
    return verdict


def _run_lane(lane: list[Pass], folder: Path, is_seen: bool) -> None:
    for one in lane:
        one.run(folder, is_seen)


def plan() -> list[list[Pass]]:
    plain = [Pass("interpreted", ["-q", "--durations=25", "tests", *(f"--ignore={folder}" for folder in APART)])]
    if _is_compiled():
        arguments = ["-q", "--durations=10", *(f"--deselect={test}" for test in ONCE), *HOT]
        plain.append(Pass("compiled", arguments, {"PYTHONPATH": str(OVERLAY)}))
    else:
        print("NOT TESTED: the compiled build; there is none without a C compiler and Python headers", flush=True)
    plain.append(Pass("spark", ["-q", "--durations=20", "tests/spark"]))
    return [plain, [Pass("java", ["-q", "--durations=40", "tests/compat"])]]


def _is_compiled() -> bool:
    command = [sys.executable, "-m", "cometmq.cli.main", "version"]
    told = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(OVERLAY)}, capture_output=True, text=True, check=False
    )
    return "(compiled)" in told.stdout


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(check(plan()))
