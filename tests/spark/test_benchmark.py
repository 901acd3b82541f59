"""What the benchmark of the Spark formats is told, and what it fills topics with."""

from __future__ import annotations

import json

import pytest

from benchmarks.spark import main
from benchmarks.spark_topics import bodies

pytestmark = pytest.mark.spark


def test_a_part_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "live,dead"])
    assert "there is no part dead" in capsys.readouterr().err


def test_bodies_have_their_size_and_differ() -> None:
    made = list(bodies(500, 256))
    assert {len(one) for one in made} == {256}
    assert len(set(made)) == 500
    json.loads(made[7])
