"""Finding, reading and resending stored messages, against real brokers in the test's process."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cometmq import Message, Reject, StartFrom
from cometmq.client.admin.dead_letters import REPLAYED_FROM
from cometmq.client.admin.messages import _resolved
from cometmq.client.admin.trace_records import TraceRecord, read_records
from cometmq.errors import CallError, ConfigError, NoRoute, NotFound, SendFailed
from cometmq.names import dlq_topic, retry_topic
from cometmq.wire.record.message_id import encode_offset_id, offset_id_prefix
from tests.conftest import run
from tests.support.brokers import stored
from tests.support.clusters import real_cluster
from tests.support.consuming import quick
from tests.support.net import until


class Refuse:
    """Lets no request to these addresses out."""

    def __init__(self, addresses: set[str]) -> None:
        self._addresses = addresses

    def before(self, peer: str, request: Any) -> None:
        if peer in self._addresses:
            raise SendFailed(f"request to {peer}: cut off by the test")

    def after(self, peer: str, request: Any, response: Any) -> None: ...


async def test_a_message_is_found_by_id_offset_id_and_key(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders", brokers=2) as cluster,
        cluster.client() as client,
        client.admin() as admin,
        client.producer("pg") as producer,
    ):
        receipts = [
            await producer.send("orders", f"body {number}".encode(), tag="paid", keys=["all", f"k{number}"])
            for number in range(6)
        ]
        for number, receipt in enumerate(receipts):
            for found in (
                await admin.message(receipt.id, "orders"),
                await admin.message(receipt.offset_id),
                *await admin.find("orders", key=f"k{number}"),
            ):
                assert found.body == f"body {number}".encode()
                assert (found.id, found.offset_id) == (receipt.id, receipt.offset_id)
                assert (found.queue, found.offset) == (receipt.queue, receipt.offset)
        assert len(await admin.find("orders", key="all")) == 6
        assert len(await admin.find("orders", key="all", max_messages=2)) == 2
        assert await admin.find("orders", key="none") == []
        later = datetime.now(UTC) + timedelta(hours=1)
        assert await admin.find("orders", key="all", begin=later) == []
        with pytest.raises(NotFound, match="topic orders has no message with id"):
            await admin.message("7F0000010001" + "0" * 20, "orders")
        with pytest.raises(ConfigError, match="give the topic too"):
            await admin.message("nothing")


async def test_an_id_that_names_no_broker_of_the_cluster_is_not_followed(tmp_path: Path) -> None:
    """An id of a producer can be read as an address, too: nobody may be called because of it."""
    calls: list[object] = []

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer.get_extra_info("peername"))
        writer.close()

    stranger = await asyncio.start_server(called, "127.0.0.1", 0)
    port = stranger.sockets[0].getsockname()[1]
    made_up = encode_offset_id(offset_id_prefix(bytes([127, 0, 0, 1]), port), 0)
    async with (
        real_cluster(tmp_path, "orders") as cluster,
        cluster.client() as client,
        client.admin() as admin,
        client.producer("pg") as producer,
    ):
        receipt = await producer.send("orders", b"x")
        with pytest.raises(NotFound, match=f"no broker .* {made_up} .127.0.0.1:{port}.*give the topic"):
            await admin.message(made_up)
        with pytest.raises(NotFound, match="topic orders has no message"):
            await admin.message(made_up, "orders")
        with pytest.raises(ConfigError, match="give the topic too"):
            await admin.message(receipt.id)
        beyond = receipt.offset_id[:16] + f"{1 << 40:016X}"
        with pytest.raises(NotFound, match=f"has a message with offset id {beyond}"):
            await admin.message(beyond)
    stranger.close()
    await stranger.wait_closed()
    assert calls == []


@pytest.mark.parametrize("brokers", [1, 2])
async def test_an_offset_id_with_a_former_address_of_a_broker_is_found(tmp_path: Path, brokers: int) -> None:
    """The brokers move: their old addresses are nobody's, or, worse, those of another one of the cluster."""
    calls: list[object] = []

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer.get_extra_info("peername"))
        writer.close()

    async with (
        real_cluster(tmp_path, "orders", brokers=brokers) as cluster,
        cluster.client() as client,
        client.producer("pg") as producer,
    ):
        receipts = [await producer.send("orders", b"body %d" % number) for number in range(8)]
        ports = [int(broker.address.rpartition(":")[2]) for broker in cluster.brokers]
    strangers = [await asyncio.start_server(called, "127.0.0.1", port) for port in ports]
    async with (
        real_cluster(tmp_path, brokers=brokers) as cluster,
        cluster.client() as client,
        client.admin() as admin,
    ):
        for number, receipt in enumerate(receipts):
            for found in (
                await admin.message(receipt.offset_id),
                await admin.message(receipt.offset_id.lower()),
                await admin.message(receipt.offset_id, "orders"),
            ):
                assert (found.body, found.offset_id) == (b"body %d" % number, receipt.offset_id)
                assert found.queue == receipt.queue
        if brokers == 2:  # each looks like a message of the other one
            prefixes = [offset_id_prefix(bytes([127, 0, 0, 1]), port) for port in ports]
            for receipt in receipts[:2]:
                swapped = next(one for one in prefixes if not receipt.offset_id.startswith(one))
                found_of_other = swapped + receipt.offset_id[16:]
                known = {other.offset_id for other in receipts}
                if found_of_other not in known:
                    with pytest.raises(NotFound):
                        await admin.message(found_of_other)
    for stranger in strangers:
        stranger.close()
        await stranger.wait_closed()
    assert calls == []


