"""Which machine has which copy of which set: plans as values. No I/O, no clock.

    plan      copies move from machines with too many to those with too few; never two copies of a set on one machine
    balance   planned switches until each machine leads as many sets as its share

A plan moves as few copies as possible: what a machine may keep stays there, and only what is over its share goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cometmq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of `name` goes from one machine to another; "": it is made anew."""

    name: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Switch:
    """`target` is to lead `name` instead of `source`."""

    name: str
    source: str
    target: str


def plan(placed: Mapping[str, Sequence[str]], machines: Sequence[str]) -> list[Move]:
    """`placed`: set -> the machines of its copies. ConfigError: there are fewer machines than copies of a set."""
    targets = list(dict.fromkeys(machines))
    for name, copies in placed.items():
        if len(copies) > len(targets):
            raise ConfigError(f"set {name} has {len(copies)} copies and there are {len(targets)} machines for them")
        if len(set(copies)) < len(copies):
            raise ConfigError(f"set {name} has two copies on one machine: {', '.join(copies)}")
    held: dict[str, set[str]] = {machine: set() for machine in targets}
    homeless: list[tuple[str, str]] = []
    for name, copies in sorted(placed.items()):
        for machine in copies:
            if machine in held:
                held[machine].add(name)
            else:
                homeless.append((name, machine))
    moves: list[Move] = []
    for name, source in homeless:
        target = _emptiest(held, name)
        held[target].add(name)
        moves.append(Move(name, source, target))
    while True:
        move = _next_move(held)
        if move is None:
            return moves
        held[move.source].remove(move.name)
        held[move.target].add(move.name)
        moves.append(move)


def _emptiest(held: Mapping[str, set[str]], name: str) -> str:
    return min((machine for machine in held if name not in held[machine]), key=lambda each: len(held[each]))


def _next_move(held: Mapping[str, set[str]]) -> Move | None:
    """From the fullest machine to the emptiest one, if that makes the difference smaller."""
    by_load = sorted(held, key=lambda machine: len(held[machine]))
    for target in by_load:
        for source in reversed(by_load):
            if len(held[source]) - len(held[target]) < 2:
                break
            able = sorted(held[source] - held[target])
            if able:
                return Move(able[0], source, target)
    return None


def balance(masters: Mapping[str, str], able: Mapping[str, Sequence[str]]) -> list[Switch]:
    """`masters`: set -> the machine that leads it. `able`: set -> machines whose copies are in sync."""
    leads = dict(masters)
    switches: dict[str, Switch] = {}
    while True:
        found = _path(leads, able)
        if found is None:
            return [switches[name] for name in sorted(switches) if switches[name].source != switches[name].target]
        for name, target in found:
            switches[name] = Switch(name, masters[name], target)
            leads[name] = target


def _path(leads: Mapping[str, str], able: Mapping[str, Sequence[str]]) -> list[tuple[str, str]] | None:
    """Switches that take one set from a machine that leads two more than another, maybe by way of third ones."""
    machines = sorted({machine for places in able.values() for machine in places} | set(leads.values()))
    count = {machine: sum(each == machine for each in leads.values()) for machine in machines}
    for start in sorted(machines, key=lambda machine: -count[machine]):
        reached: dict[str, list[tuple[str, str]]] = {start: []}
        queue = [start]
        for machine in queue:
            for name in sorted(name for name, leader in leads.items() if leader == machine):
                for target in able.get(name, ()):
                    if target in reached:
                        continue
                    reached[target] = [*reached[machine], (name, target)]
                    if count[start] - count[target] >= 2:
                        return reached[target]
                    queue.append(target)
    return None
