"""Checks receives by gRPC: what arrives, waiting, filters, acknowledgement, other tries, dead letters, order."""

import asyncio
import gzip
import hashlib
import zlib
from pathlib import Path

import pytest

from cometmq.clock import ManualClock
from cometmq.store.log.append import AppendRequest
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.record.properties import decode
from tests.broker.grpc.scene import scene, set_group
from tests.support.brokers import stored
from tests.support.grpc import GrpcPeer, ack_request, receive_request, received
from tests.support.net import until


def bodies(messages: list[pb.Message]) -> list[bytes]:
    return [message.body for message in messages]


async def test_a_message_arrives_whole_and_is_done_when_acknowledged(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock()) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"})
        await peer.send("T", b"hello", tag="a", keys=["k1", "k2"], properties={"colour": "red"}, trace_context="t")
        (message,) = await peer.receive("T")
        system = message.system_properties
        assert (message.topic.name, message.body, dict(message.user_properties)) == (
            "T", b"hello", {"colour": "red", "TRACE_CONTEXT": "t"},
        )  # fmt: skip
        assert (system.tag, list(system.keys), system.message_id, system.message_type) == (
            "a", ["k1", "k2"], f"ID{0:032d}", pb.NORMAL,
        )  # fmt: skip
        assert (system.born_host, system.queue_id, system.queue_offset, system.delivery_attempt) == ("here", 0, 0, 1)
        assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
        assert system.born_timestamp.ToMilliseconds() == 1_700_000_000_123
        assert system.store_host == broker.address
        parts = system.receipt_handle.split(" ")
        assert parts[2:8] == ["15000", "0", "0", "broker-a", "0", "0"]
        assert parts[8] == str(stored(broker, "T")[0].physical_offset)
        assert await peer.ack(message) == pb.OK
        assert await peer.ack(message) == pb.OK
        assert broker.tables.offsets.query("g", "T", 0) == 1


