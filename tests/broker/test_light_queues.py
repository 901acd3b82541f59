"""Light queues (LMQ) and queues by priority in a running broker."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.wire.bodies import SubscriptionGroupConfig
from cometmq.wire.codes import Request
from cometmq.wire.record import properties
from tests.broker.pop.test_popping import Popper
from tests.support.brokers import Peer, add_topic, running_broker, stored

LIGHT: dict[str, object] = {"enableLmq": True, "enableMultiDispatch": True}
A, B, GROUP = "%LMQ%a", "%LMQ%b", "%LMQ%g"


async def commit(peer: Peer, group: str, topic: str, offset: int) -> int:
    fields: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": offset}
    return (await peer.call(Request.UPDATE_CONSUMER_OFFSET, **fields)).code


async def committed(peer: Peer, group: str, topic: str) -> str:
    answer = await peer.call(Request.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=0)
    return answer.ext.get("offset", f"code {answer.code}")


def offsets_file(directory: Path, name: str) -> Any:
    text = (directory / "store/config" / name).read_text()
    return json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))


async def test_light_queues_and_groups_are_there_without_being_made(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **LIGHT, autoCreateSubscriptionGroup=False) as broker, Peer.of(broker) as p:
        await p.send("TopicA", b"x", properties={"INNER_MULTI_DISPATCH": f"{A},{B}"})
        for queue in (A, B):
            (found,) = await p.pull_messages(queue, group=GROUP)
            assert (found.topic, found.body) == ("TopicA", b"x")
        assert broker.store.queues.lmq_count == 2
        assert (A in broker.tables.topics.table, GROUP in broker.tables.groups.table) == (False, False)


async def test_without_the_switch_there_are_none(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", b"x", properties={"INNER_MULTI_DISPATCH": A})
        assert (await peer.pull(A, group=GROUP)).code == 17


async def test_offsets_of_light_groups_survive_in_javas_file_and_others_move_there(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA")
        await peer.heartbeat("plain")
        assert await commit(peer, "plain", "TopicA", 1) == 0
    for _ in range(2):
        async with running_broker(tmp_path, **LIGHT) as broker, Peer.of(broker) as peer:
            assert await committed(peer, "plain", "TopicA") == "1"
            assert await commit(peer, GROUP, A, 7) == 0
    async with running_broker(tmp_path, **LIGHT) as broker, Peer.of(broker) as peer:
        assert await committed(peer, GROUP, A) == "7"
    table = offsets_file(tmp_path, "lmqConsumerOffset.json")
    assert table["lmqOffsetTable"] == {f"{A}@{GROUP}": 7}
    assert table["offsetTable"] == {"TopicA@plain": {"0": 1}}


@pytest.mark.parametrize(
    ("extra", "queue_id", "is_kept"),
    [
        ({"_SYS_MSG_PRIORITY_": "0"}, 0, True),
        ({"_SYS_MSG_PRIORITY_": "1"}, 1, True),
        ({"_SYS_MSG_PRIORITY_": "9"}, 3, True),
        ({"_SYS_MSG_PRIORITY_": "-1"}, 2, True),
        ({"_SYS_MSG_PRIORITY_": "high"}, 2, True),
        ({"_SYS_MSG_PRIORITY_": "1", "__SHARDINGKEY": "k"}, 2, False),
        ({"_SYS_MSG_PRIORITY_": "1", "TIMER_DELIVER_MS": "1"}, 2, False),
    ],
)
async def test_priority_chooses_the_queue(tmp_path: Path, extra: dict[str, str], queue_id: int, is_kept: bool) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        add_topic(broker, "TopicA", queues=4)
        answer = await peer.send("TopicA", properties=extra, queue_id=2)
        assert (answer.code, answer.ext["queueId"]) == (0, str(queue_id))
        (found,) = stored(broker, "TopicA", queue_id)
        assert ("_SYS_MSG_PRIORITY_" in properties.decode(found.properties)) == is_kept


@pytest.mark.parametrize("factor", ["100", "0"])
async def test_pops_prefer_high_priorities_as_often_as_the_group_says(tmp_path: Path, factor: str) -> None:
    async with running_broker(tmp_path, ManualClock()) as broker, Popper.at(broker.address) as peer:
        assert isinstance(peer, Popper)
        add_topic(broker, "TopicA", queues=16, attributes={"message.type": "PRIORITY"})
        broker.tables.groups.update([SubscriptionGroupConfig(group_name="g", attributes={"+priority.factor": factor})])
        for number in range(16):
            body = b"%02d" % number
            assert (await peer.send("TopicA", body, properties={"_SYS_MSG_PRIORITY_": str(number)})).code == 0
        got = [popped.body for _ in range(16) for popped in await peer.pop(count=1)]
        assert sorted(got) == [b"%02d" % number for number in range(16)]
        assert (got == sorted(got, reverse=True)) == (factor == "100")
