"""A group of request codes with a common bound, and what is asked around every request: hooks, the guard."""

from collections.abc import Callable
from typing import Protocol

from cometmq.wire.command import Command


class Hook(Protocol):
    """Runs around every request, on the serving and on the calling side. May raise RequestError to abort it."""

    def before(self, peer: str, request: Command) -> None: ...

    def after(self, peer: str, request: Command, response: Command) -> None: ...


class Guard(Protocol):
    """Asked before each request of a server, known or not, before its family: who may ask for what."""

    def check(self, request: Command, source: str) -> None:
        """Raises RequestError. `source` is the address of the caller, see `Connection.source`."""


class Family:
    """`reject` is asked before each request: a text refuses it, None lets it pass.

    `waiting_of` has how many wait by the address that they came from. `on_evict` is called when requests that a
    handler kept were answered without it, because their peer held more than others (shares.py).
    """

    __slots__ = ("name", "waiting_max", "reject", "waiting", "refused", "waiting_of", "on_evict")

    def __init__(
        self,
        name: str,
        waiting_max: int,
        reject: Callable[[], str | None] | None = None,
        on_evict: Callable[[], None] | None = None,
    ) -> None:
        self.name: str = name
        self.waiting_max: int = waiting_max
        self.reject: Callable[[], str | None] | None = reject
        self.waiting: int = 0
        self.refused: int = 0
        self.waiting_of: dict[str, int] = {}
        self.on_evict: Callable[[], None] | None = on_evict

    def reject_when(self, reject: Callable[[], str | None]) -> None:
        self.reject = reject

    def refusal(self) -> str | None:
        """Why a request cannot be taken now, as the remark of its answer."""
        if self.reject is not None:
            text = self.reject()
            if text is not None:
                # RocketMQ's tools tell causes of refusal by such a mark; `reject` may set its own.
                return text if text.startswith("[") else f"[REJECTREQUEST]{text}"
        if self.waiting >= self.waiting_max:
            return f"[OVERLOAD]{self.waiting} {self.name} requests are waiting, the bound is {self.waiting_max}"
        return None
