"""A name server that sends clients to brokers through proxies: it asks the real one and changes the addresses.

    async with Detour.around(namesrv, broker_port) as detour:
        Client(detour.address)
        detour.proxy.cut()
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cometmq.errors import CallError
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.server import Server
from cometmq.wire.command import Command, reply, request
from tests.support.tcp_proxy import TcpProxy

ASK_TIMEOUT_S = 3.0


class Detour:
    def __init__(self, namesrv: str, broker_port: int, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self._namesrv = namesrv
        self._real = f"127.0.0.1:{broker_port}".encode()
        self._client = Client()
        self._server = Server(Dispatcher(self._take, Family("detour", 1000)))

    @classmethod
    @asynccontextmanager
    async def around(cls, namesrv: str, broker_port: int) -> "AsyncIterator[Detour]":
        async with TcpProxy.before(broker_port) as proxy:
            detour = cls(namesrv, broker_port, proxy)
            await detour._server.start("127.0.0.1", 0)
            try:
                yield detour
            finally:
                await detour._server.stop()
                await detour._client.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def _take(self, connection: Connection, received: Command) -> None:
        def answer(response: Command | None, error: CallError | None) -> None:
            if response is None:
                connection.answer(received, reply(received, 1, str(error)))
                return
            body = response.body.replace(self._real, self.proxy.address.encode())
            connection.answer(received, reply(received, response.code, response.remark, response.ext, body))

        asked = request(received.code, dict(received.ext), received.body)
        self._client.call_soon(self._namesrv, asked, ASK_TIMEOUT_S, answer)
