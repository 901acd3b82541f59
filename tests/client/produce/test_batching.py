"""Many messages in few requests: what is packed together, what is not, and how much may wait."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.client.messages import SendReceipt
from cometmq.clock import ManualClock
from cometmq.errors import Backpressure, BrokerError, MessageRefused, NotRunning
from cometmq.net.connection import Connection
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import SendMessage
from cometmq.wire.record.batch import split_batch
from cometmq.wire.record.properties import decode
from tests.support.aio import run, settle
from tests.support.brokers import stored
from tests.support.clusters import (
    ScriptedCluster,
    accept,
    producing,
    real_cluster,
    refuse,
    scripted_cluster,
    silence,
)
from tests.support.length import by_length
from tests.support.net import until


def batches(cluster: ScriptedCluster, name: str = "a") -> list[list[bytes]]:
    """The bodies of every send that a broker got, by request."""
    found = []
    for command in cluster[name].asked:
        if command.code == Request.SEND_BATCH_MESSAGE:
            found.append([body for _, body, _ in split_batch(command.body)])
        elif command.code == Request.SEND_MESSAGE_V2:
            found.append([command.body])
    return found


async def test_messages_sent_soon_travel_together(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", queues=1) as cluster, cluster.client() as client:
        async with client.producer("pg") as producer:
            futures = [
                producer.send_soon("T", b"%d" % number, tag="t", keys=[f"k{number}"], properties={"n": str(number)})
                for number in range(100)
            ]
            receipts = await asyncio.gather(*futures)
        messages = stored(cluster.broker, "T")
        assert [message.body for message in messages] == [b"%d" % number for number in range(100)]
        for number, (message, receipt) in enumerate(zip(messages, receipts, strict=True)):
            properties = decode(message.properties)
            assert (properties["TAGS"], properties["KEYS"], properties["n"]) == ("t", f"k{number}", str(number))
            assert properties["UNIQ_KEY"] == receipt.id
            assert (receipt.offset, receipt.queue.queue_id) == (number, 0)
        assert len({receipt.offset_id for receipt in receipts}) == 100


async def test_a_batch_waits_its_time_or_until_it_is_full() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster("a") as cluster,
        cluster.client(clock) as client,
        client.producer("pg", topics=("T",), batch_bytes=10_000, batch_delay=0.5) as producer,
    ):
        first = [producer.send_soon("T", b"x" * 100) for _ in range(3)]
        clock.advance(0.49)
        await settle()
        assert batches(cluster) == []
        clock.advance(0.01)
        await asyncio.gather(*first)
        assert batches(cluster) == [[b"x" * 100] * 3]
        for _ in range(100):
            producer.send_soon("T", b"y" * 100)
        await until(lambda: len(batches(cluster)) > 1)  # without the clock
        assert all(25 < len(batch) < 80 for batch in batches(cluster)[1:])
        await producer.flush()
        assert sum(map(len, batches(cluster))) == 103


async def test_what_belongs_together_is_decided_by_topic_place_wait_and_tag() -> None:
    async with producing("a", topics=("T", "U")) as (cluster, producer):
        queue = MessageQueue("a", 2, "T")
        for _ in range(2):
            producer.send_soon("T", b"plain")
            producer.send_soon("U", b"topic")
            producer.send_soon("T", b"tag", tag="t")
            producer.send_soon("T", b"wait", wait=False)
            producer.send_soon("T", b"queue", queue=queue)
            producer.send_soon("T", b"key", ordering_key="k")
            producer.send_soon("T", b"delayed", delay_level=1)
        await producer.flush()
        assert Counter(tuple(batch) for batch in batches(cluster)) == {
            (b"plain",) * 2: 1,
            (b"topic",) * 2: 1,
            (b"tag",) * 2: 1,
            (b"wait",) * 2: 1,
            (b"queue",) * 2: 1,
            (b"key",) * 2: 1,
            (b"delayed",): 2,
        }


async def test_a_batch_that_fails_fails_each_of_its_messages() -> None:
    async with producing("a") as (cluster, producer):
        cluster["a"].answers = [refuse(13, "too large")]
        futures = [producer.send_soon("T", b"x") for _ in range(3)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [getattr(outcome, "code", None) for outcome in outcomes] == [13, 13, 13]
        assert cluster["a"].sends == 1
        producer.send_soon("T", b"nobody looks at this one")
        await producer.flush()
        assert producer._buffer.held_bytes == 0


async def test_messages_of_one_place_keep_their_order() -> None:
    async with producing("a", "b", batch_bytes=300) as (cluster, producer):
        for broker in cluster.brokers.values():
            broker.delay_s = 0.002
        for number in range(200):
            producer.send_soon("T", b"%04d" % number, ordering_key="customer")
        await producer.flush()
        (used,) = [name for name, count in cluster.sends.items() if count]
        in_order = [body for batch in batches(cluster, used) for body in batch]
        assert in_order == [b"%04d" % number for number in range(200)]


async def test_a_full_buffer_says_so_and_room_comes_back() -> None:
    async with producing("a", buffer_bytes=10_000, batch_bytes=1000) as (cluster, producer):
        cluster["a"].answers = [silence]
        while producer._buffer.has_room:
            producer.send_soon("T", b"x" * 1000)
        assert producer._buffer.held_count < 10
        with pytest.raises(Backpressure, match="buffer_bytes is 10000"):
            producer.send_soon("T", b"x")
        waiting = asyncio.ensure_future(producer.ready())
        await settle()
        assert not waiting.done()
        cluster["a"].answers = [accept()]
        cluster["a"].server.connections[0].cut("test")  # what had no answer is tried again
        await waiting
        producer.send_soon("T", b"x")
        await producer.flush()
        await producer.ready()


def test_send_many_gives_receipts_in_the_order_of_values(tmp_path: Path) -> None:
    async def main() -> None:
        async with real_cluster(tmp_path, "T", mappedFileSizeCommitLog=32 << 20) as cluster, cluster.client() as client:
            async with client.producer("pg") as producer:
                receipts = await producer.send_many("T", (b"%d" % number for number in range(20_000)), tag="t")
                assert await producer.send_many("T", []) == []

                async def values() -> AsyncIterator[bytes]:
                    for number in range(3):
                        yield b"async %d" % number

                assert len(await producer.send_many("T", values())) == 3
            messages = [message for queue in range(4) for message in stored(cluster.broker, "T", queue)]
            places = {(message.queue_id, message.queue_offset): message.body for message in messages}
            found = [places[receipt.queue.queue_id, receipt.offset] for receipt in receipts]
            assert found == [b"%d" % number for number in range(20_000)]

    run(main(), timeout_s=60)


async def test_send_many_cuts_by_size_and_keeps_order_in_one_queue() -> None:
    async with producing("a", "b", max_message_bytes=10_000) as (cluster, producer):
        values = [b"%d" % number * 300 for number in range(10, 60)]
        await producer.send_many("T", values, ordering_key="k")
        (used,) = [name for name, count in cluster.sends.items() if count]
        sent = batches(cluster, used)
        assert [body for batch in sent for body in batch] == values
        assert len(sent) > 5
        with pytest.raises(MessageRefused, match="max_message_bytes"):
            await producer.send_many("T", [b"x" * 10_001])
        delayed = await producer.send_many("T", [b"1", b"2"], delay_level=1)
        assert len(delayed) == 2


async def test_send_many_stops_at_the_first_error() -> None:
    async with producing("a", max_message_bytes=10_000) as (cluster, producer):
        cluster["a"].answers = [accept(), refuse(13)]
        numbers = iter(range(10_000))
        with pytest.raises(BrokerError) as failed:
            await producer.send_many("T", (b"%01000d" % number for number in numbers))
        assert next(numbers) < 1000
        assert any("were stored" in note for note in failed.value.__notes__)


async def test_a_batch_stored_as_one_record_gives_all_the_same_place() -> None:
    async with producing("a") as (cluster, producer):
        cluster["a"].answers = [accept(batch_uniq_id="ABC")]
        receipts = await producer.send_many("T", [b"1", b"2", b"3"])
        assert len({(receipt.offset_id, receipt.offset) for receipt in receipts}) == 1
        assert len({receipt.id for receipt in receipts}) == 3


async def test_stopping_sends_what_waits_and_a_lost_client_says_so() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client:
        producer = client.producer("pg", topics=("T",), batch_delay=30)
        await producer.start()
        future = producer.send_soon("T", b"x")
        await producer.stop()
        assert isinstance(await future, SendReceipt)
        cut = client.producer("cut", topics=("T",))
        await cut.start()
        cluster["a"].answers = [silence]
        lost = cut.send_soon("T", b"x")
        await until(lambda: cluster["a"].sends == 2)
        await client.instance.stop()
        with pytest.raises(NotRunning):
            await lost


async def test_sends_wait_for_room_in_the_window() -> None:
    async with producing("a", max_in_flight=8) as (cluster, producer):
        kept: list[Command] = []
        cluster["a"].answers = [kept.append]
        sends = [asyncio.ensure_future(producer.send("T", b"x", timeout=20)) for _ in range(100)]
        await until(lambda: len(kept) == 8)
        await settle()
        assert cluster["a"].sends == 8
        cluster["a"].answers = [accept()]
        (connection,) = cluster["a"].server.connections
        for received in kept:
            connection.answer(received, accept()(received))
        receipts = await asyncio.gather(*sends)
        assert len({receipt.id for receipt in receipts}) == 100
        cluster["a"].answers = [silence]
        inside = [asyncio.ensure_future(producer.send("T", b"x", timeout=20)) for _ in range(8)]
        await until(lambda: cluster["a"].sends == 108)
        with pytest.raises(Backpressure):
            await producer.send("T", b"x", timeout=0.1)
        for send in inside:
            send.cancel()
        await asyncio.gather(*inside, return_exceptions=True)


class SlowBroker:
    """Stores nothing, answers requests one after the other and rests between them. All members are of one size, so it
    counts them by their bytes."""

    def __init__(self) -> None:
        self.messages = 0
        self._line: asyncio.Queue[tuple[Connection, Command]] = asyncio.Queue()

    def take(self, connection: Connection, received: Command) -> Command | None:
        if received.code != Request.SEND_BATCH_MESSAGE:
            return reply(received)
        self._line.put_nowait((connection, received))
        return None

    async def work(self) -> None:
        while True:
            connection, received = await self._line.get()
            member_bytes = int.from_bytes(received.body[:4], "big")
            count, rest = divmod(len(received.body), member_bytes)
            assert rest == 0
            self.messages += count
            await asyncio.sleep(0.0005)
            header = SendMessage.decode_v2(received.ext)
            ids = ",".join(["7F0000010000000A0000000000000000"] * count)
            ext = {"msgId": ids, "queueId": str(header.queue_id), "queueOffset": "0"}
            connection.answer(received, reply(received, 0, None, ext))


@pytest.mark.repeated
@pytest.mark.mission("PC-10")
def test_a_flood_of_sends_to_a_slow_broker_stay_within_their_bounds() -> None:
    count = by_length(200_000, 1_000_000, 1_000_000)
    buffer_bytes = 16 << 20

    async def main() -> None:
        async with producing("a", buffer_bytes=buffer_bytes, batch_bytes=65_536, timeout=60) as (cluster, producer):
            slow = SlowBroker()
            default = cluster["a"].server.dispatcher.default
            assert default is not None
            default.handler = slow.take
            working = asyncio.ensure_future(slow.work())
            called = 0
            wrong: list[object] = []

            def on_done(future: "asyncio.Future[SendReceipt]") -> None:
                nonlocal called
                called += 1
                if future.exception() is not None:
                    wrong.append(future.exception())

            most_held = most_memory = refused = 0
            memory = resident_bytes()
            for number in range(count):
                while True:
                    try:
                        future = producer.send_soon("T", b"%0100d" % number)
                        break
                    except Backpressure:
                        refused += 1
                        await producer.ready()
                future.add_done_callback(on_done)
                if number % 5000 == 0:
                    most_held = max(most_held, producer._buffer.held_bytes)
                    most_memory = max(most_memory, resident_bytes() - memory)
            await producer.flush()
            await asyncio.sleep(0)
            working.cancel()
            assert wrong == []
            assert (called, slow.messages) == (count, count)
            assert refused > 10  # it really was slower than the loop
            assert most_held <= buffer_bytes + 2048
            assert most_memory < 8 * buffer_bytes

    run(main(), timeout_s=600)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")
