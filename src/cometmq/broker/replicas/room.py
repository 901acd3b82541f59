"""The room of what goes on between brokers: made of what it needs, and asked for the requests that it serves."""

from cometmq.broker.entry import bound
from cometmq.broker.hosts import ha_port_of
from cometmq.broker.replicas import requests
from cometmq.broker.replicas.cluster_routes import ClusterRoutes
from cometmq.broker.replicas.context import ReplicaContext
from cometmq.broker.replicas.leader_tasks import LeaderTasks
from cometmq.broker.replicas.registration import Registration
from cometmq.broker.replicas.remote_put import RemotePut
from cometmq.broker.replicas.replica_group import ReplicaGroup, starts_isolated
from cometmq.broker.replicas.replica_port import ReplicaPort
from cometmq.broker.replicas.replication import Replication
from cometmq.broker.replicas.table_sync import TableSync
from cometmq.broker.shared import Shared
from cometmq.net.client import Client
from cometmq.net.dispatch import Hook
from cometmq.net.limits import CLIENT_LIMITS
from cometmq.net.tls import ClientTls


class ReplicaRoom:
    """`signer` signs what goes to other servers. Rooms that have something to do for the whole group give it to
    `leader_tasks`."""

    def __init__(self, shared: Shared, signer: Hook | None) -> None:
        config, clock, store, tables = shared.config, shared.clock, shared.store, shared.tables
        self.is_replica = store.options.is_slave
        self.client = Client(limits=CLIENT_LIMITS, clock=clock, tls=ClientTls.of_server(config()))
        if signer is not None:
            self.client.add_hook(signer)
        self.registration = Registration(
            config,
            tables.topics,
            self.client,
            clock,
            ha_port_of(store.options, shared.own.port),
            is_isolated=starts_isolated(config()),
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
        tables.subscribe(self.registration.announce)
        context = ReplicaContext(shared.own, store, tables.delays, self.registration, self.group)
        self.handlers = bound(requests.HANDLERS, context)

    async def _stop_sending(self) -> None:
        await self.remote_put.stop()
