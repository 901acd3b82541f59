"""Bounds that all peers share: the largest holder makes room for the others, by connection and by address."""

import asyncio
import time
from typing import Any

import pytest

from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import Limits
from cometmq.net.shares import CONNECTION_SHARE
from cometmq.wire.codes import Response
from cometmq.wire.command import Command, encode, reply
from tests.support.net import ECHO, PARK, SLOW, Parking, RawPeer, asked, echo, serving, until

OTHER = ("127.0.0.2", 0)
BURN_S = 0.002


def burn(_: Connection, received: Command) -> Command:
    """Work that keeps the loop."""
    end_s = time.thread_time() + BURN_S
    while time.thread_time() < end_s:
        pass
    return reply(received)


class Scene:
    """PARK keeps requests, ECHO answers, SLOW burns; `evicted` counts what a family was told."""

    def __init__(self, waiting_max: int) -> None:
        self.parking = Parking()
        self.family = Family("park", waiting_max)
        self.family.on_evict = self.note
        self.evicted = 0
        self.dispatcher = Dispatcher()
        self.dispatcher.add(ECHO, echo, Family("echo", 10_000))
        self.dispatcher.add(PARK, self.parking.keep, self.family)
        self.dispatcher.add(SLOW, burn, Family("slow", 10_000))

    def note(self) -> None:
        self.evicted += 1


def parks(count: int, body: bytes = b"") -> bytes:
    return b"".join(encode(asked(PARK, number, body)) for number in range(count))


async def test_a_full_family_takes_a_newcomer_and_the_largest_holder_loses_some() -> None:
    scene = Scene(200)
    async with (
        serving(scene.dispatcher) as server,
        RawPeer.connected(server.port) as hog,
        RawPeer.connected(server.port) as second_hog,
        RawPeer.connected(server.port, local_addr=OTHER) as honest,
    ):
        hog.write(parks(150))
        await until(lambda: scene.family.waiting == 150)
        second_hog.write(parks(50))
        await until(lambda: scene.family.waiting == 200)
        honest.send(asked(PARK, 7))
        answers = [await hog.receive() for _ in range(10)]
        assert [answer.opaque for answer in answers] == list(range(10)), "the oldest, of the largest connection"
        assert {answer.code for answer in answers} == {Response.SYSTEM_BUSY}
        assert (answers[0].remark or "").startswith("[OVERLOAD]")
        await until(lambda: scene.family.waiting == 191)
        assert scene.evicted == 1
        assert [received.opaque for it, received in scene.parking.kept if it.peer[0] == OTHER[0]] == [7]
        hog.send(asked(PARK, 1000))
        await until(lambda: scene.family.waiting == 192)
        hog.write(parks(20))
        await until(lambda: scene.family.refused == 12)
        assert scene.evicted == 1, "the largest holder is nobody's newcomer"


async def test_behind_one_address_the_largest_connection_makes_room() -> None:
    scene = Scene(100)
    async with (
        serving(scene.dispatcher) as server,
        RawPeer.connected(server.port) as hog,
        RawPeer.connected(server.port) as honest,
    ):
        hog.write(parks(100))
        await until(lambda: scene.family.waiting == 100)
        honest.send(asked(PARK, 7))
        assert (await hog.receive()).code == Response.SYSTEM_BUSY
        await until(lambda: len(scene.parking.kept) == 101)


async def test_a_connection_has_a_share_of_a_large_family_once_most_of_it_is_taken() -> None:
    scene = Scene(1_000)
    async with (
        serving(scene.dispatcher) as server,
        RawPeer.connected(server.port) as hog,
        RawPeer.connected(server.port, local_addr=OTHER) as honest,
    ):
        hog.write(parks(800))
        answers = [await hog.receive() for _ in range(50)]
        assert {answer.opaque for answer in answers} == set(range(750, 800))
        assert "its share is 250 of 1000" in (answers[0].remark or "")
        assert scene.family.waiting == 750
        honest.write(parks(1_000 // CONNECTION_SHARE))
        await until(lambda: scene.family.waiting == 1_000)


async def test_parked_bytes_of_the_largest_holder_make_room() -> None:
    scene = Scene(10_000)
    limits = Limits(inflight_bytes_total_max=1_000_000)
    async with (
        serving(scene.dispatcher, limits) as server,
        RawPeer.connected(server.port) as hog,
        RawPeer.connected(server.port, local_addr=OTHER) as honest,
    ):
        hog.write(parks(9, bytes(100_000)))
        await until(lambda: scene.family.waiting == 9)
        for number in range(4):
            honest.send(asked(PARK, number, bytes(50_000)))
        assert (await hog.receive()).code == Response.SYSTEM_BUSY
        await until(lambda: len([it for it, _ in scene.parking.kept if it.peer[0] == OTHER[0]]) == 4)
        assert server.endpoint.inflight_bytes <= 1_000_000
        assert (await honest.call(asked(ECHO, 9))).opaque == 9, "and is read on"


async def test_what_a_handler_keeps_counts_with_its_request() -> None:
    scene = Scene(10_000)

    def keep(connection: Connection, received: Command) -> None:
        connection.kept_bytes = 100_000
        scene.parking.keep(connection, received)

    scene.dispatcher.routes[PARK].handler = keep
    async with serving(scene.dispatcher) as server, RawPeer.connected(server.port) as peer:
        peer.write(parks(3))
        await until(lambda: scene.family.waiting == 3)
        assert server.endpoint.inflight_bytes > 300_000
        scene.parking.answer_all()
        assert server.endpoint.inflight_bytes == 0
        assert scene.family.waiting_of == {}


async def test_a_flood_of_connections_from_one_address_keeps_nobody_else_out() -> None:
    scene = Scene(100)
    async with serving(scene.dispatcher, Limits(connections_max=20)) as server:
        flood: list[Any] = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        await until(lambda: len(server.connections) == 20)
        async with RawPeer.connected(server.port, local_addr=OTHER) as honest:
            assert (await honest.call(asked(ECHO, 5))).opaque == 5
            await until(lambda: len(server.connections) == 20)
            assert server.endpoint.connections_of == {"127.0.0.1": 19, OTHER[0]: 1}
            flood.append(await asyncio.open_connection("127.0.0.1", server.port))
            assert await flood[-1][0].read(1) == b"", "its address has the most"
            assert (await honest.call(asked(ECHO, 6))).opaque == 6
        for _, writer in flood:
            writer.close()


@pytest.mark.parametrize("peers", [1, 40])
async def test_addresses_take_turns(peers: int) -> None:
    """An honest request is served among the first, however much one address has sent before it."""
    scene = Scene(100)
    async with serving(scene.dispatcher) as server:
        hogs = [RawPeer(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(peers)]
        async with RawPeer.connected(server.port, local_addr=OTHER) as honest:
            for hog in hogs:
                hog.write(b"".join(encode(asked(SLOW, number)) for number in range(400 // peers)))
            answered = asyncio.create_task(honest.call(asked(ECHO, 5)))
            left = 400
            while not answered.done():  # noqa: ASYNC110 - turns of the loop are what is looked at
                await asyncio.sleep(0)
            done = sum(hog.reader._buffer.count(b'"code":0') for hog in hogs)  # type: ignore[attr-defined]
            assert done < 100, f"{done} of {left} requests of another address came first"
            for hog in hogs:
                for _ in range(400 // peers):
                    await hog.receive()
        for hog in hogs:
            await hog.close()
