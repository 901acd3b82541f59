"""Pytest plugin: writes the ids of failed tests, one a line, to the file that COMETMQ_FAILURES names."""

import os
from pathlib import Path

import pytest

_failed: dict[str, None] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed[report.nodeid] = None


def pytest_sessionfinish() -> None:
    path = os.environ.get("COMETMQ_FAILURES")
    if path:
        Path(path).write_text("".join(f"{name}\n" for name in _failed), encoding="utf-8")
