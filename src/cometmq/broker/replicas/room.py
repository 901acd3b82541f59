"""The room of what goes on between brokers: made of what it needs, and asked for the requests that it serves."""

from collections.abc import Callable

from cometmq.broker.entry import bound
from cometmq.broker.hosts import ha_port_of
from cometmq.broker.replicas import requests
from cometmq.broker.replicas.cluster_routes import ClusterRoutes
from cometmq.broker.replicas.context import ReplicaContext
from cometmq.broker.replicas.handover import Handover
from cometmq.broker.replicas.leader_tasks import LeaderTasks
from cometmq.broker.replicas.registration import Registration
from cometmq.broker.replicas.remote_put import RemotePut
from cometmq.broker.replicas.replica_group import ReplicaGroup, starts_isolated
from cometmq.broker.replicas.replica_port import ReplicaPort
from cometmq.broker.replicas.replication import Replication
from cometmq.broker.replicas.set_member import SetMember
from cometmq.broker.replicas.table_sync import TableSync
from cometmq.broker.shared import Shared
from cometmq.net.client import Client
from cometmq.net.dispatch import Hook
from cometmq.net.limits import CLIENT_LIMITS
from cometmq.net.tls import ClientTls
from cometmq.wire.bodies import HaStatus


class ReplicaRoom:
    """`signer` signs what goes to other servers. Rooms that have something to do for the whole group give it to
    `leader_tasks`."""

    def __init__(self, shared: Shared, signer: Hook | None, take_id: Callable[[int], object]) -> None:
        config, clock, store, tables = shared.config, shared.clock, shared.store, shared.tables
        self.is_replica = store.is_replica
        in_set = store.options.controller_mode
        self.client = Client(limits=CLIENT_LIMITS, clock=clock, tls=ClientTls.of_server(config()))
        if signer is not None:
            self.client.add_hook(signer)
        self.registration = Registration(
            config,
            tables.topics,
            self.client,
            clock,
            ha_port_of(store.options, shared.own.port),
            is_isolated=in_set or starts_isolated(config()),
        )
        self.routes = ClusterRoutes(clock, self.client, self.registration)
        self.leader_tasks = LeaderTasks(self._stop_sending)
        self.remote_put = RemotePut(config, clock, store, self.client, self.routes, self.leader_tasks.resume)
        port = ReplicaPort(config(), clock, is_slave=self.is_replica)
        self.replication = Replication(store, shared.background, clock, port)
        self.table_sync = TableSync(config, clock, tables, store, self.client)
        self.group = ReplicaGroup(
            config,
            clock,
            shared.own,
            store,
            tables,
            self.client,
            self.registration,
            self.replication,
            self.table_sync,
            self.leader_tasks,
        )
        self.member: SetMember | None = None
        if in_set:
            self.member = SetMember(
                config, clock, shared.own, store, shared.background, self.registration, self.table_sync,
                self.leader_tasks, port, Handover(clock, self.client), take_id,
            )  # fmt: skip
        tables.subscribe(self.registration.announce)
        context = ReplicaContext(
            shared.own, store, tables.delays, self.registration, self.group, self._epochs, config
        )
        self.handlers = bound(requests.HANDLERS, context)

    def _epochs(self) -> tuple[int, list[tuple[int, int]]] | None:
        return None if self.member is None else self.member.epochs()

    async def start(self, host: str, port: int) -> None:
        """The log side: StoreError if the port is taken."""
        if self.member is not None:
            await self.member.start(host, port)
        else:
            await self.replication.start(host, port)

    async def stop(self) -> None:
        if self.member is not None:
            await self.member.stop()
        await self.replication.stop()

    def sees_master(self) -> bool:
        return self.group.sees_master() if self.member is None else self.member.sees_master()

    def ha_status(self) -> HaStatus:
        return self.replication.status() if self.member is None else self.member.ha_status()

    def send_readers_with(self, listener: Callable[[], object]) -> None:
        """Told when readers should go to another broker."""
        self.group.subscribe(listener)
        if self.member is not None:
            self.member.subscribe(listener)

    async def _stop_sending(self) -> None:
        await self.remote_put.stop()
