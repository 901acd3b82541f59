"""When a request is refused so that another one can be served.

Every request code belongs to a family with a bound of its own on requests that wait (`FAMILIES`), so that a flood of
one kind leaves the others alone. Before a request is taken, its family also asks:

    the event loop stood still    requests that lay in sockets longer than their family allows are refused
    the disk stands still         sends are refused while appends take too long
    the role                      a replica takes no sends

RocketMQ measures how long a request lay in a queue. Here it lies in a socket, which has no clock; `LoopWatch` knows how
long the loop was away, which is the longest that anything read right after it can have waited. Most of it came later
than that, so a stall must be longer than the family's limit by `STALL_GRACE_MS` before anything is refused. A refusal
always means that nothing was done.
"""

from collections.abc import Callable
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.clock import Clock, Timer
from cometmq.net.dispatch import Family
from cometmq.settings import settings_of

TICK_S: Final = 0.05
# For so long after the loop came back, what is read counts as having waited for it.
AFTERMATH_S: Final = 0.01
STALL_GRACE_MS: Final = 800

# Name of a family -> attributes of BrokerConfig: bound on waiting requests, and the longest wait in ms or None.
FAMILIES: Final[dict[str, tuple[str, str | None]]] = {
    "send": ("send_waiting_max", "send_wait_ms_max"),
    "pull": ("pull_waiting_max", "pull_wait_ms_max"),
    "lite pull": ("lite_pull_waiting_max", "lite_pull_wait_ms_max"),
    "ack": ("ack_waiting_max", "ack_wait_ms_max"),
    "reply": ("reply_waiting_max", None),
    "query": ("query_waiting_max", None),
    "heartbeat": ("heartbeat_waiting_max", "heartbeat_wait_ms_max"),
    "client": ("client_waiting_max", None),
    "consumer": ("consumer_waiting_max", None),
    "balance": ("balance_waiting_max", None),
    "transaction": ("transaction_waiting_max", "transaction_wait_ms_max"),
    "admin": ("admin_waiting_max", "admin_wait_ms_max"),
}


class LoopWatch:
    """Knows how long the event loop was away from its sockets."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Clock = clock
        self._ticked_s: float = clock.monotonic()
        self._gap_s: float = 0.0
        self._timer: Timer | None = None
        self.longest_s: float = 0.0

    def start(self) -> None:
        self._ticked_s = self._clock.monotonic()
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now_s = self._clock.monotonic()
        self._gap_s = now_s - self._ticked_s - TICK_S
        self._ticked_s = now_s
        if self._gap_s > self.longest_s:
            self.longest_s = self._gap_s
        self._timer = self._clock.call_later(TICK_S, self._tick)

    @property
    def ticked_s(self) -> float:
        """When the loop last showed that it runs."""
        return self._ticked_s

    def waited_ms(self) -> int:
        """The longest that a request which is read now can have waited."""
        since_s = self._clock.monotonic() - self._ticked_s
        waited_s = since_s - TICK_S
        if since_s <= AFTERMATH_S and self._gap_s > waited_s:
            waited_s = self._gap_s
        return max(0, int(waited_s * 1000))


def make_families(
    config: Callable[[], BrokerConfig], watch: LoopWatch, refuse_sends: Callable[[], str | None]
) -> dict[str, Family]:
    """All families by name. `refuse_sends` says why no message can be taken at all just now."""
    families: dict[str, Family] = {}
    for name, (bound, wait) in FAMILIES.items():
        family = Family(name, getattr(config(), bound))
        if wait is not None:
            family.reject = _Patience(config, watch, family, wait, refuse_sends if name == "send" else None)
        families[name] = family
    return families


class _Patience:
    """Refuses what waited too long."""

    __slots__ = ("_config", "_watch", "_family", "_attribute", "_key", "_also")

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        watch: LoopWatch,
        family: Family,
        attribute: str,
        also: Callable[[], str | None] | None,
    ) -> None:
        self._config = config
        self._watch = watch
        self._family = family
        self._attribute = attribute
        self._key = next(key for key, (name, _) in settings_of(BrokerConfig).items() if name == attribute)
        self._also = also

    def __call__(self) -> str | None:
        if self._also is not None:
            refusal = self._also()
            if refusal is not None:
                return refusal
        waited_ms = self._watch.waited_ms()
        if waited_ms < STALL_GRACE_MS:
            return None
        config = self._config()
        limit_ms: int = getattr(config, self._attribute)
        if waited_ms < STALL_GRACE_MS + limit_ms or not config.fast_failure:
            return None
        return (
            f"[TIMEOUT_CLEAN_QUEUE]broker busy: the request waited up to {waited_ms} ms, the limit is {limit_ms} ms "
            f"({self._key}), {self._family.waiting} of its kind wait; nothing was done, try again"
        )
