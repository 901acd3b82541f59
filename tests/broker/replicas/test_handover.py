"""Requests while a broker gives the lead away: held, sent on in their order, answered once; by real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cometmq.broker.entry import Served
from cometmq.broker.replicas import handover
from cometmq.broker.replicas.handover import CODES, Handover
from cometmq.clock import SystemClock
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.wire.bodies import HaStatus
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply, request
from tests.support.net import RawPeer, serving, until

pytestmark = pytest.mark.mission("FO-05")
SEND = Request.SEND_MESSAGE_V2


class Master:
    """The new master: leads when `leads` is set, and refuses so many requests first."""

    def __init__(self) -> None:
        self.leads = True
        self.refusals = 0
        self.taken: list[bytes] = []
        self.ext: list[dict[str, str]] = []
        self.dispatcher = Dispatcher()
        family = Family("all", 1000)
        self.dispatcher.add(Request.GET_BROKER_HA_STATUS, self._status, family)
        for code in CODES:
            self.dispatcher.add(code, self._take, family)

    def _status(self, _: Connection, asked: Command) -> Command:
        return reply(asked, body=HaStatus(master=self.leads).encode())

    def _take(self, _: Connection, asked: Command) -> Command:
        if self.refusals:
            self.refusals -= 1
            return reply(asked, Response.SYSTEM_ERROR, "2 copies are needed and 1 of the in-sync members are connected")
        self.taken.append(asked.body)
        self.ext.append(asked.ext)
        return reply(asked, Response.SUCCESS, "there", {"queueOffset": str(len(self.taken))})


class Scene:
    """The former master: a server with a handover, and a client of it that sends frames."""

    def __init__(self, held: Handover, peer: RawPeer, master: Master, address: str) -> None:
        self.handover, self.peer, self.master, self.address = held, peer, master, address
        self._opaque = 0

    def send(self, body: bytes, code: int = SEND, **ext: str) -> None:
        self._opaque += 1
        self.peer.send(request(code, ext, body, opaque=self._opaque))

    async def answers(self, count: int) -> list[Command]:
        return [await self.peer.receive() for _ in range(count)]


def _here(_: Connection, asked: Command) -> Command:
    return reply(asked, Response.SUCCESS, "here")


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    master, client = Master(), Client()
    held = Handover(SystemClock(), client)
    dispatcher = Dispatcher()
    for code, served in held.wrap({code: Served(_here, "all") for code in CODES}).items():
        dispatcher.add(code, served.handler, Family("all", 100_000))
    async with serving(master.dispatcher) as new, serving(dispatcher) as old, RawPeer.connected(old.port) as peer:
        try:
            yield Scene(held, peer, master, f"127.0.0.1:{new.port}")
        finally:
            held.stop()
            await client.stop()


async def test_a_broker_that_hands_nothing_over_serves_by_itself() -> None:
    async with scene() as one:
        one.send(b"a")
        assert [answer.remark for answer in await one.answers(1)] == ["here"]
        assert not one.master.taken


async def test_what_is_held_goes_to_the_new_master_in_its_order() -> None:
    async with scene() as one:
        assert one.handover.hold()
        for number in range(50):
            one.send(b"%d" % number)
        one.handover.forward(one.address, 60.0)
        answers = await one.answers(50)
        assert {answer.remark for answer in answers} == {"there"}
        assert one.master.taken == [b"%d" % number for number in range(50)]
        assert one.handover.forwarded == 50


async def test_nothing_is_sent_on_before_the_new_master_leads_and_has_its_copies() -> None:
    async with scene() as one:
        one.master.leads, one.master.refusals = False, 3
        one.handover.hold()
        for number in range(10):
            one.send(b"%d" % number)
        one.handover.forward(one.address, 60.0)
        one.send(b"10")
        await asyncio.sleep(0)
        one.master.leads = True
        assert {answer.code for answer in await one.answers(11)} == {Response.SUCCESS}
        assert one.master.taken == [b"%d" % number for number in range(11)]


async def test_what_comes_later_is_forwarded_until_the_time_is_over() -> None:
    async with scene() as one:
        one.handover.forward(one.address, 0.3)
        one.send(b"a")
        assert [answer.remark for answer in await one.answers(1)] == ["there"]
        await until(lambda: not one.handover.takes)
        one.send(b"b")
        assert [answer.remark for answer in await one.answers(1)] == ["here"]


async def test_who_keeps_the_lead_serves_what_it_held() -> None:
    async with scene() as one:
        one.handover.hold()
        for number in range(3):
            one.send(b"%d" % number)
        await until(lambda: len(one.handover._held) == 3)
        one.handover.open()
        assert [answer.remark for answer in await one.answers(3)] == ["here"] * 3


async def test_what_is_held_is_bounded_and_what_is_refused_was_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "HELD_MAX", 2)
    async with scene() as one:
        one.handover.hold()
        for number in range(3):
            one.send(b"%d" % number)
        (refused,) = await one.answers(1)
        assert refused.code == Response.SERVICE_NOT_AVAILABLE
        assert "nothing was done, send again" in (refused.remark or "")
        one.handover.forward(one.address, 60.0)
        assert {answer.remark for answer in await one.answers(2)} == {"there"}


async def test_a_new_master_that_nobody_reaches_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "CALL_S", 0.2)
    async with scene() as one:
        one.handover.forward("127.0.0.1:1", 60.0)
        one.send(b"a")
        (refused,) = await one.answers(1)
        assert refused.code == Response.SERVICE_NOT_AVAILABLE
        assert "nothing was done" in (refused.remark or "")


async def test_the_signature_of_a_client_stays_here() -> None:
    async with scene() as one:
        one.handover.forward(one.address, 60.0)
        one.send(b"a", AccessKey="shop", Signature="secret", a="SetTopic")
        await one.answers(1)
        assert one.master.ext == [{"a": "SetTopic"}]


async def test_a_broker_that_stops_answers_what_it_held() -> None:
    async with scene() as one:
        one.handover.hold()
        one.send(b"a")
        await until(lambda: len(one.handover._held) == 1)
        one.handover.stop()
        assert [answer.code for answer in await one.answers(1)] == [Response.SERVICE_NOT_AVAILABLE]
