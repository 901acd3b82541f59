"""Peers that announce much and send little, or ask for much and read nothing: bounded, and cut in the end."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import FRAME_BYTES_POSSIBLE, Limits
from cometmq.net.server import Server
from cometmq.wire.command import Command, encode, reply
from tests.support.net import ECHO, PARK, Parking, RawPeer, asked, echo, echo_dispatcher, serving, until

Run = Callable[..., Any]

MIB = 1 << 20
BIG = 7


@contextmanager
def plain_sockets(port: int, count: int, receive_bytes: int = 0) -> Iterator[list[socket.socket]]:
    """Connected sockets that nobody reads."""
    sockets = []
    try:
        for _ in range(count):
            one = socket.socket()
            sockets.append(one)
            if receive_bytes:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            one.connect(("127.0.0.1", port))
            one.setblocking(False)
        yield sockets
    finally:
        for one in sockets:
            one.close()


def announce(frame_bytes: int) -> bytes:
    return (frame_bytes - 4).to_bytes(4, "big") + b"\0\0\0\x20" + b"{" + bytes(7)


def partial_total(server: Server) -> int:
    return sum(connection.intake.partial_bytes for connection in server.connections)


async def until_partial(server: Server, total_bytes: int) -> None:
    await until(lambda: partial_total(server) == total_bytes)


def test_five_hundred_dripping_peers_stop_nobody_and_are_cut(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with serving(clock=clock) as server, RawPeer.connected(server.port) as healthy:
            await healthy.call(asked(ECHO))
            with plain_sockets(server.port, 500) as drippers:
                for dripper in drippers:
                    dripper.send(announce(16 * MIB))
                sent = 16 * 500
                for second in range(10):
                    await until_partial(server, sent)
                    assert server.endpoint.partial_bytes == sent, "memory follows what came, not what was announced"
                    clock.advance(1)
                    assert len(server.connections) == 501
                    assert (await healthy.call(asked(ECHO, second))).opaque == second
                    for dripper in drippers:
                        dripper.send(b"x")
                    sent += 500
                clock.advance(2)
                await until(lambda: len(server.connections) == 1)
                assert (await healthy.call(asked(ECHO, 77))).opaque == 77
                assert server.endpoint.partial_bytes == 0

    run_on(main())


def test_a_slow_sender_that_keeps_the_pace_is_served(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = Limits(partial_grace_s=3, partial_bytes_per_s_min=100)
        async with serving(clock=clock, limits=limits) as server, RawPeer.connected(server.port) as peer:
            frame = encode(asked(ECHO, 6, bytes(3000)))
            for start in range(0, len(frame), 150):
                peer.write(frame[start : start + 150])
                await until_partial(server, start + 150 if start + 150 < len(frame) else 0)
                clock.advance(1)
            assert (await peer.receive()).opaque == 6

    run_on(main())


def test_many_frames_in_a_row_are_not_one_slow_frame(run_on: Run) -> None:
    """Each chunk ends in the middle of a frame, but every time of another one."""

    async def main() -> None:
        clock = ManualClock()
        limits = Limits(partial_grace_s=2, partial_bytes_per_s_min=1000)
        async with serving(clock=clock, limits=limits) as server, RawPeer.connected(server.port) as peer:
            frame = encode(asked(ECHO))
            peer.write(frame[:20])
            for _ in range(10):
                await until(lambda: partial_total(server) == 20)
                clock.advance(1)
                peer.write(frame[20:] + frame[:20])
                await peer.receive()

    run_on(main())


def test_incomplete_frames_have_a_budget_and_the_costliest_pay(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = Limits(partial_bytes_max=1_000_000)
        async with serving(clock=clock, limits=limits) as server, RawPeer.connected(server.port) as healthy:
            await healthy.call(asked(ECHO))
            with plain_sockets(server.port, 11) as hoarders:
                for place, hoarder in enumerate(hoarders):
                    hoarder.setblocking(True)
                    # The last one crosses the budget with a few bytes, which arrive in one piece.
                    held = bytes(99_984) if place < 10 else b""
                    await asyncio.to_thread(hoarder.sendall, announce(16 * MIB) + held)
                    if place < 10:
                        await until_partial(server, (place + 1) * 100_000)
                    if place == 4:
                        clock.advance(5)
                # Three must go to reach three quarters; the first five have held their bytes for longest.
                await until(lambda: len(server.connections) == 9)
                assert server.endpoint.partial_bytes == partial_total(server) == 700_016
                living = {connection.peer for connection in server.connections}
                assert sum(hoarder.getsockname() in living for hoarder in hoarders[:5]) == 2
                assert all(hoarder.getsockname() in living for hoarder in hoarders[5:])
                assert len((await healthy.call(asked(ECHO, 6, bytes(200_000)))).body) == 200_000

    run_on(main())


def big_dispatcher(parking: Parking, answer_bytes: int, served: list[int]) -> Dispatcher:
    body = bytes(answer_bytes)

    def big(_: Connection, received: Command) -> Command:
        served.append(received.opaque)
        return reply(received, 0, None, None, body)

    def keep_big(connection: Connection, received: Command) -> None:
        parking.keep(connection, received)

    dispatcher = Dispatcher()
    dispatcher.add(BIG, big, Family("big", 10))
    dispatcher.add(PARK, keep_big, Family("park", 100_000))
    dispatcher.add(ECHO, echo, Family("echo", 10))
    return dispatcher


@pytest.mark.parametrize("answer_bytes", [1000, 100_000])
def test_a_peer_that_does_not_read_is_not_served_further_until_it_does(run_on: Run, answer_bytes: int) -> None:
    async def main() -> None:
        served: list[int] = []
        dispatcher = big_dispatcher(Parking(), answer_bytes, served)
        count = 20_000_000 // answer_bytes
        async with serving(dispatcher) as server, RawPeer.connected(server.port, limit=10_000) as peer:
            peer.write(b"".join(encode(asked(BIG, opaque)) for opaque in range(count)))
            await until(lambda: server.connections and not server.connections[0].is_writable)
            connection = server.connections[0]
            held_bytes = connection.output.blocked_bytes
            assert held_bytes < 2 * MIB, "the high mark is 1 MiB"
            assert len(served) < count
            for opaque in range(count):
                assert (await peer.receive()).opaque == opaque
            assert served == list(range(count))
            assert connection.is_writable
            assert (await peer.call(asked(ECHO, 5))).opaque == 5

    run_on(main())


def test_five_hundred_peers_that_stop_reading_are_bounded_and_cut(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = Limits(output_bytes_high=50_000, output_bytes_total_max=20_000_000)
        served: list[int] = []
        dispatcher = big_dispatcher(Parking(), 30_000, served)
        async with (
            serving(dispatcher, clock=clock, limits=limits) as server,
            RawPeer.connected(server.port) as healthy,
        ):
            assert server._listener is not None
            # Else the kernel itself would take some megabytes for each of them.
            server._listener.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
            asking = b"".join(encode(asked(BIG, opaque)) for opaque in range(100))
            with plain_sockets(server.port, 500, receive_bytes=4096) as pullers:
                for puller in pullers:
                    puller.send(asking)
                assert (await healthy.call(asked(ECHO, 1))).opaque == 1

                def settled() -> bool:
                    return sum(not c.is_writable for c in server.connections) == len(server.connections) - 1

                await until(lambda: len(server.connections) > 1 and settled())
                blocked = [connection.output.blocked_bytes for connection in server.connections]
                assert max(blocked) < 500_000, "the high mark, and one write above it"
                assert sum(blocked) <= limits.output_bytes_total_max
                for second in range(29):
                    clock.advance(1)
                    assert (await healthy.call(asked(ECHO, second))).opaque == second
                assert len(server.connections) > 1
                clock.advance(2)
                await until(lambda: len(server.connections) == 1)
                assert (await healthy.call(asked(ECHO, 99))).opaque == 99
                assert server.endpoint.output_bytes == 0

    run_on(main())


def test_answers_to_parked_requests_of_a_peer_that_does_not_read_are_bounded(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        limits = Limits(output_bytes_high=50_000, output_bytes_max=3_000_000)
        async with serving(echo_dispatcher(parking), limits=limits) as server:
            with plain_sockets(server.port, 1, receive_bytes=4096) as (puller,):
                puller.send(b"".join(encode(asked(PARK, opaque)) for opaque in range(500)))
                await until(lambda: len(parking.kept) == 500)
                answered = 0
                for connection, received in parking.kept:
                    answered += connection.answer(received, reply(received, 0, None, None, bytes(100_000)))
                    await asyncio.sleep(0)
                assert answered < 200, "kernel buffers, three megabytes, and no more"
                await until(lambda: not server.connections)

    run_on(main())


def test_a_slow_reader_that_keeps_the_pace_is_not_cut(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = Limits(output_bytes_high=50_000, output_grace_s=5, output_bytes_per_s_min=10)
        dispatcher = big_dispatcher(Parking(), 30_000, [])
        async with serving(dispatcher, clock=clock, limits=limits) as server:
            with plain_sockets(server.port, 1, receive_bytes=4096) as (reader,):
                reader.send(b"".join(encode(asked(BIG, opaque)) for opaque in range(1000)))
                await until(lambda: server.connections and not server.connections[0].is_writable)
                loop = asyncio.get_running_loop()
                for _ in range(600):
                    assert await loop.sock_recv(reader, 10_000), "it was cut"
                    clock.advance(0.1)
                assert server.connections

    run_on(main())


def test_requests_that_wait_are_bounded_per_connection(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        limits = Limits(inflight_bytes_max=1_000_000)
        async with (
            serving(echo_dispatcher(parking), limits=limits) as server,
            RawPeer.connected(server.port) as greedy,
            RawPeer.connected(server.port) as modest,
        ):
            for opaque in range(100):
                greedy.send(asked(PARK, opaque, bytes(100_000)))
            await until(lambda: len(parking.kept) == 10)
            assert (await modest.call(asked(ECHO, 4))).opaque == 4
            assert len(parking.kept) == 10
            assert server.endpoint.inflight_bytes < 1_200_000
            seen: list[int] = []
            while len(seen) < 100:
                parking.answer_all()
                seen.append((await greedy.receive()).opaque)
            assert sorted(seen) == list(range(100))
            assert server.endpoint.inflight_bytes == 0

    run_on(main())


def test_requests_that_wait_are_bounded_in_all(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        limits = Limits(inflight_bytes_total_max=1_000_000)
        async with (
            serving(echo_dispatcher(parking), limits=limits) as server,
            RawPeer.connected(server.port) as first,
            RawPeer.connected(server.port) as second,
            RawPeer.connected(server.port) as modest,
        ):
            for opaque in range(50):
                first.send(asked(PARK, opaque, bytes(100_000)))
            await until(lambda: len(parking.kept) == 10)
            for opaque in range(50):
                second.send(asked(PARK, opaque, bytes(100_000)))
            await until(lambda: len(parking.kept) == 11)
            assert (await modest.call(asked(ECHO, 4))).opaque == 4
            assert len(parking.kept) == 11
            counts = {first: 0, second: 0}
            while sum(counts.values()) < 100:
                parking.answer_all()
                for peer in counts:
                    if counts[peer] < 50:
                        try:
                            await asyncio.wait_for(peer.receive(), 0.05)
                            counts[peer] += 1
                        except TimeoutError:
                            continue
            assert server.endpoint.inflight_bytes == 0
            assert counts == {first: 50, second: 50}

    run_on(main())


def test_a_connection_that_cannot_close_is_cut(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = Limits(output_bytes_high=10_000, closing_s=5)
        async with serving(big_dispatcher(Parking(), 30_000, []), clock=clock, limits=limits) as server:
            with plain_sockets(server.port, 1, receive_bytes=4096) as (puller,):
                puller.send(b"".join(encode(asked(BIG, opaque)) for opaque in range(500)))
                await until(lambda: server.connections and not server.connections[0].is_writable)
                server.connections[0].close("test")
                clock.advance(4)
                await asyncio.sleep(0)
                assert len(server.connections) == 1, "its output is still leaving"
                clock.advance(2)
                await until(lambda: not server.connections)

    run_on(main())


@pytest.mark.parametrize("frame_bytes_max", [7, FRAME_BYTES_POSSIBLE])
def test_a_frame_limit_that_confuses_frames_with_tls_is_refused(frame_bytes_max: int) -> None:
    with pytest.raises(ValueError, match=f"frame_bytes_max is {frame_bytes_max}"):
        Limits(frame_bytes_max=frame_bytes_max)
