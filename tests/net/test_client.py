"""One connection per address: shared, replaced when dead, left when the peer goes away."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cometmq.errors import CallError, CallTimeout, CometError, ConnectFailed, SendFailed
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import Limits
from cometmq.net.server import Server
from cometmq.wire.codes import Response
from cometmq.wire.command import Command, reply, request
from tests.support.net import ECHO, PARK, Parking, asked, echo_dispatcher, serving, until
from tests.support.tcp_proxy import TcpProxy

Run = Callable[..., Any]


@pytest.mark.mission("RM-13")
def test_a_hundred_first_calls_share_one_connection(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, TcpProxy.before(server.port) as proxy:
            client = Client()
            answers = await asyncio.gather(*(client.call(proxy.address, request(ECHO), 5) for _ in range(100)))
            assert len(answers) == 100
            assert proxy.accepted == 1
            proxy.cut()
            await until(lambda: client.connection(proxy.address) is None)
            await asyncio.gather(*(client.call(proxy.address, request(ECHO), 5) for _ in range(100)))
            assert proxy.accepted == 2, "a dead connection is replaced, once"
            await client.stop()

    run_on(main())


@asynccontextmanager
async def black_hole() -> AsyncIterator[socket.socket]:
    """A listening socket whose queue is full: connecting to it neither succeeds nor fails."""
    loop = asyncio.get_running_loop()
    fillers: list[socket.socket] = []
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        listening.setblocking(False)
        try:
            while True:
                filler = socket.socket()
                fillers.append(filler)
                filler.setblocking(False)
                await asyncio.wait_for(loop.sock_connect(filler, listening.getsockname()), 0.2)
        except TimeoutError:
            yield listening
        finally:
            for filler in fillers:
                filler.close()


@pytest.mark.mission("RM-13")
def test_calls_to_a_black_hole_fail_by_the_connect_limit_and_the_next_tries_again(run_on: Run) -> None:
    async def main() -> None:
        async with black_hole() as listening:
            client = Client()
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            loop = asyncio.get_running_loop()
            start = loop.time()
            short = asyncio.ensure_future(client.call(address, request(ECHO), 0.1))
            ends = await asyncio.gather(
                *(client.call(address, request(ECHO), 20) for _ in range(20)), return_exceptions=True
            )
            assert {type(end) for end in ends} == {ConnectFailed}
            assert 2.9 <= loop.time() - start < 10, "the calls have 20 s"
            assert isinstance(short.exception(), ConnectFailed), "its own limit was shorter"

            async with serving() as server:
                revived = await loop.create_server(server._accept, sock=listening)
                assert (await client.call(address, request(ECHO), 5)).code == 0
                await client.stop()
                revived.close()

    run_on(main())


async def called_soon(client: Client, address: str) -> tuple[Command | None, CallError | None]:
    ended: asyncio.Future[tuple[Command | None, CallError | None]] = asyncio.get_running_loop().create_future()
    client.call_soon(address, request(ECHO), 5, lambda answer, error: ended.set_result((answer, error)))
    return await ended


@pytest.mark.parametrize(
    ("address", "cause"),
    [("127.0.0.1:1", "cannot connect"), ("127.0.0.1", "cannot connect"), ("127.0.0.1:port", "cannot connect")],
)
def test_an_address_that_cannot_be_reached_is_named(run_on: Run, address: str, cause: str) -> None:
    async def main() -> None:
        client = Client()
        with pytest.raises(ConnectFailed, match=f"{cause} to {address}"):
            await client.call(address, request(ECHO), 5)
        with pytest.raises(ConnectFailed):
            await client.send_oneway(address, request(ECHO), 5)
        _, error = await called_soon(client, address)
        assert isinstance(error, ConnectFailed)
        await client.stop()

    run_on(main())


def test_connecting_uses_up_the_time_of_the_call(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        async with serving(echo_dispatcher(parking)) as server, TcpProxy.before(server.port) as proxy:
            client = Client()
            proxy.delay_s = 0.5
            with pytest.raises(CallTimeout):
                await client.call(proxy.address, request(ECHO), 0.2)
            await client.stop()

    run_on(main())


def test_dropping_an_address_closes_its_connection(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"
            await client.call(address, request(ECHO), 5)
            client.drop(address, "not in any route")
            client.drop(address, "twice is harmless")
            await until(lambda: not server.connections)
            assert (await client.call(address, request(ECHO), 5)).code == 0
            await client.stop()

    run_on(main())


def test_a_stopped_client_leaves_nothing_and_takes_nothing(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"
            await client.call(address, request(ECHO), 5)
            waiting = asyncio.ensure_future(client.call(address, request(PARK), 50))
            dialling = asyncio.ensure_future(client.call("127.0.0.1:1", request(PARK), 50))
            ends: list[CallError | None] = []
            client.call_soon("127.0.0.1:2", request(ECHO), 5, lambda _, error: ends.append(error))
            await asyncio.sleep(0)
            await client.stop()
            assert isinstance(ends[0], ConnectFailed)
            for call in (waiting, dialling):
                with pytest.raises(CallError):
                    await call
            with pytest.raises(SendFailed, match="stopped"):
                await client.call(address, request(ECHO), 5)
            await until(lambda: not server.connections)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run_on(main())


class Leaving:
    """Says GO_AWAY to the first `times` requests, or to those of its first connection."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.connections: list[Connection] = []
        self.parking = Parking()
        self.dispatcher = Dispatcher()
        family = Family("all", 100)
        self.dispatcher.add(ECHO, self.answer, family)
        self.dispatcher.add(PARK, self.parking.keep, family)

    def answer(self, connection: Connection, received: Command) -> Command:
        if connection not in self.connections:
            self.connections.append(connection)
        if self.times > 0:
            self.times -= 1
            return reply(received, Response.GO_AWAY)
        return reply(received, 0, "stayed")


