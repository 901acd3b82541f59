"""Calls in both directions: matching answers, failures, time limits, permits."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.errors import CallError, CallTimeout, ConnectionLost, SendFailed, TooManyCalls
from cometmq.net.calls import OPAQUE_MAX, Calls
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.limits import Limits
from cometmq.wire.command import FLAG_ONEWAY, ROCKETMQ, Command, encode, reply, request
from tests.support.net import ECHO, PARK, Parking, RawPeer, asked, echo, echo_dispatcher, serving, until
from tests.support.tcp_proxy import TcpProxy

Run = Callable[..., Any]


@pytest.mark.mission("RM-04")
def test_a_thousand_answers_in_reverse_order_find_their_calls(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        async with serving(echo_dispatcher(parking)) as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"
            calls = [
                asyncio.ensure_future(client.call(address, request(PARK, {"n": str(number)}), 20))
                for number in range(1000)
            ]
            await until(lambda: len(parking.kept) == 1000)
            for connection, received in reversed(parking.kept):
                connection.answer(received, reply(received, 0, None, {"n": received.ext["n"]}))
            answers = await asyncio.gather(*calls)
            assert [answer.ext["n"] for answer in answers] == [str(number) for number in range(1000)]
            assert len(server.connections) == 1
            await client.stop()

    run_on(main())


@pytest.mark.mission("RM-04")
def test_a_stray_response_is_logged_and_dropped(run_on: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            peer.send(reply(asked(ECHO, 4711), 0))
            assert (await peer.call(asked(ECHO, 2))).opaque == 2

    with caplog.at_level(logging.INFO, "cometmq.net.endpoint"):
        run_on(main())
    assert ["opaque=4711" in record.message for record in caplog.records] == [True]


def test_opaque_numbers_begin_at_1_wrap_and_leave_out_0() -> None:
    calls = Calls(ManualClock(), 1, 1, 1)
    assert [calls.next_opaque() for _ in range(3)] == [1, 2, 3]
    calls._opaque = OPAQUE_MAX - 1
    assert [calls.next_opaque() for _ in range(2)] == [OPAQUE_MAX, -OPAQUE_MAX - 1]
    calls._opaque = -2
    assert [calls.next_opaque() for _ in range(2)] == [-1, 1]


@pytest.mark.mission("RM-10")
def test_all_three_kinds_of_call_work_from_client_to_server(run_on: Run) -> None:
    async def main() -> None:
        seen: list[Command] = []

        def note(_: Connection, received: Command) -> Command:
            seen.append(received)
            return reply(received, 0, "noted")

        dispatcher = Dispatcher()
        dispatcher.add(1, note, Family("all", 10))
        async with serving(dispatcher) as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"
            assert (await client.call(address, request(1), 5)).remark == "noted"
            ends: list[tuple[Command | None, CallError | None]] = []
            client.call_soon(address, request(1), 5, lambda response, error: ends.append((response, error)))
            await until(lambda: ends)
            assert ends[0][0] is not None
            assert ends[0][1] is None
            await client.send_oneway(address, request(1), 5)
            await until(lambda: len(seen) == 3)
            assert [command.flag for command in seen] == [0, 0, FLAG_ONEWAY]
            await client.stop()

    run_on(main())


@pytest.mark.mission("RM-10")
def test_a_server_calls_its_client_in_the_form_that_it_speaks(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, RawPeer.connected(server.port) as peer:
            await peer.call(asked(ECHO, 1, form=ROCKETMQ))
            connection = server.connections[0]
            call = asyncio.ensure_future(connection.call(request(39, {"a": "b"}), 5))
            received = await peer.receive()
            assert (received.code, received.form, received.flag) == (39, ROCKETMQ, 0)
            peer.send(reply(received, 0, "client's answer"))
            assert (await call).remark == "client's answer"
            connection.send_oneway(request(40))
            received = await peer.receive()
            assert (received.code, received.form, received.flag) == (40, ROCKETMQ, FLAG_ONEWAY)
            assert received.opaque != 0

    run_on(main())


@pytest.mark.mission("RM-10")
def test_a_cut_before_the_answer_is_a_send_error_and_ends_the_connection(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server, TcpProxy.before(server.port) as proxy:
            client = Client()
            assert (await client.call(proxy.address, request(ECHO), 5)).code == 0
            connection = client.connection(proxy.address)
            assert connection is not None
            proxy.cut_requests = True
            with pytest.raises(SendFailed) as caught:
                await client.call(proxy.address, request(ECHO), 5)
            assert isinstance(caught.value, ConnectionLost)
            assert not connection.is_open
            with pytest.raises(SendFailed) as refused:
                await connection.call(request(ECHO), 5)
            assert not isinstance(refused.value, ConnectionLost)
            with pytest.raises(SendFailed):
                connection.send_oneway(request(ECHO))
            proxy.cut_requests = False
            assert (await client.call(proxy.address, request(ECHO), 5)).code == 0
            await client.stop()

    run_on(main())


@pytest.mark.mission("RM-10")
@pytest.mark.parametrize("close_on_timeout", [True, False])
def test_a_swallowed_answer_is_a_timeout_and_a_setting_decides_about_the_socket(
    run_on: Run, close_on_timeout: bool
) -> None:
    async def main() -> None:
        async with serving() as server, TcpProxy.before(server.port) as proxy:
            client = Client(close_on_timeout=close_on_timeout)
            await client.call(proxy.address, request(ECHO), 5)
            proxy.swallow_answers = True
            loop = asyncio.get_running_loop()
            start = loop.time()
            with pytest.raises(CallTimeout, match=r"no answer within 0\.2 s"):
                await client.call(proxy.address, request(ECHO), 0.2)
            assert 0.2 <= loop.time() - start < 10
            assert (client.connection(proxy.address) is None) == close_on_timeout
            ends: list[CallError | None] = []
            client.call_soon(proxy.address, request(ECHO), 0.05, lambda _, error: ends.append(error))
            await until(lambda: ends)
            assert isinstance(ends[0], CallTimeout)
            assert client.connection(proxy.address) is not None, "a timeout of a callback never closes"
            await client.stop()

    run_on(main())


@pytest.mark.mission("RM-10")
def test_a_frame_that_is_too_long_is_not_sent_and_the_connection_stays(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            client = Client(limits=Limits(frame_bytes_max=100_000))
            address = f"127.0.0.1:{server.port}"
            with pytest.raises(SendFailed, match="frame_bytes_max is 100000"):
                await client.call(address, request(ECHO, body=bytes(100_000)), 5)
            assert (await client.call(address, request(ECHO), 5)).code == 0
            await client.stop()

    run_on(main())


@pytest.mark.mission("RM-11")
def test_a_third_call_without_a_permit_fails_when_its_time_is_over(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        async with serving(echo_dispatcher(parking)) as server:
            client = Client(limits=Limits(calls_max=2))
            address = f"127.0.0.1:{server.port}"
            calls = [asyncio.ensure_future(client.call(address, request(PARK), 10)) for _ in range(2)]
            await until(lambda: len(parking.kept) == 2)
            loop = asyncio.get_running_loop()
            start = loop.time()
            with pytest.raises(CallTimeout, match="no permit"):
                await client.call(address, request(PARK), 0.05)
            assert 0.05 <= loop.time() - start < 5, "the others have 10 s"
            with pytest.raises(TooManyCalls):
                await client.call(address, request(PARK), 0)
            late = asyncio.ensure_future(client.call(address, request(PARK), 10))
            await asyncio.sleep(0)
            assert len(parking.kept) == 2
            parking.answer_all()
            await asyncio.gather(*calls)
            await until(lambda: len(parking.kept) == 1)
            parking.answer_all()
            assert (await late).remark == "later"
            assert client.endpoint.calls.twoway.free == 2
            await client.stop()

    run_on(main())


async def test_the_line_for_permits_is_bounded() -> None:
    async with serving() as server:
        client = Client(limits=Limits(calls_max=1, calls_waiting_max=2))
        address = f"127.0.0.1:{server.port}"
        await client.call(address, request(ECHO), 5)
        calls = [asyncio.ensure_future(client.call(address, request(PARK), 5)) for _ in range(4)]
        done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert [type(call.exception()) for call in done] == [TooManyCalls]
        await client.stop()
        ends = await asyncio.gather(*pending, return_exceptions=True)
        assert [type(end) for end in ends].count(ConnectionLost) == 1
        assert [type(end) for end in ends].count(SendFailed) == 2


def test_a_call_in_line_fails_as_soon_as_its_connection_is_gone(run_on: Run) -> None:
    """The permit it waits for is held by a call on another connection, and stays so."""

    async def main() -> None:
        async with serving() as server, TcpProxy.before(server.port) as proxy:
            client = Client(limits=Limits(calls_max=1))
            address = f"127.0.0.1:{server.port}"
            await client.call(proxy.address, request(ECHO), 5)
            holding = asyncio.ensure_future(client.call(address, request(PARK), 20))
            await until(lambda: server.endpoint.waiting == 1)
            waiting = asyncio.ensure_future(client.call(proxy.address, request(ECHO), 20))
            await until(lambda: client.endpoint.calls.twoway.waiting)
            proxy.cut()
            with pytest.raises(SendFailed, match="before the request was written"):
                await waiting
            assert not holding.done()
            await client.stop()
            with pytest.raises(ConnectionLost):
                await holding

    run_on(main())


@pytest.mark.mission("RM-11")
def test_permits_are_all_back_after_any_mixture_of_ends(run_on: Run) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    source = random.Random(seed)

    async def one(client: Client, address: str) -> str:
        kind = source.choice(["call", "callback", "oneway", "cancel"])
        code = source.choice([ECHO, PARK])
        timeout_s = source.choice([0, 0.01, 0.05, 0.2])
        try:
            if kind == "call":
                await client.call(address, request(code), timeout_s)
            elif kind == "oneway":
                await client.send_oneway(address, request(code), timeout_s)
            elif kind == "callback":
                ended = asyncio.get_running_loop().create_future()
                client.call_soon(address, request(code), timeout_s, lambda *end: ended.set_result(end))
                await ended
            else:
                call = asyncio.ensure_future(client.call(address, request(code), timeout_s))
                await asyncio.sleep(source.choice([0, 0.01]))
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
        except CallError as error:
            return type(error).__name__
        return kind

    async def main() -> None:
        parking = Parking()
        async with serving(echo_dispatcher(parking)) as server, TcpProxy.before(server.port) as proxy:
            client = Client(limits=Limits(calls_max=5, oneway_max=3), close_on_timeout=False)
            ends: list[str] = []
            for round_ in range(15):
                calls = [one(client, proxy.address) for _ in range(40)]
                running = asyncio.gather(*calls)
                await asyncio.sleep(0.02)
                parking.answer_all()
                if round_ % 3 == 2:
                    proxy.cut()
                ends += await running
            permits = client.endpoint.calls
            assert (permits.twoway.free, permits.oneway.free) == (5, 3)
            assert not permits.twoway.waiting
            assert {"call", "callback", "oneway", "cancel", "CallTimeout"} <= set(ends)
            await client.stop()
            assert (permits.twoway.free, permits.oneway.free) == (5, 3)

    run_on(main())


@pytest.mark.mission("RM-11")
def test_one_way_permits_are_held_while_the_peer_does_not_read(run_on: Run) -> None:
    async def main() -> None:
        async with serving(limits=Limits(oneway_max=2, output_bytes_high=10_000)) as server:
            async with RawPeer.connected(server.port, limit=1024) as peer:
                await peer.call(asked(ECHO))
                peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
                connection = server.connections[0]
                permits = server.endpoint.calls.oneway
                for _ in range(1000):
                    if permits.free == 0:
                        break
                    connection.send_oneway(request(40, body=bytes(100_000)))
                    await asyncio.sleep(0)
                with pytest.raises(TooManyCalls):
                    connection.send_oneway(request(40))
                peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
                while not connection.is_writable:
                    await peer.receive()
                assert permits.free == 2
            await until(lambda: not server.connections)

    run_on(main())


def parked_calls(client: Client, address: str, limits_s: list[float]) -> list[CallError | None]:
    ends: list[CallError | None] = [None] * len(limits_s)

    def ender(place: int) -> Callable[[Command | None, CallError | None], None]:
        def end(_: Command | None, error: CallError | None) -> None:
            ends[place] = error

        return end

    for place, limit_s in enumerate(limits_s):
        client.call_soon(address, request(PARK), limit_s, ender(place))
    return ends


@pytest.mark.mission("RM-12")
def test_a_call_expires_at_its_limit_and_a_late_answer_changes_nothing(
    run_on: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = ManualClock()
        parking = Parking()
        async with serving(echo_dispatcher(parking)) as server:
            client = Client(clock=clock)
            address = f"127.0.0.1:{server.port}"
            ends = parked_calls(client, address, [1.0, 1.5, 5.0])
            await until(lambda: len(parking.kept) == 3)
            clock.advance(0.999)
            assert ends == [None, None, None]
            clock.advance(0.02)
            assert isinstance(ends[0], CallTimeout)
            assert ends[1:] == [None, None]
            clock.advance(1.481)
            assert isinstance(ends[1], CallTimeout)
            before = list(ends)
            connection, received = parking.kept[0]
            connection.answer(received, reply(received, 0))
            await until(lambda: any("drop response" in record.message for record in caplog.records))
            assert ends == before
            assert client.connection(address) is not None
            assert client.endpoint.calls.twoway.free == client.endpoint.limits.calls_max - 1
            await client.stop()
            assert isinstance(ends[2], ConnectionLost)

    run_on(main())


def test_answered_calls_leave_nothing_behind_for_the_timer(run_on: Run) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with serving() as server:
            client = Client(clock=clock)
            address = f"127.0.0.1:{server.port}"
            for _ in range(50):
                await client.call(address, request(ECHO), 3)
                clock.advance(0.01)
            calls = client.endpoint.calls
            clock.advance(10)
            assert not calls._bucket_heap
            assert not calls._buckets
            await client.stop()

    run_on(main())


@pytest.mark.mission("RM-12")
def test_an_awaited_call_fails_in_real_time_soon_after_its_limit(run_on: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"
            await client.call(address, request(ECHO), 5)
            loop = asyncio.get_running_loop()
            start = loop.time()
            with pytest.raises(CallTimeout):
                await client.call(address, request(PARK), 1)
            # Nothing else would end it; the upper bound is for a busy machine.
            assert 1 <= loop.time() - start < 20
            await client.stop()

    run_on(main())


def test_a_callback_that_raises_harms_no_other_call(run_on: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving() as server:
            client = Client()
            address = f"127.0.0.1:{server.port}"

            def broken(_: Command | None, __: CallError | None) -> None:
                raise RuntimeError("broken callback")

            client.call_soon(address, request(ECHO), 5, broken)
            assert (await client.call(address, request(ECHO), 5)).code == 0
            await client.stop()

    run_on(main())
    assert ["fail callback" in record.message for record in caplog.records] == [True]


def test_a_client_serves_what_its_peer_asks(run_on: Run) -> None:
    async def ask_back(connection: Connection, received: Command) -> Command:
        known = await connection.call(request(ECHO, {"who": "server"}), 5)
        unknown = await connection.call(request(4242), 5)
        return reply(received, unknown.code, None, known.ext)

    async def main() -> None:
        dispatcher = Dispatcher()
        dispatcher.add(7, ask_back, Family("back", 10))
        answers = Dispatcher()
        answers.add(ECHO, echo, Family("echo", 10))
        async with serving(dispatcher) as server:
            client = Client(answers)
            response = await client.call(f"127.0.0.1:{server.port}", request(7), 5)
            assert (response.code, response.ext) == (3, {"who": "server"})
            await client.stop()

    run_on(main())


def test_frames_written_in_one_turn_leave_together(run_on: Run) -> None:
    async def main() -> None:
        parking = Parking()
        async with serving(echo_dispatcher(parking)) as server, RawPeer.connected(server.port) as peer:
            peer.write(b"".join(encode(asked(PARK, opaque)) for opaque in range(100)))
            await until(lambda: len(parking.kept) == 100)
            connection = server.connections[0]
            written_before = connection.output.written_bytes
            assert parking.answer_all() == [True] * 100
            assert connection.output.written_bytes == written_before
            assert len(connection.output.parts) == 100
            assert [(await peer.receive()).opaque for _ in range(100)] == list(range(100))

    run_on(main())
