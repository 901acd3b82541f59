"""The broker as a whole: what starts in which order, who serves which request, what runs by the clock, what stops.

    start    tables (topics, groups, offsets, filters), store with recovery, delay progress, threads of the store,
             both listeners, timers, registration with every name server
    stop     name servers are told first, parked pulls are answered, listeners, tables to disk, store, delay progress

    timer             first after   then every
    parked pulls      5 s           5 s (1 s without long polling)
    offsets to disk   10 s          flushConsumerOffsetInterval
    silent clients    10 s          10 s
    property filters  10 s          10 s
    slow groups       3 min         3 min
    what one broker of a replica group does for all of it             replicas/leader_tasks.py
    registration      10 s          30 s                              replicas/registration.py

`Broker` owns the parts and hands itself to the handlers; what they may count on is in its attributes. The second
listener, two ports below the first, serves the same requests but no pulls.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from cometmq.broker import sql
from cometmq.broker.access import requests as access_requests
from cometmq.broker.access.control import AccessControl
from cometmq.broker.admin.settings import LiveSettings
from cometmq.broker.admission import LoopWatch, SendGate, make_families
from cometmq.broker.config import BrokerConfig
from cometmq.broker.consume import clients
from cometmq.broker.consume.locks import QueueLocks
from cometmq.broker.consume.long_poll import SWEEP_MS, LongPoll
from cometmq.broker.consume.pull import pull_again
from cometmq.broker.delayed.levels import Delays
from cometmq.broker.delayed.timers import Timers
from cometmq.broker.periodic import Periods
from cometmq.broker.pop import requests
from cometmq.broker.pop.popping import Popping
from cometmq.broker.pop.waiting import PopWaiting
from cometmq.broker.produce.fences import Fences
from cometmq.broker.produce.hooks import SendHooks
from cometmq.broker.replicas.cluster_routes import ClusterRoutes
from cometmq.broker.replicas.leader_tasks import Duties
from cometmq.broker.replicas.registration import Registration
from cometmq.broker.replicas.remote_put import Escape
from cometmq.broker.replicas.replica_group import Membership
from cometmq.broker.replicas.replication import HA_PORT_ABOVE, SYNC_MASTER, Replication, ha_port_of
from cometmq.broker.replicas.table_sync import Following
from cometmq.broker.routes import HANDLERS
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables import rebuild, saving
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.offsets import Offsets
from cometmq.broker.tables.property_filters import PropertyFilters
from cometmq.broker.tables.request_modes import RequestModes
from cometmq.broker.tables.sessions import Consumers, Producers
from cometmq.broker.tables.settling import GROUPS_FILE, TOPICS_FILE, Settling
from cometmq.broker.tables.topics import Topics
from cometmq.broker.transactions.transactions import Transactions
from cometmq.broker.watchdog import Watchdog
from cometmq.clock import Clock, SystemClock
from cometmq.errors import CometError
from cometmq.machine import log_storage
from cometmq.net.client import Client
from cometmq.net.connection import Connection
from cometmq.net.dispatch import Dispatcher
from cometmq.net.limits import CLIENT_LIMITS, Limits
from cometmq.net.server import Server
from cometmq.net.tls import ClientTls, TlsSettings
from cometmq.store.background import Background
from cometmq.store.disk import Disk, OsDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.queues.consume_queues import LMQ_PREFIX
from cometmq.store.results import PutResult
from cometmq.store.store import Store
from cometmq.store.timers import following
from cometmq.wire.bodies import TopicConfig
from cometmq.wire.codes import Request
from cometmq.wire.record.message import encode_host
from cometmq.wire.record.message_id import UniqueIds, encode_offset_id, encode_offset_ids, offset_id_prefix

logger = logging.getLogger(__name__)

FAST_PORT_BELOW: Final = 2
# What waits when the broker stops is answered within a second, or its connection is closed.
STOP_GRACE_S: Final = 0.8
DISPATCH_WAIT_S: Final = 5.0
DISPATCH_LOOK_S: Final = 0.1
THREADS_LOOK_S: Final = 0.005
UNKNOWN_HOST: Final = bytes(4)

# Pulls and their kin are for the main port only.
MAIN_PORT_ONLY: Final = frozenset(
    (
        Request.PULL_MESSAGE,
        Request.LITE_PULL_MESSAGE,
        Request.PEEK_MESSAGE,
        Request.POP_MESSAGE,
        Request.NOTIFICATION,
        Request.POLLING_INFO,
    )
)


class Broker:
    """Made and used on one event loop. `start` raises CometError when the broker cannot serve, and leaves nothing."""

    def __init__(self, settings: LiveSettings, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.settings: LiveSettings = settings
        self.clock: Clock = clock or SystemClock()
        self.disk: Disk = disk or OsDisk()
        config = self.config
        self.port: int = config.listen_port or free_port()
        self.address: str = f"{config.advertised_host}:{self.port}"
        host_bytes = _address_bytes(config.advertised_host)
        self.store_host: bytes = encode_host((host_bytes, self.port))
        self._id_prefix: str = offset_id_prefix(host_bytes, self.port)
        self.unique_ids: UniqueIds = UniqueIds(host_bytes, os.getpid(), random.getrandbits(32))

        self.access: AccessControl = AccessControl(
            config, Path(settings.store_options.path("config")), self.clock, is_slave=settings.store_options.is_slave
        )
        self.client: Client = Client(limits=CLIENT_LIMITS, clock=self.clock, tls=ClientTls.of_server(config))
        if self.access.signer is not None:
            self.client.add_hook(self.access.signer)
        self.topics: Topics = Topics(self._config, self.clock, self._topics_changed)
        self.groups: Groups = Groups(self._config, self.clock, self._groups_changed)
        self.offsets: Offsets = Offsets(self._config, self.clock)
        self.settling: Settling = Settling(self)
        self.fences: Fences = Fences()
        self.property_filters: PropertyFilters = PropertyFilters(self._config, self.clock)
        self.consumers: Consumers = Consumers(self._config, self.property_filters.retire)
        self.producers: Producers = Producers()
        self.queue_locks: QueueLocks = QueueLocks(config.lock_max_live_ms)
        self.delays: Delays = Delays(settings.store_options.delay_levels, self.clock, self._delivered)
        self.duties: Duties = Duties(self)
        self.timers: Timers = Timers(self.clock, self._delivered, self.duties.wake_timers)
        self.transactions: Transactions = Transactions(self)
        self.stats: Stats = Stats(self._config, self.clock)
        self.send_hooks: SendHooks = SendHooks(self._config)
        self.watch: LoopWatch = LoopWatch(self.clock)
        self.gate: SendGate = SendGate()
        self.families = make_families(self._config, self.watch, self.gate)
        self.nameservers: Registration = Registration(
            self._config, self.topics, self.client, self.clock, ha_port_of(settings.store_options, self.port)
        )
        self.replication: Replication = Replication(self.clock)
        self.is_replica: bool = settings.store_options.is_slave
        self.following: Following = Following(self)
        self.membership: Membership = Membership(self)
        self.escape: Escape = Escape(self)
        self.cluster_routes: ClusterRoutes = ClusterRoutes(self)
        self.request_modes: RequestModes = RequestModes()
        self.popping: Popping = Popping(self)
        self.pop_waiting: PopWaiting = PopWaiting(
            self.clock, partial(requests.serve, self), requests.expire, self.popping.has_more
        )
        self.nameservers.on_master = self.membership.registered
        self.longpoll: LongPoll = LongPoll(partial(pull_again, self), self.soon, self._queue_end)
        for family in self.families.values():
            family.on_evict = self._drop_evicted
        self.server: Server = self._make_server(frozenset())
        self.fast_server: Server = self._make_server(MAIN_PORT_ONLY)
        self.started_ms: int = self.clock.now_ms()

        self.store: Store  # opened by start()
        self.background: Background
        self.must_wait: bool = False
        self.send_ext: dict[str, str] = {}
        self.added_properties: str = ""
        self.apply_settings()

        self._savers: dict[str, saving.Saver] = {}
        # Files that were not there at the start.
        self._missing: set[str] = set()
        self._periods: Periods = Periods(self.clock)
        self._born_hosts: dict[Connection, bytes] = {}
        # Asked about for every message; changed in place, because the store has it.
        self._batch_topics: set[str] = set()
        self._watchdog: Watchdog | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def config(self) -> BrokerConfig:
        return self.settings.config

    def _config(self) -> BrokerConfig:
        return self.settings.config

    # Starting and stopping

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.config.property_filter_enabled:
            await asyncio.to_thread(sql.load)  # the first expression would stop the loop for it
        self._load_tables()
        table_ms = self.topics.data_version.timestamp
        self.store = Store(
            self.settings.store_options,
            self.disk,
            self.clock,
            store_host=self.store_host,
            on_arrival=self._replicated if self.is_replica else self.longpoll.arrived,
            is_batch_topic=self._batch_topics.__contains__,
        )
        self.store.on_failure = self._store_failed
        self.must_wait = self.store.options.sync_flush or self.store.options.broker_role == SYNC_MASTER
        self.gate.log = self.store.log
        # One that may act as the master is asked, and its store refuses.
        self.gate.is_replica = self.is_replica and not self.config.acting_master_enabled
        self.nameservers.is_isolated = self.membership.starts_isolated
        self.background = Background(self.store, self._loop.call_soon_threadsafe)
        try:
            self._load("delayOffset.json", self.delays)
            self._load("transactionMetrics", self.transactions.counts)
            self._load("timermetrics", self.timers.counts)
            rebuild.rebuild_tables(self, self._missing, table_ms)
            if self.config.timer_wheel_enabled:
                rebuild.warn_of_timers(self.store)
            if self.is_replica:
                following.forget_own(self.disk, self.store.options)
            elif not self.nameservers.is_isolated:
                self.duties.open()
            self.background.start()
            self.watch.start()
            await self.server.start(self.config.bind_address, self.port)
            await self.fast_server.start(self.config.bind_address, self.port - FAST_PORT_BELOW)
            ha_port = ha_port_of(self.store.options, self.port)
            await self.replication.start(self.store, self.background, self.config.bind_address, ha_port)
        except BaseException:
            await self._stop_serving(0)
            await self.replication.stop()
            await self._close_store()
            raise
        for saver in self._savers.values():
            saver.poke()  # what was missing: files, system topics, groups
        self.access.open()
        self.stats.start(self.store)
        self._start_timers()
        await self.nameservers.start(self.address)
        self.membership.start()
        log_storage(self.store.options.root_dir)
        logger.info("started broker name=%s address=%s", self.config.broker_name, self.address)

    async def stop(self) -> None:
        await self.membership.stop()
        await self.nameservers.stop()
        await self.following.stop()
        self._periods.stop()
        self.duties.pause()
        self.longpoll.close()
        self.pop_waiting.close()
        await asyncio.sleep(0)
        await self._stop_serving(self.config.shut_down_wait_s if self.config.shut_down_gracefully else STOP_GRACE_S)
        self.stats.stop()
        await self.escape.stop()
        await self.client.stop()
        self.transactions.close()
        self.timers.finish()
        await self.replication.stop()
        await self._await_dispatch()
        await self._save_all()
        await self._close_store()
        self.duties.confirm_progress()
        await self._save_all()
        logger.info("stopped broker name=%s address=%s", self.config.broker_name, self.address)

    async def _stop_serving(self, grace_s: float) -> None:
        await asyncio.gather(self.server.stop(grace_s), self.fast_server.stop(grace_s))
        if self._watchdog is not None:
            self._watchdog.stop()
        self.watch.stop()

    async def _close_store(self) -> None:
        while self.background.busy or self.timers.is_writing:  # noqa: ASYNC110 - threads end it, not tasks
            await asyncio.sleep(THREADS_LOOK_S)
        self.background.stop()
        self.timers.close()
        self.store.close()

    async def _await_dispatch(self) -> None:
        """Queues and index get time to catch up with the log; a store that stops behind it starts with recovery."""
        dispatcher = self.store.dispatcher
        for _ in range(round(DISPATCH_WAIT_S / DISPATCH_LOOK_S)):
            self.store.dispatch_now()
            if not dispatcher.behind_bytes:
                return
            await asyncio.sleep(DISPATCH_LOOK_S)
        logger.warning("gave up waiting for dispatch at=%d log_end=%d", dispatcher.position, self.store.log.max_offset)

    def _make_server(self, leave_out: frozenset[int]) -> Server:
        dispatcher = Dispatcher()
        for code, entry in HANDLERS.items():
            if code not in leave_out:
                room = self.access if code in access_requests.HANDLERS else self
                dispatcher.add(code, partial(entry.function, room), self.families[entry.family])
        return Server(
            dispatcher,
            limits=Limits(idle_s=self.config.idle_timeout_s),
            clock=self.clock,
            tls=TlsSettings.of(self.config),
            events=self,
            go_away=self.config.shut_down_gracefully,
            guard=self.access.guard,
            is_trusted_proxy=self.access.trusts_proxy,
        )

    # Tables and their files

    def _load_tables(self) -> None:
        self.access.load()
        self._load(TOPICS_FILE, self.topics)
        self.topics.make_system_topics()
        self._note_batch_topics(self.topics.table.values())
        # Without its table the kind of a topic shows in where its queues are.
        kept = self.disk.list_dirs(self.settings.store_options.path("batchconsumequeue"))
        self._batch_topics.update(it for it in kept if it not in self.topics.table)
        self._load_offsets()
        self._load(GROUPS_FILE, self.groups)
        self.groups.make_built_in_groups()
        self._load("consumerFilter.json", self.property_filters)
        self._load("messageRequestMode.json", self.request_modes)
        topics, groups = self._savers[TOPICS_FILE], self._savers[GROUPS_FILE]
        topics.on_saved, groups.on_saved = self.settling.topics_saved, self.settling.groups_saved
        topics.on_failed = groups.on_failed = self.settling.failed

    def _load_offsets(self) -> None:
        """With light queues RocketMQ has another file for all offsets; without that, those from before count."""
        name = "consumerOffset.json"
        self._load(name, self.offsets)
        if self.settings.store_options.lmq_enabled:
            for table in (self.topics, self.groups, self.offsets):
                table.has_light = True
            self._load("lmqConsumerOffset.json", self.offsets)
            if "lmqConsumerOffset.json" not in self._missing:
                self._missing.discard(name)
            self._savers[name] = self._savers.pop("lmqConsumerOffset.json")

    def _load(self, name: str, state: saving.Saved) -> None:
        path = Path(self.settings.store_options.path("config", name))
        is_new = not saving.load(state, path)
        if is_new:
            self._missing.add(name)
        self._savers[name] = saving.Saver(state, path, self.clock, is_new=is_new)

    async def _save_all(self) -> None:
        for saver in self._savers.values():
            try:
                await saver.settle()
            except CometError as error:
                logger.error("fail save file=%s error=%s", saver.path, error)
        await self.access.close()

    async def settled(self) -> None:
        """Changes made so far are on disk, and name servers were told of them. StoreError if they cannot be saved."""
        for name in (TOPICS_FILE, GROUPS_FILE, "consumerOffset.json"):
            await self._savers[name].settle()
        await self.nameservers.told()

    async def saved(self, name: str) -> None:
        """StoreError if it cannot be written."""
        await self._savers[name].settle()

    def save_soon(self, name: str) -> None:
        self._savers[name].poke()

    def is_saving(self, name: str) -> bool:
        return self._savers[name].writing

    def _topics_changed(self, changed: Sequence[TopicConfig]) -> None:
        if TOPICS_FILE in self._savers:
            if not changed:
                self._batch_topics.clear()  # perhaps one was deleted
            self._note_batch_topics(changed or self.topics.table.values())
            self._savers[TOPICS_FILE].poke()
            self.nameservers.announce(changed)

    def _note_batch_topics(self, topics: Iterable[TopicConfig]) -> None:
        for topic in topics:
            if topic.attributes.get("queue.type") == "BatchCQ":
                self._batch_topics.add(topic.topic_name)
            else:
                self._batch_topics.discard(topic.topic_name)

    def _groups_changed(self) -> None:
        if GROUPS_FILE in self._savers:
            self._savers[GROUPS_FILE].poke()

    # Messages

    def put(self, message: AppendRequest) -> PutResult:
        """Into the log; a delayed message goes to the schedule topic first, a timer message to the timer topic."""
        if "DELAY\x01" in message.properties and self.delays.divert(message):
            return self.store.put(message)
        if "TIMER_DEL" in message.properties:
            refusal = self.timers.divert(message)
            if refusal is not None:
                return refusal
        return self.store.put(message)

    def put_batch(self, message: AppendRequest) -> PutResult:
        return self.store.put_batch(message)

    def host_of(self, connection: Connection) -> bytes:
        """Where a message was born, as its record has it."""
        host = self._born_hosts.get(connection)
        if host is None:
            address = _literal_bytes(connection.peer[0]) or UNKNOWN_HOST
            host = self._born_hosts[connection] = encode_host((address, connection.peer[1]))
        return host

    def offset_id(self, physical_offset: int) -> str:
        return encode_offset_id(self._id_prefix, physical_offset)

    def offset_ids(self, result: PutResult) -> str:
        """The id of a stored message; of a batch all of them."""
        if not result.lengths:
            return encode_offset_id(self._id_prefix, result.physical_offset)
        return encode_offset_ids(self._id_prefix, result.physical_offset, result.lengths)

    def disk_use_text(self) -> str:
        root = self.settings.store_options.root_dir
        try:
            return f"disk of {root} is {self.disk.used_ratio(root) * 100:.0f} % full"
        except OSError as error:
            return f"disk of {root} does not say how full it is: {error.strerror or error}"

    def uptime_ms(self) -> int:
        """Monotonic time: what deadlines and expiry are measured with."""
        return int(self.clock.monotonic() * 1000)

    # What the parts are given

    def apply_settings(self) -> None:
        """Take over what depends on settings that may change while running."""
        config = self.config
        trace_on = "true" if config.trace_on else "false"
        self.send_ext = {"TRACE_ON": trace_on, "MSG_REGION": config.region_id}
        self.added_properties = (
            f"MSG_REGION\x01{config.region_id}\x02TRACE_ON\x01{trace_on}\x02CLUSTER\x01{config.cluster_name}\x02"
        )

    async def change_config(self, body: bytes) -> list[str]:
        """Request 25: change settings while running; gives the keys that nobody knows."""
        permission = self.config.broker_permission
        skipped = await self.settings.change(body)
        if self.config.property_filter_enabled:
            await asyncio.to_thread(sql.load)
        self.store.change(self.settings.store_options)
        self.apply_settings()
        self.topics.follow_settings()
        if self.config.broker_permission != permission:
            self.topics.touch()
        return skipped

    def _queue_end(self, topic: str, queue_id: int) -> int:
        return self.store.queues.max_offset(topic, queue_id)

    def soon(self, callback: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.call_soon(callback)

    def _store_failed(self, error: OSError) -> None:
        logger.critical("take no messages any more broker=%s cause=%s", self.config.broker_name, error)

    # Connections

    def _drop_evicted(self) -> None:
        self.longpoll.drop_evicted()
        self.pop_waiting.drop_evicted()

    def on_close(self, connection: Connection) -> None:
        self._born_hosts.pop(connection, None)
        clients.connection_closed(self, connection)

    # By the clock

    def _start_timers(self) -> None:
        assert self._loop is not None
        if self.config.debug_locks:
            stacks = Path(self.settings.store_options.path("stacks"))
            self._watchdog = Watchdog(self.watch, self.clock, self._loop, stacks)
            self._watchdog.start()
        every = self._periods.every
        every("pulls", self._sweep_s, self._sweep, self._sweep_s())
        flush_s = self.config.flush_offsets_interval_ms / 1000
        every("offsets", lambda: flush_s, self._savers["consumerOffset.json"].poke, 10)
        every("clients", lambda: 10.0, partial(clients.expire_clients, self), 10)
        every("filters", lambda: 10.0, self._save_filters, 10)
        every("notices", lambda: 15.0, partial(clients.tell_postponed, self), 30)
        every("slow groups", lambda: 180.0, self._protect, 180)
        if self.is_replica:
            self.following.start()
        elif not self.nameservers.is_isolated:
            self.duties.start()

    def _sweep_s(self) -> float:
        return (SWEEP_MS if self.config.long_polling else self.config.short_polling_ms) / 1000

    def _sweep(self) -> None:
        began_s = self.clock.monotonic()
        self.longpoll.sweep(self.uptime_ms())
        took_s = self.clock.monotonic() - began_s
        if took_s * 1000 > SWEEP_MS:
            logger.warning("swept parked pulls slowly took_ms=%d count=%d", took_s * 1000, self.longpoll.count)

    def _replicated(
        self, topic: str, queue_id: int, next_offset: int, tag_code: int, store_time_ms: int, properties: str
    ) -> None:
        """Nobody puts on a replica; what the log brings is counted, without its size, which dispatch does not tell."""
        if not topic.startswith(LMQ_PREFIX):
            self.stats.put(topic, queue_id, 1, 0)
            known = self.topics.table.get(topic)
            if known is None or queue_id >= known.read_queue_nums:
                self.following.met(topic, queue_id)
        self.longpoll.arrived(topic, queue_id, next_offset, tag_code, store_time_ms, properties)

    def _delivered(self, topic: str, queue_id: int, record_bytes: int) -> None:
        self.stats.put(topic, queue_id, 1, record_bytes)

    def _save_filters(self) -> None:
        self.property_filters.forget()
        self._savers["consumerFilter.json"].poke()

    def _protect(self) -> None:
        """Groups that read too far behind are switched off until an operator switches them on."""
        if self.config.disable_slow_groups:
            for group in self.groups.disable_slow(self.stats.bytes_behind(), self.config.slow_group_bytes):
                logger.warning("disabled slow group=%s limit_bytes=%d", group, self.config.slow_group_bytes)


def _address_bytes(host: str) -> bytes:
    """The address as a record has it; a name is looked up once, at the start."""
    try:
        return _literal_bytes(host) or socket.inet_aton(socket.gethostbyname(host))
    except OSError as error:
        raise CometError(f"brokerIP1={host} is neither an address nor a name that can be looked up: {error}") from error


def _literal_bytes(host: str) -> bytes | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host.split("%")[0])
        except OSError:
            continue
    return None


def free_port() -> int:
    """A port that is free now, as are its neighbours for the second listener and for replication."""
    for _ in range(100):
        with socket.socket() as main, socket.socket() as fast, socket.socket() as replicas:
            main.bind(("127.0.0.1", 0))
            port: int = main.getsockname()[1]
            try:
                fast.bind(("127.0.0.1", port - FAST_PORT_BELOW))
                replicas.bind(("127.0.0.1", port + HA_PORT_ABOVE))
            except OSError:
                continue
            return port
    raise CometError("no free pair of ports: set listenPort")
