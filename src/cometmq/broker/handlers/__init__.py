"""Handlers of requests, one module per family; the types they share are in `broker.table`.

`HANDLERS` is the whole table: what this broker can be asked.
"""

from typing import Final

from cometmq.broker.handlers import clients, groups, locks, offsets, pull, send, sendback, topics
from cometmq.broker.table import Entry

HANDLERS: Final[dict[int, Entry]] = {}
for module in (send, sendback, pull, clients, offsets, locks, topics, groups):
    assert not HANDLERS.keys() & module.HANDLERS.keys(), f"{module.__name__} serves a code that another one serves"
    HANDLERS.update(module.HANDLERS)
