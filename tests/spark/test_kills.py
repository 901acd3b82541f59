"""Archive, deduplicated sink and mirror while drivers, workers and brokers are killed: no row missing, none twice."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.java import java_home
from tests.conftest import unavailable
from tests.spark.kills import POINTS, VICTIMS, Fault, Range

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Nine in a row have each pipeline with each victim. The long run: COMETMQ_SOAK=1 COMETMQ_SEEDS=500. The short one
# kills a driver and a worker of an archive.
SEEDS = range(int(os.environ.get("COMETMQ_SEEDS", "30"))) if os.environ.get("COMETMQ_SOAK") else (0, 3)


@pytest.fixture(scope="module")
def shooting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    try:
        java_home()
    except ConfigError as error:
        unavailable("spark", str(error))
    with Range(tmp_path_factory.mktemp("kills")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_arrives_once_whoever_is_killed(shooting: Range, seed: int) -> None:
    fault = Fault.of(seed)
    print(f"{fault}; again: python -m tests.spark.kills {seed}")
    shooting.strike(fault)


def test_seeds_reach_every_pipeline_point_and_victim() -> None:
    faults = [Fault.of(seed) for seed in range(500)]
    assert {(one.pipeline, one.victim) for one in faults[:9]} == {(name, who) for name in POINTS for who in VICTIMS}
    assert {(one.pipeline, one.point, one.victim) for one in faults} == {
        (name, point, who) for name, points in POINTS.items() for point in points for who in VICTIMS
    }
    assert str(Fault.of(7)) == str(Fault.of(7))
