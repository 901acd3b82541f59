"""Frames on a real socket: cut anywhere, malformed, in both forms, large; and the events around them."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import Limits
from cometmq.wire.command import JSON, ROCKETMQ, Command, encode, reply
from tests.support.net import ECHO, PARK, Parking, RawPeer, asked, echo, echo_dispatcher, serving, until

Run = Callable[..., Any]


class Events:
    """Writes down what happened, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_connect(self, _: Connection) -> None:
        self.seen.append("connect")

    def on_idle(self, _: Connection) -> None:
        self.seen.append("idle")

    def on_exception(self, _: Connection, error: BaseException) -> None:
        self.seen.append(f"exception {type(error).__name__}")

    def on_close(self, _: Connection) -> None:
        self.seen.append("close")


@pytest.mark.parametrize("step", [1, 7, 13, 100_000])
def test_frames_are_answered_however_the_stream_is_cut(run_on: Run, step: int) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            stream = b"".join(encode(asked(ECHO, opaque, b"x" * opaque)) for opaque in range(1, 8))
            for start in range(0, len(stream), step):
                peer.write(stream[start : start + step])
                if step < 100:
                    await asyncio.sleep(0)
            for opaque in range(1, 8):
                response = await peer.receive()
                assert (response.opaque, response.body) == (opaque, b"x" * opaque)

    run_on(main())


@pytest.mark.parametrize("form", [JSON, ROCKETMQ])
def test_the_answer_has_the_form_of_the_request(run_on: Run, form: int) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            response = await peer.call(asked(ECHO, 5, form=form))
            assert (response.form, response.flag, response.ext) == (form, 1, {"k": "v"})
            assert server.connections[0].form == form

    run_on(main())


