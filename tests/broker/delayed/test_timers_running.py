"""Timer messages and recalls in a running broker, over a socket."""

import asyncio
import json
import struct
from pathlib import Path

import pytest

from cometmq.broker.admin.runtime_info import runtime_info
from cometmq.broker.delayed.timer_messages import RecallHandle
from cometmq.broker.server import Broker
from cometmq.clock import ManualClock
from cometmq.names import TIMER_TOPIC
from cometmq.wire.codes import Request
from cometmq.wire.record import properties
from tests.support.brokers import Peer, add_topic, running_broker, stored


async def advance(clock: ManualClock, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        clock.advance(0.1)
        await asyncio.sleep(0.001)  # threads report on the loop


def bodies(broker: Broker, topic: str = "TopicA") -> list[bytes]:
    return [message.body for message in stored(broker, topic)]


async def test_a_timer_message_waits_in_the_timer_topic_and_arrives(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        answer = await peer.send("TopicA", b"later", properties={"TIMER_DELAY_MS": "5500", "UNIQ_KEY": "K1"})
        assert answer.code == 0, answer.remark
        handle = RecallHandle.decode(answer.ext["recallHandle"])
        assert handle == RecallHandle("TopicA", "broker-a", clock.now_ms() + 5001, "K1")
        assert [message.topic for message in stored(broker, TIMER_TOPIC)] == [TIMER_TOPIC]
        await advance(clock, 5.4)
        assert bodies(broker) == []
        await advance(clock, 1.3)
        assert bodies(broker) == [b"later"]
        plain = await peer.send("TopicA", b"now")
        assert "recallHandle" not in plain.ext


async def test_a_delay_level_wins_over_a_timer(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ManualClock()) as broker, Peer.of(broker) as peer:
        answer = await peer.send("TopicA", properties={"DELAY": "1", "TIMER_DELAY_SEC": "60"})
        assert "recallHandle" not in answer.ext
        assert stored(broker, TIMER_TOPIC) == []
        (kept,) = stored(broker, "SCHEDULE_TOPIC_XXXX")
        assert "TIMER_DELAY_SEC" not in properties.decode(kept.properties)


@pytest.mark.parametrize(("enabled", "text", "code"), [(True, "soon", 13), (True, "999999999", 13), (False, "5", 1)])
async def test_refusals_have_javas_codes(tmp_path: Path, enabled: bool, text: str, code: int) -> None:
    async with running_broker(tmp_path, ManualClock(), timerWheelEnable=enabled) as broker, Peer.of(broker) as peer:
        answer = await peer.send("TopicA", properties={"TIMER_DELAY_SEC": text})
        assert answer.code == code
        assert "timer" in (answer.remark or "").lower()
        assert (broker.tables.topics.get(TIMER_TOPIC) is not None) == enabled


async def test_a_recalled_message_does_not_arrive(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock, recallMessageEnable=True) as broker, Peer.of(broker) as peer:
        handles = []
        for number in range(3):
            sent = await peer.send("TopicA", b"%d" % number, properties={"TIMER_DELAY_SEC": "5"})
            handles.append(sent.ext["recallHandle"])
        answer = await peer.call(
            Request.RECALL_MESSAGE, topic="TopicA", producerGroup="producers", recallHandle=handles[1]
        )
        assert answer.code == 0, answer.remark
        assert answer.ext["msgId"] == RecallHandle.decode(handles[1]).unique_key
        assert answer.ext["MSG_REGION"] == "DefaultRegion"
        await advance(clock, 8)
        assert bodies(broker) == [b"0", b"2"]


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        ("%%%", 604),
        (RecallHandle("TopicB", "broker-a", 1_700_000_005_001, "K").encode(), 604),
        (RecallHandle("TopicA", "broker-b", 1_700_000_005_001, "K").encode(), 604),
        (RecallHandle("TopicA", "broker-a", 1_700_000_000_000, "K").encode(), 604),
        (RecallHandle("TopicA", "broker-a", 1_700_259_200_000, "K").encode(), 604),
        (RecallHandle("TopicA", "broker-a", 1_700_000_005_001, "K").encode(), 0),
    ],
)
async def test_a_handle_that_cannot_be_right_is_refused(tmp_path: Path, handle: str, code: int) -> None:
    async with running_broker(tmp_path, ManualClock(), recallMessageEnable=True) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        answer = await peer.call(Request.RECALL_MESSAGE, topic="TopicA", recallHandle=handle)
        assert answer.code == code, answer.remark
        missing = await peer.call(Request.RECALL_MESSAGE, topic="TopicX", recallHandle=handle)
        assert missing.code == 17


async def test_recalls_are_off_unless_switched_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ManualClock()) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA")
        answer = await peer.call(Request.RECALL_MESSAGE, topic="TopicA", recallHandle="x")
        assert answer.code == 16


async def test_a_restart_keeps_what_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", b"x", properties={"TIMER_DELAY_SEC": "5"})
        await advance(clock, 2)
        assert broker.rooms.delayed.timers.pending == 1
    async with running_broker(tmp_path, clock) as broker:
        assert (broker.rooms.delayed.timers.pending, broker.rooms.delayed.timers.queue_behind) == (1, 0)
        await advance(clock, 5)
        assert bodies(broker) == [b"x"]
    assert b'"TopicA":{"count":0' in (tmp_path / "store/config/timermetrics").read_bytes()


async def test_a_replica_learns_progress_and_counts(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        for _ in range(3):
            await peer.send("TopicA", properties={"TIMER_DELAY_SEC": "60"})
        await advance(clock, 4)
        while broker.rooms.delayed.timers.files.check.saved.queue_offset < 3:
            await advance(clock, 1)
        answer = await peer.call(Request.GET_TIMER_CHECK_POINT)
        numbers = struct.unpack(">7q", answer.body)
        assert numbers[0] == broker.rooms.delayed.timers.files.check.saved.read_ms
        assert numbers[1:4] == (3 * 52, 3, 3)
        answer = await peer.call(Request.GET_TIMER_METRICS)
        assert json.loads(answer.body)["timingCount"]["TopicA"]["count"] == 3


async def test_a_broker_without_timers_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path, ManualClock(), timerWheelEnable=False) as broker, Peer.of(broker) as peer:
        for code in (Request.GET_TIMER_CHECK_POINT, Request.GET_TIMER_METRICS):
            answer = await peer.call(code)
            assert (answer.code, "timerWheelEnable" in (answer.remark or "")) == (1, True)


async def test_runtime_info_tells_of_timers_and_open_transactions(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        for _ in range(3):
            await peer.send("TopicA", properties={"TIMER_DELAY_SEC": "60"})
        await peer.send("TopicA", properties={"TRAN_MSG": "true", "PGROUP": "producers"}, sys_flag=4)
        await advance(clock, 2)
        figures = runtime_info(broker.rooms.admin.runtime)
        assert figures["timerCongestNum"] == "3"
        assert figures["timerOffsetBehind"] == "0"
        assert int(figures["timerReadBehind"]) <= 1
        assert figures["cometmq.openHalves"] == "1"
        await advance(clock, 2)
        assert float(runtime_info(broker.rooms.admin.runtime)["timerEnqueueTps"]) > 0
