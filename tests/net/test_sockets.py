"""Socket options, idle connections, events in order, binding, and a stop that leaves nothing."""

import asyncio
import gc
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.errors import CometError
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import Limits
from cometmq.net.server import BACKLOG, Server
from cometmq.wire.codes import Response
from cometmq.wire.command import Command, reply, request
from tests.net.test_connection import Events
from tests.support.net import ECHO, PARK, Parking, RawPeer, asked, echo_dispatcher, serving, until

Run = Callable[..., Any]


def kernel_backlog_max() -> int:
    return int(Path("/proc/sys/net/core/somaxconn").read_text())


@pytest.mark.mission("RM-14")
def test_sockets_have_the_options_that_were_promised(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            await peer.call(asked(ECHO))
            assert server._listener is not None
            listening = server._listener.sockets[0]
            assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) != 0
            client = Client()
            address = f"127.0.0.1:{server.port}"
            await client.call(address, request(ECHO), 5)
            dialled = client.connection(address)
            assert dialled is not None
            for connection in [*server.connections, dialled]:
                one = connection._transport.get_extra_info("socket")
                assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
                assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
            await client.stop()
            if sys.platform == "linux":
                info = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
                backlog = struct.unpack_from("=I", info, 28)[0]
                assert backlog == min(BACKLOG, kernel_backlog_max())

    run_on(main())


@pytest.mark.mission("RM-14")
def test_a_silent_connection_closes_after_120_s_with_one_idle_event(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        events = Events()
        async with serving(clock=clock, events=events) as server:
            async with RawPeer.connected(server.port) as peer:
                await until(lambda: server.connections)
                clock.advance(119.5)
                assert events.seen == ["connect"]
                clock.advance(0.5)
                assert await peer.is_cut()
                clock.advance(500)
            await until(lambda: not server.connections)
            assert events.seen == ["connect", "idle", "close"]

    run_on(main())


@pytest.mark.mission("RM-14")
def test_reading_and_writing_both_put_off_the_idle_close(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        events = Events()
        async with serving(clock=clock, events=events) as server, RawPeer.connected(server.port) as peer:
            await until(lambda: server.connections)
            clock.advance(100)
            peer.send(asked(ECHO, oneway=True))
            await until(lambda: server.connections[0].intake.frames == 1)
            clock.advance(100)
            server.connections[0].send_oneway(request(40))
            await peer.receive()
            clock.advance(119)
            assert events.seen == ["connect"]
            clock.advance(2)
            assert await peer.is_cut()
            assert events.seen[:2] == ["connect", "idle"]

    run_on(main())


@pytest.mark.mission("RM-14")
def test_a_client_closes_its_idle_connections_too(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        events = Events()
        async with serving() as server:
            client = Client(clock=clock, events=events)
            address = f"127.0.0.1:{server.port}"
            await client.call(address, request(ECHO), 5)
            clock.advance(122)
            assert client.connection(address) is None
            await until(lambda: events.seen == ["connect", "idle", "close"])
            await client.stop()

    run_on(main())


@pytest.mark.mission("RM-14")
def test_a_reset_connection_gives_exception_then_close(run_on: Run) -> None:
    async def main() -> None:
        events = Events()
        async with serving(events=events) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as plain:
                await until(lambda: server.connections)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda: len(events.seen) == 3)
            assert events.seen == ["connect", "exception ConnectionResetError", "close"]

    run_on(main())


@pytest.mark.mission("RM-14")
def test_port_0_reports_the_real_port_and_a_taken_one_is_named(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            assert server.port > 0
            with socket.create_connection(("127.0.0.1", server.port)):
                pass
            second = Server(echo_dispatcher())
            with pytest.raises(CometError, match=f"cannot listen on 127.0.0.1:{server.port}.*choose another"):
                await second.start("127.0.0.1", server.port)
            with pytest.raises(CometError, match="host is not known"):
                await second.start("no such host.invalid", 0)

    run_on(main())


def test_a_stopped_port_can_be_bound_again_at_once(run_on: Run) -> None:
    async def main() -> None:
        first = Server(echo_dispatcher())
        await first.start("127.0.0.1", 0)
        async with RawPeer.connected(first.port) as peer:
            await peer.call(asked(ECHO))
            await first.stop()
            second = Server(echo_dispatcher())
            await second.start("127.0.0.1", first.port)
            await second.stop()
            await second.stop()

    run_on(main())


def test_one_connection_too_many_is_closed_and_the_others_stay(run_on: Run) -> None:
    async def main() -> None:
        events = Events()
        async with (
            serving(limits=Limits(connections_max=2), events=events) as server,
            RawPeer.connected(server.port) as first,
            RawPeer.connected(server.port) as second,
        ):
            await until(lambda: len(server.connections) == 2)
            async with RawPeer.connected(server.port) as third:
                assert await third.is_cut()
            for peer in (first, second):
                assert (await peer.call(asked(ECHO))).code == 0
            assert events.seen == ["connect", "connect"]

    run_on(main())


def open_sockets() -> int:
    gc.collect()
    kinds = (os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name))
    return sum(kind.startswith("socket:") for kind in kinds)


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


@pytest.mark.skipif(sys.platform != "linux", reason="counts sockets in /proc")
def test_a_stopped_server_leaves_no_socket_no_task_and_no_timer(run_on: Run) -> None:
    async def never(_: Connection, __: Command) -> Command:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        before = open_sockets()
        clock = ManualClock()
        parking = Parking()
        dispatcher = echo_dispatcher(parking)
        family = Family("never", 10)
        dispatcher.add(9, never, family)
        server = Server(dispatcher, clock=clock)
        await server.start("127.0.0.1", 0)
        async with RawPeer.connected(server.port) as peer, RawPeer.connected(server.port):
            for code in (9, PARK, ECHO):
                peer.send(asked(code))
            await peer.receive()
            call = asyncio.ensure_future(server.connections[0].call(request(1), 60))
            await asyncio.sleep(0)
            await server.stop()
            assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], CometError)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (family.waiting, server.endpoint.waiting, server.endpoint.inflight_bytes) == (0, 0, 0)
        assert [timer for timer in clock._timers if not timer.cancelled] == []
        assert open_sockets() == before

    run_on(main())


