"""Checks that a missing capability is skipped in general and fails where it is required."""

import pytest
from _pytest.outcomes import Failed, Skipped

from tests.support.require import unavailable


def test_a_missing_capability_skips_with_a_line_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMETMQ_REQUIRE", "spark")
    with pytest.raises(Skipped, match="NOT TESTED: interop tests cannot run: no java"):
        unavailable("interop", "no java")


def test_a_missing_capability_fails_when_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMETMQ_REQUIRE", "interop,spark")
    with pytest.raises(Failed, match="no java"):
        unavailable("interop", "no java")
