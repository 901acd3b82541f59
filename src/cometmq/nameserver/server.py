"""The name server as a whole: what starts in which order, what runs by the clock, what stops.

    start    key-value file, listener and table of handlers, timers
    stop     listener and connections, client, timers                  nothing is saved: nothing is unsaved

    timer         first after    then every
    expiry scan   5 s            scanNotActiveBrokerInterval    drops brokers that were silent for their timeout
    key values    1 min          10 min                         one log line per entry
    water mark    10 s           1 s                            requests waiting in both families; own logger, see below

RocketMQ writes the water mark into a log file of its own. Here its logger, `cometmq.nameserver.watermark`, is off
unless somebody sets its level to INFO.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from cometmq.auth.audit import Audit
from cometmq.auth.startup import contains, read_blocks, read_signer
from cometmq.clock import Clock, SystemClock, Timer
from cometmq.config import NameServerConfig
from cometmq.errors import CallError
from cometmq.nameserver import controller
from cometmq.nameserver.access import make_guard
from cometmq.nameserver.handlers import HANDLERS, State
from cometmq.nameserver.kv import KeyValues
from cometmq.nameserver.metrics import NameServerRoom
from cometmq.nameserver.query import RouteQueries
from cometmq.nameserver.registration import Notice
from cometmq.nameserver.routes import Key
from cometmq.nameserver.settings import LiveSettings
from cometmq.nameserver.upstream import Upstream
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher, Family, Handler
from cometmq.net.limits import CLIENT_LIMITS, Limits
from cometmq.net.seen import Seen
from cometmq.net.server import Server
from cometmq.net.tls import ClientTls, TlsSettings
from cometmq.settings import SettingError
from cometmq.wire.codes import Request
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import NotifyMinBrokerIdChange

log = logging.getLogger(__name__)
watermark = logging.getLogger("cometmq.nameserver.watermark")

FIRST_SCAN_S: Final = 5.0
FIRST_PRINT_S: Final = 60.0
PRINT_S: Final = 600.0
FIRST_WATERMARK_S: Final = 10.0
WATERMARK_S: Final = 1.0
NOTICE_LIMIT_S: Final = 0.3
VALUE_CHARS_SHOWN: Final = 200


class NameServer:
    def __init__(self, settings: LiveSettings, clock: Clock | None = None) -> None:
        config = settings.config
        self._clock = clock or SystemClock()
        self._host, self._port = config.bind_address, config.listen_port
        self._grace_s = float(config.shut_down_wait_s) if config.shut_down_gracefully else 0.0
        self._scan_s = config.scan_interval_ms / 1000
        self.seen = Seen(config, self._clock, self._host)
        self._timers: dict[str, Timer] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._stopping = False
        key_values = KeyValues(config.kv_file, config.kv_bytes_max, config.kv_entries_max, config.kv_value_chars_max)
        queries = RouteQueries(settings, key_values, self._clock, self._work_soon)
        self._works = False
        self.state = State(settings, key_values, queries, self._clock, self._tell)
        self._controller = controller.make(settings, self._clock)
        self._route = Family("route", config.route_requests_max)
        self._default = Family("default", config.default_requests_max)
        self._client = Client(limits=CLIENT_LIMITS, clock=self._clock, tls=ClientTls.of_server(config))
        signer = read_signer(config)
        if signer is not None:
            self._client.add_hook(signer)
        self._audit = Audit(self._clock, "nameserver", config.audit_log_path)
        proxies = read_blocks("proxyProtocolTrustedAddresses", config.proxy_trusted_addresses)
        self._server = Server(
            self._dispatcher(self._route_handler(config)),
            limits=Limits(idle_s=config.idle_timeout_s),
            clock=self._clock,
            tls=TlsSettings.of(config),
            events=self,
            go_away=config.shut_down_gracefully,
            guard=make_guard(config, self._clock, self._audit),
            is_trusted_proxy=partial(contains, proxies),
        )

    async def start(self) -> None:
        """Serve. StoreError for a key-value file without a good copy; CometError if the address cannot be bound."""
        await self.seen.start()
        try:
            self.state.key_values.load()
            self._audit.open()
            await self._server.start(self._host, self._port)
        except BaseException:
            await self.seen.stop()
            raise
        if self._controller is not None:
            await self._controller.start(self.address)
        room = NameServerRoom(self.state.settings.config, self.state.routes, self._server.endpoint, self.address)
        if self.seen.counts_requests:
            room.measure()
        self.seen.attach(room)
        self._every(self._scan_s, self._scan, FIRST_SCAN_S)
        self._every(PRINT_S, self._print_key_values, FIRST_PRINT_S)
        self._every(WATERMARK_S, self._print_watermark, FIRST_WATERMARK_S)
        log.info("started name server address=%s", self.address)

    async def stop(self) -> None:
        self._stopping = True
        await self.seen.stop()
        await self._server.stop(self._grace_s)
        if self._controller is not None:
            await self._controller.stop()
        await self._client.stop()
        await asyncio.gather(*self._telling)
        for timer in self._timers.values():
            timer.cancel()
        self._audit.close()
        log.info("stopped name server address=%s", self.address)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self.port}"

    @property
    def connections(self) -> list[Connection]:
        """Of brokers, clients and tools, open at this moment."""
        return self._server.connections

    # What serves which request

    def _dispatcher(self, route_handler: Handler) -> Dispatcher:
        dispatcher = Dispatcher()
        dispatcher.add(Request.GET_ROUTEINFO_BY_TOPIC, route_handler, self._route)
        for code, handler in HANDLERS.items():
            dispatcher.add(code, partial(handler, self.state), self._default)
        if self._controller is not None:
            for code, answer in controller.ANSWERS.items():
                dispatcher.add(code, controller.Asked(self._controller, answer), self._default)
        return dispatcher

    def _route_handler(self, config: NameServerConfig) -> Handler:
        if not config.cluster_test:
            return self.state.queries.answer
        addresses = [address.strip() for address in config.upstream_addresses.split(";") if address.strip()]
        if not addresses:
            raise SettingError(
                "clusterTest=true needs the name servers to fall back on: set rocketmq.namesrv.addr or NAMESRV_ADDR"
            )
        return Upstream(self.state.queries, self._client, addresses, self._clock).answer

    # Brokers that go without saying so

    def on_close(self, connection: Connection) -> None:
        if self._stopping:  # it is we who go
            return
        keys = self.state.routes.behind(connection)
        self.state.routes.forget_link(connection)
        for key in keys:
            self._drop(key, "connection closed")

    def _scan(self) -> None:
        for key in self.state.routes.expired(self.state.now_ms()):
            link = self.state.routes.presences[key].link
            self._drop(key, "silent for its timeout")
            if isinstance(link, Connection):
                link.close("broker was silent for its timeout")

    def _drop(self, key: Key, cause: str) -> None:
        log.warning("unregistered broker cluster=%s address=%s cause=%s", *key, cause)
        self._tell(self.state.routes.leave(key))

    # What touches many topics

    def _work_soon(self) -> None:
        if not self._works:
            self._works = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """A step in each turn of the loop."""
        self._works = False
        self.state.routes.work()
        if self.state.routes.has_work:
            self._work_soon()

    # Telling brokers

    def _tell(self, notice: Notice | None) -> None:
        if notice is None or not self.state.settings.config.notify_min_broker_id_changed:
            return
        header = NotifyMinBrokerIdChange(notice.id_min, notice.address_min, notice.offline_address, notice.ha_address)
        for target in notice.targets:
            task = asyncio.ensure_future(self._tell_one(target, header))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell_one(self, address: str, header: NotifyMinBrokerIdChange) -> None:
        command = new_request(Request.NOTIFY_MIN_BROKER_ID_CHANGE, header.encode(), oneway=True)
        try:
            await self._client.send_oneway(address, command, NOTICE_LIMIT_S)
        except CallError as error:
            log.warning("fail notice address=%s cause=%s", address, error)

    # By the clock

    def _every(self, interval_s: float, action: Callable[[], None], delay_s: float) -> None:
        def act() -> None:
            self._every(interval_s, action, interval_s)
            action()

        self._timers[action.__name__] = self._clock.call_later(delay_s, act)

    def _print_key_values(self) -> None:
        log.info("key values namespaces=%d", len(self.state.key_values))
        for namespace, key, value in self.state.key_values.entries():
            log.info("key value namespace=%s key=%s value=%s", namespace, key, value[:VALUE_CHARS_SHOWN])

    def _print_watermark(self) -> None:
        watermark.info(
            "water mark route_waiting=%d route_refused=%d default_waiting=%d default_refused=%d",
            self._route.waiting,
            self._route.refused,
            self._default.waiting,
            self._default.refused,
        )
