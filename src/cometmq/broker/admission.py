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

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.clock import Clock, Timer
from cometmq.net.dispatch import Family
from cometmq.settings import settings_of
from cometmq.store.log.commit_log import CommitLog

TICK_S: Final = 0.05
LAG_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
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
        # When the loop last showed that it runs.
        self.ticked_s: float = clock.monotonic()
        self.longest_s: float = 0.0
        # How many turns were late by up to each of LAG_BOUNDS_S, or more, and by how much all.
        self.lags: list[int] = [0] * (len(LAG_BOUNDS_S) + 1)
        self.lag_sum_s: float = 0.0
        self._clock: Clock = clock
        self._monotonic: Callable[[], float] = clock.monotonic
        self._gap_s: float = 0.0
        self._timer: Timer | None = None

    def start(self) -> None:
        self.ticked_s = self._monotonic()
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now_s = self._monotonic()
        self._gap_s = now_s - self.ticked_s - TICK_S
        self.ticked_s = now_s
        lag_s: float = self._gap_s if self._gap_s > 0 else 0.0
        self.lags[bisect_left(LAG_BOUNDS_S, lag_s)] += 1
        self.lag_sum_s += lag_s
        if self._gap_s > self.longest_s:
            self.longest_s = self._gap_s
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def waited_ms(self) -> int:
        """The longest that a request which is read now can have waited."""
        since_s = self._monotonic() - self.ticked_s
        waited_s = since_s - TICK_S
        if since_s <= AFTERMATH_S and self._gap_s > waited_s:
            waited_s = self._gap_s
        return int(waited_s * 1000) if waited_s > 0 else 0


def make_families(
    config: Callable[[], BrokerConfig],
    watch: LoopWatch,
    gate: "SendGate",
    on_evict: Callable[[], None] | None = None,
) -> dict[str, Family]:
    """All families by name. `on_evict`: see `Family`."""
    families: dict[str, Family] = {}
    for name, (bound, wait) in FAMILIES.items():
        family = Family(name, getattr(config(), bound), on_evict=on_evict)
        if wait is not None:
            patience = _Patience(config, watch, family, wait)
            family.reject_when(partial(gate.refusal, patience) if name == "send" else patience.refusal)
        families[name] = family
    return families


class _Patience:
    """Refuses what waited too long; `wait` is the attribute of BrokerConfig that says how long that is."""

    def __init__(
        self, config: Callable[[], BrokerConfig], watch: LoopWatch, family: Family, wait: str
    ) -> None:
        self._config: Callable[[], BrokerConfig] = config
        self._watch: LoopWatch = watch
        self._family: Family = family
        self._wait: str = wait
        self._key: str = next(key for key, (name, _) in settings_of(BrokerConfig).items() if name == wait)

    def refusal(self) -> str | None:
        waited_ms = self._watch.waited_ms()
        if waited_ms < STALL_GRACE_MS:
            return None
        config = self._config()
        limit_ms: int = getattr(config, self._wait)
        if waited_ms < STALL_GRACE_MS + limit_ms or not config.fast_failure:
            return None
        return (
            f"[TIMEOUT_CLEAN_QUEUE]broker busy: the request waited up to {waited_ms} ms, the limit is {limit_ms} ms "
            f"({self._key}), {self._family.waiting} of its kind wait; nothing was done, try again"
        )


class SendGate:
    """Refuses sends that the store could not take now."""

    def __init__(self, log: CommitLog, is_replica: bool) -> None:
        self.log: CommitLog = log
        self.is_replica: bool = is_replica
        # Whether sends are taken all the same, because they are held or forwarded to another broker.
        self.forwards: Callable[[], bool] | None = None

    def close(self, is_replica: bool) -> None:
        """A set has elected another master, or this broker."""
        self.is_replica = is_replica

    def refusal(self, patience: _Patience) -> str | None:
        log = self.log
        if log.busy:
            return f"the disk is slow: an append took over {log.busy_s * 1000:.0f} ms (osPageCacheBusyTimeOutMills)"
        if self.is_replica and (self.forwards is None or not self.forwards()):
            return "this broker is a replica: send to its master"
        return patience.refusal()
