"""The gate tells a path that became dearer from one that did not."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import gate
from benchmarks.paths import PATHS
from cometmq.net.loop import run


def test_a_path_may_cost_a_little_more_but_not_much() -> None:
    lines, good = gate.judge({"send": 11.4, "pull": 2.0}, {"send": 10.0, "pull": 2.0})
    assert good
    assert "+14.0%" in lines[0]
    lines, good = gate.judge({"send": 11.6, "pull": 2.0}, {"send": 10.0, "pull": 2.0})
    assert not good
    assert "DEARER" in lines[0]
    assert "DEARER" not in lines[1]


def test_a_path_that_became_cheaper_should_be_recorded() -> None:
    lines, good = gate.judge({"send": 8.0}, {"send": 10.0})
    assert good
    assert "record it" in lines[0]


def test_a_path_that_nobody_recorded_fails() -> None:
    lines, good = gate.judge({"send": 8.0}, {})
    assert not good
    assert "--record" in lines[0]


def test_recording_changes_only_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "gate.json"
    gate.record(path, "compiled", {"send": 1.0, "pull": 2.0})
    gate.record(path, "interpreted", {"send": 5.0})
    gate.record(path, "compiled", {"send": 3.0})
    assert json.loads(path.read_text()) == {"compiled": {"pull": 2.0, "send": 3.0}, "interpreted": {"send": 5.0}}


def test_every_path_is_recorded_for_both_builds() -> None:
    recorded = json.loads(gate.RECORDED.read_text())
    assert {build: set(costs) for build, costs in recorded.items()} == {
        "compiled": set(PATHS),
        "interpreted": set(PATHS),
    }


def test_every_path_runs_and_does_what_it_says() -> None:
    """The paths check their own answers; what they cost here, on a busy machine, is not judged."""
    costs: dict[str, float] = run(gate.measure(list(PATHS), 1, 0.02))
    assert set(costs) == set(PATHS)
    assert all(cost > 0 for cost in costs.values())
