"""A set of brokers on fake disks, with a bad network and a bad store, all of it in one thread and by one seed.

What decides is the real thing: failover.document, failover.member, and the replication core (Leader, SetReplica,
EpochTable, SetMemory). Played here is what their shells do: carry bytes and answers, flush, cut, notice.

    log      records of 48 bytes in one file of a FakeDisk; a power cut keeps, drops or tears what was not synced
    store    one document and its version; answers get lost, changes arrive late, nodes or all lose sight of it
    node     runs, stands still, is killed, loses power, comes back
    checks   after every step; `Broken` says which promise does not hold
"""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final

from cometmq.errors import WireError
from cometmq.failover import document as documents
from cometmq.failover import member
from cometmq.failover.document import Document, Refused
from cometmq.failover.member import Change, Follow, Lead, Progress, Promises, Rest, Seal, Seen, Unseal
from cometmq.failover.tenure import Tenure
from cometmq.store.fake_disk import FakeDisk, FakeFile
from cometmq.store.replication.sets.leader import Leader, Member
from cometmq.store.replication.sets.promises import SetMemory
from cometmq.store.replication.sets.replica import Parted, SetReplica
from cometmq.store.results import PutStatus
from cometmq.wire.record.layout import MAGIC_V1

RECORD: Final = Struct(">iiqI28s")
RECORD_BYTES: Final = RECORD.size
LOG_BYTES: Final = 14 << 10
OPTIONS: Final = SimpleNamespace(
    segment_bytes=LOG_BYTES, slave_timeout_ms=3000, ha_frame_bytes=RECORD_BYTES * 2 + 20, ha_silence_ms=20_000
)
END_ROUNDS: Final = 120


class Broken(AssertionError):
    """A promise does not hold."""


class SimulatedLog:
    """As the store's log: written, flushed, found again after a crash up to the first record that is not whole."""

    def __init__(self, disk: FakeDisk) -> None:
        self.min_offset = 0
        fresh = not disk.exists("/log")
        self.file: FakeFile = disk.open("/log", LOG_BYTES, create=True, allocate=False)
        if fresh:
            self.file.sync()
        self.max_offset = 0
        content = self.file.map()
        while self.max_offset + RECORD_BYTES <= LOG_BYTES and _is_whole(content, self.max_offset):
            self.max_offset += RECORD_BYTES
        self._erase(self.max_offset)
        self.flushed_offset = self.max_offset

    def _erase(self, offset: int) -> None:
        content = self.file.map()
        content[offset:] = bytes(LOG_BYTES - offset)
        self.file.sync()

    def append(self, number: int) -> int:
        record = _record(number)
        self.append_raw(self.max_offset, record)
        return self.max_offset

    @property
    def is_full(self) -> bool:
        return self.max_offset + 60 * RECORD_BYTES > LOG_BYTES

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        assert physical_offset == self.max_offset, f"append at {physical_offset}, the log ends at {self.max_offset}"
        self.file.map()[physical_offset : physical_offset + len(data)] = data
        self.max_offset += len(data)

    def read_from(self, physical_offset: int) -> tuple[int, memoryview] | None:
        return physical_offset, memoryview(bytes(self.file.map()[physical_offset : self.max_offset]))

    def flush(self) -> None:
        if self.flushed_offset < self.max_offset:
            self.file.sync()
            self.flushed_offset = self.max_offset

    def cut(self, offset: int) -> None:
        self._erase(offset)
        self.max_offset = min(self.max_offset, offset)
        self.flushed_offset = self.max_offset

    def part(self, start: int, end: int) -> bytes:
        return bytes(self.file.map()[start:end])


def _record(number: int) -> bytes:
    return RECORD.pack(RECORD_BYTES, MAGIC_V1, number, zlib.crc32(b"%d" % number), b"x" * 28)


def _is_whole(content: bytearray, at: int) -> bool:
    number = RECORD.unpack_from(content, at)[2]
    return bytes(content[at : at + RECORD_BYTES]) == _record(number)


class Pipe:
    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.is_broken = False

    def write(self, data: bytes) -> None:
        if not self.is_broken:
            self.waiting.append(data)