def test_a_client_sent_away_connects_again_and_resends_once(run_on: Run) -> None:
    async def main() -> None:
        leaving = Leaving(1)
        async with serving(leaving.dispatcher) as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"
            open_call = asyncio.ensure_future(client.call(address, request(PARK), 5))
            await until(lambda: leaving.parking.kept)
            assert (await client.call(address, request(ECHO), 5)).remark == "stayed"
            assert len(leaving.connections) == 2
            assert len(server.connections) == 2, "the old connection waits for its last answer"
            leaving.parking.answer_all()
            assert (await open_call).remark == "later"
            await until(lambda: len(server.connections) == 1)

            leaving.times = 1
            answer, _ = await called_soon(client, address)
            assert answer is not None
            assert answer.remark == "stayed"
            assert len(leaving.connections) == 3
            await client.stop()

    run_on(main())


def test_a_client_sent_away_twice_fails_the_call(run_on: Run) -> None:
    async def main() -> None:
        leaving = Leaving(4)
        async with serving(leaving.dispatcher) as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"
            with pytest.raises(SendFailed, match="GO_AWAY twice"):
                await client.call(address, request(ECHO), 5)
            _, error = await called_soon(client, address)
            assert isinstance(error, SendFailed)
            await client.stop()

    run_on(main())


def test_both_sides_full_do_not_wait_for_each_other_for_ever(run_on: Run) -> None:
    """A client that stopped reading while its output is full would never get it out: the server does the same."""

    async def main() -> None:
        async with serving(limits=Limits(output_bytes_high=1000)) as server:
            client = Client(limits=Limits(output_bytes_high=1000, calls_max=1000))
            address = f"127.0.0.1:{server.port}"
            body = bytes(200_000)
            answers = await asyncio.gather(*(client.call(address, request(ECHO, body=body), 20) for _ in range(200)))
            assert all(answer.body == body for answer in answers)
            await client.stop()

    run_on(main())


def test_a_host_name_and_a_bracketed_address_are_understood(run_on: Run) -> None:
    async def main() -> None:
        server = Server(echo_dispatcher())
        await server.start("localhost", 0)
        client = Client()
        assert (await client.call(f"localhost:{server.port}", request(ECHO), 5)).code == 0
        await server.stop()
        if socket.has_ipv6:
            server = Server(echo_dispatcher())
            try:
                await server.start("::1", 0)
            except CometError:
                await client.stop()
                pytest.skip("no IPv6 on this machine")
            assert (await client.call(f"[::1]:{server.port}", asked(ECHO), 5)).code == 0
            await server.stop()
        await client.stop()

    run_on(main())
