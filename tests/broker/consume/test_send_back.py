"""Messages that a consumer could not handle: given back (36), or sent to the retry topic by the consumer itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.names import SCHEDULE_TOPIC
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.bodies import LockBatchRequest, MessageQueue, SubscriptionGroupConfig
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, request
from cometmq.wire.record import properties
from cometmq.wire.record.message import StoredMessage
from tests.support.brokers import Peer, add_topic, running_broker, stored

RETRY, DLQ = "%RETRY%consumers", "%DLQ%consumers"


def props(message: StoredMessage) -> dict[str, str]:
    return properties.decode(message.properties)


async def give_back(peer: Peer, message: StoredMessage, *, version: int = 513, **ext: Any) -> Command:
    fields = {
        "offset": message.physical_offset, "group": "consumers", "delayLevel": 0, "originTopic": message.topic,
        "originMsgId": "id", "unitMode": "false", **ext,
    }  # fmt: skip
    command = request(
        Request.CONSUMER_SEND_MSG_BACK, {name: str(value) for name, value in fields.items() if value is not None}
    )
    command.version = version
    return await peer.ask(command)


async def advance(clock: ManualClock, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        clock.advance(0.1)
        await asyncio.sleep(0)


@pytest.mark.mission("DL-02")
async def test_the_third_failure_of_a_limit_of_2_is_a_dead_letter(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        broker.tables.groups.update([SubscriptionGroupConfig(group_name="consumers", retry_max_times=2)])
        await peer.send("TopicA", b"hard", properties={"KEYS": "k", "UNIQ_KEY": "u"})
        (message,) = stored(broker, "TopicA")
        first_id = broker.own.offset_id(message.physical_offset)
        for times, wait_s in ((1, 10), (2, 30)):
            assert (await give_back(peer, message)).code == 0
            await advance(clock, wait_s - 0.2)
            assert len(stored(broker, RETRY)) == times - 1, "not before its delay"
            await advance(clock, 0.4)
            message = stored(broker, RETRY)[-1]
            assert (message.body, message.reconsume_times) == (b"hard", times)
            own = props(message)
            assert (own["RETRY_TOPIC"], own["ORIGIN_MESSAGE_ID"]) == ("TopicA", first_id)
            assert (own["KEYS"], own["UNIQ_KEY"]) == ("k", "u")
        assert (await give_back(peer, message)).code == 0
        (dead,) = stored(broker, DLQ)
        assert (dead.body, dead.reconsume_times, dead.queue_id) == (b"hard", 3, 0)
        topic = broker.tables.topics.table[DLQ]
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        answer = await peer.pull_messages(DLQ, group="DeadLetterReaders")
        assert [found.body for found in answer] == [b"hard"]
        stats = broker.rooms.shared.stats.find("DLQ_PUT_NUMS", "TopicA@consumers")
        assert stats is not None


@pytest.mark.mission("DL-02")
async def test_level_minus_1_is_a_dead_letter_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA", b"poison")
        assert (await give_back(peer, stored(broker, "TopicA")[0], delayLevel=-1)).code == 0
        (dead,) = stored(broker, DLQ)
        assert (dead.body, props(dead)["RETRY_TOPIC"]) == (b"poison", "TopicA")


async def test_the_wished_level_is_taken_and_a_client_may_have_its_own_limit(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA")
        (message,) = stored(broker, "TopicA")
        assert (await give_back(peer, message, delayLevel=2)).code == 0
        assert len(stored(broker, SCHEDULE_TOPIC, 1)) == 1
        assert (await give_back(peer, message, maxReconsumeTimes=0)).code == 0
        assert len(stored(broker, DLQ)) == 1
        # Too old to have one: the group's limit counts.
        assert (await give_back(peer, message, maxReconsumeTimes=0, version=100)).code == 0
        assert len(stored(broker, DLQ)) == 1


@pytest.mark.parametrize(
    ("settings", "fields", "code"),
    [
        ({"autoCreateSubscriptionGroup": False}, {}, Response.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"brokerPermission": 4}, {}, Response.NO_PERMISSION),
        ({}, {"offset": 1 << 40}, Response.SYSTEM_ERROR),
        ({}, {"offset": 1}, Response.SYSTEM_ERROR),
        ({}, {"offset": -1}, Response.SYSTEM_ERROR),
        ({}, {"group": "a b"}, Response.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({}, {"group": None}, Response.SYSTEM_ERROR),
    ],
)
async def test_what_cannot_be_given_back_is_refused(
    tmp_path: Path, settings: dict[str, object], fields: dict[str, Any], code: int
) -> None:
    async with running_broker(tmp_path, **settings) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA")
        end = broker.store.log.max_offset
        answer = await give_back(peer, stored(broker, "TopicA")[0], **fields)
        assert answer.code == code
        assert len(answer.remark or "") > 15
        assert broker.store.log.max_offset == end


async def test_a_group_without_retry_queues_drops_and_a_retry_topic_may_be_closed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        await peer.send("TopicA")
        (message,) = stored(broker, "TopicA")
        broker.tables.groups.update([SubscriptionGroupConfig(group_name="consumers", retry_queue_nums=0)])
        end = broker.store.log.max_offset
        assert (await give_back(peer, message)).code == 0
        assert broker.store.log.max_offset == end
        broker.tables.groups.update([SubscriptionGroupConfig(group_name="consumers")])
        add_topic(broker, RETRY, 1, perm=4)
        assert (await give_back(peer, message)).code == Response.NO_PERMISSION


async def test_a_refused_copy_is_an_error_so_that_the_consumer_sends_it_itself(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        busy = PutResult(PutStatus.OS_PAGE_CACHE_BUSY, remark="busy")
        broker.rooms.consume.returns.put = lambda _: busy
        await peer.send("TopicA")
        answer = await give_back(peer, stored(broker, "TopicA")[0])
        assert answer.code == Response.SYSTEM_ERROR
        assert "busy" in (answer.remark or "")


# Sent to the retry topic by the consumer itself


@pytest.mark.mission("DL-03")
async def test_beyond_the_limit_and_not_at_it_a_direct_retry_is_a_dead_letter(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        fields: dict[str, Any] = {"max_reconsume_times": 3, "properties": {"DELAY": "0", "RETRY_TOPIC": "TopicA"}}
        assert (await peer.send(RETRY, b"at", reconsume_times=3, **fields)).code == 0
        assert [message.body for message in stored(broker, RETRY)] == [b"at"]
        assert (await peer.send(RETRY, b"beyond", reconsume_times=4, **fields)).code == 0
        (dead,) = stored(broker, DLQ)
        assert (dead.body, dead.reconsume_times, props(dead)["DELAY"]) == (b"beyond", 4, "-1")
        # A client too old to have its own limit: 16, the group's.
        assert (await peer.send(RETRY, b"old", reconsume_times=16, version=100, **fields)).code == 0
        assert (await peer.send(RETRY, b"too old", reconsume_times=17, version=100, **fields)).code == 0
        assert [message.body for message in stored(broker, DLQ)] == [b"beyond", b"too old"]


@pytest.mark.mission("DL-03")
async def test_a_direct_retry_of_an_unknown_group_is_26(tmp_path: Path) -> None:
    settings = {"autoCreateSubscriptionGroup": False}
    async with running_broker(tmp_path, **settings) as broker, Peer.of(broker) as peer:
        answer = await peer.send(RETRY)
        assert answer.code == Response.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "consumers" in (answer.remark or "")
        assert broker.store.log.max_offset == 0


async def test_a_direct_retry_with_a_level_waits_for_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as broker, Peer.of(broker) as peer:
        assert (await peer.send(RETRY, properties={"DELAY": "3"}, reconsume_times=1)).code == 0
        assert len(stored(broker, SCHEDULE_TOPIC, 2)) == 1
        await advance(clock, 10.2)
        assert len(stored(broker, RETRY)) == 1


async def test_what_a_group_with_queue_locks_sends_to_its_retry_topic_is_a_dead_letter(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        queue = MessageQueue(broker_name="broker-a", queue_id=0, topic="TopicA")
        body = LockBatchRequest(client_id="c", consumer_group="consumers", mq_set=[queue]).encode()
        assert (await peer.call(Request.LOCK_BATCH_MQ, body)).code == 0
        assert (await peer.send(RETRY, b"given up", reconsume_times=1)).code == 0
        assert [message.body for message in stored(broker, DLQ)] == [b"given up"]
        assert (await peer.call(Request.UNLOCK_BATCH_MQ, body)).code == 0
        assert (await peer.send(RETRY, b"again", reconsume_times=1)).code == 0
        assert [message.body for message in stored(broker, RETRY)] == [b"again"]


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", SCHEDULE_TOPIC])
async def test_what_the_broker_keeps_for_itself_cannot_be_given_back(tmp_path: Path, topic: str) -> None:
    """A half message would come to consumers before anybody has decided about it."""
    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        written = broker.store.put(AppendRequest(topic, 0, b"not decided", ""))
        assert written.status == PutStatus.OK
        (message,) = stored(broker, topic)
        answer = await give_back(peer, message)
        assert answer.code == Response.NO_PERMISSION
        assert topic in (answer.remark or "")
        assert stored(broker, RETRY) == []
