"""Rules of the design, each broken on purpose: what the simulation must find, or it checks nothing.

`MUTATIONS`: name -> (what breaks it, the rule, arguments of the run). Each patches functions of the real core for as
long as its context lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import msgspec

from cometmq.failover import document as documents
from cometmq.failover import member
from cometmq.failover.document import Document
from cometmq.failover.tenure import Tenure
from cometmq.store.replication.sets import leader, replica
from cometmq.store.replication.sets.epochs import EpochTable
from cometmq.store.replication.sets.leader import Leader
from cometmq.store.replication.sets.promises import SetMemory
from cometmq.store.replication.sets.replica import SetReplica
from tests.failover import simulated_set
from tests.failover.simulated_set import Node, SimulatedLog, World

Break = Callable[[], Any]


@contextmanager
def _patched(owner: Any, name: str, new: Any) -> Iterator[None]:
    with mock.patch.object(owner, name, new):
        yield


def _one_seal_less() -> Any:
    return _patched(documents, "quorum", lambda members, copies: max(1, members - min(copies, members)))


def _unflushed_reports() -> Any:
    """R1: a replica reports what it has in memory."""

    def report(self: SetReplica, now_s: float, *, first: bool = False) -> bytes:
        with mock.patch.object(self._log, "flushed_offset", self._log.max_offset):
            return real(self, now_s, first=first)

    real = SetReplica.report
    return _patched(SetReplica, "report", report)


def _unflushed_master() -> Any:
    """R1: the master counts what it has in memory."""

    def ends(self: Leader) -> dict[int, int]:
        return real(self) | {self.own_id: self._log.max_offset}

    real = Leader.ends
    return _patched(Leader, "ends", ends)


def _unflushed_seal() -> Any:
    """R6: the vote speaks of what is in memory."""

    def seal(self: Node, epoch: int) -> None:
        self.drop_role()
        self.memory.seal(epoch)

    def look(self: Node) -> None:
        real(self)
        self.seen.end = self.log.max_offset

    real = Node.look

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Node, "seal", seal), _patched(Node, "look", look):
            yield

    return both()


def _old_master_followed() -> Any:
    """R4, F3: whoever calls himself the master is one; what it says of its epoch is not compared."""

    def compare(self: SetReplica, said: Any) -> None:
        epoch, self.epoch = self.epoch, said.last
        real(self, said)
        self.epoch = epoch

    def connect(self: World) -> None:
        for node in self.nodes:
            if node.is_up and node.link is None and node.leader is None and node.seen.epoch:
                masters = [each for each in self.nodes if each.is_up and each.leader is not None and each is not node]
                if masters:
                    core = SetReplica(
                        node.number, node.seen.epoch, node.log, node.memory, simulated_set.OPTIONS, self.now_s
                    )
                    link = simulated_set.Link(node, self.chance.choice(masters), core)
                    node.link = link
                    link.up.write(core.connected(self.now_s))
                    self.links.append(link)

    real = SetReplica._compare

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(SetReplica, "_compare", compare), _patched(World, "connect", connect):
            yield

    return both()


def _votes_by_last_record() -> Any:
    """R8: seals compare the epoch of the last record, not the one that was joined."""

    def promises(self: Node) -> member.Promises:
        kept = self.memory.kept
        last = max((epoch for epoch, start in self.memory.table.entries if start < self.log.max_offset), default=0)
        return member.Promises(self.number, last, kept.sealed, kept.led)

    return _patched(Node, "promises", property(promises))


def _joined_too_early() -> Any:
    """R8: who has agreed has joined, though it lacks what came before the epoch."""

    def is_joined(self: Leader, each: leader.Member) -> bool:
        return each.acked >= 0

    def count(self: Leader) -> bool:
        if self.frozen or not self._rulers:
            return False
        offset = min(leader._held_by(copies, members, self.ends()) for members, copies in self._rulers)
        if offset <= self.committed:
            return False
        self.committed = offset
        return True

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Leader, "is_joined", is_joined), _patched(Leader, "count", count):
            yield

    return both()


def _promise_too_early() -> Any:
    """R8: the promise to have joined is made when the master was met, before its start is on disk."""

    def was_cut(self: SetReplica, now_s: float) -> bytes:
        self._memory.join(self.epoch)
        return real(self, now_s)

    real = SetReplica.was_cut
    return _patched(SetReplica, "was_cut", was_cut)


def _resumed_epoch() -> Any:
    """R10: a process that starts goes on as the master that it was."""

    def promises(self: Node) -> member.Promises:
        kept = self.memory.kept
        return member.Promises(self.number, kept.joined, kept.sealed, kept.led - 1)

    def lead(self: SetMemory, epoch: int, start: int) -> None:
        if self.kept.led == epoch:
            return
        real(self, epoch, start)

    real = SetMemory.lead

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Node, "promises", property(promises)), _patched(SetMemory, "lead", lead):
            yield

    return both()


def _blind_change() -> Any:
    """R9: S changes to whoever is connected."""
    return _patched(member, "may_resize", lambda members, copies, progress: True)


def _connected_are_caught_up() -> Any:
    def look(self: Node) -> None:
        real(self)
        if self.leader is not None:
            self.seen.progress.caught_up = frozenset(self.leader.members)

    real = Node.look

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Node, "look", look), _blind_change():
            yield

    return both()


def _pending_forgotten() -> Any:
    """R2: while S changes, only the new one counts."""
    return _patched(Tenure, "rulers", property(lambda self: [self.pending] if self.pending else self._rulers))


def _any_sealed_elected() -> Any:
    """R7: one of the sealed, not the one with the most."""
    return _patched(documents, "winner", lambda document: min(document.seals))


def _reports_after_seal() -> Any:
    """R6: who has sealed goes on reporting to its master."""

    def seal(self: Node, epoch: int) -> None:
        self.log.flush()
        self.memory.seal(epoch)

    def report(self: SetReplica, now_s: float, *, first: bool = False) -> bytes:
        kept = self._memory
        with mock.patch.object(type(kept), "sealed", 0):
            return real(self, now_s, first=first)

    def step(document: Document, promises: member.Promises, seen: member.Seen) -> Any:
        if seen.epoch and not seen.is_leading and promises.sealed >= document.epoch == seen.epoch:
            me = promises.id
            if me in document.in_sync and me not in document.seals and not document.has_enough_seals:
                after = documents.sealed(document, me, document.epoch, promises.joined, seen.end)
                return member.Change(member.SEAL, after)
            if not document.has_enough_seals:
                return None
        return real_step(document, promises, seen)

    real, real_step = SetReplica.report, member.next_step

    @contextmanager
    def all_three() -> Iterator[None]:
        with (
            _patched(Node, "seal", seal),
            _patched(SetReplica, "report", report),
            _patched(member, "next_step", step),
        ):
            yield

    return all_three()


def _no_cut() -> Any:
    """R5: what the master never had stays, and the log goes on behind it."""

    def cut_log(self: World, link: simulated_set.Link, core: SetReplica) -> None:
        core.cut_to = link.replica.log.max_offset
        real(self, link, core)

    real = World.cut_log
    return _patched(World, "cut_log", cut_log)


def _cut_not_durable() -> Any:
    """R5: the cut is in memory only when the first report goes out."""

    def cut(self: SimulatedLog, offset: int) -> None:
        self.max_offset = min(self.max_offset, offset)
        self.flushed_offset = self.max_offset

    return _patched(SimulatedLog, "cut", cut)


def _report_before_agreement() -> Any:
    """R5: a replica says what it has before it knows that the master has the same."""

    def agreed(own: EpochTable, own_end: int, other: EpochTable, other_end: int) -> int:
        return min(own_end, other_end)

    return _patched(replica, "agreed_end", agreed)


def _own_shrink() -> Any:
    """R3, F1: the master takes who is gone out of its own S, and asks afterwards."""

    def rule(self: Node) -> None:
        if self.leader is None or self.document is None or self.document.epoch != self.leader.epoch:
            return
        here = frozenset(self.document.in_sync) & (self.leader.members.keys() | {self.number})
        if self.leader.rule([(here, min(self.document.copies, len(here)))]):
            self.world.committed(self)

    return _patched(Node, "rule", rule)


def _all_exposed() -> Any:
    """R11: consumers see what the master has, committed or not."""

    def carry_down(self: World, link: simulated_set.Link) -> None:
        real(self, link)
        if link.core is not None and link.core.is_agreed and link.replica.is_up:
            self.expose(link.replica, link.replica.log.max_offset)

    real = World.carry_down
    return _patched(World, "carry_down", carry_down)


def _seal_not_asked_again() -> Any:
    """R6: a seal whose answer was lost is forgotten: it reports nothing, and its vote is nowhere."""

    return _patched(member, "_as_sealed", lambda document, promises, seen: member.Rest(0) if seen.epoch else None)


def _sealed_never_dropped() -> Any:
    """R12: a member that sealed alone stays in S, and can never come back."""

    def stays(document: Document, number: int, progress: member.Progress) -> bool:
        return number in document.seals or number in progress.caught_up

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(member, "_stays", stays), _patched(member, "_can_ack", lambda document, seen: True):
            yield

    return both()


def _old_master_kept() -> Any:
    """F4: who follows one does not look at the document again."""

    def step(document: Document, promises: member.Promises, seen: member.Seen) -> Any:
        if seen.epoch and not seen.is_leading and document.epoch > seen.epoch and document.master != promises.id:
            return None
        return real(document, promises, seen)

    real = member.next_step
    return _patched(member, "next_step", step)


def _acks_while_handing_over() -> Any:
    """7.13: the master acks while it does not know whether it has given the lead away, to one that lacks some."""

    def hand_over(document: Document, promises: member.Promises, seen: member.Seen) -> Any:
        if document.wish in document.seals:
            return None
        return member.Change(member.HAND_OVER, documents.handed_over(document, promises.id, document.epoch))

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(Tenure, "is_frozen", False), _patched(member, "_hand_over", hand_over):
            yield

    return both()


def _frozen_thaws() -> Any:
    """7.13: a master that gave the lead away acks again once the document has changed, whatever it says."""

    def learns(self: Tenure, document: Document, version: int) -> None:
        if version > self._handed_at:
            self._handed_at = 0
        real(self, document, version)

    real = Tenure.learns
    return _patched(Tenure, "learns", learns)


def _shrinks_to_one() -> Any:
    """S may fall to the master alone, and it acks alone."""

    def resized(document: Document, master: int, epoch: int, in_sync: Any, copies: int) -> Document:
        documents._check_master(document, master, epoch)
        after = tuple(sorted(set(in_sync)))
        return msgspec.structs.replace(
            document,
            in_sync=after,
            copies=min(copies, len(after)),
            seals={number: seal for number, seal in document.seals.items() if number in after},
            suspects=tuple(number for number in document.suspects if number in after),
            wish=0,
        )

    def wanted(document: Document, me: int, seen: member.Seen) -> Any:
        stay = {number for number in document.in_sync if number == me or member._stays(document, number, seen.progress)}
        return tuple(sorted(stay | seen.progress.caught_up)), 2

    @contextmanager
    def both() -> Iterator[None]:
        with _patched(documents, "resized", resized), _patched(member, "wanted_set", wanted):
            yield

    return both()


MUTATIONS: Final[dict[str, tuple[Break, str]]] = {
    "one seal less": (_one_seal_less, "R7"),
    "unflushed reports": (_unflushed_reports, "R1"),
    "unflushed master": (_unflushed_master, "R1"),
    "unflushed seal": (_unflushed_seal, "R6"),
    "whoever calls himself master is followed": (_old_master_followed, "R4"),
    "votes by the last record": (_votes_by_last_record, "R8"),
    "joined before the start of the epoch": (_joined_too_early, "R8"),
    "promise before the start of the epoch": (_promise_too_early, "R8"),
    "epoch gone on with after a start": (_resumed_epoch, "R10"),
    "blind change of S": (_connected_are_caught_up, "R9"),
    "pending S forgotten": (_pending_forgotten, "R2"),
    "any sealed member elected": (_any_sealed_elected, "R7"),
    "reports after the seal": (_reports_after_seal, "R6"),
    "no cut": (_no_cut, "R5"),
    "cut in memory only": (_cut_not_durable, "R5"),
    "report before agreement": (_report_before_agreement, "R5"),
    "own shrink": (_own_shrink, "R3"),
    "everything exposed": (_all_exposed, "R11"),
    "vote not asked for": (_seal_not_asked_again, "R6"),
    "sealed member never dropped": (_sealed_never_dropped, "R12"),
    "old master kept": (_old_master_kept, "R4"),
    "acks while handing over": (_acks_while_handing_over, "7.13"),
    "lead given away and gone on with": (_frozen_thaws, "7.13"),
    "S of one": (_shrinks_to_one, "R9"),
}