class Link:
    """A connection of a replica to the node that it takes for its master."""

    def __init__(self, replica: Node, master: Node, replica_core: SetReplica) -> None:
        self.replica = replica
        self.master = master
        self.core: SetReplica | None = replica_core
        self.member: Member | None = None
        self.leader: Leader | None = None
        self.up = Pipe()
        self.down = Pipe()

    def cut(self) -> None:
        self.up.is_broken = self.down.is_broken = True

    @property
    def is_over(self) -> bool:
        return self.core is None and self.member is None


@dataclass
class Errand:
    """A change on its way to the store."""

    node: Node
    life: int
    base: int
    document: Document
    kind: str


class Node:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.disk = FakeDisk()
        self.is_up = False
        self.life = 0
        self.sees_store = True
        self.start()

    def start(self) -> None:
        self.is_up = True
        self.life += 1
        self.log = SimulatedLog(self.disk)
        self.memory = SetMemory("/set", self.disk)
        self.memory.recovered(self.log.max_offset)
        self.leader: Leader | None = None
        self.link: Link | None = None
        self.seen = Seen(copies=self.world.copies)
        self.document: Document | None = None
        self.version = 0
        self.tenure: Tenure | None = None
        self.exposed = 0

    def down(self, image: FakeDisk) -> None:
        self.is_up = False
        self.drop_role()
        self.disk = image

    # Roles

    def drop_role(self) -> None:
        if self.leader is not None:
            self.leader.give_up()
            self.leader = None
        self.leave()
        self.seen.epoch = 0
        self.seen.is_leading = False
        self.tenure = None

    def leave(self) -> None:
        if self.link is not None:
            self.link.core = None
            self.link.cut()
            self.link = None

    @property
    def promises(self) -> Promises:
        kept = self.memory.kept
        return Promises(self.number, kept.joined, kept.sealed, kept.led)

    def learn(self, document: Document, version: int) -> None:
        if version < self.version:
            return
        self.document, self.version = document, version
        if self.tenure is not None:
            self.tenure.learns(document, version)
        self.rule()

    def rule(self) -> None:
        if self.leader is None or self.tenure is None:
            return
        self.leader.frozen = self.tenure.is_frozen
        if self.leader.rule(self.tenure.rulers):
            self.world.committed(self)

    def look(self) -> None:
        """What this node sees now, for the next step."""
        seen = self.seen
        seen.end = self.log.flushed_offset
        seen.pending = None if self.tenure is None else self.tenure.pending
        if self.leader is None:
            return
        ends = self.leader.ends()
        near = frozenset(
            number for number, each in self.leader.members.items()
            if number in ends and each.acked + 8 * RECORD_BYTES >= self.log.max_offset
        )  # fmt: skip
        seen.progress = Progress(
            self.leader.start, self.log.max_offset, self.leader.committed, ends, near, frozenset(ends)
        )

    def act(self) -> None:
        if self.document is None:
            return
        self.look()
        step = member.next_step(self.document, self.promises, self.seen)
        match step:
            case Follow(epoch, _):
                self.drop_role()
                self.seen.epoch, self.seen.is_leading = epoch, False
                self.seen.is_refused = self.seen.is_silent = self.seen.is_master_gone = False
            case Lead(epoch):
                self.lead(epoch)
            case Rest():
                self.drop_role()
            case Seal(epoch):
                self.seal(epoch)
            case Unseal(epoch):
                self.memory.unseal(epoch)
            case Change(kind, after):
                self.ask(kind, after)

    def lead(self, epoch: int) -> None:
        self.drop_role()
        self.log.flush()
        self.memory.lead(epoch, self.log.max_offset)
        self.leader = Leader(self.number, epoch, self.memory.table, self.log, OPTIONS)
        self.seen.epoch, self.seen.is_leading = epoch, True
        self.world.began(self, epoch)
        assert self.document is not None
        self.tenure = Tenure(epoch)
        self.learn(self.document, self.version)

    def seal(self, epoch: int) -> None:
        self.drop_role()
        self.log.flush()
        self.memory.seal(epoch)

    def ask(self, kind: str, after: Document) -> None:
        if not self.sees_store or self.world.store_is_down:
            return
        if self.tenure is not None:
            self.tenure.asks(kind, self.version, after)
            self.rule()
        self.world.errands.append(Errand(self, self.life, self.version, after, kind))


