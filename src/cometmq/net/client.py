"""The dialling side: one connection per address, shared by all who call there.

    client = Client()
    response = await client.call("127.0.0.1:9876", request(105, {...}), timeout_s=3)
    await client.stop()

The first caller of an address dials; others who come meanwhile wait for the same attempt. A connection that died is
replaced by the next call. Whatever a call waits for, dialling or a permit or the answer, counts against its own limit.

    ConnectFailed    no connection                          nothing was sent
    SendFailed       the connection did not take it         nothing was sent; the connection is closed
    ConnectionLost   it closed before the answer came       unknown
    CallTimeout      no answer in time                      unknown; `close_on_timeout` decides about the connection
    TooManyCalls     no permit, and no time to wait for one nothing was sent

GO_AWAY (1500) is the answer of a server that stops: the call is sent once more on a new connection. The old one stays
until its other answers have come.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import cast

from cometmq.clock import Clock, SystemClock
from cometmq.errors import CallError, CallTimeout, ConnectFailed, SendFailed
from cometmq.net.calls import DIALING, Call, Callback
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Hook
from cometmq.net.endpoint import Endpoint
from cometmq.net.limits import CLIENT_LIMITS, Limits
from cometmq.net.peer import Peer
from cometmq.net.server import close_all, listen_to
from cometmq.net.tls import ClientTls, TlsSession, client_context
from cometmq.wire.codes import Response
from cometmq.wire.command import Command

logger = logging.getLogger(__name__)

# A call that had less than this, and less than a quarter of its limit, left when it was written says nothing
# about the health of the connection.
TELLING_S = 0.1


class Client:
    """`dispatcher` serves what peers ask of us; without one they are told that the code is not supported."""

    def __init__(
        self,
        dispatcher: Dispatcher | None = None,
        limits: Limits = CLIENT_LIMITS,
        clock: Clock | None = None,
        tls: ClientTls | None = None,
        hooks: Iterable[Hook] = (),
        events: object = None,
        close_on_timeout: bool = True,
    ) -> None:
        clock = clock if clock is not None else SystemClock()
        self._dispatcher = dispatcher if dispatcher is not None else Dispatcher()
        self._endpoint = Endpoint(limits, clock, hooks, None)
        listen_to(self._endpoint, events)
        self._context: ssl.SSLContext | None = client_context(tls) if tls is not None else None
        self._server_name: str | None = tls.server_name if tls is not None else None
        self._close_on_timeout = close_on_timeout
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, Dial] = {}
        self._stopped = False

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def add_hook(self, hook: Hook) -> None:
        self._endpoint.add_hook(hook)

    def connection(self, address: str) -> Connection | None:
        """The open connection to an address, if there is one."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    async def call(self, address: str, command: Command, timeout_s: float) -> Command:
        """Send a request and await its answer, whatever its code; raises CallError."""
        call = self._launch(address, command, False, timeout_s, asyncio.get_running_loop().create_future(), None)
        response = await self._answer(call)
        if response.code != Response.GO_AWAY:
            return response
        self._retire(address, call.connection)
        left_s = call.deadline_s - self._endpoint.clock.monotonic()
        call = self._launch(address, command, False, left_s, asyncio.get_running_loop().create_future(), None)
        response = await self._answer(call)
        if response.code == Response.GO_AWAY:
            raise SendFailed(_twice_away(address))
        return response

    async def _answer(self, call: Call) -> Command:
        assert call.future is not None
        try:
            return await call.future
        except asyncio.CancelledError:
            self._endpoint.calls.give_up(call)
            raise
        except CallTimeout:
            telling = call.sent_left_s > TELLING_S or call.sent_left_s > call.timeout_s / 4
            if self._close_on_timeout and telling and call.opaque and call.connection is not None:
                call.connection.close("call timed out")
            raise

    async def send_oneway(self, address: str, command: Command, timeout_s: float) -> None:
        """Send a request that is not answered; returns when it was written."""
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        call = self._launch(address, command, True, timeout_s, future, None)
        try:
            await future
        except asyncio.CancelledError:
            self._endpoint.calls.give_up(call)
            raise

    def call_soon(self, address: str, command: Command, timeout_s: float, callback: Callback) -> None:
        """Send a request; `callback(response, error)` is called once, with one of the two. Never closes on timeout."""
        AsyncCall(self, address, command, timeout_s, callback).start(timeout_s)

    def drop(self, address: str, reason: str) -> None:
        """Close the connection to an address that is no longer used."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close(reason)

    async def stop(self) -> None:
        """All calls fail; returns when nothing is left: no socket, no task, no timer."""
        self._stopped = True
        dials = [dial.task for dial in self._dials.values()]
        for task in dials:
            task.cancel()
        await asyncio.gather(*dials, return_exceptions=True)
        for address in list(self._dials):  # cancelled before they began
            self._pass_on(address, ConnectFailed(f"no connection to {address}: the client stops"))
        await close_all(self._endpoint, "client stops")
        self._connections.clear()

    # From an address to a connection

    def _launch(
        self,
        address: str,
        command: Command,
        oneway: bool,
        timeout_s: float,
        future: "asyncio.Future[Command] | None",
        callback: Callback | None,
    ) -> Call:
        endpoint = self._endpoint
        if self._stopped:
            raise SendFailed(f"request to {address}: the client is stopped")
        if endpoint.loop is None:
            endpoint.loop = asyncio.get_running_loop()
        if endpoint.hooks:
            endpoint.run_before(address, command)
        call = endpoint.calls.open(command, oneway, timeout_s, future, callback)
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            endpoint.calls.admit(call, connection)
        else:
            self._dial(address).calls.append(call)
        return call

    def _dial(self, address: str) -> "Dial":
        dial = self._dials.get(address)
        if dial is None:
            dial = Dial(asyncio.ensure_future(self._connect(address)))
            self._dials[address] = dial
        return dial

    async def _connect(self, address: str) -> None:
        """One attempt, for all calls that have gathered by its end."""
        error: CallError | None = None
        try:
            async with asyncio.timeout(self._endpoint.limits.connect_s):
                self._connections[address] = await self._open(address)
        except CallError as failure:
            error = failure
        except TimeoutError:
            error = ConnectFailed(f"no connection to {address} within {self._endpoint.limits.connect_s} s (connect_s)")
        except (OSError, ValueError) as failure:
            error = ConnectFailed(f"cannot connect to {address}: {failure}")
        except asyncio.CancelledError:
            error = ConnectFailed(f"no connection to {address}: the client stops")
            raise
        finally:
            self._pass_on(address, error)

    async def _open(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        loop = asyncio.get_running_loop()
        tls = self._session(host) if self._context is not None else None
        connection = Connection(self._endpoint, self._dispatcher, False, tls)
        connection.opened = loop.create_future()
        try:
            await loop.create_connection(lambda: cast(asyncio.Protocol, connection), host, int(port))
            await connection.opened
        except BaseException:
            connection.opened.cancel()
            connection.cut("not opened")
            raise
        return connection

    def _session(self, host: str) -> TlsSession:
        """The name goes to the server in its hello and is compared with its certificate; not the zone of an address."""
        assert self._context is not None
        return TlsSession(self._context, server_side=False, server_name=self._server_name or host.partition("%")[0])

    def _pass_on(self, address: str, error: CallError | None) -> None:
        calls = self._endpoint.calls
        for call in self._dials.pop(address).calls:
            if call.state != DIALING:
                continue
            call.sent_left_s = call.deadline_s - self._endpoint.clock.monotonic()
            if error is not None:
                calls.end(call, None, error)
            else:
                calls.admit(call, self._connections[address])

    def _retire(self, address: str, peer: Peer | None) -> None:
        """The peer behind a connection is going: use another one from now on."""
        connection = self._connections.get(address)
        if connection is not None and connection is peer:
            logger.info("leave connection peer=%s reason=go away", address)
            del self._connections[address]
            connection.close_when_answered()


class Dial:
    """An attempt to connect, and the calls that wait for it."""

    __slots__ = ("calls", "task")

    def __init__(self, task: "asyncio.Future[None]") -> None:
        self.task = task
        self.calls: list[Call] = []


class AsyncCall:
    """A call with a callback, which is sent once more if the peer says that it goes away."""

    __slots__ = ("_address", "_call", "_callback", "_client", "_command", "_deadline_s", "_second")

    def __init__(
        self, client: Client, address: str, command: Command, timeout_s: float, callback: Callback
    ) -> None:
        self._client = client
        self._address = address
        self._command = command
        self._callback = callback
        self._deadline_s = client.endpoint.clock.monotonic() + timeout_s
        self._second = False
        self._call: Call | None = None

    def start(self, timeout_s: float) -> None:
        self._call = self._client._launch(self._address, self._command, False, timeout_s, None, self._end)

    def _end(self, response: Command | None, error: CallError | None) -> None:
        if response is None or response.code != Response.GO_AWAY:
            self._callback(response, error)
        elif self._second:
            self._callback(None, SendFailed(_twice_away(self._address)))
        else:
            self._second = True
            self._client._retire(self._address, self._call.connection if self._call is not None else None)
            self.start(self._deadline_s - self._client.endpoint.clock.monotonic())


def _twice_away(address: str) -> str:
    return f"{address} said GO_AWAY twice: it is stopping"
