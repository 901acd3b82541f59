"""Clients under load while brokers die, name servers restart and the network fails.

What was sent, acked and received goes into a history, and the history must be possible: `tests/support/history.py`.
COMETMQ_LENGTH=soak makes the runs as long as they should be once in a while; COMETMQ_SEED repeats a run.
"""

import asyncio
import gc
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq.client.client import Client
from cometmq.client.consume.outcomes import Retry
from cometmq.client.consume.push import PushConsumer
from cometmq.client.messages import Message
from cometmq.client.options import StartFrom
from cometmq.client.produce.hooks import SendContext
from cometmq.client.produce.producer import Producer
from cometmq.errors import CometError
from cometmq.testing import Cluster
from tests.compat.harness.remoting import create_topic
from tests.compat.harness.servers import CometBroker, CometNameServer
from tests.support.aio import run
from tests.support.detour import Detour
from tests.support.history import History
from tests.support.length import SOAK, by_length

BROKER_KILLS = by_length(2, 4, 20)
NAMESRV_RESTARTS = by_length(1, 2, 10)
FAULT_ROUNDS = by_length(12, 25, 200)
QUEUES = 4
SEED = int(os.environ.get("COMETMQ_SEED") or random.SystemRandom().randrange(1 << 32))

# Short limits, so that a run sees many failures; long enough for a starved machine to get something done.
CLIENT: dict[str, Any] = {"call_timeout": 2.0, "connect_timeout": 2.0, "route_refresh": 1.0, "heartbeat_interval": 2.0}
PRODUCER: dict[str, Any] = {"timeout": 10.0, "attempt_timeout": 2.0, "retries": 5, "retries_soon": 5}
CONSUMER: dict[str, Any] = {
    "start": StartFrom.FIRST,
    "error_delay": 0.2,
    "commit_interval": 0.5,
    "rebalance_interval": 1.0,
    "rebalance_retry": 0.2,
    "first_pull_delay": 0.0,
    "lock_interval": 1.0,
    "suspend": 0.05,
}


async def eventually(condition: Callable[[], object], what: str) -> None:
    """With the patience that a starved machine needs after a fault."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not become true"
        await asyncio.sleep(0.005)


class Attempts:
    """Tells the history of every time that a message goes out."""

    def __init__(self, history: History) -> None:
        self._history = history

    def before_send(self, context: SendContext) -> None:
        for member in context.outgoing.members or [context.outgoing]:
            self._history.attempt(member.body.decode())

    def after_send(self, context: SendContext) -> None:
        return


class Load:
    """Producers that send without end, a consumer that receives, and the history of both."""

    def __init__(self, topic: str) -> None:
        self.history = History()
        self.failures: list[CometError] = []
        self.topic = topic
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def send(self, producer: Producer[bytes], lane: str, soon: bool) -> None:
        """One after the other; a lane of its own keeps their order."""
        number = 0
        while not self._stopping:
            number += 1
            body = f"{lane} {number}"
            ordered = lane.startswith("ordered")
            self.history.send(body, lane if ordered else None)
            try:
                if soon:
                    await producer.send_soon(self.topic, body.encode())
                elif ordered:
                    await producer.send(self.topic, body.encode(), ordering_key=lane)
                else:
                    await producer.send(self.topic, body.encode())
            except CometError as error:
                self.failures.append(error)
                await asyncio.sleep(0.02)
            else:
                self.history.ack(body)
            await asyncio.sleep(0.002)

    def received(self, message: Message[bytes], *, failed: bool = False) -> None:
        queue = message.queue
        assert queue is not None
        place = (queue.topic, queue.broker_name, queue.queue_id, message.offset)
        self.history.receive(message.body.decode(), place, failed=failed)

    def begin(self, producer: Producer[bytes], lanes: int, prefix: str, *, soon: bool = False) -> None:
        self._tasks += [
            asyncio.ensure_future(self.send(producer, f"{prefix}-{number}", soon)) for number in range(lanes)
        ]

    async def end(self) -> None:
        """Stop sending; returns when all that was acked has been received."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        await eventually(lambda: not self.history.missing, "everything acked to be received")


@asynccontextmanager
async def receiving(
    namesrv: str, load: Load, *, ordered: bool, fail: Callable[[], bool]
) -> AsyncIterator[PushConsumer]:
    """One member of the group."""
    async with Client(namesrv, **CLIENT) as client:
        consumer = client.push_consumer(f"{load.topic}_g", **CONSUMER)

        @consumer.on(load.topic, ordered=ordered)
        async def handle(message: Message[bytes]) -> None:
            failed = fail()
            load.received(message, failed=failed)
            if failed:
                raise Retry

        async with consumer:
            yield consumer


