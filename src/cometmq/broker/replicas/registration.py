"""Telling the name servers who this broker is and which topics it has.

    start          a full registration with every name server
    every 30 s     the same again (registerNameServerPeriod, within 10 and 60 s; first after 10 s)
    topic changed  a registration with just the changed topics, at once
    stop           unregistered everywhere, before anything else stops
    isolated       nothing of it, until `join` (replica_group.py)

The answer tells a replica where its master is, and that it is gone if it is not told.

Name servers know nothing of each other, so each is told by itself, all at the same time; one that does not answer
costs the others nothing and is told again next time.

Registrations with one name server go out one after the other: the last word about a topic must be the newest. What
changes meanwhile is gathered and told by the next one, so a slow name server never has more than one of them waiting.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables.topics import Topics
from cometmq.clock import Clock, Timer
from cometmq.errors import CometError
from cometmq.net.client import Client
from cometmq.wire.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfig, TopicConfigTable
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import request as new_request
from cometmq.wire.hashing import crc31
from cometmq.wire.headers import (
    QueryDataVersion,
    QueryDataVersionResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    UnregisterBroker,
)

logger = logging.getLogger(__name__)

FIRST_PERIOD_S: Final = 10.0
PERIOD_MS_MIN: Final = 10_000
PERIOD_MS_MAX: Final = 60_000
UNREGISTER_LIMIT_S: Final = 3.0
REPORT_LIMIT_S: Final = 3.0
PERM_READ_WRITE: Final = 6

# Told the addresses of the master, for requests and for the log; None while name servers know of none.
OnMaster = Callable[[str | None, str | None], object]


class Turn:
    """What one name server still has to hear. `reported`: it has taken all that it was sent."""

    __slots__ = ("everything", "reported", "running", "topics")

    def __init__(self) -> None:
        self.everything: bool = False
        self.topics: dict[str, TopicConfig] = {}
        self.reported: bool = False
        self.running: asyncio.Task[None] | None = None


class Registration:
    """`address` is how others reach this broker; replicas reach it at `ha_port`."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        topics: Topics,
        client: Client,
        clock: Clock,
        ha_port: int,
        *,
        is_isolated: bool = False,
    ) -> None:
        self.address: str = ""
        self.sent: int = 0
        # The epoch of a master that was elected: name servers believe the newest. 0: nobody was.
        self.state_version: int = 0
        self.is_isolated: bool = is_isolated
        self._listeners: list[OnMaster] = []
        self._config = config
        self._topics = topics
        self._client = client
        self._clock = clock
        self._ha_port = ha_port
        self._timer: Timer | None = None
        self._from_s: float = 0.0
        self._turns: dict[str, Turn] = {}
        self._stopped: bool = False

    def subscribe(self, listener: OnMaster) -> None:
        self._listeners.append(listener)

    @property
    def name_servers(self) -> list[str]:
        return [address.strip() for address in self._config().namesrv_addresses.split(";") if address.strip()]

    def known_to(self) -> dict[str, bool]:
        """By name server: whether it has taken what it was last sent."""
        return {server: server in self._turns and self._turns[server].reported for server in self.name_servers}

    @property
    def ha_address(self) -> str:
        """Where replicas get the log."""
        config = self._config()
        return f"{config.broker_ip2 or config.advertised_host}:{self._ha_port}"

    async def start(self, address: str) -> None:
        """Register everywhere, and return when every name server has answered or had its time."""
        self.address = address
        self._from_s = self._clock.monotonic() + max(0, self._config().disappear_after_start_ms) / 1000
        self._timer = self._clock.call_later(FIRST_PERIOD_S, self._tick)
        await self.register()

    async def register(self) -> None:
        """The whole table, everywhere, now."""
        self._tell([])
        await self._settle(None)

    async def join(self) -> None:
        """Out of isolation."""
        self.is_isolated = False
        await self.register()

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        running = self._running()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self.address and not self.is_isolated:
            await asyncio.gather(*(self._unregister(server) for server in self.name_servers))

    def announce(self, changed: Sequence[TopicConfig]) -> None:
        """Topics have changed: tell everybody soon. An empty list tells the whole table."""
        if self.address and not self._stopped:
            self._tell(changed)

    async def reported(self) -> None:
        """Return when the name servers have heard what was announced so far, or have had their time."""
        await self._settle(REPORT_LIMIT_S)

    def _tick(self) -> None:
        period_ms = min(max(self._config().register_period_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)
        self._timer = self._clock.call_later(period_ms / 1000, self._tick)
        self._tell([])

    # Whom to tell what

    def _tell(self, changed: Sequence[TopicConfig]) -> None:
        if self.is_isolated or self._clock.monotonic() < self._from_s:
            return
        for server in self.name_servers:
            turn = self._turns.setdefault(server, Turn())
            turn.topics.update({topic.topic_name: topic for topic in changed})
            turn.everything = turn.everything or not changed
            if turn.running is None:
                turn.running = asyncio.get_running_loop().create_task(self._take_turn(server, turn))

    async def _take_turn(self, server: str, turn: Turn) -> None:
        """One registration after the other, until there is nothing left to say. Failures are logged, never raised."""
        try:
            while turn.everything or turn.topics:
                # One that does not know this broker needs all of it, and refuses a single topic.
                everything = turn.everything or not turn.reported
                topics = list(turn.topics.values())
                turn.everything = False
                turn.topics = {}
                turn.reported = await self._register(server, None if everything else topics)
        finally:
            turn.running = None

    async def _register(self, server: str, topics: list[TopicConfig] | None) -> bool:
        try:
            if topics is None and not self._config().force_register and not await self._is_new_to(server):
                return True
            return await self._send(server, topics)
        except CometError as error:
            logger.warning("fail registration name_server=%s cause=%s", server, error)
            return False

    def _running(self) -> list[asyncio.Task[None]]:
        return [turn.running for turn in self._turns.values() if turn.running is not None]

    async def _settle(self, limit_s: float | None) -> None:
        running = self._running()
        if running:
            await asyncio.wait(running, timeout=limit_s)

    # One name server

    async def _is_new_to(self, server: str) -> bool:
        config = self._config()
        header = QueryDataVersion(config.broker_name, self.address, config.cluster_name, config.broker_id)
        command = new_request(Request.QUERY_DATA_VERSION, header.encode(), self._version().encode())
        answer = await self._client.call(server, command, config.register_timeout_ms / 1000)
        if answer.code != Response.SUCCESS:
            return True
        return QueryDataVersionResponse.decode(answer.ext).changed is not False

    async def _send(self, server: str, topics: list[TopicConfig] | None) -> bool:
        config = self._config()
        told = self._topics.table.values() if topics is None else topics
        table = {topic.topic_name: self._masked(topic) for topic in told}
        body = RegisterBrokerBody(
            topics=TopicConfigTable(data_version=self._version(), topic_config_table=table)
        ).encode()
        header = RegisterBroker(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=config.broker_id,
            heartbeat_timeout_ms=config.not_active_timeout_ms if config.acting_master_enabled else None,
            enable_acting_master=config.acting_master_enabled,
            body_crc32=crc31(body),
        )
        command = new_request(Request.REGISTER_BROKER, header.encode(), body)
        answer = await self._client.call(server, command, config.register_timeout_ms / 1000)
        self.sent += 1
        if answer.code != Response.SUCCESS:
            logger.warning("refused registration name_server=%s code=%d cause=%s", server, answer.code, answer.remark)
            return False
        answered = RegisterBrokerResponse.decode(answer.ext)
        for listener in self._listeners:
            listener(answered.master_addr or None, answered.ha_server_addr or None)
        if answer.body and topics is None:
            self._topics.set_ordered(KVTable.decode(answer.body).table)
        return True

    def _version(self) -> DataVersion:
        version = self._topics.data_version
        return msgspec.structs.replace(version, state_version=self.state_version) if self.state_version else version

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

