"""A connection without a socket: for clients that reach the handlers by another protocol.

    ask(request, then) ── serve ──> handler ──> then(answer)        at once, or when the handler's wait is over
    handler ── send_oneway, call ──> `commands`                    what a server asks of its client

To handlers and tables it is a `Connection`: it has an address, holds requests that wait, counts in families and
shares, and can be closed. It never reads or writes bytes.
"""

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from cometmq.errors import SendFailed
from cometmq.net.connection import CLOSED, Connection
from cometmq.net.dispatch import Dispatcher
from cometmq.net.endpoint import Endpoint
from cometmq.net.serving import serve
from cometmq.wire.command import Command

Then = Callable[[Command], object]


class Commands(Protocol):
    """What stands for the client."""

    def told(self, command: Command, /) -> None:
        """A one-way request."""

    async def asked(self, command: Command, timeout_s: float, /) -> Command:
        """A request with an answer. Raises CallError."""
        ...

    def closed(self, reason: str, /) -> None: ...


class Inside(Connection):
    __slots__ = ("takes", "_commands", "_answers")

    def __init__(
        self,
        endpoint: Endpoint,
        dispatcher: Dispatcher,
        peer: tuple[str, int],
        peer_text: str,
        source: str,
        commands: Commands | None = None,
    ) -> None:
        super().__init__(endpoint, dispatcher, True)
        self.peer = peer
        self.peer_text = peer_text
        self.source = source
        # Whether the client takes what it is sent; None: nobody knows better than the connection.
        self.takes: Callable[[], bool] | None = None
        self._commands: Commands | None = commands
        self._answers: dict[Command, Then] = {}
        self._entered = True
        endpoint.connections[self] = None

    @property
    def is_writable(self) -> bool:
        return self.is_open and (self.takes is None or self.takes())

    def ask(self, request: Command, then: Then) -> None:
        self._answers[request] = then
        self.endpoint.read_s = monotonic()
        serve(self, request)

    def give_up(self, request: Command) -> None:
        """Nobody waits for the answer any more."""
        self.answer(request, None)

    def answer(self, request: Command, response: Command | None) -> bool:
        if response is None:
            self._answers.pop(request, None)
        return super().answer(request, response)

    def respond(self, request: Command, response: Command, since_s: float = 0.0) -> None:
        meter = self.endpoint.meter
        if meter is not None:
            meter.note(request.code, response.code, request.flag, since_s, self.endpoint.read_s)
        then = self._answers.pop(request, None)
        if then is not None:
            then(response)

    def send_oneway(self, command: Command) -> None:
        if self._held_back & CLOSED or self._commands is None:
            raise SendFailed(f"the client at {self.peer_text} is not there")
        self._commands.told(command)

    async def call(self, command: Command, timeout_s: float) -> Command:
        if self._held_back & CLOSED or self._commands is None:
            raise SendFailed(f"the client at {self.peer_text} is not there")
        return await self._commands.asked(command, timeout_s)

    def close(self, reason: str) -> None:
        if self._held_back & CLOSED:
            return
        self._end()
        self._answers.clear()
        self.endpoint.connections.pop(self, None)
        self.endpoint.tell(self.endpoint.on_close, self)
        if self._commands is not None:
            self._commands.closed(reason)

    def cut(self, reason: str) -> None:
        self.close(reason)

    def sweep(self, now_s: float) -> None:
        """There is no socket to look at."""