@asynccontextmanager
async def one_parked() -> AsyncIterator[tuple[Server, RawPeer, Parking]]:
    """A server that owes a peer an answer. Whoever enters stops it."""
    parking = Parking()
    server = Server(echo_dispatcher(parking))
    await server.start("127.0.0.1", 0)
    async with RawPeer.connected(server.port) as peer:
        peer.send(asked(PARK, 1))
        await until(lambda: parking.kept)
        yield server, peer, parking


def test_outstanding_answers_leave_within_the_grace(run_on: Run) -> None:
    async def main() -> None:
        async with one_parked() as (server, peer, parking):
            stopping = asyncio.ensure_future(server.stop(grace_s=20))
            await asyncio.sleep(0)
            peer.send(asked(ECHO, 2))
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", server.port)
            assert not stopping.done()
            parking.answer_all()
            assert (await peer.receive()).opaque == 1
            assert await peer.is_cut(), "a request that came later was not taken"
            await stopping

    run_on(main())


def test_the_grace_ends(run_on: Run) -> None:
    async def main() -> None:
        async with one_parked() as (server, peer, _):
            await server.stop(grace_s=0.05)
            assert await peer.is_cut()

    run_on(main())


def versioned(version: int, opaque: int) -> Command:
    command = asked(ECHO, opaque)
    command.version = version
    return command


def test_a_server_that_goes_away_says_so_to_clients_that_understand_it(run_on: Run) -> None:
    async def main() -> None:
        server = Server(echo_dispatcher(), go_away=True)
        await server.start("127.0.0.1", 0)
        async with RawPeer.connected(server.port) as peer, RawPeer.connected(server.port) as old:
            assert (await peer.call(versioned(513, 1))).code == 0
            stopping = asyncio.ensure_future(server.stop(grace_s=20))
            await asyncio.sleep(0)
            assert (await peer.call(versioned(476, 2))).code == Response.GO_AWAY
            assert (await old.call(versioned(475, 3))).code == 0
            assert not stopping.done()
            await peer.close()
            await old.close()
            await stopping

    run_on(main())


def test_a_client_moves_from_a_server_that_goes_away_to_its_successor(run_on: Run) -> None:
    async def main() -> None:
        first = Server(echo_dispatcher(), go_away=True)
        await first.start("127.0.0.1", 0)
        client = Client()
        address = f"127.0.0.1:{first.port}"
        await client.call(address, request(ECHO), 5)
        stopping = asyncio.ensure_future(first.stop(grace_s=20))
        await asyncio.sleep(0)
        dispatcher = Dispatcher(lambda _, received: reply(received, 0, "successor"))
        second = Server(dispatcher)
        await second.start("127.0.0.1", first.port)
        assert (await client.call(address, request(ECHO), 5)).remark == "successor"
        await stopping
        await client.stop()
        await second.stop()

    run_on(main())
