"""The numbers of all attacks that were played, at the end of the run."""

import os

import pytest

from tests.attack.corpus import OUTCOMES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if OUTCOMES:
        terminalreporter.section("attacks")
        for outcome in OUTCOMES:
            terminalreporter.write_line(outcome.line())
        worst = max(outcome.turn_ms for outcome in OUTCOMES)
        slowest_s = max(outcome.worst_s for outcome in OUTCOMES)
        terminalreporter.write_line(
            f"{len(OUTCOMES)} attacks: longest turn {worst:.1f} ms CPU, longest wait {slowest_s:.2f} s "
            f"(machine load {os.getloadavg()[0]:.1f})"
        )
