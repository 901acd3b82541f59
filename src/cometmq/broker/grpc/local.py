"""The backend that is this broker: requests go to its own handlers, without a socket between.

What a call may do is asked of the same access control as for remoting, with gRPC's way to sign. A route names the other
brokers of the cluster, too; the port of their fronts is as far from their own as here, so brokers that
`cometmq broker --count N` has put ten ports apart are found, as are those of other hosts with the same ports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cometmq.auth.access import Access, Refusal
from cometmq.broker.config import BrokerConfig
from cometmq.broker.entry import Served
from cometmq.broker.hosts import OwnAddress
from cometmq.broker.shared import Shared
from cometmq.broker.tables.attributes import MESSAGE_TYPE
from cometmq.errors import CometError
from cometmq.front.backend import BrokerQueues, Credentials, Limits, Topic, Wanted
from cometmq.front.refusals import Refused
from cometmq.net.dispatch import Dispatcher
from cometmq.net.endpoint import Endpoint
from cometmq.net.family import Family
from cometmq.net.inside import Commands, Inside
from cometmq.net.limits import Limits as NetLimits
from cometmq.wire.bodies import SubscriptionGroupConfig, TopicRoute
from cometmq.wire.command import Command
from cometmq.wire.grpc import messages_pb2 as pb

MASTER: Final = 0
ROUTE_KEPT_S: Final = 20.0
ROUTES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the broker serves, and what each kind of it may have waiting."""

    served: Mapping[int, Served]
    families: Mapping[str, Family]


class LocalBackend:
    """`find_route`: where the cluster has a topic, CometError if nobody knows; `has_cluster`: whether anybody could."""

    def __init__(
        self,
        shared: Shared,
        handlers: Handlers,
        access: Access | None,
        find_route: Callable[[str], Awaitable[TopicRoute]],
        has_cluster: Callable[[], bool],
        on_close: Callable[[Inside], object],
        limits: Callable[[], Limits],
        own: OwnAddress,
    ) -> None:
        self.port = 0  # of the front, when it listens
        self._shared = shared
        self._access = access
        self._find_route = find_route
        self._has_cluster = has_cluster
        self._limits = limits
        self._own = own
        self.endpoint = Endpoint(NetLimits(), shared.clock, (), None)
        self.endpoint.on_close = on_close  # type: ignore[assignment]  # nothing else is in it
        self._dispatcher = Dispatcher()
        for code, served in handlers.served.items():
            self._dispatcher.add(code, served.handler, handlers.families[served.family])
        # Of other brokers: the cluster's route by topic, and when it was found.
        self._routes: dict[str, tuple[float, tuple[BrokerQueues, ...]]] = {}

    def start(self, loop: object, port: int) -> None:
        self.endpoint.loop = loop  # type: ignore[assignment]
        self.port = port

    def stop(self) -> None:
        self.endpoint.stop()

    def config(self) -> BrokerConfig:
        return self._shared.config()

    # The protocol

    def limits(self) -> Limits:
        return self._limits()

    def now_ms(self) -> int:
        return self._shared.clock.now_ms()

    def enter(self, peer: tuple[str, int], peer_text: str, source: str, commands: Commands | None) -> Inside:
        return Inside(self.endpoint, self._dispatcher, peer, peer_text, source, commands)

    def check(self, request: Command, credentials: Credentials) -> None:
        access = self._access
        if access is None:
            return
        try:
            access.check_signed_date(request, credentials.source, credentials.authorization, credentials.date)
        except Refusal as refusal:
            raise Refused(pb.UNAUTHORIZED, refusal.remark, refusal.delay_s) from None

    def topic(self, name: str) -> Topic | None:
        config = self._shared.tables.topics.get(name)
        if config is None:
            return None
        own = BrokerQueues(
            self._shared.config().broker_name, config.perm, config.read_queue_nums, config.write_queue_nums
        )
        return Topic(name, config.attributes.get(MESSAGE_TYPE, "NORMAL"), (own,))

    def route(self, name: str) -> Topic | None:
        topic = self.topic(name)
        found: tuple[BrokerQueues, ...] = ()
        if self._has_cluster():
            kept = self._routes.get(name)
            if kept is None or self._shared.clock.monotonic() - kept[0] > ROUTE_KEPT_S:
                raise Wanted(lambda: self._load_route(name))
            found = kept[1]
        if topic is None:
            # Made on another broker only: this one does not know of what type it is.
            return Topic(name, "NORMAL", found) if found else None
        host = self._shared.config().advertised_host
        own = topic.brokers[0]
        mine = BrokerQueues(own.broker, own.perm, own.read, own.write, (host, self.port))
        return Topic(name, topic.message_type, (mine, *found))

    async def _load_route(self, name: str) -> None:
        brokers: tuple[BrokerQueues, ...] = ()
        try:
            route = await self._find_route(name)
        except CometError:
            pass  # nobody knows it: then it is here only, or nowhere
        else:
            brokers = tuple(self._others(route))
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[name] = (self._shared.clock.monotonic(), brokers)

    def _others(self, route: TopicRoute) -> list[BrokerQueues]:
        mine = self._shared.config().broker_name
        masters = {it.broker_name: it.broker_addrs.get(MASTER) for it in route.broker_datas}
        found = []
        for queues in route.queue_datas:
            address = masters.get(queues.broker_name)
            if address is None or queues.broker_name == mine:
                continue
            host, _, port = address.rpartition(":")
            if not port.isdigit():
                continue
            endpoint = (host, int(port) + self.port - self._own.port)
            found.append(
                BrokerQueues(queues.broker_name, queues.perm, queues.read_queue_nums, queues.write_queue_nums, endpoint)
            )
        return found

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._shared.tables.groups.find(name)

    def broker_of(self, asked: str, topic: Topic) -> str:
        mine = self._shared.config().broker_name
        if asked and asked != mine:
            raise Refused(pb.BAD_REQUEST, f"broker {asked[:80]!r} is not served here: this is {mine}")
        return mine
