"""What the handlers that end transactions need."""

from collections.abc import Callable
from dataclasses import dataclass

from cometmq.broker.rights import Rights
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.settling import Settling
from cometmq.broker.tables.topics import Topics
from cometmq.broker.transactions.transactions import Transactions
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult
from cometmq.store.store import Store


@dataclass(slots=True, eq=False)
class TransactionContext:
    """`put` diverts what is delayed: a committed message may be."""

    topics: Topics
    settling: Settling
    rights: Rights
    store: Store
    stats: Stats
    transactions: Transactions
    put: Callable[[AppendRequest], PutResult]
