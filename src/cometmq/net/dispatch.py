"""Which function serves a request code, and how many requests may wait there.

    dispatcher = Dispatcher()
    dispatcher.add(Request.SEND_MESSAGE, send, Family("send", waiting_max=10_000))

A handler is a plain function that is given the connection and the request, and returns

    a Command       the answer; it is written together with all others of the same chunk of input
    an awaitable    runs as a task; its result is the answer
    None            nothing now: the handler keeps connection and request and calls `connection.answer()` later,
                    once. A two-way request that shall get no answer at all is ended with
                    `connection.answer(request, None)`. A one-way request is over when None is returned.

`RequestError` becomes its code and remark, any other exception code 1. One-way requests are never answered.

A family is a group of codes with a common bound, so that a full or stuck group refuses only itself. Its gauge counts
requests that were accepted and whose answer is outstanding after their handler returned; a handler that answers at
once never raises it.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from cometmq.net.family import Family as Family
from cometmq.net.family import Guard as Guard
from cometmq.net.family import Hook as Hook
from cometmq.wire.command import Command

if TYPE_CHECKING:
    from cometmq.net.connection import Connection

Answer = Command | Awaitable[Command | None] | None
Handler = Callable[["Connection", Command], Answer]


class Route:
    __slots__ = ("handler", "family")

    def __init__(self, handler: Handler, family: Family) -> None:
        self.handler: Handler = handler
        self.family: Family = family


class Dispatcher:
    """A missing code goes to `default`; without one it is answered with code 3."""

    __slots__ = ("routes", "default")

    def __init__(self, default: Handler | None = None, family: Family | None = None) -> None:
        self.routes: dict[int, Route] = {}
        self.default: Route | None = None
        if default is not None:
            self.default = Route(default, family if family is not None else Family("default", 10_000))

    def add(self, code: int, handler: Handler, family: Family) -> None:
        assert code not in self.routes, f"code {code} has a handler already"
        self.routes[code] = Route(handler, family)

    def families(self) -> list[Family]:
        """Each once, in the order of their first route."""
        routes = list(self.routes.values())
        if self.default is not None:
            routes.append(self.default)
        return list({route.family: None for route in routes})
