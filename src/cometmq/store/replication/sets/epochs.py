"""Which master wrote which part of the log, and where two logs part.

    epoch     1            3       4
    log       |############|#######|####......
    start     0            4096    8192            the end of an epoch is the start of the next one, or of the log

The file is RocketMQ's `epochFileCheckpoint`: the number of entries, the CRC-32 of the rest without its top bit (0: not
checked), then a line for each entry.

    3
    1204932612
    1-0
    3-4096
    4-8192

An epoch without a message is recorded too: it replaces an older one with the same start, of which there is nothing.
"""

from __future__ import annotations

from typing import Final

from cometmq.wire.hashing import crc31

FILE_NAME: Final = "epochFileCheckpoint"
# As many as a handshake takes.
ENTRIES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 64 << 10


class EpochTable:
    """(epoch, start) in log order; both rise."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = list(entries or [])
        for before, after in zip(self.entries, self.entries[1:], strict=False):
            if after[0] <= before[0] or after[1] <= before[1]:
                raise ValueError(f"epoch {after[0]} from {after[1]} on follows epoch {before[0]} from {before[1]} on")
        if self.entries and (self.entries[0][0] < 0 or self.entries[0][1] < 0):
            raise ValueError(f"epoch {self.entries[0][0]} begins at {self.entries[0][1]}")

    @property
    def last(self) -> int:
        """The newest epoch; 0 if there is none."""
        return self.entries[-1][0] if self.entries else 0

    def start_of(self, epoch: int) -> int:
        """-1: it is not here."""
        return next((start for number, start in self.entries if number == epoch), -1)

    def at(self, offset: int) -> tuple[int, int, int]:
        """(epoch, start, end) of what lies at `offset`; the end of the newest is far away. (0, 0, 0): nothing does."""
        end = 1 << 62
        for epoch, start in reversed(self.entries):
            if start <= offset:
                return epoch, start, end
            end = start
        return 0, 0, 0

    def append(self, epoch: int, start: int) -> bool:
        """A new master begins. False: it is known. ValueError: it cannot be."""
        if self.entries and self.entries[-1] == (epoch, start):
            return False
        if self.entries and (epoch <= self.entries[-1][0] or start < self.entries[-1][1]):
            last, begun = self.entries[-1]
            raise ValueError(f"epoch {epoch} from {start} on cannot follow epoch {last} from {begun} on")
        if self.entries and self.entries[-1][1] == start:
            self.entries.pop()
        self.entries.append((epoch, start))
        return True

    def cut(self, end: int) -> None:
        """Without what begins behind `end`."""
        self.entries = [entry for entry in self.entries if entry[1] <= end]

    def expire(self, log_min: int) -> bool:
        """Without what ended at `log_min` or before. True if that was something."""
        keep = 0
        while keep + 1 < len(self.entries) and self.entries[keep + 1][1] <= log_min:
            keep += 1
        del self.entries[:keep]
        return keep > 0


def agreed_end(own: EpochTable, own_end: int, other: EpochTable, other_end: int) -> int:
    """Up to where two logs are one; -1: nobody can tell.

    The newest epoch that both have from the same start on is one master's work, and either has a part of it from the
    start. So what is shorter is the beginning of the other. Where no epoch is the same, a log that is known from its
    first byte on says that all the other one has is of masters who left nothing.
    """
    for number in range(len(own.entries) - 1, -1, -1):
        epoch, start = own.entries[number]
        if other.start_of(epoch) == start:
            theirs = _end_of(other, other.entries.index((epoch, start)), other_end)
            return min(_end_of(own, number, own_end), theirs, own_end, other_end)
    return 0 if other.entries and other.entries[0][1] == 0 else -1


def _end_of(table: EpochTable, number: int, log_end: int) -> int:
    return table.entries[number + 1][1] if number + 1 < len(table.entries) else log_end


def adopted(own: EpochTable, other: EpochTable, agreed: int) -> EpochTable:
    """The table of a log that was cut to `agreed` and goes on as the other one does."""
    theirs = [entry for entry in other.entries if entry[1] <= agreed]
    # What expired there and did not expire here.
    older = [entry for entry in own.entries if theirs and entry[0] < theirs[0][0] and entry[1] < theirs[0][1]]
    return EpochTable(older + theirs)


# The file


def encode(table: EpochTable) -> bytes:
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in table.entries)
    return f"{len(table.entries)}\n{crc31(lines.encode())}\n{lines}".encode()


def decode(data: bytes) -> EpochTable:
    """ValueError: it is damaged."""
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes, at most {FILE_BYTES_MAX}")
    lines = data.decode("ascii").split("\n")
    count, crc = int(lines[0]), int(lines[1])
    rows = [line for line in lines[2:] if line]
    if count != len(rows) or count > ENTRIES_MAX:
        raise ValueError(f"{len(rows)} entries, {count} were written, at most {ENTRIES_MAX}")
    if crc and crc != crc31("".join(f"{row}\n" for row in rows).encode()):
        raise ValueError(f"the entries do not have the CRC {crc}")
    return EpochTable([(int(epoch), int(start)) for epoch, _, start in (row.partition("-") for row in rows)])
