"""Checks pops in order: one batch of a queue at a time, again from where it is, until it is done."""

import asyncio
from pathlib import Path

import pytest

from cometmq.broker.pop.orders import ORDERED_REVIVE_ID
from cometmq.clock import ManualClock
from cometmq.wire.bodies import BatchAck, BatchAckRequest
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.headers import PopMessageResponse
from cometmq.wire.record.message import decode_records
from tests.broker.pop.test_popping import Popped, Popper, committed, scene
from tests.support.brokers import stored
from tests.support.net import until


async def ask(
    peer: Popper, count: int = 32, invisible_ms: int = 10_000, attempt: str = "", poll_ms: int = 0
) -> Command:
    return await peer.call(
        Request.POP_MESSAGE, consumerGroup="g", topic="TopicA", queueId=-1, maxMsgNums=count,
        invisibleTime=invisible_ms, pollTime=poll_ms, bornTime=0, initMode=0, expType="TAG", exp="*",
        order=True, attemptId=attempt,
    )  # fmt: skip


def counts(answer: Command) -> dict[str, int]:
    text = PopMessageResponse.decode(answer.ext).order_count_info or ""
    return {key: int(count) for key, count in (part[2:].rsplit(" ", 1) for part in text.split(";"))}


def popped(answer: Command) -> list[Popped]:
    assert answer.code in (0, Response.POLLING_TIMEOUT), f"{answer.code}: {answer.remark}"
    header = PopMessageResponse.decode(answer.ext)
    return [Popped(message, header) for message in decode_records(answer.body)] if answer.body else []


def bodies(answer: Command) -> list[bytes]:
    return [it.body for it in popped(answer)]


async def test_a_queue_gives_nothing_to_anybody_while_a_part_of_its_batch_is_out(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=5) as (broker, peer):
        answer = await ask(peer, count=3)
        assert int(answer.ext["reviveQid"]) == ORDERED_REVIVE_ID
        first = popped(answer)
        assert [it.body for it in first] == [b"0", b"1", b"2"]
        assert bodies(await ask(peer)) == []
        await peer.ack(first[0])
        await peer.ack(first[2])
        assert committed(broker) == 1
        assert bodies(await ask(peer)) == []
        await peer.ack(first[1])
        assert committed(broker) == 3
        assert bodies(await ask(peer)) == [b"3", b"4"]


async def test_what_is_not_done_in_time_comes_again_in_its_place_with_what_follows(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=3) as (broker, peer):
        first = popped(await ask(peer, count=2))
        await peer.ack(first[0])
        clock.advance(9)
        assert bodies(await ask(peer)) == []
        clock.advance(1.1)
        answer = await ask(peer)
        assert bodies(answer) == [b"1", b"2"]
        assert counts(answer) == {"qo0%1": 1, "0": 0}
        assert await peer.ack(first[1]) == 0  # too late, and without effect
        assert committed(broker) == 1
        clock.advance(11)
        assert counts(await ask(peer)) == {"qo0%1": 2, "qo0%2": 1, "0": 1}
        assert stored(broker, "%RETRY%g_TopicA") == []


async def test_the_same_attempt_gets_the_same_batch_and_another_one_waits(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=3) as (broker, peer):
        lost = popped(await ask(peer, count=2, attempt="one"))
        assert bodies(await ask(peer, count=2, attempt="two")) == []
        again = await ask(peer, count=2, attempt="one")
        assert bodies(again) == [it.body for it in lost]
        assert counts(again) == {"0": 0}
        for it in popped(again):
            await peer.ack(it)
        assert committed(broker) == 2
        assert bodies(await ask(peer, attempt="two")) == [b"2"]


async def test_a_message_can_be_put_off_and_its_queue_waits_for_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=2) as (broker, peer):
        first, second = popped(await ask(peer))
        clock.advance(2)
        answer = await peer.later(first, 30_000)
        assert answer.ext == {"popTime": first.receipt.split(" ")[1], "invisibleTime": "32000", "reviveQid": "999"}
        await peer.ack(second)
        clock.advance(29)
        assert bodies(await ask(peer)) == []
        clock.advance(1.1)
        assert bodies(await ask(peer)) == [b"0", b"1"]
        assert committed(broker) == 0


async def test_a_pop_that_waits_is_served_when_the_batch_is_done(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=2) as (broker, peer), Popper.at(broker.address) as other:
        assert isinstance(other, Popper)
        (first,) = popped(await ask(peer, count=1))
        task = asyncio.ensure_future(ask(other, poll_ms=15_000))
        await until(lambda: broker.rooms.pop.waiting.count == 1)
        clock.advance(1)
        assert not task.done()
        await peer.ack(first)
        clock.advance(0.05)
        assert bodies(await task) == [b"1"]


async def test_several_are_acknowledged_together_and_foreign_offsets_are_refused(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=4) as (broker, peer):
        first = popped(await ask(peer, count=3))
        parts = first[0].receipt.split(" ")
        entry = BatchAck(
            consumer_group="g", topic="TopicA", retry="0", start_offset=0, pop_time=int(parts[1]),
            revive_queue_id=ORDERED_REVIVE_ID,
        )  # fmt: skip
        entry.set_offsets([0, 1])
        assert (await peer.call(Request.BATCH_ACK_MESSAGE, BatchAckRequest([entry], "broker-a").encode())).code == 0
        assert committed(broker) == 2
        foreign = {**first[0].place, "offset": 3}
        assert (await peer.call(Request.ACK_MESSAGE, **foreign)).code == Response.MESSAGE_ILLEGAL


async def test_a_group_that_an_operator_moves_begins_there_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=5) as (broker, peer):
        first = popped(await ask(peer, count=2))
        await peer.call(Request.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="TopicA", queueId=0, commitOffset=3)
        await peer.ack(first[0])
        assert committed(broker) == 3
        assert bodies(await ask(peer)) == [b"3", b"4"]


@pytest.mark.parametrize("queues", [1, 4])
async def test_members_that_die_leave_each_queue_in_order(tmp_path: Path, queues: int) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, queues=queues, messages=40) as (_, peer):
        done: list[bytes] = []
        for turn in range(400):
            got = popped(await ask(peer, count=3, invisible_ms=1_000))
            if turn % 3 == 0:  # this one forgets all but the first
                got = got[:1]
            for it in got:
                assert await peer.ack(it) == 0
                done.append(it.body)
            clock.advance(1.1)
        first = list(dict.fromkeys(done))
        assert sorted(first, key=int) == [b"%d" % number for number in range(40)]
        for queue in range(queues):
            mine = [int(body) for body in first if int(body) % queues == queue]
            assert mine == sorted(mine)
