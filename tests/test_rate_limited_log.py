"""A line that floods: the first, every n-th, and the next after a pause."""

import logging

import pytest

from cometmq.clock import ManualClock
from cometmq.rate_limited_log import ThinnedLog


def test_a_hundred_thousand_lines_become_two(caplog: pytest.LogCaptureFixture) -> None:
    log = ThinnedLog(logging.getLogger("test"), ManualClock())
    for number in range(100_000):
        log.warning("refuse request number=%d", number)
    assert [record.message for record in caplog.records] == [
        "refuse request number=0 seen=1",
        "refuse request number=50000 seen=50001",
    ]


def test_a_line_after_a_pause_is_written(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = ThinnedLog(logging.getLogger("test"), clock, quiet_s=60)
    for step_s in (0, 59, 1, 59):
        clock.advance(step_s)
        log.warning("cut connection")
    assert [record.message for record in caplog.records] == ["cut connection seen=1", "cut connection seen=3"]


def test_an_error_brings_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log = ThinnedLog(logging.getLogger("test"), ManualClock())
    log.warning("fail request", error=KeyError("cause"))
    assert "KeyError: 'cause'" in caplog.text
