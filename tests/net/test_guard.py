"""The guard of a server: asked before every request, and its refusals, at once or late."""

from __future__ import annotations

from cometmq.clock import ManualClock
from cometmq.errors import RequestError
from cometmq.net.limits import Limits
from cometmq.wire.codes import Response
from cometmq.wire.command import Command, encode
from tests.net.test_proxy_protocol import V1
from tests.support.net import ECHO, PARK, RawPeer, asked, echo_dispatcher, serving, until

UNKNOWN = 999
LOCAL = "127.0.0.1"


class Gate:
    """Refuses what it is told to, and remembers who asked."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.refused_codes: set[int] = set()
        self.delay_s = delay_s
        self.sources: list[str] = []

    def check(self, request: Command, source: str) -> None:
        self.sources.append(source)
        if request.code in self.refused_codes:
            raise RequestError(Response.NO_PERMISSION, "not you", self.delay_s)


async def test_a_refused_request_reaches_no_handler_and_the_connection_stays() -> None:
    gate = Gate()
    gate.refused_codes = {PARK, UNKNOWN}
    async with serving(guard=gate) as server, RawPeer.connected(server.port) as peer:
        for code in (PARK, UNKNOWN):
            refused = await peer.call(asked(code, 7))
            assert (refused.code, refused.remark, refused.opaque, refused.body) == (16, "not you", 7, b"")
            assert refused.ext == {}
        assert (await peer.call(asked(ECHO, 8))).opaque == 8
        assert gate.sources == [LOCAL] * 3


async def test_an_unknown_code_is_asked_about_before_it_is_answered() -> None:
    gate = Gate()
    async with serving(guard=gate) as server, RawPeer.connected(server.port) as peer:
        assert (await peer.call(asked(UNKNOWN))).code == Response.REQUEST_CODE_NOT_SUPPORTED
        assert gate.sources == [LOCAL]


async def test_a_refused_one_way_request_is_neither_answered_nor_served() -> None:
    gate = Gate(delay_s=1)
    gate.refused_codes = {PARK}
    async with serving(guard=gate) as server, RawPeer.connected(server.port) as peer:
        peer.send(asked(PARK, 1, oneway=True))
        assert (await peer.call(asked(ECHO, 2))).opaque == 2
        assert server.endpoint.waiting == 0


async def test_a_late_refusal_does_not_hold_up_other_requests() -> None:
    clock, gate = ManualClock(), Gate(delay_s=2.0)
    gate.refused_codes = {PARK}
    async with serving(guard=gate, clock=clock) as server, RawPeer.connected(server.port) as peer:
        peer.send(asked(PARK, 1))
        assert (await peer.call(asked(ECHO, 2))).opaque == 2
        assert server.endpoint.refused.waiting == 1
        clock.advance(2.0)
        refused = await peer.receive()
        assert (refused.opaque, refused.code) == (1, 16)
        assert server.endpoint.refused.waiting == 0


async def test_who_has_too_many_late_refusals_waiting_is_disconnected() -> None:
    gate = Gate(delay_s=2.0)
    gate.refused_codes = {PARK}
    async with (
        serving(echo_dispatcher(), Limits(refused_max=5), ManualClock(), guard=gate) as server,
        RawPeer.connected(server.port) as hostile,
        RawPeer.connected(server.port) as honest,
    ):
        hostile.write(b"".join(encode(asked(PARK, number)) for number in range(6)))
        assert await hostile.is_cut()
        assert (await honest.call(asked(ECHO, 2))).opaque == 2
        await until(lambda: server.endpoint.refused.waiting == 0)


async def test_a_proxy_header_counts_only_from_a_trusted_proxy() -> None:
    for trusted, source in ((True, "192.0.2.1"), (False, LOCAL)):
        gate = Gate()
        addresses = {LOCAL} if trusted else set()
        async with (
            serving(guard=gate, is_trusted_proxy=addresses.__contains__) as server,
            RawPeer.connected(server.port) as peer,
        ):
            peer.write(V1 + encode(asked(ECHO)))
            await peer.receive()
            assert gate.sources == [source]
