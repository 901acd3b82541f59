"""One gRPC client as its brokers see it: a connection of its own to each broker of its topics.

So it is in their lists like every client, transactions are asked for where they were begun, what an administrator asks
of a client arrives, and a broker knows at once when it is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from cometmq.clock import Clock
from cometmq.errors import CallError
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.inside import Commands
from cometmq.net.limits import CLIENT_LIMITS
from cometmq.net.tls import ClientTls
from cometmq.wire.bodies import HeartbeatData
from cometmq.wire.codes import Response
from cometmq.wire.command import FLAG_ONEWAY, Command

BEAT_S: Final = 3.0
ASKED_S: Final = 5.0
ASKED_MAX: Final = 100


class Member:
    def __init__(self, commands: Commands, clock: Clock, tls: ClientTls | None) -> None:
        self._commands = commands
        dispatcher = Dispatcher(default=self._asked, family=Family("asked", ASKED_MAX))
        self._client = Client(dispatcher, CLIENT_LIMITS, clock, tls)
        self._addresses: dict[str, str] = {}  # broker by address

    async def beat(self, command: Command, brokers: dict[str, str]) -> Command | None:
        """To all of these, by name with their addresses; the answer of the last, or of one that refused."""
        for broker, address in brokers.items():
            self._addresses[address] = broker
        for address, broker in list(self._addresses.items()):
            if brokers.get(broker) != address:
                del self._addresses[address]
                self._client.drop(address, "none of its topics is there any more")
        answers = await asyncio.gather(*(self._beat(address, command) for address in brokers.values()))
        refused = [it for it in answers if it is not None and it.code != Response.SUCCESS]
        return refused[0] if refused else next((it for it in answers if it is not None), None)

    async def _beat(self, address: str, command: Command) -> Command | None:
        """None: it is not there now. The next heartbeat tries again."""
        copy = Command(command.code, command.language, command.version, 0, 0, None, {}, command.body, 0)
        try:
            return await self._client.call(address, copy, BEAT_S)
        except CallError:
            return None

    async def stop(self) -> None:
        await self._client.stop()

    def _asked(self, connection: Connection, command: Command) -> Awaitable[Command | None] | None:
        """By a broker."""
        if not command.flag & FLAG_ONEWAY:
            return self._commands.asked(command, ASKED_S)
        for address, broker in self._addresses.items():
            if self._client.connection(address) is connection:
                command.ext.setdefault("bname", broker)
        self._commands.told(command)
        return None


def topics_of(data: HeartbeatData) -> set[str]:
    """A producer's group is its topic."""
    names = [it.group_name for it in data.producer_data_set]
    for consumer in data.consumer_data_set:
        names += [it.topic for it in consumer.subscription_data_set]
    return {name for name in names if name}
