"""Checks a master and its replicas as whole brokers in this process, over real sockets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cometmq.broker.server import Broker
from tests.support.aio import run
from tests.support.brokers import Peer, running_broker

WAIT_S = 30.0


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not done():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def log_bytes(broker: Broker) -> bytes:
    return b"".join(bytes(segment.view()[: segment.wrote]) for segment in broker.store.segments.segments)


def replica_of(master: Broker, number: int = 1, **settings: Any) -> dict[str, Any]:
    assert master.replication.listener is not None
    address = f"127.0.0.1:{master.replication.listener.port}"
    return {"brokerRole": "SLAVE", "brokerId": number, "haMasterAddress": address, **settings}


def test_a_replica_has_the_bytes_of_its_master(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running_broker(tmp_path / "m") as master, Peer.of(master) as peer:
            for number in range(50):
                await peer.send("TopicA", f"before {number}".encode())
            async with running_broker(tmp_path / "r", **replica_of(master)) as replica:
                for number in range(50):
                    assert (await peer.send("TopicA", f"after {number}".encode())).code == 0
                await until(lambda: replica.store.log.max_offset == master.store.log.max_offset)
                assert log_bytes(replica) == log_bytes(master)
                await until(lambda: replica.store.queue_bounds("TopicA", 0) == (0, 100))

    run(scene())
