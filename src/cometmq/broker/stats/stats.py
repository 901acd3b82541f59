"""What this broker has done, in numbers: who put and got how much, how far readers are behind, and how fast it goes.

    put, got, ...    count, in every request: some look-ups and additions, no text is made
    find             answers by RocketMQ's names and keys (request 315); windows are those of counters.py
    messages         in and out, now and at the last two midnights (request 28)
    pace             what the store does per second (request 28), see rates.py

    name                                   key                     counts
    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE         topic                   messages, bytes
    QUEUE_PUT_NUMS, QUEUE_PUT_SIZE         topic@queue             the same by queue; with `enableDetailStat`
    GROUP_GET_NUMS, GROUP_GET_SIZE         topic@group
    QUEUE_GET_NUMS, QUEUE_GET_SIZE         topic@queue@group       with `enableDetailStat`
    GROUP_GET_MISSED                       topic@group             pulls that found nothing; our own name
    SNDBCK_PUT_NUMS, DLQ_PUT_NUMS          topic@group             given back, given up
    BROKER_PUT_NUMS, BROKER_GET_NUMS       cluster                 and ..._WITHOUT_SYSTEM_TOPIC
    GROUP_GET_FALL_SIZE, ..._FALL_TIME     queue@topic@group       bytes, ms behind at the last read: no windows

Times of single puts and gets (..._LATENCY) are not counted. RocketMQ counts by queue only for delayed messages.

Counters are sampled every 10 s, a twentieth of them each half second, so that ten thousand topics do not stop the loop.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

from cometmq import names
from cometmq.broker.config import BrokerConfig
from cometmq.broker.stats.counters import BYTES, COUNT, Counter
from cometmq.broker.stats.ends import Ends
from cometmq.broker.stats.rates import Pace
from cometmq.broker.stats.sends import PLAIN_BYTES_MAX, RareSends
from cometmq.broker.tables.system_topics import system_topics
from cometmq.clock import Clock, Timer
from cometmq.store.results import GetResult
from cometmq.store.store import Store
from cometmq.wire.bodies import BrokerStatsData, BrokerStatsItem

TICK_S: Final = 0.5
SLICES: Final = 20


class TopicPuts(Counter):
    """What was put into a topic. What of it clients sent is the rest when `inner` is taken away, see sends.py."""

    __slots__ = ("inner", "is_system", "queues", "rare")

    def __init__(self, is_system: bool) -> None:
        super().__init__()
        self.is_system: bool = is_system
        self.queues: dict[int, Counter] = {}
        # What the broker itself has put here.
        self.inner: Counter = Counter()
        self.rare: RareSends = RareSends()

    def refresh(self) -> None:
        self.add_up(self.queues.values())

    def counters(self) -> list[Counter]:
        return [self, *self.queues.values()]


class QueueGets(Counter):
    """What a group got of one queue, and how far from the end it was at its last read."""

    __slots__ = ("behind_bytes", "last_offset", "read_at_ms")

    def __init__(self) -> None:
        super().__init__()
        self.behind_bytes: int = 0
        self.last_offset: int = -1
        self.read_at_ms: int = 0


class GroupGets(Counter):
    """What a group did with a topic."""

    __slots__ = ("given_up", "is_popped", "is_system", "missed", "queues", "sent_back")

    def __init__(self, is_system: bool) -> None:
        super().__init__()
        self.is_system: bool = is_system
        # Whether any of it was popped.
        self.is_popped: bool = False
        self.queues: dict[int, QueueGets] = {}
        self.missed: Counter = Counter()
        self.sent_back: Counter = Counter()
        self.given_up: Counter = Counter()

    def refresh(self) -> None:
        self.add_up(self.queues.values())

    def counters(self) -> list[Counter]:
        return [self, self.missed, self.sent_back, self.given_up, *self.queues.values()]


class Total(Counter):
    """Everything that was put, or got. What belonged to deleted topics stays counted."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[], tuple[int, int]]) -> None:
        super().__init__()
        self._compute: Callable[[], tuple[int, int]] = compute

    def refresh(self) -> None:
        self.times, self.count = self._compute()


