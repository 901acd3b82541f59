"""A connection as far as those know it who have to do with all of them: budgets, shares, turns, calls.

`Connection` is the only one there is. What is above it knows all of it; what it is made of knows this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cometmq.net.intake import Intake
from cometmq.net.output import Output
from cometmq.net.waiting import Waiting
from cometmq.wire.command import Command

if TYPE_CHECKING:
    from cometmq.net.calls import Call


class Peer:
    """`peer` is the socket's (host, port); `peer_text` is what a PROXY header said, if there was one."""

    __slots__ = ("peer", "peer_text", "intake", "output", "requests")

    def __init__(self, intake: Intake) -> None:
        self.peer: tuple[str, int] = ("?", 0)
        self.peer_text: str = "?"
        self.intake: Intake = intake
        self.output: Output = Output()
        self.requests: Waiting | None = None  # that are accepted and not answered

    def answer(self, request: Command, response: Command | None) -> bool:
        """Answer a request that was kept, once; None ends it without an answer. False: too late, or already done."""
        raise NotImplementedError

    def begin(self, call: Call) -> None:
        """Write a call that has its permit."""
        raise NotImplementedError

    def forget(self, call: Call) -> None:
        raise NotImplementedError

    def take_turn(self) -> None:
        """It was in line, and now it is next."""
        raise NotImplementedError

    def feed_again(self) -> None:
        """All connections together hold less again."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write what was emitted, as soon as the connection is open for it."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Let what was written leave, then close. Requests that wait are forgotten."""
        raise NotImplementedError

    def cut(self, reason: str) -> None:
        """Close at once; unsent output is lost."""
        raise NotImplementedError

    def sweep(self, now_s: float) -> None:
        """Close what is idle, cut what is slow."""
        raise NotImplementedError


def socket_address(name: Any) -> tuple[str, int]:
    """(host, port) of a socket name; a peer that has gone already has none."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else ("?", 0)
