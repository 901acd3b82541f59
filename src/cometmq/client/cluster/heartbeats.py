"""Heartbeats: how brokers learn which groups a client serves, and that it lives.

    who     all masters; with a consumer registered all replicas, too; nobody if nothing is registered
    when    at start, when a subscription or an assignment changed, on a new connection, every 30 s
    how     one at a time: who asks for one while the same is on its way waits for that

What fails is logged and left to the next one. The answer's version is remembered for each broker.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cometmq.errors import CometError
from cometmq.net.connection import Connection
from cometmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from cometmq.wire.codes import MASTER_ID, Request, Response

if TYPE_CHECKING:
    from cometmq.client.cluster.instance import Instance

logger = logging.getLogger(__name__)

LOG_EVERY: Final = 20


class Heartbeats:
    def __init__(self, instance: "Instance") -> None:
        self._instance = instance
        self._beating: asyncio.Task[None] | None = None
        self._body = b""
        self._under_way: set[str] = set()
        self._count = 0
        self.versions: dict[str, int] = {}

    async def beat(self) -> None:
        """Tell every broker who we are. Returns when all have answered or failed."""
        body = self._compose()
        # A task that is done may be here still: its callback runs later, and awaiting it again would not let it.
        while self._beating is not None and not self._beating.done():
            is_same = self._body == body
            await asyncio.shield(self._beating)
            if is_same:
                return
            body = self._compose()
        if body is None:
            return
        self._body = body
        self._beating = self._instance.spawn(self._beat_all(body))
        self._beating.add_done_callback(self._ended)
        await asyncio.shield(self._beating)

    def greet(self, connection: Connection) -> None:
        """A connection was opened. If a broker is behind it, it does not know us yet."""
        host, port = connection.peer
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        body = self._compose()
        if body is None or address in self._under_way:
            return
        for name, number, known in self._instance.brokers.members():
            if known == address and self._is_told(number):
                self._instance.spawn(self._greet(name, address, body))
                return

    def _compose(self) -> bytes | None:
        instance = self._instance
        if not instance.producers and not instance.consumers:
            return None
        consumers = [
            ConsumerData(
                group_name=group,
                consume_type=consumer.consume_type,
                message_model=consumer.message_model,
                consume_from_where=consumer.start_from,
                subscription_data_set=consumer.subscriptions(),
                unit_mode=instance.options.unit_mode,
            )
            for group, consumer in instance.consumers.items()
        ]
        producers = [ProducerData(group_name=group) for group in instance.producers]
        data = HeartbeatData(
            client_id=instance.client_id, consumer_data_set=consumers, producer_data_set=producers
        )
        return data.encode()

    def _is_told(self, broker_id: int) -> bool:
        return broker_id == MASTER_ID or bool(self._instance.consumers)

    async def _beat_all(self, body: bytes) -> None:
        members = [member for member in self._instance.brokers.members() if self._is_told(member[1])]
        await asyncio.gather(*[self._beat_one(name, address, body) for name, _, address in members])

    async def _beat_one(self, name: str, address: str, body: bytes) -> bool:
        instance = self._instance
        self._under_way.add(address)
        try:
            command = instance.request(Request.HEART_BEAT, {}, body)
            response = await instance.net.call(address, command, instance.options.call_timeout)
        except CometError as error:
            logger.warning("fail heartbeat broker=%s address=%s cause=%s", name, address, error)
            return False
        finally:
            self._under_way.discard(address)
        self.versions[address] = response.version
        if response.code != Response.SUCCESS:
            logger.warning("fail heartbeat broker=%s code=%d remark=%s", name, response.code, response.remark)
            return False
        self._count += 1
        if self._count % LOG_EVERY == 1:
            logger.info("sent heartbeat broker=%s address=%s count=%d", name, address, self._count)
        return True

    async def _greet(self, name: str, address: str, body: bytes) -> None:
        if await self._beat_one(name, address, body):
            wake: list[Callable[[], None]] = [
                consumer.on_members_changed for consumer in self._instance.consumers.values()
            ]
            for each in wake:
                each()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if self._beating is task:
            self._beating = None
