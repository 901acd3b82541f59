"""A real broker in the test's own process, on free ports of 127.0.0.1 and small files, and peers that talk to it.

    async with running_broker(tmp_path) as broker, Peer.of(broker) as peer:
        answer = await peer.send("TopicA", b"hello")
        messages = await peer.pull_messages("TopicA")

Time stands still with a ManualClock: sockets work, timers do not until the test moves it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cometmq.broker.admin import settings
from cometmq.broker.admin.settings import LiveSettings
from cometmq.broker.server import Broker
from cometmq.clock import Clock
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.store.disk import Disk
from cometmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, TopicConfig, TopicRoute
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, reply, request
from cometmq.wire.hashing import java_string_hash
from cometmq.wire.headers import PullMessage, SendMessage
from cometmq.wire.record.batch import encode_batch
from cometmq.wire.record.message import StoredMessage, decode_records
from cometmq.wire.record.properties import encode as encode_properties
from tests.nameserver.support import route
from tests.support.net import RawPeer

CALL_S = 20.0
BORN_MS = 1_700_000_000_123

# A busy machine may stop a test for seconds, which fast failure rightly answers with refusals.
CALM: dict[str, object] = {"brokerFastFailureEnable": False}
SMALL_FILES: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
}


def broker_settings(directory: Path, **texts: object) -> LiveSettings:
    """`texts` are settings by RocketMQ's keys, over small files below `directory`, any free port, and `CALM`."""
    given = {
        "brokerName": "broker-a",
        "listenPort": 0,
        "storePathRootDir": directory / "store",
        **SMALL_FILES,
        **CALM,
        **texts,
    }
    return settings.load({key: _text(value) for key, value in given.items()})


@asynccontextmanager
async def running_broker(
    directory: Path, clock: Clock | None = None, disk: Disk | None = None, /, **texts: object
) -> AsyncIterator[Broker]:
    broker = Broker(broker_settings(directory, **texts), clock, disk)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def add_topic(broker: Broker, name: str, queues: int = 4, **fields: Any) -> TopicConfig:
    topic = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **fields)
    broker.tables.topics.update([topic])
    return topic


def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    """Every message of a queue, read past the network."""
    messages: list[StoredMessage] = []
    offset, end = broker.store.queue_bounds(topic, queue_id)
    while offset < end:
        result = broker.store.get(topic, queue_id, offset, 32)
        assert result is not None
        assert result.next_offset > offset, f"stuck at {offset} with status {result.status}"
        for piece in result.slices:
            messages += decode_records(piece)
        offset = result.next_offset
    return messages


def send_request(
    topic: str,
    body: bytes = b"hello",
    *,
    properties: dict[str, str] | None = None,
    code: int = Request.SEND_MESSAGE_V2,
    oneway: bool = False,
    version: int = 513,
    **fields: Any,
) -> Command:
    """`fields` are those of the header `SendMessage`."""
    given: dict[str, Any] = {
        "producer_group": "producers",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
        "properties": encode_properties(properties or {}).decode(),
    }
    header = SendMessage(topic=topic, **{**given, **fields})
    command = request(code, header.encode() if code == Request.SEND_MESSAGE else header.encode_v2(), body)
    command.version = version
    if oneway:
        command.flag = 2
    return command


def batch_request(topic: str, members: Iterable[tuple[bytes, dict[str, str]]], **fields: Any) -> Command:
    body = encode_batch([(0, body, encode_properties(properties)) for body, properties in members])
    return send_request(topic, body, code=Request.SEND_BATCH_MESSAGE, batch=True, **fields)


