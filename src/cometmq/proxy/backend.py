"""The front's backend in a proxy: each request goes on to the broker that it names.

    heartbeat              to the brokers of the client's topics, on connections of the client's own (member.py)
    everything else        to one broker, on a connection that all clients share

A receive that was given up while its broker still waited may take messages that nobody wants any more: they are put
back, visible in a second. A broker that does not answer in time is PROXY_TIMEOUT (50400) to the client.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Final

from cometmq.clock import Clock
from cometmq.errors import CallError, CallTimeout, CometError, ConnectFailed, WireError
from cometmq.front.backend import Credentials, Limits, Topic
from cometmq.front.receive import GIVEN_BACK_MS, popped
from cometmq.front.refusals import NO_ANSWER, NO_SUCH_BROKER, Refused
from cometmq.front.requests import change_command
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family
from cometmq.net.endpoint import Endpoint
from cometmq.net.inside import Commands, Inside
from cometmq.net.limits import CLIENT_LIMITS
from cometmq.net.limits import Limits as NetLimits
from cometmq.net.tls import ClientTls
from cometmq.proxy.cluster import CALL_S, Cluster
from cometmq.proxy.config import ProxyConfig, name_servers
from cometmq.proxy.member import Member, topics_of
from cometmq.rate_limited_log import ThinnedLog
from cometmq.wire.bodies import HeartbeatData, SubscriptionGroupConfig
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command, reply
from cometmq.wire.grpc import messages_pb2 as pb

logger = logging.getLogger(__name__)

PERM_READ: Final = 4
WAITING_MAX: Final = 200_000
# What a broker needs besides the time that it may wait for messages.
ANSWER_S: Final = 5.0
POLLS: Final = {Request.POP_MESSAGE: "pollTime", Request.PULL_MESSAGE: "suspendTimeoutMillis"}
DIGITS_MAX: Final = 9
STOPPING_LOOK_S: Final = 0.02
HANDLE_BROKER: Final = 2


class ClusterBackend:
    def __init__(self, config: ProxyConfig, clock: Clock) -> None:
        self._clock = clock
        self._tls = ClientTls.of_server(config)
        self._client = Client(None, CLIENT_LIMITS, clock, self._tls)
        self.cluster = Cluster(self._client, name_servers(config), clock)
        self._limits = Limits(
            body_bytes_max=config.body_bytes_max,
            delay_ms_max=config.delay_ms_max,
            check_message_types=config.check_message_types,
        )
        self._endpoint = Endpoint(NetLimits(), clock, (), None)
        self._endpoint.on_close = self._left  # type: ignore[assignment]  # nothing else is in it
        self._family = Family("cluster", WAITING_MAX)
        self._dispatcher = Dispatcher(default=self._serve, family=self._family)
        self._members: dict[Connection, Member] = {}
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._log_failed = ThinnedLog(logger, clock)

    @property
    def waiting(self) -> int:
        """Requests that brokers have not answered yet."""
        return self._family.waiting

    def start(self) -> None:
        self._endpoint.loop = asyncio.get_running_loop()
        self.cluster.watch()

    async def stop(self) -> None:
        """What was sent on is answered first, for a while: messages that were given back are among it."""
        until_s = self._clock.monotonic() + CALL_S
        while self._family.waiting and self._clock.monotonic() < until_s:  # noqa: ASYNC110 - once, at the end
            await asyncio.sleep(STOPPING_LOOK_S)
        self._endpoint.stop()
        for member in list(self._members.values()):
            await member.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cluster.stop()
        await self._client.stop()

    # The protocol

    def limits(self) -> Limits:
        return self._limits

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def enter(self, peer: tuple[str, int], peer_text: str, source: str, commands: Commands | None) -> Inside:
        inside = Inside(self._endpoint, self._dispatcher, peer, peer_text, source, commands)
        if commands is not None:
            self._members[inside] = Member(commands, self._clock, self._tls)
        return inside

    def check(self, request: Command, credentials: Credentials) -> None:
        """A proxy knows no users. A cluster with access control refuses what it sends on."""

    def topic(self, name: str) -> Topic | None:
        return self.cluster.topics.get(name)

    def route(self, name: str) -> Topic | None:
        return self.cluster.topics.get(name)

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self.cluster.groups.get(name)

    def broker_of(self, asked: str, topic: Topic) -> str:
        readable = [it.broker for it in topic.brokers if it.perm & PERM_READ and it.read > 0]
        if asked in readable:
            return asked
        if not readable:
            raise Refused(pb.FORBIDDEN, f"topic {topic.name} has no queue that may be read")
        self._next += 1
        return readable[self._next % len(readable)]

    # Sending on

    def _serve(self, connection: Connection, request: Command) -> Awaitable[Command | None] | None:
        if request.code == Request.HEART_BEAT:
            return self._beat(connection, request)
        broker = broker_named(request)
        address = self.cluster.addresses.get(broker)
        if address is None:
            return self._find_and_send(connection, request, broker)
        self._send(connection, request, broker, address)
        return None

    async def _beat(self, connection: Connection, request: Command) -> Command | None:
        member = self._members.get(connection)
        if member is None:
            return reply(request, Response.SYSTEM_ERROR, "the client has gone")
        brokers: dict[str, str] = {}
        for name in topics_of(HeartbeatData.decode(request.body)):
            topic = await self.cluster.topics.find(name)
            for broker in topic.brokers if topic is not None else ():
                address = self.cluster.addresses.get(broker.broker)
                if address is not None:
                    brokers[broker.broker] = address
        answer = await member.beat(request, brokers)
        return answer if answer is not None else reply(request, Response.SUCCESS)

    async def _find_and_send(self, connection: Connection, request: Command, broker: str) -> Command | None:
        """The answer of a broker that no route has named yet: a handle of before this proxy's start names it."""
        try:
            address = await self.cluster.find_address(broker)
        except CometError as error:
            return reply(request, Response.SYSTEM_ERROR, str(error))
        if address is None:
            return reply(request, NO_SUCH_BROKER, f"no broker of the cluster has the name {broker[:80]!r}")
        try:
            return await self._client.call(address, copy_of(request), time_of(request))
        except CallError as error:
            return self._failed(request, broker, error)

    def _send(self, connection: Connection, request: Command, broker: str, address: str) -> None:
        answered = partial(self._answered, connection, request, broker, address)
        try:
            self._client.call_soon(address, copy_of(request), time_of(request), answered)
        except CallError as error:
            connection.answer(request, self._failed(request, broker, error))

    def _answered(
        self,
        connection: Connection,
        request: Command,
        broker: str,
        address: str,
        response: Command | None,
        error: CallError | None,
    ) -> None:
        if response is None:
            assert error is not None
            connection.answer(request, self._failed(request, broker, error))
        elif not connection.answer(request, response) and request.code == Request.POP_MESSAGE:
            self._put_back(request, response, broker, address)

    def _failed(self, request: Command, broker: str, error: CallError) -> Command:
        self._log_failed.warning("fail request code=%d broker=%s cause=%s", request.code, broker, error)
        if isinstance(error, ConnectFailed):
            self.cluster.lost(broker)
        return reply(request, NO_ANSWER if isinstance(error, CallTimeout) else Response.SYSTEM_ERROR, str(error))

    def _put_back(self, request: Command, response: Command, broker: str, address: str) -> None:
        if response.code != Response.SUCCESS:
            return
        group, topic = request.ext.get("consumerGroup", ""), request.ext.get("topic", "")
        try:
            found = popped(response, broker)
        except WireError as error:
            self._log_failed.warning("fail giving back broker=%s cause=%s", broker, error)
            return
        for _, handle, _ in found:
            command = change_command(handle, group, topic, GIVEN_BACK_MS)
            self._client.call_soon(address, command, CALL_S, _nothing)

    def _left(self, connection: Connection) -> None:
        member = self._members.pop(connection, None)
        if member is not None:
            task = asyncio.get_running_loop().create_task(member.stop())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def broker_named(request: Command) -> str:
    """By a request; a recall names it in its handle."""
    if request.code == Request.SEND_MESSAGE_V2:
        return request.ext.get("n", "")
    if request.code == Request.RECALL_MESSAGE:
        try:
            parts = base64.urlsafe_b64decode(request.ext.get("recallHandle", "")).decode().split(" ")
        except ValueError:
            return ""
        return parts[HANDLE_BROKER] if len(parts) > HANDLE_BROKER else ""
    return request.ext.get("bname", "")


def time_of(request: Command) -> float:
    """How long its broker may take."""
    poll = request.ext.get(POLLS.get(request.code, ""), "0")
    poll_ms = int(poll) if poll.isascii() and poll.isdigit() and len(poll) <= DIGITS_MAX else 0
    return ANSWER_S + poll_ms / 1000


def copy_of(request: Command) -> Command:
    """With a number of its own on the way to the broker."""
    return Command(request.code, request.language, request.version, 0, 0, None, request.ext, request.body, 0)


def _nothing(response: Command | None, error: CallError | None) -> None:
    """What fails comes again when its time is over."""
