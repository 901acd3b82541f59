"""A whole broker on a temporary directory, and the words in which tests talk to it over a socket.

Time stands still unless a test moves it: what runs by the clock runs when the test says so.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from cometmq.broker.admin import settings as live
from cometmq.broker.server import Broker
from cometmq.clock import Clock, ManualClock
from cometmq.wire.bodies import Body, ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from cometmq.wire.codes import Request
from cometmq.wire.command import Command, request
from tests.support.net import RawPeer

# Files that fit a test.
SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
}


class Session(RawPeer):
    """One client's connection."""

    async def ask(self, code: int, body: Body | bytes = b"", *, version: int = 513, **ext: Any) -> Command:
        data = body if isinstance(body, bytes) else body.encode()
        command = request(code, {name: _text(value) for name, value in ext.items()}, data, opaque=7)
        command.version = version
        return await self.call(command)

    async def send_message(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        properties: str = "",
        code: int = Request.SEND_MESSAGE,
        **ext: Any,
    ) -> Command:
        fields: dict[str, Any] = {
            "producerGroup": "pg",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue_id,
            "sysFlag": 0,
            "bornTimestamp": 1_700_000_000_000,
            "flag": 0,
            "properties": properties,
            "reconsumeTimes": 0,
            "unitMode": False,
            "batch": False,
        }
        return await self.ask(code, body, **{**fields, **ext})

    async def pull(self, topic: str, offset: int, *, group: str = "g", queue_id: int = 0, count: int = 32) -> Command:
        return await self.ask(
            Request.PULL_MESSAGE,
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            queueOffset=offset,
            maxMsgNums=count,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
        )

    async def join(self, client_id: str, *, group: str | None = None, topic: str = "T", producer: str | None = None,
                   version: int = 513) -> None:  # fmt: skip
        """Say hello as a member of a consumer group, as a producer, or both."""
        consumers = [
            ConsumerData(
                group_name=group,
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                subscription_data_set=[SubscriptionData(topic=topic, sub_string="*", sub_version=1)],
            )
        ]
        heartbeat = HeartbeatData(
            client_id=client_id,
            consumer_data_set=consumers if group else [],
            producer_data_set=[ProducerData(group_name=producer)] if producer else [],
        )
        command = request(Request.HEART_BEAT, {}, heartbeat.encode(), opaque=1)
        command.version = version
        self.send(command)
        while (await self.receive()).opaque != 1:
            pass  # notices to the group may come first

    async def asked(self, code: int) -> Command:
        """The next request of this kind that the broker sends to us."""
        while True:
            command = await self.receive()
            if not command.is_response and command.code == code:
                return command


class Running:
    def __init__(self, broker: Broker, stack: AsyncExitStack) -> None:
        self.broker = broker
        self._stack = stack

    async def connect(self) -> Session:
        session = await self._stack.enter_async_context(Session.connected(self.broker.port))
        assert isinstance(session, Session)
        return session


@asynccontextmanager
async def running_broker(directory: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Running]:
    texts = {"listenPort": 0, "storePathRootDir": directory / "store", **SMALL, **settings}
    broker = Broker(live.load({key: _text(value) for key, value in texts.items()}), clock or ManualClock())
    await broker.start()
    try:
        async with AsyncExitStack() as stack:
            yield Running(broker, stack)
    finally:
        await broker.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
