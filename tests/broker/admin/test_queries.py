"""Messages by key, id and time, as a client asks for them."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.admin import queries
from cometmq.clock import ManualClock
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.message_id import decode_offset_id
from cometmq.wire.record.properties import find
from tests.broker.running import Session, running_broker

EVER: dict[str, Any] = {"beginTimestamp": 0, "endTimestamp": 2**62}


async def by_key(session: Session, key: str, topic: str = "T", count: int = 32, **ext: Any) -> Command:
    fields: dict[str, Any] = {"topic": topic, "key": key, "maxNum": count, **EVER, **ext}
    return await session.ask(Request.QUERY_MESSAGE, **fields)


def messages(answer: Command) -> list[StoredMessage]:
    assert answer.code == Response.SUCCESS, answer.remark
    return decode_records(answer.body)


@pytest.mark.mission("RD-06")
async def test_messages_are_found_by_key_and_by_unique_key(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        for number in range(3):
            await session.send_message("T", b"%d" % number, properties=f"KEYS\x01both k{number}\x02")
        sent = await session.send_message("T", b"last", properties="UNIQ_KEY\x01U1\x02")
        assert [message.body for message in messages(await by_key(session, "k1"))] == [b"1"]
        assert [message.body for message in messages(await by_key(session, "both"))] == [b"0", b"1", b"2"]
        answer = await by_key(session, "U1", count=1, _UNIQUE_KEY_QUERY=True)
        assert [message.body for message in messages(answer)] == [b"last"]
        assert answer.ext["indexLastUpdatePhyoffset"] == str(decode_offset_id(sent.ext["msgId"]).physical_offset)
        assert int(answer.ext["indexLastUpdateTimestamp"]) == running.broker.clock.now_ms()


@pytest.mark.mission("RD-06")
async def test_keys_of_equal_hash_are_both_found_and_the_client_keeps_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        await session.send_message("T", b"1", properties="KEYS\x01Aa\x02")
        await session.send_message("T", b"2", properties="KEYS\x01BB\x02")
        found = messages(await by_key(session, "Aa"))
        assert [message.body for message in found] == [b"1", b"2"]
        kept = [message for message in found if find(message.properties.decode(), "KEYS") == "Aa"]
        assert [message.body for message in kept] == [b"1"]


@pytest.mark.mission("RD-06")
async def test_a_key_that_nobody_has_is_not_found(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        answer = await by_key(session, "k")
        assert (answer.code, answer.body) == (Response.QUERY_NOT_FOUND, b"")
        assert answer.ext == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        await session.send_message("T", properties="KEYS\x01k\x02")
        assert (await by_key(session, "k", topic="U")).code == Response.QUERY_NOT_FOUND
        assert (await by_key(session, "k", endTimestamp=1)).code == Response.QUERY_NOT_FOUND
        assert (await by_key(session, "k", count=-1)).code == Response.QUERY_NOT_FOUND
        assert len(messages(await by_key(session, "k"))) == 1


@pytest.mark.mission("RD-06")
async def test_messages_are_found_by_tag_when_the_request_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        await session.send_message("T", b"tagged", properties="TAGS\x01red\x02")
        await session.send_message("T", b"keyed", properties="KEYS\x01red\x02UNIQ_KEY\x01red\x02")
        for kind, bodies in (("T", [b"tagged"]), ("K", [b"keyed"]), ("", [b"keyed"])):
            assert [message.body for message in messages(await by_key(session, "red", indexType=kind))] == bodies
        answer = await by_key(session, "red", indexType="T", _UNIQUE_KEY_QUERY=True)
        assert [message.body for message in messages(answer)] == [b"keyed"], "a unique key comes first, as in RocketMQ"


async def test_the_number_of_messages_has_its_bounds(tmp_path: Path) -> None:
    async with running_broker(tmp_path, maxMsgsNumBatch=5, defaultQueryMaxNum=4) as running:
        session = await running.connect()
        for _ in range(10):
            await session.send_message("T", properties="KEYS\x01k\x02")
        assert len(messages(await by_key(session, "k", count=2))) == 2
        assert len(messages(await by_key(session, "k", count=100))) == 5
        assert len(messages(await by_key(session, "k", count=1, _UNIQUE_KEY_QUERY=True))) == 4


async def test_an_answer_stays_below_what_a_frame_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "ANSWER_BYTES_MAX", 100_000)

    async with running_broker(tmp_path) as running:
        session = await running.connect()
        for _ in range(10):
            await session.send_message("T", b"x" * 30_000, properties="KEYS\x01k\x02")
        assert len(messages(await by_key(session, "k"))) == 3


@pytest.mark.mission("RD-06")
async def test_a_message_is_shown_by_its_offset_id_and_by_nothing_else(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session = await running.connect()
        await session.send_message("T", b"first")
        large = b"x" * 200_000  # more than the first read takes
        sent = await session.send_message("T", large)
        offset = decode_offset_id(sent.ext["msgId"]).physical_offset
        answer = await session.ask(Request.VIEW_MESSAGE_BY_ID, offset=offset)
        assert [message.body for message in messages(answer)] == [large]
        log_end = running.broker.store.log.max_offset
        for wrong in (offset + 1, offset + 100, offset - 1, log_end, log_end + 1, 1 << 40, -1, -(1 << 62)):
            answer = await session.ask(Request.VIEW_MESSAGE_BY_ID, offset=wrong)
            assert (answer.code, answer.body) == (Response.SYSTEM_ERROR, b""), wrong
            assert answer.remark is not None
            assert str(wrong) in answer.remark


@pytest.mark.mission("RD-05")
async def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    clock = ManualClock()
    start = clock.now_ms()
    async with running_broker(tmp_path, clock) as running:
        session = await running.connect()
        for _ in range(3):  # two messages at each of 0, 1 and 2 s
            await session.send_message("T")
            await session.send_message("T")
            clock.advance(1)

        async def offset_at(time_ms: int, **ext: Any) -> int:
            fields: dict[str, Any] = {"topic": "T", "queueId": 0, "timestamp": time_ms, **ext}
            answer = await session.ask(Request.SEARCH_OFFSET_BY_TIMESTAMP, **fields)
            return int(answer.ext["offset"])

        assert [await offset_at(start + ms) for ms in (-1, 0, 1, 1000, 1500, 2000, 2001)] == [0, 0, 2, 2, 4, 4, 6]
        upper: dict[str, Any] = {"boundaryType": "upper"}
        assert [await offset_at(start + ms, **upper) for ms in (-1, 0, 1, 1000, 5000)] == [0, 1, 1, 3, 5]
        assert await offset_at(start, topic="U") == 0


async def test_bounds_of_a_queue_and_of_one_that_is_not_there(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock) as running:
        session = await running.connect()
        first_ms = clock.now_ms()
        for _ in range(3):
            await session.send_message("T", queue_id=1)
            clock.advance(1)

        async def ask(code: int, topic: str, queue_id: int) -> dict[str, str]:
            answer = await session.ask(code, topic=topic, queueId=queue_id)
            assert answer.code == Response.SUCCESS
            return answer.ext

        assert await ask(Request.GET_MAX_OFFSET, "T", 1) == {"offset": "3"}
        assert await ask(Request.GET_MIN_OFFSET, "T", 1) == {"offset": "0"}
        assert await ask(Request.GET_EARLIEST_MSG_STORETIME, "T", 1) == {"timestamp": str(first_ms)}
        for topic, queue_id in (("T", 0), ("T", 77), ("U", 0), ("T", -1)):
            assert await ask(Request.GET_MAX_OFFSET, topic, queue_id) == {"offset": "0"}
            assert await ask(Request.GET_MIN_OFFSET, topic, queue_id) == {"offset": "0"}
            assert await ask(Request.GET_EARLIEST_MSG_STORETIME, topic, queue_id) == {"timestamp": "-1"}
        missing = await session.ask(Request.GET_MAX_OFFSET, topic="T")
        assert missing.code == Response.SYSTEM_ERROR
        assert "queueId" in (missing.remark or "")
