"""This broker among those of its name: who is alive, who is the first of them, and what follows from that.

    every 1 s, with enableSlaveActingMaster
      heartbeat          904 to every name server; one that hears nothing for brokerNotActiveTimeoutMillis forgets us
      members            901 from a name server: ids and addresses of all who are alive

The member with the smallest id does the tasks of the leader (leader_tasks.py). While that is not the master:

    master gone          the smallest replica acts: routes show it as readable, it delivers delays and timers and asks
                         for transactions; what comes of that is sent to other brokers (remote_put.py), its own log
                         stays as the master left it
    master back          it gives up these tasks, follows again, and pulls that wait are answered: go to the master

A group of several brokers in which replicas may act starts isolated: not registered, until it is sure that nobody
else does what it would do, every second anew (`_come_online`):

    nobody there         go on
    as the master        tell replicas where the log is, wait until they are connected, and take over what the one that
                         acted is ahead in: consumer offsets, delays, timers
    as a replica         ask the master where the log is, and wait until connected

Without acting masters all this is off: a replica learns of its master when it registers, and asks for the members
every 3 s while it gets no log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.broker.hosts import OwnAddress
from cometmq.broker.periodic import Periods
from cometmq.broker.replicas.leader_tasks import LeaderTasks
from cometmq.broker.replicas.registration import Registration
from cometmq.broker.replicas.replication import Replication
from cometmq.broker.replicas.table_sync import CALL_S, TableSync
from cometmq.broker.tables.files import DELAYS, OFFSETS, TIMER_COUNTS
from cometmq.broker.tables.tables import Tables
from cometmq.clock import Clock
from cometmq.errors import CometError, RequestError
from cometmq.net.client import Client
from cometmq.rate_limited_log import ThinnedLog
from cometmq.store.store import Store
from cometmq.store.timers import following as timerfollowing
from cometmq.store.timers.progress import TimerProgress
from cometmq.wire.bodies import (
    BrokerMemberGroup,
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    TimerCounts,
)
from cometmq.wire.codes import MASTER_ID, Request, Response
from cometmq.wire.command import request as new_request
from cometmq.wire.headers import BrokerHeartbeat, ExchangeHaInfo, GetBrokerMemberGroup, NotifyMinBrokerIdChange

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
SEEK_S: Final = 3.0
# A master that is asked every 3 s and does not answer for so long counts as gone.
SILENT_S: Final = 10.0
# How long one attempt to come online waits for replication to be connected.
LINK_S: Final = 5.0
LOOK_S: Final = 0.05


def starts_isolated(config: BrokerConfig) -> bool:
    """Whether a broker may not be known to name servers before it has come online."""
    return config.acting_master_enabled and config.total_replicas > 1 and not config.skip_pre_online


class ReplicaGroup:
    """`id_min`: the smallest id alive in the group, 0 until somebody says otherwise. `alive`: how many there are."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        own: OwnAddress,
        store: Store,
        tables: Tables,
        client: Client,
        registration: Registration,
        replication: Replication,
        table_sync: TableSync,
        leader_tasks: LeaderTasks,
    ) -> None:
        self.id_min: int = MASTER_ID
        self.alive: int = 1
        self._config = config
        self._clock = clock
        self._own = own
        self._store = store
        self._is_replica = store.options.is_slave
        self._tables = tables
        self._client = client
        self._registration = registration
        self._replication = replication
        self._table_sync = table_sync
        self._leader_tasks = leader_tasks
        self._listeners: list[Callable[[], object]] = []
        self._periods = Periods(clock)
        self._address_min: str | None = None
        self._is_settled: bool = True
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._log_failures = ThinnedLog(logger, clock)
        registration.subscribe(self.registered)

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Told when there is a master that readers should go to."""
        self._listeners.append(listener)

    @property
    def is_acting(self) -> bool:
        """A replica that does what the master would."""
        return self._is_replica and self._leader_tasks.is_on

    def sees_master(self) -> bool:
        if self._config().acting_master_enabled:
            return self.id_min == MASTER_ID
        if self._links_up() > 0:
            return True
        following = self._table_sync
        return following.master is not None and self._clock.monotonic() - following.heard_s < SILENT_S

    def registered(self, master: str | None, ha_address: str | None) -> None:
        """What a name server says to a replica that registers."""
        if not self._is_replica:
            return
        if ha_address is not None:
            self._replication.follow(ha_address)
        if master is not None:
            self._found_master(master)
        elif self._links_up() == 0:  # not every name server need know the master
            self._table_sync.follow(None)

    def _found_master(self, address: str) -> None:
        was_alive = self.sees_master()
        self._table_sync.follow(address)
        if not was_alive:
            self._send_readers_there()

    def _send_readers_there(self) -> None:
        for listener in self._listeners:
            listener()

    async def _seek(self) -> None:
        """The master of a replica that gets no log."""
        if self._links_up() > 0:
            return
        members = await self.members()
        if members is not None and MASTER_ID in members:
            await self._follow(members[MASTER_ID], None)
        elif members is not None:
            self._table_sync.follow(None)

    # By the clock

    def start(self) -> None:
        config = self._config()
        if not config.acting_master_enabled:
            if self._is_replica:
                self._periods.every("seek", lambda: SEEK_S, lambda: self._begin("seek"), SEEK_S)
            return
        self._replication.act_as_masters(lambda: self.alive)

        def beat_s() -> float:
            return config.heartbeat_interval_ms / 1000

        def sync_s() -> float:
            return config.member_sync_interval_ms / 1000

        self._periods.every("heartbeat", beat_s, lambda: self._begin("heartbeat"), 1.0)
        self._periods.every("members", sync_s, lambda: self._begin("members"), 1.0)
        if self._registration.is_isolated:
            self._periods.every("online", lambda: RETRY_S, lambda: self._begin("online"), 0.0)

    async def stop(self) -> None:
        self._periods.stop()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str) -> None:
        """One of a kind at a time; a name server that is slow gets no second heartbeat while the first is under way."""
        acts = {"heartbeat": self._beat, "members": self._sync, "online": self._try_online, "seek": self._seek}
        if name not in self._tasks:
            task = asyncio.get_running_loop().create_task(acts[name]())
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _beat(self) -> None:
        config = self._config()
        header = BrokerHeartbeat(
            cluster_name=config.cluster_name,
            broker_addr=self._own.address,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            heartbeat_timeout_ms=config.not_active_timeout_ms,
        )
        limit_s = config.not_active_timeout_ms / 1000
        servers = self._registration.name_servers
        await asyncio.gather(*(self._beat_at(server, header, limit_s) for server in servers))

    async def _beat_at(self, server: str, header: BrokerHeartbeat, limit_s: float) -> None:
        command = new_request(Request.BROKER_HEARTBEAT, header.encode(), oneway=True)
        try:
            await self._client.send_oneway(server, command, limit_s)
        except CometError as error:
            self._log_failures.warning("fail heartbeat name_server=%s cause=%s", server, error)

    async def _sync(self) -> None:
        members = await self.members()
        if not members:
            return
        self.alive = len(members | {self._config().broker_id: ""})
        if not self._registration.is_isolated:
            first = min(members)
            await self.heard(first, members[first], None)

    async def members(self) -> dict[int, str] | None:
        """Addresses by id, as the first name server that answers has them; None if none does."""
        config = self._config()
        header = GetBrokerMemberGroup(config.cluster_name, config.broker_name)
        for server in self._registration.name_servers:
            try:
                answer = await self._client.call(
                    server, new_request(Request.GET_BROKER_MEMBER_GROUP, header.encode()), CALL_S
                )
                if answer.code == Response.SUCCESS:
                    return dict(BrokerMemberGroup.decode(answer.body).broker_member_group.broker_addrs)
                self._log_failures.warning("no members name_server=%s cause=%s", server, answer.remark)
            except CometError as error:
                self._log_failures.warning("fail members name_server=%s cause=%s", server, error)
        return None

    # Who is the first

    def notice(self, notice: NotifyMinBrokerIdChange) -> None:
        """A name server says so, sooner than the next look."""
        id_min, address = notice.min_broker_id, notice.min_broker_addr
        if id_min is not None and address and not self._registration.is_isolated and "notice" not in self._tasks:
            task = asyncio.get_running_loop().create_task(self.heard(id_min, address, notice.ha_broker_addr))
            self._tasks["notice"] = task
            task.add_done_callback(lambda _: self._tasks.pop("notice", None))

    async def heard(self, id_min: int, address: str, ha_address: str | None) -> None:
        """The smallest id alive is this one. Only replicas care: a master is the smallest where it is."""
        config = self._config()
        if not config.acting_master_enabled or config.broker_id == MASTER_ID:
            return
        async with self._turn:
            if (id_min, address) == (self.id_min, self._address_min) and self._is_settled:
                return
            logger.info("first member id=%d address=%s before=%d", id_min, address, self.id_min)
            self.id_min, self._address_min = id_min, address
            self._is_settled = False
            try:
                await self._settle(id_min, address, ha_address)
                self._is_settled = True
            except (CometError, OSError) as error:
                logger.error("fail to change tasks, try again cause=%s", error)

    async def _settle(self, id_min: int, address: str, ha_address: str | None) -> None:
        if id_min == MASTER_ID:
            await self._resign()
            await self._follow(address, ha_address)
            self._send_readers_there()
        else:
            self._leave_master()
            await (self._act() if id_min == self._config().broker_id else self._resign())

    def _leave_master(self) -> None:
        self._table_sync.follow(None)
        self._replication.follow(None)

    async def _follow(self, address: str, ha_address: str | None) -> None:
        if ha_address is None:
            ha_address = await self._ask_ha_address(address)
        self._found_master(address)
        if ha_address is not None:
            self._replication.follow(ha_address)

    async def _ask_ha_address(self, master: str) -> str | None:
        try:
            answer = await self._table_sync.call(master, Request.EXCHANGE_BROKER_HA_INFO)
        except CometError as error:
            logger.warning("fail to ask for address of the log master=%s cause=%s", master, error)
            return None
        return ExchangeHaInfo.decode(answer.ext).master_ha_address

    async def _act(self) -> None:
        if not self._leader_tasks.is_on:
            await self._table_sync.stop()
            logger.warning("act as master name=%s id=%d", self._config().broker_name, self._config().broker_id)
            self._leader_tasks.start()

    async def _resign(self) -> None:
        if self._leader_tasks.is_on:
            logger.warning("act as master no longer name=%s", self._config().broker_name)
            await self._leader_tasks.stop()
            timerfollowing.forget_own(self._store.disk, self._store.options)
            self._table_sync.start()

    def master_told(self, info: ExchangeHaInfo) -> None:
        """A master that comes online says where its log is. Who has a master believes nobody else."""
        if not (self._is_replica and self._config().acting_master_enabled and info.master_ha_address):
            return
        if self._links_up() == 0:
            self._replication.follow(info.master_ha_address)
        else:
            logger.warning("kept master, not following address=%s", info.master_ha_address)

    # Out of isolation

    async def _try_online(self) -> None:
        try:
            if await self._come_online():
                self._periods.cancel("online")
        except CometError as error:
            self._log_failures.warning("not online yet cause=%s", error)

    async def _come_online(self) -> bool:
        config = self._config()
        members = await self.members()
        if members is None:
            return False
        others = {number: address for number, address in members.items() if number != config.broker_id}
        if others and config.broker_id == MASTER_ID:
            await self._prepare_master(others)
        elif MASTER_ID in others:
            await self._prepare_replica(others[MASTER_ID])
        first = min(members | {config.broker_id: self._own.address})
        logger.info("come online name=%s id=%d members=%s", config.broker_name, config.broker_id, sorted(members))
        if first == config.broker_id == MASTER_ID:
            self._leader_tasks.start()
        await self._registration.join()
        return True

    async def _prepare_master(self, replicas: dict[int, str]) -> None:
        info = ExchangeHaInfo(self._registration.ha_address, self._store.log.max_offset, self._own.address)
        for address in replicas.values():
            await self._table_sync.call(address, Request.EXCHANGE_BROKER_HA_INFO, info.encode())
        await self._await_links(len(replicas))
        await self._take_over_from(replicas[min(replicas)])

    async def _prepare_replica(self, master: str) -> None:
        await self._follow(master, None)
        await self._await_links(1)

    async def _await_links(self, count: int) -> None:
        for _ in range(round(LINK_S / LOOK_S)):
            if self._links_up() >= count:
                return
            await asyncio.sleep(LOOK_S)
        raise RequestError(
            Response.SLAVE_NOT_AVAILABLE, f"{self._links_up()} of {count} replicas are connected after {LINK_S:g} s"
        )

    def _links_up(self) -> int:
        """Connections over which the log goes, from the master or to replicas that have said where they are."""
        replication = self._replication
        if replication.follower is not None:
            return int(replication.follower.is_connected)
        links = replication.listener.master.links if replication.listener is not None else []
        return sum(link.acked_offset >= 0 for link in links)

    async def _take_over_from(self, replica: str) -> None:
        """What the replica that acted has gone on with."""
        call, tables = self._table_sync.call, self._tables
        offsets = ConsumerOffsetTable.decode((await call(replica, Request.GET_ALL_CONSUMER_OFFSET)).body)
        if _is_newer(offsets.data_version, tables.offsets.data_version):
            tables.offsets.follow(offsets)
            tables.files.save_soon(OFFSETS)
        delays = DelayOffsetTable.decode((await call(replica, Request.GET_ALL_DELAY_OFFSET)).body)
        if _is_newer(delays.data_version, tables.delays.version):
            tables.delays.follow(delays)
            tables.files.save_soon(DELAYS)
        if not self._config().timer_wheel_enabled:
            return
        progress = TimerProgress.unpacked((await call(replica, Request.GET_TIMER_CHECK_POINT)).body)
        await asyncio.to_thread(timerfollowing.take_over, self._store.disk, self._store.options, progress)
        counts = TimerCounts.decode((await call(replica, Request.GET_TIMER_METRICS)).body)
        if _is_newer(counts.data_version, tables.timer_counts.version):
            tables.timer_counts.follow(counts)
            tables.files.save_soon(TIMER_COUNTS)


def _is_newer(theirs: DataVersion, ours: DataVersion) -> bool:
    """Of two versions of one table, as RocketMQ orders them."""
    return (theirs.state_version, theirs.counter, theirs.timestamp) > (
        ours.state_version,
        ours.counter,
        ours.timestamp,
    )
