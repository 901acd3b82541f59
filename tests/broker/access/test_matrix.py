"""Every kind of user asks for every kind of thing, over a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.wire.command import Command, request
from tests.support.access import SECURED
from tests.support.access_matrix import MAY, REQUESTS, Ask, asks_of, is_refused, preparing, signed
from tests.support.brokers import running_broker
from tests.support.net import RawPeer


async def call(peer: RawPeer, kind: str, ask: Ask) -> Command:
    """Notices to a group may come before the answer."""
    peer.send(request(ask.code, signed(kind, ask), ask.body, opaque=ask.code))
    while not (answer := await peer.receive()).is_response:
        pass
    assert answer.opaque == ask.code
    return answer


@pytest.mark.mission("AC-02")
async def test_everybody_may_what_the_table_says_and_nothing_else(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURED) as broker, RawPeer.connected(broker.port) as peer:
        for ask in preparing():
            answer = await call(peer, "root", ask)
            assert answer.code == 0, (ask, answer.remark)
        found = {}
        for kind in MAY:
            answers = {name: await call(peer, kind, REQUESTS[name]) for name in asks_of(kind)}
            found[kind] = {name for name, it in answers.items() if not is_refused(it.code, it.remark)}
            for answer in answers.values():
                assert not is_refused(answer.code, answer.remark) or (answer.body, answer.ext) == (b"", {})
        assert found == MAY
