"""Hooks around requests, on the serving and on the calling side."""

from collections.abc import Callable
from typing import Any

import pytest

from cometmq.errors import RequestError
from cometmq.net.client import Client
from cometmq.net.server import Server
from cometmq.wire.command import Command, request
from tests.support.net import ECHO, PARK, Parking, RawPeer, asked, echo_dispatcher, until

Run = Callable[..., Any]


class Counting:
    def __init__(self) -> None:
        self.before_calls: list[tuple[str, int]] = []
        self.after_calls: list[tuple[str, int, int]] = []

    def before(self, peer: str, request: Command) -> None:
        self.before_calls.append((peer, request.code))

    def after(self, peer: str, request: Command, response: Command) -> None:
        self.after_calls.append((peer, request.code, response.code))


class Aborting:
    """Refuses one code before its handler, another after it."""

    def before(self, peer: str, request: Command) -> None:
        if request.ext.get("abort") == "before":
            raise RequestError(16, "not allowed")
        if request.ext.get("abort") == "bug":
            raise KeyError("bug")

    def after(self, peer: str, request: Command, response: Command) -> None:
        if request.ext.get("abort") == "after":
            raise RequestError(29, "not after all")


@pytest.mark.mission("RM-09")
def test_a_hook_offered_twice_runs_once_before_and_once_after_each_call(run_on: Run) -> None:
    async def main() -> None:
        serving, calling = Counting(), Counting()
        parking = Parking()
        server = Server(echo_dispatcher(parking), hooks=[serving, serving])
        server.add_hook(serving)
        await server.start("127.0.0.1", 0)
        client = Client(hooks=[calling, calling])
        client.add_hook(calling)
        address = f"127.0.0.1:{server.port}"
        assert (await client.call(address, request(ECHO), 5)).code == 0
        answers: list[Command | None] = []
        client.call_soon(address, request(PARK), 5, lambda response, _: answers.append(response))
        await until(lambda: parking.kept)
        assert [code for _, code in serving.before_calls] == [ECHO, PARK]
        assert [code for _, code, _ in serving.after_calls] == [ECHO]
        parking.answer_all()
        await until(lambda: answers)
        await client.stop()
        await server.stop()
        assert calling.before_calls == [(address, ECHO), (address, PARK)]
        assert calling.after_calls == [(address, ECHO, 0), (address, PARK, 0)]
        assert [call[1:] for call in serving.after_calls] == [(ECHO, 0), (PARK, 0)]
        assert {peer for peer, _ in serving.before_calls} == {serving.after_calls[0][0]}

    run_on(main())


@pytest.mark.mission("RM-09")
def test_the_code_of_an_aborting_hook_is_the_answer(run_on: Run) -> None:
    async def main() -> None:
        counting = Counting()
        server = Server(echo_dispatcher(), hooks=[Aborting(), counting])
        await server.start("127.0.0.1", 0)
        async with RawPeer.connected(server.port) as peer:
            for abort, code, text in [("before", 16, "not allowed"), ("after", 29, "not after"), ("bug", 1, "bug")]:
                response = await peer.call(request(ECHO, {"abort": abort}, opaque=5))
                assert (response.code, response.opaque) == (code, 5)
                assert text in (response.remark or "")
            assert (await peer.call(asked(ECHO))).code == 0
        await server.stop()

    run_on(main())


@pytest.mark.mission("RM-09")
def test_an_aborting_hook_of_the_caller_keeps_the_request_from_leaving(run_on: Run) -> None:
    async def main() -> None:
        seen = Counting()
        server = Server(echo_dispatcher(), hooks=[seen])
        await server.start("127.0.0.1", 0)
        client = Client(hooks=[Aborting()])
        with pytest.raises(RequestError, match="not allowed"):
            await client.call(f"127.0.0.1:{server.port}", request(ECHO, {"abort": "before"}), 5)
        response = await client.call(f"127.0.0.1:{server.port}", request(ECHO, {"abort": "after"}), 5)
        assert response.code == 29
        assert len(seen.before_calls) == 1
        await client.stop()
        await server.stop()

    run_on(main())
