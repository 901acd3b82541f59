"""One client: what it said of itself, its telemetry stream, its inner connection, and what is renewed for it.

A client is one inner connection (`Inside`): operators see it in lists like any other, and what a server asks of a
client goes over its telemetry stream. The end of that stream alone changes nothing: clients open another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cometmq.errors import SendFailed
from cometmq.front import commands
from cometmq.front.renewal import Renewals
from cometmq.net.http2 import Http2Connection
from cometmq.net.inside import Inside
from cometmq.wire.codes import LANGUAGE_CODES, Request
from cometmq.wire.command import Command
from cometmq.wire.grpc import messages_pb2 as pb
from cometmq.wire.http2.session import Stream

if TYPE_CHECKING:
    from cometmq.front.desk import Desk

logger = logging.getLogger(__name__)

PUSH_TYPES: Final = (pb.PUSH_CONSUMER,)
CONSUMER_TYPES: Final = (pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER)
OTHER_LANGUAGE: Final = 7


class Client:
    """`telemetry`: where the server speaks to it."""

    def __init__(self, desk: Desk, client_id: str, language: str, given: pb.Settings) -> None:
        self.id = client_id
        self.desk = desk
        self.settings = given
        self.telemetry: tuple[Http2Connection, Stream] | None = None
        self.language = LANGUAGE_CODES.get(language, OTHER_LANGUAGE)
        self.link: Inside
        self.renewals = Renewals(desk.ask)

    @property
    def is_consumer(self) -> bool:
        return self.settings.client_type in CONSUMER_TYPES

    @property
    def group(self) -> str:
        return self.settings.subscription.group.name if self.settings.HasField("subscription") else ""

    @property
    def is_fifo(self) -> bool:
        return self.settings.subscription.fifo

    @property
    def attempts_max(self) -> int:
        return self.settings.backoff_policy.max_attempts

    def write(self, command: pb.TelemetryCommand) -> None:
        """Raises SendFailed when it has no stream now."""
        if self.telemetry is None or self.telemetry[1].closed:
            raise SendFailed(f"client {self.id} has no telemetry stream")
        connection, stream = self.telemetry
        connection.session.send(stream, command.SerializeToString())
        connection.flush_soon()

    # What its inner connection is told (`Commands`)

    def told(self, command: Command) -> None:
        if command.code == Request.CHECK_TRANSACTION_STATE:
            commands.check_transaction(self, command)
        # That members of its group came or went is nothing to a client that shares no queues.

    async def asked(self, command: Command, timeout_s: float) -> Command:
        return await commands.relay(self, command, timeout_s)

    def closed(self, reason: str) -> None:
        self.desk.clients.forget(self, reason)


class ClientTable:
    """By id. `counts`: clients by their socket; `unsettled`: what is served when a client's settings have come."""

    def __init__(self) -> None:
        self.table: dict[str, Client] = {}
        self.counts: dict[tuple[str, int], int] = {}
        self.unsettled: dict[str, list[Callable[[], object]]] = {}

    def enter(self, client: Client) -> None:
        self.table[client.id] = client
        peer = client.link.peer
        self.counts[peer] = self.counts.get(peer, 0) + 1

    def forget(self, client: Client, reason: str) -> None:
        logger.info("forget client id=%s reason=%s", client.id, reason)
        if self.table.get(client.id) is client:
            del self.table[client.id]
            peer = client.link.peer
            self.counts[peer] -= 1
            if not self.counts[peer]:
                del self.counts[peer]
        client.renewals.give_back()

    def close(self) -> None:
        for client in list(self.table.values()):
            client.link.close("the server stops")
