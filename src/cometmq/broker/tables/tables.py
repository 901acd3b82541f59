"""All tables of the broker: made here, read from their files here, and saved when they change.

    in a file     topics, groups, offsets, property filters, request modes, progress of delays, counts of open halves
                  and of timers
    in memory     who is connected: consumers and producers
    of topics     `batch_topics`, asked about for every message; changed in place, because the store has it
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cometmq.broker.config import BrokerConfig
from cometmq.broker.tables import files as names
from cometmq.broker.tables.delay_progress import DelayProgress
from cometmq.broker.tables.files import TableFiles
from cometmq.broker.tables.groups import Groups
from cometmq.broker.tables.half_counts import HalfCounts
from cometmq.broker.tables.offsets import Offsets
from cometmq.broker.tables.pending_timers import PendingTimers
from cometmq.broker.tables.property_filters import PropertyFilters
from cometmq.broker.tables.request_modes import RequestModes
from cometmq.broker.tables.sessions import Consumers, Producers
from cometmq.broker.tables.topics import OnChange, Topics
from cometmq.clock import Clock
from cometmq.store.disk import Disk
from cometmq.store.options import StoreOptions
from cometmq.wire.bodies import TopicConfig


class Tables:
    """Whoever is told of changed topics by `subscribe` gets what `Topics` says about them, once they are loaded."""

    def __init__(self, config: Callable[[], BrokerConfig], options: StoreOptions, clock: Clock) -> None:
        light = options.lmq_enabled
        self.topics = Topics(config, clock, self._topics_changed, has_light=light)
        self.groups = Groups(config, clock, self._groups_changed, has_light=light)
        self.offsets = Offsets(config, clock, has_light=light)
        self.property_filters = PropertyFilters(config, clock)
        self.request_modes = RequestModes()
        self.delays = DelayProgress(clock)
        self.half_counts = HalfCounts()
        self.timer_counts = PendingTimers()
        self.consumers = Consumers(config, self.property_filters.retire)
        self.producers = Producers()
        self.batch_topics: set[str] = set()
        self.files = TableFiles(Path(options.path("config")), clock)
        self._options = options
        self._listeners: list[OnChange] = []
        self._is_loaded = False

    def subscribe(self, listener: OnChange) -> None:
        self._listeners.append(listener)

    def load(self, disk: Disk) -> None:
        """StoreError if a table has a file but no good copy of it."""
        load = self.files.load
        load(names.TOPICS, self.topics)
        self.topics.make_system_topics()
        self._note_batch_topics(self.topics.table.values())
        # Without its table the kind of a topic shows in where its queues are.
        kept = disk.list_dirs(self._options.path("batchconsumequeue"))
        self.batch_topics.update(it for it in kept if it not in self.topics.table)
        load(names.OFFSETS, self.offsets)
        if self._options.lmq_enabled:
            # RocketMQ then has another file for all offsets; without that, those from before count.
            load(names.OFFSETS, self.offsets, names.LIGHT_OFFSETS)
        load(names.GROUPS, self.groups)
        self.groups.make_built_in_groups()
        load(names.FILTERS, self.property_filters)
        load(names.REQUEST_MODES, self.request_modes)
        load(names.DELAYS, self.delays)
        load(names.HALF_COUNTS, self.half_counts)
        load(names.TIMER_COUNTS, self.timer_counts)
        self._is_loaded = True

    def _topics_changed(self, changed: Sequence[TopicConfig]) -> None:
        if not self._is_loaded:
            return
        if not changed:
            self.batch_topics.clear()  # perhaps one was deleted
        self._note_batch_topics(changed or self.topics.table.values())
        self.files.save_soon(names.TOPICS)
        for listener in self._listeners:
            listener(changed)

    def _note_batch_topics(self, topics: Iterable[TopicConfig]) -> None:
        for topic in topics:
            if topic.attributes.get("queue.type") == "BatchCQ":
                self.batch_topics.add(topic.topic_name)
            else:
                self.batch_topics.discard(topic.topic_name)

    def _groups_changed(self) -> None:
        if self._is_loaded:
            self.files.save_soon(names.GROUPS)
