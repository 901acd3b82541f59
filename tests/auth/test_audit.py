"""The audit log: lines that a peer can cause have a bound, and a file of its own is private."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from cometmq.auth.audit import PAIRS_MAX, QUIET_S, Audit
from cometmq.clock import ManualClock
from cometmq.errors import ConfigError


def refused_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "cometmq.audit.b"]


def test_each_user_and_source_has_a_line_a_minute_with_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    audit = Audit(clock, "b")
    for _ in range(50):
        audit.refused(310, "alice", "10.0.0.1", "no")
    audit.refused(310, "alice", "10.0.0.2", "no")
    audit.refused(11, "bob", "10.0.0.1", "no")
    assert len(refused_lines(caplog)) == 3
    clock.advance(QUIET_S)
    audit.refused(310, "alice", "10.0.0.1", "no")
    assert refused_lines(caplog)[-1] == "refuse request code=310 user=alice source=10.0.0.1 cause=no seen=51"


def test_made_up_names_fill_neither_the_log_nor_memory(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    audit = Audit(clock, "b")
    for number in range(3 * PAIRS_MAX):
        audit.refused(310, f"{number}" + "x" * 1000, "10.0.0.1", "no")
    assert len(refused_lines(caplog)) == PAIRS_MAX + 1
    assert len(audit._pairs) == PAIRS_MAX
    assert all(len(line) < 300 for line in refused_lines(caplog))
    clock.advance(QUIET_S)
    audit.refused(310, "alice", "10.0.0.1", "no")
    assert len(audit._pairs) == 1


def test_a_file_of_its_own_is_private_and_may_be_moved_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.log"
    audit = Audit(ManualClock(), "b", str(path))
    audit.open()
    audit.changed("create user", "bob\nforged line", "root", "10.0.0.1")
    os.rename(path, tmp_path / "audit.log.1")
    audit.refused(310, "alice", "10.0.0.1", "no")
    audit.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (first,) = (tmp_path / "audit.log.1").read_text().splitlines()
    assert "create user user=bob\\nforged line by=root" in first
    assert "refuse request code=310 user=alice" in path.read_text()
    assert refused_lines(caplog) == []
    with caplog.at_level(logging.INFO):
        audit.changed("create user", "bob", "root", "10.0.0.1")
    assert len(refused_lines(caplog)) == 1


def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="authAuditLogPath"):
        Audit(ManualClock(), "b", str(tmp_path / "nowhere" / "audit.log")).open()
