"""Lines of tests/golden/auth-vectors.jsonl by kind: recorded from the real classes of RocketMQ 5.5.0 and 4.9.8."""

import json
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "auth-vectors.jsonl"


@cache
def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def vectors(kind: str) -> list[dict[str, Any]]:
    found = [line for line in _lines() if line["kind"] == kind]
    assert found, f"no vectors of kind {kind}"
    return found
