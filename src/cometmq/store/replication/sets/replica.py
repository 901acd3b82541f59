"""A replica of one master in one epoch, as a value: bytes go in, its log grows, reports come out.

    hello ──> the master's epochs ──> agree ──> cut, durably ──> first report ──> frames ──> reports of what is on disk

The epoch is the document's: a master of another one is left at once. Nothing is reported before both logs are one up
to where this one ends. Before the epoch's start is reported, this broker remembers durably that it has joined it:
that is what its vote in the next election says.
"""

from __future__ import annotations

from typing import Final, Protocol

from cometmq.errors import StoreError, WireError
from cometmq.store.replication.rate import Pace
from cometmq.store.replication.record_cutter import WholeRecords
from cometmq.store.replication.sets import frames
from cometmq.store.replication.sets.epochs import EpochTable, adopted, agreed_end
from cometmq.store.replication.sets.frames import Epochs, Frame, FromLeader
from cometmq.store.replication.sets.leader import PING_S

REPORT_S: Final = PING_S


class GrowingLog(Protocol):
    """What a replica needs of its log."""

    max_offset: int

    @property
    def min_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None: ...


class Memory(Protocol):
    """What outlives the process. All is on disk when a call returns; OSError: it is not."""

    table: EpochTable

    @property
    def joined(self) -> int: ...

    @property
    def sealed(self) -> int: ...

    def save_table(self, table: EpochTable) -> None: ...

    def join(self, epoch: int) -> None: ...


class ReplicaOptions(Protocol):
    segment_bytes: int


class Parted(StoreError):
    """The two logs have nothing in common. Retrying does not help: this store has to be emptied."""


class SetReplica:
    """One connection to a master, from `connected` on. `cut_to`: where the log has to be cut before it goes on; then
    call `was_cut`. -1: nowhere."""

    def __init__(
        self, own_id: int, epoch: int, log: GrowingLog, memory: Memory, options: ReplicaOptions, now_s: float,
        *, is_learner: bool = False,
    ) -> None:  # fmt: skip
        self.epoch = epoch
        self.start: int = -1
        self.cut_to: int = -1
        self.committed: int = 0
        self.reported: int = -1
        self.heard_s = now_s
        self.reported_s = now_s
        self.pace = Pace(now_s)
        self._own_id = own_id
        self._is_learner = is_learner
        self._log = log
        self._memory = memory
        self._reader = FromLeader(options.segment_bytes)
        self._records = WholeRecords(options.segment_bytes)
        self._position: int = -1
        self._theirs: EpochTable | None = None
        self._anywhere = False

    @property
    def is_agreed(self) -> bool:
        return self._position >= 0

    def connected(self, now_s: float) -> bytes:
        return frames.hello(self._own_id, is_learner=self._is_learner)

    def received(self, data: memoryview, now_s: float) -> bool:
        """Take bytes of the master; True if the log grew. WireError: the master breaks the protocol, or is another one.
        StoreError, OSError: the disk. Parted: the logs have nothing in common."""
        self.heard_s = now_s
        self.pace.count(len(data), now_s)
        grew = False
        for said in self._reader.feed(data):
            if isinstance(said, Epochs):
                self._compare(said)
            else:
                grew = self._take(said) or grew
        return grew

    # Agreement

    def _compare(self, said: Epochs) -> None:
        if self._theirs is not None:
            return  # it answered a hello that was sent twice
        if said.last != self.epoch or said.table.last != self.epoch:
            raise WireError(f"the master is in epoch {said.last}, this replica follows epoch {self.epoch}")
        own, end = self._memory.table, self._log.max_offset
        agreed = agreed_end(own, end, said.table, said.end) if end else 0
        if agreed < self._log.min_offset:
            raise Parted(
                f"this log ({self._log.min_offset} to {end}, epochs {own.entries[-3:]}) and the master's "
                f"(to {said.end}, epochs {said.table.entries[-3:]}) have nothing in common: empty this store"
            )
        self.start = said.table.start_of(self.epoch)
        self._theirs = said.table
        self.cut_to = agreed

    def was_cut(self, now_s: float) -> bytes:
        """The log ends at `cut_to`, on disk. The first report."""
        assert self._theirs is not None, "nothing was agreed on yet"
        assert self._log.max_offset == self.cut_to, f"cut at {self._log.max_offset}, not at {self.cut_to}"
        self._memory.save_table(adopted(self._memory.table if self.cut_to else EpochTable(), self._theirs, self.cut_to))
        self._position = self.cut_to
        self._anywhere = self.cut_to == 0
        self.cut_to = -1
        return self.report(now_s, first=True)

    # The log

    def _take(self, frame: Frame) -> bool:
        if not self.is_agreed:
            raise WireError("the master sends its log before it was asked")
        if frame.epoch > self.epoch:
            raise WireError(f"the master sends epoch {frame.epoch}, this replica follows epoch {self.epoch}")
        self.committed = max(self.committed, frame.committed)
        if not len(frame.data):
            return False
        if frame.offset != self._position:
            self._begin_at(frame.offset)
        self._note_epoch(frame)
        self._position = frame.offset + len(frame.data)
        offset, records = self._records.feed(frame.offset, [frame.data])
        if not len(records):
            return False
        self._log.append_raw(offset, records)
        return True

    def _begin_at(self, offset: int) -> None:
        """An empty log begins where the master's does."""
        if not self._anywhere or self._log.max_offset:
            raise WireError(f"the master sends offset {offset}, but this replica goes on at {self._position}")

    def _note_epoch(self, frame: Frame) -> None:
        self._anywhere = False
        table = self._memory.table
        if frame.epoch == table.last:
            return
        after = EpochTable(table.entries)
        try:
            after.append(frame.epoch, frame.start)
        except ValueError as error:
            raise WireError(f"the master sends an epoch that cannot be: {error}") from None
        self._memory.save_table(after)

    # Reports

    def report(self, now_s: float, *, first: bool = False) -> bytes:
        """The report that is due now; empty if none is."""
        if not self.is_agreed or self._memory.sealed >= self.epoch:
            return b""
        offset = min(self._position, self._log.flushed_offset) if self._log.max_offset else 0
        if not first and offset <= self.reported and now_s - self.reported_s < REPORT_S:
            return b""
        if offset >= self.start and self._memory.joined < self.epoch and not self._is_learner:
            self._memory.join(self.epoch)
        self.reported = max(offset, self.reported)
        self.reported_s = now_s
        return frames.report(self.reported)

    def due_s(self) -> float:
        return self.reported_s + REPORT_S
