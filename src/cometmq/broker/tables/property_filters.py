"""Property filters that groups have registered by heartbeat, and the file that keeps them: consumerFilter.json.

    heartbeat           a new filter is compiled; the same version revives a dead one; an older version is ignored;
                        a newer one with another text is compiled, and takes the place of the old one even if it fails
    topic left out,     the filter is dead: it is still found, because retried messages may want it, but a day later
    last member left    (filterDataCleanTimeSpan) it is forgotten
    start               what the file has counts as dead until a heartbeat revives it

Filters with one version and different texts are a mistake of the group's members: the first one stays.

What the file has is compiled when it is first asked for, so that a start does not pay for the grammar. RocketMQ's
shape of it:

    {"filterDataByTopic":{"T":{"groupFilterData":{"g":{"expression":"a > 5",...}},"topic":"T"}}}
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cometmq.broker import sql
from cometmq.broker.config import BrokerConfig
from cometmq.broker.sql import SqlError
from cometmq.clock import Clock
from cometmq.wire.bodies import BloomFilterData, FilterData, FilterTable, SubscriptionData, TopicFilters
from cometmq.wire.fastjson.writer import dumps_pretty
from cometmq.wire.record import bloom

logger = logging.getLogger(__name__)

# A filter in the file counts as dead since then, if it is not younger.
DEAD_AT_START_MS: Final = 30_000
# Dead ones included; of these the one that died first makes room.
FILTERS_MAX: Final = 10_000
# A compiled expression takes fifty times its text.
FILTER_CHARS_MAX: Final = 1 << 20


class PropertyFilter:
    """The filter of one group for one topic. `compiled` is None until it is needed; `dead_ms` is 0 while it is used."""

    __slots__ = ("group", "topic", "expression", "version", "born_ms", "dead_ms", "compiled", "bits")

    def __init__(
        self, group: str, topic: str, expression: str, version: int, born_ms: int, compiled: sql.Filter | None
    ) -> None:
        self.group: str = group
        self.topic: str = topic
        self.expression: str = expression
        self.version: int = version
        self.born_ms: int = born_ms
        self.dead_ms: int = 0
        self.compiled: sql.Filter | None = compiled
        self.bits: list[int] = bloom.bit_positions(group, topic)


class PropertyFilters:
    """`changes` goes up with every change."""

    def __init__(self, config: Callable[[], BrokerConfig], clock: Clock) -> None:
        self.changes: int = 0
        self._config = config
        self._clock = clock
        self._table: dict[str, dict[str, PropertyFilter]] = {}
        # How many there are; for reading.
        self.count: int = 0
        self._chars: int = 0

    def find(self, group: str, topic: str) -> PropertyFilter | None:
        """With `compiled`; None if there is none, or none that can be compiled."""
        found = self._table.get(group, {}).get(topic)
        if found is None or found.compiled is not None:
            return found
        try:
            found.compiled = sql.compile_filter(found.expression)
        except SqlError as error:
            logger.warning("drop filter group=%s topic=%s error=%s", group, topic, error)
            self._remove(found)
            return None
        return found

    def register(self, group: str, wanted: Iterable[SubscriptionData]) -> None:
        """All that a heartbeat says of a group. Nothing while property filters are switched off."""
        if not self._config().property_filter_enabled:
            return
        topics: set[str] = set()
        for data in wanted:
            if data.topic is not None:
                topics.add(data.topic)
                self.put(group, data)
        now_ms = self._clock.now_ms()
        for known in self._table.get(group, {}).values():
            if known.topic not in topics:
                self._bury(known, now_ms)

    def put(self, group: str, data: SubscriptionData) -> None:
        """One subscription of a group, if it is by properties."""
        topic, expression, version = data.topic, data.sub_string, data.sub_version
        if data.expression_type != sql.TYPE or not topic or not expression:
            return
        old = self._table.get(group, {}).get(topic)
        if old is not None and version < old.version:
            return
        if old is not None and (version == old.version or expression == old.expression):
            if old.dead_ms or old.version != version:
                old.dead_ms, old.version = 0, version
                self.changes += 1
            return
        if old is not None:
            self._remove(old)
        try:
            compiled = sql.compile_filter(expression)
        except SqlError as error:
            logger.warning("refuse filter group=%s topic=%s error=%s", group, topic, error)
            return
        if self._make_room():
            self._add(PropertyFilter(group, topic, expression, version, self._clock.now_ms(), compiled))
            logger.info("add filter group=%s topic=%s version=%d", group, topic, version)

    def retire(self, group: str) -> None:
        """The group has no member any more."""
        now_ms = self._clock.now_ms()
        for known in self._table.get(group, {}).values():
            self._bury(known, now_ms)

    def forget(self) -> None:
        """Drop what has been dead for long."""
        limit_ms = self._clock.now_ms() - self._config().filter_kept_ms
        for known in [known for known in self._all() if known.dead_ms and known.dead_ms <= limit_ms]:
            self._remove(known)

    def _bury(self, known: PropertyFilter, now_ms: int) -> None:
        if not known.dead_ms:
            known.dead_ms = now_ms
            self.changes += 1

    def _make_room(self) -> bool:
        if self.count < FILTERS_MAX and self._chars < FILTER_CHARS_MAX:
            return True
        dead = min((known for known in self._all() if known.dead_ms), key=lambda known: known.dead_ms, default=None)
        if dead is None:
            logger.warning(
                "refuse filter reason=%d filters of %d characters are in use, the limits are %d and %d",
                self.count, self._chars, FILTERS_MAX, FILTER_CHARS_MAX,
            )  # fmt: skip
            return False
        self._remove(dead)
        return True

    def _add(self, new: PropertyFilter) -> None:
        self._table.setdefault(new.group, {})[new.topic] = new
        self.count += 1
        self._chars += len(new.expression)
        self.changes += 1

    def _remove(self, known: PropertyFilter) -> None:
        topics = self._table[known.group]
        del topics[known.topic]
        if not topics:
            del self._table[known.group]
        self.count -= 1
        self._chars -= len(known.expression)
        self.changes += 1

    def _all(self) -> Iterator[PropertyFilter]:
        for topics in self._table.values():
            yield from topics.values()

    def show(self, group: str, topic: str) -> str:
        """For the admin tool, which prints the text as it comes."""
        known = self._table.get(group, {}).get(topic)
        return "null" if known is None else dumps_pretty(_data_of(known)).decode()

    # The file

    def restore(self, content: bytes) -> None:
        table = FilterTable.decode(content)
        dead_ms = self._clock.now_ms() - DEAD_AT_START_MS
        self._table, self.count, self._chars = {}, 0, 0
        for topic, filters in table.filter_data_by_topic.items():
            for group, data in filters.group_filter_data.items():
                if data.expression_type != sql.TYPE or not data.expression:
                    continue
                read = PropertyFilter(group, topic, data.expression, data.client_version, data.born_time, None)
                read.dead_ms = data.dead_time or max(data.born_time, dead_ms)
                self._add(read)

    def snapshot(self) -> Callable[[], bytes]:
        by_topic: dict[str, TopicFilters] = {}
        for known in self._all():
            filters = by_topic.get(known.topic)
            if filters is None:
                filters = by_topic[known.topic] = TopicFilters(topic=known.topic)
            filters.group_filter_data[known.group] = _data_of(known)
        return lambda: dumps_pretty(FilterTable(filter_data_by_topic=by_topic))


def _data_of(known: PropertyFilter) -> FilterData:
    return FilterData(
        bloom_filter_data=BloomFilterData(bloom.BITS, known.bits),
        born_time=known.born_ms,
        client_version=known.version,
        consumer_group=known.group,
        dead=known.dead_ms != 0,
        dead_time=known.dead_ms,
        expression=known.expression,
        expression_type=sql.TYPE,
        topic=known.topic,
    )