async def test_an_empty_poll_waits_and_ends_with_its_code(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"})
        first = peer.begin("ReceiveMessage", receive_request("T"))
        await until(lambda: broker.rooms.pop.waiting.count == 1)
        clock.advance(4.9)
        assert peer.frames.trailers(first) is None
        clock.advance(0.2)
        assert received(await peer.end(first)) == (pb.MESSAGE_NOT_FOUND, [])
        second = peer.begin("ReceiveMessage", receive_request("T"))
        await until(lambda: broker.rooms.pop.waiting.count == 1)
        await peer.send("T", b"new")
        clock.advance(0.05)
        assert bodies(received(await peer.end(second))[1]) == [b"new"]


async def test_tags_and_properties_choose(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock(), enablePropertyFilter=True) as (_, peer):
        await peer.settle_consumer("g", {"T": "*"})
        for number in range(6):
            await peer.send("T", b"%d" % number, tag="ab"[number % 2], properties={"n": str(number)})
        chosen = pb.FilterExpression(type=pb.TAG, expression="b || c")
        assert bodies(await peer.receive("T", filter_expression=chosen)) == [b"1", b"3", b"5"]
        chosen = pb.FilterExpression(type=pb.SQL, expression="n > 3")
        assert bodies(await peer.receive("T", "other", filter_expression=chosen)) == [b"4", b"5"]
        chosen.expression = "n >"
        code, _ = await peer.try_receive("T", "other", filter_expression=chosen)
        assert code == pb.ILLEGAL_FILTER_EXPRESSION


async def test_two_tags_with_one_hash_are_told_apart(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock()) as (broker, peer):
        await peer.settle_consumer("g", {"T": "Aa"})
        await peer.send("T", b"no", tag="BB")
        await peer.send("T", b"yes", tag="Aa")
        chosen = pb.FilterExpression(type=pb.TAG, expression="Aa")
        (message,) = await peer.receive("T", filter_expression=chosen)
        assert message.body == b"yes"
        await peer.ack(message)
        assert broker.tables.offsets.query("g", "T", 0) == 2


@pytest.mark.mission("GR-03")
async def test_a_message_that_nobody_acknowledges_comes_again_and_ends_among_the_dead(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        set_group(broker, "g", retry_max_times=1)
        settings = await peer.settle_consumer("g", {"T": "*"})
        assert settings.backoff_policy.max_attempts == 2
        await peer.send("T", b"bad", tag="a", properties={"colour": "red"})
        for attempt in (1, 2):
            (message,) = await peer.receive("T")
            assert message.system_properties.delivery_attempt == attempt
            clock.advance(16)
        waiting = peer.begin("ReceiveMessage", receive_request("T"))
        await until(lambda: broker.store.queue_bounds("%DLQ%g", 0)[1] == 1)
        clock.advance(5)
        await peer.end(waiting)
        (letter,) = stored(broker, "%DLQ%g")
        assert letter.body == b"bad"
        assert decode(letter.properties).items() >= {"TAGS": "a", "colour": "red", "WAIT": "false"}.items()
        await peer.settle_consumer("undertaker", {"%DLQ%g": "*"})
        (found,) = await peer.receive("%DLQ%g", "undertaker")
        assert (found.body, found.system_properties.message_id) == (b"bad", f"ID{0:032d}")


async def test_a_message_is_put_off_and_its_old_handle_is_dead(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"})
        await peer.send("T", b"x")
        (message,) = await peer.receive("T")
        clock.advance(1)
        answer = await peer.later(message, 20_000)
        assert answer.status.code == pb.OK
        assert len(answer.receipt_handle.split(" ")) == 9
        assert await peer.ack(message) == pb.OK
        assert broker.tables.offsets.query("g", "T", 0) == 0
        clock.advance(19)
        message.system_properties.receipt_handle = answer.receipt_handle
        assert await peer.ack(message) == pb.OK
        assert broker.tables.offsets.query("g", "T", 0) == 1


async def test_handles_that_are_none_or_over_are_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (_, peer):
        await peer.settle_consumer("g", {"T": "*"})
        await peer.send("T", b"x")
        (message,) = await peer.receive("T")
        request = ack_request(message)
        request.entries.append(pb.AckMessageEntry(message_id="m", receipt_handle="rubbish"))
        answer = await peer.call("AckMessage", request, pb.AckMessageResponse)
        assert answer.status.code == pb.MULTIPLE_RESULTS
        assert [it.status.code for it in answer.entries] == [pb.OK, pb.INVALID_RECEIPT_HANDLE]
        clock.advance(16)
        assert await peer.ack(message) == pb.INVALID_RECEIPT_HANDLE
        assert (await peer.later(message, 1)).status.code == pb.INVALID_RECEIPT_HANDLE
        assert (await peer.later(message, 13 * 3_600_000)).status.code == pb.ILLEGAL_INVISIBLE_TIME


async def test_what_a_receive_may_not_ask_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock()) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"})
        set_group(broker, "closed", consume_enable=False)
        for topic, group, fields, code in (
            ("T", "g", {"invisible_ms": 9_999}, pb.ILLEGAL_INVISIBLE_TIME),
            ("T", "g", {"invisible_ms": 12 * 3_600_000 + 1}, pb.ILLEGAL_INVISIBLE_TIME),
            ("Nowhere", "g", {}, pb.TOPIC_NOT_FOUND),
            ("a b", "g", {}, pb.ILLEGAL_TOPIC),
            ("T", "a b", {}, pb.ILLEGAL_CONSUMER_GROUP),
            ("T", "CID_RMQ_SYS_TRANS", {}, pb.ILLEGAL_CONSUMER_GROUP),
            ("T", "closed", {}, pb.INTERNAL_SERVER_ERROR),
            ("T", "g", {"count": 0}, pb.MESSAGE_NOT_FOUND),
            ("T", "g", {"message_queue": pb.MessageQueue(broker=pb.Broker(name="else"))}, pb.BAD_REQUEST),
        ):
            found, _ = await peer.try_receive(topic, group, **fields)
            assert found == code, (topic, group, fields)
        short = peer.begin("ReceiveMessage", receive_request("T"), grpc_timeout="4000m")
        assert received(await peer.end(short))[0] == pb.ILLEGAL_POLLING_TIME
        old = peer.begin("ReceiveMessage", receive_request("T"), grpc_timeout="4S", x_mq_client_version="5.0.2")
        assert received(await peer.end(old))[0] == pb.BAD_REQUEST


async def test_a_receive_that_overtakes_its_settings_waits_for_them(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (_, peer):
        await peer.send("T", b"x")
        early = peer.begin("ReceiveMessage", receive_request("T"))
        await peer.send("T", b"y")
        await peer.settle_consumer("g", {"T": "*"})
        assert bodies(received(await peer.end(early))[1]) == [b"x", b"y"]
        async with GrpcPeer.at(f"127.0.0.1:{_.rooms.grpc.port}", "nobody") as other:
            lonely = other.begin("ReceiveMessage", receive_request("T"))
            await other.send("T", b"z")
            clock.advance(3.1)
            assert received(await other.end(lonely))[0] == pb.UNRECOGNIZED_CLIENT_TYPE


async def test_who_gives_up_a_receive_takes_no_message_with_it(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"})
        given_up = peer.begin("ReceiveMessage", receive_request("T", poll_ms=20_000))
        await until(lambda: broker.rooms.pop.waiting.count == 1)
        peer.give_up(given_up)
        await peer.send("T", b"x")
        clock.advance(0.05)
        assert broker.rooms.pop.waiting.count == 0
        (message,) = await peer.receive("T")
        assert message.system_properties.delivery_attempt == 1


async def test_a_client_whose_connection_breaks_leaves_no_waiter(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        async with GrpcPeer.of(broker, "c2") as other:
            await other.settle_consumer("g", {"T": "*"})
            other.begin("ReceiveMessage", receive_request("T"))
            await until(lambda: broker.rooms.pop.waiting.count == 1)
        await until(lambda: len(broker.rooms.grpc.server.connections) == 1)  # type: ignore[union-attr]
        clock.advance(0.05)
        assert broker.rooms.pop.waiting.count == 0
        await peer.settle_consumer("g", {"T": "*"})
        await peer.send("T", b"x")
        assert bodies(await peer.receive("T")) == [b"x"]


# Order


async def test_a_group_in_order_gets_one_batch_of_a_queue_at_a_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        set_group(broker, "g", consume_message_orderly=True)
        settings = await peer.settle_consumer("g", {"FIFO": "*"})
        assert settings.subscription.fifo
        for number in range(4):
            await peer.send("FIFO", b"%d" % number, message_group="ga")
        first = await peer.receive("FIFO", count=2, attempt_id="one")
        assert bodies(first) == [b"0", b"1"]
        assert first[0].system_properties.message_group == "ga"
        assert first[0].system_properties.receipt_handle.split(" ")[3] == "999"
        again = await peer.receive("FIFO", count=2, attempt_id="one")
        assert [(it.body, it.system_properties.delivery_attempt) for it in again] == [(b"0", 1), (b"1", 1)]
        blocked = peer.begin("ReceiveMessage", receive_request("FIFO", attempt_id="two"))
        await until(lambda: broker.rooms.pop.waiting.count == 1)
        for message in again:
            await peer.ack(message)
        clock.advance(0.05)
        code, rest = received(await peer.end(blocked))
        assert (code, bodies(rest)) == (pb.OK, [b"2", b"3"])
        await peer.ack(rest[0])
        clock.advance(16)
        (third,) = await peer.receive("FIFO", attempt_id="three")
        assert (third.body, third.system_properties.delivery_attempt) == (b"3", 2)


async def test_a_message_in_order_that_is_given_up_lets_its_queue_go_on(tmp_path: Path) -> None:
    async with scene(tmp_path, ManualClock()) as (broker, peer):
        set_group(broker, "g", consume_message_orderly=True)
        await peer.settle_consumer("g", {"FIFO": "*"}, pb.PUSH_CONSUMER)
        for number in range(2):
            await peer.send("FIFO", b"%d" % number, message_group="ga")
        (first,) = await peer.receive("FIFO", count=1, auto_renew=True)
        forward = pb.ForwardMessageToDeadLetterQueueRequest(
            group=pb.Resource(name="g"), topic=first.topic, message_id=first.system_properties.message_id,
            receipt_handle=first.system_properties.receipt_handle, delivery_attempt=17, max_delivery_attempts=17,
        )  # fmt: skip
        answer = await peer.call("ForwardMessageToDeadLetterQueue", forward, pb.ForwardMessageToDeadLetterQueueResponse)
        assert answer.status.code == pb.OK
        assert [message.body for message in stored(broker, "%DLQ%g")] == [b"0"]
        assert bodies(await peer.receive("FIFO", count=1)) == [b"1"]


# Renewal


async def test_what_a_push_consumer_works_on_is_renewed_and_its_first_handle_holds(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"}, pb.PUSH_CONSUMER)
        await peer.send("T", b"x")
        (message,) = await peer.receive("T", auto_renew=True)
        for _ in range(15):
            clock.advance(5)
        assert stored(broker, "%RETRY%g_T") == []
        assert await peer.ack(message) == pb.OK
        assert broker.tables.offsets.query("g", "T", 0) == 1


async def test_what_a_client_had_in_hand_is_anothers_soon_after_it_has_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    async with scene(tmp_path, clock) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"}, pb.PUSH_CONSUMER)
        await peer.send("T", b"x")
        (message,) = await peer.receive("T", auto_renew=True)
        goodbye = pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
        answer = await peer.call("NotifyClientTermination", goodbye, pb.NotifyClientTerminationResponse)
        assert answer.status.code == pb.OK
        clock.advance(1.3)
        async with GrpcPeer.of(broker, "c2") as other:
            await other.settle_consumer("g", {"T": "*"}, pb.PUSH_CONSUMER)
            (again,) = await other.receive("T", auto_renew=True)
        assert (again.body, again.system_properties.delivery_attempt) == (b"x", 2)
        assert message.body == b"x"


# Bodies that other clients have compressed


@pytest.mark.parametrize(("packed", "flag", "encoding"), [
    (zlib.compress(b"hello"), 0x301, pb.IDENTITY), (gzip.compress(b"hello"), 0x1, pb.GZIP),
])  # fmt: skip
async def test_every_client_can_read_what_another_one_has_compressed(
    tmp_path: Path, packed: bytes, flag: int, encoding: pb.Encoding
) -> None:
    async with scene(tmp_path, ManualClock()) as (broker, peer):
        await peer.settle_consumer("g", {"T": "*"})
        broker.store.put(AppendRequest("T", 0, packed, "UNIQ_KEY\x01u\x02", sys_flag=flag))
        await asyncio.sleep(0)
        (message,) = await peer.receive("T")
        assert message.system_properties.body_encoding == encoding
        assert message.body == (b"hello" if encoding == pb.IDENTITY else packed)
        assert message.system_properties.body_digest.checksum == hashlib.md5(message.body).hexdigest().upper()
