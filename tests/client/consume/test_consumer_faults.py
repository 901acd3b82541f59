"""Consumers on a bad network: what was acknowledged to a producer is handled, and what is committed was handled."""

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from cometmq import Client, Message
from cometmq.client.consume.push import PushConsumer
from cometmq.errors import CometError
from tests.conftest import run
from tests.support.clusters import RealCluster, real_cluster
from tests.support.consuming import behind_proxy, committed, quick
from tests.support.net import until
from tests.support.tcp_proxy import TcpProxy

QUEUES = 4


class History:
    """Who handled what. `fails` says how often a handler raises."""

    def __init__(self, dice: random.Random, fails: float) -> None:
        self.handled: set[bytes] = set()
        self.offsets: dict[int, set[int]] = defaultdict(set)
        self._dice = dice
        self._fails = fails

    async def handle(self, message: Message[bytes]) -> None:
        await asyncio.sleep(self._dice.choice((0, 0, 0.002)))
        if self._dice.random() < self._fails:
            raise ValueError("a bad moment")
        self.handled.add(message.body)
        assert message.queue is not None
        if message.queue.topic == "T":
            self.offsets[message.queue.queue_id].add(message.offset)


async def break_things(proxy: TcpProxy, dice: random.Random, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        trouble = dice.choice(("cut", "stall", "delay", "peace"))
        if trouble == "cut":
            proxy.cut_after_bytes = dice.randrange(4000)
        proxy.stalled = trouble == "stall"
        proxy.delay_s = 0.01 if trouble == "delay" else 0.0
        await asyncio.sleep(dice.uniform(0.05, 0.2))
    proxy.stalled, proxy.delay_s, proxy.cut_after_bytes = False, 0.0, None


async def send_until_calm(client: Client, done: asyncio.Event) -> list[bytes]:
    """Send and send; the bodies of what was acknowledged."""
    acked: list[bytes] = []
    async with client.producer("pg", timeout=20.0) as producer:
        number = 0
        while not done.is_set():
            number += 1
            try:
                await producer.send("T", b"%d" % number)
            except CometError:
                continue  # perhaps stored, perhaps not
            acked.append(b"%d" % number)
            await asyncio.sleep(0.002)
    return acked


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_nothing_is_lost_on_a_network_that_cuts_stalls_and_delays(tmp_path: Path, ordered: bool) -> None:
    seed = time.time_ns()
    print(f"seed={seed}")
    dice = random.Random(seed)

    async def main() -> None:
        history = History(dice, 0.05 if ordered else 0.0)
        async with (
            real_cluster(tmp_path, "T", queues=QUEUES) as cluster,
            cluster.client(call_timeout=0.5, connect_timeout=0.5) as client,
            cluster.client() as sender,
        ):
            app = _consumer(client, history, ordered)
            await app.start()
            await until(lambda: len(app.queues) == QUEUES + 1)
            done = asyncio.Event()
            async with behind_proxy(client, cluster, "broker-a") as proxy:
                sending = asyncio.create_task(send_until_calm(sender, done))
                await break_things(proxy, dice, 2.5)
                done.set()
                acked = await sending
                await until(lambda: set(acked) <= history.handled)
                _check_commits(cluster, history)
                await app.stop()
                _check_commits(cluster, history)
            assert len(acked) > 50

    run(main(), 60)


def _consumer(client: Client, history: History, ordered: bool) -> PushConsumer:
    app = quick(client, error_delay=0.05, poll_timeout=2.0, poll_hold=1.0, lock_timeout=0.5, suspend=0.01)
    app.subscribe("T", history.handle, ordered=ordered)
    return app


def _check_commits(cluster: RealCluster, history: History) -> None:
    """Everything below a committed offset was handled."""
    for queue_id in range(QUEUES):
        below = set(range(max(0, committed(cluster.broker, "cg", "T", queue_id))))
        assert below <= history.offsets[queue_id], f"queue {queue_id} has commits beyond what was handled"
