"""Replies on their way back to who asked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import PushReplyMessage
from cometmq.wire.record.message import decode_record
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.properties import decode
from tests.broker.running import Running, Session, running_broker
from tests.support.net import until

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
TO_C1 = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01c1\x02CORRELATION_ID\x01x7\x02"


async def requester(running: Running) -> Session:
    session = await running.connect()
    await session.join("c1", producer="askers")
    return session


async def respond(session: Session, **fields: Any) -> Command:
    wanted: dict[str, Any] = {"properties": TO_C1, "code": Request.SEND_REPLY_MESSAGE, **fields}
    return await session.send_message(wanted.pop("topic", REPLY_TOPIC), b"the reply", **wanted)


async def test_a_reply_is_pushed_to_who_asked_and_a_copy_is_kept(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        asker, responder = await requester(running), await running.connect()
        responding = asyncio.create_task(respond(responder, flag=3, reconsumeTimes=1))
        pushed = await asker.asked(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)
        header = PushReplyMessage.decode(pushed.ext)
        assert pushed.body == b"the reply"
        assert (header.topic, header.producer_group, header.flag) == (REPLY_TOPIC, "pg", 3)
        assert header.born_host == f"127.0.0.1:{responder.local_port}"
        assert header.store_host == running.broker.address
        assert header.store_timestamp == running.broker.clock.now_ms()
        properties = decode((header.properties or "").encode())
        assert properties["CORRELATION_ID"] == "x7"
        assert properties["PUSH_REPLY_TIME"] == str(running.broker.clock.now_ms())
        assert properties["MSG_REGION"] == "DefaultRegion"
        asker.send(reply(pushed))

        answer = await responding
        assert (answer.code, answer.remark) == (Response.SUCCESS, None)
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")
        assert answer.ext["MSG_REGION"] == "DefaultRegion"
        offset = decode_offset_id(answer.ext["msgId"]).physical_offset
        record = running.broker.store.lookup.record_at(offset)
        assert record is not None
        kept = decode_record(record)
        assert (kept.topic, kept.body, kept.flag) == (REPLY_TOPIC, b"the reply", 3)
        assert decode(kept.properties) == {
            "MSG_TYPE": "reply", "REPLY_TO_CLIENT": "c1", "CORRELATION_ID": "x7", "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }  # fmt: skip


async def test_the_short_spelling_means_the_same(tmp_path: Path) -> None:
    async with running_broker(tmp_path, storeReplyMessageEnable=False) as running:
        asker, responder = await requester(running), await running.connect()
        ext: dict[str, Any] = {
            "a": "pg", "b": REPLY_TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": TO_C1, "j": 0,
        }  # fmt: skip
        responding = asyncio.create_task(responder.ask(Request.SEND_REPLY_MESSAGE_V2, b"the reply", **ext))
        asker.send(reply(await asker.asked(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)))
        answer = await responding
        assert answer.code == Response.SUCCESS
        assert (answer.ext["msgId"], answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0", "0")
        assert running.broker.store.log.max_offset == 0


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("MSG_TYPE\x01reply\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
        ("REPLY_TO_CLIENT\x01c9\x02", "push reply message fail, channel of <c9> not found."),
    ],
)
async def test_a_reply_to_nobody_is_an_error_but_kept(tmp_path: Path, properties: str, remark: str) -> None:
    async with running_broker(tmp_path) as running:
        responder = await running.connect()
        answer = await respond(responder, properties=properties)
        assert (answer.code, answer.remark) == (Response.SYSTEM_ERROR, remark)
        assert answer.ext["queueOffset"] == "0"
        assert running.broker.store.queue_bounds(REPLY_TOPIC, 0) == (0, 1)


async def test_a_reply_that_the_asker_refuses_or_never_gets_is_an_error(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        asker, responder = await requester(running), await running.connect()
        responding = asyncio.create_task(respond(responder))
        asker.send(reply(await asker.asked(Request.PUSH_REPLY_MESSAGE_TO_CLIENT), 1, "too late"))
        answer = await responding
        assert answer.code == Response.SYSTEM_ERROR
        assert "too late" in (answer.remark or "")

        responding = asyncio.create_task(respond(responder))
        await asker.asked(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)
        await asker.close()
        assert (await responding).code == Response.SYSTEM_ERROR


async def test_a_copy_that_cannot_be_stored_does_not_undo_the_push(tmp_path: Path) -> None:
    async with running_broker(tmp_path, maxMessageSize=4) as running:
        asker, responder = await requester(running), await running.connect()
        responding = asyncio.create_task(respond(responder))
        asker.send(reply(await asker.asked(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)))
        running.broker.store.log.message_bytes_max = 4
        answer = await responding
        assert (answer.code, answer.ext["msgId"]) == (Response.SUCCESS, "0")


async def test_a_reply_is_checked_like_any_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        responder = await running.connect()
        answer = await respond(responder, topic="a/b")
        assert answer.code == Response.INVALID_PARAMETER
        assert answer.ext == running.broker.rooms.produce.marks.answer_ext
        assert (await respond(responder, queue_id=7)).code == Response.INVALID_PARAMETER
        drawn = await respond(responder, queue_id=-1)
        assert drawn.ext["queueId"] == "0"


async def test_nothing_is_left_of_a_responder_that_has_gone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        asker, responder = await requester(running), await running.connect()
        responding = asyncio.create_task(respond(responder))
        pushed = await asker.asked(Request.PUSH_REPLY_MESSAGE_TO_CLIENT)
        responding.cancel()
        await responder.close()
        broker = running.broker
        await until(lambda: len(broker.server.connections) == 1, "the end of the responder's connection")
        asker.send(reply(pushed))
        await until(lambda: broker.store.queue_bounds(REPLY_TOPIC, 0) == (0, 1), "the copy of the reply")
        await until(lambda: broker.rooms.families["reply"].waiting == 0, "the end of the request")
        assert len(broker.rooms.shared.born) <= len(broker.server.connections)
