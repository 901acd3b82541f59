"""Handlers of requests, one module per family; the types they share are in `broker.table`.

`HANDLERS` is the whole table: what this broker can be asked.
"""

from typing import Final

from cometmq.broker.handlers import (
    assignment,
    clients,
    config,
    fences,
    groups,
    locks,
    maintenance,
    offsets,
    pop,
    pull,
    query,
    relays,
    replicas,
    reply,
    send,
    sendback,
    stats,
    timers,
    topics,
    transactions,
)
from cometmq.broker.table import Entry

HANDLERS: Final[dict[int, Entry]] = {}
for module in (
    send, sendback, timers, transactions, reply, pull, query, clients, offsets, locks, topics, groups, stats, config,
    relays, maintenance, replicas, pop, assignment, fences,
):  # fmt: skip
    assert not HANDLERS.keys() & module.HANDLERS.keys(), f"{module.__name__} serves a code that another one serves"
    HANDLERS.update(module.HANDLERS)
