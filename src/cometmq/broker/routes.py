"""The table of request codes: which handler serves a code, in which family.

Each room has its own table; `HANDLERS` is all of them: everything that this broker can be asked. What a
caller needs for each is in auth/needs.py; a code without a row there ends the start.
"""

from typing import Final

from cometmq.auth.needs import NEEDS
from cometmq.broker.access import requests as access
from cometmq.broker.admin import groups, maintenance, queries, setting_requests, stats, topics
from cometmq.broker.consume import (
    assignment,
    clients,
    lock_requests,
    offset_requests,
    pull,
    relays,
    send_back,
)
from cometmq.broker.delayed import requests as delayed
from cometmq.broker.entry import Entry
from cometmq.broker.pop import requests as pop
from cometmq.broker.produce import fence_requests, reply, send
from cometmq.broker.replicas import requests as replicas
from cometmq.broker.transactions import requests as transactions

HANDLERS: Final[dict[int, Entry]] = {}
for module in (
    send, send_back, delayed, transactions, reply, pull, queries, clients, offset_requests, lock_requests, topics,
    groups, stats, setting_requests, relays, maintenance, replicas, pop, assignment, fence_requests, access,
):  # fmt: skip
    assert not HANDLERS.keys() & module.HANDLERS.keys(), f"{module.__name__} serves a code that another one serves"
    HANDLERS.update(module.HANDLERS)
assert HANDLERS.keys() <= NEEDS.keys(), f"say in NEEDS what these need: {sorted(HANDLERS.keys() - NEEDS.keys())}"
