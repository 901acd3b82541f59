"""The broker as a whole: what starts in which order, which ports it has, what stops.

    start    the page of metrics and health, tables (topics, groups, offsets, filters, users), store with recovery, the
             rooms, delay progress, threads of the store, both listeners, timers, registration with every name server
    stop     name servers are told first, parked pulls are answered, listeners, tables to disk, store, delay progress

What the broker can do is in its rooms (rooms.py); who owns which state is in docs/owners.md. What runs by the clock is
in the rooms' `rounds.py`. Its two ports are in ports.py.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from cometmq.broker import sql
from cometmq.broker.access.control import AccessControl
from cometmq.broker.admin.settings import LiveSettings
from cometmq.broker.admission import LoopWatch
from cometmq.broker.hosts import FAST_PORT_BELOW, OwnAddress, ha_port_of
from cometmq.broker.ports import make_seen, make_servers
from cometmq.broker.rooms import Rooms
from cometmq.broker.shared import make_shared
from cometmq.broker.tables import rebuild
from cometmq.broker.tables.tables import Tables
from cometmq.broker.watchdog import Watchdog
from cometmq.clock import Clock, SystemClock
from cometmq.machine import log_storage
from cometmq.net.server import Server
from cometmq.store.background import Background
from cometmq.store.disk import Disk, OsDisk
from cometmq.store.queues.dispatch import parse_delay_levels
from cometmq.store.store import Store
from cometmq.store.timers import following

logger = logging.getLogger(__name__)

# What waits when the broker stops is answered within a second, or its connection is closed.
STOP_GRACE_S: Final = 0.8
# Clients of gRPC have been told by then, and their calls have ended.
GRPC_GRACE_S: Final = 0.3
DISPATCH_WAIT_S: Final = 5.0
DISPATCH_LOOK_S: Final = 0.1
THREADS_LOOK_S: Final = 0.005


class Broker:
    """Made and used on one event loop. `start` raises CometError when the broker cannot serve, and leaves nothing."""

    def __init__(self, settings: LiveSettings, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.settings: LiveSettings = settings
        self.clock: Clock = clock or SystemClock()
        self.disk: Disk = disk or OsDisk()
        config, options = settings.config, settings.store_options
        parse_delay_levels(options.delay_levels)  # a bad text is refused before anything is opened
        self.own: OwnAddress = OwnAddress(config)
        self.access: AccessControl = AccessControl(
            config, Path(options.path("config")), self.clock, is_slave=options.is_slave or options.controller_mode
        )
        self.tables: Tables = Tables(settings.current, options, self.clock)
        self.watch: LoopWatch = LoopWatch(self.clock)
        self.seen = make_seen(config, self.clock)
        # Made by start().
        self.store: Store
        self.background: Background
        self.rooms: Rooms
        self.server: Server
        self.fast_server: Server
        self._watchdog: Watchdog | None = None

    @property
    def address(self) -> str:
        """`ip:port`, as clients know it."""
        return self.own.address

    @property
    def port(self) -> int:
        return self.own.port

    @property
    def grpc_address(self) -> str | None:
        """Where gRPC clients connect; None if they are not served."""
        port = self.rooms.grpc.port
        return f"{self.settings.config.advertised_host}:{port}" if port else None

    # Starting and stopping

    async def start(self) -> None:
        if self.settings.config.property_filter_enabled:
            await asyncio.to_thread(sql.load)  # the first expression would stop the loop for it
        await self.seen.start()
        try:
            self.load_tables()
            table_ms = self.tables.topics.data_version.timestamp
            await self._open()
        except BaseException:
            await self.seen.stop()
            raise
        try:
            self._make_whole(table_ms)
            await self._serve()
        except BaseException:
            await self.seen.stop()
            await self._stop_serving(0)
            await self.rooms.replicas.stop()
            await self._close_store()
            raise
        self.tables.files.save_changed_soon()  # what was missing: files, system topics, groups
        self.access.open()
        self.rooms.shared.stats.start(self.store)
        self._start_rounds()
        await self.rooms.replicas.registration.start(self.address)
        if self.rooms.replicas.member is None:
            self.rooms.replicas.group.start()
        log_storage(self.store.options.root_dir)
        self.seen.attach(self.rooms.metrics)
        logger.info("started broker name=%s address=%s", self.settings.config.broker_name, self.address)

    def load_tables(self) -> None:
        self.access.load()
        self.tables.load(self.disk)

    async def _open(self) -> None:
        """In a thread, if somebody may ask meanwhile how it is."""
        if self.seen.is_served:
            await asyncio.to_thread(self._open_store)
        else:
            self._open_store()
        self.background = Background(self.store, asyncio.get_running_loop().call_soon_threadsafe)
        try:
            self._make_rooms()
        except BaseException:
            self.background.stop()
            self.store.close()
            raise

    def _open_store(self) -> None:
        self.store = Store(
            self.settings.store_options,
            self.disk,
            self.clock,
            store_host=self.own.host,
            is_batch_topic=self.tables.batch_topics.__contains__,
            on_progress=self.seen.recovering,
        )

    def _make_rooms(self) -> None:
        shared = make_shared(
            self.settings.current,
            self.clock,
            self.own,
            self.tables,
            self.access.rights,
            self.store,
            self.background,
            asyncio.get_running_loop().call_soon,
        )
        self.rooms = Rooms(shared, self.settings, self.access, self.watch)
        self.store.subscribe(arrived=self.rooms.arrived, failed=self._store_failed)
        self.server, self.fast_server = make_servers(self.settings.config, self.clock, self.rooms, self.access)
        endpoints = (self.server.endpoint, self.fast_server.endpoint, self.rooms.grpc.backend.endpoint)
        self.rooms.show(endpoints, self.seen.counts_requests)

    def _make_whole(self, table_ms: int) -> None:
        """What files lack and the log shows; then what one broker of a replica group does for all, if it is this."""
        replicas, options = self.rooms.replicas, self.store.options
        rebuild.rebuild_tables(self.tables, self.store, self.rooms.delayed.delays.level_max, table_ms)
        if self.settings.config.timer_wheel_enabled:
            rebuild.warn_of_timers(self.store)
        if replicas.is_replica:  # or not a master yet
            following.forget_own(self.disk, options)
        elif not replicas.registration.is_isolated:
            replicas.leader_tasks.open()

    async def _serve(self) -> None:
        host, port = self.settings.config.bind_address, self.port
        self.background.start()
        self.watch.start()
        await self.server.start(host, port)
        await self.fast_server.start(host, port - FAST_PORT_BELOW)
        await self.rooms.grpc.start(host)
        await self.rooms.replicas.start(host, ha_port_of(self.store.options, port))

    def _start_rounds(self) -> None:
        if self.settings.config.debug_locks:
            stacks = Path(self.store.options.path("stacks"))
            self._watchdog = Watchdog(self.watch, self.clock, asyncio.get_running_loop(), stacks)
            self._watchdog.start()
        self.rooms.consume.rounds.start()
        replicas = self.rooms.replicas
        if replicas.member is not None:
            return  # its role says what runs
        if replicas.is_replica:
            replicas.table_sync.start()
        elif not replicas.registration.is_isolated:
            replicas.leader_tasks.start()

    async def stop(self) -> None:
        replicas, config = self.rooms.replicas, self.settings.config
        await self.seen.stop()
        if replicas.member is not None:
            await replicas.member.stop()
        await replicas.group.stop()
        await replicas.registration.stop()
        await replicas.table_sync.stop()
        self.rooms.consume.rounds.stop()
        replicas.leader_tasks.pause()
        self.rooms.grpc.leave()
        self.rooms.consume.longpoll.close()
        self.rooms.pop.waiting.close()
        await asyncio.sleep(0)
        await self._stop_serving(config.shut_down_wait_s if config.shut_down_gracefully else STOP_GRACE_S)
        self.rooms.shared.stats.stop()
        await replicas.remote_put.stop()
        await replicas.client.stop()
        replicas.leader_tasks.finish()
        await replicas.replication.stop()
        await self._await_dispatch()
        await self._save_all()
        await self._close_store()
        self.rooms.delayed.delay_rounds.confirm()
        await self._save_all()
        logger.info("stopped broker name=%s address=%s", config.broker_name, self.address)

    async def _stop_serving(self, grace_s: float) -> None:
        await asyncio.gather(
            self.server.stop(grace_s), self.fast_server.stop(grace_s), self.rooms.grpc.stop(min(grace_s, GRPC_GRACE_S))
        )
        if self._watchdog is not None:
            self._watchdog.stop()
        self.watch.stop()

    async def _save_all(self) -> None:
        await self.tables.files.settle_all()
        await self.access.close()

    async def _close_store(self) -> None:
        leader_tasks = self.rooms.replicas.leader_tasks
        while self.background.busy or leader_tasks.is_writing:  # noqa: ASYNC110 - threads end it, not tasks
            await asyncio.sleep(THREADS_LOOK_S)
        self.background.stop()
        leader_tasks.close()
        self.store.close()
        self.access.audit.close()

    async def _await_dispatch(self) -> None:
        """Queues and index get time to catch up with the log; a store that stops behind it starts with recovery."""
        dispatcher = self.store.dispatcher
        for _ in range(round(DISPATCH_WAIT_S / DISPATCH_LOOK_S)):
            self.store.dispatch_now()
            if not dispatcher.behind_bytes:
                return
            await asyncio.sleep(DISPATCH_LOOK_S)
        logger.warning("gave up waiting for dispatch at=%d log_end=%d", dispatcher.position, self.store.log.max_offset)

    def _store_failed(self, error: OSError) -> None:
        logger.critical("take no messages any more broker=%s cause=%s", self.settings.config.broker_name, error)
