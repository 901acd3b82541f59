"""What a member of a set must not forget: two small files under the store root, replaced whole (state_file.py).

    epochFileCheckpoint    which master wrote which part of the log, as RocketMQ keeps it (epochs.py)
    setPromises.json       {"id": 2, "check": "...", "joined": 7, "sealed": 6, "led": 5, "cutting": -1}

Each call returns when the file is on disk. It is made on the event loop, and only when masters change: nothing else
may go on before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from cometmq import state_file
from cometmq.state_file import Files
from cometmq.store.replication.sets import epochs
from cometmq.store.replication.sets.epochs import EpochTable

FILE_NAME: Final = "setPromises.json"


class Kept(msgspec.Struct, frozen=True):
    """`check` makes this store known to its set: another one with the same id is not it."""

    id: int = 0
    check: str = ""
    joined: int = 0
    sealed: int = 0
    led: int = 0
    # Where the log is being cut; -1: nowhere.
    cutting: int = -1


class SetMemory:
    """Implements `replica.Memory`. StoreError: a file is damaged and has no good copy."""

    def __init__(self, root: str, files: Files) -> None:
        self._files = files
        self._promises = Path(root) / FILE_NAME
        self._epochs = Path(root) / epochs.FILE_NAME
        self.kept: Kept = state_file.load(self._promises, _decoded, files) or Kept()
        self.table: EpochTable = state_file.load(self._epochs, epochs.decode, files) or EpochTable()

    @property
    def joined(self) -> int:
        return self.kept.joined

    @property
    def sealed(self) -> int:
        return self.kept.sealed

    def save_table(self, table: EpochTable) -> None:
        if table.entries != self.table.entries:
            state_file.save(self._epochs, epochs.encode(table), self._files)
        self.table = table

    def recovered(self, log_end: int) -> None:
        """After a crash the log may end before what the table knows."""
        after = EpochTable(self.table.entries)
        after.cut(log_end)
        self.save_table(after)

    def become(self, number: int, check: str) -> None:
        """A member of the set from now on."""
        self._keep(msgspec.structs.replace(self.kept, id=number, check=check))

    def join(self, epoch: int) -> None:
        if epoch > self.kept.joined:
            self._keep(msgspec.structs.replace(self.kept, joined=epoch))

    def seal(self, epoch: int) -> None:
        """Nothing is reported to the master of this epoch or of an older one any more."""
        if epoch > self.kept.sealed:
            self._keep(msgspec.structs.replace(self.kept, sealed=epoch))

    def unseal(self, epoch: int) -> None:
        """The set counts the seal for nobody."""
        if self.kept.sealed >= epoch:
            self._keep(msgspec.structs.replace(self.kept, sealed=epoch - 1))

    def lead(self, epoch: int, start: int) -> None:
        """From `start` on this broker writes as the master of `epoch`. The log up to there is on disk."""
        after = EpochTable(self.table.entries)
        after.append(epoch, start)
        self.save_table(after)
        self._keep(msgspec.structs.replace(self.kept, led=epoch, joined=epoch))

    def begin_cut(self, offset: int) -> None:
        self._keep(msgspec.structs.replace(self.kept, cutting=offset))

    def end_cut(self) -> None:
        self._keep(msgspec.structs.replace(self.kept, cutting=-1))

    def _keep(self, kept: Kept) -> None:
        state_file.save(self._promises, msgspec.json.encode(kept), self._files)
        self.kept = kept


def _decoded(data: bytes) -> Kept:
    return msgspec.json.decode(data, type=Kept)
