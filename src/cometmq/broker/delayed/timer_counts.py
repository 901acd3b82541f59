"""Timer messages, counted: how many pass in a second, and once a day how many there really are.

Units of the timer log only know the hash of their topic, which is enough where no two topics share one.
"""

from collections import Counter
from typing import Final

from cometmq.broker.tables.pending_timers import PendingTimers
from cometmq.clock import Clock
from cometmq.store.timers.files import TimerFiles
from cometmq.wire.hashing import java_string_hash

RATE_S: Final = 3.0


class Recount:
    """Counts what waits in the timer log now, a part at a time; what changes meanwhile is counted as usual."""

    def __init__(self, counts: PendingTimers, files: TimerFiles) -> None:
        self._counts = counts
        self._files = files
        self._from_ms = files.read_ms
        self._position = files.first_pending()
        self._end = files.log.end
        self._before = {topic: entry.count for topic, entry in counts.table.items()}
        hashes = Counter(map(java_string_hash, self._before))
        self._topics = {java_string_hash(topic): topic for topic in self._before}
        self._topics = {hash_: topic for hash_, topic in self._topics.items() if hashes[hash_] == 1}
        self._found: Counter[str] = Counter()

    def step(self, units_max: int, now_ms: int) -> bool:
        """True: there is more to count. At the end the table is set right."""
        units, self._position = self._files.log.read_units(self._position, self._end, units_max)
        for unit in units:
            topic = self._topics.get(unit.topic_hash)
            if topic is not None and unit.time_ms >= self._from_ms:
                self._found[topic] += -1 if unit.is_delete else 1
        if units:
            return True
        for topic in self._topics.values():
            difference = self._found[topic] - self._before[topic]
            if difference and topic in self._counts.table:
                self._counts.add(topic, difference, now_ms)
        return False


class Rate:
    """Events per second, of the last few seconds that were complete."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = clock.monotonic()
        self._count = 0
        self._last = 0.0

    def add(self, count: int) -> None:
        self.value()
        self._count += count

    def value(self) -> float:
        elapsed_s = self._clock.monotonic() - self._since_s
        if elapsed_s >= RATE_S:
            self._last = self._count / elapsed_s
            self._count = 0
            self._since_s += elapsed_s
        return self._last