async def test_a_broker_that_does_not_answer_is_no_proof_that_a_message_is_gone(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "orders", brokers=2) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            receipt = await producer.send("orders", b"x")
        assert receipt.queue is not None
        holder = next(one for one in cluster.brokers if one.settings.config.broker_name == receipt.queue.broker_name)
        moved = offset_id_prefix(bytes([127, 0, 0, 1]), 1) + receipt.offset_id[16:]
        hook = Refuse({holder.address})
        client.instance.net.add_hook(hook)
        async with client.admin() as admin:
            with pytest.raises(CallError, match=holder.address):
                await admin.message(moved)


def test_a_broker_that_is_registered_by_a_host_name_is_known_by_its_numbers() -> None:
    assert "127.0.0.1:10911" in run(_resolved("localhost:10911"))
    assert run(_resolved("no-such-host.invalid:10911")) == set()


async def test_messages_of_a_time_range_are_read_from_all_queues(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders") as cluster,
        cluster.client() as client,
        client.admin() as admin,
        client.producer("pg") as producer,
    ):
        for number in range(70):
            await producer.send("orders", str(number).encode(), ordering_key=number % 2)
        begin = datetime.now(UTC) - timedelta(hours=1)
        found = [message async for message in admin.find_by_time("orders", begin)]
        assert sorted(int(message.body) for message in found) == list(range(70))
        middle = found[20].stored_at
        early = [message async for message in admin.find_by_time("orders", begin, middle)]
        late = [message async for message in admin.find_by_time("orders", middle)]
        assert all(message.stored_at < middle for message in early)
        assert len(early) + len(late) == 70


async def test_a_resent_message_is_a_new_one_with_the_same_content(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders", "copies") as cluster,
        cluster.client() as client,
        client.admin() as admin,
        client.producer("pg") as producer,
    ):
        receipt = await producer.send("orders", b"x" * 10_000, tag="t", keys=["k"], properties={"colour": "red"})
        original = await admin.message(receipt.id, "orders")
        again = await admin.resend(original, "copies")
        copy = await admin.message(again.id, "copies")
        assert again.id != receipt.id
        assert (copy.body, copy.tag, copy.keys) == (original.body, "t", ("k",))
        assert copy.user_properties["colour"] == "red"


async def test_dead_letters_are_listed_and_replayed_to_where_they_came_from(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders", dlq_topic("billing"), queues=1) as cluster,
        cluster.client() as client,
        client.admin() as admin,
    ):
        (queue,) = await admin.topic_queues("orders")
        (graves,) = await admin.topic_queues(dlq_topic("billing"))
        assert [message async for message in admin.dead_letters("billing")] == []
        assert [message async for message in admin.dead_letters("nobody")] == []
        async with client.producer("pg") as producer:
            for number in range(3):
                await producer.send("orders", str(number).encode(), keys=[f"k{number}"])
        for message in [message async for message in admin.read(queue)]:
            await _give_up(cluster.broker.address, client, message.physical_offset)
        await until(lambda: cluster.broker.store.queue_bounds(graves.topic, 0)[1] == 3)
        letters = [message async for message in admin.dead_letters("billing")]
        assert [letter.body for letter in letters] == [b"0", b"1", b"2"]

        sent = [it async for it in admin.replay_dead_letters("billing", to_origin=True, ids=[letters[1].id])]
        assert [(it.id, it.topic, it.error) for it in sent] == [(letters[1].id, "orders", None)]
        replayed = [message async for message in admin.read(queue, 3)]
        assert [(message.body, message.keys) for message in replayed] == [(b"1", ("k1",))]
        refused = [it async for it in admin.replay_dead_letters("billing", topic="nowhere")]
        assert ["no name server knows topic" in (it.error or "") for it in refused] == [True] * 3


