"""Requests that make no sense get a code and a remark that helps, whatever they ask; none is a bug of ours."""

import asyncio
import re
from pathlib import Path

import pytest

from cometmq.clock import ManualClock
from cometmq.wire.codes import REQUEST_NAMES, RESPONSE_NAMES, Request, Response
from cometmq.wire.command import Command, request
from tests.support.aio import run
from tests.support.brokers import Peer, add_topic, running_broker, send_request, stored
from tests.support.served import CODES

# The text of an exception that no handler has foreseen.
BUG = re.compile(r"^(?!HeaderError|WireError|StoreError)[A-Za-z]+(Error|Exception)\b")

NAMES = ("topic", "originTopic", "group", "consumerGroup", "producerGroup", "groupName")
SMALL = ("queueId", "maxNum", "delayLevel", "readQueueNums", "writeQueueNums", "perm")
LARGE = ("offset", "queueOffset", "commitOffset", "timestamp", "beginTimestamp", "endTimestamp")
OTHERS = {"key": "k", "clientId": "c", "topicFilterType": "SINGLE_TAG", "order": "false", "defaultTopic": "TBW102"}


def fields(names: str, small: str, large: str) -> dict[str, str]:
    return dict.fromkeys(NAMES, names) | dict.fromkeys(SMALL, small) | dict.fromkeys(LARGE, large) | OTHERS


SENSELESS: dict[str, Command] = {
    "nothing at all": request(0),
    "no fields but a body": request(0, {}, b"\x00\xff{"),
    "JSON of another kind": request(0, {}, b'[1,{"a":null}]'),
    "deep JSON": request(0, {}, b"[" * 5000),
    "every field is a letter": request(0, dict.fromkeys("abcdefghijklmnop", "x"), b"{}"),
    "numbers that are none": request(0, fields("TopicA", "٣٤", "1e3"), b"{}"),
    "numbers beyond all bounds": request(0, fields("TopicA", str(2**31 - 1), str(2**63 - 1)), b"{}"),
    "numbers below all bounds": request(0, fields("TopicA", str(-(2**31)), str(-(2**63))), b"{}"),
    "names that leave their directory": request(
        0, fields("../../etc", "4", "0"), b'{"groupName":"../../etc","topicName":"../../etc"}'
    ),
}


@pytest.mark.parametrize("case", SENSELESS)
def test_no_senseless_request_runs_into_a_bug(tmp_path: Path, case: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
            add_topic(broker, "TopicA")
            for code in sorted(CODES):
                sense = SENSELESS[case]
                asking = asyncio.ensure_future(peer.ask(request(code, dict(sense.ext), sense.body)))
                while not asking.done():
                    await asyncio.wait([asking], timeout=0.05)
                    clock.advance(1)  # whatever it waits for
                answer = asking.result()
                name = REQUEST_NAMES.get(code, code)
                assert answer.code in RESPONSE_NAMES, f"{name}: {answer.code}"
                if answer.code not in (0, 19, 22):
                    assert len(answer.remark or "") > 10, f"{name}: {answer.code} {answer.remark!r}"
                assert not BUG.match(answer.remark or ""), f"{name}: {answer.code} {answer.remark}"
            assert not list(tmp_path.parent.rglob("etc"))
            assert (await peer.send("TopicA", b"still here")).code == 0

    run(main(), timeout_s=120)


async def test_an_unknown_code_is_3_with_its_number(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        for code in (9999, -1, 200_070, Request.REGISTER_BROKER):
            answer = await peer.call(code)
            assert answer.code == Response.REQUEST_CODE_NOT_SUPPORTED
            assert str(code) in (answer.remark or "")


@pytest.mark.parametrize("version", [-1, 0, 1, 32767])
async def test_any_version_is_served(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        assert (await peer.ask(send_request("TopicA", version=version))).code == 0
        assert len(stored(broker, "TopicA")) == 1


async def test_refusals_name_cause_value_and_remedy(tmp_path: Path) -> None:
    """The ones that a person meets first."""
    settings = {"autoCreateTopicEnable": False, "autoCreateSubscriptionGroup": False, "brokerName": "shop"}
    async with running_broker(tmp_path, **settings) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", 2)
        for answer, words in (
            (await peer.send("Order"), ["Order", "shop", "create it", "autoCreateTopicEnable"]),
            (await peer.send("TopicA", queue_id=7), ["7", "TopicA", "2 write queues"]),
            (await peer.send("Bad Topic"), ["Bad Topic", "0-9 A-Z a-z"]),
            (await peer.send("t" * 200), ["200", "127"]),
            (await peer.pull("TopicA"), ["consumers", "create it", "autoCreateSubscriptionGroup"]),
            (await peer.call(Request.GET_MAX_OFFSET, topic="TopicA"), ["queueId"]),
            (await peer.call(Request.GET_MAX_OFFSET, topic="TopicA", queueId="one"), ["queueId", "one"]),
        ):
            assert answer.code != 0
            assert all(word in (answer.remark or "") for word in words), answer.remark
