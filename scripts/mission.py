"""Which rows of docs/mission.toml have a passing test, by the record of the last full `make test`.

The record (build/mission.json) is written by tests/support/mission_plugin.py, one section per pass:

    {"passes": {"interpreted": {"NS-01": {"passed": ["tests/..."], "failed": [], "skipped": []}},
                "compiled": {}}}

A row is covered when a marked test passed and no marked test failed or was skipped, in any pass.
"""

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS_FILE = ROOT / "docs" / "mission.toml"
RECORD_FILE = ROOT / "build" / "mission.json"

# Outcome -> tests, for one row. A record is: pass name -> row id -> outcomes.
Outcomes = dict[str, list[str]]
Record = dict[str, dict[str, Outcomes]]


@dataclass(slots=True, frozen=True)
class Area:
    number: int
    title: str
    rows: tuple[str, ...]


def read_areas(path: Path = ROWS_FILE) -> list[Area]:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Area(area["number"], area["title"], tuple(area["rows"])) for area in table["area"]]


def read_record(path: Path) -> Record:
    passes: Record = json.loads(path.read_text(encoding="utf-8"))["passes"]
    return passes


def row_state(row: str, record: Record) -> str:
    """One of: covered, failing, skipped, no test."""
    outcomes = [rows[row] for rows in record.values() if row in rows]
    if any(outcome["failed"] for outcome in outcomes):
        return "failing"
    if any(outcome["skipped"] for outcome in outcomes):
        return "skipped"
    return "covered" if any(outcome["passed"] for outcome in outcomes) else "no test"


def summary(areas: list[Area], record: Record) -> str:
    lines: list[str] = []
    covered_total = 0
    for area in areas:
        states = {row: row_state(row, record) for row in area.rows}
        covered = sum(state == "covered" for state in states.values())
        covered_total += covered
        lines.append(f"{area.number:>2}. {area.title}: {covered}/{len(area.rows)}")
        for state in ("failing", "skipped", "no test"):
            rows = [row for row in area.rows if states[row] == state]
            if rows:
                lines.append(f"      {state}: {' '.join(rows)}")
    rows_total = sum(len(area.rows) for area in areas)
    lines.append(f"covered {covered_total}/{rows_total} (passes: {', '.join(record)})")
    return "\n".join(lines)


def main() -> int:
    if not RECORD_FILE.exists():
        print(f"no full run on record in {RECORD_FILE.relative_to(ROOT)}: run `make test`", file=sys.stderr)
        return 1
    print(summary(read_areas(), read_record(RECORD_FILE)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
