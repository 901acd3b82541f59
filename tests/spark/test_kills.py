"""Archive, deduplicated sink and mirror while drivers, workers and brokers are killed: no row missing, none twice."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.runtime.java import java_home
from tests.conftest import unavailable
from tests.spark.kills import PIPELINES, POINTS, VICTIMS, Fault, Range
from tests.support.length import SOAK

pytestmark = pytest.mark.spark

# The long run: COMETMQ_LENGTH=soak COMETMQ_SOAK_SEEDS=500. The short one has each pipeline once and each victim once.
SEEDS = range(int(os.environ.get("COMETMQ_SOAK_SEEDS", "30"))) if SOAK else (0, 4, 8)


@pytest.fixture(scope="module")
def shooting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    try:
        java_home()
    except ConfigError as error:
        unavailable("spark", str(error))
    with Range(tmp_path_factory.mktemp("kills")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_arrives_once_whoever_is_killed(
    shooting: Range, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = Fault.of(seed)
    print(f"{fault}; again: python -m tests.spark.kills {seed}")
    tries = shooting.strike(fault)
    with capsys.disabled():
        print(f"\n{fault}: {shooting.seen}: each row once, {tries} tries", end=" ")


def test_seeds_reach_every_pipeline_point_and_victim() -> None:
    faults = [Fault.of(seed) for seed in range(54)]
    # Thirty have every two of them together, and each pipeline with each victim three times or more.
    thirty = faults[:30]
    assert {(one.pipeline, one.point) for one in thirty} == {(name, point) for name in PIPELINES for point in POINTS}
    assert {(one.victim, one.point) for one in thirty} == {(who, point) for who in VICTIMS for point in POINTS}
    pairs = [(one.pipeline, one.victim) for one in thirty]
    assert {pairs.count((name, who)) for name in PIPELINES for who in VICTIMS} <= {3, 4}
    assert {(one.pipeline, one.point, one.victim) for one in faults} == {
        (name, point, who) for name in PIPELINES for point in POINTS for who in VICTIMS
    }
    assert str(Fault.of(7)) == str(Fault.of(7))
