"""Pytest plugin: writes failed tests to the file that COMETMQ_FAILURES names, as `cause TAB id`, one a line.

The cause of a test that failed is its own id. Tests whose set-up failed at the same place share a cause: a fixture of
the whole run that fails once takes all of its tests with it.
"""

import os
from pathlib import Path

import pytest

_failed: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.setdefault(report.nodeid, _cause(report))


def pytest_sessionfinish() -> None:
    path = os.environ.get("COMETMQ_FAILURES")
    if path:
        lines = (f"{cause}\t{name}\n" for name, cause in _failed.items())
        Path(path).write_text("".join(lines), encoding="utf-8")


def _cause(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.when != "setup" or crash is None:
        return report.nodeid
    return f"set-up at {crash.path}:{crash.lineno}"
