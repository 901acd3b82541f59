"""Checks the mission record: what a run writes, and when it does not."""

import json
from pathlib import Path

import pytest

from scripts.mission import Area, read_areas, read_record, row_state, summary

ROOT = Path(__file__).resolve().parent.parent.parent

SAMPLE = """
import pytest

@pytest.mark.mission("NS-01", "NS-02")
def test_passes(): pass

@pytest.mark.mission("NS-02")
def test_fails(): assert False

@pytest.mark.mission("NS-03")
def test_skips(): pytest.skip("not here")

@pytest.fixture
def breaks_late():
    yield
    raise ValueError("teardown")

@pytest.mark.mission("NS-04")
def test_breaks_in_teardown(breaks_late): pass

@pytest.mark.mission("XX-99")
def test_names_an_unknown_row(): pass
"""


@pytest.fixture
def sample_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("COMETMQ_MISSION_RECORD", raising=False)
    monkeypatch.delenv("COMETMQ_MISSION_PASS", raising=False)
    pytester.makepyfile(SAMPLE)
    return pytester


def run_sample(sample: pytest.Pytester) -> pytest.RunResult:
    return sample.runpytest_subprocess("-p", "tests.support.mission_plugin", "-p", "no:cacheprovider")


def test_a_run_records_every_outcome_of_a_row(
    sample_run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_path = sample_run.path / "record.json"
    monkeypatch.setenv("COMETMQ_MISSION_RECORD", str(record_path))
    run_sample(sample_run)
    record = read_record(record_path)
    states = {row: row_state(row, record) for row in ("NS-01", "NS-02", "NS-03", "NS-04", "NS-05")}
    assert states == {
        "NS-01": "covered",
        "NS-02": "failing",
        "NS-03": "skipped",
        "NS-04": "failing",
        "NS-05": "no test",
    }


def test_a_second_pass_adds_to_the_record_of_the_first(
    sample_run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_path = sample_run.path / "record.json"
    first = {"passes": {"interpreted": {"NS-01": {"passed": ["a"], "failed": [], "skipped": []}}}}
    record_path.write_text(json.dumps(first))
    monkeypatch.setenv("COMETMQ_MISSION_RECORD", str(record_path))
    monkeypatch.setenv("COMETMQ_MISSION_PASS", "compiled")
    run_sample(sample_run)
    record = read_record(record_path)
    assert record["interpreted"] == first["passes"]["interpreted"]
    assert record["compiled"]["NS-02"]["failed"]


def test_a_run_that_was_not_asked_to_record_writes_nothing(sample_run: pytest.Pytester) -> None:
    run_sample(sample_run)
    assert not list(sample_run.path.glob("**/*.json"))


def test_an_unknown_row_is_an_error(sample_run: pytest.Pytester) -> None:
    result = run_sample(sample_run)
    result.stdout.fnmatch_lines(["*mission marker names rows not in docs/mission.toml: ?'XX-99'?*"])
    result.assert_outcomes(passed=2, failed=1, skipped=1, errors=2)


def test_a_failure_in_one_pass_is_not_hidden_by_the_other() -> None:
    good = {"passed": ["t"], "failed": [], "skipped": []}
    bad: dict[str, list[str]] = {"passed": [], "failed": ["t"], "skipped": []}
    assert row_state("NS-01", {"interpreted": {"NS-01": good}, "compiled": {"NS-01": bad}}) == "failing"


def test_the_summary_lists_what_is_not_covered() -> None:
    areas = [Area(1, "Name server", ("NS-01", "NS-02"))]
    record = {"interpreted": {"NS-01": {"passed": ["t"], "failed": [], "skipped": []}}}
    text = summary(areas, record)
    assert "1. Name server: 1/2" in text
    assert "no test: NS-02" in text
    assert "covered 1/2" in text


def test_every_row_is_listed_once() -> None:
    rows = [row for area in read_areas() for row in area.rows]
    assert len(rows) == len(set(rows)) == 253
