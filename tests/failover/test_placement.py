"""Plans of copies and masters, as values; and growth with plans at random."""

import math
import random

import pytest

from cometmq.errors import ConfigError
from cometmq.failover.placement import balance, plan
from tests.support import length

SEEDS = length.count("COMETMQ_PLACEMENT_SEEDS", 1_000, 5_000, 50_000)

pytestmark = pytest.mark.mission("FO-09")


def carried_out(placed: dict[str, list[str]], machines: list[str]) -> dict[str, list[str]]:
    """Each move adds before it removes; never two copies of a set on one machine, never fewer than before."""
    after = {name: list(copies) for name, copies in placed.items()}
    for move in plan(placed, machines):
        assert move.target not in after[move.name], f"two copies of {move.name} on {move.target}"
        after[move.name].append(move.target)
        after[move.name].remove(move.source)
        assert len(after[move.name]) == len(placed[move.name])
    return after


def loads(placed: dict[str, list[str]], machines: list[str]) -> list[int]:
    return [sum(machine in copies for copies in placed.values()) for machine in machines]


def test_three_machines_grow_to_six() -> None:
    placed = {f"s{number}": ["m1", "m2", "m3"] for number in range(8)}
    machines = [f"m{number}" for number in range(1, 7)]
    after = carried_out(placed, machines)
    assert set(loads(after, machines)) == {4}
    assert len(plan(placed, machines)) == 12


def test_a_machine_that_goes_gives_all_its_copies_to_others() -> None:
    placed = {"a": ["m1", "m2", "m3"], "b": ["m1", "m2", "m3"]}
    after = carried_out(placed, ["m2", "m3", "m4"])
    assert all("m1" not in copies for copies in after.values())


def test_what_is_even_stays() -> None:
    assert plan({"a": ["m1", "m2"], "b": ["m2", "m3"], "c": ["m1", "m3"]}, ["m1", "m2", "m3"]) == []


def test_a_set_with_more_copies_than_machines_has_no_plan() -> None:
    with pytest.raises(ConfigError, match="3 copies and there are 2 machines"):
        plan({"a": ["m1", "m2", "m3"]}, ["m1", "m2"])
    with pytest.raises(ConfigError, match="two copies on one machine"):
        plan({"a": ["m1", "m1"]}, ["m1", "m2"])


@pytest.mark.repeated
def test_random_clusters_grow_evenly_with_few_moves() -> None:
    for seed in range(SEEDS):
        chance = random.Random(seed)
        old = [f"m{number}" for number in range(chance.randint(3, 8))]
        new = [f"n{number}" for number in range(chance.randint(0, 6))]
        copies = chance.choice((2, 3))
        placed: dict[str, list[str]] = {}
        for number in range(chance.randint(1, 20)):  # as a plan before has left them: even
            ties = {machine: chance.random() for machine in old}
            held = dict(zip(old, loads(placed, old), strict=True))
            by_load = sorted(zip(held.values(), ties.values(), old, strict=True))
            placed[f"s{number}"] = [machine for _, _, machine in by_load[:copies]]
        machines = old + new
        after = carried_out(placed, machines)
        final = loads(after, machines)
        assert max(final) - min(final) <= 1, f"seed {seed}: {final}"
        allowed = math.ceil(len(placed) * copies * len(new) / len(machines)) + 1
        moves = len(plan(placed, machines))
        assert moves <= allowed, f"seed {seed}: {moves} moves, {allowed} are enough"


def test_masters_are_spread_over_machines_that_are_in_sync() -> None:
    masters = {f"s{number}": "m1" for number in range(6)}
    able = {name: ["m1", "m2", "m3"] for name in masters}
    switches = balance(masters, able)
    led = masters | {each.name: each.target for each in switches}
    assert sorted(led.values()) == ["m1", "m1", "m2", "m2", "m3", "m3"]
    assert len(switches) == 4


def test_a_third_machine_can_be_in_between() -> None:
    """m1 has too many, and only m2 shares a set with m3."""
    masters = {"a": "m1", "b": "m1", "c": "m1", "d": "m2", "e": "m2"}
    able = {"a": ["m1", "m2"], "b": ["m1", "m2"], "c": ["m1", "m2"], "d": ["m2", "m3"], "e": ["m2", "m3"]}
    led = masters | {each.name: each.target for each in balance(masters, able)}
    counts = [list(led.values()).count(machine) for machine in ("m1", "m2", "m3")]
    assert max(counts) - min(counts) <= 1
    assert all(led[name] in able[name] for name in led)


def test_masters_that_are_spread_stay() -> None:
    assert balance({"a": "m1", "b": "m2"}, {"a": ["m1", "m2"], "b": ["m1", "m2"]}) == []
