"""Checks POP: who gets a message, until when, and what becomes of it after that."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.consume.assignment import allocate
from cometmq.broker.pop.in_flight import IN_FLIGHT_MAX, Key, PopWindows, Window
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutStatus
from cometmq.wire.bodies import (
    BatchAck,
    BatchAckRequest,
    MessageQueue,
    MessageRequestMode,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
)
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.headers import PopMessageResponse
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.properties import decode
from tests.support.brokers import Peer, add_topic, running_broker, stored
from tests.support.net import until

RETRY = "%RETRY%g_TopicA"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
KEY = Key("TopicA", "g", 0)


class Popped:
    """One message with its receipt, as a client has it."""

    def __init__(self, message: StoredMessage, header: PopMessageResponse) -> None:
        self.message = message
        self.body = message.body
        self.receipt = decode(message.properties).get("POP_CK") or _receipt(message, header)

    @property
    def place(self) -> dict[str, object]:
        parts = self.receipt.split(" ")
        topic = RETRY if parts[4] == "1" else self.message.topic
        place = {"consumerGroup": "g", "topic": topic, "queueId": parts[6], "offset": parts[7]}
        return {**place, "extraInfo": self.receipt}


def _receipt(message: StoredMessage, header: PopMessageResponse) -> str:
    """Made as clients make it, of the two lists."""
    starts = dict(_entries(header.start_offset_info))
    offsets = dict(_entries(header.msg_offset_info))
    key = f"0 {message.queue_id}"
    assert str(message.queue_offset) in offsets[key].split(",")
    return (
        f"{starts[key]} {header.pop_time} {header.invisible_time} {header.revive_qid} 0 broker-a "
        f"{message.queue_id} {message.queue_offset}"
    )


def _entries(text: str | None) -> list[tuple[str, str]]:
    entries = [part.rsplit(" ", 1) for part in (text or "").split(";")]
    assert len({entry[0] for entry in entries}) == len(entries), f"a queue is named twice: {text}"
    return [(entry[0], entry[1]) for entry in entries]


class Popper(Peer):
    async def ask_pop(
        self, count: int = 32, invisible_ms: int = 60_000, poll_ms: int = 0, exp: str = "*"
    ) -> Command:
        return await self.call(
            Request.POP_MESSAGE, consumerGroup="g", topic="TopicA", queueId=-1, maxMsgNums=count,
            invisibleTime=invisible_ms, pollTime=poll_ms, bornTime=0, initMode=0, expType="TAG", exp=exp,
        )  # fmt: skip

    async def pop(self, count: int = 32, invisible_ms: int = 60_000, poll_ms: int = 0) -> list[Popped]:
        answer = await self.ask_pop(count, invisible_ms, poll_ms)
        assert answer.code in (0, Response.POLLING_TIMEOUT), f"{answer.code}: {answer.remark}"
        header = PopMessageResponse.decode(answer.ext)
        return [Popped(message, header) for message in decode_records(answer.body)] if answer.body else []

    async def ack(self, popped: Popped) -> int:
        return (await self.call(Request.ACK_MESSAGE, **popped.place)).code

    async def later(self, popped: Popped, invisible_ms: int) -> Command:
        return await self.call(Request.CHANGE_MESSAGE_INVISIBLETIME, **popped.place, invisibleTime=invisible_ms)


@asynccontextmanager
async def scene(
    directory: Path, clock: ManualClock, queues: int = 1, messages: int = 0, **settings: object
) -> AsyncIterator[tuple[Broker, Popper]]:
    async with running_broker(directory, clock, **settings) as broker, Popper.at(broker.address) as peer:
        assert isinstance(peer, Popper)
        if broker.tables.topics.get("TopicA") is None:
            add_topic(broker, "TopicA", queues)
        for number in range(messages):
            assert (await peer.send("TopicA", b"%d" % number, queue_id=number % queues)).code == 0
        yield broker, peer


def committed(broker: Broker, queue_id: int = 0) -> int:
    return broker.tables.offsets.query("g", "TopicA", queue_id)


async def test_a_message_is_given_once_and_progress_follows_the_first_that_is_not_done(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=6) as (broker, peer):
        first = await peer.pop(count=4)
        assert [popped.body for popped in first] == [b"0", b"1", b"2", b"3"]
        assert [popped.body for popped in await peer.pop(count=4)] == [b"4", b"5"]
        assert await peer.pop() == []
        assert committed(broker) == 0
        assert await peer.ack(first[1]) == 0
        assert committed(broker) == 0
        assert await peer.ack(first[0]) == 0
        assert committed(broker) == 2
        for popped in first[2:]:
            await peer.ack(popped)
        assert committed(broker) == 4


async def test_a_message_whose_time_is_over_comes_back_once_by_the_retry_topic(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=2) as (broker, peer):
        done, forgotten = await peer.pop(invisible_ms=10_000)
        await peer.ack(done)
        clock.advance(9)
        assert await peer.pop() == []
        clock.advance(1.5)
        assert committed(broker) == 2
        (again,) = await peer.pop(invisible_ms=10_000)
        assert (again.body, again.message.reconsume_times, again.message.topic) == (b"1", 1, "TopicA")
        assert decode(again.message.properties)["1ST_POP_TIME"] == forgotten.receipt.split(" ")[1]
        assert await peer.ack(forgotten) == 0  # too late, it is another one's
        clock.advance(11)
        (third,) = await peer.pop()
        assert third.message.reconsume_times == 2
        assert await peer.ack(third) == 0
        clock.advance(100)
        assert await peer.pop() == []
        assert broker.tables.offsets.query("g", RETRY, 0) == 2
        assert len(stored(broker, RETRY)) == 2


async def test_a_receipt_can_be_prolonged_and_the_old_one_is_dead(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=1) as (broker, peer):
        (popped,) = await peer.pop(invisible_ms=10_000)
        clock.advance(8)
        answer = await peer.later(popped, 30_000)
        assert answer.code == 0
        clock.advance(20)
        assert await peer.pop() == []
        await peer.ack(popped)
        assert committed(broker) == 0
        parts = popped.receipt.split(" ")
        popped.receipt = " ".join([parts[0], answer.ext["popTime"], *parts[2:]])
        await peer.ack(popped)
        assert committed(broker) == 1


async def test_a_restart_gives_out_again_what_nobody_has_finished(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=5) as (_, peer):
        popped = await peer.pop(count=4)
        for number in (0, 2):
            await peer.ack(popped[number])
    async with scene(tmp_path, clock) as (broker, peer):
        assert [popped.body for popped in await peer.pop()] == [b"1", b"2", b"3", b"4"]
        assert committed(broker) == 1


async def test_a_pop_waits_for_a_message_and_gives_up_in_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer), Popper.at(broker.address) as other:
        assert isinstance(other, Popper)
        waiting = [asyncio.ensure_future(it.pop(poll_ms=15_000)) for it in (peer, other)]
        await until(lambda: broker.rooms.pop.waiting.count == 2)
        await peer.send("TopicA", b"new")
        clock.advance(0.05)
        await until(lambda: any(task.done() for task in waiting))
        clock.advance(14.8)
        assert sum(task.done() for task in waiting) == 1
        clock.advance(0.2)
        bodies = [[popped.body for popped in await task] for task in waiting]
        assert sorted(bodies) == [[], [b"new"]]
        assert broker.rooms.pop.waiting.count == 0


async def test_tags_are_looked_at_and_what_is_unwanted_is_passed(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock()) as (broker, peer):
        for number in range(6):
            await peer.send("TopicA", b"%d" % number, properties={"TAGS": "ab"[number % 2]})
        answer = await peer.ask_pop(exp="b")
        assert [message.body for message in decode_records(answer.body)] == [b"1", b"3", b"5"]
        assert committed(broker) == 1


async def test_several_are_acknowledged_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=4) as (broker, peer):
        popped = await peer.pop()
        parts = popped[0].receipt.split(" ")
        entry = BatchAck(consumer_group="g", topic="TopicA", retry="0", start_offset=0, pop_time=int(parts[1]))
        entry.set_offsets([0, 1, 3])
        answer = await peer.call(Request.BATCH_ACK_MESSAGE, BatchAckRequest([entry], "broker-a").encode())
        assert answer.code == 0
        assert committed(broker) == 2


async def test_an_operator_moves_a_group_that_pops(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=5) as (broker, peer):
        popped = await peer.pop()
        await peer.call(
            Request.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="TopicA", queueId=0, commitOffset=3
        )
        assert [it.body for it in await peer.pop()] == [b"3", b"4"]
        await peer.ack(popped[0])
        assert committed(broker) == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "Nowhere"}, Response.TOPIC_NOT_EXIST),
        ({"queueId": 9}, Response.INVALID_PARAMETER),
        ({"maxMsgNums": 33}, Response.INVALID_PARAMETER),
        ({"maxMsgNums": 0}, Response.INVALID_PARAMETER),
        ({"invisibleTime": 0}, Response.INVALID_PARAMETER),
        ({"order": True, "attemptId": "x" * 300}, Response.INVALID_PARAMETER),
        ({"expType": "SQL92", "exp": "a ="}, Response.SYSTEM_ERROR),
    ],
)
async def test_a_wish_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, object], code: int) -> None:
    async with scene(tmp_path, ManualClock(), messages=1) as (_, peer):
        fields: dict[str, object] = {
            "consumerGroup": "g", "topic": "TopicA", "queueId": -1, "maxMsgNums": 1, "invisibleTime": 1000,
            "pollTime": 0, "bornTime": 0, "initMode": 0,
        }  # fmt: skip
        assert (await peer.call(Request.POP_MESSAGE, **fields | change)).code == code
        assert len(await peer.pop()) == 1


async def test_a_receipt_that_is_none_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), messages=1) as (_, peer):
        (popped,) = await peer.pop()
        for change, code in (
            ({"extraInfo": "rubbish"}, Response.MESSAGE_ILLEGAL),
            ({"offset": 5}, Response.NO_MESSAGE),
            ({"queueId": 3}, Response.MESSAGE_ILLEGAL),
            ({"topic": "Nowhere"}, Response.TOPIC_NOT_EXIST),
        ):
            assert (await peer.call(Request.ACK_MESSAGE, **{**popped.place, **change})).code == code


async def test_ten_consumers_share_four_queues_and_all_are_busy(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), queues=4, messages=200) as (broker, peer):
        got: dict[int, list[bytes]] = {}

        async def consume(number: int) -> None:
            while popped := await peer.pop(count=2):
                for it in popped:
                    got.setdefault(number, []).append(it.body)
                    assert await peer.ack(it) == 0

        await asyncio.gather(*(consume(number) for number in range(10)))
        assert len(got) == 10
        assert min(len(bodies) for bodies in got.values()) >= 5
        assert sorted(body for bodies in got.values() for body in bodies) == sorted(b"%d" % n for n in range(200))
        assert [committed(broker, queue_id) for queue_id in range(4)] == [50] * 4


# Who gets which queue


async def test_a_group_is_told_to_pop_when_an_operator_wants_it(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), queues=4) as (broker, peer):
        await peer.heartbeat("g", topics={"TopicA": "*"}, client_id="c1")
        asked = QueryAssignmentRequest("c1", "g", "CLUSTERING", "AVG", "TopicA")
        assert await assignments(peer, asked) == [(number, "PULL") for number in range(4)]
        mode = MessageRequestMode("g", "POP", 0, "TopicA")
        assert (await peer.call(Request.SET_MESSAGE_REQUEST_MODE, mode.encode())).code == 0
        assert await assignments(peer, asked) == [(-1, "POP")]
        refused = MessageRequestMode("g", "POP", 0, "%RETRY%g")
        assert (await peer.call(Request.SET_MESSAGE_REQUEST_MODE, refused.encode())).code == Response.NO_PERMISSION
        shown = await peer.call(Request.GET_ALL_MESSAGE_REQUEST_MODE)
        assert b'"POP"' in shown.body
    async with scene(tmp_path, ManualClock()) as (broker, _):
        known = broker.tables.request_modes.get("TopicA", "g")
        assert known is not None
        assert known.mode == "POP"


async def assignments(peer: Peer, asked: QueryAssignmentRequest) -> list[tuple[int, str | None]]:
    answer = await peer.call(Request.QUERY_ASSIGNMENT, asked.encode())
    assert answer.code == 0, answer.remark
    found = QueryAssignmentResponse.decode(answer.body).message_queue_assignments or []
    return sorted((it.message_queue.queue_id if it.message_queue else -9, it.mode) for it in found)


def test_strategies_share_every_queue_once() -> None:
    queues = [MessageQueue("b", number, "T") for number in range(10)]
    for strategy in ("AVG", "AVG_BY_CIRCLE"):
        shares = [allocate(strategy, index, 4, queues) or [] for index in range(4)]
        assert sorted(queue for share in shares for queue in share) == queues
        assert [len(share) for share in shares] == [3, 3, 2, 2]
    assert allocate("AVG", 0, 4, queues) == queues[:3]
    assert allocate("AVG_BY_CIRCLE", 1, 4, queues) == [queues[1], queues[5], queues[9]]
    assert allocate("else", 0, 4, queues) is None


@pytest.mark.mission("SK-07")
async def test_settings_say_who_pops_and_whether_queues_are_shared(tmp_path: Path) -> None:
    pops: dict[str, Any] = {"defaultMessageRequestMode": "POP", "defaultPopShareQueueNum": 1}
    async with scene(tmp_path, ManualClock(), queues=4, **pops) as (broker, peer):
        asked = QueryAssignmentRequest("c0", "g", "CLUSTERING", "AVG", "TopicA")
        async with AsyncExitStack() as stack:
            for number in range(4):
                other = await stack.enter_async_context(Popper.at(broker.address))
                await other.heartbeat("g", topics={"TopicA": "*"}, client_id=f"c{number}")
            assert await assignments(peer, asked) == [(0, "POP"), (1, "POP")]
            mode = MessageRequestMode("g", "PULL", 0, "TopicA")
            assert (await peer.call(Request.SET_MESSAGE_REQUEST_MODE, mode.encode())).code == 0
            assert await assignments(peer, asked) == [(0, "PULL")]
            await peer.call(Request.UPDATE_BROKER_CONFIG, b"serverLoadBalancerEnable=false")
            assert await assignments(peer, asked) == [(number, "PULL") for number in range(4)]


# The window


@pytest.mark.mission("SK-07")
async def test_settings_bound_what_is_in_hand_and_who_waits(tmp_path: Path) -> None:
    bounds: dict[str, Any] = {"enablePopMessageThreshold": "true", "popInflightMessageThreshold": 3}
    async with scene(tmp_path, ManualClock(), messages=6, popPollingSize=1, **bounds) as (broker, peer):
        got = [*await peer.pop(count=2), *await peer.pop(count=2)]
        assert [it.body for it in got] == [b"0", b"1", b"2", b"3"], "a pop that begins below the bound is served whole"
        assert await peer.pop(count=2) == []
        for it in got[:2]:
            assert await peer.ack(it) == 0
        assert [it.body for it in await peer.pop(count=2)] == [b"4", b"5"]
        async with Popper.at(broker.address) as other:
            assert isinstance(other, Popper)
            waits = asyncio.ensure_future(other.ask_pop(poll_ms=10_000))
            await until(lambda: broker.rooms.pop.waiting.count == 1)
            assert (await peer.ask_pop(poll_ms=10_000)).code == Response.POLLING_FULL
            waits.cancel()



def test_who_has_too_much_in_hand_gets_no_more() -> None:
    windows = PopWindows()
    window = windows.table[KEY] = Window(0)
    windows.popped(KEY, list(range(IN_FLIGHT_MAX)), IN_FLIGHT_MAX, 0, 1000)
    assert (window.is_full(IN_FLIGHT_MAX), window.progress()) == (True, 0)
    windows.done(KEY, 0)
    assert (window.is_full(IN_FLIGHT_MAX), window.progress()) == (False, 1)


def test_a_message_is_overdue_once_and_not_after_it_was_prolonged_or_done() -> None:
    windows = PopWindows()
    windows.table[KEY] = Window(0)
    windows.popped(KEY, [0, 1, 2], 3, 100, 1000)
    flight = windows.find(KEY, 1, 100)
    assert flight is not None
    windows.prolong(KEY, 1, flight, 500, 1000)
    windows.done(KEY, 2)
    assert [offset for _, offset, _ in windows.overdue(1100, 10)] == [0]
    assert windows.overdue(1400, 10) == []
    assert windows.find(KEY, 1, 100) is None
    assert [offset for _, offset, _ in windows.overdue(1500, 10)] == [1]
    windows.keep_only({"Other"}, {"g"})
    assert windows.table == {}


# What RocketMQ's broker has left


async def test_pops_that_another_broker_has_noted_come_again_unless_acknowledged(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=6) as (broker, _):
        popped_ms = clock.now_ms()
        name = {"t": "TopicA", "c": "g", "q": 0, "so": 1, "pt": popped_ms, "bn": "broker-a"}
        for tag, record in (
            ("ck", {**name, "it": 10_000, "n": 4, "d": [0, 1, 2, 4], "bm": 2}),
            ("ack", {**name, "ao": 3}),
            ("ck", {**name, "so": 9, "n": "rubbish"}),
            ("bAck", {**name, "aol": [1]}),
        ):
            written = AppendRequest(REVIVE, 0, json.dumps(record).encode(), f"TAGS\x01{tag}\x02")
            assert broker.rooms.delayed.put(written).status == PutStatus.OK
        clock.advance(12)
        assert stored(broker, RETRY) == []
        clock.advance(5)
        (again,) = stored(broker, RETRY)
        assert (again.body, again.reconsume_times) == (b"5", 1)
        assert broker.tables.offsets.query("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) == 4
    async with scene(tmp_path, clock) as (broker, _):
        clock.advance(30)
        assert len(stored(broker, RETRY)) == 1


async def test_forged_notes_of_pops_cost_one_line_of_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By way of a store that somebody else has written: over the wire nobody gets them in."""
    clock = ManualClock()
    async with scene(tmp_path, clock, messages=1) as (broker, peer):
        refused = await peer.send(REVIVE, b"{}", properties={"TAGS": "ck"})
        assert refused.code == 16, refused.remark
        name = {"t": "TopicA", "c": "g", "q": 0, "pt": clock.now_ms(), "bn": "b"}
        records: list[dict[str, object]] = [
            {**name, "so": 1_000 + number * 1_000, "it": 10, "n": 1_000} for number in range(20)
        ]
        records += [
            {**name, "so": 0, "it": 10, "n": 1, "t": "a/../b"},
            {**name, "so": 0, "it": 10, "n": 1, "c": "../g"},
            {**name, "so": 0, "it": 10, "n": 1, "t": "rmq_sys_wheel_timer"},
            {**name, "so": 1 << 70, "it": 10, "n": 1},
        ]
        for record in records:
            written = AppendRequest(REVIVE, 0, json.dumps(record).encode(), "TAGS\x01ck\x02")
            assert broker.rooms.delayed.put(written).status == PutStatus.OK
        clock.advance(30)
        lines = [line for line in caplog.messages if "lost popped" in line or "skipped record" in line]
        assert len(lines) == 2, lines
        assert not [topic for topic in broker.tables.topics.table if "/" in topic or topic.endswith("wheel_timer_g")]
