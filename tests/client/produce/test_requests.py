"""Request and reply."""

import asyncio
import time
from pathlib import Path

import pytest

from cometmq.client.codecs import json_codec
from cometmq.client.messages import Message, received
from cometmq.client.produce.requests import reply_address
from cometmq.clock import ManualClock
from cometmq.errors import BrokerError, CannotReply, NotRunning, RequestTimeout
from cometmq.wire.codes import Request
from tests.support.aio import settle
from tests.support.brokers import stored
from tests.support.clusters import RealCluster, producing, real_cluster, refuse, scripted_cluster
from tests.support.net import until


async def consumed(cluster: RealCluster, topic: str) -> Message[object]:
    """The first message of a topic, as a consumer would have it."""

    def found() -> list[Message[object]]:
        return [
            received(message, "broker-a", json_codec)
            for queue in range(4)
            for message in stored(cluster.broker, topic, queue)
        ]

    await until(found)
    return found()[0]


@pytest.mark.parametrize("body_bytes", [10, 5000])
async def test_a_request_has_the_reply_of_its_consumer(tmp_path: Path, body_bytes: int) -> None:
    async with (
        real_cluster(tmp_path, "Rpc") as cluster,
        cluster.client() as client,
        cluster.client() as other,
        client.producer("asker", codec=json_codec) as asker,
        other.producer("replier", codec=json_codec) as replier,
    ):
        asking = asyncio.ensure_future(asker.request("Rpc", {"q": 1}, timeout=10, tag="t"))
        question = await consumed(cluster, "Rpc")
        assert question.value == {"q": 1}
        await replier.reply(question, {"a": "x" * body_bytes}, properties={"colour": "blue"})
        answer = await asking
        assert answer.value == {"a": "x" * body_bytes}  # compressed on its way if it was large
        assert answer.properties["colour"] == "blue"
        assert int(answer.properties["ARRIVE_TIME"]) > 0
        assert len(client.instance.replies) == 0


async def test_requests_of_many_find_their_own_replies(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "Rpc", queues=1) as cluster,
        cluster.client() as client,
        client.producer("pg", codec=json_codec) as producer,
    ):
        asking = [asyncio.ensure_future(producer.request("Rpc", number, timeout=20)) for number in range(20)]
        await until(lambda: len(stored(cluster.broker, "Rpc")) == 20)
        for message in reversed(stored(cluster.broker, "Rpc")):
            question = received(message, "broker-a", json_codec)
            await producer.reply(question, question.value * 10)
        assert [answer.value for answer in await asyncio.gather(*asking)] == [n * 10 for n in range(20)]


@pytest.mark.mission("PC-01")
async def test_a_request_without_reply_fails_at_its_limit(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "Rpc") as cluster,
        cluster.client() as client,
        client.producer("pg", topics=("Rpc",)) as producer,
    ):
        began = time.monotonic()
        with pytest.raises(RequestTimeout) as failed:
            await producer.request("Rpc", b"anybody?", timeout=0.5)
        # Nothing else would end it; the upper bound is for a busy machine.
        assert 0.5 <= time.monotonic() - began < 20
        assert failed.value.code == 10006
        assert isinstance(failed.value, TimeoutError)
        assert len(client.instance.replies) == 0


@pytest.mark.mission("PC-01")
async def test_the_limit_of_a_request_is_kept_to_the_clock() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(clock) as client,
        client.producer("pg", topics=("T",)) as producer,
    ):
        asking = asyncio.ensure_future(producer.request("T", b"x", timeout=5))
        await until(lambda: cluster["a"].sends == 1)
        await until(lambda: client.instance.net.endpoint.calls.twoway.free == 65_535)
        clock.advance(4.9)
        await settle()
        assert not asking.done()
        clock.advance(0.2)
        with pytest.raises(RequestTimeout):
            await asking


async def test_a_request_that_cannot_be_sent_fails_at_once() -> None:
    async with producing("a") as (cluster, producer):
        cluster["a"].answers = [refuse(13)]
        with pytest.raises(BrokerError):
            await producer.request("T", b"x", timeout=30)
        assert len(producer.instance.replies) == 0


async def test_a_first_request_makes_its_sender_known_to_the_broker() -> None:
    async with producing("a", topics=()) as (cluster, producer):
        asking = asyncio.ensure_future(producer.request("T", b"x", timeout=30))
        await until(lambda: cluster["a"].sends == 1)
        asking.cancel()
        codes = [command.code for command in cluster["a"].asked]
        assert codes.index(Request.HEART_BEAT) < codes.index(Request.SEND_MESSAGE_V2)


async def test_a_client_that_stops_fails_its_requests() -> None:
    async with producing("a") as (cluster, producer):
        asking = asyncio.ensure_future(producer.request("T", b"x", timeout=30))
        await until(lambda: cluster["a"].sends == 1 and len(producer.instance.replies) == 1)
        await settle()
        await producer.instance.stop()
        with pytest.raises(NotRunning):
            await asking


def test_only_requests_can_be_replied_to() -> None:
    with pytest.raises(CannotReply, match="CLUSTER") as failed:
        reply_address({"CORRELATION_ID": "x", "REPLY_TO_CLIENT": "c", "TTL": "1"})
    assert failed.value.code == 10007
    topic, properties = reply_address({"CLUSTER": "c1", "CORRELATION_ID": "x", "REPLY_TO_CLIENT": "c", "TTL": "1"})
    assert topic == "c1_REPLY_TOPIC"
    assert properties == {"MSG_TYPE": "reply", "CORRELATION_ID": "x", "REPLY_TO_CLIENT": "c", "TTL": "1"}
