"""The room of POP: made of what it needs, and asked for the requests that it serves."""

from cometmq.broker.cold_pages import ColdPages
from cometmq.broker.entry import bound
from cometmq.broker.pop import requests
from cometmq.broker.pop.context import PopContext
from cometmq.broker.pop.popping import Popping
from cometmq.broker.pop.revive import PopRevival
from cometmq.broker.pop.rounds import PopRounds
from cometmq.broker.pop.waiting import PopWaiter, PopWaiting
from cometmq.broker.shared import Shared


class PopRoom:
    def __init__(self, shared: Shared, pages: ColdPages) -> None:
        tables, store = shared.tables, shared.store
        self.popping = Popping(
            shared.config, shared.clock, tables.topics, tables.groups, tables.offsets, store, shared.delivered
        )
        self.waiting = PopWaiting(shared.config, shared.clock, self._serve, requests.expire, self.popping.has_more)
        self._context = PopContext(
            shared.config,
            shared.clock,
            tables.topics,
            tables.groups,
            tables.consumers,
            store,
            shared.background,
            shared.stats,
            self.popping,
            self.waiting,
        )

        def left_pops() -> PopRevival:
            topic = f"rmq_sys_REVIVE_LOG_{shared.config().cluster_name}"
            return PopRevival(topic, shared.clock, tables.topics, tables.offsets, store, self.popping)

        self.rounds = PopRounds(shared.clock, self.popping, left_pops, tables.topics, tables.groups, pages, shared.soon)
        self.handlers = bound(requests.HANDLERS, self._context)

    def _serve(self, waiter: PopWaiter) -> bool:
        return requests.serve(self._context, waiter)