MALFORMED = {
    "length over the limit": b"\x01\x00\x00\x01" + bytes(20),
    "negative length": b"\xff\xff\xff\xff" + bytes(20),
    "header longer than frame": b"\x00\x00\x00\x10\x00\x00\x00\xff" + bytes(20),
    "unknown serialize type": b"\x00\x00\x00\x10\x07\x00\x00\x04" + bytes(20),
    "header is no JSON": b"\x00\x00\x00\x10\x00\x00\x00\x0c" + b"not json!!!!",
    "text of another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.mission("RM-02")
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_an_undecodable_frame_closes_its_connection_without_reply(
    run_on: Run, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async def main() -> None:
        events = Events()
        async with serving(events=events) as server:
            async with RawPeer.connected(server.port) as peer:
                peer.write(data)
                assert await peer.is_cut()
            async with RawPeer.connected(server.port) as peer:
                assert (await peer.call(asked(ECHO))).code == 0
            await until(lambda: not server.connections)
        assert events.seen[:3] == ["connect", "exception WireError", "close"]

    with caplog.at_level(logging.WARNING):
        run_on(main())
    assert [record.message.split(" peer")[0] for record in caplog.records] == ["close connection"]


@pytest.mark.mission("RM-02")
async def test_random_damage_ends_in_an_answer_or_a_closed_connection() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    source = random.Random(seed)

    async with serving() as server:
        for form in (JSON, ROCKETMQ):
            whole = encode(asked(ECHO, 9, b"body", form=form))
            for _ in range(150):
                damaged = bytearray(whole)
                for _ in range(source.randint(1, 4)):
                    damaged[source.randrange(len(damaged))] = source.randrange(256)
                async with RawPeer.connected(server.port) as peer:
                    # A length that grew would wait for more: the second frame and the end of input decide.
                    peer.write(bytes(damaged) + whole)
                    peer.writer.write_eof()
                    await peer.reader.read()
        async with RawPeer.connected(server.port) as peer:
            assert (await peer.call(asked(ECHO))).code == 0
        await until(lambda: len(server.connections) == 0)
        assert server.endpoint.partial_bytes == 0


class FakeTransport:
    """Takes everything and reports nothing."""

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("192.0.2.1", 1) if name in ("peername", "sockname") else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


async def test_trouble_is_reported_once_however_it_goes_on() -> None:
    events = Events()
    async with serving(events=events) as server:
        connection = Connection(server.endpoint, server.dispatcher, True)
        connection.connection_made(FakeTransport())
        connection.data_received(MALFORMED["negative length"])
        connection.data_received(b"more of it")
        connection.connection_lost(ConnectionResetError())
        assert events.seen == ["connect", "exception WireError", "close"]


def test_requests_before_a_malformed_frame_are_answered(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            peer.write(encode(asked(ECHO, 1)) + encode(asked(ECHO, 2)) + MALFORMED["unknown serialize type"])
            assert [(await peer.receive()).opaque for _ in range(2)] == [1, 2]
            assert await peer.is_cut()

    run_on(main())


def test_a_frame_over_the_limit_is_refused_when_it_is_announced(run_on: Run) -> None:
    async def main() -> None:
        async with serving(limits=Limits(frame_bytes_max=1000)) as server:
            async with RawPeer.connected(server.port) as peer:
                peer.write((997).to_bytes(4, "big") + bytes(8))
                assert await peer.is_cut()
            async with RawPeer.connected(server.port) as peer:
                small = encode(asked(ECHO, 1))
                assert (await peer.call(asked(ECHO, 1, b"x" * (1000 - len(small))))).code == 0

    run_on(main())


def test_an_answer_that_does_not_fit_a_frame_becomes_an_error(run_on: Run) -> None:
    def grow(_: Connection, received: Command) -> Command:
        return reply(received, 0, None, None, bytes(100_000))

    async def main() -> None:
        dispatcher = Dispatcher()
        dispatcher.add(ECHO, grow, Family("grow", 10))
        async with (
            serving(dispatcher, Limits(frame_bytes_max=50_000)) as server,
            RawPeer.connected(server.port) as peer,
        ):
            response = await peer.call(asked(ECHO, 3))
            assert (response.code, response.opaque) == (1, 3)
            assert "frame_bytes_max" in (response.remark or "")

    run_on(main())


@pytest.mark.parametrize("size", [10, 40_000, 5_000_000])
def test_bodies_of_any_size_come_back_whole(run_on: Run, size: int) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            body = random.Random(size).randbytes(size)
            for opaque in (1, 2, 3):
                peer.send(asked(ECHO, opaque, body))
            for _ in range(3):
                assert (await peer.receive()).body == body

    run_on(main())


def test_a_peer_that_hangs_up_gets_the_answers_it_already_has_coming(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            peer.send(asked(ECHO, 1))
            peer.writer.write_eof()
            assert (await peer.receive()).opaque == 1
            assert await peer.is_cut()

    run_on(main())


def test_an_answer_is_given_once_and_not_to_a_closed_connection(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        async with serving(echo_dispatcher(parking)) as server:
            async with RawPeer.connected(server.port) as peer:
                peer.send(asked(PARK, 1))
                peer.send(asked(PARK, 2))
                await until(lambda: len(parking.kept) == 2)
                (connection, first), _ = parking.kept
                assert connection.waiting == 2
                assert connection.answer(first, reply(first, 0))
                assert not connection.answer(first, reply(first, 0))
                assert (await peer.receive()).opaque == 1
            await until(lambda: not server.connections)
            assert parking.answer_all() == [False, False]
            assert server.endpoint.waiting == 0
            assert server.endpoint.inflight_bytes == 0

    run_on(main())


def test_a_handler_may_answer_itself_before_it_returns(run_on: Run) -> None:
    def answers_itself(connection: Connection, received: Command) -> None:
        assert connection.answer(received, reply(received, 0, "itself"))
        assert not connection.answer(received, reply(received, 0, "again"))

    def ends_without_answer(connection: Connection, received: Command) -> None:
        connection.answer(received, None)

    async def main() -> None:
        dispatcher = Dispatcher()
        family = Family("all", 10)
        dispatcher.add(1, answers_itself, family)
        dispatcher.add(2, ends_without_answer, family)
        dispatcher.add(3, echo, family)
        async with serving(dispatcher) as server, RawPeer.connected(server.port) as peer:
            for code in (2, 1, 3):
                peer.send(asked(code, code))
            assert [(await peer.receive()).opaque for _ in range(2)] == [1, 3]
            assert family.waiting == 0

    run_on(main())


def test_a_listener_that_raises_harms_nothing(run_on: Run, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def on_connect(self, _: Connection) -> None:
            raise RuntimeError("broken listener")

        on_close = on_connect

    async def main() -> None:
        async with serving(events=Broken()) as server:
            async with RawPeer.connected(server.port) as peer:
                assert (await peer.call(asked(ECHO))).code == 0
            await until(lambda: not server.connections)

    run_on(main())
    assert sum("fail event" in record.message for record in caplog.records) == 2
