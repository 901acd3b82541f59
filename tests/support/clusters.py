"""Clusters for tests of the client: a real one in the test's process, and one of scripted brokers.

    async with real_cluster(tmp_path, "TopicA") as cluster, cluster.client() as client: ...

    async with scripted_cluster("a", "b") as cluster:
        cluster["a"].answers = [refuse(2)]         the last answer is given again and again
        ...
        assert cluster["a"].count(Request.SEND_MESSAGE_V2) == 1
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from cometmq.broker.server import Broker
from cometmq.client.client import Client
from cometmq.client.produce.producer import Producer
from cometmq.clock import Clock
from cometmq.nameserver.server import NameServer
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.server import Server
from cometmq.wire.bodies import BrokerData, QueueData, TopicRoute
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply
from cometmq.wire.headers import GetRoute, SendMessage, SendMessageResponse
from tests.nameserver.support import nameserver
from tests.support.brokers import add_topic, running_broker
from tests.support.net import until

SENDS = (
    Request.SEND_MESSAGE,
    Request.SEND_MESSAGE_V2,
    Request.SEND_BATCH_MESSAGE,
    Request.SEND_REPLY_MESSAGE_V2,
)

# What a scripted broker does with a send: an answer, or None for silence.
Script = Callable[[Command], "Command | None"]


class RealCluster:
    def __init__(self, names: NameServer, brokers: list[Broker]) -> None:
        self.names = names
        self.brokers = brokers

    @property
    def namesrv(self) -> str:
        return self.names.address

    @property
    def broker(self) -> Broker:
        return self.brokers[0]

    async def add_topic(self, name: str, queues: int = 4, **fields: Any) -> None:
        """On every broker; the name server knows when this returns."""
        for broker in self.brokers:
            add_topic(broker, name, queues, **fields)
            await broker.rooms.replicas.registration.reported()

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        async with Client(self.namesrv, **options) as client:
            yield client


@asynccontextmanager
async def real_cluster(
    directory: Path, *topics: str, brokers: int = 1, clock: Clock | None = None, queues: int = 4, **settings: object
) -> AsyncIterator[RealCluster]:
    """Brokers broker-a, broker-b and so on. `settings` are theirs, by RocketMQ's keys."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(nameserver(directory, clock))
        started = [
            await stack.enter_async_context(
                running_broker(
                    directory / name, clock, None, **{"brokerName": name, "namesrvAddr": names.address, **settings}
                )
            )
            for name in ["broker-" + chr(ord("a") + number) for number in range(brokers)]
        ]
        cluster = RealCluster(names, started)
        for topic in topics:
            await cluster.add_topic(topic, queues)
        yield cluster


def refuse(code: int, remark: str = "no") -> Script:
    return lambda received: reply(received, code, remark)


def accept(code: int = 0, **fields: Any) -> Script:
    """The answer of a broker that stored the message, whatever it was."""

    def answer(received: Command) -> Command:
        header = SendMessage.decode_v2(received.ext)
        stored = SendMessageResponse("7F0000010000000A" + "0" * 16, header.queue_id, 7, **fields)
        return reply(received, code, None, stored.encode())

    return answer


def silence(_: Command) -> None:
    return None


def cut_by(broker: "ScriptedBroker") -> Script:
    """All connections break instead of an answer."""

    def cut(_: Command) -> None:
        for connection in broker.server.connections:
            connection.cut("scripted")

    return cut


class ScriptedBroker:
    """Answers sends from its script, everything else with 0. Keeps all it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[Command] = []
        self.answers: list[Script] = [accept()]
        self.delay_s = 0.0
        self.server = Server(Dispatcher(self._take, Family("scripted", 100_000)))
        self.accepted = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def count(self, *codes: int) -> int:
        return sum(command.code in codes for command in self.asked)

    @property
    def sends(self) -> int:
        return self.count(*SENDS)

    def headers(self) -> list[SendMessage]:
        return [SendMessage.decode_v2(command.ext) for command in self.asked if command.code in SENDS]

    def _take(self, connection: Connection, received: Command) -> Command | None:
        self.asked.append(received)
        if received.code not in SENDS:
            return reply(received)
        script = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer = script(received)
        if answer is not None and self.delay_s:
            asyncio.get_running_loop().call_later(self.delay_s, connection.answer, received, answer)
            return None
        return answer


class ScriptedCluster:
    """A name server that knows what the test says, and brokers. `routes` go over what the brokers make."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = {broker.name: broker for broker in brokers}
        self.routes: dict[str, TopicRoute | None] = {}
        self.queues = 4
        self.missing: set[str] = set()
        self.asked: list[str] = []
        self.server = Server(Dispatcher(self._take, Family("names", 1000)))

    def __getitem__(self, name: str) -> ScriptedBroker:
        return self.brokers[name]

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def sends(self) -> dict[str, int]:
        return {name: broker.sends for name, broker in self.brokers.items()}

    def route(self) -> TopicRoute:
        return TopicRoute(
            broker_datas=[
                BrokerData(broker_name=name, broker_addrs={0: broker.address}, cluster="c")
                for name, broker in self.brokers.items()
            ],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=self.queues, write_queue_nums=self.queues)
                for name in self.brokers
            ],
        )

    def _take(self, _: Connection, received: Command) -> Command:
        topic = GetRoute.decode(received.ext).topic
        self.asked.append(topic)
        route = self.routes.get(topic, self.route())
        if topic in self.missing or route is None:
            return reply(received, 17, "no such topic")
        return reply(received, body=route.encode(standard=True))

    @asynccontextmanager
    async def client(self, clock: Clock | None = None, **options: Any) -> AsyncIterator[Client]:
        async with Client(self.namesrv, clock=clock, **options) as client:
            yield client


@asynccontextmanager
async def scripted_cluster(*names: str) -> AsyncIterator[ScriptedCluster]:
    cluster = ScriptedCluster([ScriptedBroker(name) for name in names])
    servers = [cluster.server, *[broker.server for broker in cluster.brokers.values()]]
    for server in servers:
        await server.start("127.0.0.1", 0)
    try:
        yield cluster
    finally:
        for server in servers:
            await server.stop()


async def idle(client: Client) -> None:
    """Wait until the client awaits no answer: then its clock may jump without anything running out of time."""
    permits = client.instance.net.endpoint.calls.twoway
    await asyncio.sleep(0)
    await until(lambda: permits.free == permits.count, "an idle client")


@asynccontextmanager
async def producing(*names: str, **options: Any) -> AsyncIterator[tuple[ScriptedCluster, Producer[bytes]]]:
    """Scripted brokers, and a producer that knows the route of topic T. `options` are the producer's."""
    async with (
        scripted_cluster(*names) as cluster,
        cluster.client() as client,
        client.producer("pg", **{"topics": ("T",), **options}) as producer,
    ):
        yield cluster, producer
