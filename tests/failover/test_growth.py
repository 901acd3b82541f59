"""A topic grows while producers and groups with old routes use it: no group skips a message that came after it did.

What decides is the function that the command asks. Groups come at any moment and start at the first or at the last
message of a queue that is new to them; routes are up to 30 s old; the command is interrupted and given again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from cometmq.failover.growth import Begin, Make, Open, Step, Wait, next_step
from tests.support import length

SEEDS = length.count("COMETMQ_GROWTH_SEEDS", 1_000, 5_000, 50_000)
ROUTE_AGE_S = 30
SETS = ("a", "b", "c")

pytestmark = pytest.mark.mission("FO-10")


class Skipped(AssertionError):
    """A group did not get a message."""


@dataclass
class Group:
    name: str
    starts_last: bool
    sees: tuple[str, ...] = ()
    looks_s: int = 0
    is_asleep: bool = False
    first: dict[str, int] = field(default_factory=dict)


class World:
    def __init__(self, seed: int, *, waits: bool = True, begins: bool = True) -> None:
        self.chance = random.Random(seed)
        self.now_s = 0
        self.permissions = {"a": "rw"}
        self.ends: dict[str, int] = {"a": 5}
        self.routes: list[dict[str, str]] = []
        self.groups: list[Group] = []
        # Each acked message: its set, its offset there, who had read the topic before.
        self.acked: list[tuple[str, int, list[Group]]] = []
        self.producer_sees: tuple[tuple[str, str], ...] = (("a", "rw"),)
        self.begun: set[tuple[str, str]] = set()
        self.waits_until_s = -1
        self.has_waited = False
        self.waits, self.begins = waits, begins
        self.is_done = False
        self.interrupts = 0

    def play(self) -> None:
        grows_s = self.chance.randrange(0, 60)
        for self.now_s in range(600):
            self.routes.append(dict(self.permissions))
            self.clients()
            if self.now_s >= grows_s and not self.is_done:
                self.command()
        assert self.is_done, "the command did not end"
        self.routes.append(dict(self.permissions))
        for group in self.groups:
            self.look(group)
        for name, offset, readers in self.acked:
            for group in readers:
                if group.first[name] > offset:
                    raise Skipped(f"{group.name} starts at {group.first[name]} of {name}; {offset} was acked later")

    # Clients

    def clients(self) -> None:
        if self.chance.random() < 0.05 and len(self.groups) < 6:
            group = Group(f"g{len(self.groups)}", self.chance.random() < 0.7)
            self.groups.append(group)
            # Its process may have read the route for another one, some time ago.
            self.look(group, self.chance.randrange(ROUTE_AGE_S))
        for group in self.groups:
            if self.chance.random() < 0.02:
                group.is_asleep = not group.is_asleep
            if not group.is_asleep and self.now_s >= group.looks_s:
                self.look(group)
        if self.chance.random() < 1 / ROUTE_AGE_S:
            self.producer_sees = tuple(self.permissions.items())
        for name, permission in self.producer_sees:
            if "w" in permission and "w" in self.permissions[name] and self.chance.random() < 0.5:
                self.acked.append((name, self.ends[name], [each for each in self.groups if each.first]))
                self.ends[name] += 1

    def look(self, group: Group, age_s: int = 0) -> None:
        """Take a route of this age; a queue without an offset begins where the group likes."""
        group.looks_s = self.now_s + self.chance.randrange(1, ROUTE_AGE_S - age_s + 1)
        for name, permission in self.routes[max(0, len(self.routes) - 1 - age_s)].items():
            if "r" in permission and name not in group.first:
                group.first[name] = self.ends[name] if group.starts_last else 0

    # The command

    def command(self) -> None:
        if self.waits_until_s >= 0:
            if self.now_s < self.waits_until_s:
                self.interrupt()
                return
            self.waits_until_s, self.has_waited = -1, True
        readers = [group.name for group in self.groups if group.first] if self.begins else []
        step = next_step(SETS, self.permissions, readers, self.begun, has_waited=self.has_waited or not self.waits)
        if step is None:
            self.is_done = True
        else:
            self.act(step)
            self.interrupt()

    def act(self, step: Step) -> None:
        if isinstance(step, Make):
            self.permissions[step.name], self.ends[step.name] = "r", 0
        elif isinstance(step, Begin):
            group = next(each for each in self.groups if each.name == step.group)
            group.first.setdefault(step.name, 0)
            self.begun.add((step.group, step.name))
        elif isinstance(step, Wait):
            self.waits_until_s = self.now_s + 2 * ROUTE_AGE_S
        elif isinstance(step, Open):
            self.permissions[step.name] = "rw"

    def interrupt(self) -> None:
        """It is given again, and knows only what brokers know."""
        if self.interrupts < 3 and self.chance.random() < 0.01:
            self.interrupts += 1
            self.begun.clear()
            self.has_waited, self.waits_until_s = False, -1


@pytest.mark.repeated
def test_no_group_skips_a_message_of_a_topic_that_grows() -> None:
    messages = 0
    for seed in range(SEEDS):
        world = World(seed)
        world.play()
        messages += len(world.acked)
    print(f"{SEEDS} seeds, {messages} messages, none skipped")
    assert messages > 100 * SEEDS


@pytest.mark.parametrize("broken", [{"waits": False}, {"begins": False}], ids=["no wait", "no offsets"])
def test_a_step_that_is_left_out_is_found(broken: dict[str, bool]) -> None:
    with pytest.raises(Skipped):
        play_all(range(500), **broken)


def play_all(seeds: range, **broken: bool) -> None:
    for seed in seeds:
        World(seed, **broken).play()
