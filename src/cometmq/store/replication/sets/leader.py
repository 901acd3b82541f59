"""A master of one epoch and its replicas, as a value: what each has on its disk, what is committed, who waits.

    committed   the largest offset that k joined members of S have on disk, the master's own disk counted too;
                nothing before the epoch's start is on k such disks
    joined      it has reported the epoch's start, or more, on a connection on which it agreed where the logs part
    rulers      (S, k) of the document, and, while a change of it is under way, of what it would become: what is
                committed is so by all of them

Messages wait until they are committed. A frozen leader commits nothing: it is about to give the lead away. Times go in
as arguments; sockets and files are listener.py's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from cometmq.errors import WireError
from cometmq.store.log.flush import Callback, tell
from cometmq.store.replication.rate import Pace
from cometmq.store.replication.sets import frames
from cometmq.store.replication.sets.epochs import EpochTable
from cometmq.store.replication.sets.frames import FromReplicas, Hello
from cometmq.store.results import PutStatus

PING_S: Final = 0.3
# A replica without a log asks from 0, and is sent the oldest there is.
NOTHING_SENT: Final = -1


class LedLog(Protocol):
    """What a master needs of its log."""

    max_offset: int

    @property
    def min_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    def read_from(self, physical_offset: int) -> tuple[int, memoryview] | None: ...


class LeaderOptions(Protocol):
    segment_bytes: int
    slave_timeout_ms: int
    ha_frame_bytes: int
    ha_silence_ms: int


Ruler = tuple[frozenset[int], int]


class Member:
    """One connection. `acked` is what it reports to have on its disk; -1: nothing yet."""

    def __init__(self, name: str, now_s: float) -> None:
        self.name = name
        self.id: int = 0
        self.is_learner = False
        self.acked: int = -1
        self.next_offset: int = NOTHING_SENT
        self.born_s = now_s
        self.heard_s = now_s
        self.spoke_s = now_s
        # When its report last reached where the log then ended; and where that end is now.
        self.caught_up_s: float = -1e9
        self.target: int = -1
        self.target_s: float = now_s
        self.pace = Pace(now_s)
        self._reader = FromReplicas()
        self._from_last_file = False
        self._told_committed = -1
        self._answers: list[bytes | memoryview] = []

    @property
    def reads(self) -> FromReplicas:
        return self._reader


class Leader:
    def __init__(self, own_id: int, epoch: int, table: EpochTable, log: LedLog, options: LeaderOptions) -> None:
        self.own_id = own_id
        self.epoch = epoch
        self.table = table
        self.start = table.start_of(epoch)
        self.committed: int = -1
        self.frozen = False
        self.members: dict[int, Member] = {}
        self._rulers: tuple[Ruler, ...] = ()
        self._log = log
        self._options = options
        self._waiters: deque[tuple[int, float, Callback]] = deque()

    # Who counts

    def rule(self, rulers: Iterable[Ruler]) -> bool:
        """What is committed is so by all of these. True if more is committed now."""
        self._rulers = tuple(rulers)
        return self.count()

    def ends(self) -> dict[int, int]:
        """Of all that have joined: what they have on disk."""
        ends = {each.id: each.acked for each in self.members.values() if self.is_joined(each)}
        if self._log.flushed_offset >= self.start:
            ends[self.own_id] = self._log.flushed_offset
        return ends

    def is_joined(self, member: Member) -> bool:
        return not member.is_learner and member.acked >= self.start

    def count(self) -> bool:
        """Take into account what is on disk now. True if more is committed; then `answer` those who wait."""
        if self.frozen or not self._rulers:
            return False
        ends = self.ends()
        offset = min(_held_by(copies, members, ends) for members, copies in self._rulers)
        if offset < self.start or offset <= self.committed:
            return False
        self.committed = offset
        return True

    def shortage(self, copies_min: int) -> str:
        """Why no message may be stored now; "" if one may."""
        if self.frozen:
            return "this broker is handing over to another one: send again in a moment"
        ends = self.ends()
        for members, copies in self._rulers:
            needed = max(copies, copies_min)
            have = len(members & ends.keys())
            if have < needed:
                return (
                    f"{needed} copies are needed and {have} of the in-sync members {sorted(members)} are connected, "
                    "the master included: start the others (inSyncReplicas, minInSyncReplicas)"
                )
        return "" if self._rulers else "this broker has just become the master: send again in a moment"

    # Who waits

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def wait(self, end_offset: int, callback: Callback, now_s: float) -> None:
        """Tell `callback` when the log is committed up to here, or what became of it instead."""
        if end_offset <= self.committed and not self.frozen:
            callback(PutStatus.OK)
        else:
            self._waiters.append((end_offset, now_s + self._options.slave_timeout_ms / 1000, callback))

    def answer(self) -> None:
        """Tell those whose messages are committed."""
        waiters = self._waiters
        while waiters and waiters[0][0] <= self.committed and not self.frozen:
            tell(waiters.popleft()[2], PutStatus.OK)

    def expire(self, now_s: float) -> None:
        while self._waiters and self._waiters[0][1] <= now_s:
            tell(self._waiters.popleft()[2], PutStatus.FLUSH_SLAVE_TIMEOUT)

    def give_up(self) -> None:
        """Whether these messages stay is for the next master to know."""
        self.frozen = True
        while self._waiters:
            tell(self._waiters.popleft()[2], PutStatus.FLUSH_SLAVE_TIMEOUT)

    def next_deadline_s(self) -> float | None:
        return self._waiters[0][1] if self._waiters else None

    # Connections

    def received(self, member: Member, data: bytes, now_s: float) -> bool:
        """What a replica sent; True if its report moved. WireError: close the connection."""
        member.heard_s = now_s
        moved = False
        for said in member.reads.feed(data):
            if isinstance(said, Hello):
                self._greet(member, said)
            else:
                self._take_report(member, said, now_s)
                moved = True
        return moved

    def _greet(self, member: Member, said: Hello) -> None:
        if member.next_offset != NOTHING_SENT:
            raise WireError("a replica says hello in the middle of a transfer")
        if member.id:
            return  # sent again because the answer took its time
        if said.id == self.own_id and not said.is_learner:
            raise WireError(f"a replica says that it is member {said.id}, which is this master")
        member.id, member.is_learner, member._from_last_file = said.id, said.is_learner, said.from_last_file
        member._answers.append(frames.epochs(self.table, self._log.max_offset))
        if not said.is_learner:
            self.members[said.id] = member

    def _take_report(self, member: Member, offset: int, now_s: float) -> None:
        if not member.id:
            raise WireError("a replica reports before it says hello")
        if offset > self._log.max_offset:
            raise WireError(
                f"member {member.id} reports offset {offset}, but this log ends at {self._log.max_offset}: it has not "
                "cut what this master never had"
            )
        if member.next_offset == NOTHING_SENT:
            member.next_offset = self._first_offset(member, offset)
        elif offset > member.next_offset:
            raise WireError(
                f"member {member.id} reports offset {offset}, but was sent the log up to {member.next_offset} only"
            )
        if offset < member.acked:
            raise WireError(f"member {member.id} reports offset {offset} after {member.acked}: it lost what it had")
        member.acked = offset
        if not member.is_learner:
            # An older connection of it may have said hello later, or been lost later: who reports is there.
            self.members[member.id] = member
        if offset >= member.target:
            if member.target >= 0 or offset >= self._log.max_offset:
                member.caught_up_s = member.target_s
            member.target, member.target_s = self._log.max_offset, now_s
            if offset >= self._log.max_offset:
                member.caught_up_s = now_s

    def _first_offset(self, member: Member, offset: int) -> int:
        if offset:
            return offset
        if member._from_last_file:
            end = self._log.max_offset
            return end - end % self._options.segment_bytes
        return max(0, self._log.min_offset)

    def lost(self, member: Member) -> None:
        if self.members.get(member.id) is member:
            del self.members[member.id]

    def behind_s(self, member: Member, now_s: float) -> float:
        """For how long it has not been at the end of the log; 0 while there is nothing that it lacks."""
        if member.acked >= self._log.max_offset:
            return 0.0
        return now_s - max(member.caught_up_s, member.born_s if member.caught_up_s < 0 else member.caught_up_s)

    # What goes

    def output(self, member: Member, frames_max: int, now_s: float) -> list[bytes | memoryview]:
        """Buffers to be written now. Empty: nothing to say. WireError: what it needs has expired."""
        if member._answers:
            answers, member._answers = member._answers, []
            member.spoke_s = now_s
            return answers
        if member.next_offset == NOTHING_SENT:
            return []
        buffers: list[bytes | memoryview] = []
        while len(buffers) < 2 * frames_max:
            found = self._next_bytes(member)
            if found is None:
                break
            epoch, start, view = found
            buffers += (frames.frame(len(view), member.next_offset, epoch, start, max(0, self.committed)), view)
            member.next_offset += len(view)
            member.pace.count(len(view), now_s)
        if not buffers and now_s - member.spoke_s >= PING_S:
            offset = member.next_offset if self._log.max_offset else frames.OFFSET_MIN
            epoch, start = self.table.entries[-1]
            buffers.append(frames.frame(0, offset, epoch, start, max(0, self.committed)))
        if buffers:
            member.spoke_s = now_s
            member._told_committed = self.committed
        return buffers

    def _next_bytes(self, member: Member) -> tuple[int, int, memoryview] | None:
        """Of one segment and one epoch."""
        offset = member.next_offset
        if offset >= self._log.max_offset:
            return None
        found = self._log.read_from(offset)
        if found is None or found[0] != offset:
            if offset < self._log.min_offset:
                raise WireError(
                    f"member {member.id} asks for offset {offset}, but this log begins at {self._log.min_offset}: what "
                    "lay before has expired; empty its store to copy the log anew"
                )
            return None
        epoch, start, end = self.table.at(offset)
        return epoch, start, found[1][: min(self._options.ha_frame_bytes, end - offset)]

    def is_silent(self, member: Member, now_s: float) -> bool:
        return now_s - member.heard_s >= self._options.ha_silence_ms / 1000

    def due_s(self, member: Member) -> float:
        """When to ask for output, or whether it is silent, even if nothing happens."""
        silent_s = member.heard_s + self._options.ha_silence_ms / 1000
        return silent_s if member.next_offset == NOTHING_SENT else min(silent_s, member.spoke_s + PING_S)


def _held_by(copies: int, members: frozenset[int], ends: dict[int, int]) -> int:
    """Up to where `copies` of these members have the log; -1: there are not so many."""
    held = sorted((ends[number] for number in members if number in ends), reverse=True)
    return held[copies - 1] if len(held) >= copies else -1


