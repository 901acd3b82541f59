"""A server for a test, and a peer that speaks frames and nothing else."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import uvloop

from cometmq.clock import Clock
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import SERVER_LIMITS, Limits
from cometmq.net.server import Server
from cometmq.net.tls import TlsSettings
from cometmq.wire.command import Command, encode, reply, request
from cometmq.wire.frame import FrameSplitter
from tests.support.aio import run

T = TypeVar("T")
Runner = Callable[[Coroutine[Any, Any, T]], T]

PATIENCE_S = 30.0

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

ECHO = 1
PARK = 2
SLOW = 3
FAIL = 4


@pytest.fixture(params=list(LOOPS))
def run_on(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`run`, on plain asyncio and on uvloop."""
    return functools.partial(run, loop_factory=LOOPS[request.param])


class Parking:
    """Requests that a handler kept, with the connections that wait for them."""

    def __init__(self) -> None:
        self.kept: list[tuple[Connection, Command]] = []

    def keep(self, connection: Connection, received: Command) -> None:
        self.kept.append((connection, received))

    def answer_all(self) -> list[bool]:
        kept, self.kept = self.kept, []
        return [connection.answer(received, reply(received, 0, "later")) for connection, received in kept]


def echo(_: Connection, received: Command) -> Command:
    return reply(received, 0, received.remark, received.ext, received.body)


def echo_dispatcher(parking: Parking | None = None) -> Dispatcher:
    """ECHO answers at once; PARK keeps the request."""
    dispatcher = Dispatcher()
    dispatcher.add(ECHO, echo, Family("echo", 10_000))
    dispatcher.add(PARK, (parking or Parking()).keep, Family("park", 100_000))
    return dispatcher


@asynccontextmanager
async def serving(
    dispatcher: Dispatcher | None = None,
    limits: Limits = SERVER_LIMITS,
    clock: Clock | None = None,
    tls: TlsSettings | None = None,
    events: object = None,
    **options: Any,
) -> AsyncIterator[Server]:
    server = Server(dispatcher or echo_dispatcher(), limits, clock, tls, events=events, **options)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


class RawPeer:
    """The other end of a connection, without any of the code under test except the codec."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._splitter = FrameSplitter()
        self._received: list[Command] = []

    @classmethod
    @asynccontextmanager
    async def connected(cls, port: int, **options: Any) -> "AsyncIterator[RawPeer]":
        peer = cls(*await asyncio.open_connection("127.0.0.1", port, **options))
        try:
            yield peer
        finally:
            await peer.close()

    @property
    def local_port(self) -> int:
        port: int = self.writer.get_extra_info("sockname")[1]
        return port

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, command: Command) -> None:
        self.writer.write(encode(command))

    async def receive(self) -> Command:
        while not self._received:
            data = await self.reader.read(1 << 18)
            assert data, "the connection was closed"
            self._received = self._splitter.feed(data)
        return self._received.pop(0)

    async def call(self, command: Command) -> Command:
        self.send(command)
        return await self.receive()

    async def is_cut(self) -> bool:
        """True once the other side has closed; False if it sent something instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, OSError):
            return


def asked(code: int, opaque: int = 1, body: bytes = b"", oneway: bool = False, form: int = 0) -> Command:
    return request(code, {"k": "v"}, body, opaque=opaque, oneway=oneway, form=form)


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Wait for something that other tasks or the kernel bring about."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not become true"
        await asyncio.sleep(0.002)
