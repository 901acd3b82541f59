"""The room of transactions: made of what it needs, and asked for the requests that it serves."""

from collections.abc import Callable

from cometmq.broker.cold_pages import ColdPages
from cometmq.broker.entry import bound
from cometmq.broker.shared import Shared
from cometmq.broker.transactions import requests
from cometmq.broker.transactions.context import TransactionContext
from cometmq.broker.transactions.rounds import TransactionRounds
from cometmq.broker.transactions.transactions import Transactions
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult

Put = Callable[[AppendRequest], PutResult]


class TransactionRoom:
    """`put` diverts what is delayed; `elsewhere`: on a replica, where it puts open halves."""

    def __init__(self, shared: Shared, pages: ColdPages, *, put: Put, elsewhere: Put | None) -> None:
        tables = shared.tables
        self.transactions = Transactions(
            shared.config,
            shared.clock,
            shared.own,
            shared.store,
            tables.topics,
            tables.offsets,
            tables.producers,
            tables.half_counts,
            shared.delivered,
            pages,
            elsewhere,
        )
        self.rounds = TransactionRounds(shared.config, shared.clock, self.transactions, tables, shared.soon)
        context = TransactionContext(
            tables.topics, shared.settling, shared.rights, shared.store, shared.stats, self.transactions, put
        )
        self.handlers = bound(requests.HANDLERS, context)
