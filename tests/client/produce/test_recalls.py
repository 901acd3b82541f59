"""Delayed messages are taken back before they are due, and only then."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cometmq.clock import ManualClock
from cometmq.errors import BrokerError, ConfigError
from tests.support.brokers import stored
from tests.support.clusters import RealCluster, idle, real_cluster


def bodies(cluster: RealCluster) -> list[bytes]:
    return sorted(message.body for queue in range(4) for message in stored(cluster.broker, "T", queue))


async def pass_by(cluster: RealCluster, clock: ManualClock, seconds: float, wanted: list[bytes]) -> None:
    """Let time pass, and then some until what is due was delivered."""
    for _ in range(round(seconds * 10)):
        clock.advance(0.1)
        await asyncio.sleep(0.001)  # threads report on the loop
    for _ in range(300):
        if bodies(cluster) == wanted:
            return
        clock.advance(0.01)
        await asyncio.sleep(0.01)
    assert bodies(cluster) == wanted


async def test_a_delayed_message_is_taken_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        real_cluster(tmp_path, "T", clock=clock, recallMessageEnable=True) as cluster,
        cluster.client(clock=clock) as client,
        client.producer("pg", topics=("T",)) as producer,
    ):
        wanted = await producer.send("T", b"wanted", delay=4)
        unwanted = await producer.send("T", b"unwanted", delay=timedelta(seconds=4))
        bare = await producer.send("T", b"bare", deliver_at=datetime.fromtimestamp(clock.now_ms() / 1000 + 4, UTC))
        assert wanted.recall_handle
        assert await producer.recall(unwanted) == unwanted.id
        assert bare.recall_handle is not None
        assert await producer.recall(bare.recall_handle, "T") == bare.id
        await idle(client)
        await pass_by(cluster, clock, 5, [b"wanted"])
        await pass_by(cluster, clock, 5, [b"wanted"])
        with pytest.raises(BrokerError) as too_late:
            await producer.recall(wanted)
        assert too_late.value.code == 604


async def test_what_cannot_be_recalled_says_why(tmp_path: Path) -> None:
    async with (
        real_cluster(tmp_path, "T") as cluster,
        cluster.client() as client,
        client.producer("pg", topics=("T",)) as producer,
    ):
        plain = await producer.send("T", b"now")
        with pytest.raises(ConfigError, match="delay"):
            await producer.recall(plain)
        with pytest.raises(ConfigError, match="handle"):
            await producer.recall("no handle", "T")
        with pytest.raises(ConfigError, match="v1"):
            await producer.recall("djIgVCBicm9rZXItYSAxIEE=", "T")
        later = await producer.send("T", b"later", delay=60)
        with pytest.raises(ConfigError, match="recalled"):
            await producer.recall(later.recall_handle or "", "%RETRY%g")
        with pytest.raises(BrokerError) as switched_off:
            await producer.recall(later)
        assert switched_off.value.code == 16