@pytest.mark.mission("DU-01")
async def test_a_dead_letter_is_replayed_to_its_own_group_once_and_under_its_old_id(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders", queues=1) as cluster,
        cluster.client() as client,
        client.admin() as admin,
    ):
        others: list[bytes] = []
        tried: list[Message[bytes]] = []

        async def bury(message: Message[bytes]) -> None:
            tried.append(message)
            if message.properties.get(REPLAYED_FROM) is None:
                raise Reject("no stock")

        async def note(body: bytes) -> None:
            others.append(body)

        billing, mailing = quick(client, "billing"), quick(client, "mailing")
        billing.subscribe("orders", bury)
        mailing.subscribe("orders", note)
        async with billing, mailing:
            async with client.producer("pg") as producer:
                receipt = await producer.send("orders", b"one copy", keys=["k"])
            await until(lambda: others and stored(cluster.broker, dlq_topic("billing")))
            letters = [letter async for letter in admin.dead_letters("billing")]
            assert [letter.id for letter in letters] == [receipt.id]
            sent = [it async for it in admin.replay_dead_letters("billing")]
            assert [(it.id, it.topic, it.error, it.skipped) for it in sent] == [
                (receipt.id, retry_topic("billing"), None, False)
            ]
            await until(lambda: len(tried) == 2)
            again = tried[1]
            assert (again.id, again.topic, again.body, again.keys) == (receipt.id, "orders", b"one copy", ("k",))
            assert again.properties[REPLAYED_FROM] == "billing/broker-a/0/0"
            assert again.delivery_count == 1
            (second,) = [it async for it in admin.replay_dead_letters("billing")]
            assert second.skipped
            assert (len(tried), others) == (2, [b"one copy"])


async def _give_up(address: str, client: object, physical_offset: int) -> None:
    """What a consumer does with a message that it rejects."""
    from cometmq import Client
    from cometmq.wire.codes import Request
    from cometmq.wire.headers import SendMessageBack

    assert isinstance(client, Client)
    header = SendMessageBack(physical_offset, "billing", -1)
    await client.instance.ask(address, client.instance.request(Request.CONSUMER_SEND_MSG_BACK, header.encode()), 20)


def test_trace_records_of_all_lengths_are_read() -> None:
    pub = (
        "Pub\x011700000000000\x01DefaultRegion\x01PG\x01T\x017F0000010001\x01TagA\x01k1 k2\x0110.0.0.2:10911\x0111"
        "\x015\x010\x010A000002"
    )
    before = "SubBefore\x011700000000001\x01null\x01CG\x01R1\x017F0000010001\x012\x01k1"
    after = "SubAfter\x01R1\x017F0000010001\x017\x01false\x01k1"
    text = f"{pub}\x01true\x02{pub}\x02{before}\x02{after}\x014\x011700000000009\x01CG\x02{after}\x02Odd\x011\x02"
    whole, short, came, went, bare = read_records(text.encode())
    assert (whole.kind, whole.topic, whole.group, whole.keys, whole.tag) == ("Pub", "T", "PG", ("k1", "k2"), "TagA")
    assert (whole.cost_ms, whole.address, whole.message_type) == (5, "10.0.0.2:10911", "normal")
    assert short == whole
    assert (came.group, came.retries, came.request) == ("CG", 2, "R1")
    assert (went.success, went.cost_ms, went.outcome, went.time_ms) == (False, 7, "failed", 1700000000009)
    assert (bare.outcome, bare.time_ms) == ("", 0)


async def test_the_trace_of_a_message_tells_who_sent_and_who_consumed_it(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "orders", queues=1) as cluster,
        cluster.client() as client,
        client.admin() as admin,
    ):
        async with client.producer("shop", trace=True) as producer:
            receipt = await producer.send("orders", b"x", tag="t", keys=["k"])
        async with client.consumer("billing", "orders", start=StartFrom.FIRST, trace=True) as consumer:
            assert await anext(aiter(consumer.iter(timeout=20))) is not None
        records: list[TraceRecord] = []
        while len(records) < 3:
            records = await admin.trace(receipt.id)
            await asyncio.sleep(0.01)
        sent, before, after = records
        assert (sent.kind, sent.group, sent.topic, sent.keys) == ("Pub", "shop", "orders", ("k",))
        assert (before.kind, before.group) == ("SubBefore", "billing")
        assert (after.kind, after.success, after.request) == ("SubAfter", True, before.request)
        assert await admin.trace("nothing") == []


async def test_an_unknown_topic_says_how_to_make_it(tmp_path: Path) -> None:
    async with real_cluster(tmp_path) as cluster, cluster.client() as client, client.admin() as admin:
        with pytest.raises(NoRoute, match="cometmq topic create"):
            await admin.find("nowhere", key="k")
