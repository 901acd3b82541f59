"""The rooms of the broker, built one after the other from what each needs: the only place where rooms meet.

    replicas       between brokers: name servers, the log's replication, who does what for the group
    delayed        what arrives later                        uses   where a replica puts what is due
    transactions   halves and their ends                            the same; delayed, for what is committed
    pop            messages one by one
    consume        pulls, groups, offsets                           delayed; routes of the cluster, the master's life
    produce        sends                                            delayed, transactions, locks of consume
    admin          operators                                        figures of all
    grpc           5.x clients                                      what all others serve, asked without a socket
    metrics        what is shown of all, made last                 reads all
    access         users and policies, made before everything else: the server asks it at its ports

What one room must hear of another one it subscribes to here.
"""

from collections.abc import Sequence

from cometmq.auth.needs import NEEDS
from cometmq.broker.access import requests as access_requests
from cometmq.broker.access.control import AccessControl
from cometmq.broker.access.copies import Copies
from cometmq.broker.admin.room import AdminRoom
from cometmq.broker.admin.settings import LiveSettings
from cometmq.broker.admission import LoopWatch, SendGate, make_families
from cometmq.broker.cold_pages import ColdPages
from cometmq.broker.consume.room import ConsumeRoom
from cometmq.broker.delayed.room import DelayedRoom
from cometmq.broker.entry import bound, merged
from cometmq.broker.grpc.local import Handlers
from cometmq.broker.grpc.room import GrpcRoom
from cometmq.broker.metrics.context import MetricsContext, TimerView
from cometmq.broker.metrics.room import MetricsRoom, Promises
from cometmq.broker.pop.room import PopRoom
from cometmq.broker.produce.room import ProduceRoom
from cometmq.broker.replicas.room import ReplicaRoom
from cometmq.broker.shared import Shared
from cometmq.broker.tables.files import GROUPS, OFFSETS, TOPICS
from cometmq.broker.transactions.room import TransactionRoom
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Endpoint
from cometmq.store.queues.consume_queues import LMQ_PREFIX
from cometmq.store.queues.dispatch import OnArrival


