"""A master and its replicas on fake disks, with a bad network between them, all of it in one thread and by one seed.

Cores are the real ones (Master, Link, Replica), stores are real stores. What is played here is what their shells do:
carry bytes, look at the clock, flush. Nothing waits for real time.

    connection   bytes arrive in order, late, in any pieces; or no more from some moment on, and then either end may
                 notice at once, or only by silence
    node         runs, is down, comes back with what a kill or a power cut left of its disk
"""

import random
from collections import deque
from functools import partial
from typing import Any

from cometmq.clock import ManualClock
from cometmq.errors import StoreError, WireError
from cometmq.store.fake_disk import FakeDisk
from cometmq.store.log.append import AppendRequest
from cometmq.store.log.flush import FlushWork
from cometmq.store.replication.links import Link
from cometmq.store.replication.master import Master
from cometmq.store.replication.replica import LONG_FRAME_BYTES, Diverged, Replica
from cometmq.store.results import PutStatus
from cometmq.store.store import Store
from tests.support.logs import records
from tests.support.whole_store import open_store

SEGMENT_BYTES = 4096
TINY_FILES: dict[str, Any] = {
    "segment_bytes": SEGMENT_BYTES,
    "queue_file_bytes": 2000,
    "index_enabled": False,
    "ha_frame_bytes": 300,
}
RETRY_S = 5.0


