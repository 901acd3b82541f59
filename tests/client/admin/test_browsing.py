"""Reading a topic page by page, and what a cluster keeps back: on an embedded cluster."""

import pytest

from cometmq import Tx
from cometmq.errors import BrokerError, ConfigError, NotFound
from cometmq.testing import Cluster
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command


async def test_pages_of_a_queue_go_on_where_the_last_one_ended() -> None:
    async with Cluster(topics=["orders"], queues=1) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.producer("pg") as producer:
            for number in range(50):
                await producer.send("orders", str(number).encode(), tag="odd" if number % 2 else "even")
        (queue,) = await admin.topic_queues("orders")
        bodies, at = [], 0
        while (page := await admin.read_page(queue, at, 20)).copies:
            bodies += [copy.message.body for copy in page.copies]
            at = page.next_offset
        assert bodies == [str(number).encode() for number in range(50)]
        odd = await admin.read_page(queue, 0, 20, tag="odd")
        assert [copy.message.tag for copy in odd.copies] == ["odd"] * len(odd.copies)
        assert odd.copies
        assert (await admin.read_page(queue, 50)).copies == ()
        assert await admin.oldest_stored_ms(queue) > 0
        with pytest.raises(ConfigError, match="1 to 256"):
            await admin.read_page(queue, 0, 0)


async def test_a_copy_says_how_it_is_stored_and_is_found_by_both_ids() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.producer("pg") as producer:
            receipt = await producer.send("orders", b"x" * 10_000, keys=["4711"])
        (copy,) = await admin.copies("orders", key="4711")
        assert (copy.compression, len(copy.message.body), copy.body_fault) == ("zlib", 10_000, "")
        assert copy.stored_body_bytes < 1000
        assert copy.born_host.startswith("127.0.0.1:")
        (by_id,) = await admin.copies("orders", key=receipt.id, by_id=True)
        assert (await admin.copy_at(receipt.offset_id)).message == by_id.message == copy.message
        assert await admin.copies("orders", key="none") == []
        with pytest.raises(ConfigError):
            await admin.copy_at("no id")
        with pytest.raises(NotFound):
            await admin.copy_at(receipt.offset_id[:-4] + "FFFF")


async def test_what_waits_is_listed_by_due_time_until_it_is_due_or_recalled() -> None:
    settings = {"recallMessageEnable": True}
    async with (
        Cluster(topics=["orders"], settings=settings) as cluster,
        cluster.client() as client,
        client.admin() as admin,
    ):
        async with client.producer("pg") as producer:
            await producer.send("orders", b"late", delay=7200)
            await producer.send("orders", b"soon", delay=60)
            await producer.send("orders", b"level", delay_level=16)
        found = await admin.waiting_messages()
        assert [(it.copy.message.body, it.kind, it.topic) for it in found.messages] == [
            (b"soon", "timer", "orders"), (b"level", "level", "orders"), (b"late", "timer", "orders")]  # fmt: skip
        assert found.all_looked
        await admin.recall_timer(found.messages[2])
        with pytest.raises(ConfigError):
            await admin.recall_timer(found.messages[1])
        await cluster.advance(120)
        assert [it.copy.message.body for it in (await admin.waiting_messages()).messages] == [b"level"]


async def test_open_halves_are_listed_once_and_ended_by_hand() -> None:
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        async with client.transaction_producer("shop", check=lambda message: Tx.UNKNOWN) as producer:
            for body in (b"one", b"two"):
                async with producer.begin("orders", body) as transaction:
                    transaction.state = Tx.UNKNOWN
            await cluster.advance(70)  # it was asked about, and copied
            halves = await admin.open_halves()
            assert [(half.copy.message.body, half.topic, half.group) for half in halves] == [
                (b"one", "orders", "shop"), (b"two", "orders", "shop")]  # fmt: skip
            assert all(half.checks >= 1 for half in halves)
            await admin.end_half(halves[0], commit=True)
            await admin.end_half(halves[1], commit=False)
        assert [message.body for message in await cluster.messages("orders")] == [b"one"]


async def test_a_broker_that_tells_only_of_all_topics_is_asked_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ 4 has no request for one topic."""
    async with Cluster(topics=["orders"]) as cluster, cluster.client() as client, client.admin() as admin:
        ask = admin.instance.ask

        async def old(address: str, command: Command, timeout_s: float) -> Command:
            if command.code == Request.GET_TOPIC_CONFIG:
                raise BrokerError(Response.REQUEST_CODE_NOT_SUPPORTED, "request type 351 not supported", address)
            return await ask(address, command, timeout_s)

        monkeypatch.setattr(admin.instance, "ask", old)
        assert (await admin.describe_topic("orders")).brokers[0].read_queues == 4
        assert (await admin.create_topic("fresh", queues=2)).brokers[0].read_queues == 2
