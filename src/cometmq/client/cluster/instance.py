"""What all producers and consumers of one client share.

    start   name servers (fetched if an endpoint was given), timers                    a failed start is final
    stop    consumers and producers have left before; timers, tasks, connections       nothing is left running

    timer            first after    then every
    name servers     10 s           120 s                  only with an endpoint
    routes           30 s           route_refresh          of every topic that somebody asked for
    heartbeat        1 s            heartbeat_interval     after brokers that no route names were dropped

A route that was found stays in use until the name server has a newer one; that nobody knows the topic any more, or
that no name server answers, changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from cometmq.auth.signer import Signer
from cometmq.client.cluster import credentials, identity
from cometmq.client.cluster.acl import NamespaceMark
from cometmq.client.cluster.broker_commands import Commands, RegisteredConsumer, RegisteredProducer
from cometmq.client.cluster.heartbeats import Heartbeats
from cometmq.client.cluster.name_servers import NameServers, configured, namespace_of
from cometmq.client.cluster.refusals import refused
from cometmq.client.cluster.routes import Brokers, Route, borrow_route, read_route, vip_address
from cometmq.client.options import ClientOptions
from cometmq.client.produce.requests import Replies
from cometmq.clock import Clock, SystemClock, Timer
from cometmq.errors import BrokerUnknown, CallError, CometError, ConfigError, NoRoute, NotRunning
from cometmq.net.client import Client as NetClient
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Hook
from cometmq.net.limits import Limits
from cometmq.wire.bodies import MessageQueue, TopicRoute
from cometmq.wire.codes import Language, Request, Response
from cometmq.wire.command import JSON, ROCKETMQ, Command
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import GetRoute, UnregisterClient

logger = logging.getLogger(__name__)

NEW: Final = "new"
RUNNING: Final = "running"
STOPPED: Final = "stopped"

FETCH_FIRST_S: Final = 10.0
FETCH_S: Final = 120.0
HEARTBEAT_FIRST_S: Final = 1.0


class Instance:
    def __init__(self, options: ClientOptions, clock: Clock | None = None) -> None:
        self.options = options
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.namespace = options.namespace or namespace_of(options.namesrv)
        address = options.client_ip or identity.own_address()
        name = options.instance_name
        self.client_id = identity.client_id(
            address, identity.unique_name() if name == identity.DEFAULT_NAME else name, options.unit_name
        )
        self.stable_id = identity.client_id(address, name, options.unit_name)
        self.ids = identity.unique_ids(address)
        self.producers: dict[str, RegisteredProducer] = {}
        self.consumers: dict[str, RegisteredConsumer] = {}
        self.brokers = Brokers()
        self.replies = Replies(self.clock)
        self.heartbeats = Heartbeats(self)
        self._state = NEW
        self._form = ROCKETMQ if options.binary_headers else JSON
        self._routes: dict[str, Route] = {}
        self._asking: dict[str, asyncio.Task[Route]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: dict[str, Timer] = {}
        limits = Limits(
            calls_max=options.calls_max,
            oneway_max=options.oneway_max,
            connect_s=options.connect_timeout,
            idle_s=options.idle_timeout,
        )
        self.signer = _signer(options)
        self.net = NetClient(
            Commands(self, self.replies).dispatcher,
            limits,
            self.clock,
            credentials.configured_tls(options.tls),
            _hooks(options, self.signer),
            events=self,
            close_on_timeout=options.close_on_timeout,
        )
        self.nameservers = NameServers(self.net, configured(options.namesrv), options.namesrv_endpoint)

    # Start and stop

    @property
    def is_running(self) -> bool:
        return self._state == RUNNING

    def check_running(self) -> None:
        if self._state != RUNNING:
            raise NotRunning("the client is not running: use `async with Client(...)`, or await client.start()")

    async def start(self) -> None:
        """Once; a second time does nothing while it runs."""
        if self._state == RUNNING:
            return
        if self._state != NEW:
            raise NotRunning("the client was stopped: make a new one")
        self._state = STOPPED
        if self.nameservers.fetches:
            await self.nameservers.fetch()
            self.every("name servers", FETCH_S, self._fetch_name_servers, FETCH_FIRST_S)
        self.every("routes", self.options.route_refresh, self._refresh_routes)
        self.every("heartbeat", self.options.heartbeat_interval, self._beat, HEARTBEAT_FIRST_S)
        self._state = RUNNING
        logger.info("started client id=%s", self.client_id)

    async def stop(self) -> None:
        if self._state != RUNNING:
            return
        self._state = STOPPED
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.replies.stop(NotRunning("the client stops"))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.net.stop()
        logger.info("stopped client id=%s", self.client_id)

    # Groups

    def register_producer(self, producer: RegisteredProducer) -> None:
        """A group has one producer in a client; ConfigError for a second."""
        _register(self.producers, producer.group, producer, "producer")

    def register_consumer(self, consumer: RegisteredConsumer) -> None:
        _register(self.consumers, consumer.group, consumer, "consumer")

    async def unregister_producer(self, group: str) -> None:
        """Forget it, and tell every broker."""
        if self.producers.pop(group, None) is not None:
            await self._tell_unregistered(UnregisterClient(self.client_id, producer_group=group))

    async def unregister_consumer(self, group: str) -> None:
        if self.consumers.pop(group, None) is not None:
            await self._tell_unregistered(UnregisterClient(self.client_id, consumer_group=group))

    async def _tell_unregistered(self, header: UnregisterClient) -> None:
        addresses = [address for _, _, address in self.brokers.members()]
        await asyncio.gather(*[self._tell_one(address, header) for address in addresses])

    async def _tell_one(self, address: str, header: UnregisterClient) -> None:
        if self.net.connection(address) is None:
            return  # it does not know us, or forgot us with the connection
        try:
            command = self.request(Request.UNREGISTER_CLIENT, header.encode())
            await self.net.call(address, command, self.options.call_timeout)
        except CallError as error:
            logger.warning("fail unregistration address=%s cause=%s", address, error)

    async def heartbeat(self) -> None:
        """Tell brokers now what is registered."""
        await self.heartbeats.beat()

    def on_connect(self, connection: Connection) -> None:
        self.heartbeats.greet(connection)

    # Routes

    def known_route(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    async def route(self, topic: str) -> Route:
        """The route in use, asked for if there is none. NoRoute or NoNameServer."""
        route = self._routes.get(topic)
        return route if route is not None else await self.refresh_route(topic)

    async def refresh_route(self, topic: str) -> Route:
        """Ask a name server now; who asks for the same topic meanwhile shares the answer."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = self.spawn(self._ask_route(topic))
            self._asking[topic] = asking
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    async def borrow_route(self, topic: str, template: str, queues_max: int) -> Route:
        """For a topic that a broker shall make of `template`: the route that it would have."""
        data = await self._fetch_route(template)
        route = borrow_route(topic, data, queues_max)
        self.brokers.learn(data)
        self._routes.setdefault(topic, route)
        return self._routes[topic]

    def forget_route(self, topic: str) -> None:
        """Nobody here uses the topic any more."""
        self._routes.pop(topic, None)

    async def _ask_route(self, topic: str) -> Route:
        data = await self._fetch_route(topic)
        known = self._routes.get(topic)
        if known is not None and known.data == data:
            return known
        route = read_route(topic, data)
        self.brokers.learn(data)
        self._routes[topic] = route
        logger.info(
            "learned route topic=%s publish=%d subscribe=%d", topic, len(route.publish), len(route.subscribe)
        )
        return route

    async def _fetch_route(self, topic: str) -> TopicRoute:
        command = self.request(
            Request.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic=topic, accept_standard_json_only=True).encode()
        )
        try:
            response = await self.nameservers.ask(command, self.options.call_timeout)
        except CallError as error:
            raise NoRoute(f"no route of topic {topic}: {error}") from error
        if response.code == Response.TOPIC_NOT_EXIST:
            raise NoRoute(f"no name server knows topic {topic}: create it first (cometmq topic create {topic})")
        if response.code != Response.SUCCESS:
            raise refused(response, f"name server {self.nameservers.chosen}", command)
        return TopicRoute.decode_answer(response.body)

    # Calls

    def request(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        """A request in this client's language and header form."""
        return new_request(code, ext, body, form=self._form, language=Language.PYTHON)

    async def call(self, target: str, command: Command, timeout_s: float, *, vip: bool = False) -> Command:
        """Call an address or, by its name, a broker's master; the answer may have any code. CallError, BrokerUnknown.

        `vip` is for requests that use the other port where that is switched on.
        """
        address = target if ":" in target else await self.master(target)
        if vip and self.options.vip_channel:
            address = vip_address(address)
        return await self.net.call(address, command, timeout_s)

    async def ask(self, target: str, command: Command, timeout_s: float, *, vip: bool = False) -> Command:
        """`call`, with any code but success as BrokerError."""
        response = await self.call(target, command, timeout_s, vip=vip)
        if response.code != Response.SUCCESS:
            raise refused(response, target, command)
        return response

    def host(self, queue: MessageQueue) -> str:
        """The name of the broker that has a queue: for a logical queue another than the one it shows."""
        route = self._routes.get(queue.topic)
        return route.host(queue) if route is not None else queue.broker_name

    async def master(self, name: str, topic: str | None = None) -> str:
        """Where a broker takes writes; the route of `topic` is asked again if it is not known."""
        address = self.brokers.master(name)
        if address is None and topic is not None:
            await self.refresh_route(topic)
            address = self.brokers.master(name)
        if address is None:
            raise BrokerUnknown(f"no route names a master of broker {name}")
        return address

    async def keeper(self, queue: MessageQueue) -> str:
        """Who knows the offsets of a queue: its master, or a replica while that is gone."""
        name = self.host(queue)
        if self.brokers.master(name) is None:
            await self.refresh_route(queue.topic)
        found = self.brokers.reader(name)
        if found is None:
            raise BrokerUnknown(f"no route names broker {name}")
        return found[0]

    # Timers and tasks, for everybody who lives in this client

    def every(
        self, name: str, period_s: float, action: Callable[[], object], first_s: float | None = None
    ) -> None:
        """Call `action` again and again until `cancel_timer(name)` or the end; names are unique in a client."""

        def act() -> None:
            self._timers[name] = self.clock.call_later(period_s, act)
            try:
                action()
            except Exception:
                logger.exception("fail timer name=%s", name)

        assert name not in self._timers, f"timer {name} runs already"
        self._timers[name] = self.clock.call_later(period_s if first_s is None else first_s, act)

    def cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """A task that ends with the client at the latest; what it raises is logged unless somebody awaits it."""
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Our own kinds are for whoever awaits the task; others are bugs, ours or a handler's.
            level = logging.DEBUG if isinstance(error, CometError) else logging.ERROR
            logger.log(level, "fail task name=%s cause=%r", task.get_name(), error, exc_info=error)

    def _fetch_name_servers(self) -> None:
        self.spawn(self.nameservers.fetch())

    def _refresh_routes(self) -> None:
        self.spawn(self._refresh_all())

    async def _refresh_all(self) -> None:
        for topic in list(self._routes):
            try:
                await self.refresh_route(topic)
            except Exception as error:
                logger.warning("fail route refresh topic=%s cause=%s", topic, error)

    def _beat(self) -> None:
        self.brokers.keep(self._routes.values())
        self.spawn(self.heartbeats.beat())


def _register(table: dict[str, Any], group: str, member: object, kind: str) -> None:
    if group in table:
        raise ConfigError(f"this client has a {kind} of group {group} already: use that one, or another Client")
    table[group] = member


def _signer(options: ClientOptions) -> Signer | None:
    keys = credentials.configured(options.access_key, options.secret_key, options.security_token)
    return Signer(keys.access_key, keys.secret_key, keys.security_token) if keys is not None else None


def _hooks(options: ClientOptions, signer: Signer | None) -> list[Hook]:
    """In this order: the signature covers what the others add."""
    hooks: list[Hook] = []
    if options.namespace_v2:
        hooks.append(NamespaceMark(options.namespace_v2))
    hooks += options.hooks
    if signer is not None:
        hooks.append(signer)
    return hooks