def pull_request(
    topic: str,
    queue_id: int = 0,
    offset: int = 0,
    *,
    group: str = "consumers",
    suspend_ms: int = 0,
    tags: str | None = "*",
    commit: int | None = None,
    code: int = Request.PULL_MESSAGE,
    sub_version: int = 0,
    count: int = 32,
    **fields: Any,
) -> Command:
    """`tags` None: the subscription is the one of the group's heartbeat. `fields` are those of `PullMessage`."""
    flags = (1 if commit is not None else 0) | (2 if suspend_ms else 0) | (4 if tags is not None else 0)
    given: dict[str, Any] = {
        "sys_flag": flags,
        "max_msg_nums": count,
        "subscription": tags,
        "commit_offset": commit or 0,
        "suspend_timeout_ms": suspend_ms,
        "sub_version": sub_version,
    }
    header = PullMessage(group, topic, queue_id, offset, **{**given, **fields})
    return request(code, header.encode())


def heartbeat_body(
    *groups: str, topics: dict[str, str] | None = None, client_id: str = "client-1", model: str = "CLUSTERING"
) -> bytes:
    """`topics` by name with their tag expression; every group subscribes to all of them."""
    subscriptions = [
        SubscriptionData(
            topic=topic,
            sub_string=tags,
            sub_version=1,
            code_set=set() if tags == "*" else {java_string_hash(tag.strip()) for tag in tags.split("||")},
        )
        for topic, tags in (topics or {}).items()
    ]
    consumers = [
        ConsumerData(
            group_name=group,
            consume_type="CONSUME_PASSIVELY",
            message_model=model,
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=subscriptions,
        )
        for group in groups
    ]
    producers = [ProducerData(group_name="producers")]
    return HeartbeatData(client_id=client_id, consumer_data_set=consumers, producer_data_set=producers).encode()


class Peer:
    """A client with nothing but requests. What a broker asks of it is kept in `asked` and answered with 0."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[Command] = []
        dispatcher = Dispatcher(self._take, Family("peer", 1000))
        self.client = Client(dispatcher)

    @classmethod
    @asynccontextmanager
    async def of(cls, broker: Broker) -> "AsyncIterator[Peer]":
        async with cls.at(broker.address) as peer:
            yield peer

    @classmethod
    @asynccontextmanager
    async def at(cls, address: str) -> "AsyncIterator[Peer]":
        peer = cls(address)
        try:
            yield peer
        finally:
            await peer.client.stop()

    def _take(self, _: Connection, received: Command) -> Command:
        self.asked.append(received)
        return reply(received)

    async def ask(self, command: Command, timeout_s: float = CALL_S) -> Command:
        return await self.client.call(self.address, command, timeout_s)

    async def call(self, code: int, body: bytes = b"", /, **ext: object) -> Command:
        return await self.ask(request(code, {name: _text(value) for name, value in ext.items()}, body))

    async def send(self, topic: str, body: bytes = b"hello", **fields: Any) -> Command:
        return await self.ask(send_request(topic, body, **fields))

    async def send_oneway(self, topic: str, body: bytes = b"hello", **fields: Any) -> None:
        await self.client.send_oneway(self.address, send_request(topic, body, **fields), CALL_S)

    async def pull(self, topic: str, queue_id: int = 0, offset: int = 0, **fields: Any) -> Command:
        return await self.ask(pull_request(topic, queue_id, offset, **fields))

    async def pull_messages(self, topic: str, queue_id: int = 0, offset: int = 0, **fields: Any) -> list[StoredMessage]:
        """What one pull brings; nothing if it found nothing."""
        answer = await self.pull(topic, queue_id, offset, **fields)
        assert answer.code in (0, 19, 20, 21), f"{answer.code}: {answer.remark}"
        return decode_records(answer.body) if answer.body else []

    async def heartbeat(self, *groups: str, **options: Any) -> Command:
        answer = await self.call(Request.HEART_BEAT, heartbeat_body(*groups, **options))
        assert answer.code == 0, answer.remark
        return answer


async def until_routed(peer: RawPeer, topic: str) -> TopicRoute:
    for _ in range(2000):
        found = await route(peer, topic)
        if found is not None:
            return found
        await asyncio.sleep(0.002)
    raise AssertionError(f"no route of {topic}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
