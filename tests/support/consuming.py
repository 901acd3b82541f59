"""Consumers in tests: quick ones, what they got, and what their client asked of brokers.

    async with real_cluster(tmp_path, "T") as cluster, cluster.client() as client:
        got = Got()
        app = quick(client, "cg")
        app.subscribe("T", got.take)
        async with app:
            await send(client, "T", 10)
            await got.count(10)
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cometmq import Message, StartFrom
from cometmq.broker.server import Broker
from cometmq.client.client import Client
from cometmq.client.consume.group_member import Member
from cometmq.client.consume.process_queue import ProcessQueue
from cometmq.client.consume.push import PushConsumer
from cometmq.client.produce.producer import Producer
from cometmq.clock import ManualClock
from cometmq.wire.bodies import MessageQueue
from cometmq.wire.codes import Request
from cometmq.wire.command import Command
from cometmq.wire.headers import PullMessage
from tests.support.clusters import RealCluster
from tests.support.tcp_proxy import TcpProxy

QUICK: dict[str, Any] = {
    "start": StartFrom.FIRST,
    "first_pull_delay": 0.0,
    "rebalance_retry": 0.05,
    "commit_interval": 0.05,
    "lock_timeout": 20.0,
}
PATIENCE_S = 25.0


def quick(client: Client, group: str = "cg", **options: Any) -> PushConsumer:
    """A consumer from the beginning, without the rests that keep members of a group apart."""
    return client.push_consumer(group, **{**QUICK, **options})


def member_of(consumer: Any) -> Member:
    member: Member = consumer._member
    return member


def cache_of(consumer: Any, topic: str = "T", queue_id: int = 0, broker: str = "broker-a") -> ProcessQueue:
    return member_of(consumer).queues[MessageQueue(broker, queue_id, topic)]


async def send(client: Client, topic: str, count: int, queue_id: int | None = 0, **message: Any) -> list[bytes]:
    """`count` messages with their number as body; `queue_id` None: to all queues in turn."""
    bodies = [b"%d" % number for number in range(count)]
    async with client.producer("senders", timeout=PATIENCE_S) as producer:
        if queue_id is None:
            for body in bodies:
                await producer.send(topic, body, **message)
        else:
            await producer.send_many(topic, bodies, queue=await queue_of(producer, topic, queue_id), **message)
    return bodies


async def queue_of(producer: Producer[Any], topic: str, queue_id: int) -> MessageQueue:
    return next(queue for queue in await producer.queues(topic) if queue.queue_id == queue_id)


@asynccontextmanager
async def behind_proxy(client: Client, cluster: RealCluster, broker: str) -> AsyncIterator[TcpProxy]:
    """Let a client that knows its routes reach one broker through a proxy only."""
    target = next(one for one in cluster.brokers if one.settings.config.broker_name == broker)
    async with TcpProxy.before(int(target.address.rpartition(":")[2])) as proxy:
        for route in client.instance._routes.values():
            for data in route.data.broker_datas:
                if data.broker_name == broker:
                    data.broker_addrs = {0: f"127.0.0.1:{proxy.port}"}
                    client.instance.brokers.learn(route.data)
        client.instance.net.drop(target.address, "there is another way now")
        yield proxy


class Got:
    """A handler that keeps what it gets. `gate` holds it back while it is closed."""

    def __init__(self) -> None:
        self.messages: list[Message[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = 0
        self.running_max = 0

    async def take(self, message: Message[bytes]) -> None:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            await self.gate.wait()
            self.messages.append(message)
        finally:
            self.running -= 1

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def count(self, wanted: int) -> None:
        """Wait until there are so many."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.messages) < wanted:  # noqa: ASYNC110 - handlers may append by themselves
                await asyncio.sleep(0.002)

    def check_once(self, bodies: list[bytes]) -> None:
        assert Counter(self.bodies) == Counter(bodies)


class Asked:
    """A hook that keeps what a client asks of its peers, with the time of its clock."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.commands: list[tuple[float, Command]] = []
        self._clock = clock

    def before(self, peer: str, request: Command) -> None:
        self.commands.append((self._clock.monotonic() if self._clock is not None else 0.0, request))

    def after(self, peer: str, request: Command, response: Command) -> None: ...

    def count(self, code: int) -> int:
        return sum(command.code == code for _, command in self.commands)

    def pulls(self, topic: str = "T") -> list[tuple[float, PullMessage]]:
        headers = [
            (when, PullMessage.decode(command.ext))
            for when, command in self.commands
            if command.code == Request.PULL_MESSAGE
        ]
        return [(when, header) for when, header in headers if header.topic == topic]


def committed(broker: Broker, group: str = "cg", topic: str = "T", queue_id: int = 0) -> int:
    """The offset that the broker has; -1 if none."""
    return broker.tables.offsets.query(group, topic, queue_id)


async def advance_until(clock: ManualClock, condition: Any, what: str, step_s: float = 0.1, steps: int = 600) -> None:
    """Move a client's clock in small steps until something is so. Brokers are given the time to answer."""
    for _ in range(steps):
        if condition():
            return
        clock.advance(step_s)
        await asyncio.sleep(0.003)
    raise AssertionError(f"{what} did not become true within {steps * step_s} s of the clock")
