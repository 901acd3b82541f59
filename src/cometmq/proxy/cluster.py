"""What is where in the cluster: asked of name servers and brokers when it is wanted, and kept for a while.

    topics   queues by broker, from a name server; the message type, from a broker that has it      20 s
    groups   from any broker                                                                        20 s
    brokers  the address of each one's master, from routes, or all of them from a name server

What nobody has is remembered for a second, so that one who asks for it again and again does not ask the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar

from cometmq.clock import Clock, Timer
from cometmq.errors import CallError, CometError, RequestError
from cometmq.front.backend import BrokerQueues, Topic, Wanted
from cometmq.net.client import Client
from cometmq.wire.bodies import ClusterInfo, SubscriptionGroupConfig, TopicConfig, TopicRoute
from cometmq.wire.codes import Request, Response
from cometmq.wire.command import Command
from cometmq.wire.command import request as new_request

KEPT_S: Final = 20.0
MISSING_KEPT_S: Final = 1.0
ENTRIES_MAX: Final = 10_000
CALL_S: Final = 3.0
MASTER: Final = 0
MESSAGE_TYPE: Final = "message.type"

V = TypeVar("V")


class Kept(Generic[V]):
    """Values by name, None for one that nobody has. One name is asked for once at a time."""

    def __init__(self, clock: Clock, ask: Callable[[str], Awaitable[V | None]]) -> None:
        self._clock = clock
        self._ask = ask
        self._found: dict[str, tuple[float, V | None]] = {}
        self._asking: dict[str, asyncio.Task[V | None]] = {}

    def get(self, name: str) -> V | None:
        """Raises Wanted."""
        found = self._found.get(name)
        if found is None or self._clock.monotonic() >= found[0]:
            raise Wanted(partial(self._want, name))
        return found[1]

    async def find(self, name: str) -> V | None:
        """Raises CometError if it cannot be asked for."""
        found = self._found.get(name)
        if found is not None and self._clock.monotonic() < found[0]:
            return found[1]
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._load(name))
            task.add_done_callback(lambda _: self._asking.pop(name, None))
        return await asyncio.shield(task)

    async def _want(self, name: str) -> None:
        await self.find(name)

    async def _load(self, name: str) -> V | None:
        value = await self._ask(name)
        if len(self._found) >= ENTRIES_MAX:
            self._found.clear()
        kept_s = KEPT_S if value is not None else MISSING_KEPT_S
        self._found[name] = (self._clock.monotonic() + kept_s, value)
        return value

    def forget(self) -> None:
        self._found.clear()

    async def stop(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Cluster:
    def __init__(self, client: Client, name_servers: tuple[str, ...], clock: Clock) -> None:
        self._client = client
        self._name_servers = name_servers
        self._first = 0  # of the name servers: the one that answered last
        # Why none has answered the last question; empty if one has.
        self.unreachable = "nothing was asked yet"
        self._clock = clock
        self._timer: Timer | None = None
        self._look: asyncio.Task[None] | None = None
        self.addresses: dict[str, str] = {}  # of masters, by broker
        self.topics: Kept[Topic] = Kept(clock, self._ask_topic)
        self.groups: Kept[SubscriptionGroupConfig] = Kept(clock, self._ask_group)
        self._brokers: Kept[tuple[str, ...]] = Kept(clock, self._ask_brokers)

    async def find_address(self, broker: str) -> str | None:
        """Of one that no route has named yet. Raises CometError."""
        if broker not in self.addresses:
            await self._brokers.find("")
        return self.addresses.get(broker)

    def lost(self, broker: str) -> None:
        """It cannot be reached: perhaps it is elsewhere now."""
        self.addresses.pop(broker, None)
        self.topics.forget()
        self._brokers.forget()

    def watch(self) -> None:
        """Look for the brokers now and again, so that it is known whether there is a cluster."""
        self._timer = self._clock.call_later(KEPT_S, self.watch)
        self._look = asyncio.get_running_loop().create_task(self._find_brokers())

    async def _find_brokers(self) -> None:
        with contextlib.suppress(CometError):  # `unreachable` says it
            await self._brokers.find("")

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)
        for kept in (self.topics, self.groups, self._brokers):
            await kept.stop()

    # Asking

    async def _ask_name_server(self, code: int, ext: dict[str, str]) -> Command:
        """Whichever answers. Raises CallError."""
        failure: CallError | None = None
        for step in range(len(self._name_servers)):
            place = (self._first + step) % len(self._name_servers)
            try:
                answer = await self._client.call(self._name_servers[place], new_request(code, dict(ext)), CALL_S)
            except CallError as error:
                failure = error
                continue
            self._first = place
            self.unreachable = ""
            return answer
        assert failure is not None
        self.unreachable = str(failure)
        raise failure

    async def _ask_topic(self, name: str) -> Topic | None:
        ext = {"topic": name, "acceptStandardJsonOnly": "true"}
        answer = await self._ask_name_server(Request.GET_ROUTEINFO_BY_TOPIC, ext)
        if answer.code == Response.TOPIC_NOT_EXIST:
            return None
        _check(answer)
        route = TopicRoute.decode_answer(answer.body)
        masters = {it.broker_name: it.broker_addrs.get(MASTER) for it in route.broker_datas}
        brokers = []
        for queues in route.queue_datas:
            address = masters.get(queues.broker_name)
            if address is not None:
                self.addresses[queues.broker_name] = address
                counts = (queues.perm, queues.read_queue_nums, queues.write_queue_nums)
                brokers.append(BrokerQueues(queues.broker_name, *counts))
        if not brokers:
            return None
        return Topic(name, await self._ask_type(name, brokers[0].broker), tuple(brokers))

    async def _ask_type(self, name: str, broker: str) -> str:
        request = new_request(Request.GET_TOPIC_CONFIG, {"topic": name})
        answer = await self._client.call(self.addresses[broker], request, CALL_S)
        if answer.code == Response.TOPIC_NOT_EXIST:
            return "NORMAL"  # known to the name server only, from a broker of before
        _check(answer)
        return TopicConfig.decode(answer.body).attributes.get(MESSAGE_TYPE, "NORMAL")

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig | None:
        brokers = await self._brokers.find("") or ()
        failure: CallError | None = None
        for broker in brokers:
            request = new_request(Request.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
            try:
                answer = await self._client.call(self.addresses[broker], request, CALL_S)
            except CallError as error:
                failure = error
                continue
            if answer.code == Response.SUBSCRIPTION_GROUP_NOT_EXIST:
                return None
            _check(answer)
            return SubscriptionGroupConfig.decode(answer.body)
        raise failure or RequestError(Response.SYSTEM_ERROR, "the name server knows of no broker with a master")

    async def _ask_brokers(self, _: str) -> tuple[str, ...] | None:
        answer = await self._ask_name_server(Request.GET_BROKER_CLUSTER_INFO, {})
        _check(answer)
        found = []
        for name, broker in sorted(ClusterInfo.decode(answer.body).broker_addr_table.items()):
            address = broker.broker_addrs.get(MASTER)
            if address is not None:
                self.addresses[name] = address
                found.append(name)
        return tuple(found) or None


def _check(answer: Command) -> None:
    if answer.code != Response.SUCCESS:
        raise RequestError(answer.code, answer.remark or "")
