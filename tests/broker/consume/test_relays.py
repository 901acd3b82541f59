"""Questions that the broker hands on to a consumer, and the consumer's answers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.clock import ManualClock
from cometmq.wire.bodies import ConsumerStatus, MessageQueue, SubscriptionGroupConfig, TopicConfig
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.record.message import decode_records
from tests.broker.running import Running, Session, running_broker

GO_RESULT = b'{"order":false,"autoCommit":true,"consumeResult":0,"remark":"","spentTimeMills":3}'


async def member(running: Running, client_id: str = "c1", **fields: Any) -> Session:
    session = await running.connect()
    await session.join(client_id, group="g", **fields)
    return session


async def test_running_info_comes_back_byte_for_byte(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        await member(running, "c0")
        consumer = await member(running, "c1")
        asking = asyncio.create_task(
            operator.ask(
                Request.GET_CONSUMER_RUNNING_INFO, b"x", consumerGroup="g", clientId="c1", jstackEnable=True
            )
        )
        question = await consumer.asked(Request.GET_CONSUMER_RUNNING_INFO)
        assert question.ext == {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
        assert question.body == b"x"
        answer = reply(question, 0, "as it is", {"own": "field"}, b'{ "dropped" : true }')
        answer.language, answer.version = 9, 461  # Go
        consumer.send(answer)
        relayed = await asking
        assert (relayed.code, relayed.remark, relayed.ext) == (0, "as it is", {"own": "field"})
        assert relayed.body == b'{ "dropped" : true }'
        assert (relayed.opaque, relayed.language, relayed.version) == (7, 9, 461)


async def test_a_stored_message_is_handed_to_one_consumer(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        topic = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1, topic_sys_flag=2)
        running.broker.tables.topics.update([topic])
        running.broker.tables.groups.update([SubscriptionGroupConfig(group_name="g", group_sys_flag=1)])
        sent = await operator.send_message("T", b"handle me")
        consumer = await member(running)
        asking = asyncio.create_task(
            operator.ask(
                Request.CONSUME_MESSAGE_DIRECTLY,
                consumerGroup="g",
                clientId="c1",
                topic="T",
                msgId=sent.ext["msgId"],
            )
        )
        question = await consumer.asked(Request.CONSUME_MESSAGE_DIRECTLY)
        assert question.ext["brokerName"] == "broker-a"
        assert (question.ext["topicSysFlag"], question.ext["groupSysFlag"]) == ("2", "1")
        assert [message.body for message in decode_records(question.body)] == [b"handle me"]
        consumer.send(reply(question, body=GO_RESULT))
        assert (await asking).body == GO_RESULT


@pytest.mark.parametrize(
    ("message_id", "what"),
    [("xyz", "offset id"), ("00", "offset id"), ("7F00000100002A9F0000000000000005", "offset 5")],
)
async def test_a_message_that_is_not_there_cannot_be_handed_over(tmp_path: Path, message_id: str, what: str) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        await operator.send_message("T")
        await member(running)
        answer = await operator.ask(
            Request.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g", clientId="c1", msgId=message_id
        )
        assert answer.code == Response.SYSTEM_ERROR
        assert what in (answer.remark or "")


async def test_a_consumer_that_is_not_there_or_too_old_cannot_be_asked(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        await member(running, "old", version=61)
        for client_id, remark in (("c9", "The Consumer <g> <c9> not online"), ("old", "Version <61> too low")):
            answer = await operator.ask(Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId=client_id)
            assert answer.code == Response.SYSTEM_ERROR
            assert remark in (answer.remark or "")
        nobody = await operator.ask(Request.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g")
        assert (nobody.code, nobody.remark) == (Response.SYSTEM_ERROR, "The Consumer <g> <> not online")


async def test_a_consumer_that_does_not_answer_in_ten_seconds_is_a_timeout(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as running:
        operator = await running.connect()
        consumer = await member(running)
        asking = asyncio.create_task(
            operator.ask(Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
        )
        await consumer.asked(Request.GET_CONSUMER_RUNNING_INFO)
        clock.advance(9.9)
        await asyncio.sleep(0)
        assert not asking.done()
        clock.advance(0.2)
        answer = await asking
        assert answer.code == Response.CONSUME_MSG_TIMEOUT
        assert "<g> <c1>" in (answer.remark or "")


async def test_a_consumer_that_goes_meanwhile_is_an_error(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        consumer = await member(running)
        asking = asyncio.create_task(
            operator.ask(Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
        )
        await consumer.asked(Request.GET_CONSUMER_RUNNING_INFO)
        await consumer.close()
        assert (await asking).code == Response.SYSTEM_ERROR


def status_of(offset: int) -> bytes:
    return ConsumerStatus(message_queue_table={MessageQueue("broker-a", 0, "T"): offset}).encode()


async def answer_status(consumer: Session, body: bytes, code: int = 0) -> Command:
    question = await consumer.asked(Request.GET_CONSUMER_STATUS_FROM_CLIENT)
    consumer.send(reply(question, code, None, None, body))
    return question


async def test_the_status_of_all_members_is_put_together(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        consumers = [await member(running, name) for name in ("c1", "c2", "broken", "refusing")]
        bodies = [(status_of(5), 0), (status_of(9), 0), (b"{", 0), (b"", 1)]
        asking = asyncio.create_task(
            operator.ask(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g")
        )
        for consumer, (body, code) in zip(consumers, bodies, strict=True):
            question = await answer_status(consumer, body, code)
            assert question.ext == {"topic": "T", "group": "g"}
        status = ConsumerStatus.decode((await asking).body)
        queue = MessageQueue("broker-a", 0, "T")
        assert status.consumer_table == {"c1": {queue: 5}, "c2": {queue: 9}}
        assert status.message_queue_table == {}


async def test_one_member_can_be_asked_for_its_status(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        await member(running, "c1")
        second = await member(running, "c2")
        asking = asyncio.create_task(
            operator.ask(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g", clientAddr="c2")
        )
        await answer_status(second, status_of(3))
        assert ConsumerStatus.decode((await asking).body).consumer_table.keys() == {"c2"}


async def test_the_status_of_nobody_and_of_old_clients_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        operator = await running.connect()
        code = Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        assert (await operator.ask(code, topic="T", group="g")).code == Response.CONSUMER_NOT_ONLINE
        await member(running, "old", version=20)
        answer = await operator.ask(code, topic="T", group="g")
        assert answer.code == Response.SYSTEM_ERROR
        assert "old" in (answer.remark or "")
