"""What handlers share: the administration of the cluster, hub, plans, audit log, and bounds on what runs at once.

One object per application, made when it starts. Its attributes are set once.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cometmq.client.admin import Admin
from cometmq.client.client import Client
from cometmq.console.history import History
from cometmq.console.options import Options

if TYPE_CHECKING:
    from cometmq.console.audit import Audit
    from cometmq.console.hub import Hub
    from cometmq.console.login import Logins
    from cometmq.console.plans.store import Plans

SCANS_MAX: Final = 8
STREAMS_MAX: Final = 64


@dataclass
class Seen:
    """What outlives a poll: brokers that were there, and counts of the poll before."""

    brokers: dict[tuple[str, int, str], dict[str, Any]] = field(default_factory=dict)
    counts: dict[str, tuple[float, float]] = field(default_factory=dict)

    def rate(self, key: str, count: float) -> float | None:
        """Change a second since the last time it was asked; None the first time."""
        now_s = time.monotonic()
        before = self.counts.get(key)
        self.counts[key] = (now_s, count)
        if len(self.counts) > 50_000:
            self.counts.pop(next(iter(self.counts)))
        if before is None or now_s - before[0] < 0.05 or now_s - before[0] > 60:
            return None
        return max(0.0, round((count - before[1]) / (now_s - before[0]), 2))


class Context:
    def __init__(self, options: Options, client: Client, admin: Admin, logins: "Logins", audit: "Audit") -> None:
        self.options = options
        self.client = client
        self.admin = admin
        self.logins = logins
        self.audit = audit
        self.history = History(options.history)
        self.seen = Seen()
        self.scans = asyncio.Semaphore(SCANS_MAX)
        self.streams = 0
        self.closing = asyncio.Event()  # streams end by themselves then
        self.memory: dict[str, tuple[float, asyncio.Future[Any]]] = {}
        self.hub: Hub
        self.plans: Plans

    async def remembered(self, key: str, ask: Callable[[], Awaitable[Any]], age_s: float | None = None) -> Any:
        """What was asked for less than `age_s` ago, also by somebody else; two never ask at once."""
        limit_s = self.options.poll_s if age_s is None else age_s
        known = self.memory.get(key)
        if known is None or (known[1].done() and time.monotonic() - known[0] > limit_s) or failed(known[1]):
            if len(self.memory) > 5000:
                self.memory.clear()
            task: asyncio.Future[Any] = asyncio.ensure_future(ask())
            self.memory[key] = known = (time.monotonic(), task)
        return await asyncio.shield(known[1])


def failed(future: "asyncio.Future[Any]") -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