class Guest:
    """A second member, which comes and goes."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[PushConsumer]], topic: str) -> None:
        self._make = make
        self._topic = topic
        self._present: AbstractAsyncContextManager[PushConsumer] | None = None
        self.host: PushConsumer | None = None

    @property
    def is_present(self) -> bool:
        return self._present is not None

    async def come_or_go(self) -> None:
        """Returns when all queues have one owner again. A bad network makes members take queues from each other
        whenever a broker misses one of them."""
        members = [self.host]
        if self._present is None:
            self._present = self._make()
            members.append(await self._present.__aenter__())
        else:
            await self.go()

        def settled() -> bool:
            owned = [queue for member in members if member for queue in member.queues if queue.topic == self._topic]
            return len(owned) == len(set(owned)) == QUEUES

        await eventually(settled, "every queue to have one owner")

    async def go(self) -> None:
        present, self._present = self._present, None
        if present is not None:
            await present.__aexit__(None, None, None)


@asynccontextmanager
async def loaded(
    namesrv: str, topic: str, *, ordered: bool, fail: Callable[[], bool] = lambda: False
) -> AsyncIterator[tuple[Load, Guest]]:
    """Producers and consumers in clients of their own, as in real life."""
    load = Load(topic)

    def member() -> AbstractAsyncContextManager[PushConsumer]:
        return receiving(namesrv, load, ordered=ordered, fail=fail)

    guest = Guest(member, topic)
    async with (
        Client(namesrv, **CLIENT) as client,
        client.producer(f"{topic}_p", topics=(topic,), **PRODUCER) as producer,
        member() as guest.host,
    ):
        producer.add_hook(Attempts(load.history))
        load.begin(producer, 4, "ordered" if ordered else "plain")
        if not ordered:
            load.begin(producer, 4, "soon", soon=True)
        yield load, guest
        if guest.is_present:
            load.history.share(True)
            await guest.go()
        await load.end()


def whole(main: Callable[[], Coroutine[Any, Any, None]], caplog: pytest.LogCaptureFixture) -> None:
    """Run it; nothing may be left behind or go wrong unseen: `run` fails for errors in tasks and callbacks."""

    async def watched() -> None:
        before = tasks_and_files()
        await main()
        await asyncio.sleep(0)
        gc.collect()
        await eventually(lambda: tasks_and_files() <= before, f"nothing to be left: {before} before")

    caplog.set_level(logging.ERROR)
    run(watched(), timeout_s=1800 if SOAK else 240)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def tasks_and_files() -> tuple[int, int]:
    """Tasks and open files, sockets among them."""
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))


@pytest.mark.repeated
@pytest.mark.parametrize("ordered", [False, True])
def test_clients_outlive_killed_brokers_and_restarted_name_servers(
    tmp_path: Path, ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    print(f"COMETMQ_SEED={SEED}")
    seeded = random.Random(SEED)
    namesrv = CometNameServer(tmp_path).start()
    broker = CometBroker(tmp_path, namesrv.address, {"brokerFastFailureEnable": False}).start()
    create_topic(broker.address, "T", QUEUES)

    async def main() -> None:
        async with loaded(namesrv.address, "T", ordered=ordered) as (load, _):
            events = ["broker"] * BROKER_KILLS + ["namesrv"] * NAMESRV_RESTARTS
            seeded.shuffle(events)
            for event in events:
                goal = load.history.acked + 50
                await eventually(lambda goal=goal: load.history.acked >= goal, "50 more acks")  # type: ignore[misc]
                load.history.disturb()
                if event == "broker":
                    await asyncio.to_thread(broker.kill)
                    await asyncio.sleep(seeded.random() * 0.5)
                    await asyncio.to_thread(broker.start)
                else:
                    await asyncio.to_thread(namesrv.restart)
                    await asyncio.to_thread(broker.register)
                load.history.disturb()
        load.history.check()
        assert load.history.acked > 50 * len(events)

    try:
        whole(main, caplog)
    finally:
        broker.close()
        namesrv.close()


async def misbehave(detour: Detour, seeded: random.Random, load: Load) -> None:
    """One fault of the network, and its end."""
    proxy = detour.proxy
    kind = seeded.choice(["cut", "delay", "half-open", "no answers", "cut inside an answer"])
    load.history.disturb()
    if kind == "cut":
        proxy.cut()
    elif kind == "delay":
        proxy.delay_s = seeded.random() * 0.1
        await asyncio.sleep(seeded.random() * 0.5)
        proxy.delay_s = 0
    elif kind == "half-open":
        proxy.stalled = True
        await asyncio.sleep(seeded.random())
        if seeded.random() < 0.5:
            proxy.cut()
        proxy.stalled = False
    elif kind == "no answers":
        proxy.swallow_answers = True
        await asyncio.sleep(seeded.random() * 0.3)
        proxy.cut()
        proxy.swallow_answers = False
    else:
        proxy.cut_after_bytes = seeded.randrange(2000)
    load.history.disturb()


@pytest.mark.repeated
@pytest.mark.parametrize("ordered", [False, True])
def test_a_bad_network_loses_nothing_and_keeps_order(ordered: bool, caplog: pytest.LogCaptureFixture) -> None:
    print(f"COMETMQ_SEED={SEED}")
    seeded = random.Random(SEED)

    async def main() -> None:
        async with Cluster(topics=["T"], queues=QUEUES) as cluster:
            port = int(cluster.brokers[0].address.rpartition(":")[2])
            async with (
                Detour.around(cluster.namesrv, port) as detour,
                loaded(detour.address, "T", ordered=ordered, fail=lambda: seeded.random() < 0.01) as (load, guest),
            ):
                for _ in range(FAULT_ROUNDS):
                    goal = load.history.acked + 20
                    await eventually(lambda goal=goal: load.history.acked >= goal, "20 more acks")  # type: ignore[misc]
                    await misbehave(detour, seeded, load)
                    if seeded.random() < 0.3:
                        load.history.share(True)
                        await guest.come_or_go()
                        load.history.share(guest.is_present)
            load.history.check()
            assert load.history.acked >= 20 * FAULT_ROUNDS

    whole(main, caplog)
