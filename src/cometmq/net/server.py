"""The accepting side: a listening socket, its connections, and a stop that lets answers leave.

    server = Server(dispatcher)
    await server.start("127.0.0.1", 0)      # port 0: any free one, see server.port
    await server.stop(grace_s=3)

Stopping closes the listener first, so that a successor can bind the port; then answers that are outstanding get
`grace_s` to leave, during which no further requests are read. With `go_away` requests are read for the whole of that
time and those of clients that understand it are answered GO_AWAY, which makes them connect anew.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable
from typing import cast

from cometmq.clock import Clock, SystemClock
from cometmq.errors import CometError
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Guard, Hook
from cometmq.net.endpoint import Endpoint
from cometmq.net.limits import SERVER_LIMITS, Limits
from cometmq.net.tls import ServerTls, TlsSettings

logger = logging.getLogger(__name__)

BACKLOG = 1024
CLOSING_S = 1.0


class Server:
    """`guard` is asked before each request; a PROXY header counts for it if `is_trusted_proxy` says so of the sender.

    `events` may have on_connect, on_idle, on_close (connection) and on_exception (connection, error).
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        limits: Limits = SERVER_LIMITS,
        clock: Clock | None = None,
        tls: TlsSettings | None = None,
        hooks: Iterable[Hook] = (),
        events: object = None,
        go_away: bool = False,
        guard: Guard | None = None,
        is_trusted_proxy: Callable[[str], bool] | None = None,
    ) -> None:
        clock = clock if clock is not None else SystemClock()
        self.host = ""
        self.port = 0
        self._tls = ServerTls(tls if tls is not None else TlsSettings(), clock)
        self._endpoint = Endpoint(limits, clock, hooks, self._tls)
        self._dispatcher = dispatcher
        self._endpoint.guard = guard
        self._endpoint.is_trusted_proxy = is_trusted_proxy
        listen_to(self._endpoint, events)
        self._go_away = go_away
        self._listener: asyncio.Server | None = None

    @property
    def connections(self) -> list[Connection]:
        return [it for it in self._endpoint.connections if isinstance(it, Connection)]

    @property
    def dispatcher(self) -> Dispatcher:
        return self._dispatcher

    @property
    def endpoint(self) -> Endpoint:
        """Gauges and budgets, for those who report them."""
        return self._endpoint

    def add_hook(self, hook: Hook) -> None:
        self._endpoint.add_hook(hook)

    async def start(self, host: str, port: int) -> None:
        """Raises CometError that names the address if it cannot be bound."""
        self._endpoint.loop = asyncio.get_running_loop()
        listening = await bind(host, port)
        try:
            self._tls.start()
            self._listener = await self._endpoint.loop.create_server(self._accept, sock=listening, backlog=BACKLOG)
        except BaseException:
            self._tls.stop()
            listening.close()
            raise
        self.host, self.port = listening.getsockname()[:2]
        logger.info("listen host=%s port=%d tls=%s", self.host, self.port, self._tls.mode)

    def _accept(self) -> asyncio.Protocol:
        # A compiled class cannot inherit from asyncio.Protocol; it has the same methods.
        return cast(asyncio.Protocol, Connection(self._endpoint, self._dispatcher, True))

    async def stop(self, grace_s: float = 0.0) -> None:
        """Returns when nothing is left: no socket, no task, no timer."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        self._tls.stop()
        await self._drain(grace_s)
        await close_all(self._endpoint, "server stops")
        await listener.wait_closed()
        logger.info("stop listening host=%s port=%d", self.host, self.port)

    async def _drain(self, grace_s: float) -> None:
        endpoint = self._endpoint
        if self._go_away:
            endpoint.leaving = True
            await emptied(endpoint, grace_s)
            return
        for connection in self.connections:
            connection.stop_reading()
        if endpoint.waiting > 0 and grace_s > 0:
            endpoint.answered = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(endpoint.answered.wait(), grace_s)


def listen_to(endpoint: Endpoint, events: object) -> None:
    """Take those of the four event methods that `events` has."""
    endpoint.on_connect = getattr(events, "on_connect", None)
    endpoint.on_idle = getattr(events, "on_idle", None)
    endpoint.on_exception = getattr(events, "on_exception", None)
    endpoint.on_close = getattr(events, "on_close", None)


async def close_all(endpoint: Endpoint, reason: str) -> None:
    """Close every connection, with a moment for its output to leave; then end the tasks."""
    endpoint.closed = True
    for connection in list(endpoint.connections):
        connection.close(reason)
    await emptied(endpoint, CLOSING_S)
    for connection in list(endpoint.connections):
        connection.cut(f"{reason}, output does not leave")
    await emptied(endpoint, CLOSING_S)
    tasks = list(endpoint.tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    endpoint.stop()


async def emptied(endpoint: Endpoint, patience_s: float) -> None:
    """Wait until the last connection is gone, but not longer than `patience_s`."""
    if endpoint.connections and patience_s > 0:
        endpoint.emptied = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(endpoint.emptied.wait(), patience_s)


async def bind(host: str, port: int) -> socket.socket:
    where = f"{host or '*'}:{port}"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise CometError(f"cannot listen on {where}: the host is not known ({error}); check the address") from error
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise CometError(
            f"cannot listen on {where}: {error.strerror}; stop what uses the port or choose another"
        ) from error
    return listening
