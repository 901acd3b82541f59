"""What our client writes down about its messages, read by Java's admin tool, at both brokers."""

from __future__ import annotations

import asyncio

import pytest

from cometmq.client.client import Client
from cometmq.client.messages import Message
from cometmq.client.options import StartFrom
from cometmq.client.produce.transactions import Tx
from tests.compat.conftest import Cluster
from tests.compat.harness.admin import MqAdmin
from tests.compat.harness.processes import wait_until
from tests.compat.harness.remoting import create_topic
from tests.compat.test_traces import traces
from tests.support.aio import run

pytestmark = pytest.mark.interop

ARRIVAL_S = 60.0


async def send_and_consume(namesrv: str, topic: str) -> list[str]:
    """Two messages, one of them of a transaction; returns their ids when both were handled."""
    handled: set[str] = set()
    both = asyncio.Event()
    async with Client(namesrv, call_timeout=10.0) as client:
        consumer = client.push_consumer(f"{topic}_g", start=StartFrom.FIRST, trace=True)

        @consumer.on(topic)
        async def handle(message: Message[bytes]) -> None:
            handled.add(message.id)
            if len(handled) == 2:
                both.set()

        async with (
            consumer,
            client.transaction_producer(f"{topic}_p", check=lambda _: Tx.COMMIT, trace=True, timeout=20.0) as producer,
        ):
            receipt = await producer.send(topic, b"plain", tag="tag", keys=["key1"])
            async with producer.begin(topic, b"decided", tag="tag", keys=["key2"]) as transaction:
                pass
            await both.wait()
    return [receipt.id, transaction.receipt.id]


@pytest.mark.mission("PC-12")
def test_the_admin_tool_reads_traces_of_our_client(cluster: Cluster, mqadmin: MqAdmin, topic: str) -> None:
    namesrv = cluster.namesrv.address
    create_topic(cluster.broker.address, topic, queues=1)
    expected = [["Pub", f"{topic}_p", "success"], ["Sub", f"{topic}_g", "success"]]
    for message_id in run(send_and_consume(namesrv, topic), timeout_s=60):
        wait_until(lambda: traces(mqadmin, namesrv, message_id) == expected, f"traces of {message_id}", ARRIVAL_S)  # noqa: B023
