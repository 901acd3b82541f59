"""The room of consumers: made of what it needs, and asked for the requests that it serves."""

from collections.abc import Awaitable, Callable
from functools import partial

from cometmq.broker.consume import (
    assignment,
    clients,
    lock_requests,
    offset_requests,
    pull,
    relays,
    send_back,
)
from cometmq.broker.consume.context import (
    AssignmentContext,
    MembersContext,
    OffsetContext,
    PullContext,
    RelayContext,
    SendBackContext,
)
from cometmq.broker.consume.locks import QueueLocks
from cometmq.broker.consume.long_poll import LongPoll, Waiter
from cometmq.broker.consume.rounds import ConsumeRounds
from cometmq.broker.entry import bound, merged
from cometmq.broker.shared import Shared
from cometmq.clock import uptime_ms
from cometmq.net.connection import Connection
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult
from cometmq.wire.bodies import TopicRoute


class ConsumeRoom:
    """`put` diverts what is delayed; see the contexts for what else other rooms give."""

    def __init__(
        self,
        shared: Shared,
        *,
        put: Callable[[AppendRequest], PutResult],
        find_route: Callable[[str], Awaitable[TopicRoute]],
        is_master_alive: Callable[[], bool],
    ) -> None:
        tables, store = shared.tables, shared.store
        config, topics, groups = shared.config, tables.topics, tables.groups
        self.queue_locks = QueueLocks(config().lock_max_live_ms)
        self.longpoll = LongPoll(self._pull_again, shared.soon, store.queues.max_offset)
        self._clock = shared.clock
        self._members = MembersContext(
            config,
            shared.clock,
            topics,
            groups,
            tables.consumers,
            tables.producers,
            tables.property_filters,
            self.queue_locks,
        )
        self._pulls = PullContext(
            config,
            shared.clock,
            topics,
            groups,
            tables.offsets,
            tables.consumers,
            tables.property_filters,
            store,
            shared.background,
            shared.stats,
            self.longpoll,
            is_master_alive,
        )
        offsets = OffsetContext(config, topics, groups, tables.offsets, tables.consumers, store)
        self.returns = SendBackContext(
            config, topics, groups, shared.settling, shared.rights, store, shared.stats, put, shared.own.offset_id,
            shared.clock.now_ms,
        )  # fmt: skip
        questions = RelayContext(config, topics, groups, tables.consumers, shared.rights, store)
        shares = AssignmentContext(config, topics, tables.consumers, tables.request_modes, tables.files, find_route)
        self.rounds = ConsumeRounds(
            config, shared.clock, self.longpoll, tables, shared.stats, partial(clients.expire_clients, self._members),
            partial(clients.tell_postponed, self._members),
        )  # fmt: skip
        self.handlers = merged(
            bound(pull.HANDLERS, self._pulls),
            bound(send_back.HANDLERS, self.returns),
            bound(clients.HANDLERS, self._members),
            bound(lock_requests.HANDLERS, self._members),
            bound(offset_requests.HANDLERS, offsets),
            bound(relays.HANDLERS, questions),
            bound(assignment.HANDLERS, shares),
        )

    def _pull_again(self, waiter: Waiter) -> None:
        pull.pull_again(self._pulls, waiter)

    def holds_locks(self, group: str) -> bool:
        return self.queue_locks.any_lock_alive(group, uptime_ms(self._clock))

    def on_close(self, connection: Connection) -> None:
        clients.connection_closed(self._members, connection)
