"""Timers and a real store without a broker around them: a manual clock, a disk in memory, no threads."""

from typing import Any

from cometmq.broker.delayed.timers import Timers
from cometmq.broker.tables.pending_timers import PendingTimers
from cometmq.clock import ManualClock
from cometmq.names import TIMER_TOPIC
from cometmq.store.disk import Disk, File
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.results import PutResult, PutStatus
from cometmq.store.store import Store
from cometmq.store.timers.files import TimerFiles
from cometmq.store.workers import Act, InlineWorker
from cometmq.wire.record import properties
from cometmq.wire.record.message import StoredMessage
from tests.support.whole_store import open_store, read_queue

# A wheel of 1,940 seconds ahead; a real one has 38 MB.
SLOTS = 4000
START_MS = 1_700_000_000_000
TOPIC = "TopicA"


class SteppingClock(ManualClock):
    """One whose wall time can be set back and forth."""

    step_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms


class Bench:
    """`timers` on `store`. `loads` are ranges that were read in a thread; `arrived` is (ms since START_MS, body)."""

    def __init__(self, disk: Disk | None = None, clock: SteppingClock | None = None, **options: Any) -> None:
        self.clock = clock or SteppingClock(START_MS)
        self.disk = disk if disk is not None else FakeDisk(now_ms=self.clock.now_ms)
        self.slots = options.pop("slots", SLOTS)
        self.options = {"timer_log_file_bytes": 1000, **options}
        self.store: Store = open_store(self.disk, self.clock, **self.options)
        self.stats: list[tuple[str, int]] = []
        self.loads: list[tuple[str, int, int]] = []
        self.wakes = 0
        self.timers = Timers(self.clock, PendingTimers(), self._delivered, self._wake)
        self.files = TimerFiles(self.disk, self.store.options, self.slots)
        self.timers.open(self.store, self.files, InlineWorker(), self._load)
        self.seen = self.store.queue_bounds(TOPIC, 0)[1]
        self.arrived: list[tuple[int, bytes]] = []

    @property
    def fake(self) -> FakeDisk:
        assert isinstance(self.disk, FakeDisk)
        return self.disk

    def _delivered(self, topic: str, queue_id: int, record_bytes: int) -> None:
        assert record_bytes > 0
        self.stats.append((topic, queue_id))

    def _wake(self) -> None:
        self.wakes += 1

    def _load(self, ranges: list[tuple[File, int, int]], then: Act) -> None:
        self.loads += [(file.path, position, count) for file, position, count in ranges]
        then()

    # Messages

    def put(self, body: bytes = b"x", /, topic: str = TOPIC, sys_flag: int = 0, **given: Any) -> PutResult:
        """`given` are properties; they are sent as a client sends them."""
        text = properties.encode({name: str(value) for name, value in given.items()}).decode()
        request = AppendRequest(topic, 0, body, text, sys_flag=sys_flag)
        return self.timers.divert(request) or self.store.put(request)

    def keep(self, body: bytes, delay_ms: int, **given: Any) -> PutResult:
        """A message that must be taken."""
        result = self.put(body, TIMER_DELAY_MS=delay_ms, **given)
        assert result.status == PutStatus.OK, result
        return result

    def kept(self) -> list[StoredMessage]:
        return read_queue(self.store, TIMER_TOPIC)

    def delivered(self) -> list[StoredMessage]:
        return read_queue(self.store, TOPIC)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.delivered()]

    # Time

    def turns(self) -> None:
        """One round: as many turns as the work takes."""
        for _ in range(100_000):
            if not self.timers.turn():
                return
        raise AssertionError("the turns never end")

    def run(self, seconds: float, round_s: float = 0.1) -> list[tuple[int, bytes]]:
        """Rounds, saves every second; when what arrived, in ms since START_MS."""
        new: list[tuple[int, bytes]] = []
        for number in range(1, round(seconds / round_s) + 1):
            self.clock.advance(round_s)
            self.turns()
            if number % max(1, round(1 / round_s)) == 0:
                self.save()
            while self.seen < self.store.queue_bounds(TOPIC, 0)[1]:
                (entry,) = self.store.queue_entries(TOPIC, 0, self.seen, 1)
                message = self.store.message_at(entry[0])
                assert message is not None
                new.append((self.clock.now_ms() - START_MS, message.body))
                self.seen += 1
        self.arrived += new
        return new

    def save(self) -> None:
        self.timers.save()
        self.store.flush_now()
        self.timers.save()

    # Ends

    def close(self) -> None:
        self.timers.finish()
        self.timers.close()
        self.store.close()

    def reopened(self, disk: Disk | None = None) -> "Bench":
        """The same directory again, as it is or as `disk` has it."""
        return Bench(disk or self.disk, self.clock, slots=self.slots, **self.options)

    def restarted(self) -> "Bench":
        self.close()
        return self.reopened()


def props(message: StoredMessage) -> dict[str, str]:
    return properties.decode(message.properties)
