"""Hooks around sends: one before and one after each, whatever becomes of the message, and what it is billed at."""

from pathlib import Path

import pytest

from cometmq.broker.produce.hooks import SEND_FAILURE, SEND_SUCCESS, SendContext
from cometmq.errors import RequestError
from cometmq.store.results import PutResult, PutStatus
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import request
from tests.broker.running import Running, Session, running_broker
from tests.conftest import run
from tests.support.net import until


class Witness:
    """Keeps what it was told; `refuse` makes it an access check."""

    def __init__(self, refuse: str = "", fail: bool = False) -> None:
        self.befores: list[SendContext] = []
        self.afters: list[SendContext] = []
        self._refuse = refuse
        self._fail = fail

    def before(self, context: SendContext) -> None:
        self.befores.append(context)
        if self._fail:
            raise KeyError("a bug of the hook")
        if self._refuse:
            raise RequestError(Response.NO_PERMISSION, self._refuse)

    def after(self, context: SendContext) -> None:
        self.afters.append(context)
        if self._fail:
            raise KeyError("a bug of the hook")

    @property
    def only(self) -> SendContext:
        assert len(self.befores) == len(self.afters) == 1
        assert self.befores[0] is self.afters[0]
        return self.afters[0]


async def watched(running: Running, witness: Witness | None = None) -> tuple[Session, Witness]:
    witness = witness or Witness()
    running.broker.rooms.produce.hooks.add(witness)
    return await running.connect(), witness


@pytest.mark.mission("SE-02")
async def test_a_stored_message_has_one_before_and_one_after_with_its_place(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session, witness = await watched(running)
        answer = await session.send_message("T", b"12345", queue_id=2, properties="KEYS\x01k\x02")
        assert answer.code == Response.SUCCESS
        context = witness.only
        assert (context.group, context.topic, context.body_bytes) == ("pg", "T", 5)
        assert context.properties == "KEYS\x01k\x02"
        assert (context.state, context.code, context.remark) == (SEND_SUCCESS, 0, None)
        assert context.message_id == answer.ext["msgId"]
        assert (context.queue_id, context.queue_offset) == (2, 0)
        assert context.size_bytes == running.broker.store.log.max_offset


@pytest.mark.mission("SE-02")
@pytest.mark.parametrize(
    ("topic", "queue_id", "code"),
    [
        ("a/b", 0, Response.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", 0, Response.NO_PERMISSION),
        ("T", 99, Response.INVALID_PARAMETER),
    ],
)
async def test_a_refused_message_has_one_before_and_one_after(
    tmp_path: Path, topic: str, queue_id: int, code: int
) -> None:
    async with running_broker(tmp_path) as running:
        session, witness = await watched(running)
        answer = await session.send_message(topic, b"12345", queue_id=queue_id)
        assert answer.code == code
        context = witness.only
        assert (context.state, context.code, context.remark) == (SEND_FAILURE, code, answer.remark)
        assert (context.message_id, context.queue_offset) == ("", -1)


@pytest.mark.mission("SE-02", "MO-02")
async def test_a_message_that_the_store_refuses_is_a_failure_of_its_body_size(tmp_path: Path) -> None:
    async with running_broker(tmp_path, maxMessageSize=10_000, commercialBaseCount=3) as running:
        session, witness = await watched(running)
        answer = await session.send_message("T", b"x" * 10_001, Owner="somebody")
        assert answer.code == Response.MESSAGE_ILLEGAL
        context = witness.only
        assert (context.state, context.code) == (SEND_FAILURE, Response.MESSAGE_ILLEGAL)
        assert (context.size_bytes, context.messages, context.times) == (10_001, 1, 3)
        assert context.owner == "somebody"


@pytest.mark.mission("MO-02")
@pytest.mark.parametrize(("record_bytes", "base_count", "times"), [(4096, 1, 1), (4097, 1, 2), (4097, 5, 10)])
async def test_a_stored_message_is_billed_by_the_size_of_its_record(
    tmp_path: Path, record_bytes: int, base_count: int, times: int
) -> None:
    async with running_broker(tmp_path, commercialBaseCount=base_count) as running:
        session, witness = await watched(running)
        await session.send_message("T", b"", properties="UNIQ_KEY\x01u\x02")
        overhead = witness.afters.pop().size_bytes
        witness.befores.clear()
        answer = await session.send_message(
            "T",
            b"x" * (record_bytes - overhead),
            properties="UNIQ_KEY\x01u\x02",
            Owner="o",
            AUTH_TYPE="a",
            OWNER_PARENT="p",
            OWNER_SELF="s",
        )
        assert answer.code == Response.SUCCESS
        context = witness.only
        assert context.size_bytes == record_bytes
        assert (context.state, context.messages, context.times) == (SEND_SUCCESS, 1, times)
        accounts = (context.owner, context.auth_type, context.account_parent, context.account_self)
        assert accounts == ("o", "a", "p", "s")


async def test_a_hook_can_refuse_a_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session, witness = await watched(running, Witness(refuse="not you"))
        answer = await session.send_message("T")
        assert (answer.code, answer.remark) == (Response.NO_PERMISSION, "not you")
        assert answer.ext["MSG_REGION"] == "DefaultRegion"
        assert witness.only.state == SEND_FAILURE
        assert running.broker.store.log.max_offset == 0


def test_a_bug_in_a_hook_harms_no_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with running_broker(tmp_path) as running:
            session, _ = await watched(running, Witness(fail=True))
            _, healthy = await watched(running)
            assert (await session.send_message("T")).code == Response.SUCCESS
            assert healthy.only.state == SEND_SUCCESS

    run(check())
    assert "fail hook before send topic=T" in caplog.text
    assert "fail hook after send topic=T" in caplog.text


async def test_one_way_messages_and_batches_are_seen_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        session, witness = await watched(running)
        await session.send_message("T")
        ext = {
            "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
        }  # fmt: skip
        session.send(request(Request.SEND_MESSAGE, ext, b"one way", oneway=True))
        await until(lambda: len(witness.afters) == 2, "the one-way message")
        member = bytes.fromhex("00000017 00000000 00000000 00000000 00000001 78 0000".replace(" ", ""))
        answer = await session.send_message("T", member * 3, batch=True)
        assert answer.code == Response.SUCCESS
        assert [context.messages for context in witness.afters] == [1, 1, 3]
        assert witness.afters[2].message_id.count(",") == 2
        assert not running.broker.rooms.produce.hooks._open


async def test_a_message_that_waits_for_the_disk_is_told_when_it_is_there(tmp_path: Path) -> None:
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as running:
        session, witness = await watched(running)
        assert (await session.send_message("T")).code == Response.SUCCESS
        assert witness.only.state == SEND_SUCCESS


async def test_without_hooks_nothing_is_remembered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        hooks = running.broker.rooms.produce.hooks
        assert not hooks
        hooks.stored(request(Request.SEND_MESSAGE), 0, 0, "id", PutResult(PutStatus.OK))
        witness = Witness()
        hooks.add(witness)
        assert hooks
        hooks.stored(request(Request.SEND_MESSAGE), 0, 0, "id", PutResult(PutStatus.OK))
        hooks.refused(request(Request.SEND_MESSAGE), 1, "late")
        assert not witness.afters