class Stats:
    def __init__(self, config: Callable[[], BrokerConfig], clock: Clock) -> None:
        self.started_ms: int = clock.now_ms()
        self._started_s: float = clock.monotonic()
        self.pace: Pace = Pace(clock)
        # Ends of transactions, ends of timers, changes of tables: what is rare.
        self.ends: Ends = Ends()
        self._config = config
        self._clock = clock
        self._now_ms: Callable[[], int] = clock.now_ms
        self._own_topics: frozenset[str] = frozenset(system_topics(config()))
        self._puts: dict[str, TopicPuts] = {}
        self._gets: dict[str, dict[str, GroupGets]] = {}
        # (times, count) of what was dropped: all puts, all gets, and both without system topics.
        self._dropped: dict[tuple[bool, bool], tuple[int, int]] = {}
        self._totals: dict[str, Total] = {
            "BROKER_PUT_NUMS": Total(lambda: self._sum(True, True)),
            "BROKER_GET_NUMS": Total(lambda: self._sum(False, True)),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": Total(lambda: self._sum(True, False)),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": Total(lambda: self._sum(False, False)),
        }
        self._sampled: list[Counter] = list(self._totals.values())
        self._ticks: int = 0
        self._timer: Timer | None = None
        self._store: Store | None = None
        self._day: tuple[int, ...] = _day_of(self.started_ms)
        self._mornings: list[tuple[int, int]] = [(0, 0), (0, 0)]

    def start(self, store: Store) -> None:
        self._store = store
        self.pace.start(store)
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Counting

    def sent(self, topic: str, queue_id: int, count: int, size: int, properties: str) -> None:
        """A client's messages were stored. What is not the usual single small message is noted besides."""
        puts = self._put(topic, queue_id, count, size)
        if size > PLAIN_BYTES_MAX or count != 1 or "__SHARDINGKEY\x01" in properties:
            puts.rare.note(count, size, "__SHARDINGKEY\x01" in properties)

    def put(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """The broker itself has stored messages."""
        inner = self._put(topic, queue_id, count, size).inner
        inner.times += 1
        inner.count += count
        inner.bytes += size

    def put_back(self, topic: str, queue_id: int, size: int) -> None:
        """A message that a delay level held was put into its own topic: it counts like a send of a client."""
        self._put(topic, queue_id, 1, size).rare.note_delayed(size)

    def _put(self, topic: str, queue_id: int, count: int, size: int) -> TopicPuts:
        puts = self._puts.get(topic)
        if puts is None:
            puts = self._add_topic(topic)
        queue = puts.queues.get(queue_id)
        if queue is None:
            queue = puts.queues[queue_id] = Counter()
            self._sampled.append(queue)
        queue.times += 1
        queue.count += count
        queue.bytes += size
        return puts

    def committed(self, topic: str, born_ms: int) -> None:
        """A client has committed a transaction."""
        self.ends.committed(topic, max(0, self._now_ms() - born_ms) // 1000)

    def got(self, group: str, topic: str, queue_id: int, result: GetResult) -> None:
        """A pull found messages."""
        gets = self._group(group, topic)
        queue = gets.queues.get(queue_id)
        if queue is None:
            queue = gets.queues[queue_id] = QueueGets()
            self._sampled.append(queue)
        queue.times += 1
        queue.count += result.count
        queue.bytes += result.bytes
        queue.behind_bytes = result.behind_bytes
        queue.last_offset = result.queue_offsets[-1]
        queue.read_at_ms = self._now_ms()

    def popped(self, group: str, topic: str, queue_id: int, result: GetResult) -> None:
        self.got(group, topic, queue_id, result)
        self._gets[topic][group].is_popped = True

    def missed(self, group: str, topic: str) -> None:
        """A pull found nothing."""
        _count_one(self._group(group, topic).missed)

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer gave a message back; `topic` is where it came from."""
        _count_one(self._group(group, topic).sent_back)

    def dead_letter(self, group: str, topic: str) -> None:
        """A message was given up."""
        _count_one(self._group(group, topic).given_up)

    def _group(self, group: str, topic: str) -> GroupGets:
        groups = self._gets.get(topic)
        if groups is None:
            groups = self._gets[topic] = {}
        gets = groups.get(group)
        if gets is None:
            gets = groups[group] = GroupGets(self._is_system(topic))
            self._sampled += gets.counters()
        return gets

    def _add_topic(self, topic: str) -> TopicPuts:
        puts = self._puts[sys.intern(topic)] = TopicPuts(self._is_system(topic))
        self._sampled.append(puts)
        return puts

    def _is_system(self, topic: str) -> bool:
        return topic in self._own_topics or names.is_system_topic(topic)

    # Forgetting

    def drop_topic(self, topic: str) -> None:
        """The topic is deleted; the broker's totals keep what it had."""
        puts = self._puts.pop(topic, None)
        if puts is not None:
            self._keep_total(puts, True, puts.is_system)
        for gets in self._gets.pop(topic, {}).values():
            self._keep_total(gets, False, gets.is_system)
        self.ends.drop_topic(topic)
        self._list_sampled()

    def drop_group(self, group: str) -> None:
        for groups in self._gets.values():
            gets = groups.pop(group, None)
            if gets is not None:
                self._keep_total(gets, False, gets.is_system)
        self._list_sampled()

    def _keep_total(self, counter: Counter, is_put: bool, is_system: bool) -> None:
        counter.refresh()
        for with_system in (True, False):
            if with_system or not is_system:
                times, count = self._dropped.get((is_put, with_system), (0, 0))
                self._dropped[is_put, with_system] = (times + counter.times, count + counter.count)

    def _list_sampled(self) -> None:
        listed: list[Counter] = list(self._totals.values())
        for puts in self._puts.values():
            listed += puts.counters()
        for groups in self._gets.values():
            for gets in groups.values():
                listed += gets.counters()
        self._sampled = listed

    # By the clock

    def _tick(self) -> None:
        self._timer = self._clock.call_later(TICK_S, self._tick)
        self._ticks += 1
        samples, part = divmod(self._ticks + SLICES - 1, SLICES)
        now_s = self._clock.monotonic()
        for counter in self._sampled[part::SLICES]:
            counter.sample(now_s, samples)
        if part == SLICES - 1:
            self.pace.sample()
            self._note_day()

    def _note_day(self) -> None:
        day = _day_of(self._now_ms())
        if day != self._day:
            self._day = day
            self._mornings = [self._mornings[1], self.messages()]

    # Asking

    def find(self, name: str, key: str) -> BrokerStatsData | None:
        """By RocketMQ's name and key; None if nothing was counted there."""
        if name in self._totals:
            return self._totals[name].summary(COUNT) if key == self._config().cluster_name else None
        if name in _MOMENTS:
            queue_text, _, rest = key.partition("@")
            return self._moment(name, *_split(rest), queue_text)
        kind = _NAMES.get(name)
        if kind is None:
            return None
        what, figure = kind
        counter = self._counter(what, key)
        return None if counter is None or counter.times == 0 else counter.summary(figure)

    def _counter(self, what: str, key: str) -> Counter | None:
        if what == "put":
            return self._refreshed(self._puts.get(key))
        topic, rest = _split(key)
        if what == "queue put":
            puts = self._puts.get(topic)
            return puts.queues.get(_number(rest)) if puts is not None and self._config().detail_stats else None
        if what == "queue get":
            queue_text, group = _split(rest)
            gets = self._gets.get(topic, {}).get(group)
            return gets.queues.get(_number(queue_text)) if gets is not None and self._config().detail_stats else None
        gets = self._gets.get(topic, {}).get(rest)
        if gets is None:
            return None
        return {"missed": gets.missed, "back": gets.sent_back, "dead": gets.given_up}.get(what, self._refreshed(gets))

    @staticmethod
    def _refreshed(counter: Counter | None) -> Counter | None:
        if counter is not None:
            counter.refresh()
        return counter

    def _moment(self, name: str, topic: str, group: str, queue_text: str) -> BrokerStatsData | None:
        gets = self._gets.get(topic, {}).get(group)
        queue = gets.queues.get(_number(queue_text)) if gets is not None else None
        if queue is None:
            return None
        value = queue.behind_bytes
        if name == "GROUP_GET_FALL_TIME":
            value = self._behind_ms(topic, _number(queue_text), queue)
        item = BrokerStatsItem(sum=value)
        return BrokerStatsData(stats_day=item, stats_hour=item, stats_minute=item)

    def _behind_ms(self, topic: str, queue_id: int, queue: QueueGets) -> int:
        """How old the last message of the last read was then; found out only now, to keep it out of every read."""
        assert self._store is not None, "call start first"
        stored_ms = self._store.lookup.queue_store_time(topic, queue_id, queue.last_offset)
        return max(0, queue.read_at_ms - stored_ms) if stored_ms >= 0 else 0

    def puts(self) -> dict[str, TopicPuts]:
        """By topic, for reading; `refresh` what is looked at."""
        return self._puts

    def gets(self) -> dict[str, dict[str, GroupGets]]:
        """By topic and group, for reading; `refresh` what is looked at."""
        return self._gets

    def put_rate(self, topic: str) -> float:
        """Messages per second in the last minute."""
        puts = self._puts.get(topic)
        return 0.0 if puts is None else puts.rate()

    def get_rate(self, group: str, topic: str) -> float:
        gets = self._gets.get(topic, {}).get(group)
        return 0.0 if gets is None else gets.rate()

    def bytes_behind(self) -> dict[str, int]:
        """By group: how far behind the end of the log the slowest of its reads was."""
        behind: dict[str, int] = {}
        for groups in self._gets.values():
            for group, gets in groups.items():
                for queue in gets.queues.values():
                    behind[group] = max(behind.get(group, 0), queue.behind_bytes)
        return behind

    def messages(self) -> tuple[int, int]:
        """All that were put and all that were got since the start, system topics not counted."""
        return self._sum(True, False)[1], self._sum(False, False)[1]

    def mornings(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """What `messages` said at midnight before yesterday began, and at midnight before today began."""
        return self._mornings[0], self._mornings[1]

    def uptime_s(self) -> int:
        return int(self._clock.monotonic() - self._started_s)

    def _sum(self, is_put: bool, with_system: bool) -> tuple[int, int]:
        times, count = self._dropped.get((is_put, with_system), (0, 0))
        sums: list[TopicPuts] | list[GroupGets] = (
            list(self._puts.values())
            if is_put
            else [gets for groups in self._gets.values() for gets in groups.values()]
        )
        for one in sums:
            if with_system or not one.is_system:
                one.refresh()
                times += one.times
                count += one.count
        return times, count


_NAMES: Final = {
    "TOPIC_PUT_NUMS": ("put", COUNT),
    "TOPIC_PUT_SIZE": ("put", BYTES),
    "QUEUE_PUT_NUMS": ("queue put", COUNT),
    "QUEUE_PUT_SIZE": ("queue put", BYTES),
    "GROUP_GET_NUMS": ("get", COUNT),
    "GROUP_GET_SIZE": ("get", BYTES),
    "QUEUE_GET_NUMS": ("queue get", COUNT),
    "QUEUE_GET_SIZE": ("queue get", BYTES),
    "GROUP_GET_MISSED": ("missed", COUNT),
    "SNDBCK_PUT_NUMS": ("back", COUNT),
    "DLQ_PUT_NUMS": ("dead", COUNT),
}
_MOMENTS: Final = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")


def _count_one(counter: Counter) -> None:
    counter.times += 1
    counter.count += 1


def _split(key: str) -> tuple[str, str]:
    """At the first @: no topic and no queue has one, a group may."""
    first, _, rest = key.partition("@")
    return first, rest


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1


def _day_of(now_ms: int) -> tuple[int, ...]:
    return tuple(time.localtime(now_ms // 1000)[:3])
