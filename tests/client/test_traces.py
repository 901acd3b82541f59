"""What producers write to the trace topic, when, and what they leave out."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.client.client import Client
from cometmq.client.messages import Message
from cometmq.client.produce.transactions import Tx
from cometmq.client.traces import ConsumeTrace, Tracer, pack
from cometmq.clock import ManualClock
from cometmq.wire.record.properties import decode
from tests.support.aio import run, settle
from tests.support.brokers import stored
from tests.support.clusters import RealCluster, accept, idle, real_cluster, scripted_cluster
from tests.support.net import until

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def records(cluster: RealCluster, topic: str = TRACE_TOPIC) -> list[list[str]]:
    """All records of the trace topic, as lists of fields."""
    bodies = [message.body.decode() for queue in range(4) for message in stored(cluster.broker, topic, queue)]
    return [text.split("\x01") for body in bodies for text in body.split("\x02")[:-1]]


async def test_a_send_is_written_down_with_its_place_and_cost(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "T", TRACE_TOPIC) as cluster,
        cluster.client(clock=clock) as client,
    ):
        async with client.producer("pg", trace=True) as producer:
            first = await producer.send("T", b"hello world", tag="TagA", keys=["k1", "k2"])
            second = await producer.send("T", b"x" * 5000)
            third = await producer.send("T", b"later", delay_level=3)
            producer.send_oneway("T", b"nobody knows")
            assert records(cluster) == []
        address = cluster.broker.address
        begin = ["Pub", "1700000000000", "DefaultRegion", "pg", "T"]
        found = {record[5]: record for record in records(cluster)}
        assert found[first.id] == [
            *begin, first.id, "TagA", "k1 k2", address, "11", "0", "0", first.offset_id, "true",
        ]  # fmt: skip
        assert found[second.id][6:8] == ["null", "null"]
        assert int(found[second.id][9]) < 200  # after compression
        assert found[third.id][11] == "3"
        assert len(found) == 3
        (message,) = [message for queue in range(4) for message in stored(cluster.broker, TRACE_TOPIC, queue)]
        assert set(decode(message.properties)["KEYS"].split()) == {first.id, second.id, third.id, "k1", "k2"}


async def test_records_leave_when_ten_wait_or_after_five_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "T", "U", "MyTraces") as cluster,
        cluster.client(clock=clock) as client,
        client.producer("pg", trace=True, trace_topic="MyTraces", topics=("T", "U")) as producer,
    ):
        for number in range(10):
            await producer.send("T" if number % 2 else "U", b"x")
        await until(lambda: len(records(cluster, "MyTraces")) == 10)
        count = sum(len(stored(cluster.broker, "MyTraces", queue)) for queue in range(4))
        assert count == 2  # one message for each topic of the application's
        await producer.send("T", b"x")
        await idle(client)
        clock.advance(4.9)
        await settle()
        assert len(records(cluster, "MyTraces")) == 10
        clock.advance(0.1)
        await until(lambda: len(records(cluster, "MyTraces")) == 11)
        await producer.send("MyTraces", b"not traced")
        await producer._tracer.stop()  # type: ignore[union-attr]
        assert len(records(cluster, "MyTraces")) == 11


async def test_members_of_a_batch_have_records_of_their_own(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", TRACE_TOPIC) as cluster, cluster.client() as client:
        async with client.producer("pg", trace=True) as producer:
            receipts = await producer.send_many("T", [b"1", b"22", b"333"], keys="k")
        assert [(record[5], record[9], record[12]) for record in records(cluster)] == [
            (receipt.id, str(size), receipt.offset_id) for size, receipt in enumerate(receipts, 1)
        ]


async def test_transactions_say_how_they_ended(tmp_path: Path) -> None:
    async with real_cluster(tmp_path, "T", TRACE_TOPIC) as cluster, cluster.client() as client:
        async with client.transaction_producer("pg", check=lambda _: Tx.COMMIT, trace=True) as producer:
            async with producer.begin("T", b"good", keys="k", tag="t") as good:
                pass
            async with producer.begin("T", b"bad") as bad:
                bad.rollback()
        found = records(cluster)
        assert [record[0] for record in found] == ["Pub", "EndTransaction"] * 2
        assert [record[11] for record in found if record[0] == "Pub"] == ["1", "1"]
        address, receipt = cluster.broker.address, good.receipt
        assert found[1][2:] == [
            "DefaultRegion", "pg", "T", receipt.id, "t", "k", address, "2", receipt.transaction_id,
            "COMMIT_MESSAGE", "false",
        ]  # fmt: skip
        assert found[3][5:8] == [bad.receipt.id, "null", "null"]
        assert found[3][11] == "ROLLBACK_MESSAGE"


async def test_the_broker_may_switch_traces_off() -> None:
    async with scripted_cluster("a") as cluster, cluster.client() as client:
        cluster["a"].answers = [accept(trace_on=False)]
        async with client.producer("pg", trace=True) as producer:
            await producer.send("T", b"x")
        assert cluster["a"].sends == 1


def test_what_cannot_be_sent_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Client("127.0.0.1:1") as client:
            tracer = Tracer(client.instance, "pg", None)
            for number in range(3000):
                tracer.add("T", ("Pub", number), (f"k{number}",))
            assert tracer.dropped == 3000 - 2048 - 10  # 10 of them are on their way
            await tracer.stop()

    run(main())
    assert "lose traces group=pg records=942" in caplog.text
    assert "cause=" in caplog.text


async def test_consumption_is_written_down_before_and_after() -> None:
    clock = ManualClock()
    async with Client("127.0.0.1:1", clock=clock) as client:
        tracer = Tracer(client.instance, "cg", None)
        trace = ConsumeTrace(tracer)
        properties = {"KEYS": "k1", "MSG_REGION": "R", "UNIQ_KEY": "ID1"}
        traced: Message[Any] = Message("T", b"x", b"x", properties, "ID1", delivery_count=3)
        untraced: Message[Any] = Message("T", b"x", b"x", {"TRACE_ON": "false"}, "ID2")
        began = trace.before([traced, untraced])
        clock.advance(0.5)
        trace.after(began, [traced, untraced], False, 4)
        ((body, keys),) = pack(tracer._waiting["T"], 1000)
        before, after = (record.split("\x01") for record in body.decode().split("\x02")[:-1])
        assert before == ["SubBefore", "1700000000000", "R", "cg", began[0], "ID1", "2", "k1"]
        assert after == ["SubAfter", began[0], "ID1", "250", "false", "k1", "4", "1700000000500", "cg"]
        assert keys == ["ID1", "k1"]


def test_bodies_of_traces_stay_below_their_limit() -> None:
    packed = pack([("r" * 40, (str(number),)) for number in range(5)], 100)
    assert [(len(body), keys) for body, keys in packed] == [(80, ["0", "1"]), (80, ["2", "3"]), (40, ["4"])]
    assert [len(body) for body, _ in pack([("r" * 140, ())], 100)] == [100]
