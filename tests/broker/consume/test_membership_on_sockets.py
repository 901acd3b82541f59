"""Membership over real connections: joining, leaving, and a client that dies without a word."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cometmq.broker.admin import groups, topics
from cometmq.broker.consume import clients, lock_requests, offset_requests
from cometmq.broker.entry import bound, merged
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.server import Server
from cometmq.wire.bodies import ConsumerData, ConsumerList, HeartbeatData, SubscriptionData
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, request
from tests.broker.assembly import Assembly


class Node:
    """A server with the handlers of this package around a broker's state."""

    def __init__(self) -> None:
        self.broker = Assembly()
        served = merged(
            bound(clients.HANDLERS, self.broker.for_members),
            bound(lock_requests.HANDLERS, self.broker.for_members),
            bound(offset_requests.HANDLERS, self.broker.for_offsets),
            bound(groups.HANDLERS, self.broker.for_lists),
            bound(topics.HANDLERS, self.broker.for_lists),
        )
        families = {it.family: Family(it.family, 1_000) for it in served.values()}
        dispatcher = Dispatcher()
        for code, it in served.items():
            dispatcher.add(code, it.handler, families[it.family])
        self.server = Server(dispatcher, events=self)

    def on_close(self, connection: Connection) -> None:
        clients.connection_closed(self.broker.for_members, connection)


class Consumer:
    """A client that counts the notices it gets."""

    def __init__(self, client_id: str, node: Node) -> None:
        self.client_id = client_id
        self.address = f"127.0.0.1:{node.server.port}"
        self.notices: asyncio.Queue[str] = asyncio.Queue()
        dispatcher = Dispatcher()
        dispatcher.add(Request.NOTIFY_CONSUMER_IDS_CHANGED, self._noticed, Family("notices", 10))
        self.client = Client(dispatcher)

    def _noticed(self, connection: Connection, command: Command) -> None:
        self.notices.put_nowait(command.ext["consumerGroup"])

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> Command:
        return await self.client.call(self.address, request(code, ext, body), 5)

    async def beat(self) -> None:
        subscription = SubscriptionData(topic="T", sub_string="*", sub_version=1)
        consumer = ConsumerData(group_name="g", message_model="CLUSTERING", subscription_data_set=[subscription])
        body = HeartbeatData(client_id=self.client_id, consumer_data_set=[consumer])
        response = await self.ask(Request.HEART_BEAT, body.encode())
        assert response.code == Response.SUCCESS

    async def members(self) -> list[str]:
        response = await self.ask(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
        return sorted(ConsumerList.decode(response.body).consumer_id_list)


@asynccontextmanager
async def node_with(*client_ids: str) -> AsyncIterator[list[Consumer]]:
    node = Node()
    await node.server.start("127.0.0.1", 0)
    consumers = [Consumer(client_id, node) for client_id in client_ids]
    try:
        yield consumers
    finally:
        for consumer in consumers:
            await consumer.client.stop()
        await node.server.stop()


async def test_a_second_consumer_that_joins_and_dies_is_told_to_the_first_at_once() -> None:
    async with node_with("one", "two") as (one, two):
        await one.beat()
        assert await one.notices.get() == "g"
        assert await one.members() == ["one"]

        await two.beat()
        assert await one.notices.get() == "g"
        assert await two.notices.get() == "g"
        assert await one.members() == ["one", "two"]

        connection = two.client.connection(two.address)
        assert connection is not None
        connection.cut("as a killed process does")
        assert await one.notices.get() == "g"
        assert await one.members() == ["one"]


async def test_goodbye_is_told_to_the_rest_and_the_last_one_leaves_an_unknown_group() -> None:
    async with node_with("one", "two") as (one, two):
        await one.beat()
        await one.notices.get()
        await two.beat()
        await one.notices.get()

        await two.ask(Request.UNREGISTER_CLIENT, clientID="two", consumerGroup="g")
        assert await one.notices.get() == "g"
        assert await two.members() == ["one"]
        await one.ask(Request.UNREGISTER_CLIENT, clientID="one", consumerGroup="g")
        response = await two.ask(Request.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
        assert response.code == Response.SYSTEM_ERROR


async def test_refusals_arrive_with_code_and_reason_and_leave_the_connection_open() -> None:
    async with node_with("one") as (one,):
        response = await one.ask(Request.HEART_BEAT, b"no json")
        assert response.code == Response.SYSTEM_ERROR
        assert "bad body" in (response.remark or "")
        response = await one.ask(Request.DELETE_TOPIC_IN_BROKER, topic="TBW102")
        assert response.code == Response.INVALID_PARAMETER
        response = await one.ask(Request.GET_ALL_CONSUMER_OFFSET)
        assert response.body.startswith(b'{"dataVersion":')
