"""The room of what arrives later, by delay level or by timer: made of what it needs, and asked for what it serves.

Everything that is put on behalf of a client passes `put`, which keeps here what is not due yet.
"""

from cometmq.broker.cold_pages import ColdPages
from cometmq.broker.delayed import requests
from cometmq.broker.delayed.context import TimerContext
from cometmq.broker.delayed.levels import Delays, ScheduleStore
from cometmq.broker.delayed.rounds import DelayRounds, TimerRounds
from cometmq.broker.delayed.timer_messages import recall_handle
from cometmq.broker.delayed.timers import Timers
from cometmq.broker.entry import bound
from cometmq.broker.shared import Shared
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult


class DelayedRoom:
    """`elsewhere`: on a replica, where it puts what is due while it acts for its master."""

    def __init__(self, shared: Shared, pages: ColdPages, elsewhere: ScheduleStore | None) -> None:
        tables, store, config = shared.tables, shared.store, shared.config
        self.recall_handle = recall_handle
        self.delays = Delays(store.options.delay_levels, shared.clock, tables.delays, shared.delivered_late)
        self.timers = Timers(shared.clock, tables.timer_counts, shared.delivered, self._wake_timers)
        self.delay_rounds = DelayRounds(
            config, shared.clock, self.delays, store, tables.files, pages, shared.soon, elsewhere
        )
        self.timer_rounds = TimerRounds(
            config, shared.clock, self.timers, store, shared.background, tables, shared.soon, elsewhere
        )
        self._store = store
        context = TimerContext(
            config, shared.clock, shared.born, tables.topics, store, shared.stats, self.timers, self.put
        )
        self.handlers = bound(requests.HANDLERS, context)

    def put(self, message: AppendRequest) -> PutResult:
        """Into the log; a delayed message goes to the schedule topic first, a timer message to the timer topic."""
        if "DELAY\x01" in message.properties and self.delays.divert(message):
            return self._store.put(message)
        if "TIMER_DEL" in message.properties:
            refusal = self.timers.divert(message)
            if refusal is not None:
                return refusal
        return self._store.put(message)

    def _wake_timers(self) -> None:
        self.timer_rounds.wake()
