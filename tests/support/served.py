"""Every request code that a broker serves."""

from cometmq.broker.access import requests as access
from cometmq.broker.admin import groups, maintenance, queries, setting_requests, stats, topics
from cometmq.broker.consume import assignment, clients, lock_requests, offset_requests, pull, relays, send_back
from cometmq.broker.delayed import requests as delayed
from cometmq.broker.pop import requests as pop
from cometmq.broker.produce import fence_requests, reply, send
from cometmq.broker.replicas import requests as replicas
from cometmq.broker.transactions import requests as transactions

MODULES = (
    send, send_back, delayed, transactions, reply, pull, queries, clients, offset_requests, lock_requests, topics,
    groups, stats, setting_requests, relays, maintenance, replicas, pop, assignment, fence_requests, access,
)  # fmt: skip
CODES: frozenset[int] = frozenset(code for module in MODULES for code in module.HANDLERS)
