"""Requests that name a place instead of a topic: what is found there needs rights, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq.auth.signer import Signer
from cometmq.broker.server import Broker
from cometmq.wire.codes import Request
from cometmq.wire.command import reply, request
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.record.message import decode_records
from cometmq.wire.record.message_id import decode_offset_id, encode_offset_id, offset_id_prefix
from cometmq.wire.record.sysflag import TRANSACTION_COMMIT
from tests.support.access import SECURED, add_user, allow, grant, password_of, signed_peer
from tests.support.brokers import Peer, add_topic, heartbeat_body, running_broker, stored
from tests.support.net import RawPeer

PREFIX = offset_id_prefix(bytes(4), 10911)
MINE = ("Pub", "Sub", "Get")


@dataclass
class Scene:
    """alice has all rights on `mine` and her group `g`; `theirs` has a message."""

    broker: Broker
    root: Peer
    alice: Peer
    place: int


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    async with running_broker(directory, **SECURED) as broker, signed_peer(broker) as root:
        for name in ("mine", "theirs"):
            add_topic(broker, name)
        await add_user(root, "alice", allow("Topic:mine", *MINE), allow("Group:g", *MINE, "Create"))
        sent = await root.send("theirs", b"secret", properties={"KEYS": "order"})
        async with signed_peer(broker, "alice") as alice:
            yield Scene(broker, root, alice, decode_offset_id(sent.ext["msgId"]).physical_offset)


@pytest.mark.mission("AC-03")
async def test_viewing_by_offset_needs_the_topic_that_is_found(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        for ext in ({}, {"topic": "mine"}):
            refused = await it.alice.call(Request.VIEW_MESSAGE_BY_ID, offset=it.place, **ext)
            assert (refused.code, refused.body) == (16, b"")
            assert "Topic:theirs" in (refused.remark or "")
        assert b"secret" in (await it.root.call(Request.VIEW_MESSAGE_BY_ID, offset=it.place)).body


@pytest.mark.mission("AC-03")
async def test_sending_back_needs_the_topic_of_the_message(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        fields = {"offset": it.place, "group": "g", "delayLevel": 0, "originTopic": "mine", "maxReconsumeTimes": 16}
        refused = await it.alice.call(Request.CONSUMER_SEND_MSG_BACK, **fields)
        assert refused.code == 16
        assert "Topic:theirs" in (refused.remark or "")
        assert stored(it.broker, "%RETRY%g") == []


@pytest.mark.mission("AC-03")
async def test_a_transaction_is_ended_by_who_may_publish_its_message(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        properties = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "1"}
        half = await it.root.send("theirs", b"half", properties=properties, sys_flag=4)
        ends = {
            "producerGroup": "producers",
            "tranStateTableOffset": half.ext["queueOffset"],
            "commitLogOffset": decode_offset_id(half.ext["msgId"]).physical_offset,
            "commitOrRollback": TRANSACTION_COMMIT,
            "fromTransactionCheck": False,
            "msgId": "1",
            "transactionId": "1",
        }
        before = len(stored(it.broker, "theirs"))
        for ext in ({}, {"topic": "mine"}):
            refused = await it.alice.call(Request.END_TRANSACTION, **ends, **ext)
            assert refused.code == 16
            assert "Topic:theirs" in (refused.remark or "")
        assert len(stored(it.broker, "theirs")) == before
        assert (await it.root.call(Request.END_TRANSACTION, **ends)).code == 0
        assert len(stored(it.broker, "theirs")) == before + 1


@pytest.mark.mission("AC-03")
async def test_a_half_that_was_given_up_is_resumed_by_who_may_change_its_topic(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        properties = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "1"}
        half = await it.root.send("theirs", b"half", properties=properties, sys_flag=4)
        await grant(it.root, "alice", allow("Topic:mine", "Update"))
        refused = await it.alice.call(Request.RESUME_CHECK_HALF_MESSAGE, topic="mine", msgId=half.ext["msgId"])
        assert (refused.code, "Topic:theirs" in (refused.remark or "")) == (16, True)


@pytest.mark.mission("AC-03")
async def test_a_member_is_given_only_what_the_operator_may_read_and_never_a_signature(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, RawPeer.connected(it.broker.port) as member:
        joining = request(Request.HEART_BEAT, {}, heartbeat_body("g", topics={"mine": "*"}))
        Signer("alice", password_of("alice")).before("", joining)
        member.send(joining)
        while not (await member.receive()).is_response:
            pass  # the group is told of its new member first
        ask = {"consumerGroup": "g", "clientId": "client-1", "msgId": encode_offset_id(PREFIX, it.place)}
        refused = await it.alice.call(Request.CONSUME_MESSAGE_DIRECTLY, topic="mine", **ask)
        assert (refused.code, "Topic:theirs" in (refused.remark or "")) == (16, True)
        relayed = asyncio.ensure_future(it.root.call(Request.CONSUME_MESSAGE_DIRECTLY, topic="theirs", **ask))
        question = await member.receive()
        while question.code != Request.CONSUME_MESSAGE_DIRECTLY:
            question = await member.receive()
        assert b"secret" in question.body
        assert question.ext.keys() & {"AccessKey", "Signature", "SecurityToken"} == set()
        member.send(reply(question))
        assert (await relayed).code == 0


async def test_a_fence_of_one_user_refuses_nothing_of_another(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        raised = await it.root.call(Request.RAISE_FENCE, fence="sink")
        assert (await it.alice.call(Request.RAISE_FENCE, fence="sink")).code == 0
        late = {"CMQ_FENCE": f"sink:{raised.ext['epoch']}"}
        assert (await it.root.send("theirs", properties=late)).code == 0
        await it.root.call(Request.RAISE_FENCE, fence="sink")
        assert (await it.root.send("theirs", properties=late)).code == 16


@pytest.mark.mission("AC-03")
async def test_a_key_with_the_hash_of_another_topics_finds_nothing_of_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.broker.store.dispatch_now()
        key = key_with_hash("mine#", java_string_hash("theirs#order"))
        ask = {"key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
        found = await it.alice.call(Request.QUERY_MESSAGE, topic="mine", **ask)
        assert found.body == b""
        own = await it.root.call(Request.QUERY_MESSAGE, topic="theirs", **{**ask, "key": "order"})
        assert [message.body for message in decode_records(own.body)] == [b"secret"]


def key_with_hash(prefix: str, wanted: int) -> str:
    """Text that makes `prefix` and it hash to `wanted`: seven digits to the base 31 reach every hash."""
    rest = (wanted - java_string_hash(prefix + "\x20" * 7)) % 2**32
    digits = []
    for _ in range(7):
        rest, digit = divmod(rest, 31)
        digits.append(chr(0x20 + digit))
    key = "".join(reversed(digits))
    assert java_string_hash(prefix + key) == wanted
    return key