class Rooms:
    """The store is open, tables are loaded. `watch` knows how long the event loop was away."""

    def __init__(self, shared: Shared, settings: LiveSettings, access: AccessControl, watch: LoopWatch) -> None:
        self.shared = shared
        self._watch, self._access = watch, access
        self.metrics: MetricsRoom
        store = shared.store
        pages = ColdPages(store.reading.cold_range, shared.background.load_ranges)
        self.replicas = ReplicaRoom(shared, access.signer, settings.take_id)
        member = self.replicas.member
        elsewhere = self.replicas.remote_put if self.replicas.is_replica and member is None else None
        self.delayed = DelayedRoom(shared, pages, elsewhere)
        self.transactions = TransactionRoom(
            shared, pages, put=self.delayed.put, elsewhere=None if elsewhere is None else elsewhere.put
        )
        self.pop = PopRoom(shared, pages)
        self.consume = ConsumeRoom(
            shared,
            put=self.delayed.put,
            find_route=self.replicas.routes.find,
            is_master_alive=self.replicas.sees_master,
        )
        self.produce = ProduceRoom(
            shared,
            put=self.delayed.put,
            put_half=self.transactions.transactions.put_half,
            delay_level_of=self.delayed.delays.level_of,
            recall_handle=self.delayed.recall_handle,
            holds_locks=self.consume.holds_locks,
        )
        # One that may act as the master is asked, and its store refuses.
        acting = shared.config().acting_master_enabled
        self.gate = SendGate(store.log, self.replicas.is_replica and not acting)
        if member is not None:
            member.close_sends_with(self.gate.close)
            self.gate.forwards = member.forwards
        self.families = make_families(shared.config, watch, self.gate, self._drop_evicted)
        self.admin = AdminRoom(
            shared,
            settings,
            self.families,
            follow_settings=self.produce.marks.follow_settings,
            settled=self.settled,
            ha_status=self.replicas.ha_status,
            is_active=lambda: self.replicas.leader_tasks.is_on,
            timer_metrics=self.delayed.timers.metrics,
            parked_pulls=lambda: self.consume.longpoll.count,
            wrong_signatures=lambda: access.checks.wrong_signatures,
            own_state=lambda: ({} if member is None else member.figures()) | self._promises(),
        )
        self.replicas.leader_tasks.add(
            self.delayed.delay_rounds, self.pop.rounds, self.transactions.rounds, self.delayed.timer_rounds
        )
        self.replicas.table_sync.copy_too(Copies(access, self.replicas.table_sync.call).parts)
        self.replicas.send_readers_with(self.consume.longpoll.wake_all)
        self.handlers = merged(
            self.replicas.handlers,
            self.delayed.handlers,
            self.transactions.handlers,
            self.pop.handlers,
            self.consume.handlers,
            self.produce.handlers,
            self.admin.handlers,
            bound(access_requests.HANDLERS, access),
        )
        if member is not None:
            self.handlers = member.handover.wrap(self.handlers)
        self.grpc = GrpcRoom(
            shared,
            Handlers(self.handlers, self.families),
            access.guard,
            find_route=self.replicas.routes.find,
            has_cluster=lambda: bool(self.replicas.registration.name_servers),
            on_close=self.on_close,
            is_trusted_proxy=access.trusts_proxy,
        )
        unsaid = sorted(self.handlers.keys() - NEEDS.keys())
        assert not unsaid, f"say in auth/needs.py what these need: {unsaid}"

    def _promises(self) -> dict[str, str]:
        """What the conditions of /readyz say, for tools that reach only this port."""
        broken = [f"{check.name}: {check.detail}" for check in self.metrics.checks() if not check.ok]
        return {"cometmq.promises": "; ".join(broken) or "kept"}

    def show(self, endpoints: Sequence[Endpoint], counts_requests: bool) -> None:
        """The room of metrics: last, because it looks at all others and at the ports."""
        timers, replication = self.delayed.timers, self.replicas.replication
        context = MetricsContext(
            self.shared.config,
            self.shared.clock,
            self.shared.tables,
            self.shared.store,
            self.shared.stats,
            self._watch,
            self.families,
            TimerView(
                lambda: timers.files if timers.is_open else None,
                timers.tally,
                lambda: timers.queue_behind,
                lambda: timers.read_behind_ms,
            ),
            self.pop.popping.windows.in_hand,
            lambda: self.consume.longpoll.count,
            lambda: self._access.checks.wrong_signatures,
            replication.status,
            endpoints,
        )
        promises = Promises(
            replication.copies, self.replicas.registration.known_to, lambda: replication.is_connected
        )
        self.metrics = MetricsRoom(context, promises)
        if counts_requests:
            self.metrics.measure()

    async def settled(self) -> None:
        """Changes made so far are on disk, and name servers were told of them. StoreError if they cannot be saved."""
        await self.shared.tables.files.settle(TOPICS, GROUPS, OFFSETS)
        await self.replicas.registration.reported()

    @property
    def arrived(self) -> OnArrival:
        """Who is told of each message that was dispatched."""
        return self._replicated if self.replicas.is_replica else self.consume.longpoll.arrived

    def _replicated(
        self, topic: str, queue_id: int, next_offset: int, tag_code: int, store_time_ms: int, properties: str
    ) -> None:
        """Nobody puts on a replica; what the log brings is counted, without its size, which dispatch does not tell."""
        if self.shared.store.is_replica and not topic.startswith(LMQ_PREFIX):
            self.shared.stats.put(topic, queue_id, 1, 0)
            self.replicas.table_sync.arrived(topic, queue_id)
        self.consume.longpoll.arrived(topic, queue_id, next_offset, tag_code, store_time_ms, properties)

    def _drop_evicted(self) -> None:
        self.consume.longpoll.drop_evicted()
        self.pop.waiting.drop_evicted()

    def on_close(self, connection: Connection) -> None:
        self.shared.born.forget(connection)
        self.consume.on_close(connection)