class World:
    def __init__(
        self, seed: int, nodes: int = 3, copies: int = 2, *, all_copies: bool = False, moves: bool = False,
        bold: bool = False,
    ) -> None:  # fmt: skip
        self.chance = random.Random(seed)
        self.copies = copies
        self.all_copies = all_copies
        self.moves = moves
        # Masters store what they cannot ack, and every third epoch has no message of its own.
        self.bold = bold
        self.errands: list[Errand] = []
        self.links: list[Link] = []
        self.store_is_down = False
        self.history: list[str] = []
        self.now_s = 0.0
        self.broken = ""
        self.is_healed = False
        self.sent = 0
        self.acked: dict[int, bytes] = {}
        self.acks_by_epoch: dict[int, int] = {}
        self.acks = 0
        self.canon = bytearray(LOG_BYTES)
        self.canon_end = 0
        self.newest: tuple[int, Node] | None = None
        document = documents.created(documents.Member("a:1", "a:2", "1"), copies)
        for number in range(2, nodes + 1):
            document, _ = documents.joined(document, documents.Member("a:1", "a:2", str(number)))
        start = range(1, nodes + 1) if self.chance.random() < 0.7 else range(1, 2)
        self.document = document.__class__(
            **{**{f: getattr(document, f) for f in document.__struct_fields__}, "in_sync": tuple(start)}
        )
        self.version = 1
        self.note()
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]
        weights = self._weights()
        if self.bold:
            weights |= {self.kill: 2.0, self.start: 3.0, self.storm: 3.0, self.suspect: 4.0, self.cut_power: 0.0}
        self.kinds: list[Callable[[], None]] = list(weights)
        self.weights = list(weights.values())

    def _weights(self) -> dict[Callable[[], None], float]:
        r = self.chance.random
        fierce = self.chance.choice((0.3, 1.0, 2.0))
        return {
            self.put: 14 * r() + 3,
            self.flush: 14 * r() + 2,
            self.carry: 40 * r() + 14,
            self.step: 30 * r() + 8,
            self.read: 25 * r() + 3,
            self.run_errand: 20 * r() + 5,
            self.lose_errand: 1.5 * r(),
            self.suspect: 5 * fierce * r(),
            self.storm: 2 * fierce * r(),
            self.hear: 2 * r() + 0.2,
            self.break_link: 1.2 * fierce * r(),
            self.kill: 0.8 * fierce * r(),
            self.cut_power: 0.8 * fierce * r(),
            self.start: 3 * r() + 0.4,
            self.blind: 0.8 * fierce * r(),
            self.unblind: 2 * r() + 0.2,
            self.wish: 0.6 * r(),
            self.pass_time: 6 * r() + 2,
            self.change_copies: 0.3 * r() if self.all_copies else 0.0,
            **({self.take_away: 2 * r() + 0.2, self.bring_back: r() + 0.1} if self.moves else {}),
        }

    def note(self) -> None:
        self.history.append(f"{self.version}: {self.document.encode().decode()}")

    def run(self, steps: int) -> None:
        choose = self.chance.choices
        for act in choose(self.kinds, self.weights, k=steps):
            act()

    def a_node(self) -> Node | None:
        up = [node for node in self.nodes if node.is_up]
        return self.chance.choice(up) if up else None

    # What happens

    def put(self) -> None:
        leaders = [node for node in self.nodes if node.is_up and node.leader is not None]
        if not leaders:
            return
        node = self.chance.choice(leaders)
        leader = node.leader
        assert leader is not None
        if self.bold and leader.epoch % 3 == 0:
            return
        for _ in range(self.chance.choice((1, 1, 3))):
            if node.log.is_full or (leader.shortage(1) and self.chance.random() < (0.1 if self.bold else 0.8)):
                return
            self.sent += 1
            end = node.log.append(self.sent)
            leader.wait(end, partial(self.told, node, leader.epoch, end), self.now_s)

    def fault(self, text: str) -> None:
        """Noted, because whoever tells waiters takes no notice of what they raise."""
        self.broken = self.broken or text

    def told(self, node: Node, epoch: int, end: int, status: int) -> None:
        if status != PutStatus.OK:
            return
        self.acks += 1
        if self.acks_by_epoch.setdefault(epoch, node.number) != node.number:
            self.fault(f"members {self.acks_by_epoch[epoch]} and {node.number} both ack in epoch {epoch}")
        record = node.log.part(end - RECORD_BYTES, end)
        self.acked[end] = record
        newer, heir = self.newest if self.newest is not None else (0, node)
        if newer > epoch and heir.is_up and heir.log.part(end - RECORD_BYTES, end) != record:
            self.fault(f"epoch {epoch} acks {end}, which the master of epoch {newer} does not have")

    def flush(self) -> None:
        node = self.a_node()
        if node is None:
            return
        node.log.flush()
        self.after_flush(node)

    def after_flush(self, node: Node) -> None:
        if node.leader is not None:
            if node.leader.count():
                self.committed(node)
        elif node.link is not None and node.link.core is not None:
            self.report(node.link)

    def report(self, link: Link) -> None:
        assert link.core is not None
        data = link.core.report(self.now_s)
        if data:
            link.up.write(data)

    def committed(self, node: Node) -> None:
        leader = node.leader
        assert leader is not None
        self.expose(node, leader.committed)
        leader.answer()
        if self.broken:
            raise Broken(self.broken)

    def expose(self, node: Node, end: int) -> None:
        """Consumers of this node may have seen all up to here."""
        end -= end % RECORD_BYTES
        if end <= node.exposed:
            return
        seen = node.log.part(node.exposed, end)
        known = bytes(self.canon[node.exposed : min(end, self.canon_end)])
        if seen[: len(known)] != known:
            raise Broken(f"member {node.number} shows another value between {node.exposed} and {end}")
        if end > self.canon_end:
            self.canon[self.canon_end : end] = node.log.part(self.canon_end, end)
            self.canon_end = end
        node.exposed = end

    def began(self, node: Node, epoch: int) -> None:
        """A master: all that was acked or seen must be in its log."""
        if self.newest is None or epoch > self.newest[0]:
            self.newest = (epoch, node)
        if node.log.part(0, self.canon_end) != bytes(self.canon[: self.canon_end]):
            raise Broken(f"member {node.number} leads epoch {epoch} without all that consumers saw")
        for end, record in self.acked.items():
            if node.log.part(end - RECORD_BYTES, end) != record:
                raise Broken(f"member {node.number} leads epoch {epoch} without the acked message before {end}")

    # The network

    def carry(self) -> None:
        self.connect()
        if not self.links:
            return
        for _ in range(3):
            link = self.chance.choice(self.links)
            self.carry_up(link)
            self.carry_down(link)
        self.links = [each for each in self.links if not each.is_over]

    def connect(self) -> None:
        """Replicas without a connection make one to whom they follow."""
        for node in self.nodes:
            if not node.is_up or node.link is not None or node.leader is not None or not node.seen.epoch:
                continue
            if node.document is None or node.document.epoch != node.seen.epoch or self.chance.random() < 0.3:
                continue
            master = self.nodes[node.document.master - 1]
            if not master.is_up or master is node:
                continue
            core = SetReplica(node.number, node.seen.epoch, node.log, node.memory, OPTIONS, self.now_s)
            link = Link(node, master, core)
            node.link = link
            link.up.write(core.connected(self.now_s))
            self.links.append(link)

    def carry_up(self, link: Link) -> None:
        if not link.up.waiting:
            return
        data = link.up.waiting.popleft()
        master = link.master
        leader = master.leader
        if not master.is_up or leader is None:
            self.close_up(link)
            return
        if link.member is None:
            if link.leader is not None:
                return
            link.member = Member(str(link.replica.number), self.now_s)
            link.leader = leader
        if link.leader is not leader:
            self.close_up(link)
            return
        try:
            moved = leader.received(link.member, data, self.now_s)
        except WireError:
            self.close_up(link)
            return
        if moved and leader.count():
            self.committed(master)
        self.write_down(link)

    def close_up(self, link: Link) -> None:
        if link.member is not None and link.leader is not None:
            link.leader.lost(link.member)
        link.member = None
        link.cut()

    def write_down(self, link: Link) -> None:
        leader = link.master.leader
        if link.member is None or leader is None or leader is not link.leader:
            return
        for buffer in leader.output(link.member, 3, self.now_s):
            link.down.write(bytes(buffer))

    def carry_down(self, link: Link) -> None:
        if link.master.is_up and self.chance.random() < 0.7:
            self.write_down(link)
        core = link.core
        if core is None or not link.down.waiting:
            if core is not None and link.down.is_broken:
                self.lose(link)
            return
        data = link.down.waiting.popleft()
        if len(data) > 4 and self.chance.random() < 0.2:
            at = self.chance.randrange(1, len(data))
            link.down.waiting.appendleft(data[at:])
            data = data[:at]
        node = link.replica
        try:
            core.received(memoryview(data), self.now_s)
            if core.cut_to >= 0:
                self.cut_log(link, core)
        except Parted as error:
            raise Broken(f"member {node.number} cannot follow: {error}") from None
        except WireError:
            self.lose(link)
            return
        if core.is_agreed:
            self.expose(node, min(core.committed, node.log.max_offset, core._position))

    def cut_log(self, link: Link, core: SetReplica) -> None:
        node = link.replica
        if core.cut_to < node.log.max_offset:
            node.log.cut(core.cut_to)
        if not self.is_healed and self.chance.random() < 0.02:
            node.down(node.disk.crash(self.chance.randrange(1 << 30)))
            return
        node.log.flush()
        link.up.write(core.was_cut(self.now_s))

    def lose(self, link: Link) -> None:
        link.core = None
        if link.replica.link is link:
            link.replica.link = None
        link.cut()

    def break_link(self) -> None:
        if self.links:
            link = self.chance.choice(self.links)
            link.cut()
            for pipe in (link.up, link.down):
                if self.chance.random() < 0.5:
                    pipe.waiting.clear()

    # The store

    def read(self) -> None:
        node = self.a_node()
        if node is not None and node.sees_store and not self.store_is_down:
            node.learn(self.document, self.version)

    def run_errand(self) -> None:
        if self.errands and not self.store_is_down:
            self.finish(self.errands.pop(self.chance.randrange(len(self.errands))))

    def finish(self, errand: Errand) -> None:
        if errand.base == self.version:
            self.document, self.version = errand.document, self.version + 1
            self.note()
        node = errand.node
        if node.is_up and node.life == errand.life and node.sees_store and self.chance.random() < 0.8:
            node.learn(self.document, self.version)

    def lose_errand(self) -> None:
        if self.errands:
            self.errands.pop(self.chance.randrange(len(self.errands)))

    def blind(self) -> None:
        if self.chance.random() < 0.2:
            self.store_is_down = True
        elif (node := self.a_node()) is not None:
            node.sees_store = False

    def unblind(self) -> None:
        self.store_is_down = False
        for node in self.nodes:
            node.sees_store = True

    # Nodes

    def step(self) -> None:
        node = self.a_node()
        if node is not None:
            node.act()

    def suspect(self) -> None:
        node = self.a_node()
        if node is not None and node.seen.epoch and not node.seen.is_leading:
            kind = self.chance.choice(("is_silent", "is_silent", "is_refused", "is_master_gone"))
            setattr(node.seen, kind, True)

    def storm(self) -> None:
        """The master, or what replicas hear of it, goes; and some of what follows happens in a row."""
        leaders = [node for node in self.nodes if node.is_up and node.leader is not None]
        if leaders and self.chance.random() < 0.5:
            node = self.chance.choice(leaders)
            lost_power = self.chance.random() < 0.7
            self.end_of(node, node.disk.crash(self.chance.randrange(1 << 30)) if lost_power else node.disk.kill())
        for node in self.nodes:
            if node.is_up and node.seen.epoch and not node.seen.is_leading and self.chance.random() < 0.8:
                setattr(node.seen, self.chance.choice(("is_silent", "is_refused")), True)
        for _ in range(self.chance.choice((4, 10, 25))):
            self.step()
            self.run_errand()
            self.read()
            if self.chance.random() < 0.4:
                self.carry()
            victim = self.a_node() if self.chance.random() < 0.04 else None
            if victim is not None:
                self.end_of(victim, victim.disk.crash(self.chance.randrange(1 << 30)))
                victim.start()

    def hear(self) -> None:
        node = self.a_node()
        if node is not None:
            node.seen.is_refused = node.seen.is_silent = node.seen.is_master_gone = False

    def kill(self) -> None:
        node = self.a_node()
        if node is not None:
            self.end_of(node, node.disk.kill())

    def cut_power(self) -> None:
        node = self.a_node()
        if node is not None:
            self.end_of(node, node.disk.crash(self.chance.randrange(1 << 30)))
            if self.chance.random() < 0.1:
                for other in self.nodes:
                    if other.is_up:
                        self.end_of(other, other.disk.crash(self.chance.randrange(1 << 30)))

    def end_of(self, node: Node, image: FakeDisk) -> None:
        for link in self.links:
            if link.master is node:
                link.member = None
                link.cut()
        node.down(image)

    def start(self) -> None:
        down = [node for node in self.nodes if not node.is_up]
        if down:
            self.chance.choice(down).start()

    def wish(self) -> None:
        try:
            after = documents.wished(self.document, self.chance.choice(self.document.in_sync))
        except Refused:
            return
        self.document, self.version = after, self.version + 1
        self.note()

    def take_away(self) -> None:
        """An operator moves a copy to another machine, and this one goes."""
        self._operate(lambda: documents.leaves(self.document, self.chance.choice(list(self.document.members))))

    def bring_back(self) -> None:
        self._operate(lambda: documents.stays(self.document, self.chance.choice(self.document.leaving or (0,))))

    def _operate(self, change: Callable[[], Document]) -> None:
        try:
            after = change()
        except Refused:
            return
        if after != self.document:
            self.document, self.version = after, self.version + 1
            self.note()

    def change_copies(self) -> None:
        for node in self.nodes:
            node.seen.copies = self.copies
        copies = self.chance.choice((2, len(self.document.in_sync)))
        for node in self.nodes:
            node.seen.copies = max(2, copies)

    def pass_time(self) -> None:
        self.now_s += self.chance.choice((0.1, 0.31, 1.0))
        for node in self.nodes:
            if node.is_up and node.leader is not None:
                node.leader.expire(self.now_s)
            elif node.is_up and node.link is not None and node.link.core is not None:
                self.report(node.link)

    # The end

    def heal(self) -> None:
        """All is well again: five more messages must be acked, soon. Then one machine is lost for good: five more."""
        self.is_healed = True
        self.unblind()
        while self.document.leaving:
            self._operate(lambda: documents.stays(self.document, self.document.leaving[0]))
        self.start_all()
        self.go_on("all was healed")
        for _ in range(END_ROUNDS):
            if len(self.document.in_sync) == len(self.nodes) and not self.document.seals:
                break
            self.now_s += 0.31
            self.heal_round(sends=False)
        if self.copies < len(self.nodes):
            lost = self.chance.choice(self.nodes)
            self.end_of(lost, lost.disk.kill())
            self.go_on(f"member {lost.number} was lost")

    def go_on(self, what: str) -> None:
        wanted = self.acks + 5
        for _ in range(END_ROUNDS):
            self.now_s += 0.31
            self.heal_round()
            if self.acks >= wanted:
                return
        raise Broken(f"the set is stuck: {self.acks - wanted + 5} acks after {what}")

    def heal_round(self, *, sends: bool = True) -> None:
        for node in self.nodes:
            if not node.is_up:
                continue
            node.learn(self.document, self.version)
            self.hear_truly(node)
            node.act()
            while self.errands:
                self.finish(self.errands.pop(0))
        for _ in range(3):
            self.connect()
            for link in self.links:
                for _ in range(6):
                    self.carry_up(link)
                    self.carry_down(link)
            self.links = [each for each in self.links if not each.is_over]
            for node in self.nodes:
                if node.is_up:
                    node.log.flush()
                    self.after_flush(node)
        for node in self.nodes:
            leader, has_room = node.leader, node.log.max_offset + 2 * RECORD_BYTES <= LOG_BYTES
            if sends and leader is not None and not leader.shortage(1) and has_room:
                self.sent += 1
                end = node.log.append(self.sent)
                leader.wait(end, partial(self.told, node, leader.epoch, end), self.now_s)

    def start_all(self) -> None:
        for node in self.nodes:
            if not node.is_up:
                node.start()

    def hear_truly(self, node: Node) -> None:
        """On a good network a replica sees of its master what there is to see."""
        node.seen.is_refused = node.seen.is_silent = node.seen.is_master_gone = False
        if node.seen.epoch and not node.seen.is_leading and node.document is not None:
            master = self.nodes[node.document.master - 1]
            node.seen.is_silent = not master.is_up or master.leader is None or master.leader.epoch != node.seen.epoch
            node.seen.is_master_gone = node.seen.is_silent


def play(seed: int, nodes: int = 3, copies: int = 2, steps: int = 500, **more: Any) -> World:
    """Raises Broken, with the history of the document and how to play it again."""
    world = World(seed, nodes, copies, **more)
    try:
        world.run(steps)
        world.heal()
    except Broken as error:
        world.history.append(f"seed {seed}, {nodes} nodes, k={copies}: {error}")
        raise Broken("\n".join(world.history[-30:])) from None
    return world
