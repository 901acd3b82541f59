"""Telling the name servers who this broker is and which topics it has.

    start          a full registration with every name server
    every 30 s     the same again (registerNameServerPeriod, within 10 and 60 s; first after 10 s)
    topic changed  a registration with just the changed topics, at once
    stop           unregistered everywhere, before anything else stops

Name servers know nothing of each other, so each is told by itself, all at the same time; one that does not answer
costs the others nothing and is told again next time.

Registrations with one name server go out one after the other: the last word about a topic must be the newest.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

import msgspec

from cometmq.broker.config import BrokerConfig
from cometmq.broker.topics import Topics
from cometmq.clock import Clock, Timer
from cometmq.errors import CometError
from cometmq.net.client import Client
from cometmq.wire.bodies import KVTable, RegisterBrokerBody, TopicConfig, TopicConfigTable
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import request as new_request
from cometmq.wire.hashing import crc31
from cometmq.wire.headers import QueryDataVersion, QueryDataVersionResponse, RegisterBroker, UnregisterBroker

logger = logging.getLogger(__name__)

FIRST_PERIOD_S: Final = 10.0
PERIOD_MS_MIN: Final = 10_000
PERIOD_MS_MAX: Final = 60_000
UNREGISTER_LIMIT_S: Final = 3.0
TOLD_LIMIT_S: Final = 3.0
PERM_READ_WRITE: Final = 6


class Registration:
    """`address` and `ha_address` are how others reach this broker."""

    def __init__(
        self, config: Callable[[], BrokerConfig], topics: Topics, client: Client, clock: Clock, ha_port: int
    ) -> None:
        self.address: str = ""
        self.sent: int = 0
        self._config = config
        self._topics = topics
        self._client = client
        self._clock = clock
        self._ha_port = ha_port
        self._timer: Timer | None = None
        self._from_s: float = 0.0
        self._running: set[asyncio.Task[None]] = set()
        self._turn: dict[str, asyncio.Lock] = {}
        self._stopped: bool = False

    @property
    def name_servers(self) -> list[str]:
        return [address.strip() for address in self._config().namesrv_addresses.split(";") if address.strip()]

    async def start(self, address: str) -> None:
        self.address = address
        config = self._config()
        self._from_s = self._clock.monotonic() + max(0, config.disappear_after_start_ms) / 1000
        if self._clock.monotonic() >= self._from_s:
            await self.register(None)
        self._timer = self._clock.call_later(FIRST_PERIOD_S, self._tick)

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.gather(*(self._unregister(server) for server in self.name_servers))

    def announce(self, changed: Sequence[TopicConfig]) -> None:
        """Topics have changed: tell everybody soon. An empty list tells the whole table."""
        if self.address and not self._stopped and self._clock.monotonic() >= self._from_s:
            self._spawn(self.register(list(changed) or None))

    async def register(self, topics: list[TopicConfig] | None) -> None:
        """Tell every name server all topics, or just some. Failures are logged, never raised."""
        await asyncio.gather(*(self._register_with(server, topics) for server in self.name_servers))

    async def told(self) -> None:
        """Return when the name servers have heard what was announced so far, or have had their time."""
        if self._running:
            await asyncio.wait(self._running, timeout=TOLD_LIMIT_S)

    # One name server

    def _tick(self) -> None:
        period_ms = min(max(self._config().register_period_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)
        self._timer = self._clock.call_later(period_ms / 1000, self._tick)
        if self._clock.monotonic() >= self._from_s:
            self._spawn(self.register(None))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _register_with(self, server: str, topics: list[TopicConfig] | None) -> None:
        turn = self._turn.setdefault(server, asyncio.Lock())
        async with turn:
            try:
                if topics is None and not self._config().force_register and not await self._is_new_to(server):
                    return
                await self._send(server, topics)
            except CometError as error:
                logger.warning("fail registration name_server=%s cause=%s", server, error)

    async def _is_new_to(self, server: str) -> bool:
        config = self._config()
        header = QueryDataVersion(config.broker_name, self.address, config.cluster_name, config.broker_id)
        command = new_request(Request.QUERY_DATA_VERSION, header.encode(), self._topics.data_version.encode())
        answer = await self._client.call(server, command, config.register_timeout_ms / 1000)
        if answer.code != Response.SUCCESS:
            return True
        return QueryDataVersionResponse.decode(answer.ext).changed is not False

    async def _send(self, server: str, topics: list[TopicConfig] | None) -> None:
        config = self._config()
        told = self._topics.table.values() if topics is None else topics
        table = {topic.topic_name: self._masked(topic) for topic in told}
        body = RegisterBrokerBody(
            topics=TopicConfigTable(data_version=self._topics.data_version, topic_config_table=table)
        ).encode()
        header = RegisterBroker(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.cluster_name,
            ha_server_addr=f"{config.broker_ip2 or config.advertised_host}:{self._ha_port}",
            broker_id=config.broker_id,
            enable_acting_master=config.acting_master_enabled,
            body_crc32=crc31(body),
        )
        command = new_request(Request.REGISTER_BROKER, header.encode(), body)
        answer = await self._client.call(server, command, config.register_timeout_ms / 1000)
        self.sent += 1
        if answer.code != Response.SUCCESS:
            logger.warning("refused registration name_server=%s code=%d cause=%s", server, answer.code, answer.remark)
        elif answer.body and topics is None:
            self._topics.set_ordered(KVTable.decode(answer.body).table)

    def _masked(self, topic: TopicConfig) -> TopicConfig:
        """A broker that may not be read or written has no topic that may."""
        permission = self._config().broker_permission
        if permission & PERM_READ_WRITE == PERM_READ_WRITE:
            return topic
        return msgspec.structs.replace(topic, perm=topic.perm & permission)

    async def _unregister(self, server: str) -> None:
        config = self._config()
        header = UnregisterBroker(config.broker_name, self.address, config.cluster_name, config.broker_id)
        try:
            await self._client.call(
                server, new_request(Request.UNREGISTER_BROKER, header.encode()), UNREGISTER_LIMIT_S
            )
        except CometError as error:
            logger.warning("fail unregistration name_server=%s cause=%s", server, error)
