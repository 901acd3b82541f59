"""What is done with popped messages by the clock, see `Rounds`.

    timer                           first after   then every
    popped, not done                200 ms        200 ms            popping.py
    the same, of RocketMQ's broker  1 s           1 s               revive.py
    windows of what was deleted     10 s          10 s
"""

from collections.abc import Callable
from typing import Final

from cometmq.broker.cold_pages import ColdPages, Place
from cometmq.broker.periodic import Rounds
from cometmq.broker.pop.popping import Popping
from cometmq.broker.pop.revive import PopRevival
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock

REVIVE_S: Final = 0.2
LEFT_POPS_S: Final = 1.0
FORGET_S: Final = 10.0


class PopRounds(Rounds):
    """`left_pops` makes the reader of what RocketMQ's broker has left: one that begins anew with each start."""

    def __init__(
        self,
        clock: Clock,
        popping: Popping,
        left_pops: Callable[[], PopRevival],
        topics: Topics,
        groups: Groups,
        pages: ColdPages,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__(clock)
        self._popping = popping
        self._make_left_pops = left_pops
        self._left_pops = left_pops()
        self._topics = topics
        self._groups = groups
        self._pages = pages
        self._soon = soon

    def start(self) -> None:
        self._left_pops = self._make_left_pops()
        every = self._periods.every
        every("pop", lambda: REVIVE_S, self._revive, REVIVE_S)
        every("left pops", lambda: LEFT_POPS_S, self._revive_left, LEFT_POPS_S)
        every("windows", lambda: FORGET_S, self._forget, FORGET_S)

    def _revive(self) -> None:
        if "pop" in self._periods and self._popping.revive(self._is_cold):
            self._soon(self._revive)

    def _is_cold(self, walk: str, places: list[Place]) -> bool:
        return self._pages.wanted(walk, places, self._revive)

    def _revive_left(self) -> None:
        if "left pops" in self._periods and self._left_pops.turn(self._is_left_cold):
            self._soon(self._revive_left)

    def _is_left_cold(self, walk: str, places: list[Place]) -> bool:
        return self._pages.wanted(walk, places, self._revive_left)

    def _forget(self) -> None:
        self._popping.windows.keep_only(self._topics.table, self._groups.table)
        self._popping.batches.keep_only(self._topics.table, self._groups.table)
