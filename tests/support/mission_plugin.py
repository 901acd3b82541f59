"""Pytest plugin: records which rows of docs/mission.toml have passing, failing and skipped tests.

A record is written only when COMETMQ_MISSION_RECORD names a file, which `make test` does; so a partial
run never overwrites what the last full run showed. COMETMQ_MISSION_PASS names the section to replace;
the sections of other passes stay. A marker with an id that is not in docs/mission.toml fails its test.
"""

import fcntl
import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from scripts.mission import Outcomes, read_areas, read_record


class MissionRecorder:
    def __init__(self) -> None:
        self.known_rows = {row for area in read_areas() for row in area.rows}
        self.rows: dict[str, Outcomes] = {}

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        unknown = [row for row in _marked_rows(item) if row not in self.known_rows]
        if unknown:
            pytest.fail(f"mission marker names rows not in docs/mission.toml: {unknown}", pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call" or report.outcome != "passed":
            for row in _marked_rows(item):
                self._note(row, item.nodeid, report.outcome)
        return report

    def _note(self, row: str, test: str, outcome: str) -> None:
        outcomes = self.rows.setdefault(row, {"passed": [], "failed": [], "skipped": []})
        for tests in outcomes.values():
            # A teardown that fails after a call that passed: the later report is the truth.
            if test in tests:
                tests.remove(test)
        outcomes[outcome].append(test)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        record_path = os.environ.get("COMETMQ_MISSION_RECORD")
        if record_path and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._write(Path(record_path), _pass_name())

    def _write(self, path: Path, pass_name: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_suffix(".lock"), "w") as lock:  # passes may end at the same moment
            fcntl.flock(lock, fcntl.LOCK_EX)
            passes = read_record(path) if path.exists() else {}
            passes[pass_name] = dict(sorted(self.rows.items()))
            path.write_text(json.dumps({"passes": passes}, indent=1) + "\n", encoding="utf-8")


def _pass_name() -> str:
    return os.environ.get("COMETMQ_MISSION_PASS", "interpreted")


def _marked_rows(item: pytest.Item) -> list[str]:
    return [str(row) for marker in item.iter_markers("mission") for row in marker.args]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(MissionRecorder(), "mission-recorder")