class Pipe:
    """One direction of a connection."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._last_s = 0.0
        self.is_broken = False

    def write(self, data: bytes, now_s: float) -> None:
        if not self.is_broken:
            late_s = self._chance.choice((0.001, 0.01, 0.01, 0.3, 2.0)) if self._chance.random() < 0.1 else 0.0
            self._last_s = max(self._last_s, now_s + late_s)
            self._waiting.append((self._last_s, data))

    def read(self, now_s: float) -> bytes:
        """What has arrived by now, or a piece of it."""
        data = b""
        while self._waiting and self._waiting[0][0] <= now_s:
            data += self._waiting.popleft()[1]
        if len(data) > 1 and self._chance.random() < 0.3:
            cut = self._chance.randrange(1, len(data))
            self._waiting.appendleft((now_s, data[cut:]))
            data = data[:cut]
        return data


class Connection:
    """Between the master and one replica. Each end is None when it knows that the connection is over."""

    def __init__(self, chance: random.Random, link: Link, replica: Replica) -> None:
        self.link: Link | None = link
        self.replica: Replica | None = replica
        self.to_master = Pipe(chance)
        self.to_replica = Pipe(chance)


class Node:
    """One broker: its disk, and its store while it runs."""

    def __init__(self, clock: ManualClock, **options: Any) -> None:
        self.clock = clock
        self.options = {**TINY_FILES, **options}
        self.disk = FakeDisk(now_ms=clock.now_ms)
        self.store: Store | None = None
        self.flushing: FlushWork | None = None
        self.start()

    def start(self) -> Store:
        self.store = open_store(self.disk, self.clock, **self.options)
        return self.store

    def down(self, image: FakeDisk) -> None:
        self.store = None
        self.flushing = None
        self.disk = image

    def begin_flush(self) -> None:
        """The sync runs now; its report comes later, as from a thread."""
        if self.store is not None and self.flushing is None:
            self.flushing = self.store.flusher.begin()
            if self.flushing is not None:
                self.flushing.run()

    def finish_flush(self) -> None:
        if self.store is not None and self.flushing is not None:
            self.store.flusher.finish(self.flushing)
        self.flushing = None


def feed(replica: Replica, data: memoryview, now_s: float) -> bool:
    """What came from a socket, put where the replica wants it; True if its log grew."""
    grew = False
    while len(data):
        landing = replica.landing()
        if landing is None:
            return replica.received(data, now_s) or grew
        count = min(len(landing), len(data))
        landing[:count] = data[:count]
        grew = replica.landed(count, now_s) or grew
        data = data[count:]
    return grew


def bodies(store: Store) -> set[bytes]:
    return {message.body for message in records(store.log)}


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.copies = self.chance.choice((2, 2, 3))
        self.sync_flush = self.chance.random() < 0.5
        self.is_calm = self.chance.random() < 0.5
        flush = {"flush_disk_type": "SYNC_FLUSH"} if self.sync_flush else {}
        self.head = Node(self.clock, broker_role="SYNC_MASTER", in_sync_replicas=self.copies, **flush)
        self.replicas = [Node(self.clock, broker_role="SLAVE") for _ in range(2)]
        self.retry_s = [0.0, 0.0]
        self.connections: list[tuple[int, Connection]] = []
        self.acked: set[bytes] = set()
        self.sent = 0
        self.diverged = 0
        self.heir: int | None = None
        self._begin_master()

    def _begin_master(self) -> None:
        store = self.head.store
        assert store is not None
        self.master = Master(store.log, store.options)
        store.promise_copies(lambda end, callback: self.master.wait(end, callback, self.clock.monotonic()))

    # One step

    def run(self, steps: int) -> None:
        for _ in range(steps):
            act = self.chance.choices(
                (self._put, self._flush, self._cut, self._kill_replica, self._kill_master, self._wait),
                (45, 45, 2, 0.5, 0.3, 3) if self.is_calm else (45, 40, 3, 1.5, 1, 9.5),
            )[0]
            act()
            self._carry()
            self.clock.advance(self.chance.choice((0.0, 0.001, 0.01, 0.1)))

    def _put(self) -> None:
        store = self.head.store
        if store is None:
            return
        for _ in range(self.chance.randint(1, 3)):
            self.sent += 1
            body = b"%d:" % self.sent + bytes(self.chance.randrange(300))
            request = AppendRequest("T", self.chance.randrange(2), body)
            result = store.put(request)
            assert result.status == PutStatus.OK, result
            store.put_waiting(request, result, partial(self._told, body))

    def _told(self, body: bytes, status: int) -> None:
        if status == PutStatus.OK:
            self.acked.add(body)

    def _flush(self) -> None:
        for node in (self.head, *self.replicas):
            for _ in range(self.chance.choice((0, 1, 2))):
                node.finish_flush()
                node.begin_flush()

    def _wait(self) -> None:
        self.clock.advance(self.chance.choices((0.05, 0.3, 1.0, 5.0, 21.0), (40, 30, 20, 3, 3))[0])

    def _cut(self) -> None:
        """A connection carries nothing new any more. What is under way may still arrive, or not."""
        if not self.connections:
            return
        number, connection = self.chance.choice(self.connections)
        for pipe in (connection.to_master, connection.to_replica):
            pipe.is_broken = True
            if self.chance.random() < 0.5:
                pipe._waiting.clear()
        if self.chance.random() < 0.6:
            self._replica_lost(number, connection)
        if self.chance.random() < 0.4:
            self._master_lost(connection)

    def _kill_replica(self) -> None:
        number = self.chance.randrange(2)
        node = self.replicas[number]
        if node.store is None:
            return
        for owner, connection in self.connections:
            if owner == number:
                self._replica_lost(number, connection)
                connection.to_master.is_broken = True
        node.down(self._image(node))
        self.retry_s[number] = self.clock.monotonic() + self.chance.choice((0.0, 3.0))

    def _kill_master(self) -> None:
        if self.head.store is None or (not self.sync_flush and self.chance.random() < 0.5):
            return
        # Without SYNC_FLUSH a power cut takes the tail, and the master must not come back as one: see the test's end.
        image = self._image(self.head) if self.sync_flush else self.head.disk.kill()
        self.head.down(image)
        for _, connection in self.connections:
            self._master_lost(connection)
            connection.to_replica.is_broken = True
        if self.chance.random() < 0.9:
            self.head.start()
            self._begin_master()

    def _image(self, node: Node) -> FakeDisk:
        return node.disk.crash(self.chance.randrange(1 << 30)) if self.chance.random() < 0.5 else node.disk.kill()

    # What the shells do

    def _carry(self) -> None:
        now_s = self.clock.monotonic()
        for number, node in enumerate(self.replicas):
            if node.store is None and now_s >= self.retry_s[number]:
                node.start()
            self._connect(number, node, now_s)
        for _ in range(3):
            for number, connection in list(self.connections):
                self._serve(connection, now_s)
                self._follow(number, connection, now_s)
        self.master.expire(now_s)
        self.connections = [
            (number, each) for number, each in self.connections if each.link is not None or each.replica is not None
        ]

    def _connect(self, number: int, node: Node, now_s: float) -> None:
        busy = any(owner == number and each.replica is not None for owner, each in self.connections)
        if busy or node.store is None or self.head.store is None or now_s < self.retry_s[number]:
            return
        long_frame_bytes = self.chance.choice((LONG_FRAME_BYTES, 100))
        replica = Replica(node.store.log, node.store.options, now_s, long_frame_bytes)
        connection = Connection(self.chance, self.master.connect(str(number), now_s), replica)
        connection.to_master.write(replica.connected(now_s), now_s)
        # An old connection may be served before or after the new one.
        self.connections.insert(self.chance.randint(0, len(self.connections)), (number, connection))

    def _serve(self, connection: Connection, now_s: float) -> None:
        data = connection.to_master.read(now_s)
        link = connection.link
        if link is None:
            return
        try:
            if data:
                self.master.received(link, data, now_s)
            for buffer in link.output(4, now_s):
                connection.to_replica.write(bytes(buffer), now_s)
        except WireError:
            self._master_lost(connection)
            return
        if link.is_silent(now_s):
            self._master_lost(connection)

    def _follow(self, number: int, connection: Connection, now_s: float) -> None:
        data = connection.to_replica.read(now_s)
        replica, store = connection.replica, self.replicas[number].store
        if replica is None or store is None:
            return
        try:
            if feed(replica, memoryview(data), now_s):
                store.replicated()
        except Diverged:
            self.diverged += 1
            self._replica_lost(number, connection)
            return
        except (WireError, StoreError):
            self._replica_lost(number, connection)
            return
        report = replica.report(now_s)
        if report:
            connection.to_master.write(report, now_s)
        if replica.is_silent(now_s):
            self._replica_lost(number, connection)

    def _replica_lost(self, number: int, connection: Connection) -> None:
        if connection.replica is not None:
            connection.replica = None
            connection.to_replica.is_broken = connection.to_master.is_broken = True
            self.retry_s[number] = self.clock.monotonic() + self.chance.choice((0.0, 0.1, 0.1, RETRY_S))

    def _master_lost(self, connection: Connection) -> None:
        if connection.link is not None:
            if connection.link in self.master.links:
                self.master.disconnect(connection.link)
            connection.link = None
            connection.to_replica.is_broken = connection.to_master.is_broken = True

    # The end

    def power_off(self) -> tuple[set[bytes], list[set[bytes]]]:
        """All nodes lose power; what each has when it is opened again: the master's messages, those of each replica."""
        found: list[set[bytes]] = []
        for node in (self.head, *self.replicas):
            node.down(node.disk.crash(self.chance.randrange(1 << 30)))
            found.append(bodies(node.start()))
        self.heir = self._heir()
        return found[0], found[1:]

    def _heir(self) -> int | None:
        """Who takes over; None if an empty replica, which gets the last segment only, has the longest log."""
        logs = [node.store.log for node in self.replicas if node.store is not None]
        longest = max(range(len(logs)), key=lambda number: logs[number].max_offset)
        return longest if logs[longest].min_offset == 0 else None
