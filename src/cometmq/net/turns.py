"""Turns of the event loop: one peer's work is cut where another's could wait, and addresses take turns.

    a chunk of input    is served for `SLICE_S`, then the rest of its connection waits in line
    a turn of the loop  serves for `TURN_S`; what is read after that waits in line
    the line            by address, each in its turn one connection: a thousand connections of one peer wait for each
                        other, and somebody else's request is the next but one

A turn is counted from the first chunk that took longer than `SHORT_S`: what is shorter than that, which is nearly all,
costs no more than two looks at the clock. A slice is CPU time: a machine that stands still cuts nobody's chunk. The
clock is the machine's own and not the one that tests move, because it measures work.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cometmq.net.endpoint import Endpoint
    from cometmq.net.peer import Peer

SHORT_S: Final = 0.0002
SLICE_S: Final = 0.005
TURN_S: Final = 0.015


class Turns:
    """`Endpoint.turn_until_s` is when the turn that is under way ends; 0 while nothing counts it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._line: dict[str, deque[Peer]] = {}
        self._is_coming = False

    def begin(self, now_s: float) -> None:
        """Something took long enough: count this turn."""
        self._endpoint.turn_until_s = now_s + TURN_S
        self._come_again()

    def wait(self, connection: Peer) -> None:
        """Behind the others of its address."""
        self._line.setdefault(connection.peer[0], deque()).append(connection)
        self._come_again()

    def _come_again(self) -> None:
        loop = self._endpoint.loop
        if not self._is_coming and loop is not None:
            self._is_coming = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        """A turn begins with those in line."""
        endpoint = self._endpoint
        self._is_coming = False
        if not self._line:
            endpoint.turn_until_s = 0.0
            return
        until_s = monotonic() + TURN_S
        endpoint.turn_until_s = until_s
        # At most once around.
        for _ in range(sum(map(len, self._line.values()))):
            if not self._line:
                break
            address = next(iter(self._line))
            connections = self._line.pop(address)
            connection = connections.popleft()
            if connections:
                self._line[address] = connections  # behind the other addresses
            connection.take_turn()
            if monotonic() > until_s:
                break
        self._come_again()
