"""What metrics read of the rest of a broker. Nothing here is changed by them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cometmq.broker.admission import LoopWatch
from cometmq.broker.config import BrokerConfig
from cometmq.broker.stats.ends import TimerTally
from cometmq.broker.stats.stats import Stats
from cometmq.broker.tables.tables import Tables
from cometmq.clock import Clock
from cometmq.health import Check
from cometmq.net.dispatch import Family
from cometmq.net.endpoint import Endpoint
from cometmq.store.store import Store
from cometmq.store.timers.files import TimerFiles
from cometmq.wire.bodies import HaStatus


@dataclass(slots=True, eq=False)
class TimerView:
    """Of the room that owns them; `files` is None while there are no timers."""

    files: Callable[[], TimerFiles | None]
    tally: TimerTally
    queue_behind: Callable[[], int]
    read_behind_ms: Callable[[], int]


@dataclass(slots=True, eq=False)
class MetricsContext:
    """`in_hand`: popped messages, and queues that have some. `checks`: the conditions of /readyz, as they are now."""

    config: Callable[[], BrokerConfig]
    clock: Clock
    tables: Tables
    store: Store
    stats: Stats
    watch: LoopWatch
    families: Mapping[str, Family]
    timers: TimerView
    in_hand: Callable[[], tuple[int, int]]
    parked_pulls: Callable[[], int]
    wrong_signatures: Callable[[], int]
    ha_status: Callable[[], HaStatus]
    endpoints: Sequence[Endpoint]
    checks: Callable[[], list[Check]] = list
