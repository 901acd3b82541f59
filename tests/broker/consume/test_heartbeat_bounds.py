"""What one connection may register: refused as a whole, with the limit; long heartbeats are taken in steps."""

import asyncio
from pathlib import Path

import pytest

from cometmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, request
from tests.broker.running import Session, running_broker
from tests.support.net import RawPeer


def beat(*consumers: ConsumerData, producers: int = 0, client_id: str = "c") -> bytes:
    return HeartbeatData(
        client_id=client_id,
        consumer_data_set=list(consumers),
        producer_data_set=[ProducerData(f"p{number}") for number in range(producers)],
    ).encode()


async def say(session: Session, body: bytes) -> Command:
    """The answer; notices to members come before it."""
    session.send(request(Request.HEART_BEAT, {}, body))
    while not (received := await session.receive()).is_response:
        pass
    return received


def group(name: str, *subscriptions: SubscriptionData) -> ConsumerData:
    return ConsumerData(name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", list(subscriptions))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (beat(*(group(f"g{number}") for number in range(1_001))), "1000"),
        (beat(producers=1_001), "1000"),
        (beat(group("g", SubscriptionData(topic="T", sub_string="x" * 32_769))), "32768"),
        (beat(group("g", SubscriptionData(topic="T", sub_string="||".join("ab" * 501)))), "1000"),
        (beat(group("g", SubscriptionData(topic="T", sub_string="a", code_set=set(range(1_001))))), "1000"),
        (beat(group("g", SubscriptionData(topic="T", tags_set={str(it) for it in range(1_001)}))), "1000"),
        (beat(group("g", *(SubscriptionData(topic=f"T{it}", sub_string="a = 1" * 300, expression_type="SQL92")
                           for it in range(6)))), "8192"),
        (beat(client_id="c" * 1_025), "1024"),
    ],
)  # fmt: skip
async def test_a_heartbeat_that_is_too_much_is_refused_as_a_whole(tmp_path: Path, body: bytes, word: str) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        answer = await say(session, body)
        assert answer.code == Response.INVALID_PARAMETER
        assert word in (answer.remark or "")
        assert running.broker.tables.consumers.table == {}
        assert running.broker.tables.producers.table == {}


async def test_groups_of_several_heartbeats_count_together(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        first = beat(*(group(f"g{number}") for number in range(600)))
        assert (await say(session, first)).code == 0
        assert (await say(session, first)).code == 0
        second = beat(*(group(f"h{number}") for number in range(600)))
        assert (await say(session, second)).code == Response.INVALID_PARAMETER
        other = await running.connect()
        assert (await say(other, second)).code == 0


async def test_others_are_served_between_the_steps_of_a_long_heartbeat(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        body = beat(*(group(f"g{number}") for number in range(900)), producers=900)
        long = asyncio.create_task(say(session, body))
        seen: set[int] = set()
        while not long.done():
            await asyncio.sleep(0)
            seen.add(len(running.broker.tables.consumers.table))
        assert (await long).code == 0
        assert len(running.broker.tables.consumers.table) == 900
        assert len(running.broker.tables.producers.table) == 900
        assert len(seen) > 5, "taken in steps"


async def test_a_connection_that_closes_in_between_leaves_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        async with RawPeer.connected(running.broker.port) as peer:
            peer.send(request(Request.HEART_BEAT, {}, beat(*(group(f"g{number}") for number in range(900)))))
            while not running.broker.tables.consumers.table:  # noqa: ASYNC110 - turns of the loop are what is looked at
                await asyncio.sleep(0)
            assert len(running.broker.tables.consumers.table) < 900
        for _ in range(200):
            await asyncio.sleep(0.001)
            if not running.broker.tables.consumers.table:
                break
        assert running.broker.tables.consumers.table == {}
